"""The location of a file or directory, on this machine, in an object store, or (of index files) packed in a catalog;
and a file's version.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from kidxlib.errors import UsageError
from kidxlib.storage.packed import PackedPath, given_packed, is_packed
from kidxlib.storage.store.s3 import SCHEME, ObjectPath, ObjectStatus, is_object

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

Location: TypeAlias = Path | ObjectPath | PackedPath

#: A file as the listing of its directory has it: on this machine its path as text, as it takes longer to make a `Path`
#: than to list a file.
Listed: TypeAlias = str | ObjectPath | PackedPath


def location(path: str) -> Location:
    if is_object(path):
        return ObjectPath.of(path)
    return PackedPath.of(path) if is_packed(path) else Path(path)


def as_location(path: str | os.PathLike[str]) -> Location:
    """The location that a caller of the library names, as text or as a path. An object from a listing keeps its
    status.
    """
    return path if isinstance(path, Path | ObjectPath | PackedPath) else location(os.fspath(path))


def plain(place: Location) -> Path | ObjectPath:
    """A place on this machine or in an object store. A catalog packs index files alone, so that anything else is not
    in it.
    """
    if isinstance(place, PackedPath):
        raise UsageError(f"{place}: a catalog keeps index files there; expected a path, or {SCHEME}<bucket>/<key>")
    return place


def files_in(directory: Location) -> dict[str, Location]:
    """The regular files and objects directly in a directory, by name, without entries that cannot be looked at, such as
    a symlink to itself.
    """
    return {name: Path(file) if isinstance(file, str) else file for name, file in listed_in(directory).items()}


def listed_in(directory: Location) -> dict[str, Listed]:
    """`files_in`, as the listing has them."""
    if isinstance(directory, ObjectPath):
        return {path.name: path for path in directory.iterdir() if path.listed is not None}
    if isinstance(directory, PackedPath):
        return {path.name: path for path in directory.iterdir()}
    return {entry.name: entry.path for entry in os.scandir(directory) if _is_file(entry)}


def size_of(file: Listed) -> int:
    """The size of a file in bytes; an object's is that of its listing.

    Raises:
        OSError: it is no longer there, or cannot be looked at.
    """
    return os.stat(file).st_size if isinstance(file, str) else file.stat().st_size


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def entries_in(directory: Location) -> list[Location]:
    entries: list[Location] = [*directory.iterdir()]
    return sorted(entries, key=lambda entry: entry.name)


def given_location(option: str, text: str) -> ObjectPath | None:
    """The location in an object store that a user gives; None for a path of this machine."""
    scheme, separator, rest = text.partition("://")
    if not separator or "/" in scheme:
        return None
    key = rest.rstrip("/")
    bucket, *parts = key.split("/")
    if f"{scheme}://" != SCHEME or not _BUCKET.fullmatch(bucket) or not {"", ".", ".."}.isdisjoint(parts):
        raise UsageError(f"{option}{text}: expected the path of a directory, or {SCHEME}<bucket>/<prefix>")
    return ObjectPath(key)


def given_indexes(option: str, text: str) -> ObjectPath | PackedPath | None:
    """The place of index files that a user gives, in an object store or packed in a catalog; None for a path of this
    machine.
    """
    return given_packed(text) or given_location(option, text)


def as_text(path: str | os.PathLike[str]) -> str:
    """A path as text for a table. Bytes that are not UTF-8 become `\\xNN`."""
    text = os.fspath(path)
    return text if text.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def ensure_text(option: str, path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not UTF-8, before a catalog records it: it could not be opened again."""
    if as_text(path) != os.fspath(path):
        raise UsageError(
            f"{option}{as_text(path)}: its name has bytes that are not UTF-8, which no table holds; give a path "
            "without, as by a symlink or another mount"
        )


def is_inside(place: Location | str, directory: Location | str) -> bool:
    """Whether a location is a directory or below it, by their names."""
    return f"{place}/".startswith(f"{str(directory).rstrip('/')}/")


def identity_of(directory: Location) -> object:
    """A value that all names of a directory have in common: its device and inode on this machine, which a bind mount
    has too; its name in an object store, and if its status cannot be read.
    """
    if isinstance(directory, Path):
        with contextlib.suppress(OSError):
            status = directory.stat()
            if status.st_ino:  # some file systems have no inode numbers
                return status.st_dev, status.st_ino
    return str(directory)


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether a directory's entry is a directory, or a symlink to one. A symlink to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The state of a file: size in bytes, modification time in ns, inode number. An object has no inode number, and its
    time is in whole seconds.
    """

    size: int
    mtime_ns: int
    inode: int | None

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> FileVersion:
        return cls.of(os.fstat(descriptor))

    @classmethod
    def of_object(cls, status: ObjectStatus) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, None)


def version_at(place: Location) -> FileVersion | None:
    """The version of a file; None if it is missing or cannot be looked at."""
    try:
        return FileVersion.of(place.stat()) if isinstance(place, Path) else FileVersion.of_object(place.stat())
    except OSError:
        return None


def place_on_file_system(path: Path) -> tuple[bytes, Path] | None:
    """The device of a path's file system and the path there, which all bind mounts of a directory have in common, and
    all that is below it. The path need not be there. None: the system does not say, as it is no Linux.
    """
    real = Path(os.path.realpath(path))
    there = next(each for each in (real, *real.parents) if os.path.exists(each))
    try:
        descriptor = os.open(there, os.O_PATH)
        try:
            mount = re.search(rb"mnt_id:\s*(\d+)", Path(f"/proc/self/fdinfo/{descriptor}").read_bytes())
        finally:
            os.close(descriptor)
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            number, _, device, root, point, *_ = line.split(b" ")
            if mount is not None and number == mount[1]:
                return device, _unescaped(root) / real.relative_to(_unescaped(point))
    except (OSError, ValueError, AttributeError):
        return None
    return None


def _unescaped(field: bytes) -> Path:
    r"""A path of `/proc/self/mountinfo`, which has `\040` for a space."""
    return Path(os.fsdecode(re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), field)))
