"""The work for an engine, and the rows that a run shares with its workers: in mapped files that items name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.storage.location import Location
from kidxlib.storage.scratch import temporary_place, writing_in

Item = TypeVar("Item")

#: A process takes a second to start; in that time it could read some hundred MB, or publish the indexes of 100
#: segments.
_SMALL_BYTES: Final = 64 * 1024 * 1024
_SMALL_ITEMS: Final = 100

#: Rows of a file's row group, which a worker holds in memory.
_ROWS_PER_GROUP: Final = 65_536


@dataclass(frozen=True, slots=True)
class ItemRows:
    """The result of one item: how many segments it had, the bytes of their logs, and rows, those in `batches` first."""

    segments: int = 0
    log_bytes: int = 0
    batches: Iterable[pa.RecordBatch] = ()
    rows: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Work(Generic[Item]):
    """Units of work. Each goes to one worker, which does its items in sequence.

    Attributes:
        name: the name of the directory for the rows.
        units: in the order in which they are begun.
        do: does the items of a unit. Processes get it by name, so it must be a module's function. Repeated, it returns
            the same rows and files.
        schema: of the rows.
        directories: the directories whose logs are read, which every worker has to see.
        is_small: the work takes less time than workers need to start.
        maps: `do` maps files, and has an argument whether it may: a worker may have died of a mapped file.
    """

    name: str
    units: Sequence[Sequence[Item]]
    do: Callable[..., Iterator[ItemRows]]
    schema: pa.Schema
    directories: Sequence[Location] = ()
    is_small: bool = False
    maps: bool = False


def reads_little(read_bytes: int, items: int) -> bool:
    """Whether work takes less time than workers need to start: bytes of logs or of rows to read, and items of all
    units, for each of which files are written or a directory is listed.
    """
    return read_bytes <= _SMALL_BYTES and items <= _SMALL_ITEMS


class SharedRows(Protocol):
    """Rows that `Engine.share` has put where workers can read them. It is sent to a worker within an item."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in their order."""


@dataclass(frozen=True, slots=True)
class RowsInFile:
    """Rows in a Parquet file, whose path is the same for every worker."""

    path: str

    @classmethod
    def write(cls, rows: pa.Table, path: str) -> RowsInFile:
        pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP, compression="lz4")
        return cls(path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches()


@dataclass(frozen=True, slots=True)
class RowsInItem:
    """Rows within the item, if driver and workers share no directory."""

    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches(_ROWS_PER_GROUP)


def mapped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of batches as a table in a mapped file; one batch at a time is held. The file is in `TMPDIR`, or /tmp,
    is unlinked already, and is freed with the table.
    """
    place = temporary_place()
    with writing_in(place):
        descriptor, path = tempfile.mkstemp(prefix="kidx-", suffix=".arrow", dir=place)
    os.close(descriptor)
    try:
        with writing_in(place):
            sink = pa.OSFile(path, "wb")
        with sink, pa.ipc.new_file(sink, schema) as file:
            for batch in batches:
                rows = batch.cast(schema)
                with writing_in(place):
                    file.write_batch(rows)
        with pa.memory_map(path) as source:
            return pa.ipc.open_file(source).read_all()
    finally:
        os.unlink(path)
