"""What lies in the directory of a partition in a bucket, as a listing has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.times import NS_PER_MS

#: In all layouts objects are called so.
_OBJECT: Final = r"^(?P<start_offset>0*[0-9]{1,18})-(?P<segment_id>[A-Za-z0-9_-]{22})(?P<suffix>\.[a-z_-]+)$"
#: Objects of one partition.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("name", pa.string(), nullable=False),
    pa.field("start_offset", pa.int64(), nullable=False),
    pa.field("segment_id", pa.string(), nullable=False),
    pa.field("suffix", pa.string(), nullable=False),
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("written_ms", pa.int64(), nullable=False),  # since the epoch; of an object in whole seconds
]
OBJECTS: Final = pa.schema(_FIELDS)
_LISTED_NAMES: Final = ["name", "start_offset", "segment_id", "suffix", "bytes", "written_ns"]
#: Name, bytes, and when it was written, in ns since the epoch.
_Listed: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """What lies in a partition's directory.

    Attributes:
        objects: rows of `OBJECTS`.
        others: names of what is no object of a remote segment.
    """

    objects: pa.Table
    others: Sequence[str]


def object_name(start_offset: int, segment_id: str, suffix: str) -> str:
    """The name of an object in its partition's directory."""
    return f"{start_offset:020d}-{segment_id}{suffix}"


def list_objects(directory: Location, suffixes: Collection[str]) -> ListedObjects:
    """The objects of a partition; none where it has no directory. Of a store one request for a thousand of them.

    Args:
        suffixes: of objects; what has another is none.

    Raises:
        OSError: the directory cannot be listed.
    """
    found = _objects_in(directory) if isinstance(directory, ObjectPath) else _files_in(directory)
    return _as_listed(found, suffixes)


def _objects_in(directory: ObjectPath) -> Iterator[_Listed]:
    try:
        for path in directory.iterdir():
            if path.listed is not None:
                yield path.name, path.listed.st_size, path.listed.st_mtime_ns
    except FileNotFoundError:
        return


def _files_in(directory: Path) -> Iterator[_Listed]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it has gone since
                    if entry.is_file():
                        status = entry.stat()
                        yield entry.name, status.st_size, status.st_mtime_ns
    except FileNotFoundError:
        return


def _as_listed(found: Iterable[_Listed], suffixes: Collection[str]) -> ListedObjects:
    names, sizes, times = [list(column) for column in zip(*found, strict=True)] or ([], [], [])
    name = pa.array(names, pa.string())
    parts = pc.extract_regex(name, _OBJECT)
    listed = pa.table([name, *parts.flatten(), pa.array(sizes, pa.int64()), pa.array(times, pa.int64())], _LISTED_NAMES)
    is_object: Any = pc.is_in(listed["suffix"], value_set=pa.array(list(suffixes)))
    objects = listed.filter(is_object)
    written_ms = pc.divide(objects["written_ns"], NS_PER_MS)
    return ListedObjects(
        objects.drop_columns(["written_ns"]).append_column("written_ms", written_ms).cast(OBJECTS),
        [str(name) for name in listed.filter(pc.invert(is_object))["name"].to_pylist()],
    )
