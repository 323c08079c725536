"""Checks a `.txnindex`, which decides which records consumers of committed data skip.

The transactions must be those that the log shows; their last stable offsets may differ. A search stops at the first
entry whose last stable offset is not below its upper bound (`TransactionIndex.collectAbortedTxns`). An offset that is
too small makes the search read on for nothing. One that is too large makes it miss transactions aborted later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.finding_builder import entries_differ
from kidxlib.errors import CorruptIndexError, UnknownVersionError
from kidxlib.format import layouts
from kidxlib.format.segment_files import TRANSACTION_INDEX_SUFFIX
from kidxlib.index.transaction import AbortedTransaction, TransactionIndex
from kidxlib.recovery.partition_fold import StateSource
from kidxlib.recovery.scan import scan_state

_NO_BOUND: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOfSegment:
    """A segment's transactions by the logs.

    Attributes:
        aborted: what recovery writes, of dtype `layouts.ABORTED_TRANSACTION`.
        state_source: where the state of producers at the base offset comes from.
        markers: producer ids and offsets of the abort markers in the segment.
        later_first_offset: the smallest first offset of the transactions that are aborted in later segments, or were
            still ongoing when the log ends; None if there are none.
    """

    base_offset: int
    aborted: NDArray[np.void]
    state_source: StateSource
    markers: frozenset[tuple[int, int]]
    later_first_offset: int | None


def markers_in(events: NDArray[np.void]) -> frozenset[tuple[int, int]]:
    """Producer ids and offsets of the abort markers among events of dtype `scan_state.PRODUCER_EVENT`."""
    aborts = events[events["kind"] == scan_state.EventKind.ABORT]
    return frozenset(zip(aborts["producer_id"].tolist(), aborts["last_offset"].tolist(), strict=True))


def audit_transaction_index(content: NDArray[np.uint8] | None, logs: TransactionsOfSegment) -> Finding:
    """The finding on a `.txnindex`.

    Args:
        content: the content of the file; None if there is none, which means that nothing was aborted.
    """
    expected = logs.aborted.tobytes()
    if content is None and expected:
        return _broken(
            "missing",
            0,
            f"not there, recovery writes {len(logs.aborted)} entries",
            "a broker that does not recover the segment leaves it so: consumers of committed records get those of "
            "aborted transactions",
        )
    if content is None or content.tobytes() == expected:
        return Finding(file=TRANSACTION_INDEX_SUFFIX, verdict=Verdict.IDENTICAL)
    index = TransactionIndex.from_bytes(content, logs.base_offset)
    try:
        index.sanity_check()
        found = index.all()
    except (CorruptIndexError, UnknownVersionError) as error:
        number = next((n for n in range(len(index)) if not _well(index, n, logs.base_offset)), 0)
        detail = str(error).partition(": ")[2]
        return _broken(
            "fails-sanity-check", number, detail, "a broker that starts rebuilds the segment's indexes, or fails"
        )
    recovered = TransactionIndex.from_bytes(expected, logs.base_offset).all()
    wrong = _wrong_set(found, recovered, logs) or _wrong_stable_offset(found, logs)
    if wrong is not None:
        return wrong
    return _safe(found, recovered, len(content))


def _wrong_set(
    found: tuple[AbortedTransaction, ...], recovered: tuple[AbortedTransaction, ...], logs: TransactionsOfSegment
) -> Finding | None:
    """The finding on the first transaction that is wrongly there, or is missing."""
    known = {(each.producer_id, each.last_offset): each for each in recovered}
    state_is_known = logs.state_source is not StateSource.UNKNOWN
    for number, each in enumerate(found):
        same = known.get((each.producer_id, each.last_offset))
        began_earlier = not state_is_known and (
            each.first_offset <= (same.first_offset if same else logs.base_offset)
            and (each.producer_id, each.last_offset) in logs.markers
        )
        if began_earlier or (same is not None and each.first_offset == same.first_offset):
            continue
        return _broken(
            "wrong-transaction",
            number,
            f"entry {number} is {each}, recovery writes {same or 'none that ends there'}",
            f"consumers of committed records skip those of producer {each.producer_id} from {each.first_offset} to "
            f"{each.last_offset}",
        )
    there = {(each.producer_id, each.last_offset) for each in found}
    for each in recovered:
        if (each.producer_id, each.last_offset) not in there:
            return _broken(
                "missing-transaction",
                len(found),
                f"{len(found)} entries, none for {each}",
                f"consumers of committed records get those that producer {each.producer_id} aborted, from "
                f"{each.first_offset} to {each.last_offset}",
            )
    return None


def _wrong_stable_offset(found: tuple[AbortedTransaction, ...], logs: TransactionsOfSegment) -> Finding | None:
    """The finding on the last entry at which a search stops too early."""
    earliest_later = _NO_BOUND if logs.later_first_offset is None else logs.later_first_offset
    first_entry = {(each.producer_id, each.last_offset): number for number, each in reversed(list(enumerate(found)))}
    for number in reversed(range(len(found))):
        each = found[number]
        if each.last_stable_offset > earliest_later:
            return _broken(
                "last-stable-offset-too-large",
                number,
                f"entry {number} is {each}, expected a last stable offset up to {earliest_later}",
                f"a fetch that ends after {earliest_later} and not after {each.last_stable_offset} does not learn of "
                "what was aborted later",
            )
        if (
            first_entry[each.producer_id, each.last_offset] == number
        ):  # otherwise an earlier entry has the same transaction
            earliest_later = min(earliest_later, each.first_offset)
    return None


def _safe(found: tuple[AbortedTransaction, ...], recovered: tuple[AbortedTransaction, ...], size: int) -> Finding:
    entry_bytes = layouts.ABORTED_TRANSACTION.itemsize
    both = min(len(found), len(recovered))
    number = next((n for n in range(both) if found[n] != recovered[n]), both)
    position = number * entry_bytes
    if len(found) * entry_bytes != size and number == both:
        reason, why = "partial-entry", "a broker reads up to there; what it appends after it cannot be read"
    elif {(each.producer_id, each.first_offset, each.last_offset) for each in found} == {
        (each.producer_id, each.first_offset, each.last_offset) for each in recovered
    }:
        reason, why = "other-last-stable-offset", "as followers write it; every search finds what it should"
    else:
        reason, why = "earlier-transactions", "it knows transactions that began before what is left of the log"
    differ = [(len(each), each[number] if number < len(each) else None) for each in (found, recovered)]
    return Finding(
        file=TRANSACTION_INDEX_SUFFIX,
        verdict=Verdict.SAFE,
        reason=reason,
        position=position,
        detail=entries_differ(number, *differ),
        consequence=why,
    )


def _broken(reason: str, number: int, detail: str, consequence: str) -> Finding:
    return Finding(
        file=TRANSACTION_INDEX_SUFFIX,
        verdict=Verdict.BROKEN,
        reason=reason,
        position=number * layouts.ABORTED_TRANSACTION.itemsize,
        detail=detail,
        consequence=consequence,
    )


def _well(index: TransactionIndex, number: int, base_offset: int) -> bool:
    try:
        return index.entry(number).last_offset >= base_offset
    except UnknownVersionError:
        return False
