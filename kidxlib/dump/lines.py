"""The items of a dump as lines of Kafka's `kafka-dump-log`."""

from __future__ import annotations

from typing import Final

from kidxlib.dump.entries import AbortedEntry, CheckpointEntry, Empty, OffsetEntry, ProducerEntry, Sane, TimeEntry
from kidxlib.dump.findings import (
    DumpFinding,
    OffsetGap,
    OffsetMismatch,
    OffsetNotFound,
    TimestampMismatch,
    TimestampOutOfOrder,
)
from kidxlib.dump.items import DumpedBatch, DumpedRecord, DumpItem, InvalidBytes, KRaftSnapshotStart, LogStart
from kidxlib.dump.record_lines import batch_line, optional, record_line
from kidxlib.dump.value_formats import RecordFormat


def as_line(item: DumpItem, file: str, record_format: RecordFormat) -> str:
    """An item, other than a finding, in the words of `DumpLogSegments`.

    Args:
        file: its path, as the user gave it.
    """
    match item:
        case DumpedRecord():
            return record_line(item, record_format)
        case DumpedBatch():
            return batch_line(item)
        case ProducerEntry():
            return _producer_line(item)
        case KRaftSnapshotStart(None):
            return "KRaft bootstrap snapshot"
        case KRaftSnapshotStart():
            return f"Snapshot end offset: {item.end_offset}, epoch: {item.epoch}"
        case InvalidBytes():
            return f"Found {item.bytes} invalid bytes at the end of {file.rpartition('/')[2]}"
        case Empty():
            return f"{file} is empty."
        case Sane():
            return f"{file} passed sanity check."
        case _:
            return " ".join(f"{word} {getattr(item, field)}" for word, field in _WORDS[type(item)].items())


#: Of items that are all numbers: Kafka's word for each field.
_WORDS: Final = {
    LogStart: {"Log starting offset:": "base_offset"},
    OffsetEntry: {"offset:": "offset", "position:": "position"},
    TimeEntry: {"timestamp:": "timestamp_ms", "offset:": "offset"},
    AbortedEntry: {
        "version:": "version",
        "producerId:": "producer_id",
        "firstOffset:": "first_offset",
        "lastOffset:": "last_offset",
        "lastStableOffset:": "last_stable_offset",
    },
    CheckpointEntry: {"epoch:": "epoch", "startOffset:": "start_offset"},
}


def _producer_line(entry: ProducerEntry) -> str:
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {optional(entry.current_transaction_first_offset)} "
        f"lastTimestamp: {entry.last_timestamp_ms}"
    )
    if entry.last_offset is None:
        return line
    return (
        f"{line} firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.last_timestamp_ms}"
    )


def finding_lines(finding: DumpFinding, file: str) -> tuple[str, str]:
    """The line that Kafka puts above all findings of this sort in a file, and that of this one.

    Args:
        file: its absolute path.
    """
    match finding:
        case OffsetGap():
            return f"Non-consecutive offsets in {file}", f"  {finding.offset} is followed by {finding.next_offset}"
        case OffsetMismatch():
            return (
                f"Mismatches in :{file}",
                f"  Index offset: {finding.index_offset}, log offset: {finding.log_offset}",
            )
        case OffsetNotFound():
            found = -1 if finding.log_offset is None else finding.log_offset
            return (
                f"The following indexed offsets are not found in :{file}",
                f"Indexed offset: {finding.index_offset}, found log offset: {found}",
            )
        case TimestampMismatch():
            return (
                f"Found timestamp mismatch in :{file}",
                f"  Index timestamp: {finding.index_timestamp_ms}, log timestamp: {finding.log_timestamp_ms}",
            )
        case TimestampOutOfOrder():
            return (
                f"Found out of order timestamp in :{file}",
                f"  Index timestamp: {finding.index_timestamp_ms}, "
                f"Previously indexed timestamp: {finding.previous_timestamp_ms}",
            )
