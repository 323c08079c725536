"""Whether executors see the sources that the driver has listed."""

from __future__ import annotations

import os
import socket

from kidxlib.errors import UsageError
from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import ObjectPath


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


def ensure_seen(directory: Location) -> None:
    """Raises `UsageError` where this executor does not see a source's directory."""
    if why := why_unseen(directory):
        what_to_do = (
            "give executors the endpoint and credentials that the driver has, as docs/object-stores.md says"
            if isinstance(directory, ObjectPath)
            else "mount it at the same path on every executor"
        )
        raise UsageError(f"executor {socket.gethostname()} does not see the source {directory} ({why}); {what_to_do}")
