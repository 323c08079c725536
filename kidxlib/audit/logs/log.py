"""Checks whether a log is whole, torn or broken: where its scan ends, and whether a broker could have written the valid
part.

Recovery and brokers read only headers and checksums, but consumers read records. So the audit decompresses batches,
counts their records and compares them with the headers, some megabytes of batches at a time; and it follows the
sequence numbers of producers, many batches at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict, worse
from kidxlib.audit.startup.simulation import Recovery
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.batch_header import MAGIC_AT, MAGIC_V2
from kidxlib.format.layouts import NO_SEQUENCE
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.index.offset import OffsetPosition
from kidxlib.records import batch_headers, header_search, reader
from kidxlib.records.arrow_columns import incremented_sequences
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.place_kernel import CONTENTS, fold_contents
from kidxlib.records.placed_records import RecordPlacer
from kidxlib.records.record_times import RecordTimes, read_record_times
from kidxlib.records.wanted_records import Wanted
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.past_end import PastEnd
from kidxlib.recovery.recover import RecoveredSegment
from kidxlib.storage.log_bytes import LogBytes

_Rows: TypeAlias = NDArray[np.void]

_NO_PRODUCER: Final = -1
_LAST_SEQUENCES: Final = np.dtype([("producer_id", "i8"), ("epoch", "i2"), ("sequence", "i4")])

_ALL_BATCHES: Final = Wanted()


@dataclass(frozen=True, slots=True)
class SequenceGaps:
    """Batches that do not go on where their producer's batch before them in the segment ended, in the same epoch.

    Attributes:
        numbers: the rows of these batches, of shape (n,), increasing.
        expected: the sequence numbers that they should begin with, of shape (n,).
    """

    numbers: NDArray[np.int64]
    expected: NDArray[np.int32]


class SequenceCheck:
    """Finds gaps in sequence numbers. It keeps the epoch and the last sequence number of each producer so far."""

    def __init__(self) -> None:
        self._last_by_producer = np.empty(0, _LAST_SEQUENCES)  # by producer id

    def gaps(self, batches: _Rows) -> SequenceGaps:
        """The gaps in the next batches of the log, rows of `BATCH`."""
        numbers = np.flatnonzero((batches["producer_id"] != _NO_PRODUCER) & (batches["base_sequence"] != NO_SEQUENCE))
        numbers = numbers[np.argsort(batches["producer_id"][numbers], kind="stable")]
        rows = batches[numbers]
        ends = _last_sequences_of(rows)
        is_first, is_last = _first_of_each_run(ends["producer_id"]), _first_of_each_run(ends["producer_id"][::-1])[::-1]
        before = np.roll(ends, 1)
        known = np.searchsorted(self._last_by_producer["producer_id"], ends["producer_id"])
        is_known = np.zeros(len(rows), np.bool_)
        within = known < len(self._last_by_producer)
        is_known[within] = self._last_by_producer["producer_id"][known[within]] == ends["producer_id"][within]
        before[is_first & is_known] = self._last_by_producer[known[is_first & is_known]]
        goes_on = (~is_first | is_known) & (before["epoch"] == ends["epoch"])
        expected = incremented_sequences(before["sequence"], np.ones(len(rows), np.int64))
        gaps = np.flatnonzero(goes_on & (rows["base_sequence"] != expected))
        gaps = gaps[np.argsort(numbers[gaps])]
        others = self._last_by_producer[~np.isin(self._last_by_producer["producer_id"], ends["producer_id"])]
        last = np.concatenate([others, ends[is_last]])
        self._last_by_producer = last[np.argsort(last["producer_id"])]
        return SequenceGaps(numbers[gaps], expected[gaps])


def _last_sequences_of(rows: _Rows) -> _Rows:
    ends = np.empty(len(rows), _LAST_SEQUENCES)
    ends["producer_id"], ends["epoch"] = rows["producer_id"], rows["producer_epoch"]
    ends["sequence"] = incremented_sequences(rows["base_sequence"], rows["last_offset"] - rows["offset_field"])
    return ends


def _first_of_each_run(values: NDArray[Any]) -> NDArray[np.bool_]:
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = values[1:] != values[:-1]
    return is_first


def contents_of(placer: RecordPlacer, table: BatchTable) -> NDArray[np.void]:
    """Count and measure the records of some batches: an array of `CONTENTS`, a row for each batch."""
    contents = np.zeros(len(table.rows), CONTENTS)
    contents["is_well_formed"] = 1
    positions = table.rows["position"]
    left = table
    while len(left.rows):
        try:
            for placed in placer.placed(left, _ALL_BATCHES):
                first = int(np.searchsorted(positions, placed.batches["position"][0]))
                fold_contents(placed.places, first, contents)
            break
        except MalformedRecordsError as error:
            number = int(np.searchsorted(positions, error.position))
            contents[number]["is_well_formed"] = 0
            left = table.after(number)
    return contents


@dataclass(frozen=True, slots=True)
class _Oddity:
    """Something odd about a batch, with the fields of `Finding`."""

    verdict: Verdict
    reason: str
    position: int
    detail: str
    consequence: str


def audit_records(log: LogBytes) -> Finding:
    """The finding on the records of a log up to the end of its last valid batch: the first of the worst oddities. Its
    detail says how many more there are.
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
    """The oddities in the order of the log. Compiled loops find the batches that may be odd; these are then read one by
    one.
    """
    sequences, placer = SequenceCheck(), RecordPlacer()
    walk, last_offset = BatchWalk(log, 0, Wanted()), -1
    for table in _readable_batches(walk):
        last_offsets = np.maximum.accumulate(np.concatenate([[last_offset], table.rows["last_offset"]]))
        before, last_offset = last_offsets[:-1], int(last_offsets[-1])
        is_odd = _may_be_odd(table.rows, contents_of(placer, table), before)
        gaps = sequences.gaps(table.rows)
        expected = dict(zip(gaps.numbers.tolist(), gaps.expected.tolist(), strict=True))
        is_odd[gaps.numbers] = True
        for number in np.flatnonzero(is_odd).tolist():
            batch = next(batch_headers.batches(log, int(table.rows["position"][number])))
            yield from _oddities_in_records(log, batch, int(before[number]))
            if number in expected:
                yield _sequence_gap(batch, expected[number])


def _readable_batches(walk: BatchWalk) -> Iterator[BatchTable]:
    """The batches up to one with a negative magic, which the audit of headers reports: nothing can be read after it."""
    with suppress(MalformedRecordsError):
        yield from walk.tables()


def _may_be_odd(batches: _Rows, contents: _Rows, before: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which batches may be odd; `_oddities_in_records` finds nothing in the others. `before` is the largest last offset
    of all batches before each batch.
    """
    first, last = contents["first_offset"], contents["last_offset"]
    is_odd = (
        (contents["goes_back"] != 0)
        | (first <= before)
        | (last != batches["last_offset"]) & ((last > batches["last_offset"]) | (batches["magic"] < MAGIC_V2))
        | (first < batches["offset_field"]) & (batches["magic"] >= MAGIC_V2)
        | (contents["largest_timestamp"] != batches["max_timestamp"])
    )
    may_be_odd: NDArray[np.bool_] = is_odd & (contents["records"] > 0) | (contents["is_well_formed"] == 0)
    return may_be_odd


def _oddities_in_records(log: LogBytes, batch: Batch, last_offset: int) -> Iterator[_Oddity]:
    """The oddities in the records of a batch, after batches whose largest last offset is `last_offset`."""
    content = read_record_times(log, batch)
    if content is None or not content.complete:
        yield from _malformed_records(log, batch)
    if content is not None:
        yield from _oddities_in_offsets(batch, content, last_offset)
        yield from _oddities_in_timestamps(batch, content)


def _malformed_records(log: LogBytes, batch: Batch) -> Iterator[_Oddity]:
    """Why the records of a batch cannot be read one after the other; nothing if they can."""
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


def _oddities_in_offsets(batch: Batch, content: RecordTimes, last_offset: int) -> Iterator[_Oddity]:
    offsets = content.offsets
    if len(offsets) and (
        offsets[0] <= last_offset
        or (offsets[1:] <= offsets[:-1]).any()
        or offsets[0] < content.base_offset
        or offsets[-1] > batch.last_offset
    ):
        yield _Oddity(
            Verdict.BROKEN,
            "offsets-not-increasing",
            batch.position,
            f"offsets {offsets[0]} to {offsets[-1]} in a batch of {content.base_offset} to {batch.last_offset}, after "
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


def _oddities_in_timestamps(batch: Batch, content: RecordTimes) -> Iterator[_Oddity]:
    if not len(content.timestamps) or not content.complete:
        return
    largest = int(content.timestamps.max())
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


def audit_log(
    log: LogBytes, recovered: RecoveredSegment, past: PastEnd, base_offset: int, *, active: bool, deep: bool
) -> Finding:
    """Judge a log by itself. `log` reaches to the end of its last valid batch, `past` is what follows in the file. Only
    the end of the partition's last segment, the `active` one, may be torn. `deep` looks at the records, too. The fate
    of the finding is not set yet.
    """
    finding = Finding(file=LOG_SUFFIX, verdict=Verdict.WHOLE)
    for other in (*_finding_on_end(recovered, past, active), *_finding_on_odd_batch(log, recovered, base_offset)):
        finding = worse(finding, other)
    if deep and recovered.end.status is not Status.QUARANTINED:
        finding = worse(finding, audit_records(log))
    return finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedLog:
    """A log that was judged by itself.

    Attributes:
        finding: None if the log was deleted since the listing.
        recovery: None if the log could not be read.
        index_end: the last entry of its `.index` on disk, before preallocated room; None without an entry.
    """

    base_offset: int
    finding: Finding | None
    recovery: Recovery | None
    index_end: OffsetPosition | None


def _finding_on_end(recovered: RecoveredSegment, past: PastEnd, active: bool) -> Iterator[Finding]:
    end = recovered.end
    if end.reason is None:
        return
    torn = past.unfinished and active
    more = "; only the last segment of a partition may end so" if past.unfinished and not active else ""
    yield Finding(
        file=LOG_SUFFIX,
        verdict=Verdict.TORN if torn else Verdict.BROKEN,
        reason=end.reason,
        position=end.position,
        detail=f"{end.detail}{more}",
    )


def _finding_on_odd_batch(log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> Iterator[Finding]:
    """The finding on the first batch that a broker would not write at its place, but that recovery accepts."""
    position = recovered.odd_position
    if position is None:
        return
    magic = int.from_bytes(log.read(position + MAGIC_AT, 1), signed=True)
    if not 0 <= magic <= layouts.MAGIC_V2:
        yield Finding(
            file=LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="unknown-magic",
            position=position,
            detail=f"magic {magic}, expected 0, 1 or 2",
            consequence="a broker does not look at it, and consumers refuse the batch",
        )
        return
    batch = next(batches(log, position))
    before = max(int(header_search.measure(log, np.array([position]))["last_offset_before"][0]), base_offset - 1)
    yield Finding(
        file=LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason="offsets-not-increasing",
        position=position,
        detail=f"a batch of offsets {batch.offset_field} to {batch.last_offset}, expected offsets above {before}",
        consequence="consumers get records twice or not at all, and what is said of indexes does not hold for this log",
    )
