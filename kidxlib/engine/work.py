"""What an engine is given to do, and the rows that a run gives to its workers: they lie in files that are mapped into
memory, and an item of work says in which.
"""

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

#: A process takes a second to start; in that time one reads some hundred MB, or publishes the indexes of 100 segments.
_SMALL_BYTES: Final = 64 * 1024 * 1024
_SMALL_ITEMS: Final = 100

#: Rows of a group of a file: a worker holds as many.
_ROWS_PER_GROUP: Final = 65_536


@dataclass(frozen=True, slots=True)
class ItemRows:
    """What came of one item.

    Attributes:
        segments: how many segments it had.
        log_bytes: of their logs.
        batches: rows, which go out before the others.
        rows: further ones.
    """

    segments: int = 0
    log_bytes: int = 0
    batches: Iterable[pa.RecordBatch] = ()
    rows: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Work(Generic[Item]):
    """Units of work. Each goes to one worker, which does its items one after the other.

    Attributes:
        name: of the directory in which the rows are put.
        units: what is done first stands first.
        do: with the items of a unit. It is given to processes by its name, so it is a function of a module. Done
            twice, it gives the same rows and files.
        schema: of the rows that it gives.
        directories: whose logs are read: a worker on another machine that sees none of one would find no file there.
        is_small: it is done sooner than workers start.
        maps: `do` maps files, and takes as well whether it may: a worker may have died of one.
    """

    name: str
    units: Sequence[Sequence[Item]]
    do: Callable[..., Iterator[ItemRows]]
    schema: pa.Schema
    directories: Sequence[Location] = ()
    is_small: bool = False
    maps: bool = False


def reads_little(read_bytes: int, items: int) -> bool:
    """Whether work is done sooner than workers start.

    Args:
        read_bytes: of logs or of rows.
        items: of all units: files are written for each, or a directory is listed.
    """
    return read_bytes <= _SMALL_BYTES and items <= _SMALL_ITEMS


class SharedRows(Protocol):
    """Rows that `Engine.share` has put where workers read them. It goes to a worker within an item."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in their order."""


@dataclass(frozen=True, slots=True)
class RowsInFile:
    """Rows in a Parquet file.

    Attributes:
        path: as every worker sees it.
    """

    path: str

    @classmethod
    def write(cls, rows: pa.Table, path: str) -> RowsInFile:
        """Put rows into a new file."""
        pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP, compression="lz4")
        return cls(path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches()


@dataclass(frozen=True, slots=True)
class RowsInItem:
    """Rows that go along with the item, where driver and workers share no directory."""

    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches(_ROWS_PER_GROUP)


def mapped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of batches as a table. Its file is in `TMPDIR`, or /tmp, has no name any more, and goes with the table.

    Args:
        batches: of the columns of `schema`, held one at a time.
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
