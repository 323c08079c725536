"""Files of a run that go with it: what was found in segments, until it is recorded."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kidxlib.errors import KidxError


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory in `TMPDIR`, or /tmp, that goes at the end.

    Raises:
        KidxError: it cannot be made.
    """
    # Not where else Python would look: in the current directory, which may be a broker's log dir.
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    with contextlib.ExitStack() as stack:
        with writing_in(place):
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="kidx-", dir=place))
        yield Path(directory)


@contextlib.contextmanager
def writing_in(place: Path) -> Iterator[None]:
    """Say in one line that a directory has no room, or cannot be written.

    Raises:
        KidxError: as that; it names the directory.
    """
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise KidxError(
            f"{place}: rows wait there until they are recorded, and cannot be written: {why}; "
            "make room there, or set TMPDIR to another directory where it is a temporary one"
        ) from error
