"""Where rows wait until they are recorded, and what is said where they cannot be written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kidxlib.errors import KidxError


def temporary_place() -> Path:
    """`TMPDIR`, or /tmp; not where else Python would look: in the current directory, perhaps a broker's log dir."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


@contextlib.contextmanager
def writing_in(place: Path) -> Iterator[None]:
    """Say in one line that a directory has no room, or cannot be written."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise KidxError(
            f"{place}: rows wait there until they are recorded, and cannot be written: {why}; "
            "make room there, or set TMPDIR to another directory where it is a temporary one"
        ) from error
