"""What an operation asks of an engine, and whether the engine's workers see the logs that the run has listed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.engine.staged import Staged
from kidxlib.engine.work import SharedRows, Work
from kidxlib.errors import UsageError
from kidxlib.indexing.source import Source
from kidxlib.indexing.summary import PROBLEMS_KEPT
from kidxlib.indexing.tasks import ScanTask
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import Location
from kidxlib.storage.store.requests import Requests
from kidxlib.storage.store.s3 import is_object
from kidxlib.terminal.phase import Done


class Engine(Protocol):
    """Workers that do units of work at the same time."""

    @property
    def cores(self) -> int:
        """How many units are done at a time."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether all workers are on the machine of the command, so that a lock on its files covers them."""

    def start(self) -> None:
        """There will be work that reads logs: workers may be started."""

    def stopping(self) -> AbstractContextManager[None]:
        """While the context lasts, work that was begun comes to its end where the run is interrupted, and no other is
        begun. The interruption is raised at its end, so that what was done can be recorded.
        """

    def share(self, rows: pa.Table) -> SharedRows:
        """Put rows where workers read them: they are there as long as the engine is.

        Raises:
            KidxError: they cannot be written.
        """

    def run(self, work: Work[Any]) -> Staged:
        """Do the units of some work.

        Returns:
            The rows of the units that were done. They are there as long as the engine is.

        Raises:
            UsageError: a worker does not see a directory of the work.
            KidxError: a unit cannot be done; or workers die, though they map no file.
        """

    def sweep(self, older_than_ms: int) -> None:
        """Remove what killed runs have staged at a URL, by the heartbeats there; what has none, where it was last
        written before then (milliseconds since the epoch). What they left in a directory is the catalog's to sweep.
        """

    def done(self) -> Done:
        """How much was done in all that was run, as units end."""

    def requests(self) -> Requests:
        """How many requests of object stores workers have made in processes of their own, as units end."""


def directories_of(tasks: Iterable[ScanTask], sources: Sequence[Source]) -> list[Location]:
    """The directories of the sources that have segments among some tasks."""
    to_read = {task.segment.source for task in tasks}
    return [source.path for source in sources if source.name in to_read]


def ensure_logs_visible(staged: Staged) -> None:
    """A log that a worker did not find was deleted meanwhile, as retention does; if it is still there, it was not.

    Args:
        staged: rows of segments, with `status` and `log_path`.

    Raises:
        UsageError: a worker on another machine has something else than the source at its path.
    """
    gone = staged.rows("segment", ["status", "log_path"]).filter(pc.field("status") == Status.GONE.value)
    for path in map(str, gone["log_path"].slice(0, PROBLEMS_KEPT).to_pylist()):
        if not is_object(path) and os.path.lexists(path):
            raise UsageError(
                f"an executor does not find {path}, which is there; "
                "mount the same directory at the same path on every executor"
            )
