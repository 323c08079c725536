"""Index files that a catalog keeps in its table `index_bytes`, one row for each file, read as if they were files.

`PackedPath` is a location like a `Path`: `kidxlib.storage.location.location` makes it from the text of a table's column
`index_directory`, and all who read index files read through it. Nothing is ever written through it: a worker hands such
files out as rows (`kidxlib.storage.publisher`), and the run commits them.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import AUXILIARY_SUFFIXES, parse_segment_file, segment_file
from kidxlib.format.topic_partition import PartitionKey, parse_partition_directory
from kidxlib.storage.store.s3 import ObjectStatus, is_object

if TYPE_CHECKING:  # delta-rs is slow to import
    from kidxlib.storage.packed_rows import PackedRows

#: The table's name below its catalog, and the columns of its rows (`kidxlib.catalog.index_bytes`).
TABLE: Final = "index_bytes"
KEY: Final = ("source", "topic", "partition", "base_offset", "kind")
SIZE: Final = "size_bytes"
CONTENT: Final = "content"
CRC: Final = "crc32c"

SCHEME: Final = "packed:"
#: Between the catalog and a place in it, as between an archive and its entry in Java's `jar:` URLs.
_INSIDE: Final = "!"
#: The base offset in the row of a file that belongs to the whole partition.
OF_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class PackedFile:
    """An index file to keep in the table, or to remove from it.

    Attributes:
        source, topic, partition: of its segment.
        base_offset: the offset in its name; `OF_PARTITION` without one.
        kind: the suffix of its name without the dot; the whole name of a file without an offset.
        content: None: the file is removed.
    """

    source: str
    topic: str
    partition: int
    base_offset: int
    kind: str
    content: bytes | None = None


def kind_of(name: str) -> tuple[int, str] | None:
    """The base offset and the kind of a file that can be packed, by its name; None of any other."""
    if name == LEADER_EPOCH_CHECKPOINT:
        return OF_PARTITION, name
    parsed = parse_segment_file(name)
    return None if parsed is None or parsed[1] not in AUXILIARY_SUFFIXES else (parsed[0], parsed[1][1:])


def name_of(base_offset: int, kind: str) -> str:
    """The name of a file that can be packed, by its base offset and kind."""
    return kind if base_offset == OF_PARTITION else segment_file(base_offset, f".{kind}")


@dataclass(frozen=True, slots=True)
class PackedPath:
    """`packed:<catalog>!/<source>/<topic>-<partition>/<file>`: a packed index file, or a directory of such files. The
    source's name is written as in a URL, without slashes. Methods with a name of `Path`'s mean the same.

    Attributes:
        catalog: the directory or URL of the catalog.
        parts: up to three: the source, as it is written in the text, the partition's directory, the file.
    """

    catalog: str
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str) -> PackedPath:
        """The location that a text names; `is_packed` must be true."""
        catalog, _, inside = path.removeprefix(SCHEME).rpartition(_INSIDE)
        return cls(catalog, tuple(part for part in inside.split("/") if part))

    @classmethod
    def of_source(cls, catalog: str, source: str) -> PackedPath:
        """The directory of a source."""
        return cls(catalog, (quote(source, safe=""),))

    def __str__(self) -> str:
        return "/".join([f"{SCHEME}{self.catalog}{_INSIDE}", *self.parts])

    def __fspath__(self) -> str:
        return str(self)

    def __truediv__(self, name: str) -> PackedPath:
        return PackedPath(self.catalog, (*self.parts, *(name.split("/") if "/" in name else (name,))))

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""

    @property
    def parent(self) -> PackedPath:
        return PackedPath(self.catalog, self.parts[:-1])

    def file(self, content: bytes | None = None) -> PackedFile | None:
        """The file at this place; None if no such file can be packed."""
        return self.parent.file_in(self.name, content)

    def file_in(self, name: str, content: bytes | None = None) -> PackedFile | None:
        """The file of a name in this directory of a partition; None if no such file can be packed."""
        if len(self.parts) != len(("source", "directory")):
            return None
        partition, kind = _partition_of(*self.parts), kind_of(name)
        return None if partition is None or kind is None else PackedFile(*partition, *kind, content)

    def sizes(self) -> dict[str, int]:
        """The sizes in bytes of the files in a partition's directory, by name; none if it has no files."""
        source, directory = self.parts
        partition = _partition_of(source, directory)
        return {} if partition is None else self._rows().sizes(*partition)

    def read_bytes(self) -> bytes:
        file = self.file()
        content = None if file is None else self._rows().content(file)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file among the packed ones", str(self))
        return content

    def stat(self) -> ObjectStatus:
        size = self.parent.sizes().get(self.name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "no such file among the packed ones", str(self))
        return ObjectStatus(size, 0)

    @property
    def listed(self) -> ObjectStatus | None:
        """The status of a file; None of a directory."""
        return None if self.file() is None else self.stat()

    def is_dir(self) -> bool:
        return self.file() is None and self.exists()

    def is_file(self) -> bool:
        return self.file() is not None and self.name in self.parent.sizes()

    def exists(self) -> bool:
        """Whether it is a file, or a directory with files. Whether a source has any is not looked at."""
        match len(self.parts):
            case 3:
                return self.is_file()
            case 2:
                return bool(self.sizes())
            case _:
                return self._rows().exists()

    def iterdir(self) -> Iterator[PackedPath]:
        """The files of a partition's directory, or the partitions of a source, in the order of names."""
        is_source = len(self.parts) == 1
        names = self._rows().directories(unquote(self.name)) if is_source else self.sizes()
        return (self / name for name in sorted(names))

    def glob(self, pattern: str) -> Iterator[PackedPath]:
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def _rows(self) -> PackedRows:
        from kidxlib.storage.packed_rows import packed_rows

        return packed_rows(self.catalog)


@functools.lru_cache(maxsize=64)
def _partition_of(source: str, directory: str) -> PartitionKey | None:
    partition = parse_partition_directory(directory)
    return None if partition is None else (unquote(source), partition.topic, partition.partition)


def is_packed(path: str) -> bool:
    return path.startswith(SCHEME)


def given_packed(text: str) -> PackedPath | None:
    """The place that a user names by `packed:<catalog>!/<source>`; None if the text names no such place."""
    path = PackedPath.of(text)
    if not is_packed(text) or len(path.parts) != 1:
        return None
    return PackedPath(path.catalog if is_object(path.catalog) else os.path.realpath(path.catalog), path.parts)


def in_catalog(directory: str, catalog: str) -> str:
    """The text of an index directory that a row of a catalog has, where the catalog is now: it may have moved since."""
    return str(PackedPath(catalog, PackedPath.of(directory).parts)) if is_packed(directory) else directory
