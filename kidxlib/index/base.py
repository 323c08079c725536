"""What an offset index and a time index share, from opening to releasing them: Kafka's `AbstractIndex`.

An index is opened from a file, from bytes, or new, and reads its file when it is first asked something: the file is
mapped, so that a lookup costs the pages that it touches. Nothing ever writes to the file: what changes an index, in a
copy in memory, is in `kidxlib.index.mutable`.

An index may hold fewer entries than it has room for. Kafka makes the files of a segment that it writes to as long as
they may become, and trims them when the segment is closed; what lies after the entries is in `to_bytes` until then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import CorruptIndexError, NoSuchEntryError
from kidxlib.index import columns, search
from kidxlib.index.mapped_file import map_file
from kidxlib.index.search import Trace

#: How an index made from nothing but bytes is called in messages.
IN_MEMORY: Final = "index in memory"

EntryT = TypeVar("EntryT")


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
