"""Work that the command does in its own process, as little as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kidxlib.engine.staged import StagedFiles
from kidxlib.engine.units import UnitDone, do_unit, units_of
from kidxlib.engine.work import Work


def run_in_process(
    work: Work[Any],
    directory: Path,
    until_stopped: Callable[[Iterable[Any]], Iterator[Any]],
    take: Callable[[UnitDone], None],
) -> StagedFiles:
    """Do the units of some work one after the other. Nothing is mapped: a log that shrinks would end the process.

    Args:
        directory: of the files, a new one.
        until_stopped: gives the units and items that are still to be done.
        take: gets each unit that is done.

    Raises:
        KidxError: a unit cannot be done.
    """
    done = []
    for unit in until_stopped(units_of(work, directory)):
        done.append(do_unit(unit, False, until_stopped))
        take(done[-1])
    return StagedFiles([unit.path for unit in done], work.schema)
