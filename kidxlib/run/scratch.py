"""The scratch directory of a run: what was found in segments, until it is recorded. It goes with the run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kidxlib.run.heartbeat import beating_in, sweep_folders
from kidxlib.storage.scratch import temporary_place, writing_in

_PREFIX: Final = "kidx-"


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory in `TMPDIR`, or /tmp, that goes at the end. Those that killed runs left there go first.

    Raises:
        KidxError: it cannot be made.
    """
    place = temporary_place()
    sweep_folders(place, prefix=_PREFIX)
    with contextlib.ExitStack() as stack:
        with writing_in(place):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place)))
            stack.enter_context(beating_in(directory))
        yield directory
