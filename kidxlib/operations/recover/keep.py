"""Copies of files, or their ends, that are about to be cut off or removed, in the directory of --keep."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from kidxlib.errors import PublishError, UsageError
from kidxlib.storage.location import DIRECTORY
from kidxlib.storage.log_dir import is_broker_log_dir
from kidxlib.storage.publisher import Owner

_PIECE_BYTES: Final = 1024 * 1024
#: The suffix of a copy that is not whole yet.
_PART_SUFFIX: Final = ".part"


class KeptCopies:
    """A directory for copies, made with the first one. A file in it is never overwritten."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(os.path.realpath(directory))
        for above in (self.directory, *self.directory.parents):
            if is_broker_log_dir(above):
                raise UsageError(f"--keep {directory}: in {above}, a broker's log dir; name a directory outside of it")

    def keep(self, file: Path, name: str, start: int = 0) -> None:
        """Copy a file from the byte `start` on, durably, unless such a copy is there. Holes stay holes.

        The copy's name is a path below the directory. Where other bytes have that name, a number follows.
        """
        copy, others = self.directory / name, 0
        try:
            with file.open("rb") as source:
                while copy.exists() and not _is_copy_of_end(copy, source, start):
                    others += 1
                    copy = self.directory / f"{name}.{others}"
                if not copy.exists():
                    _write_copy(copy, source, start)
                _fsync(copy)
            self._flush_directories(copy.parent)
        except OSError as error:
            raise PublishError(
                f"{copy}: cannot keep what would be cut off of {file}: {error.strerror}; nothing was cut"
            ) from error

    def _flush_directories(self, innermost: Path) -> None:
        """Make durable the names of copies, and the name of the directory."""
        directory = innermost
        while directory != self.directory.parent:
            _fsync(directory)
            directory = directory.parent
        _fsync(directory)


def _write_copy(copy: Path, source: BinaryIO, start: int) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(f"{copy.name}{_PART_SUFFIX}")
    part.unlink(missing_ok=True)
    owner = Owner.of(os.fstat(source.fileno()))
    with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "r+b") as file:
        os.fchmod(file.fileno(), owner.mode)
        with contextlib.suppress(PermissionError):  # only root gives files away; the copy is the caller's own then
            os.fchown(file.fileno(), owner.user, owner.group)
        for piece in _read_pieces(source, start):
            if any(piece):
                file.write(piece)
            else:
                file.seek(len(piece), os.SEEK_CUR)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    if not _is_copy_of_end(part, source, start):
        raise PublishError(f"{part}: does not read back as it was written: check this disk; nothing was cut")
    os.replace(part, copy)


def _is_copy_of_end(copy: Path, source: BinaryIO, start: int) -> bool:
    """Whether a copy is the end of a file, from a byte on."""
    if copy.stat().st_size != os.fstat(source.fileno()).st_size - start:
        return False
    with copy.open("rb") as file:
        return all(
            ours == theirs for ours, theirs in zip(_read_pieces(file, 0), _read_pieces(source, start), strict=True)
        )


def _read_pieces(file: BinaryIO, start: int) -> Iterator[bytes]:
    file.seek(start)
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _fsync(path: Path) -> None:
    descriptor = os.open(path, DIRECTORY if path.is_dir() else os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
