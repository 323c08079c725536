"""Checks a producer snapshot, which a broker believes without reading the log. Also finds offsets whose batches the
cleaner has removed.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.index_file import read_index
from kidxlib.audit.segment import AuditedLog
from kidxlib.errors import LogChangedError, SnapshotError
from kidxlib.format import layouts, segment_files
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SNAPSHOT_SUFFIX
from kidxlib.index.offset import OffsetIndex
from kidxlib.records import header_search
from kidxlib.records.header_search import SearchOutcome
from kidxlib.recovery.outcome import USABLE
from kidxlib.storage.location import Location
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log
from kidxlib.text.words import counted

_NO_OFFSET: Final = -1
#: The entry of a producer that nothing is known of.
_UNKNOWN_PRODUCER: Final = {
    "last_offset": _NO_OFFSET,
    "producer_epoch": -1,
    "coordinator_epoch": -1,
    "current_transaction_first_offset": -1,
}
_HEADER_BYTES: Final = layouts.SNAPSHOT_HEADER.itemsize


@dataclass(frozen=True, slots=True)
class CleanedLogs:
    """Says which offsets of a snapshot the cleaner has removed from the partition's logs, by looking up each. The logs
    are in the order of base offsets, and are opened at the first question. `broken` has the base offsets and suffixes
    of index files that cannot be used.
    """

    directory: Location
    index_directory: Location
    logs: Sequence[AuditedLog]
    broken: Container[tuple[int, str]]

    def are_cleaned(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which offsets are in no batch, although the logs go on after them."""
        are_cleaned = np.zeros(len(offsets), np.bool_)
        for number, log in enumerate(self.logs):
            if log.recovery is None or log.recovery.end.status not in USABLE:
                continue
            is_last = number + 1 == len(self.logs)
            end = log.recovery.next_offset if is_last else self.logs[number + 1].base_offset
            asked = np.flatnonzero((offsets >= log.base_offset) & (offsets < end))
            if len(asked):
                are_cleaned[asked] = self._lacks_offsets(log.base_offset, offsets[asked])
        return are_cleaned

    def any_between(self, first: int, end: int) -> bool:
        """Whether the cleaner may have removed records from a log that has offsets from `first` to below `end`."""
        return any(
            log.base_offset < end
            and log.recovery.next_offset > first
            and log.recovery.may_lack_records(log.base_offset)
            for log in self.logs
            if log.recovery is not None
        )

    def _lacks_offsets(self, base_offset: int, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        order = np.argsort(offsets, kind="stable")
        walks = header_search.new_walks(offsets[order], self._search_starts(base_offset, offsets[order]))
        path = self.directory / segment_files.segment_file(base_offset, LOG_SUFFIX)
        try:
            with opened_log(str(path)) as opened:
                header_search.walk(
                    opened.log(use_mmap=False, access=Access.RANDOM), walks, header_search.step_to_offsets
                )
        except (LogChangedError, OSError):
            return np.zeros(len(offsets), np.bool_)
        is_behind = (walks["outcome"] == SearchOutcome.FOUND) & (walks["base_offset"] > walks["target"])
        lacks = np.empty(len(offsets), np.bool_)
        lacks[order] = is_behind | (walks["outcome"] == SearchOutcome.NONE)
        return lacks

    def _search_starts(self, base_offset: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        content = None
        if (base_offset, OFFSET_INDEX_SUFFIX) not in self.broken:
            path = self.index_directory / segment_files.segment_file(base_offset, OFFSET_INDEX_SUFFIX)
            content = read_index(path, use_mmap=False)
        if content is None or isinstance(content, OSError):
            return np.zeros(len(offsets), np.int64)
        starts: NDArray[np.int64] = OffsetIndex.from_bytes(content, base_offset).lookup_many(offsets)["position"]
        return starts


def audit_snapshot(
    content: bytes, expected: bytes, *, state_is_known: bool, offset: int = 0, cleaned: CleanedLogs | None = None
) -> Finding:
    """The finding on a `.snapshot` at an offset, by the producers that the logs show there. If the logs do not show all
    (`state_is_known`), the file may have more. `cleaned` is asked if the file has other producers than the logs; None
    if these are never cleaned.
    """
    if content == expected:
        return Finding(file=SNAPSHOT_SUFFIX, verdict=Verdict.IDENTICAL)
    try:
        in_file = _entries_by_producer(content)
    except SnapshotError as error:
        return Finding(
            file=SNAPSHOT_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="unreadable",
            position=0,
            detail=str(error),
            consequence="a broker deletes it and goes through the log from an earlier one on",
        )
    in_logs = _entries_by_producer(expected)
    came_back = {
        producer_id for producer_id, entry in in_file.items() if _was_forgotten(entry, in_logs.get(producer_id))
    }
    # Where the logs do not show all producers, one that only the file has may be right.
    wrong = [
        producer_id
        for producer_id, entry in in_file.items()
        if in_logs.get(producer_id, None if state_is_known else entry) != entry and producer_id not in came_back
    ]
    missing = [producer_id for producer_id in in_logs if producer_id not in in_file]
    in_transaction = [
        producer_id for producer_id in missing if in_logs[producer_id]["current_transaction_first_offset"] >= 0
    ]
    if (wrong or in_transaction) and cleaned is not None:
        wrong, in_transaction, explained = _not_explained(wrong, in_transaction, in_file, in_logs, offset, cleaned)
    else:
        explained = 0
    if wrong or in_transaction:
        producer_id = (wrong or in_transaction)[0]
        return Finding(
            file=SNAPSHOT_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="wrong-producer" if wrong else "missing-transaction",
            position=_entry_position(content, producer_id),
            detail=f"producer {producer_id}: {_entry_in_words(in_file, producer_id)}, "
            f"the log has {_entry_in_words(in_logs, producer_id)}",
            consequence="a broker that starts from it refuses what this producer sends next, or takes its open "
            "transaction for none, or one that has ended for open",
        )
    forgotten = len(missing) + len(came_back)
    reason, consequence = _why_safe(explained, forgotten, has_others=in_file.keys() != in_logs.keys())
    return Finding(
        file=SNAPSHOT_SUFFIX,
        verdict=Verdict.SAFE,
        reason=reason,
        position=_HEADER_BYTES,
        detail=f"{len(in_file)} producers, the log has {len(in_logs)}",
        consequence=consequence,
    )


def _why_safe(cleaned: int, forgotten: int, *, has_others: bool) -> tuple[str, str]:
    """The reason why a snapshot is right although it differs from the logs, and why this is harmless. `cleaned` counts
    producers whose last batches the cleaner has removed, `forgotten` those that a broker had forgotten.
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
    if has_others:  # none is missing, so the file has more
        return "earlier-producers", "it knows producers of before what is left of the log"
    return "other-order", "a broker reads entries in any order"


def _was_forgotten(entry: Mapping[str, int], in_log: Mapping[str, int] | None) -> bool:
    """Whether a broker had forgotten a producer, and the epoch of its coordinator, before the producer wrote again."""
    return in_log is not None and entry != in_log and entry == {**in_log, "coordinator_epoch": -1}


def _not_explained(
    wrong: list[int],
    in_transaction: list[int],
    in_file: Mapping[int, Mapping[str, int]],
    in_logs: Mapping[int, Mapping[str, int]],
    offset: int,
    cleaned: CleanedLogs,
) -> tuple[list[int], list[int], int]:
    """The wrong producers, and those whose transaction is missing, that the cleaner does not explain; and how many it
    does explain. It explains those whose last batch or marker it has removed since the file was written
    (`Cleaner.cleanInto`). It removes nothing behind the start of an open transaction
    (`LogCleanerManager.cleanableOffsets`), so a transaction that lies before a gap has ended.
    """
    last_offsets = np.array(
        [in_file.get(producer_id, _UNKNOWN_PRODUCER)["last_offset"] for producer_id in wrong], np.int64
    )
    are_cleaned = cleaned.are_cleaned(last_offsets)

    def removed_from(producer_id: int) -> int:
        """The offset from which on batches of a producer may have been removed."""
        entry = in_logs.get(producer_id, _UNKNOWN_PRODUCER)
        return max(entry["last_offset"], entry["current_transaction_first_offset"]) + 1

    def is_explained(producer_id: int, is_cleaned: bool) -> bool:
        entry, before = in_file.get(producer_id, _UNKNOWN_PRODUCER), in_logs.get(producer_id, _UNKNOWN_PRODUCER)
        if is_cleaned:
            return entry["last_offset"] > before["last_offset"]
        # A marker's own offset is not in the file.
        is_of_marker = entry["last_offset"] in (_NO_OFFSET, before["last_offset"]) and (
            entry["producer_epoch"] > before["producer_epoch"]
            or (entry["producer_epoch"] == before["producer_epoch"] and _may_have_ended(entry, before))
        )
        return is_of_marker and cleaned.any_between(removed_from(producer_id), offset)

    still_wrong = [
        producer_id
        for producer_id, is_cleaned in zip(wrong, are_cleaned, strict=True)
        if not is_explained(producer_id, is_cleaned)
    ]
    still_missing = [
        producer_id for producer_id in in_transaction if not cleaned.any_between(removed_from(producer_id), offset)
    ]
    explained = len(wrong) - len(still_wrong) + len(in_transaction) - len(still_missing)
    return still_wrong, still_missing, explained


def _may_have_ended(entry: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether a marker may have turned the state before into this entry."""
    return entry["current_transaction_first_offset"] < 0 and entry["coordinator_epoch"] >= before["coordinator_epoch"]


def _entries_by_producer(snapshot: bytes) -> dict[int, dict[str, int]]:
    names = layouts.SNAPSHOT_ENTRY.names or ()
    return {row[0]: dict(zip(names, row, strict=True)) for row in read_snapshot(snapshot).tolist()}


def _entry_in_words(entries: dict[int, dict[str, int]], producer_id: int) -> str:
    fields = entries.get(producer_id)
    if fields is None:
        return "none"
    return " ".join(f"{name}={value}" for name, value in fields.items() if name != "producer_id")


def _entry_position(snapshot: bytes, producer_id: int) -> int:
    rows = np.flatnonzero(read_snapshot(snapshot)["producer_id"] == producer_id)
    return _HEADER_BYTES + int(rows[0]) * layouts.SNAPSHOT_ENTRY.itemsize if len(rows) else len(snapshot)
