"""Where files are: on this machine, in an object store, or (of index files) packed in a catalog.

A `Location` names a file or directory; a `Directory` is one of index files, whose parts are opened without following
symlinks. With the functions that list and read both, the version of a file, and whether two directories overlap.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePath
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from kidxlib.errors import PublishError, UsageError
from kidxlib.storage.packed import PackedPath, given_packed, is_packed
from kidxlib.storage.store.s3 import SCHEME, ObjectPath, ObjectStatus, is_object

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_HADOOP_S3_SCHEME: Final = "s3a://"

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


def not_packed(place: Location) -> Path | ObjectPath:
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
    """The size in bytes of the file at a location; an object's is that of its listing.

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


def names_in(directory: Path) -> list[str]:
    """The names in a directory, in order.

    Raises:
        OSError: it cannot be listed, or nothing in it can be looked at.
    """
    os.stat(os.path.join(directory, os.curdir))  # which takes the right to search it
    return sorted(os.listdir(directory))


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
    """The location of index files that a user gives, in an object store or packed in a catalog; None for a path of this
    machine.
    """
    return given_packed(text) or given_location(option, text)


def plain_location(location: str) -> str:
    """Turn a `file:` URL into a path, and `s3a://` into `s3://`; leave other locations as they are."""
    if location.startswith(_HADOOP_S3_SCHEME):
        return SCHEME + location.removeprefix(_HADOOP_S3_SCHEME)
    return unquote(urlsplit(location).path) if location.startswith("file:") else location


def absolute_place(location: str) -> str:
    """Make a path absolute, as workers may have another current directory. A URL stays as it is."""
    path = plain_location(location)
    return path if "://" in path else os.path.realpath(path)


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


def overlapping_directory(path: Path, others: Iterable[Path]) -> Path | None:
    """The first of some locations on this machine that is the same directory as `path`, is below it, or is above it;
    None: there is none. Directories are told apart by their identities and by their places on file systems, as a bind
    mount has another path.
    """
    of_path, place = {identity_of(directory) for directory in (path, *path.parents)}, place_on_file_system(path)
    for other in others:
        of_other = {identity_of(directory) for directory in (other, *other.parents)}
        if identity_of(other) in of_path or identity_of(path) in of_other:
            return other
        if place is not None and _is_in_or_around(place, place_on_file_system(other)):
            return other
    return None


def _is_in_or_around(one: tuple[bytes, Path], other: tuple[bytes, Path] | None) -> bool:
    if other is None or one[0] != other[0]:
        return False
    return one[1].is_relative_to(other[1]) or other[1].is_relative_to(one[1])


DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


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
    """Why a `Directory`, or what is in it, could not be opened."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the path is a symbolic link or a file, expected directories only"
    return error.strerror or str(error)


def open_regular_file(path: str | Path, directory: int | None = None) -> tuple[int, os.stat_result]:
    """Open a regular file for reading, in an opened directory where one is given: the descriptor, which the caller
    closes, and its status. Anything else is an OSError; a pipe does not block.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor, status


def regular_file(path: Path) -> BufferedReader:
    """Open a regular file at a path, as a file of Python. Anything else is an OSError; a pipe does not block."""
    return open(open_regular_file(path)[0], "rb")


def list_directory(directory: Directory) -> list[str]:
    """The names in a directory; none if it does not exist or cannot be opened."""
    if is_object(directory.root):
        return list(listed_objects(directory))
    if is_packed(directory.root):
        return list(packed_sizes(directory))
    with opened_directory(directory) as descriptor:
        return [] if descriptor is None else os.listdir(descriptor)


def object_sizes(directory: Directory) -> dict[str, int]:
    """List the objects directly in a `Directory` of an object store: their sizes in bytes, by name."""
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
    """List the files in a packed `Directory`: their sizes in bytes, by name."""
    try:
        return PackedPath.of(str(directory)).sizes()
    except OSError as error:
        raise PublishError(f"{directory}: not listed: {error.strerror}") from error


def listed_objects(directory: Directory) -> dict[str, ObjectStatus]:
    """List the objects directly in a `Directory` of an object store: the status of each, by name."""
    try:
        objects = ObjectPath.of(str(directory)).glob("*")
        return {path.name: path.listed for path in objects if path.listed is not None}
    except OSError as error:
        raise PublishError(f"{directory}: not listed: {error.strerror}") from error
