"""Checks a `.txnindex`, which decides which records consumers of committed data skip.

The transactions must be those that the log shows; their last stable offsets may differ. A search stops at the first
entry whose last stable offset is not below its upper bound (`TransactionIndex.collectAbortedTxns`). An offset that is
too small makes the search read on for nothing. One that is too large makes it miss transactions aborted later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import FAILS_CHECK, OTHER_VERSION, Finding, Verdict
from kidxlib.audit.index_files.index_file import entries_differ
from kidxlib.errors import CorruptIndexError, UnknownVersionError
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_4, NodeRelease
from kidxlib.format.segment_files import OFFSET_MAX, TRANSACTION_INDEX_SUFFIX
from kidxlib.index.transaction import AbortedTransaction, TransactionIndex
from kidxlib.recovery.partition_fold import StateSource
from kidxlib.recovery.scan import scan_state


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOfSegment:
    """A segment's transactions by the logs.

    Attributes:
        aborted: what recovery writes, of dtype `layouts.ABORTED_TRANSACTION`.
        state_source: where the state of producers at the base offset comes from.
        markers: producer ids and offsets of the abort markers in the segment.
        later_first_offset: the smallest first offset of the transactions that are aborted in later segments, or are
            open at the end of the log; None without any.
        kafka: the broker's.
    """

    base_offset: int
    aborted: NDArray[np.void]
    state_source: StateSource
    markers: frozenset[tuple[int, int]]
    later_first_offset: int | None
    kafka: NodeRelease = field(default_factory=NodeRelease)


def abort_markers(events: NDArray[np.void]) -> frozenset[tuple[int, int]]:
    """The abort markers of a segment, with which its `.txnindex` is compared: producer ids and offsets, by its events
    of dtype `scan_state.PRODUCER_EVENT`.
    """
    aborts = events[events["kind"] == scan_state.EventKind.ABORT]
    return frozenset(zip(aborts["producer_id"].tolist(), aborts["last_offset"].tolist(), strict=True))


def audit_transaction_index(content: NDArray[np.uint8] | None, logs: TransactionsOfSegment) -> Finding:
    """The finding on a `.txnindex`. A segment without aborted transactions needs no file: `content` is None then."""
    expected = logs.aborted.tobytes()
    if content is None and expected:
        return _finding_on_entry(
            "missing",
            0,
            f"not there, recovery writes {len(logs.aborted)} entries",
            "a broker that does not recover the segment leaves it so: consumers of committed records get those of "
            "aborted transactions",
        )
    if content is None or content.tobytes() == expected:
        return Finding(file=TRANSACTION_INDEX_SUFFIX, verdict=Verdict.IDENTICAL)
    index = TransactionIndex.from_bytes(content, logs.base_offset, release=logs.kafka.release)
    try:
        index.sanity_check()
        found = index.all()
    except (CorruptIndexError, UnknownVersionError) as error:
        return refused_transaction_index(index, error, logs.kafka)
    recovered = TransactionIndex.from_bytes(expected, logs.base_offset).all()
    wrong = _finding_on_wrong_set(found, recovered, logs) or _finding_on_stable_offset(found, logs)
    return wrong or refused_later(index, logs.kafka) or _safe_finding(found, recovered, len(content))


def refused_transaction_index(
    index: TransactionIndex, error: CorruptIndexError | UnknownVersionError, kafka: NodeRelease
) -> Finding:
    """The finding on a `.txnindex` that the broker's Kafka refuses."""
    number = next((n for n in range(len(index)) if not _is_entry_accepted(index, n)), 0)
    detail, why = str(error).partition(": ")[2], "a broker that starts rebuilds the segment's indexes, or fails"
    if isinstance(error, UnknownVersionError) and error.is_taken_by_older:
        detail, why = f"{detail}; {kafka}, counts", "a broker that starts fails"
    return _finding_on_entry(FAILS_CHECK, number, detail, why)


def refused_later(index: TransactionIndex, kafka: NodeRelease) -> Finding | None:
    """The finding on a `.txnindex` of a version that the broker's Kafka takes for 0, and newer ones refuse."""
    content, layout = index.to_bytes(), layouts.ABORTED_TRANSACTION
    versions = np.frombuffer(content, layout, len(content) // layout.itemsize)["version"]
    if not versions.any():
        return None
    number = int(np.flatnonzero(versions)[0])
    return _finding_on_entry(
        OTHER_VERSION,
        number,
        f"entry {number} is of version {versions[number]}, expected 0; {kafka}, takes it for 0",
        f"from {KAFKA_4_4} on a broker that starts fails: rebuild the index before an upgrade",
        Verdict.SAFE,
    )


def _finding_on_wrong_set(
    found: tuple[AbortedTransaction, ...], recovered: tuple[AbortedTransaction, ...], logs: TransactionsOfSegment
) -> Finding | None:
    """The finding on the first transaction that is wrongly there, or is missing."""
    known = {(entry.producer_id, entry.last_offset): entry for entry in recovered}
    state_is_known = logs.state_source is not StateSource.UNKNOWN
    for number, entry in enumerate(found):
        same = known.get((entry.producer_id, entry.last_offset))
        began_earlier = not state_is_known and (
            entry.first_offset <= (same.first_offset if same else logs.base_offset)
            and (entry.producer_id, entry.last_offset) in logs.markers
        )
        if began_earlier or (same is not None and entry.first_offset == same.first_offset):
            continue
        return _finding_on_entry(
            "wrong-transaction",
            number,
            f"entry {number} is {entry}, recovery writes {same or 'none that ends there'}",
            f"consumers of committed records skip those of producer {entry.producer_id} from {entry.first_offset} to "
            f"{entry.last_offset}",
        )
    there = {(entry.producer_id, entry.last_offset) for entry in found}
    for entry in recovered:
        if (entry.producer_id, entry.last_offset) not in there:
            return _finding_on_entry(
                "missing-transaction",
                len(found),
                f"{len(found)} entries, none for {entry}",
                f"consumers of committed records get those that producer {entry.producer_id} aborted, from "
                f"{entry.first_offset} to {entry.last_offset}",
            )
    return None


def _finding_on_stable_offset(found: tuple[AbortedTransaction, ...], logs: TransactionsOfSegment) -> Finding | None:
    """The finding on the last entry at which a search stops too early."""
    earliest_later = OFFSET_MAX if logs.later_first_offset is None else logs.later_first_offset
    numbered = list(reversed(list(enumerate(found))))
    first_number = {(entry.producer_id, entry.last_offset): number for number, entry in numbered}
    for number, entry in numbered:
        if entry.last_stable_offset > earliest_later:
            return _finding_on_entry(
                "last-stable-offset-too-large",
                number,
                f"entry {number} is {entry}, expected a last stable offset up to {earliest_later}",
                f"a fetch that ends after {earliest_later} and not after {entry.last_stable_offset} does not learn of "
                "what was aborted later",
            )
        # Otherwise an earlier entry has the same transaction.
        if first_number[entry.producer_id, entry.last_offset] == number:
            earliest_later = min(earliest_later, entry.first_offset)
    return None


def _safe_finding(
    found: tuple[AbortedTransaction, ...], recovered: tuple[AbortedTransaction, ...], size: int
) -> Finding:
    in_both = min(len(found), len(recovered))
    number = next((n for n in range(in_both) if found[n] != recovered[n]), in_both)
    if len(found) * layouts.ABORTED_TRANSACTION.itemsize != size and number == in_both:
        reason, why = "partial-entry", "a broker reads up to there; what it appends after it cannot be read"
    elif {(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found} == {
        (entry.producer_id, entry.first_offset, entry.last_offset) for entry in recovered
    }:
        reason, why = "other-last-stable-offset", "as followers write it; every search finds what it should"
    else:
        reason, why = "earlier-transactions", "it knows transactions that began before what is left of the log"
    counts = [(len(entries), entries[number] if number < len(entries) else None) for entries in (found, recovered)]
    return _finding_on_entry(reason, number, entries_differ(number, *counts), why, Verdict.SAFE)


def _finding_on_entry(
    reason: str, number: int, detail: str, consequence: str, verdict: Verdict = Verdict.BROKEN
) -> Finding:
    return Finding(
        file=TRANSACTION_INDEX_SUFFIX,
        verdict=verdict,
        reason=reason,
        position=number * layouts.ABORTED_TRANSACTION.itemsize,
        detail=detail,
        consequence=consequence,
    )


def _is_entry_accepted(index: TransactionIndex, number: int) -> bool:
    try:
        return index.entry(number).last_offset >= index.base_offset
    except UnknownVersionError:
        return False
