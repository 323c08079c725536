"""Whether executors see the sources that the driver has listed."""

from __future__ import annotations

import os

from kidxlib.storage.location import Location
from kidxlib.storage.s3 import ObjectPath


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
