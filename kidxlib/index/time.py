"""`.timeindex`: timestamp → offset. Kafka's `TimeIndex`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import CorruptIndexError, InvalidOffsetError, InvalidTimestampError
from kidxlib.format import layouts
from kidxlib.index.abstract_index import MutableIndex
from kidxlib.index.search_kernel import OFFSET_OF_TIMESTAMP, TIMESTAMP, warm_cold_slot
from kidxlib.java import as_long

_ENTRY: Final = layouts.as_struct(layouts.TIME_INDEX_ENTRY)


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """An entry of a time index.

    Attributes:
        timestamp: in ms since the epoch; −1: none.
        offset: no batch up to this offset has a larger timestamp.
    """

    timestamp: int
    offset: int


class TimeIndex(MutableIndex[TimestampOffset]):
    """The largest timestamps of a segment, up to some of its batches."""

    entry_bytes: ClassVar[int] = _ENTRY.size
    _key: ClassVar[int] = TIMESTAMP
    _offset: ClassVar[int] = OFFSET_OF_TIMESTAMP
    _answers: ClassVar[np.dtype[Any]] = np.dtype([("timestamp", "i8"), ("offset", "i8")])

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below a timestamp; no timestamp (−1) at the base offset if there is none.

        The first record at this timestamp or later has the entry's offset or a larger one.
        """
        memory = self._memory
        if memory is None:
            memory = self._bytes()
        slot = warm_cold_slot(memory, self._entries, TIMESTAMP, self.base_offset, timestamp, False)
        return self._entry(memory, slot) if slot >= 0 else TimestampOffset(layouts.NO_TIMESTAMP, self.base_offset)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; no timestamp (−1) at the base offset if there is none."""
        count = len(self)
        return self._entry(self._bytes(), count - 1) if count else TimestampOffset(*self._none())

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry. The last slot is kept for the entry that closing a segment
        adds.
        """
        return len(self) >= self.max_entries - 1

    def sanity_check(self) -> None:
        """Make the checks of a broker before it uses an index (`TimeIndex.sanityCheck`).

        Raises:
            CorruptIndexError: the last timestamp is below the first, the last offset is below the base offset, or an
                entry is not whole.
        """
        last = self.last_entry
        if len(self) and last.timestamp < self.entry(0).timestamp:
            raise CorruptIndexError(
                f"{self.name}: the last timestamp is {last.timestamp}, expected {self.entry(0).timestamp}, the first, "
                "or more: the index is corrupt, rebuild it"
            )
        if len(self) and last.offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.name}: the last offset is {last.offset}, expected {self.base_offset}, the base offset, or "
                "more: the index is corrupt, rebuild it"
            )
        self._check_length()

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
        """Add an entry if its timestamp is above the last entry's; −1 and below is no timestamp.

        A refused entry changes nothing. Kafka writes a part of an entry whose offset is too far from the base offset.

        Args:
            skip_full_check: use the last slot too, as Kafka does when it closes a segment.

        Raises:
            IndexFullError: there is no room. Without `skip_full_check` also for an entry that would not be added.
            InvalidOffsetError: the offset is below the last entry's.
            InvalidTimestampError: the timestamp is below the last entry's.
            OffsetOverflowError: the offset is too far from the base offset.
        """
        if not skip_full_check and self.is_full:
            raise self._full("for one more and one in reserve")
        last = self.last_entry
        if len(self) and offset < last.offset:
            raise InvalidOffsetError(
                f"{self.name}: offset {offset} for entry {len(self)}, expected {last.offset}, the last, or more"
            )
        if len(self) and timestamp < last.timestamp:
            raise InvalidTimestampError(
                f"{self.name}: timestamp {timestamp} for entry {len(self)}, expected {last.timestamp}, the last, or "
                "more"
            )
        if timestamp > last.timestamp:
            if len(self) >= self.max_entries:
                raise self._full("for one more")
            self._add(_ENTRY.pack(timestamp, self.relative_offset(offset)))

    def _entry(self, memory: NDArray[np.uint8], number: int) -> TimestampOffset:
        timestamp, relative = _ENTRY.unpack_from(memory.data, number * _ENTRY.size)
        return TimestampOffset(timestamp, as_long(self.base_offset + relative))

    def _offset_at(self, number: int) -> int:
        return self.entry(number).offset

    def _none(self) -> tuple[int, int]:
        return layouts.NO_TIMESTAMP, self.base_offset
