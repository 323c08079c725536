"""Where a file or a directory is: on this machine, or in an object store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, TypeAlias

from kidxlib.errors import UsageError
from kidxlib.storage.store.s3 import SCHEME, ObjectPath, is_object

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


Location: TypeAlias = Path | ObjectPath


def location(path: str) -> Location:
    """The place that a table or a listing names."""
    return ObjectPath.of(path) if is_object(path) else Path(path)


def as_location(path: str | os.PathLike[str]) -> Location:
    """The place that a caller of the library names, as text or as a path. One from a listing keeps what that said."""
    return path if isinstance(path, Path | ObjectPath) else location(os.fspath(path))


def files_in(directory: Location) -> dict[str, Location]:
    """The regular files and objects right in a directory, by name. What cannot be looked at, as a symlink that leads to
    itself, is none.

    Raises:
        OSError: it cannot be listed.
    """
    if isinstance(directory, ObjectPath):
        return {path.name: path for path in directory.iterdir() if path.listed is not None}
    return {entry.name: Path(entry.path) for entry in os.scandir(directory) if _is_file(entry)}


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def entries_in(directory: Location) -> list[Location]:
    """What lies right in a directory, in the order of names.

    Raises:
        OSError: it cannot be listed.
    """
    entries: list[Location] = [*directory.iterdir()]
    return sorted(entries, key=lambda entry: entry.name)


def given_location(option: str, text: str) -> ObjectPath | None:
    """The place in an object store that a user means; None where it is a path of this machine.

    Raises:
        UsageError: it is a URL, and not of the form that is known.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or "/" in scheme:
        return None
    key = rest.rstrip("/")
    bucket, *parts = key.split("/")
    if f"{scheme}://" != SCHEME or not _BUCKET.fullmatch(bucket) or not {"", ".", ".."}.isdisjoint(parts):
        raise UsageError(f"{option}{text}: expected the path of a directory, or {SCHEME}<bucket>/<prefix>")
    return ObjectPath(key)


def as_text(path: str | os.PathLike[str]) -> str:
    """A path as rows of a table hold it: bytes of its name that are no UTF-8 are written as `\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def ensure_text(option: str, path: str | os.PathLike[str]) -> None:
    """Before a path goes into a catalog, from which it is to be opened again.

    Raises:
        UsageError: bytes of its name are no UTF-8.
    """
    if as_text(path) != os.fspath(path):
        raise UsageError(
            f"{option}{as_text(path)}: its name has bytes that are not UTF-8, which no table holds; give a path "
            "without, as by a symlink or another mount"
        )


def is_inside(place: Location | str, directory: Location | str) -> bool:
    """Whether a place is a directory or lies below it, by their names."""
    return f"{place}/".startswith(f"{str(directory).rstrip('/')}/")


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a directory is a directory, or a symlink to one; a symlink to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False
