"""What a build or an audit reads: the sources that were named, or the bundled sample where that can do no harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow

from jobs.common.settings import PROJECT, BuildSettings
from jobs.common.tables import PARTITIONS
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.plan import parse_sources

SAMPLE: Final = Source("sample", PROJECT / "samples" / "kafka-logs")

_EXPECTED: Final = "name the log dir to read with --source, or give --sample for the bundled one"


def chosen_sources(
    given: tuple[str, ...], *, sample: bool, options: Mapping[str, object], settings: BuildSettings
) -> tuple[Source, ...]:
    """The sources of `--source`, or the bundled sample: with `--sample`, or where a first try is all that it can be.

    Who names a place works with something of their own, and has forgotten `--source`.

    Args:
        options: those that name a place, by what a user calls them; None or False where they were not given.

    Raises:
        UsageError: the sample was not asked for, and a place is named; a source is no folder, or names are missing or
            given twice, or a path is no text.
    """
    if sample and given:
        raise UsageError("--sample and --source: give one of them")
    if not sample and not given:
        defaults = BuildSettings()
        named = [option for option, value in options.items() if value]
        named += [
            f"build.{name} in the settings"
            for name in ("index_dir", "catalog")
            if getattr(settings, name) != getattr(defaults, name)
        ]
        if named:
            raise UsageError(f"no --source, though {named[0]} is given: {_EXPECTED}")
    sources = parse_sources(given) or (SAMPLE,)
    for source in sources:
        if not str(source.path).isprintable():
            raise UsageError(
                f"{source.path}: a path that cannot be written as text has no place in a table; use kidx instead"
            )
    return sources


def refuse_sample_among_others(catalog: str) -> None:
    """The default catalog, too, may be one that somebody works with.

    Raises:
        UsageError: other sources than the sample are in it.
    """
    # Nobody else waits for what this imports.
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    try:
        partitions = QueryBuilder().register("partitions", DeltaTable(f"{catalog}/{PARTITIONS.name}"))
        rows = partitions.execute("SELECT DISTINCT source FROM partitions").read_all()
    except (DeltaError, OSError):  # none as yet, or Spark will say what is wrong with it
        return
    others = sorted({row["source"] for row in pyarrow.table(rows).to_pylist()} - {SAMPLE.name})
    if others:
        raise UsageError(f"no --source, and the catalog {catalog} has {', '.join(others[:3])}: {_EXPECTED}")


def as_line(sources: tuple[Source, ...]) -> str:
    """What was read, for the summary."""
    return ", ".join(
        str(source.path) if source.name == str(source.path) else f"{source.name} ({source.path})" for source in sources
    )
