"""What an offset index and a time index share, from opening to releasing them: Kafka's `AbstractIndex`.

An index is opened from a file, from bytes, or new, and reads its file when it is first asked something: the file is
mapped, so that a lookup costs the pages that it touches. Nothing ever writes to the file.

An index may hold fewer entries than it has room for. Kafka makes the files of a segment that it writes to as long as
they may become, and trims them when the segment is closed; the zeros after the entries are in `to_bytes` until then.

Kafka's `append`, `truncateTo`, `resize` and `reset` change a copy in memory, and `to_bytes` gives what Kafka's file
would be, for `kidxlib.storage.publisher` to put in place. kidx writes whole indexes from a scan, and needs of these
only what closes a time index; the library offers all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import CorruptIndexError, IndexFullError, IndexSizeError, NoSuchEntryError, OffsetOverflowError
from kidxlib.format import layouts
from kidxlib.index import columns, search
from kidxlib.index.search import Trace
from kidxlib.java import as_long
from kidxlib.storage.opened_file import map_file

#: How an index made from nothing but bytes is called in messages.
IN_MEMORY: Final = "index in memory"

EntryT = TypeVar("EntryT")

#: What is compared with zero at a time, from the end of a file on.
_BLOCK_BYTES: Final = 1024 * 1024


class AbstractIndex(ABC, Generic[EntryT]):
    """The entries of one index, as they are looked up.

    Offsets are absolute here and relative to the base offset in the file; sums of the two wrap as Java's longs do.

    Attributes:
        name: the file, or whatever it is called in messages.
        base_offset: of the segment.
    """

    entry_bytes: ClassVar[int]
    #: The column of `kidxlib.index.columns` that Kafka calls KEY; VALUE is the one after it.
    _key: ClassVar[int]
    #: What `lookup_many` returns.
    _found: ClassVar[np.dtype[Any]]

    def __init__(
        self, read: Callable[[], NDArray[np.uint8]], base_offset: int, name: str, max_bytes: int | None
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self._read = read
        self._max_bytes = max_bytes
        self._memory: NDArray[np.uint8] | None = None  # the whole file, or what it would be
        self._entries = 0
        self._own = False  # the memory is ours to change
        self._increases: dict[int, bool] = {}  # of each column, where known

    @classmethod
    def open(cls, path: str | PathLike[str], base_offset: int, *, max_bytes: int | None = None) -> Self:
        """An index that stands in a file. The file is opened and mapped when it is first used.

        Each whole entry's bytes count as an entry, zeros too, as they do for Kafka. A file that another process makes
        shorter, once it is mapped, kills this process (SIGBUS): for an index that a broker writes to, use `from_bytes`.

        Args:
            max_bytes: what `reset` makes room for; None for as much as the file has.

        Raises (when first used):
            OSError: there is no such file, or it cannot be read.
        """
        return cls(lambda: map_file(fspath(path)), base_offset, fspath(path), max_bytes)

    @classmethod
    def read_by(cls, read: Callable[[], NDArray[np.uint8]], base_offset: int, name: str) -> Self:
        """An index whose bytes a function gives, when it is first used and after each `release`; never changed."""
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
        """An index whose bytes are in memory; they are neither copied nor changed."""
        return cls(lambda: np.frombuffer(content, np.uint8), base_offset, name, max_bytes)

    # ---- what is there ----

    def __len__(self) -> int:
        """How many entries it has."""
        self._bytes()
        return self._entries

    @property
    def length(self) -> int:
        """Bytes of the file, used or not."""
        return len(self._bytes())

    @property
    def max_entries(self) -> int:
        """How many entries the file has room for."""
        return len(self._bytes()) // self.entry_bytes

    @property
    def is_full(self) -> bool:
        """Whether `append` refuses. That is so of each file that was trimmed to its entries, until `resize`."""
        return len(self) >= self.max_entries

    def to_bytes(self) -> bytes:
        """The whole file, as Kafka's would be: with the room after the entries, until `trim_to_valid_size`."""
        return self._bytes().tobytes()

    def entry(self, number: int) -> EntryT:
        """An entry, counted from 0.

        Raises:
            NoSuchEntryError: it has not as many.
        """
        if not 0 <= number < len(self):
            raise NoSuchEntryError(f"{self.name}: no entry {number}, expected 0 to below {self._entries}, its entries")
        return self._entry(self._bytes(), number)

    @property
    @abstractmethod
    def last_entry(self) -> EntryT:
        """The last entry; what stands for none where there are none."""

    def peek_last_entry(self) -> EntryT:
        """`last_entry`; the file is released again if it was not in use: for a look at all indexes of a log."""
        in_use = self._memory is not None
        try:
            return self.last_entry
        finally:
            if not in_use:
                self.release()

    def release(self) -> None:
        """Unmap the file, which is mapped again when something is asked. Changes are kept."""
        if not self._own:
            self._memory = None

    @abstractmethod
    def sanity_check(self) -> None:
        """What a broker asks of it before it is used.

        Raises:
            CorruptIndexError: it cannot be right.
        """

    # ---- search ----

    def lookup_many(self, targets: NDArray[np.integer[Any]]) -> NDArray[np.void]:
        """What `lookup` says for each of the targets.

        Args:
            targets: integers of shape (n,). Sorted ones are several times faster.

        Returns:
            Records of shape (n,), with the fields that `lookup`'s answers have, each int64.

        Raises:
            TypeError: they are not integers.
        """
        memory = self._bytes()
        wanted = np.ascontiguousarray(targets.astype(np.int64, casting="same_kind", copy=False))
        found = np.empty(len(wanted), self._found)
        pairs = found.view(np.int64).reshape(-1, 2)  # first the slots of the entries stand in it, then the entries
        increasing = self._known(self._key, len(wanted))
        slots = pairs[:, 1]
        search.slots(memory, self._entries, self._key, self.base_offset, wanted, False, increasing, slots)
        columns.entries_at(memory, self._key, self.base_offset, *self._none(), pairs)
        return found

    def trace(self, target: int, *, by_value: bool = False, upper: bool = False) -> Trace:
        """The entries and pages that a search touches, in order.

        Args:
            by_value: search not by key (offset, or timestamp) but by value (position, or offset).
            upper: search for the upper bound.
        """
        memory = self._bytes()
        return search.trace(memory, self._entries, self._key + by_value, self.base_offset, target, upper)

    # ---- for the classes of the two ----

    @abstractmethod
    def _entry(self, memory: NDArray[np.uint8], number: int) -> EntryT:
        """An entry that is there."""

    @abstractmethod
    def _none(self) -> tuple[int, int]:
        """Key and value that stand for no entry."""

    def _bytes(self) -> NDArray[np.uint8]:
        """The whole file; read when this is first called."""
        if self._memory is None:
            self._memory = self._read()
            self._entries = len(self._memory) // self.entry_bytes
        return self._memory

    def _known(self, column: int, targets: int) -> bool:
        """Whether a column is known to increase, or worth a look for so many targets and does."""
        if column not in self._increases:
            if not search.worth_asking(self._entries, targets):
                return False
            memory = self._bytes()
            self._increases[column] = columns.increases(memory, self._entries, column, self.base_offset)
        return self._increases[column]

    def _check_length(self) -> None:
        if self.length % self.entry_bytes:
            raise CorruptIndexError(
                f"{self.name}: {self.length} bytes, expected a multiple of {self.entry_bytes}: the index is corrupt, "
                "rebuild it"
            )


def filled_bytes(content: NDArray[np.uint8], entry_bytes: int) -> int:
    """How many bytes the entries take, each whole. Zeros at the end are no entries: of an offset index no entry is all
    zeros, because the batch at byte 0 is never indexed (`LogSegment.append`). What stands behind zeros is found: all of
    the file is compared with zero, at the speed of memory.
    """
    end = len(content)
    while end > 0:
        begin = (end - 1) // _BLOCK_BYTES * _BLOCK_BYTES
        block = content[begin:end]
        words = len(block) // 8 * 8
        if block[words:].any() or block[:words].view(np.uint64).any():
            used = begin + int(np.flatnonzero(block)[-1]) + 1
            return min(-(-used // entry_bytes) * entry_bytes, len(content))
        end = begin
    return 0


def without_room(content: bytes, entry_bytes: int) -> bytes:
    """The entries alone, each whole."""
    return content[: filled_bytes(np.frombuffer(content, np.uint8), entry_bytes)]


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
        return 0 <= as_long(offset - self.base_offset) <= layouts.RELATIVE_OFFSET_MAX

    def relative_offset(self, offset: int) -> int:
        """What is stored of an offset.

        Raises:
            OffsetOverflowError: it is below the base offset or too far above it.
        """
        relative = as_long(offset - self.base_offset)
        if not 0 <= relative <= layouts.RELATIVE_OFFSET_MAX:
            raise OffsetOverflowError(
                f"{self.name}: offset {offset} cannot be stored, expected {self.base_offset}, the base offset, to "
                f"{self.base_offset + layouts.RELATIVE_OFFSET_MAX}"
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
