"""Whether workers saw the logs that the run had listed."""

from __future__ import annotations

import os

import pyarrow.compute as pc

from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.engine.staged import Staged
from kidxlib.errors import UsageError
from kidxlib.recovery.outcome import Status
from kidxlib.storage.s3 import is_object


def ensure_logs_seen(staged: Staged) -> None:
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
