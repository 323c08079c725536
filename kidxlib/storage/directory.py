"""A directory of index files, on this machine, in an object store or packed in a catalog; and functions to read its
files.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Protocol

from kidxlib.errors import PublishError
from kidxlib.storage.packed import PackedPath, is_packed
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus, is_object, open_object, read_object

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
#: The first read of a file, and each one after it. Room for more than 64 KiB is asked of the kernel, which takes ten
#: times as long as to read a small file.
_FIRST_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory for index files: `path` below `root`, each part of `path` opened without following symlinks.

    The root and the parts below it are made if they are missing. In an object store directories are only names.
    """

    root: str
    path: str

    def __str__(self) -> str:
        return os.path.join(self.root, self.path)


def is_local(directory: Directory) -> bool:
    """Whether a directory is on this machine, and not in an object store or packed."""
    return not is_object(directory.root) and not is_packed(directory.root)


class FileStatus(Protocol):
    """The part of an `os.stat_result` or an object's status that is used: bytes, and times in ns since the epoch."""

    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


def is_taken(directory: int, name: str) -> bool:
    """Whether an opened directory has an entry of any kind with this name."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def opened_below(root: int, path: str) -> Iterator[int]:
    """A descriptor of an existing directory below an opened one, closed at the end of the context."""
    descriptor = open_below(root, path, make=False)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(root: int, path: str, *, make: bool) -> int:
    """Open the directory `path` below an opened one; no part of it may be a symlink."""
    first, *others = PurePath(path).parts or (".",)
    descriptor = _open_part(root, first, make=make)
    try:
        for part in others:
            below = _open_part(descriptor, part, make=make)
            os.close(descriptor)
            descriptor = below
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_part(directory: int, name: str, *, make: bool) -> int:
    """Open a directory in an opened one, which is made if it is missing and `make`."""
    try:
        return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)


def flush_file_systems(roots: Iterable[int]) -> None:
    for root in roots:
        if not hasattr(_libc, "syncfs"):  # not Linux
            os.sync()
        elif _libc.syncfs(root) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def flush_file_system_of(directory: str | PurePath) -> None:
    """Make all files durable that are on the file system of a directory.

    Raises:
        PublishError: this cannot be done.
    """
    descriptor = os.open(directory, DIRECTORY)
    try:
        flush_file_systems([descriptor])
    except OSError as error:
        raise PublishError(f"{directory}: cannot be flushed: {error.strerror}; check this disk") from error
    finally:
        os.close(descriptor)


def why_not_opened(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the path is a symbolic link or a file, expected directories only"
    return error.strerror or str(error)


def read_at(directory: int, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a regular file in an opened directory; None: there is no such file."""
    descriptor = _open_at(directory, name)
    if descriptor is None:
        return None
    try:
        return read_opened(descriptor, limit)
    finally:
        os.close(descriptor)


def _open_at(directory: int, name: str) -> int | None:
    """A descriptor of a regular file in an opened directory, which the caller closes; None: there is no such file."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


def read_opened(descriptor: int, limit: int = -1) -> bytes:
    """Up to `limit` bytes of a file, or all. No object of `io` is made: for a small file that takes longer than the
    read.
    """
    if 0 <= limit <= _FIRST_BYTES:
        return os.read(descriptor, limit)
    pieces, left, piece_bytes = list[bytes](), limit, _FIRST_BYTES
    while piece := os.read(descriptor, piece_bytes if limit < 0 else min(left, piece_bytes)):
        pieces.append(piece)
        left, piece_bytes = left - len(piece), _PIECE_BYTES
    return b"".join(pieces)


def read_file(directory: Directory, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a regular file, opened without symlinks; None if it cannot be read."""
    if (path := object_at(directory, name)) is not None:
        return _read_object(path, limit)
    if is_packed(directory.root):
        return _read_packed(directory, name, limit)
    with opened_directory(directory) as descriptor:
        return None if descriptor is None else read_at(descriptor, name, limit)


def read_end(directory: Directory, name: str, size: int) -> bytes | None:
    """The last `size` bytes, or all, of a regular file, opened without symlinks; None if it cannot be read."""
    if (path := object_at(directory, name)) is not None:
        content = _read_object(path)
        return None if content is None else content[max(len(content) - size, 0) :]
    if is_packed(directory.root):
        content = _read_packed(directory, name)
        return None if content is None else content[max(len(content) - size, 0) :]
    with opened_directory(directory) as descriptor:
        if descriptor is not None and (file := _open_at(descriptor, name)) is not None:
            try:
                os.lseek(file, max(os.fstat(file).st_size - size, 0), os.SEEK_SET)
                return read_opened(file, size)
            finally:
                os.close(file)
    return None


def list_directory(directory: Directory) -> list[str]:
    """The names in a directory; none if it does not exist or cannot be opened."""
    if is_object(directory.root):
        return list(listed_objects(directory))
    if is_packed(directory.root):
        return list(packed_sizes(directory))
    with opened_directory(directory) as descriptor:
        return [] if descriptor is None else os.listdir(descriptor)


def object_sizes(directory: Directory) -> dict[str, int]:
    """The sizes in bytes of the objects directly in a directory of an object store, by name."""
    return {name: status.st_size for name, status in listed_objects(directory).items()}


@contextlib.contextmanager
def opened_directory(directory: Directory) -> Iterator[int | None]:
    """A descriptor of a directory; None: it does not exist or cannot be opened."""
    descriptor = open_directory(directory)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_directory(directory: Directory) -> int | None:
    """A descriptor of a directory, which the caller closes; None: it does not exist or cannot be opened."""
    try:
        if directory.path and "/" not in directory.path:  # its last part is the only one that may be no symlink
            return os.open(str(directory), DIRECTORY | os.O_NOFOLLOW)
        root = os.open(directory.root, DIRECTORY)
    except OSError:
        return None
    try:
        return open_below(root, directory.path, make=False)
    except OSError:
        return None
    finally:
        os.close(root)


def object_at(directory: Directory, name: str) -> ObjectPath | None:
    """The path of a file in an object store; None for a file of this machine."""
    return ObjectPath.of(str(directory)) / name if is_object(directory.root) else None


def packed_sizes(directory: Directory) -> dict[str, int]:
    """The sizes in bytes of the files in a packed directory, by name."""
    try:
        return PackedPath.of(str(directory)).sizes()
    except OSError as error:
        raise PublishError(f"{directory}: not listed: {error.strerror}") from error


def _read_packed(directory: Directory, name: str, limit: int = -1) -> bytes | None:
    try:
        content = (PackedPath.of(str(directory)) / name).read_bytes()
        return content if limit < 0 else content[:limit]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PublishError(f"{directory}/{name}: not read: {error.strerror}") from error


def _read_object(path: ObjectPath, limit: int = -1) -> bytes | None:
    try:
        file, status = open_object(path)
        return read_object(file, path, 0, status.st_size if limit < 0 else min(limit, status.st_size))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PublishError(f"{path}: not read: {error.strerror}") from error


def listed_objects(directory: Directory) -> dict[str, ObjectStatus]:
    try:
        objects = ObjectPath.of(str(directory)).glob("*")
        return {path.name: path.listed for path in objects if path.listed is not None}
    except OSError as error:
        raise PublishError(f"{directory}: not listed: {error.strerror}") from error
