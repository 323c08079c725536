"""The rows of a catalog's table `index_bytes`, read one file at a time.

The table's rows lie in the order of partitions and base offsets, in files whose bounds are in the table's log. So one
row group of one data file holds the row that is looked for, and those of the segments around it, which are asked for
next. The newest rows are read: before each answer it is looked whether the table has a later version.
"""

from __future__ import annotations

import errno
import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kidxlib.format.checksums import crc32c
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.storage.location import FileVersion, location, version_at
from kidxlib.storage.packed import CONTENT, CRC, KEY, SIZE, TABLE, PackedFile, name_of
from kidxlib.storage.store.s3 import file_system_of, storage_options

#: Row groups are told apart by these; a file's and a group's bounds have them.
_BOUNDED: Final = ("topic", "partition", "base_offset")
#: How many bytes of row groups are held, and how many data files are open at a time.
_HELD_BYTES: Final = 64 * 1024 * 1024
_OPEN_FILES: Final = 32

#: Bounds of a column: the least and the greatest value; None where they are not known.
_Bounds = tuple[Any, Any]


@dataclass(slots=True)
class _DataFile:
    """A file of the table's version.

    Attributes:
        bounds: of `_BOUNDED`.
        opened: once it was read; the bounds of its row groups are in it.
    """

    path: str
    bounds: tuple[_Bounds, ...]
    opened: pq.ParquetFile | None = None
    groups: list[tuple[_Bounds, ...]] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """A row group that is held.

    Attributes:
        places: by the partitions that were asked for, the row of each of their files.
    """

    rows: pa.Table
    places: dict[PartitionKey, dict[tuple[int, str], int]] = field(default_factory=dict)

    def place_of(self, file: PackedFile) -> int | None:
        """The row of a file; None: it is not in this group."""
        partition = file.source, file.topic, file.partition
        places = self.places.get(partition)
        if places is None:
            is_wanted = _are_of(self.rows, *partition)
            numbers: list[Any] = pc.indices_nonzero(is_wanted).to_pylist()
            columns: list[list[Any]] = [
                self.rows[name].filter(is_wanted).to_pylist() for name in ("base_offset", "kind")
            ]
            places = self.places[partition] = dict(zip(zip(*columns, strict=True), numbers, strict=True))
        return places.get((file.base_offset, file.kind))


def _are_of(rows: pa.Table, source: str, topic: str, partition: int) -> Any:
    """Which rows are of a partition."""
    # Not by an expression: for these few rows it takes ten times as long to begin one.
    are_wanted: Any = pc.equal(rows["partition"], pa.scalar(partition, rows["partition"].type))
    for name, value in (("topic", topic), ("source", source)):
        are_wanted = pc.and_(are_wanted, pc.equal(rows[name], pa.scalar(value, rows[name].type)))
    return are_wanted


def _may_hold(bounds: tuple[_Bounds, ...], values: tuple[Any, ...]) -> bool:
    return all(
        (least is None or least <= value) and (greatest is None or value <= greatest)
        for (least, greatest), value in zip(bounds, values, strict=False)
    )


class PackedRows:
    """Reads the packed files of one catalog. Threads may share it."""

    def __init__(self, catalog: str) -> None:
        self._place = f"{catalog}/{TABLE}"
        self._lock = threading.Lock()
        self._delta: DeltaTable | None = None
        place = location(self._place)
        #: On this machine the file system is asked itself: delta-rs takes some hundred times as long.
        self._directory = place if isinstance(place, Path) else None
        self._commit: FileVersion | None = None
        self._files: list[_DataFile] = []
        self._system: Any = None
        self._open: OrderedDict[str, _DataFile] = OrderedDict()
        self._held: OrderedDict[tuple[str, int, bool], _Group] = OrderedDict()

    def exists(self) -> bool:
        """Whether there is such a table."""
        with self._lock:
            self._refresh()
            return self._delta is not None

    def content(self, file: PackedFile) -> bytes | None:
        """The content of a file; None if it is not among the packed ones.

        Raises:
            OSError: its bytes do not have their checksum, or the table cannot be read.
        """
        for group in self._groups_of(file.topic, file.partition, file.base_offset):
            place = group.place_of(file)
            if place is not None:
                content: bytes = group.rows[CONTENT][place].as_py()
                if crc32c(content) != group.rows[CRC][place].as_py():
                    raise OSError(
                        errno.EIO,
                        "its bytes do not have their checksum; build it anew with --pack --rebuild",
                        f"{self._place}: {name_of(file.base_offset, file.kind)} of {file.topic}-{file.partition}",
                    )
                return content
        return None

    def sizes(self, source: str, topic: str, partition: int) -> dict[str, int]:
        """The sizes in bytes of a partition's files, by name. Their contents are not read."""
        sizes: dict[str, int] = {}
        for group in self._groups_of(topic, partition, contents=False):
            is_wanted = _are_of(group.rows, source, topic, partition)
            columns = (group.rows[name].filter(is_wanted).to_pylist() for name in ("base_offset", "kind", SIZE))
            sizes.update({name_of(offset, kind): size for offset, kind, size in zip(*columns, strict=True)})
        return sizes

    def directories(self, source: str) -> set[str]:
        """The names of the partitions' directories of a source."""
        names: set[str] = set()
        for group in self._groups_of(contents=False):
            of_source = group.rows.filter(pc.field("source") == source).group_by(["topic", "partition"]).aggregate([])
            names.update(f"{row['topic']}-{row['partition']}" for row in of_source.to_pylist())
        return names

    def _groups_of(self, *values: Any, contents: bool = True) -> list[_Group]:
        """The row groups that may have rows with these first values of `_BOUNDED`."""
        with self._lock:
            self._refresh()
            try:
                return self._groups(values, contents)
            except FileNotFoundError:  # VACUUM has removed a file that a later version does without
                self._delta = None
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(error) from error
            self._refresh()
            try:
                return self._groups(values, contents)
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> OSError:
        """What is wrong with the table, with its place: errors of data files have no name, or no words, of their own.
        Its files can be made again from the logs.
        """
        return OSError(
            errno.EIO, f"cannot be read: {error}; if it is damaged, remove it, and build with --pack", self._place
        )

    def _groups(self, values: tuple[Any, ...], contents: bool) -> list[_Group]:
        found = []
        for file in self._files:
            if _may_hold(file.bounds, values):
                opened = self._opened_parquet(file)
                for number, bounds in enumerate(file.groups):
                    if _may_hold(bounds, values):
                        found.append(self._group(opened, file.path, number, contents))
        return found

    def _opened_parquet(self, file: _DataFile) -> pq.ParquetFile:
        if file.opened is None:
            file.opened = pq.ParquetFile(unquote(file.path), filesystem=self._system, pre_buffer=True)
            file.groups = [_group_bounds(file.opened.metadata, n) for n in range(file.opened.num_row_groups)]
        self._open[file.path] = file
        self._open.move_to_end(file.path)
        while len(self._open) > _OPEN_FILES:
            _, oldest = self._open.popitem(last=False)
            assert oldest.opened is not None
            oldest.opened.close()
            oldest.opened = None
        return file.opened

    def _group(self, opened: pq.ParquetFile, path: str, number: int, contents: bool) -> _Group:
        held = path, number, contents
        if held in self._held:
            self._held.move_to_end(held)
            return self._held[held]
        columns = [*KEY, SIZE, *([CONTENT, CRC] if contents else [])]
        group = self._held[held] = _Group(opened.read_row_group(number, columns))
        while len(self._held) > 1 and sum(each.rows.nbytes for each in self._held.values()) > _HELD_BYTES:
            self._held.popitem(last=False)
        return group

    def _refresh(self) -> None:
        """Take the table's latest version. On a disk a table that was removed and made anew is told by the file of the
        version; of a store that would be one more request for each answer.
        """
        if self._delta is not None and not self._has_changed(self._delta.version()):
            return
        try:
            self._delta = DeltaTable(self._place, storage_options=storage_options(self._place))
        except TableNotFoundError:
            self._delta, self._files = None, []
            return
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error
        self._system = file_system_of(self._delta)
        self._commit = self._commit_now(self._delta.version())
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        bounds = [
            list(zip(*(_column(actions, f"{bound}.{name}") for bound in ("min", "max")), strict=True))
            for name in _BOUNDED
        ]
        known = {file.path: file for file in self._files}
        paths: list[str] = [str(path) for path in actions["path"].to_pylist()]
        self._files = [
            known.get(path) or _DataFile(path, of_file)
            for path, of_file in zip(paths, zip(*bounds, strict=True), strict=True)
        ]

    def _has_changed(self, version: int) -> bool:
        return self._is_there(_commit_file(version + 1)) or self._commit != self._commit_now(version)

    def _commit_now(self, version: int) -> FileVersion | None:
        """The state of a version's file; None in a store."""
        return None if self._directory is None else version_at(self._directory / _commit_file(version))

    def _is_there(self, name: str) -> bool:
        """Whether the table has a file. One request of a store, which `get_file_info` would follow by a listing."""
        if self._directory is not None:
            return (self._directory / name).exists()
        try:
            self._system.open_input_file(name).close()
        except FileNotFoundError:
            return False
        return True


def _commit_file(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def _column(actions: pa.Table, name: str) -> list[Any]:
    return actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows


def _group_bounds(metadata: pq.FileMetaData, number: int) -> tuple[_Bounds, ...]:
    group = metadata.row_group(number)
    columns = {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
    statistics = [columns.get(name) for name in _BOUNDED]
    return tuple(
        (found.min, found.max) if found is not None and found.has_min_max else (None, None) for found in statistics
    )


@functools.lru_cache(maxsize=8)
def packed_rows(catalog: str) -> PackedRows:
    """The packed files of a catalog, the same for all who read in this process."""
    return PackedRows(catalog)
