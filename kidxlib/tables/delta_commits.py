"""Commits to the catalog's tables: each lands right after one version of a table, exactly once. `commit_once` commits
by delta-rs, under `committing`; Spark commits under `committing_threads`.

On a local disk a lock of the whole catalog excludes other writers. Delta in Spark checks whether a version exists, and
then renames its file to that name, under a lock of its own JVM. It would silently overwrite a commit of another process
in between (Delta's HDFSLogStore on `file:`). HDFS renames only to free names, and in object stores a conditional PUT
decides, so these need no lock.

If the connection to an object store ends before the answer, delta-rs takes the commit for failed. If the store fails
after making it, delta-rs tries again, and takes its own commit for another writer's. In both cases a second commit
would add the rows twice, so a commit has a mark by which its writer knows it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSystem

from kidxlib.catalog.tables import COMMIT_LOCK_FILE
from kidxlib.errors import CatalogError
from kidxlib.storage.lock import ensure_locks
from kidxlib.storage.store.s3 import ObjectPath, file_system_of, is_object
from kidxlib.tables.data_files import SortedFile, remove_uncommitted_files

#: The key in the table's history by which a writer knows its own commit.
_MARK: Final = "kidx.commit"

_log = logging.getLogger(__name__)

#: Tries of one commit or read, and the pauses between them in seconds.
ATTEMPTS: Final = 20
_PAUSE_MAX: Final = 5.0
_PAUSE_FIRST: Final = 0.05

#: A run that waits longer for the lock tells the user.
_TOLD_AFTER_SECONDS: Final = 1.0

#: Parts of delta-rs' messages. delta-rs retries all requests by itself but a conditional PUT, unless in mid-answer.
_BEFORE_THE_ANSWER: Final = "error sending request"
AMID_THE_ANSWER: Final = "request or response body error"


def attempts() -> Iterator[None]:
    """Attempts to commit or read a Delta table, with random pauses between them."""
    for number in range(ATTEMPTS):
        if number:
            time.sleep(random.uniform(0, min(_PAUSE_MAX, _PAUSE_FIRST * 2 ** (number - 1))))
        yield


def was_dropped(error: Exception) -> bool:
    """Whether a write of delta-rs failed because the connection ended before the store's whole answer came. The store
    may have carried out the request.
    """
    return _BEFORE_THE_ANSWER in str(error) or AMID_THE_ANSWER in str(error)


def commit_once(
    place: str,
    version: int,
    write: Callable[[CommitProperties], object],
    history: Mapping[str, Any] | None = None,
) -> None:
    """Commit a version of the table at a directory or URL, unless another writer does. `history` is the commit's
    metadata in the table's history.
    """
    mark = {_MARK: uuid.uuid4().hex} if is_object(place) else {}
    try:
        write(CommitProperties(max_commit_retries=0, custom_metadata={**(history or {}), **mark}))
    except (DeltaError, OSError) as error:
        if mark and _holds(place, version, mark[_MARK]):
            return
        if was_dropped(error):
            raise CommitFailedError(str(error)) from error
        raise


def _holds(place: str, version: int, mark: str) -> bool:
    try:
        commit = (ObjectPath.of(place) / "_delta_log" / f"{version:020}.json").read_bytes()
    except FileNotFoundError:
        return False
    return mark.encode() in commit


def replace_files(
    delta: DeltaTable,
    old: Mapping[str, int],
    new: Sequence[SortedFile],
    *,
    data_change: bool,
    history: Mapping[str, Any],
) -> None:
    """Commit new files in place of old ones. If the commit fails on a disk, the new files are removed. In an object
    store they stay: a commit whose answer was lost may still be made.

    Args:
        delta: a version with the old files.
        old: the sizes of the old files, by path.
        data_change: whether rows change; readers of the change feed skip other commits.
        history: the commit's metadata in the table's history.
    """
    now = int(time.time() * 1000)
    adds = [AddAction(file.name, file.size, {}, now, data_change, file.statistics) for file in new]
    removes = [RemoveAction(path, data_change, now, size, {}) for path, size in old.items()]

    def write(properties: CommitProperties) -> None:
        delta.create_write_transaction([*adds, *removes], "append", delta.schema(), commit_properties=properties)

    try:
        commit_once(delta.table_uri, delta.version() + 1, write, history)
    except (DeltaError, OSError):
        place = file_system_of(delta)
        if not is_object(delta.table_uri) and not _is_committed(place, delta.version() + 1, new):
            remove_uncommitted_files(place, new)
        raise


def _is_committed(place: FileSystem, version: int, new: Sequence[SortedFile]) -> bool:
    """Whether a version has the files: delta-rs may fail after a commit, as when it cannot write a checkpoint."""
    try:
        with place.open_input_stream(f"_delta_log/{version:020}.json") as log:
            commit = log.read()
    except FileNotFoundError:
        return False
    return any(file.name.encode() in commit for file in new)


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
    return None if "://" in path else Path(path).absolute() / COMMIT_LOCK_FILE


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
            f"may write to: every commit locks the file {COMMIT_LOCK_FILE} in it"
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
