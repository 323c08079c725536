"""Whether workers see the logs that the run has listed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pyarrow.compute as pc

from kidxlib.build.source import Source
from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.build.tasks import ScanTask
from kidxlib.engine.staged import Staged
from kidxlib.errors import UsageError
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import is_object


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
