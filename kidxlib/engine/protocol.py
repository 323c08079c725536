"""The interface of an engine, and the check that its workers see the logs that the run has listed."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.engine.work import SharedRows, StagedRows, Work
from kidxlib.errors import UsageError
from kidxlib.indexing.build_counts import PROBLEMS_KEPT
from kidxlib.recovery.outcome import Status
from kidxlib.storage.store.requests import Requests
from kidxlib.storage.store.s3 import is_object
from kidxlib.terminal.console import Progress


class Engine(Protocol):
    """Workers that do units of work at the same time."""

    @property
    def cores(self) -> int:
        """How many units are done at a time."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether all workers are on the machine of the command, so that a lock on its files covers them."""

    def start(self) -> None:
        """Announce work that reads logs, so that workers may be started."""

    def stopping(self) -> AbstractContextManager[None]:
        """Within the context, an interrupted run finishes the work that was begun, and begins no other. The
        interruption is raised at the end of the context, so that the results can be recorded.
        """

    def abandoning(self) -> AbstractContextManager[None]:
        """Within the context, an interrupted run ends as soon as it can, and nothing is had of the work that was begun:
        for work that only reads, and of which nobody records a part. The interruption is raised as by `stopping`.
        """

    def share(self, rows: pa.Table) -> SharedRows:
        """Put rows where workers can read them, for the engine's lifetime."""

    def run(self, work: Work[Any]) -> StagedRows:
        """Do the units of some work. The rows of the finished units are there for the engine's lifetime. Raises
        `UsageError` if a worker does not see a directory of the work, `KidxError` if a unit cannot be done,
        `WorkersDiedError` if workers die although they map no file.
        """

    def sweep(self, older_than_ms: int) -> None:
        """Remove the staged rows of killed runs at a URL, by their heartbeats, or without a heartbeat if they were last
        written before a time (ms since the epoch). The catalog sweeps directories.
        """

    def done(self) -> Progress:
        """The work done so far, counted as units end."""

    def requests(self) -> Requests:
        """The requests to object stores by worker processes so far, counted as units end."""


def ensure_logs_visible(staged: StagedRows) -> None:
    """Check that an engine's workers see the logs that were listed: those that they did not find are missing here, too,
    so were deleted meanwhile. If not, a worker on another machine has something else at the source's path.
    """
    gone = staged.rows("segment", ["status", "log_path"]).filter(pc.field("status") == Status.GONE.value)
    for path in map(str, gone["log_path"].slice(0, PROBLEMS_KEPT).to_pylist()):
        if not is_object(path) and os.path.lexists(path):
            raise UsageError(
                f"an executor does not find {path}, which is there; "
                "mount the same directory at the same path on every executor"
            )
