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
from kidxlib.text.times import NS_PER_MS

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
    pa.field("etag", pa.string()),  # without its quotes; null of a file, and where nobody has asked for it
]
OBJECTS: Final = pa.schema(_FIELDS)
_LISTED_NAMES: Final = ["name", "start_offset", "segment_id", "suffix", "bytes", "written_ns", "etag"]
#: Name, bytes, when it was written, in ns since the epoch, and its ETag.
_Listed: TypeAlias = tuple[str, int, int, str | None]


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


def list_objects(directory: Location, suffixes: Collection[str], *, etags: bool = False) -> ListedObjects:
    """The objects of a partition; none where it has no directory. Of a store one request for a thousand of them.

    Args:
        suffixes: of objects; what has another is none.
        etags: say the ETags of objects of a store, for which `kidx[copies]` is needed.

    Raises:
        OSError: the directory cannot be listed.
    """
    found = _objects_in(directory, etags) if isinstance(directory, ObjectPath) else _files_in(directory)
    return _as_listed(found, suffixes)


def _objects_in(directory: ObjectPath, etags: bool) -> Iterator[_Listed]:
    if etags:
        from kidxlib.storage.store.etags import objects_with_etags  # a package that others do not have

        paths = objects_with_etags(directory)
    else:
        paths = directory.glob("*")
    for path in paths:
        if (status := path.listed) is not None:
            yield path.name, status.st_size, status.st_mtime_ns, status.etag.strip('"') or None


def _files_in(directory: Path) -> Iterator[_Listed]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it has gone since
                    if entry.is_file():
                        status = entry.stat()
                        yield entry.name, status.st_size, status.st_mtime_ns, None
    except FileNotFoundError:
        return


def _as_listed(found: Iterable[_Listed], suffixes: Collection[str]) -> ListedObjects:
    names, sizes, times, etags = [list(column) for column in zip(*found, strict=True)] or ([], [], [], [])
    name = pa.array(names, pa.string())
    parts = pc.extract_regex(name, _OBJECT).flatten()
    numbers = (pa.array(sizes, pa.int64()), pa.array(times, pa.int64()))
    listed = pa.table([name, *parts, *numbers, pa.array(etags, pa.string())], _LISTED_NAMES)
    is_object: Any = pc.is_in(listed["suffix"], value_set=pa.array(list(suffixes)))
    objects = listed.filter(is_object)
    written_ms = pc.divide(objects["written_ns"], NS_PER_MS)
    return ListedObjects(
        objects.append_column("written_ms", written_ms).select(OBJECTS.names).cast(OBJECTS),
        [str(name) for name in listed.filter(pc.invert(is_object))["name"].to_pylist()],
    )
