"""The lock of a catalog on a local disk: every commit holds it, by Spark and by delta-rs.

Delta in Spark checks whether a version exists, and then renames its file to that name, under a lock of its own JVM. It
would silently overwrite a commit of another process in between (Delta's HDFSLogStore on `file:`). HDFS renames only to
free names, and in object stores a conditional PUT decides, so these need no lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kidxlib.errors import CatalogError
from kidxlib.storage.lock import ensure_locks

LOCK_FILE: Final = "_commit.lock"
#: A run that waits longer tells the user.
_TOLD_AFTER_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def committing(catalog: str) -> Iterator[None]:
    """Hold the lock of a catalog, named by directory or URL, after waiting until it is free. Not reentrant."""
    if (path := _lock_file(catalog)) is None:
        yield
        return
    descriptor = _locked(path)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def committing_threads(catalog: str) -> Iterator[None]:
    """Hold the lock of a catalog for Spark, whose JVM has its own lock between threads: the threads of this process
    share it, from the first that enters to the last that leaves. Reentrant.
    """
    if (path := _lock_file(catalog)) is None:
        yield
        return
    shared = _shared.setdefault(path, _Shared())
    with shared.mutex:  # waiting for the lock in here is safe: no thread of this process holds it then
        if not shared.users:
            shared.descriptor = _locked(path)
        shared.users += 1
    try:
        yield
    finally:
        with shared.mutex:
            shared.users -= 1
            if not shared.users:
                os.close(shared.descriptor)


@dataclass(slots=True)
class _Shared:
    """A lock that threads of this process hold, or wait for, together."""

    mutex: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    descriptor: int = -1


_shared: Final[dict[Path, _Shared]] = {}


def _lock_file(catalog: str) -> Path | None:
    path = unquote(urlsplit(catalog).path) if catalog.startswith("file:") else catalog
    return None if "://" in path else Path(path).absolute() / LOCK_FILE


def _locked(path: Path) -> int:
    """A descriptor that holds the lock, also until the process is killed."""
    ensure_locks(path)
    import fcntl  # here, as not each system has it that a catalog in an object store is read on

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise CatalogError(
            f"{error.filename}: cannot be made or opened: {error.strerror}; name a catalog directory that this user "
            f"may write to: every commit locks the file {LOCK_FILE} in it"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        notice = threading.Timer(_TOLD_AFTER_SECONDS, _say_that_it_waits, (path,))
        notice.daemon = True
        notice.start()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:  # Ctrl-C
            os.close(descriptor)
            raise
        finally:
            notice.cancel()
    return descriptor


def _say_that_it_waits(path: Path) -> None:
    _log.warning("%s: held by another run that writes to this catalog; waiting until its commit is done", path)
