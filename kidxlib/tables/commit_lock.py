"""One writer at a time on a catalog that lies on a local disk.

Delta through Spark looks whether a version exists, and then renames its file to that name, under a lock of its own JVM.
A commit of another process in between would be overwritten in silence (Delta's HDFSLogStore on `file:`). So commits of
this package hold this lock meanwhile. The jobs commit through Spark, and do not hold it yet: until they do, a job and a
commit of this package must not change one catalog at the same time. In object stores a conditional PUT decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kidxlib.errors import CatalogError

LOCK_FILE: Final = "_commit.lock"


@contextlib.contextmanager
def committing(catalog: str) -> Iterator[None]:
    """Hold the lock of a catalog; wait until it is free. An object store has none.

    Raises:
        CatalogError: the lock file cannot be opened.
    """
    if "://" in catalog:
        yield
        return
    path = Path(catalog) / LOCK_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise CatalogError(
            f"{path}: cannot be opened: {error.strerror}; every commit without Spark locks it"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # goes with the descriptor, so with a process that is killed
        yield
    finally:
        os.close(descriptor)
