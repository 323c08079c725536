"""The common base of offset and time indexes: Kafka's `AbstractIndex`.

An index is opened from a file or from bytes, or made new. The file is mapped at the first use, so that a lookup only
reads the pages that it touches. Nothing ever writes to the file.

An index may have room for more entries. Kafka preallocates the index files of the active segment, and trims them when
the segment is closed; until then `to_bytes` has zeros after the entries.

Kafka's `append`, `truncateTo`, `resize` and `reset` change a copy in memory, and `to_bytes` returns the bytes of
Kafka's file, for `kidxlib.storage.publisher` to put in place. kidx itself writes whole indexes from a scan, and needs
only the entry that closes a time index; the library offers all of these methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import CorruptIndexError, IndexFullError, IndexSizeError, NoSuchEntryError, OffsetOverflowError
from kidxlib.format import layouts
from kidxlib.index.search_kernel import (
    OFFSET_ENTRY_BYTES,
    POSITION,
    TIME_ENTRY_BYTES,
    entries_at,
    increases,
    many_slots,
    warm_cold_slot,
    warm_cold_traced,
)
from kidxlib.java import as_long
from kidxlib.storage.opened_log import map_file

#: Bytes of a page, the unit in which a file is read into memory.
PAGE_BYTES: Final = 4096

#: More probes than a search of 2**31 entries makes.
_PROBES_MAX: Final = 64
#: Checking whether the entries increase costs about an eighth of a search per entry: it pays from this ratio on.
_ENTRIES_PER_TARGET: Final = 8


@dataclass(frozen=True, slots=True)
class Trace:
    """The entries and pages that a search touched.

    Attributes:
        slot: the answer.
        entries: the probed slots, in order.
        pages: the pages of 4 KiB with these entries, numbered from the start of the file, in the order of first touch.
    """

    slot: int
    entries: tuple[int, ...]
    pages: tuple[int, ...]


def trace_search(
    data: NDArray[np.uint8], entries: int, column: int, base_offset: int, target: int, upper: bool
) -> Trace:
    """The `Trace` of a search in an index: the entries and pages that `warm_cold_slot` touches."""
    touched = np.empty(_PROBES_MAX, np.int64)
    answer, probes = warm_cold_traced(data, entries, column, base_offset, target, upper, touched)
    probed = touched[:probes].tolist()
    entry_bytes = OFFSET_ENTRY_BYTES if column <= POSITION else TIME_ENTRY_BYTES
    # An entry of 12 bytes may lie on two pages.
    pages = [byte // PAGE_BYTES for at in probed for byte in (at * entry_bytes, (at + 1) * entry_bytes - 1)]
    return Trace(slot=answer, entries=tuple(probed), pages=tuple(dict.fromkeys(pages)))


#: The name in messages of an index made from bytes.
IN_MEMORY: Final = "index in memory"

EntryT = TypeVar("EntryT")


class AbstractIndex(ABC, Generic[EntryT]):
    """The entries of one index, as they are looked up.

    Offsets are absolute here and relative to the base offset in the file; sums of the two wrap as Java's longs do.

    Attributes:
        name: the file, or another name for messages.
        base_offset: the segment's.
    """

    entry_bytes: ClassVar[int]
    #: The column in `search_kernel` that Kafka calls KEY; VALUE is the one after it.
    _key: ClassVar[int]
    #: The dtype of `lookup_many`'s answers.
    _answers: ClassVar[np.dtype[Any]]

    def __init__(
        self, read: Callable[[], NDArray[np.uint8]], base_offset: int, name: str, max_bytes: int | None
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self._read = read
        self._max_bytes = max_bytes
        self._memory: NDArray[np.uint8] | None = None  # the bytes of the whole file
        self._entries = 0
        self._own = False  # the memory is a copy that may be changed
        self._key_increases: bool | None = None  # None: not known

    @classmethod
    def open(cls, path: str | PathLike[str], base_offset: int, *, max_bytes: int | None = None) -> Self:
        """Open an index file. It is mapped at the first use.

        All whole entries of the file count, zeros too, as in Kafka. If another process shortens a mapped file, this
        process is killed (SIGBUS): for an index that a broker writes to, use `from_bytes`.

        Args:
            max_bytes: the size after `reset`; None: the file's size.

        Raises (when first used):
            OSError: there is no such file, or it cannot be read.
        """
        return cls(lambda: map_file(fspath(path)), base_offset, fspath(path), max_bytes)

    @classmethod
    def read_by(cls, read: Callable[[], NDArray[np.uint8]], base_offset: int, name: str) -> Self:
        """An index whose bytes a function returns, at the first use and after each `release`. They are not changed."""
        return cls(read, base_offset, name, None)

    @classmethod
    def from_bytes(
        cls,
        content: bytes | bytearray | memoryview | NDArray[np.uint8],
        base_offset: int,
        *,
        name: str = IN_MEMORY,
        max_bytes: int | None = None,
    ) -> Self:
        """An index of bytes in memory, which are neither copied nor changed."""
        return cls(lambda: np.frombuffer(content, np.uint8), base_offset, name, max_bytes)

    # ---- contents ----

    def __len__(self) -> int:
        """The number of entries."""
        self._bytes()
        return self._entries

    @property
    def length(self) -> int:
        """The size of the file in bytes, used or not."""
        return len(self._bytes())

    @property
    def max_entries(self) -> int:
        """How many entries the file has room for."""
        return len(self._bytes()) // self.entry_bytes

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry, as in each file that was trimmed to its entries."""
        return len(self) >= self.max_entries

    def to_bytes(self) -> bytes:
        """The bytes of Kafka's whole file, with the room after the entries until `trim_to_valid_size`."""
        return self._bytes().tobytes()

    def entry(self, number: int) -> EntryT:
        """An entry by its number, from 0 on.

        Raises:
            NoSuchEntryError: there are fewer entries.
        """
        if not 0 <= number < len(self):
            raise NoSuchEntryError(f"{self.name}: no entry {number}, expected 0 to below {self._entries}, its entries")
        return self._entry(self._bytes(), number)

    @property
    @abstractmethod
    def last_entry(self) -> EntryT:
        """The last entry, or the entry that stands for none."""

    def peek_last_entry(self) -> EntryT:
        """`last_entry`, after which the file is released again if it was not in use: for looking at many indexes."""
        in_use = self._memory is not None
        try:
            return self.last_entry
        finally:
            if not in_use:
                self.release()

    def release(self) -> None:
        """Unmap the file. It is mapped again at the next use. Changes are kept."""
        if not self._own:
            self._memory = None

    @abstractmethod
    def sanity_check(self) -> None:
        """Make the checks of a broker before it uses an index.

        Raises:
            CorruptIndexError: the index cannot be right.
        """

    # ---- search ----

    def lookup_many(self, targets: NDArray[np.integer[Any]]) -> NDArray[np.void]:
        """`lookup` for many targets.

        Args:
            targets: integers of shape (n,). Sorted ones are several times faster.

        Returns:
            Records of shape (n,), with the fields of `lookup`'s answers as int64.

        Raises:
            TypeError: the targets are not integers.
        """
        memory = self._bytes()
        searched = np.ascontiguousarray(targets.astype(np.int64, casting="same_kind", copy=False))
        answers = np.empty(len(searched), self._answers)
        pairs = answers.view(np.int64).reshape(-1, 2)  # holds the slots of the entries first, then the entries
        increasing = self._is_known_to_increase(len(searched))
        slots = pairs[:, 1]
        many_slots(memory, self._entries, self._key, self.base_offset, searched, False, increasing, slots)
        entries_at(memory, self._key, self.base_offset, *self._none(), pairs)
        return answers

    def trace(self, target: int, *, by_value: bool = False, upper: bool = False) -> Trace:
        """The entries and pages that a search touches, in order.

        Args:
            by_value: search by value (position, or offset) instead of by key (offset, or timestamp).
            upper: search for the upper bound.
        """
        memory = self._bytes()
        return trace_search(memory, self._entries, self._key + by_value, self.base_offset, target, upper)

    # ---- for subclasses ----

    @abstractmethod
    def _entry(self, memory: NDArray[np.uint8], number: int) -> EntryT:
        """An existing entry."""

    @abstractmethod
    def _none(self) -> tuple[int, int]:
        """The key and value that stand for no entry."""

    def _bytes(self) -> NDArray[np.uint8]:
        """The bytes of the whole file, read at the first call."""
        if self._memory is None:
            self._memory = self._read()
            self._entries = len(self._memory) // self.entry_bytes
        return self._memory

    def _is_known_to_increase(self, targets: int) -> bool:
        """Whether the keys increase. Checked only if the number of targets makes it pay."""
        if self._key_increases is None:
            if targets * _ENTRIES_PER_TARGET < self._entries:
                return False
            self._key_increases = bool(increases(self._bytes(), self._entries, self._key, self.base_offset))
        return self._key_increases

    def _check_length(self) -> None:
        if self.length % self.entry_bytes:
            raise CorruptIndexError(
                f"{self.name}: {self.length} bytes, expected a multiple of {self.entry_bytes}: the index is corrupt, "
                "rebuild it"
            )


class MutableIndex(AbstractIndex[EntryT]):
    """An index that can be changed in memory."""

    #: The column in `search_kernel` that holds offsets.
    _offset: ClassVar[int]

    @classmethod
    def new(cls, base_offset: int, max_bytes: int, *, name: str = IN_MEMORY) -> Self:
        """An empty index with room for `max_bytes`, rounded down to whole entries.

        Raises:
            IndexSizeError: `max_bytes` is less than one entry.
        """
        if max_bytes < cls.entry_bytes:
            raise IndexSizeError(f"{name}: room for {max_bytes} bytes, expected {cls.entry_bytes} or more")
        index = cls(lambda: np.empty(0, np.uint8), base_offset, name, max_bytes)
        index.resize(max_bytes)
        return index

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from this offset on. Their bytes stay after the entries until `trim_to_valid_size`."""
        memory = self._bytes()
        slot = warm_cold_slot(memory, self._entries, self._offset, self.base_offset, offset, False)
        keep = 0
        if slot >= 0:
            keep = slot if self._offset_at(slot) == offset else slot + 1
        self._keep(keep)

    def truncate(self) -> None:
        """Remove all entries."""
        self._keep(0)

    def resize(self, size: int) -> bool:
        """Truncate the file, or extend it with zeros, to `size` bytes, rounded down to whole entries.

        Returns:
            Whether the size has changed.

        Raises:
            IndexSizeError: the entries need more. Nothing is changed, while Kafka shortens the file before it fails.
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
        """Remove the room after the entries, as Kafka does when it closes an index."""
        self.resize(len(self) * self.entry_bytes)

    def reset(self) -> None:
        """Remove all entries, and make room for the maximum size."""
        self.truncate()
        self.resize(self.length if self._max_bytes is None else self._max_bytes)

    def can_append_offset(self, offset: int) -> bool:
        """Whether an offset is close enough to the base offset to be stored."""
        return 0 <= as_long(offset - self.base_offset) <= layouts.RELATIVE_OFFSET_MAX

    def relative_offset(self, offset: int) -> int:
        """The relative offset that is stored.

        Raises:
            OffsetOverflowError: the offset is below the base offset or too far above it.
        """
        if not self.can_append_offset(offset):
            raise OffsetOverflowError(
                f"{self.name}: offset {offset} cannot be stored, expected {self.base_offset}, the base offset, to "
                f"{self.base_offset + layouts.RELATIVE_OFFSET_MAX}"
            )
        return as_long(offset - self.base_offset)

    # ---- for subclasses ----

    @abstractmethod
    def _offset_at(self, number: int) -> int:
        """The offset of an existing entry."""

    def _keep(self, entries: int) -> None:
        self._bytes()
        self._entries = entries
        self._key_increases = None

    def _add(self, entry: bytes) -> None:
        """Write an entry after the last one; there must be room."""
        memory = self._bytes()
        if not self._own:
            memory = self._memory = memory.copy()
            self._own = True
        start = self._entries * self.entry_bytes
        memory[start : start + self.entry_bytes] = np.frombuffer(entry, np.uint8)
        self._entries += 1
        self._key_increases = None

    def _full(self, expected_room: str) -> IndexFullError:
        return IndexFullError(
            f"{self.name}: full with {len(self)} entries, expected room {expected_room}; resize it first"
        )
