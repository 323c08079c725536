"""Checks whether records are what their batches say. Recovery and brokers read only headers and checksums, but
consumers read records.

The audit decompresses batches, counts their records and compares them with the headers. It keeps one batch in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.errors import MalformedRecordsError
from kidxlib.format.layouts import NO_SEQUENCE
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.java import incremented_sequence
from kidxlib.records import header_walk, reader
from kidxlib.records.batch import Batch
from kidxlib.records.columns import RecordsIn, records_in
from kidxlib.storage.log_bytes import LogBytes

_NO_PRODUCER: Final = -1


@dataclass(frozen=True, slots=True)
class _Oddity:
    """What is odd about a batch; the fields as in `Finding`."""

    verdict: Verdict
    reason: str
    position: int
    detail: str
    consequence: str


def audit_records(log: LogBytes) -> Finding:
    """The finding on the records of a log: the first of the worst ones. Its detail says how many more there are.

    Args:
        log: a segment's, up to the end of its last valid batch.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    worst: _Oddity | None = None
    more = 0
    for oddity in _oddities(log):
        if worst is None or (oddity.verdict, worst.verdict) == (Verdict.BROKEN, Verdict.SAFE):
            worst, more = oddity, 0
        elif (oddity.verdict, oddity.reason) == (worst.verdict, worst.reason):
            more += 1
    if worst is None:
        return Finding(file=LOG_SUFFIX, verdict=Verdict.WHOLE)
    return Finding(
        file=LOG_SUFFIX,
        verdict=worst.verdict,
        reason=worst.reason,
        position=worst.position,
        detail=worst.detail + (f", and {more:,} more batches like this" if more else ""),
        consequence=worst.consequence,
    )


def _oddities(log: LogBytes) -> Iterator[_Oddity]:
    sequences = _Sequences()
    last_offset = -1
    for batch in header_walk.batches(log):
        found = records_in(log, batch)
        if found is None or not found.complete:
            yield from _malformed(log, batch)
        if found is not None:
            yield from _of_offsets(batch, found, last_offset)
            yield from _of_timestamps(batch, found)
        yield from sequences.add(batch)
        last_offset = max(last_offset, batch.last_offset)


def _malformed(log: LogBytes, batch: Batch) -> Iterator[_Oddity]:
    """Why the records of a batch cannot be read; nothing where they can, one after the other."""
    try:
        for _ in reader.records(log, batch):
            pass
    except MalformedRecordsError as error:
        yield _Oddity(
            Verdict.BROKEN,
            "malformed-records",
            batch.position,
            f"found {error.found}, expected {error.expected}",
            f"a consumer that comes to offset {batch.last_offset} or one before it in this batch fails there",
        )


def _of_offsets(batch: Batch, found: RecordsIn, last_offset: int) -> Iterator[_Oddity]:
    offsets = found.offsets
    if len(offsets) and (
        offsets[0] <= last_offset
        or (offsets[1:] <= offsets[:-1]).any()
        or offsets[0] < found.base_offset
        or offsets[-1] > batch.last_offset
    ):
        yield _Oddity(
            Verdict.BROKEN,
            "offsets-not-increasing",
            batch.position,
            f"offsets {offsets[0]} to {offsets[-1]} in a batch of {found.base_offset} to {batch.last_offset}, after "
            f"offset {last_offset}",
            "consumers get records twice or not at all, and what is said of indexes does not hold for this log",
        )
    elif not batch.is_v2 and batch.last_offset != offsets[-1]:
        yield _Oddity(
            Verdict.SAFE,
            "last-offset-without-record",
            batch.position,
            f"the last record of a wrapper has offset {offsets[-1]}, the wrapper says {batch.last_offset}",
            "compaction leaves it so",
        )


def _of_timestamps(batch: Batch, found: RecordsIn) -> Iterator[_Oddity]:
    if not len(found.timestamps) or not found.complete:
        return
    largest = int(found.timestamps.max())
    if largest > batch.max_timestamp:
        yield _Oddity(
            Verdict.BROKEN,
            "records-newer-than-batch",
            batch.position,
            f"a record has timestamp {largest}, the batch says {batch.max_timestamp} at most",
            f"searches for times {batch.max_timestamp + 1} to {largest} pass it by, and retention may delete it too "
            "early",
        )
    elif largest < batch.max_timestamp:
        yield _Oddity(
            Verdict.SAFE,
            "batch-newer-than-records",
            batch.position,
            f"the records have timestamps up to {largest}, the batch says {batch.max_timestamp}",
            "searches look into it for nothing, and retention may keep it longer",
        )


class _Sequences:
    """The epoch and the last sequence number of each producer, as they were seen in this segment."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def add(self, batch: Batch) -> Iterator[_Oddity]:
        if batch.producer_id == _NO_PRODUCER or batch.base_sequence == NO_SEQUENCE:
            return
        epoch, last = self._last.get(batch.producer_id, (batch.producer_epoch, None))
        if last is not None and epoch == batch.producer_epoch:
            expected = incremented_sequence(last, 1)
            if batch.base_sequence != expected:
                yield _Oddity(
                    Verdict.SAFE,
                    "sequence-gap",
                    batch.position,
                    f"producer {batch.producer_id} goes on with sequence number {batch.base_sequence}, expected "
                    f"{expected}",
                    "compaction leaves such gaps; in a topic that is not compacted, records are missing or stand twice",
                )
        length = batch.last_offset - batch.offset_field
        self._last[batch.producer_id] = batch.producer_epoch, incremented_sequence(batch.base_sequence, length)
