"""Are these producer snapshots and leader epochs right? What a broker believes of them without looking at the log."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib import formats
from kidxlib.audit import Finding, Verdict
from kidxlib.epochs import EpochEntry, LeaderEpochs
from kidxlib.names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX
from kidxlib.producers import SnapshotError, read_snapshot

_HEADER_BYTES: Final = formats.SNAPSHOT_HEADER.itemsize


def audit_snapshot(content: bytes, expected: bytes, *, state_is_known: bool) -> Finding:
    """The finding on a `.snapshot`.

    Args:
        expected: a snapshot of the producers at that offset, as the logs show them.
        state_is_known: the logs show all; else there may be more in the file.
    """
    if content == expected:
        return Finding(file=SNAPSHOT_SUFFIX, verdict=Verdict.IDENTICAL)
    try:
        found = _by_id(content)
    except SnapshotError as error:
        return Finding(
            file=SNAPSHOT_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="unreadable",
            position=0,
            detail=str(error),
            consequence="a broker deletes it and goes through the log from an earlier one on",
        )
    known = _by_id(expected)
    wrong = [
        producer_id
        for producer_id, entry in found.items()
        if known.get(producer_id, None if state_is_known else entry) != entry
    ]
    missing = [producer_id for producer_id in known if producer_id not in found]
    in_transaction = [
        producer_id for producer_id in missing if known[producer_id]["current_transaction_first_offset"] >= 0
    ]
    if wrong or in_transaction:
        producer_id = (wrong or in_transaction)[0]
        return Finding(
            file=SNAPSHOT_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="wrong-producer" if wrong else "missing-transaction",
            position=_position(content, producer_id),
            detail=f"producer {producer_id}: {_shown(found, producer_id)}, the log has {_shown(known, producer_id)}",
            consequence="a broker that starts from it refuses what this producer sends next, or takes its open "
            "transaction for none, or one that has ended for open",
        )
    if missing:
        reason, why = (
            "expired-producers",
            f"{len(missing)} producers are not in it, as a broker forgets them after a day",
        )
    elif found.keys() != known.keys():
        reason, why = "earlier-producers", "it knows producers of before what is left of the log"
    else:
        reason, why = "other-order", "a broker reads entries in any order"
    return Finding(
        file=SNAPSHOT_SUFFIX,
        verdict=Verdict.SAFE,
        reason=reason,
        position=_HEADER_BYTES,
        detail=f"{len(found)} producers, the log has {len(known)}",
        consequence=why,
    )


def audit_epochs(found: LeaderEpochs | None, expected: LeaderEpochs, *, all_are_known: bool) -> Finding:
    """The finding on a `leader-epoch-checkpoint`.

    Args:
        found: what it says; None where there is none.
        expected: what recovery makes of the batches.
        all_are_known: the logs reach back to the start.
    """
    said = () if found is None else found.entries
    if said == expected.entries:
        return Finding(file=LEADER_EPOCH_CHECKPOINT, verdict=Verdict.IDENTICAL)
    at = {entry.epoch: entry.start_offset for entry in said}
    for number, entry in enumerate(expected.entries):
        begun = at.get(entry.epoch)
        earliest = expected.entries[number - 1].start_offset + 1 if number else 0
        if begun is None or not earliest <= begun <= entry.start_offset:
            return Finding(
                file=LEADER_EPOCH_CHECKPOINT,
                verdict=Verdict.BROKEN,
                reason="missing-epoch" if begun is None else "wrong-start-offset",
                detail=f"epoch {entry.epoch} {_where(begun)}, its first batch stands at {entry.start_offset}",
                consequence="replicas that compare epochs cut their logs at a wrong offset",
            )
    more = [entry for entry in said if entry.epoch not in {known.epoch for known in expected.entries}]
    after = [entry for entry in more if not _fits(entry, expected.entries)]
    if after and all_are_known:
        return Finding(
            file=LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="epoch-amid-another",
            detail=f"epoch {after[0].epoch} begins at {after[0].start_offset}, where the log has another",
            consequence="replicas that compare epochs cut their logs at a wrong offset",
        )
    reason, why = (
        ("epochs-without-batches", "their leaders wrote nothing that is left")
        if more
        else (
            "earlier-starts",
            "the first batches of an epoch may be gone by compaction or retention",
        )
    )
    return Finding(
        file=LEADER_EPOCH_CHECKPOINT,
        verdict=Verdict.SAFE,
        reason=reason,
        detail=f"{len(said)} epochs, the log has {len(expected.entries)}",
        consequence=why,
    )


def _where(start_offset: int | None) -> str:
    return "is not in it" if start_offset is None else f"begins at {start_offset}"


def _fits(entry: EpochEntry, known: tuple[EpochEntry, ...]) -> bool:
    """Whether an epoch without batches lies between those that have some."""
    before = [other for other in known if other.epoch < entry.epoch]
    behind = [other for other in known if other.epoch > entry.epoch]
    return (not before or before[-1].start_offset < entry.start_offset) and (
        not behind or entry.start_offset <= behind[0].start_offset
    )


def _by_id(snapshot: bytes) -> dict[int, dict[str, int]]:
    names = formats.SNAPSHOT_ENTRY.names or ()
    return {row[0]: dict(zip(names, row, strict=True)) for row in read_snapshot(snapshot).tolist()}


def _shown(entries: dict[int, dict[str, int]], producer_id: int) -> str:
    fields = entries.get(producer_id)
    if fields is None:
        return "none"
    return " ".join(f"{name}={value}" for name, value in fields.items() if name != "producer_id")


def _position(snapshot: bytes, producer_id: int) -> int:
    found = np.flatnonzero(read_snapshot(snapshot)["producer_id"] == producer_id)
    return _HEADER_BYTES + int(found[0]) * formats.SNAPSHOT_ENTRY.itemsize if len(found) else len(snapshot)
