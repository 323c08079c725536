"""Whether executors see the sources that the driver has listed."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.errors import UsageError
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import Location
from kidxlib.storage.s3 import ObjectPath, is_object


def why_unseen(directory: Location) -> str | None:
    """Why this machine sees nothing of what was listed in a directory; None where it sees something.

    Where a mount is missing its directory is mostly there, and empty. Read from there, every log would be one that was
    deleted since it was listed, which is no error.
    """
    try:
        if isinstance(directory, ObjectPath):
            return None if directory.exists() else "no object with this prefix"
        with os.scandir(directory) as entries:
            return None if any(True for _ in entries) else "an empty directory"
    except OSError as error:
        return error.strerror or str(error)


def ensure_logs_visible(results: DataFrame) -> None:
    """A log that an executor did not find was deleted meanwhile, as retention does; if it is still there, it was not.

    Args:
        results: with `status` and `log_path` of segments.

    Raises:
        UsageError: an executor has something else than the source mounted at its path.
    """
    gone = results.where(F.col("status") == Status.GONE.value).select("log_path").limit(PROBLEMS_KEPT).collect()
    for row in gone:
        if not is_object(row["log_path"]) and os.path.lexists(row["log_path"]):
            raise UsageError(
                f"an executor does not find {row['log_path']}, which is there; "
                "mount the same directory at the same path on every executor"
            )
