"""The only writer of index files: stage, flush, read back and compare, rename, flush again; a group of files at once.

A reader of a final name sees the old file or the new one, whole, at any moment and after any crash. Flushing is by file
system and not by file, because one `syncfs` for 300 staged files costs less than one `fsync`.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kidxlib.errors import PublishError

STAGING_PREFIX: Final = ".kidx-"
STAGING_SUFFIX: Final = ".tmp"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Published(enum.StrEnum):
    """What publishing did with a file."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the same bytes were there; the file was not touched
    NONE = "none"  # nothing to publish


@dataclass(frozen=True, slots=True)
class _Staged:
    folder: str
    name: str
    staging_name: str
    content: bytes


class Publisher:
    """Publishes files below one root folder. Use as a context: what was staged and not committed is removed at its end.

    Folders below the root are made as needed and never reached through a symbolic link. Several publishers may put the
    same file in place at the same time; every reader then sees one of their versions, whole.
    """

    def __init__(self, root: Path) -> None:
        self._root_path = root
        self._attempt = uuid.uuid4().hex
        self._staged: list[_Staged] = []
        self._staged_bytes = 0

    def __enter__(self) -> Self:
        try:
            self._root_path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(self._root_path, _DIRECTORY)
        except OSError as error:
            raise PublishError(f"{self._root_path}: cannot be used as index folder: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for staged in self._staged:
            with contextlib.suppress(OSError), self._folder(staged.folder) as folder:
                os.unlink(staged.staging_name, dir_fd=folder)
        os.close(self._root)

    @property
    def staged_files(self) -> int:
        """Files staged and not yet committed."""
        return len(self._staged)

    @property
    def staged_bytes(self) -> int:
        """Bytes of the files staged and not yet committed."""
        return self._staged_bytes

    def stage(self, folder: str, name: str, content: bytes) -> Published:
        """Write `content` under a staging name beside where `<root>/<folder>/<name>` is to stand.

        Returns:
            `UNCHANGED` where the same bytes stand there already; else `WRITTEN`, true once `commit` has returned.

        Raises:
            PublishError: the folder cannot be made or written, or the disk is full.
        """
        try:
            with self._folder(folder) as descriptor:
                if _read(descriptor, name, len(content) + 1) == content:
                    return Published.UNCHANGED
                staging_name = f"{STAGING_PREFIX}{self._attempt}-{name}{STAGING_SUFFIX}"
                self._staged.append(_Staged(folder, name, staging_name, content))
                self._staged_bytes += len(content)
                _write(descriptor, staging_name, content)
        except OSError as error:
            raise self._failed(folder, name, error) from error
        return Published.WRITTEN

    def commit(self) -> None:
        """Put everything staged under its final name, durably.

        Raises:
            PublishError: a staged file did not read back as it was written, or a flush or rename failed.
        """
        if not self._staged:
            return
        staged = self._staged[0]
        try:
            self._flush()
            for staged in self._staged:
                with self._folder(staged.folder) as folder:
                    if _read(folder, staged.staging_name, len(staged.content) + 1) != staged.content:
                        raise PublishError(
                            f"{self._path(staged.folder, staged.name)}: the staged file does not read back as it was "
                            f"written ({len(staged.content)} bytes): check this disk"
                        )
            for staged in self._staged:
                with self._folder(staged.folder) as folder:
                    os.replace(staged.staging_name, staged.name, src_dir_fd=folder, dst_dir_fd=folder)
            self._flush()
        except OSError as error:
            raise self._failed(staged.folder, staged.name, error) from error
        self._staged.clear()
        self._staged_bytes = 0

    @contextlib.contextmanager
    def _folder(self, folder: str) -> Iterator[int]:
        """A descriptor of a folder below the root, made if missing, each part opened without following links."""
        descriptor = os.dup(self._root)
        try:
            for part in Path(folder).parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _flush(self) -> None:
        """Make all that was written so far durable: contents, names and folders."""
        if not hasattr(_libc, "syncfs"):  # not Linux
            os.sync()
        elif _libc.syncfs(self._root) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def _path(self, folder: str, name: str) -> Path:
        return self._root_path / folder / name

    def _failed(self, folder: str, name: str, error: OSError) -> PublishError:
        return PublishError(f"{self._path(folder, name)}: not written: {error.strerror}; what stood there is untouched")


def _read(folder: int, name: str, limit: int) -> bytes | None:
    """Up to `limit` bytes of a regular file in an opened folder; None where there is no such file."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb", buffering=0) as file:
        return file.read(limit)


def _write(folder: int, name: str, content: bytes) -> None:
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder
    )
    with open(descriptor, "wb", buffering=0) as file:
        written = 0
        while written < len(content):
            written += file.write(content[written:])
