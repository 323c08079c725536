"""A directory of index files, on this machine or in an object store, and what can be read in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kidxlib.errors import PublishError
from kidxlib.storage.dir_fd import DIRECTORY, open_at, opened_below, read_at
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus, is_object, open_object, read_object


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory for index files: `path` below `root`, each part of `path` opened without following symlinks.

    The root is made if it is missing, and so are the parts below it. In an object store directories are but names.
    """

    root: str
    path: str

    def __str__(self) -> str:
        return os.path.join(self.root, self.path)


class FileStatus(Protocol):
    """What is asked of an `os.stat_result`, or of an object's status: bytes, and ns since the epoch."""

    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


def read_file(directory: Directory, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a regular file, reached without following symlinks; None where it cannot be read.

    Raises:
        PublishError: an object store does not say whether it is there.
    """
    if (path := object_at(directory, name)) is not None:
        return _read_object(path, limit)
    with opened_directory(directory) as descriptor:
        return None if descriptor is None else read_at(descriptor, name, limit)


def read_end(directory: Directory, name: str, size: int) -> bytes | None:
    """The last `size` bytes, or all, of a regular file, reached without following symlinks; None if it cannot be read.

    Raises:
        PublishError: an object store does not say whether it is there.
    """
    if (path := object_at(directory, name)) is not None:
        content = _read_object(path)
        return None if content is None else content[max(len(content) - size, 0) :]
    with opened_directory(directory) as descriptor:
        if descriptor is not None and (file := open_at(descriptor, name)) is not None:
            with file:
                file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
                return file.read(size)
    return None


def list_directory(directory: Directory) -> list[str]:
    """The names in a directory; none where it does not exist or cannot be opened.

    Raises:
        PublishError: an object store does not list it.
    """
    if is_object(directory.root):
        return list(listed_objects(directory))
    with opened_directory(directory) as descriptor:
        return [] if descriptor is None else os.listdir(descriptor)


def object_sizes(directory: Directory) -> dict[str, int]:
    """Bytes of the objects right in a directory of an object store, by name.

    Raises:
        PublishError: the object store does not list it.
    """
    return {name: status.st_size for name, status in listed_objects(directory).items()}


@contextlib.contextmanager
def opened_directory(directory: Directory) -> Iterator[int | None]:
    """A descriptor of a directory; None where it does not exist or cannot be opened."""
    with contextlib.ExitStack() as stack:
        descriptor = None
        with contextlib.suppress(OSError):
            root = os.open(directory.root, DIRECTORY)
            stack.callback(os.close, root)
            descriptor = stack.enter_context(opened_below(root, directory.path))
        yield descriptor


def object_at(directory: Directory, name: str) -> ObjectPath | None:
    """The object that a file is; None where it is a file of this machine."""
    return ObjectPath.of(str(directory)) / name if is_object(directory.root) else None


def _read_object(path: ObjectPath, limit: int = -1) -> bytes | None:
    try:
        file, status = open_object(path)
        return read_object(file, path, 0, status.st_size if limit < 0 else min(limit, status.st_size))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PublishError(f"{path}: not read: {error.strerror}") from error


def listed_objects(directory: Directory) -> dict[str, ObjectStatus]:
    """The objects right in a directory of an object store."""
    try:
        found = ObjectPath.of(str(directory)).glob("*")
        return {path.name: path.listed for path in found if path.listed is not None}
    except OSError as error:
        raise PublishError(f"{directory}: not listed: {error.strerror}") from error
