"""Copies of logs and other files into new directories: by reflink where the file system has it, else byte by byte.
Never by a hard link: a broker appends to logs and cuts them in place, so that a link would change the original.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from kidxlib.errors import KidxError, LogChangedError, PublishError
from kidxlib.format.checksums import extend_crc32c_in_memory
from kidxlib.storage.location import FileVersion, flush_file_system_of, regular_file
from kidxlib.storage.log_bytes import Access, UncachedReads, UncachedWrites, aligned_room
from kidxlib.storage.opened_log import OpenedFile
from kidxlib.storage.publisher import FileOwner

_T = TypeVar("_T")

#: `FICLONE` of Linux's `linux/fs.h`.
_CLONE: Final = 0x40049409
#: A file system that has no reflinks, or not between these two files, answers so.
_NOT_CLONED: Final = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS)
_PIECE_BYTES: Final = 8 * 1024 * 1024
#: Threads for each core: most of the time they wait for the disk.
_THREADS_A_CORE: Final = 2
#: Groups of files that are copied at the same time: while one is flushed, the disk is busy with the other.
_GROUPS_AT_ONCE: Final = 2
#: Copies of a group are left in memory for who reads them next, if they are not more than this for each core.
_IN_MEMORY_A_CORE: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file to be copied.

    Attributes:
        source: it is only read.
        target: there is no such file; its directory is there.
        size: so many bytes from the beginning; what is behind is left out.
        owner: whose the copy is; it has the permissions of its source.
    """

    source: Path
    target: Path
    size: int
    owner: FileOwner


@dataclass(frozen=True, slots=True)
class Copied:
    """
    Attributes:
        reflinked: the bytes that the source and the copy share on the disk.
        written: the bytes that were written, and read back.
    """

    reflinked: int = 0
    written: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.reflinked + other.reflinked, self.written + other.written)


def make_directory(path: Path, like: Path, owner: FileOwner) -> None:
    """Make a directory for copied files, with the permissions of another one.

    Raises:
        PublishError: it is there already, or cannot be made.
    """
    try:
        path.mkdir()
        os.chmod(path, os.stat(like).st_mode & 0o7777 | 0o700)
        _give(path, owner)
    except OSError as error:
        raise PublishError(f"{path}: not made: {error.strerror}") from error


def copy_files(groups: Iterable[tuple[_T, Sequence[FileCopy]]], cores: int) -> Generator[tuple[_T, Copied], None, None]:
    """Copy groups of files durably, with their modification times. Yield what was copied of each group, in their order,
    once all of it was flushed, and what was written has been read back from the disk. What stands for a group may be
    anything.

    The copies of a group are in memory then, if these are not too many bytes, until the next group is asked for. That
    one is copied meanwhile.

    Args:
        cores: for each, some files are copied at the same time, and one is read back.

    Raises:
        PublishError: a copy is there already, cannot be written, or does not read back; or a source has become shorter.
    """
    at_work: deque[tuple[_T, Sequence[FileCopy], Future[Copied]]] = deque()
    copying = _Copying(cores)
    try:
        for group, files in groups:
            at_work.append((group, files, copying.begin(files)))
            if len(at_work) > _GROUPS_AT_ONCE:
                yield from _first_done(at_work)
        while at_work:
            yield from _first_done(at_work)
    except (KidxError, OSError) as error:
        copying.give_up()
        failed = (begun.exception() for _, _, begun in at_work if not begun.cancelled())
        # A disk that has failed for one group fails whoever asks for the next one, too.
        raise next((first for first in failed if isinstance(first, PublishError)), error) from None
    finally:
        copying.give_up()  # interrupted, or one of the copies failed: none of the others is of use


class _Copying:
    """The threads that copy groups of files."""

    def __init__(self, cores: int) -> None:
        self._in_memory_most = _IN_MEMORY_A_CORE * cores
        self._given_up = threading.Event()
        self._copies = ThreadPoolExecutor(cores * _THREADS_A_CORE, thread_name_prefix="kidx-copy")
        self._reads = ThreadPoolExecutor(cores, thread_name_prefix="kidx-read-back")
        self._groups = ThreadPoolExecutor(_GROUPS_AT_ONCE, thread_name_prefix="kidx-copies")

    def begin(self, files: Sequence[FileCopy]) -> Future[Copied]:
        return self._groups.submit(self._copy_group, files)

    def give_up(self) -> None:
        """End what is at work amid its file. It is waited for."""
        self._given_up.set()
        for threads in (self._copies, self._reads, self._groups):
            threads.shutdown(cancel_futures=True)

    def _copy_group(self, files: Sequence[FileCopy]) -> Copied:
        given_up = itertools.repeat(self._given_up)
        size = sum(file.size for file in files)
        checksums = list(self._copies.map(_copy, files, given_up))
        _flush({file.target.parent for file in files})
        to_memory = itertools.repeat(size <= self._in_memory_most)
        deque(self._reads.map(_read_back, files, checksums, to_memory, given_up), maxlen=0)
        written = sum(file.size for file, checksum in zip(files, checksums, strict=True) if checksum is not None)
        return Copied(size - written, written)


def _first_done(at_work: deque[tuple[_T, Sequence[FileCopy], Future[Copied]]]) -> Iterator[tuple[_T, Copied]]:
    group, files, copying = at_work[0]
    copied = copying.result()
    at_work.popleft()
    yield group, copied
    for file in files:
        with file.target.open("rb", buffering=0) as copy:
            os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _copy(file: FileCopy, given_up: threading.Event) -> int | None:
    """Copy a file. Return the checksum of what was written; None for a reflink."""
    try:
        return _copied(file, given_up)
    except OSError as error:
        raise PublishError(f"{file.target}: not copied from {file.source}: {error.strerror}") from error
    except LogChangedError as error:
        raise PublishError(f"{file.target}: not copied from {file.source}: {error}") from error


def _copied(file: FileCopy, given_up: threading.Event) -> int | None:
    with regular_file(file.source) as source:
        status = os.fstat(source.fileno())
        descriptor = os.open(file.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as target:
            if status.st_size < file.size:
                raise PublishError(
                    f"{file.source}: {status.st_size} bytes, {file.size} when it was planned; plan again"
                )
            checksum = None
            if _is_cloned(source.fileno(), descriptor):
                if os.fstat(descriptor).st_size != file.size:  # else the last block would be written anew
                    target.truncate(file.size)
            else:
                checksum = _write(source.fileno(), descriptor, file.size, given_up)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # the kernel begins to write pages out
            os.fchmod(descriptor, status.st_mode & 0o777 | 0o600)
            _give(descriptor, file.owner)
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
    return checksum


def can_reflink(source: Path, directory: Path) -> bool:
    """Whether a copy of a file in a directory would share its bytes with it. It is tried with a file that has no name,
    and is gone at once.
    """
    with regular_file(source) as file:
        try:
            descriptor = os.open(directory, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        except OSError:  # nothing may be written there, or the file system has no such files
            return False
        with open(descriptor, "wb", buffering=0):
            try:
                return _is_cloned(file.fileno(), descriptor)
            except OSError:
                return False


def _is_cloned(source: int, target: int) -> bool:
    import fcntl

    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError as error:
        if error.errno not in _NOT_CLONED:
            raise
        return False
    return True


def _write(source: int, target: int, size: int, given_up: threading.Event) -> int:
    """Copy the first bytes of a file, and return their checksum."""
    checksum, position = 0, 0
    opened = OpenedFile(source, FileVersion.of(os.fstat(source)))
    with contextlib.closing(opened), UncachedWrites(target) as write:
        log = opened.log(size, use_mmap=False, access=Access.SEQUENTIAL)
        while position < size:
            if given_up.is_set():
                raise CancelledError
            start, window = log.window(position)
            piece = window[position - start :]
            write(position, piece)
            checksum = extend_crc32c_in_memory(checksum, piece)
            position += len(piece)
    return checksum


def _give(place: int | Path, owner: FileOwner) -> None:
    with contextlib.suppress(PermissionError):  # only root gives files away; the copy is the caller's own then
        os.chown(place, owner.user, owner.group)


def _flush(directories: Iterable[Path]) -> None:
    by_device: dict[int, Path] = {}
    for directory in directories:
        by_device.setdefault(directory.stat().st_dev, directory)
    for directory in by_device.values():
        flush_file_system_of(directory)


def _read_back(file: FileCopy, expected: int | None, to_memory: bool, given_up: threading.Event) -> None:
    """Read a copy from the disk, into memory for who reads it next, and see that it is what was written. What a reflink
    shares with its source was not written.
    """
    if expected is None and not to_memory:
        return
    path = file.target
    try:
        checksum = _checksum_on_disk(path, to_memory, given_up)
    except OSError as error:
        raise PublishError(f"{path}: it cannot be read back: {error.strerror}: check this disk") from error
    if expected is not None and checksum != expected:
        raise PublishError(f"{path}: it does not read back as it was written: check this disk")


def _checksum_on_disk(path: Path, to_memory: bool, given_up: threading.Event) -> int:
    """The checksum of a file that is read from the disk: its pages are dropped first, as far as the kernel does that.
    With `to_memory` the file is in the page cache afterwards.
    """
    checksum, position, piece = 0, 0, aligned_room(_PIECE_BYTES)
    with path.open("rb", buffering=0) as file, contextlib.ExitStack() as uncached:
        read_into = UncachedReads(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not to_memory:
            uncached.enter_context(read_into)
        while count := read_into(position, piece):
            checksum = extend_crc32c_in_memory(checksum, piece[:count])
            position += count
            if given_up.is_set():
                raise CancelledError
    return checksum
