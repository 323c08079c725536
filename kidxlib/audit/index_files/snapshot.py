"""Checks a producer snapshot. A broker believes this file without looking at the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.cleaned import CleanedLogs
from kidxlib.errors import SnapshotError
from kidxlib.format import layouts as formats
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import SNAPSHOT_SUFFIX
from kidxlib.text.counted import counted

_NO_OFFSET: Final = -1
#: A producer of which nothing is known.
_NONE: Final = {
    "last_offset": _NO_OFFSET,
    "producer_epoch": -1,
    "coordinator_epoch": -1,
    "current_transaction_first_offset": -1,
}
_HEADER_BYTES: Final = formats.SNAPSHOT_HEADER.itemsize


def audit_snapshot(
    content: bytes, expected: bytes, *, state_is_known: bool, offset: int = 0, cleaned: CleanedLogs | None = None
) -> Finding:
    """The finding on a `.snapshot`.

    Args:
        expected: a snapshot of the producers at that offset, as the logs show them.
        state_is_known: the logs show all producers; if not, the file may have more.
        offset: of the snapshot.
        cleaned: asked where the file has other producers than the logs; None where nobody cleans them.
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
    came_back = {producer_id for producer_id in found if _came_back(found[producer_id], known.get(producer_id))}
    wrong = [
        producer_id
        for producer_id, entry in found.items()
        if known.get(producer_id, None if state_is_known else entry) != entry and producer_id not in came_back
    ]
    missing = [producer_id for producer_id in known if producer_id not in found]
    in_transaction = [
        producer_id for producer_id in missing if known[producer_id]["current_transaction_first_offset"] >= 0
    ]
    if (wrong or in_transaction) and cleaned is not None:
        wrong, in_transaction, explained = _not_cleaned(wrong, in_transaction, found, known, offset, cleaned)
    else:
        explained = 0
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
    forgotten = len(missing) + len(came_back)
    reason, why = _kind(explained, forgotten, is_longer=found.keys() != known.keys())
    return Finding(
        file=SNAPSHOT_SUFFIX,
        verdict=Verdict.SAFE,
        reason=reason,
        position=_HEADER_BYTES,
        detail=f"{len(found)} producers, the log has {len(known)}",
        consequence=why,
    )


def _kind(cleaned: int, forgotten: int, *, is_longer: bool) -> tuple[str, str]:
    """How a snapshot came about that is right though it is other than the log's, and why that does no harm.

    Args:
        cleaned: producers whose last batches the cleaner has removed.
        forgotten: producers that a broker had forgotten.
        is_longer: there are producers of which the log does not know.
    """
    if cleaned:
        return (
            "cleaned-producers",
            f"the log cleaner has removed what {cleaned} of its producers wrote last, after the file was written",
        )
    if forgotten:
        return (
            "expired-producers",
            f"of {counted(forgotten, 'producer')} it lacks what the log has, or has something later: a broker forgets "
            "producers after a day",
        )
    if is_longer:
        return "earlier-producers", "it knows producers of before what is left of the log"
    return "other-order", "a broker reads entries in any order"


def _came_back(entry: Mapping[str, int], in_log: Mapping[str, int] | None) -> bool:
    """Whether a broker had forgotten a producer, with the coordinator's epoch in its markers, and it wrote again."""
    return in_log is not None and entry != in_log and entry == {**in_log, "coordinator_epoch": -1}


def _not_cleaned(
    wrong: list[int],
    in_transaction: list[int],
    found: Mapping[int, Mapping[str, int]],
    known: Mapping[int, Mapping[str, int]],
    offset: int,
    cleaned: CleanedLogs,
) -> tuple[list[int], list[int], int]:
    """The producers that are wrong, and those of which a transaction is missing, without those that were right when the
    file was written: the cleaner has removed their last batch or marker since (`Cleaner.cleanInto`). It removes nothing
    behind the start of an open transaction (`LogCleanerManager.cleanableOffsets`), so one that lies before a gap has
    ended.

    Returns:
        Both, and how many others there were.
    """
    last_offsets = np.array([found[each]["last_offset"] if each in found else -1 for each in wrong], np.int64)
    are_cleaned = cleaned.are_cleaned(last_offsets)

    def goes_on(producer_id: int) -> int:
        """From where on what the log does not show any more may have stood."""
        entry = known.get(producer_id, _NONE)
        return max(entry["last_offset"], entry["current_transaction_first_offset"]) + 1

    def is_explained(producer_id: int, is_cleaned: bool) -> bool:
        entry, before = found.get(producer_id, _NONE), known.get(producer_id, _NONE)
        if is_cleaned:
            return entry["last_offset"] > before["last_offset"]
        # A marker's own offset is not in the file.
        is_of_marker = entry["last_offset"] in (_NO_OFFSET, before["last_offset"]) and (
            entry["producer_epoch"] > before["producer_epoch"]
            or (entry["producer_epoch"] == before["producer_epoch"] and _ended(entry, before))
        )
        return is_of_marker and cleaned.any_between(goes_on(producer_id), offset)

    left = [each for each, is_cleaned in zip(wrong, are_cleaned, strict=True) if not is_explained(each, is_cleaned)]
    open_ones = [each for each in in_transaction if not cleaned.any_between(goes_on(each), offset)]
    return left, open_ones, len(wrong) - len(left) + len(in_transaction) - len(open_ones)


def _ended(entry: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether a marker may have made the one of the other."""
    return entry["current_transaction_first_offset"] < 0 and entry["coordinator_epoch"] >= before["coordinator_epoch"]


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
