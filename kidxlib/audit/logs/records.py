"""Checks whether records are what their batches say. Recovery and brokers read only headers and checksums, but
consumers read records.

The audit decompresses batches, counts their records and compares them with the headers: some megabytes of batches at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.logs.sequences import SequenceCheck
from kidxlib.errors import MalformedRecordsError
from kidxlib.format.batch_header import MAGIC_V2
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.records import batch_headers, reader
from kidxlib.records.batch_headers import Batch
from kidxlib.records.bulk.batch_table import BatchTable, BatchWalk
from kidxlib.records.bulk.contents import contents_of
from kidxlib.records.bulk.decode import RecordPlacer
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.records.columns import RecordsIn, records_in
from kidxlib.storage.log_bytes import LogBytes

_Rows: TypeAlias = NDArray[np.void]


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
    """What is odd, in the order of the log. Compiled loops find the batches that may be; each of these is then read by
    itself.
    """
    sequences, placer = SequenceCheck(), RecordPlacer()
    walk, last_offset = BatchWalk(log, 0, Wanted()), -1
    for table in _tables(walk):
        last_offsets = np.maximum.accumulate(np.concatenate([[last_offset], table.rows["last_offset"]]))
        before, last_offset = last_offsets[:-1], int(last_offsets[-1])
        is_odd = _may_be_odd(table.rows, contents_of(placer, table), before)
        gaps = sequences.gaps(table.rows)
        expected = dict(zip(gaps.numbers.tolist(), gaps.expected.tolist(), strict=True))
        is_odd[gaps.numbers] = True
        for number in np.flatnonzero(is_odd).tolist():
            batch = next(batch_headers.batches(log, int(table.rows["position"][number])))
            yield from _of_records(log, batch, int(before[number]))
            if number in expected:
                yield _sequence_gap(batch, expected[number])


def _tables(walk: BatchWalk) -> Iterator[BatchTable]:
    """The batches up to one that nobody can read on from: one with a negative magic, as the headers' audit tells."""
    with suppress(MalformedRecordsError):
        yield from walk.tables()


def _may_be_odd(batches: _Rows, contents: _Rows, before: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which batches `_of_records` may find something of; of the others it finds nothing.

    Args:
        batches: of dtype `BATCH`.
        contents: of dtype `CONTENTS`.
        before: the largest of all last offsets before each.
    """
    first, last = contents["first_offset"], contents["last_offset"]
    is_odd = (
        (contents["goes_back"] != 0)
        | (first <= before)
        | (last != batches["last_offset"]) & ((last > batches["last_offset"]) | (batches["magic"] < MAGIC_V2))
        | (first < batches["offset_field"]) & (batches["magic"] >= MAGIC_V2)
        | (contents["largest_timestamp"] != batches["max_timestamp"])
    )
    found: NDArray[np.bool_] = is_odd & (contents["records"] > 0) | (contents["is_well_formed"] == 0)
    return found


def _of_records(log: LogBytes, batch: Batch, last_offset: int) -> Iterator[_Oddity]:
    """What is odd about the records of a batch.

    Args:
        last_offset: the largest of all batches before it.
    """
    found = records_in(log, batch)
    if found is None or not found.complete:
        yield from _malformed(log, batch)
    if found is not None:
        yield from _of_offsets(batch, found, last_offset)
        yield from _of_timestamps(batch, found)


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


def _sequence_gap(batch: Batch, expected: int) -> _Oddity:
    return _Oddity(
        Verdict.SAFE,
        "sequence-gap",
        batch.position,
        f"producer {batch.producer_id} goes on with sequence number {batch.base_sequence}, expected {expected}",
        "compaction leaves such gaps; in a topic that is not compacted, records are missing or stand twice",
    )
