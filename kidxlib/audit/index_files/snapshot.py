"""Checks a producer snapshot. A broker believes this file without looking at the log."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.errors import SnapshotError
from kidxlib.format import layouts as formats
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import SNAPSHOT_SUFFIX

_HEADER_BYTES: Final = formats.SNAPSHOT_HEADER.itemsize


def audit_snapshot(content: bytes, expected: bytes, *, state_is_known: bool) -> Finding:
    """The finding on a `.snapshot`.

    Args:
        expected: a snapshot of the producers at that offset, as the logs show them.
        state_is_known: the logs show all producers; if not, the file may have more.
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
