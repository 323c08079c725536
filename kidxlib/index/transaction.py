"""`.txnindex`: the transactions that were aborted in a segment. Kafka's `TransactionIndex` and `AbortedTxn`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from os import PathLike, fspath
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import CorruptIndexError, InvalidOffsetError, NoSuchEntryError, UnknownVersionError
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_3, KAFKA_4_4, NEWEST, KafkaRelease
from kidxlib.index.abstract_index import IN_MEMORY
from kidxlib.storage.location import Location, location
from kidxlib.storage.opened_log import map_file
from kidxlib.storage.small_files import small_file

#: A release, or a function that finds it, for what differs between releases on damage alone.
WhichRelease: TypeAlias = KafkaRelease | Callable[[], KafkaRelease]

_ENTRY_BYTES: Final = layouts.ABORTED_TRANSACTION.itemsize
#: The version that is written.
_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction.

    Attributes:
        producer_id: the producer's id.
        first_offset: the offset of the transaction's first record.
        last_offset: the offset of the abort marker.
        last_stable_offset: all transactions below this offset had ended when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class AbortedInRange:
    """Aborted transactions in a range of offsets (`TxnIndexSearchResult`).

    Attributes:
        transactions: in the order of the index.
        complete: these are all. If not, the indexes of later segments may have more.
    """

    transactions: tuple[AbortedTransaction, ...]
    complete: bool


def _transactions_of(entries: NDArray[Any]) -> tuple[AbortedTransaction, ...]:
    return tuple(AbortedTransaction(*fields) for _version, *fields in entries.tolist())


class TransactionIndex:
    """The transactions that were aborted in a segment, in the order of their markers.

    A partial entry at the end of the file is not read. Changes are made to a copy in memory, which `to_bytes` returns.
    It shares no code with `kidxlib.index.abstract_index`: the other two indexes have room for more entries and store
    relative offsets.

    Attributes:
        name: the file, or another name for messages.
        base_offset: the segment's.
    """

    def __init__(
        self, read: Callable[[], NDArray[np.uint8]], base_offset: int, name: str, release: WhichRelease = NEWEST
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self._release = release
        self._read = read
        self._memory: NDArray[np.uint8] | None = None  # the whole file
        self._last_offset: int | None = None  # of the entry that was last appended to this object

    @classmethod
    def open(cls, path: str | PathLike[str], base_offset: int, *, release: WhichRelease = NEWEST) -> Self:
        """Open an index file, which is mapped at the first use; empty if there is no file.

        Args:
            release: the Kafka whose answers are wanted, or a function that finds it once answers differ: before 4.4
                Kafka takes more versions of entries for 0.

        Raises (when first used):
            OSError: the file cannot be read.
        """
        return cls(lambda: _map_if_there(fspath(path)), base_offset, fspath(path), release)

    @classmethod
    def from_bytes(
        cls,
        content: bytes | bytearray | memoryview | NDArray[np.uint8] = b"",
        base_offset: int = 0,
        *,
        name: str = IN_MEMORY,
        release: WhichRelease = NEWEST,
    ) -> Self:
        """An index of bytes in memory, which are neither copied nor changed."""
        return cls(lambda: np.frombuffer(content, np.uint8), base_offset, name, release)

    @property
    def release(self) -> KafkaRelease:
        """The Kafka whose answers are given."""
        return self._release() if callable(self._release) else self._release

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._bytes()) // _ENTRY_BYTES

    def to_bytes(self) -> bytes:
        """The bytes of the whole file."""
        return self._bytes().tobytes()

    def entry(self, number: int) -> AbortedTransaction:
        """An entry by its number, from 0 on.

        Raises:
            NoSuchEntryError: there are fewer entries.
            UnknownVersionError: the entry is of a version that Kafka refuses.
        """
        if not 0 <= number < len(self):
            raise NoSuchEntryError(f"{self.name}: no entry {number}, expected 0 to below {len(self)}, its entries")
        entries = self._entries()
        self._check_versions(entries[number : number + 1], number)
        return _transactions_of(entries[number : number + 1])[0]

    @property
    def last_entry(self) -> AbortedTransaction | None:
        """The last entry; None if there is none."""
        return self.entry(len(self) - 1) if len(self) else None

    def all(self) -> tuple[AbortedTransaction, ...]:
        """All entries (`allAbortedTxns`).

        Raises:
            UnknownVersionError: an entry is of a version that Kafka refuses.
        """
        entries = self._entries()
        self._check_versions(entries)
        return _transactions_of(entries)

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> AbortedInRange:
        """The aborted transactions that have offsets from `fetch_offset` to below `upper_bound`.

        Kafka stops at the first entry whose last stable offset is not below `upper_bound`: transactions that are
        aborted later begin after it (`collectAbortedTxns`). That entry is among the answers if it is in the range.

        Raises:
            UnknownVersionError: an entry up to there is of a version that Kafka refuses.
        """
        entries = self._entries()
        not_below = entries["last_stable_offset"] >= upper_bound
        complete = bool(not_below.any())
        if complete:
            entries = entries[: int(not_below.argmax()) + 1]
        self._check_versions(entries)
        meets = (entries["last_offset"] >= fetch_offset) & (entries["first_offset"] < upper_bound)
        return AbortedInRange(_transactions_of(entries[meets]), complete)

    def sanity_check(self) -> None:
        """Make the checks of a broker before it uses an index (`TransactionIndex.sanityCheck`).

        Raises:
            CorruptIndexError: an entry's last offset is below the base offset.
            UnknownVersionError: an earlier entry is of a version on which Kafka fails.
        """
        entries = self._entries()
        below = entries["last_offset"] < self.base_offset
        if not below.any():
            self._check_versions(entries)
            return
        number = int(below.argmax())
        self._check_versions(entries[: number + 1])
        raise CorruptIndexError(
            f"{self.name}: the last offset of entry {number} is {entries['last_offset'][number]}, expected "
            f"{self.base_offset}, the base offset, or more: the index is corrupt, rebuild it"
        )

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry at the end of the file. A partial entry there stays, and spoils the entries after it.

        Raises:
            InvalidOffsetError: the last offset is not above that of the entry appended before. Entries from the file do
                not count.
        """
        if self._last_offset is not None and transaction.last_offset <= self._last_offset:
            raise InvalidOffsetError(
                f"{self.name}: an aborted transaction with last offset {transaction.last_offset}, expected one above "
                f"{self._last_offset}, the last"
            )
        entry = np.array([(_VERSION, *astuple(transaction))], layouts.ABORTED_TRANSACTION)
        self._memory = np.concatenate([self._bytes(), entry.view(np.uint8)])
        self._last_offset = transaction.last_offset

    def truncate_to(self, offset: int) -> None:
        """Remove the first entry whose last offset is at or above this one, and all entries after it.

        Raises:
            UnknownVersionError: an entry up to there is of a version that Kafka refuses.
        """
        entries = self._entries()
        not_below = entries["last_offset"] >= offset
        if not not_below.any():
            self._check_versions(entries)
            return
        keep = int(not_below.argmax())
        self._check_versions(entries[: keep + 1])
        self._memory = self._bytes()[: keep * _ENTRY_BYTES]
        self._last_offset = int(entries["last_offset"][keep - 1]) if keep else None

    def reset(self) -> None:
        """Remove all entries."""
        self._memory = np.empty(0, np.uint8)
        self._last_offset = None

    def _bytes(self) -> NDArray[np.uint8]:
        if self._memory is None:
            self._memory = self._read()
        return self._memory

    def _entries(self) -> NDArray[np.void]:
        memory = self._bytes()
        return memory[: len(memory) // _ENTRY_BYTES * _ENTRY_BYTES].view(layouts.ABORTED_TRANSACTION)

    def _check_versions(self, entries: NDArray[np.void], first: int = 0) -> None:
        """Refuse a version (`AbortedTxn`). Up to 4.3 Kafka reads its higher byte alone, as a signed number, and refuses
        one above 0; from 4.4 on it refuses all but 0.
        """
        versions = entries["version"]
        if not versions.any():
            return
        of_older = versions >> 8 > _VERSION
        refused = versions != _VERSION if self.release >= KAFKA_4_4 else of_older
        if refused.any():
            number = int(refused.argmax())
            takes = "" if of_older[number] else f", which only Kafka up to {KAFKA_4_3} takes for that"
            raise UnknownVersionError(
                f"{self.name}: entry {first + number} is of version {versions[number]}, expected {_VERSION}{takes}: "
                f"the index is corrupt or newer than Kafka {NEWEST}, rebuild it",
                is_taken_by_older=not of_older[number],
            )


def _map_if_there(path: str) -> NDArray[np.uint8]:
    return map_file(path) if location(path).exists() else np.empty(0, np.uint8)


def first_abort(transaction_index: Location, position: int = 0) -> int | None:
    """The lowest last offset of the aborted transactions from a byte of the index on; None where there is none."""
    content = small_file(transaction_index)[position:]
    entries = np.frombuffer(content, layouts.ABORTED_TRANSACTION, len(content) // _ENTRY_BYTES)
    return int(entries["last_offset"].min()) if len(entries) else None
