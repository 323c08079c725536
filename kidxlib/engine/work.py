"""What an engine is given to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from kidxlib.storage.location import Location

Item = TypeVar("Item")

#: A process takes a second to start; in that time one reads some hundred MB, or publishes the indexes of 100 segments.
SMALL_BYTES: Final = 64 * 1024 * 1024
_SMALL_ITEMS: Final = 100


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
        do: with the items of a unit, and whether it may map files: a worker may have died of one. It is given to
            processes by its name, so it is a function of a module. Done twice, it gives the same rows and files.
        schema: of the rows that it gives.
        directories: whose logs are read: a worker on another machine that sees none of one would find no file there.
        bytes: that the units read, of logs or of rows, about; None where nobody counted.
    """

    name: str
    units: Sequence[Sequence[Item]]
    do: Callable[[Iterable[Item], bool], Iterator[ItemRows]]
    schema: pa.Schema
    directories: Sequence[Location] = ()
    bytes: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether it is done sooner than workers start."""
        items = sum(map(len, self.units))
        return self.bytes is not None and self.bytes <= SMALL_BYTES and items <= _SMALL_ITEMS
