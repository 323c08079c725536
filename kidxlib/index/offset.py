"""`.index`: offset → position. Kafka's `OffsetIndex`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import CorruptIndexError, InvalidOffsetError, LogChangedError
from kidxlib.format import layouts
from kidxlib.index.abstract_index import MutableIndex
from kidxlib.index.search_kernel import OFFSET, POSITION, warm_cold_slot
from kidxlib.java import as_int, as_long
from kidxlib.storage.small_files import filled_bytes, last_filled

_ENTRY: Final = layouts.as_struct(layouts.OFFSET_INDEX_ENTRY)


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """An entry of an offset index.

    Attributes:
        offset: the last offset of a batch.
        position: the byte of the log at which that batch starts.
    """

    offset: int
    position: int


class OffsetIndex(MutableIndex[OffsetPosition]):
    """Positions of some batches in a segment's log."""

    entry_bytes: ClassVar[int] = _ENTRY.size
    _key: ClassVar[int] = OFFSET
    _offset: ClassVar[int] = OFFSET
    _answers: ClassVar[np.dtype[Any]] = np.dtype([("offset", "i8"), ("position", "i8")])

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below an offset; the base offset at position 0 if there is none.

        The batch that holds the offset starts at that position or after it.
        """
        memory = self._memory
        if memory is None:
            memory = self._bytes()
        slot = warm_cold_slot(memory, self._entries, OFFSET, self.base_offset, offset, False)
        return self._entry(memory, slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def fetch_upper_bound(self, start: OffsetPosition, fetch_bytes: int) -> OffsetPosition | None:
        """The first entry that a fetch of this size does not reach; None if there is none.

        That is the first entry at `start.position + fetch_bytes` or after it, but never the index's first entry if it
        is exactly there (see `search_kernel`). Kafka computes the sum in 32 bits (`fetchUpperBoundOffset`): for
        a fetch that would end past 2 GiB the answer is the first entry.
        """
        memory = self._bytes()
        end = as_int(start.position + fetch_bytes)
        slot = warm_cold_slot(memory, self._entries, POSITION, self.base_offset, end, True)
        return self._entry(memory, slot) if slot >= 0 else None

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry; the base offset at position 0 if there is none."""
        count = len(self)
        return self._entry(self._bytes(), count - 1) if count else OffsetPosition(self.base_offset, 0)

    @property
    def last_offset(self) -> int:
        """The last entry's offset; the base offset if there is none."""
        return self.last_entry.offset

    def sanity_check(self) -> None:
        """Make the checks of a broker before it uses an index (`OffsetIndex.sanityCheck`). An index of zeros passes.

        Raises:
            CorruptIndexError: the last offset is below the base offset, or an entry is not whole.
        """
        if len(self) and self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.name}: the last offset is {self.last_offset}, expected {self.base_offset}, the base offset, "
                "or more: the index is corrupt, rebuild it"
            )
        self._check_length()

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Args:
            offset: above the last entry's.
            position: an int32.

        Raises:
            IndexFullError: there is no room for another entry.
            InvalidOffsetError: the offset is not above the last entry's.
            OffsetOverflowError: the offset is too far from the base offset.
        """
        if self.is_full:
            raise self._full("for one more")
        if len(self) and offset <= self.last_offset:
            raise InvalidOffsetError(
                f"{self.name}: offset {offset} for entry {len(self)}, expected one above {self.last_offset}, the last"
            )
        self._add(_ENTRY.pack(self.relative_offset(offset), position))

    def _entry(self, memory: NDArray[np.uint8], number: int) -> OffsetPosition:
        relative, position = _ENTRY.unpack_from(memory.data, number * _ENTRY.size)
        return OffsetPosition(as_long(self.base_offset + relative), position)

    def _offset_at(self, number: int) -> int:
        return self.entry(number).offset

    def _none(self) -> tuple[int, int]:
        return self.base_offset, 0


def last_filled_entry(content: bytes | NDArray[np.uint8], base_offset: int) -> OffsetPosition | None:
    """The last entry of an offset index, before the room that a running or killed broker keeps. None where there is
    none, or it is below the base offset, which a broker refuses (`OffsetIndex.sanityCheck`). Bytes that are no whole
    entry do not count.
    """
    whole = np.frombuffer(content, np.uint8, len(content) // OffsetIndex.entry_bytes * OffsetIndex.entry_bytes)
    index = OffsetIndex.from_bytes(whole[: filled_bytes(whole, OffsetIndex.entry_bytes)], base_offset)
    return index.last_entry if len(index) and index.last_offset >= base_offset else None


def read_last_entry(path: Path, base_offset: int) -> OffsetPosition | None:
    """The last entry of an offset index in a file (`last_filled_entry`), of which little is read. None, too, where it
    cannot be read.
    """
    try:
        return last_filled_entry(last_filled(path, OffsetIndex.entry_bytes), base_offset)
    except (OSError, LogChangedError):
        return None
