"""The entries of a `.txnindex`: transactions that were aborted (`AbortedTxn`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction that was aborted.

    Attributes:
        producer_id: whose it was.
        first_offset: of its first record.
        last_offset: of the marker that aborted it.
        last_stable_offset: below this offset all transactions were decided when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class AbortedInRange:
    """Aborted transactions that a range of offsets meets (`TxnIndexSearchResult`).

    Attributes:
        transactions: in the order of the index.
        complete: whether these are all. If not, the following segments' indexes may have more.
    """

    transactions: tuple[AbortedTransaction, ...]
    complete: bool


def transactions_of(entries: NDArray[Any]) -> tuple[AbortedTransaction, ...]:
    return tuple(AbortedTransaction(*fields) for _version, *fields in entries.tolist())
