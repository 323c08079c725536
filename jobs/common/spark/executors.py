"""What a task on an executor may do, and whether it sees what the driver sees."""

from __future__ import annotations

import socket
from typing import Final

from pyspark import TaskContext

from jobs.common.spark.source_access import why_unseen
from jobs.common.spark.stop_file import StopFile
from kidxlib.errors import UsageError
from kidxlib.storage.location import Location
from kidxlib.storage.s3 import ObjectPath

NEVER: Final = StopFile()


def may_map() -> bool:
    """Whether this attempt of a Spark task may map files. The attempt before may have died of a mapped file that shrank
    or has a bad sector; reads cannot kill this one.
    """
    attempt = TaskContext.get()
    return attempt is None or attempt.attemptNumber() == 0


def ensure_seen(directory: Location) -> None:
    """Raises `UsageError` where this executor does not see a source's directory."""
    if why := why_unseen(directory):
        what_to_do = (
            "give executors the endpoint and credentials that the driver has, as docs/object-stores.md says"
            if isinstance(directory, ObjectPath)
            else "mount it at the same path on every executor"
        )
        raise UsageError(f"executor {socket.gethostname()} does not see the source {directory} ({why}); {what_to_do}")
