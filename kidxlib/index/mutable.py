"""What changes an offset index or a time index: Kafka's `append`, `truncateTo`, `resize` and `reset`.

kidx writes whole indexes from a scan, and of these needs no more than what closes a time index. kidxlib has the rest
besides: with it an index is made entry by entry, as the model in `tests/model` does, and changed as Kafka's is in
`tests/kafka`. Changes are made to a copy in memory, and `to_bytes` gives what Kafka's file would be, for
`kidxlib.storage.publisher` to put in place.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np

from kidxlib.errors import IndexFullError, IndexSizeError, OffsetOverflowError
from kidxlib.format import layouts as formats
from kidxlib.index import search
from kidxlib.index.base import IN_MEMORY, AbstractIndex, EntryT
from kidxlib.java import as_long


class MutableIndex(AbstractIndex[EntryT]):
    """An index that can be changed, in memory."""

    #: The column of `kidxlib.index.columns` that holds offsets.
    _offset: ClassVar[int]

    @classmethod
    def new(cls, base_offset: int, max_bytes: int, *, name: str = IN_MEMORY) -> Self:
        """An index without entries that has room for `max_bytes`, rounded down to whole entries.

        Raises:
            IndexSizeError: that is not even one.
        """
        if max_bytes < cls.entry_bytes:
            raise IndexSizeError(f"{name}: room for {max_bytes} bytes, expected {cls.entry_bytes} or more")
        index = cls(lambda: np.empty(0, np.uint8), base_offset, name, max_bytes)
        index.resize(max_bytes)
        return index

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from this offset on. Their bytes stay after the entries until `trim_to_valid_size`."""
        memory = self._bytes()
        slot = search.slot(memory, self._entries, self._offset, self.base_offset, offset, False)
        keep = 0
        if slot >= 0:
            keep = slot if self._offset_at(slot) == offset else slot + 1
        self._keep(keep)

    def truncate(self) -> None:
        """Remove all entries."""
        self._keep(0)

    def resize(self, size: int) -> bool:
        """Make the file `size` bytes long, rounded down to whole entries: truncate it, or fill it up with zeros.

        Kafka has shortened the file by the time it fails.

        Returns:
            Whether that is another length than before.

        Raises:
            IndexSizeError: the entries need more; nothing was changed.
        """
        memory = self._bytes()
        rounded = max(size, 0) // self.entry_bytes * self.entry_bytes
        if rounded == len(memory):
            return False
        used = self._entries * self.entry_bytes
        if rounded < used:
            raise IndexSizeError(f"{self.name}: to be {rounded} bytes long, expected {used} or more, its entries")
        resized = np.zeros(rounded, np.uint8)
        kept = min(rounded, len(memory))
        resized[:kept] = memory[:kept]
        self._memory, self._own = resized, True
        return True

    def trim_to_valid_size(self) -> None:
        """Trim what lies after the entries, as Kafka does when it closes an index."""
        self.resize(len(self) * self.entry_bytes)

    def reset(self) -> None:
        """Remove all entries, and make as much room as there was meant to be."""
        self.truncate()
        self.resize(self.length if self._max_bytes is None else self._max_bytes)

    def can_append_offset(self, offset: int) -> bool:
        """Whether an offset is near enough to the base offset to be stored."""
        return 0 <= as_long(offset - self.base_offset) <= formats.RELATIVE_OFFSET_MAX

    def relative_offset(self, offset: int) -> int:
        """What is stored of an offset.

        Raises:
            OffsetOverflowError: it is below the base offset or too far above it.
        """
        relative = as_long(offset - self.base_offset)
        if not 0 <= relative <= formats.RELATIVE_OFFSET_MAX:
            raise OffsetOverflowError(
                f"{self.name}: offset {offset} cannot be stored, expected {self.base_offset}, the base offset, to "
                f"{self.base_offset + formats.RELATIVE_OFFSET_MAX}"
            )
        return relative

    # ---- for the classes of the two ----

    @abstractmethod
    def _offset_at(self, number: int) -> int:
        """The offset of an entry that is there."""

    def _keep(self, entries: int) -> None:
        self._bytes()
        self._entries = entries
        self._increases.clear()

    def _add(self, entry: bytes) -> None:
        """Write an entry after the last; there must be room."""
        memory = self._bytes()
        if not self._own:
            memory = self._memory = memory.copy()
            self._own = True
        start = self._entries * self.entry_bytes
        memory[start : start + self.entry_bytes] = np.frombuffer(entry, np.uint8)
        self._entries += 1
        self._increases.clear()

    def _full(self, expected_room: str) -> IndexFullError:
        return IndexFullError(
            f"{self.name}: full with {len(self)} entries, expected room {expected_room}; resize it first"
        )
