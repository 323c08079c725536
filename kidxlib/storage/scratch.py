"""The directory of rows that wait to be recorded, and the error if they cannot be written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kidxlib.errors import KidxError


def temporary_place() -> Path:
    """`TMPDIR`, or /tmp. Unlike Python's, never the current directory, which may be a broker's log dir."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


@contextlib.contextmanager
def writing_in(place: Path) -> Iterator[None]:
    """Turn an error of a full or unwritable directory into one line."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise KidxError(
            f"{place}: rows wait there until they are recorded, and cannot be written: {why}; "
            "make room there, or set TMPDIR to another directory where it is a temporary one"
        ) from error
