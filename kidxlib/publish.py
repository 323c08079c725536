"""The only writer of index files: stage, flush, read back and compare, rename, flush again; a group of files at once.
And the only place that removes files of a log dir, where a recorded plan or compaction says so.

A reader of a final name sees the old file or the new one, whole, at any moment and after any crash. Flushing is by file
system and not by file, because one `syncfs` for 300 staged files costs less than one `fsync`.

In an object store nothing can be renamed, and a written object appears as a whole: there a file is staged in memory,
and put under its final name with one request.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import io
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType
from typing import Final, Protocol, Self

from kidxlib.errors import PublishError
from kidxlib.names import DELETED_SUFFIX
from kidxlib.objects import ObjectPath, ObjectStatus, delete_object, is_object, open_object, put_object, read_object

STAGING_PREFIX: Final = ".kidx-"
STAGING_SUFFIX: Final = ".tmp"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Published(enum.StrEnum):
    """What publishing did with a segment's index files."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the same bytes were there; the files were not touched
    KEPT = "kept"  # what was there stays on purpose
    NONE = "none"  # nothing to publish


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder for index files: `path` below `root`, each part of `path` opened without following links.

    The root is made if it is missing, and so are the parts below it. In an object store folders are but names.
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


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner, group and permission bits for a new file."""

    user: int
    group: int
    mode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Owner:
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


@dataclass(frozen=True, slots=True)
class _Staged:
    """A staged file; in an object store there is no staging name."""

    folder: Folder
    name: str
    staging_name: str | None
    content: bytes


class Publisher:
    """Publishes files. Use as a context: what was staged and not committed is removed at its end.

    Several publishers may put the same file in place at the same time; every reader then sees one of their versions,
    whole.
    """

    def __init__(self) -> None:
        self._attempt = uuid.uuid4().hex
        self._roots: dict[str, int] = {}
        self._opened: tuple[Folder, int] | None = None
        self._staged: list[_Staged] = []
        self._staged_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for staged in self._staged:
            if staged.staging_name is not None:
                with contextlib.suppress(OSError):
                    os.unlink(staged.staging_name, dir_fd=self._open(staged.folder))
        self._close()
        for descriptor in self._roots.values():
            os.close(descriptor)

    @property
    def staged_files(self) -> int:
        """Files staged and not yet committed."""
        return len(self._staged)

    @property
    def staged_bytes(self) -> int:
        """Bytes of the files staged and not yet committed."""
        return self._staged_bytes

    def stage(self, folder: Folder, name: str, content: bytes, owner: Owner | None = None) -> Published:
        """Write `content` under a staging name beside where `name` is to stand.

        Returns:
            `UNCHANGED` where the same bytes stand there already; else `WRITTEN`, true once `commit` has returned.

        Raises:
            PublishError: the folder cannot be made or written, the disk is full, or the owner cannot be given.
        """
        try:
            if (path := _object(folder, name)) is not None:
                if _holds(path, content):
                    return Published.UNCHANGED
                self._staged.append(_Staged(folder, name, None, content))
                self._staged_bytes += len(content)
                return Published.WRITTEN
            descriptor = self._open(folder)
            if _read(descriptor, name, len(content) + 1) == content:
                return Published.UNCHANGED
            staging_name = f"{STAGING_PREFIX}{self._attempt}-{name}{STAGING_SUFFIX}"
            self._staged.append(_Staged(folder, name, staging_name, content))
            self._staged_bytes += len(content)
            _write(descriptor, staging_name, content, owner)
        except OSError as error:
            raise _not_written(folder, name, error) from error
        return Published.WRITTEN

    def remove(self, folder: Folder, name: str) -> None:
        """Remove a file of ours, if it is there.

        Raises:
            PublishError: the folder cannot be written.
        """
        try:
            if (path := _object(folder, name)) is not None:
                delete_object(path)
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._open(folder))
        except OSError as error:
            raise PublishError(f"{folder}/{name}: not removed: {error.strerror}") from error

    def commit(self) -> None:
        """Put everything staged under its final name, durably, in the order in which it was staged.

        Raises:
            PublishError: a staged file did not read back as it was written, or a flush or rename failed.
        """
        if not self._staged:
            return
        staged = self._staged[0]
        try:
            self._flush()
            for staged in self._staged:
                if staged.staging_name is not None:
                    self._check(staged, staged.staging_name)
            for staged in self._staged:
                if staged.staging_name is not None:
                    folder = self._open(staged.folder)
                    os.replace(staged.staging_name, staged.name, src_dir_fd=folder, dst_dir_fd=folder)
                elif (path := _object(staged.folder, staged.name)) is not None:
                    put_object(path, staged.content)
            self._flush()
        except OSError as error:
            raise _not_written(staged.folder, staged.name, error) from error
        self._staged.clear()
        self._staged_bytes = 0
        self._close()

    def _check(self, staged: _Staged, staging_name: str) -> None:
        if _read(self._open(staged.folder), staging_name, len(staged.content) + 1) != staged.content:
            raise PublishError(
                f"{staged.folder}/{staged.name}: the staged file does not read back as it was written "
                f"({len(staged.content)} bytes): check this disk; what stood there is untouched"
            )

    def _open(self, folder: Folder) -> int:
        """A descriptor of the folder, made if missing. It is good until another folder is asked for: files of one
        folder come one after the other, and to open it for each took a third of the time of publishing.
        """
        if self._opened is not None and self._opened[0] == folder:
            return self._opened[1]
        self._close()
        if folder.root not in self._roots:
            os.makedirs(folder.root, exist_ok=True)
            self._roots[folder.root] = os.open(folder.root, _DIRECTORY)
        descriptor = _open_below(self._roots[folder.root], folder.path, make=True)
        self._opened = folder, descriptor
        return descriptor

    def _close(self) -> None:
        if self._opened is not None:
            os.close(self._opened[1])
            self._opened = None

    def _flush(self) -> None:
        """Make all that was written so far durable: contents, names and folders."""
        _flush(self._roots.values())


class Retirer:
    """Takes files out of use, and removes them later: first renamed, as Kafka does, so that a broker which starts in
    between finishes the removal.

    It writes into folders that exist, and follows no link below their roots. Who calls it holds the log dir's lock.
    """

    def __init__(self) -> None:
        self._roots: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for descriptor in self._roots.values():
            os.close(descriptor)

    def names(self, folder: Folder) -> set[str]:
        """The names in a folder; none where there is no such folder.

        Raises:
            PublishError: it cannot be opened, or a part of its path is a link.
        """
        try:
            with self._open(folder) as descriptor:
                return set(os.listdir(descriptor))
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise PublishError(f"{folder}: {_why_not_opened(error)}") from error

    def files(self, folder: Folder) -> dict[str, FileStatus]:
        """The regular files or objects in a folder by name, likewise."""
        if is_object(folder.root):
            return dict(_listed(folder))
        found = {name: self.status(folder, name) for name in self.names(folder)}
        return {name: status for name, status in found.items() if status is not None}

    def status(self, folder: Folder, name: str) -> os.stat_result | None:
        """Of a regular file; None where there is none under that name.

        Raises:
            PublishError: nobody can say: it cannot be reached.
        """
        try:
            with self._open(folder) as descriptor:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PublishError(f"{folder}/{name}: not reached: {_why_not_opened(error)}") from error
        return status if stat.S_ISREG(status.st_mode) else None

    def is_there(self, folder: Folder) -> bool:
        """Whether there is such a folder.

        Raises:
            PublishError: it cannot be opened, or a part of its path is a link.
        """
        try:
            with self._open(folder):
                return True
        except FileNotFoundError:
            return False
        except OSError as error:
            raise PublishError(f"{folder}: {_why_not_opened(error)}") from error

    def retire(self, folder: Folder, name: str) -> None:
        """Put the suffix of deleted files behind a file's name.

        Raises:
            PublishError: it cannot be renamed.
        """
        try:
            with self._open(folder) as descriptor:
                os.replace(name, name + DELETED_SUFFIX, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except OSError as error:
            raise PublishError(f"{folder}/{name}: not renamed: {_why_not_opened(error)}") from error

    def remove(self, folder: Folder, name: str) -> None:
        """Remove a file, if it is there.

        Raises:
            PublishError: it cannot be removed.
        """
        try:
            with self._open(folder) as descriptor, contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PublishError(f"{folder}/{name}: not removed: {_why_not_opened(error)}; run again") from error

    def flush(self) -> None:
        """Make all that was done so far durable."""
        _flush(self._roots.values())

    @contextlib.contextmanager
    def _open(self, folder: Folder) -> Iterator[int]:
        if folder.root not in self._roots:
            self._roots[folder.root] = os.open(folder.root, _DIRECTORY)
        with _below(self._roots[folder.root], folder.path) as descriptor:
            yield descriptor


def read_file(folder: Folder, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a regular file, reached without following links; None where it cannot be read.

    Raises:
        PublishError: a store does not say whether it is there.
    """
    if (path := _object(folder, name)) is not None:
        return _read_object(path, limit)
    with _existing(folder) as descriptor:
        return None if descriptor is None else _read(descriptor, name, limit)


def read_end(folder: Folder, name: str, size: int) -> bytes | None:
    """The last `size` bytes, or all there are, likewise."""
    if (path := _object(folder, name)) is not None:
        content = _read_object(path)
        return None if content is None else content[max(len(content) - size, 0) :]
    with _existing(folder) as descriptor:
        if descriptor is not None and (file := _open_file(descriptor, name)) is not None:
            with file:
                file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
                return file.read(size)
    return None


def list_folder(folder: Folder) -> list[str]:
    """The names in a folder; none where it does not exist or cannot be opened.

    Raises:
        PublishError: a store does not list it.
    """
    if is_object(folder.root):
        return list(_listed(folder))
    with _existing(folder) as descriptor:
        return [] if descriptor is None else os.listdir(descriptor)


def object_sizes(folder: Folder) -> dict[str, int]:
    """Bytes of the objects right in a folder of a store, by name.

    Raises:
        PublishError: the store does not list it.
    """
    return {name: status.st_size for name, status in _listed(folder).items()}


def is_staging(name: str) -> bool:
    """Whether a file of this name was staged, and not yet put in place."""
    return name.startswith(STAGING_PREFIX) and name.endswith(STAGING_SUFFIX)


def sweep(folder: Folder, older_than_ns: int, prefix: str = STAGING_PREFIX) -> int:
    """Remove staging files that a killed run left in a folder: those last written before `older_than_ns`.

    Args:
        prefix: how the names of those begin that may go.

    Returns:
        How many were removed; none where the folder does not exist or cannot be opened.
    """
    removed = 0
    if is_object(folder.root):
        return removed  # there is no staging file
    with _existing(folder) as descriptor:
        for name in [] if descriptor is None else os.listdir(descriptor):
            if not is_staging(name) or not name.startswith(prefix):
                continue
            # Gone meanwhile, or not ours to remove: publishing will say what is wrong.
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime_ns < older_than_ns:
                    os.unlink(name, dir_fd=descriptor)
                    removed += 1
    return removed


@contextlib.contextmanager
def _existing(folder: Folder) -> Iterator[int | None]:
    """A descriptor of a folder; None where it does not exist or cannot be opened."""
    with contextlib.ExitStack() as stack:
        descriptor = None
        with contextlib.suppress(OSError):
            root = os.open(folder.root, _DIRECTORY)
            stack.callback(os.close, root)
            descriptor = stack.enter_context(_below(root, folder.path))
        yield descriptor


@contextlib.contextmanager
def _below(root: int, path: str) -> Iterator[int]:
    """A descriptor of an existing folder below an opened one, closed at the end of the context."""
    descriptor = _open_below(root, path, make=False)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_below(root: int, path: str, *, make: bool) -> int:
    """Open the folder `path` below an opened one; no part of it may be a link."""
    descriptor = os.dup(root)
    try:
        for part in PurePath(path).parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _flush(roots: Iterable[int]) -> None:
    """Flush the file systems of opened folders."""
    for root in roots:
        if not hasattr(_libc, "syncfs"):  # not Linux
            os.sync()
        elif _libc.syncfs(root) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _object(folder: Folder, name: str) -> ObjectPath | None:
    """The object that a file is; None where it is a file of this machine."""
    return ObjectPath.of(str(folder)) / name if is_object(folder.root) else None


def _read_object(path: ObjectPath, limit: int = -1) -> bytes | None:
    try:
        file, status = open_object(path)
        return read_object(file, path, 0, status.st_size if limit < 0 else min(limit, status.st_size))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PublishError(f"{path}: not read: {error.strerror}") from error


def _listed(folder: Folder) -> dict[str, ObjectStatus]:
    """The objects right in a folder of a store."""
    try:
        found = ObjectPath.of(str(folder)).glob("*")
        return {path.name: path.listed for path in found if path.listed is not None}
    except OSError as error:
        raise PublishError(f"{folder}: not listed: {error.strerror}") from error


def _holds(path: ObjectPath, content: bytes) -> bool:
    """Whether an object has this content; only one of the same length is read."""
    try:
        file, status = open_object(path)
        return status.st_size == len(content) and read_object(file, path, 0, status.st_size) == content
    except FileNotFoundError:
        return False


def _why_not_opened(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the path is a symbolic link or a file, expected folders only"
    return error.strerror or str(error)


def _not_written(folder: Folder, name: str, error: OSError) -> PublishError:
    return PublishError(f"{folder}/{name}: not written: {_why_not_opened(error)}; what stood there is untouched")


def _read(folder: int, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a regular file in an opened folder; None where there is no such file."""
    file = _open_file(folder, name)
    if file is None:
        return None
    with file:
        return file.read(limit)


def _open_file(folder: int, name: str) -> io.FileIO | None:
    """A regular file in an opened folder, to be read; None where there is no such file."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb", buffering=0)


def _write(folder: int, name: str, content: bytes, owner: Owner | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644 if owner is None else 0o600, dir_fd=folder)
    with open(descriptor, "wb", buffering=0) as file:
        if owner is not None:
            os.fchown(descriptor, owner.user, owner.group)
            os.fchmod(descriptor, owner.mode)
        written = 0
        while written < len(content):
            written += file.write(content[written:])
