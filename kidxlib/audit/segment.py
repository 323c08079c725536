"""Reads a segment's log, checks whether it is whole, torn or broken, and checks its offset and time index against what
recovery would write. Nothing is written. Segments may be read in any order and on any executor, as in a build.

A log is judged by where its scan ends, and by whether a broker could have written the valid part. Recovery and brokers
read only headers and checksums, but consumers read records. So a deep audit decompresses batches, counts their records
and compares them with the headers, some megabytes of batches at a time; and it follows the sequence numbers of
producers, many batches at once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import IN_USE, Finding, Verdict, worse
from kidxlib.audit.index_files.index_file import finding_on_unreadable_file, read_index
from kidxlib.audit.index_files.sparse_indexes import audit_offset_index, audit_time_index
from kidxlib.audit.startup.simulation import SegmentRecovery
from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format import segment_files
from kidxlib.format.layouts import MAGIC_AT, MAGIC_V2, NO_SEQUENCE, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.index.offset import OffsetIndex, OffsetPosition, last_filled_entry
from kidxlib.indexing.plan import ScanTask
from kidxlib.indexing.segments import recover_task
from kidxlib.records import header_search, reader
from kidxlib.records.arrow_columns import incremented_sequences
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.place_kernel import CONTENTS, summarize_placed_records
from kidxlib.records.placed_records import RecordPlacer
from kidxlib.records.record_times import RecordTimes, read_record_times
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.outcome import ScanEnd, Status, end_of_unread_log
from kidxlib.recovery.partition_fold import ScannedSegment
from kidxlib.recovery.past_end import PastEnd
from kidxlib.recovery.recover import RecoveredSegment, recovered_of, scan_logs
from kidxlib.storage.location import FileVersion, location, version_at
from kidxlib.storage.log_bytes import Access, LogBytes, WholeLog
from kidxlib.storage.opened_log import SMALL_BYTES, OpenedLog, OpenedTogether, opened_log
from kidxlib.storage.small_files import filled_bytes
from kidxlib.storage.store.s3 import is_object

#: How many times a log is read at most if a broker replaces it in the meantime.
_ATTEMPTS: Final = 3

_NO_PRODUCER: Final = -1
_LAST_SEQUENCES: Final = np.dtype([("producer_id", "i8"), ("epoch", "i2"), ("sequence", "i4")])

_ALL_BATCHES: Final = WantedRecords()
_NOT_INCREASING: Final = (
    "consumers get records twice or not at all, and what is said of indexes does not hold for this log"
)

_Rows: TypeAlias = NDArray[np.void]
#: What `read_index` gives.
_Index: TypeAlias = NDArray[np.uint8] | OSError | None


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
    recovery: SegmentRecovery | None
    index_end: OffsetPosition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    """The results of reading a segment.

    Attributes:
        findings: on its offset and time index.
        log: its log, judged by itself.
        end: where the scan ended and why, or why the log could not be read.
    """

    scanned: ScannedSegment
    findings: tuple[Finding, ...]
    log: AuditedLog
    end: ScanEnd

    @property
    def base_offset(self) -> int:
        return self.scanned.base_offset

    def for_partition(self) -> SegmentForPartition:
        """What the audit of a partition needs of the segment."""
        broken = {finding.file: finding.reason for finding in self.findings if finding.verdict is Verdict.BROKEN}
        return SegmentForPartition(scanned=self.scanned, log=self.log, broken=broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentForPartition:
    """What the audit of a partition needs of a segment: its log, judged by itself, and why its offset index or time
    index is broken, by suffix; only broken ones are in `broken`.
    """

    scanned: ScannedSegment
    log: AuditedLog
    broken: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """A log that was read together with others, and its scan."""

    log: LogBytes
    version: FileVersion
    recovered: RecoveredSegment


def scan_small_logs(tasks: Sequence[ScanTask], use_mmap: bool, opened: OpenedTogether) -> Iterator[ScannedLog | None]:
    """Read small logs in one pass, for `audit_segment`; their bytes are valid as long as they are `opened`. None for a
    log that is not small, is in an object store or cannot be read: `audit_segment` reads it, and says why it cannot.
    """
    positions: list[int | None] = []
    for task in tasks:
        position = None
        if task.log_bytes <= SMALL_BYTES and not is_object(task.segment.path):
            with contextlib.suppress(LogChangedError, OSError):
                position = opened.open(task.segment.path, use_mmap=use_mmap and not task.segment.active)
        positions.append(position)
    read = [_with_checksums(task) for task, position in zip(tasks, positions, strict=True) if position is not None]
    scans = scan_logs(opened.logs, [task.segment.base_offset for task in read], [task.options for task in read])
    for position in positions:
        if position is None:
            yield None
        else:
            yield ScannedLog(opened.logs[position], opened.versions[position], recovered_of(scans, position))


def _with_checksums(task: ScanTask) -> ScanTask:
    """Checksums are checked, even where builds do not check them."""
    return replace(task, options=replace(task.options, verify_crc=True))


def audit_segment(
    task: ScanTask, use_mmap: bool, *, deep: bool, clean_shutdown: bool, read: ScannedLog | None = None
) -> AuditedSegment:
    """Read a segment's log, and check its offset and time index against it. `use_mmap` is as for
    `kidxlib.indexing.segments.build_segments`; `deep` looks at the records, too. A log that was `read` is not read
    again, unless a broker has written to it meanwhile.
    """
    task, use_mmap = _with_checksums(task), use_mmap and not task.segment.active
    for attempt in range(_ATTEMPTS):
        try:
            if read is not None and (judged := _audit_read_log(task, read, use_mmap, deep, clean_shutdown)) is not None:
                return judged
            return _audit_opened_log(task, use_mmap, deep=deep, clean_shutdown=clean_shutdown)
        except (LogChangedError, OSError) as error:
            if isinstance(error, LogChangedError) and attempt + 1 < _ATTEMPTS:
                continue  # it was compacted or truncated in the meantime: read the new log
            end = end_of_unread_log(task.segment.path, error)
            break
    # The log was deleted since the listing, together with its index and auxiliary files, as retention does.
    unread = None if end.status is Status.GONE else _finding_on_unreadable_log(end)
    base_offset = task.segment.base_offset
    return AuditedSegment(
        scanned=ScannedSegment.of(base_offset, None),
        findings=(),
        log=AuditedLog(base_offset=base_offset, finding=unread, recovery=None, index_end=None),
        end=end,
    )


def _audit_opened_log(task: ScanTask, use_mmap: bool, *, deep: bool, clean_shutdown: bool) -> AuditedSegment:
    segment, base_offset = task.segment, task.segment.base_offset
    with opened_log(segment.path) as opened:
        log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
        recovered = recover_task(log, task)
        past = SegmentRecovery.of(log, recovered, base_offset).past
        files = _index_files(task, use_mmap)
        in_use = _is_written_to(opened, segment.path, recovered.end)
        if in_use and (past.unfinished or recovered.end.reason is None):
            # The append was still going on when it was read, so its end is not torn.
            log = opened.log(recovered.end.position, use_mmap=use_mmap)
            recovered = replace(recovered, end=ScanEnd(Status.OK, None, recovered.end.position, None))
        if in_use:
            in_log = recovered.facts.next_offset - base_offset
            offset_index, time_index = files
            files = (
                _entries_up_to(offset_index, OFFSET_INDEX_ENTRY, "position", recovered.end.position),
                _entries_up_to(time_index, TIME_INDEX_ENTRY, "relative_offset", in_log),
            )
        valid = opened.log(recovered.end.position, use_mmap=use_mmap)
        judged = _judge_log(task, log, valid, recovered, files, deep=deep, clean_shutdown=clean_shutdown)
        if _is_written_to(opened, segment.path, recovered.end) or in_use:
            on_log = _finding_on_log_in_use(opened.version.size, recovered.end.position)
            if judged.log.finding is not None:
                on_log = worse(on_log, judged.log.finding)
            judged = replace(judged, log=replace(judged.log, finding=on_log))
    return judged


def _audit_read_log(
    task: ScanTask, read: ScannedLog, use_mmap: bool, deep: bool, clean_shutdown: bool
) -> AuditedSegment | None:
    """The audit of a segment whose log was read; None where it is no longer what it was."""
    files = _index_files(task, use_mmap)
    valid = WholeLog(read.log.window(0)[1][: read.recovered.end.position])
    judged = _judge_log(task, read.log, valid, read.recovered, files, deep=deep, clean_shutdown=clean_shutdown)
    return judged if version_at(location(task.segment.path)) == read.version else None


def _judge_log(
    task: ScanTask,
    log: LogBytes,
    valid: LogBytes,
    recovered: RecoveredSegment,
    files: tuple[_Index, _Index],
    *,
    deep: bool,
    clean_shutdown: bool,
) -> AuditedSegment:
    """Judge a log that was scanned, and its index files. `valid` is the log up to where the scan ended."""
    segment, base_offset = task.segment, task.segment.base_offset
    findings, index_end = _audit_indexes(valid, recovered, task, files, clean_shutdown)
    recovery = SegmentRecovery.of(log, recovered, base_offset)
    on_log = audit_log(valid, recovered, recovery.past, base_offset, active=segment.active, deep=deep)
    return AuditedSegment(
        scanned=ScannedSegment.of(base_offset, recovered),
        findings=tuple(findings),
        log=AuditedLog(base_offset=base_offset, finding=on_log, recovery=recovery, index_end=index_end),
        end=recovered.end,
    )


def _is_written_to(opened: OpenedLog, path: str, end: ScanEnd) -> bool:
    is_appended = False
    try:
        opened.ensure_unchanged()
    except LogChangedError:
        now, before = opened.status, opened.version.size
        # A preallocated log does not grow when it is written to.
        if now is None or now.st_size < before or (now.st_size == before and end.position == before):
            raise
        is_appended = True
    if opened.status is not None and os.stat(path).st_ino != opened.version.inode:
        raise LogChangedError("another file has taken its place since it was opened: compacted, or put there")
    return is_appended


def _finding_on_log_in_use(size: int, judged: int) -> Finding:
    more = "" if judged == size else f", of which an append that was on its way began at byte {judged:,}"
    return Finding(
        file=LOG_SUFFIX,
        verdict=Verdict.SAFE,
        reason=IN_USE,
        position=judged,
        detail=f"it had {size:,} bytes when it was opened{more}, and was written to since: what follows is not judged",
        consequence="a broker is running; all before that is judged",
    )


def _entries_up_to(content: _Index, layout: np.dtype[np.void], field: str, end: int) -> _Index:
    """An index of a log in use, without the entries of batches that were appended since the log was opened."""
    if content is None or isinstance(content, OSError):
        return content
    filled = filled_bytes(content, layout.itemsize) // layout.itemsize * layout.itemsize
    later = np.flatnonzero(np.frombuffer(content.data, layout, filled // layout.itemsize)[field] >= end)
    if not len(later):
        return content
    kept = content.copy()
    kept[later[0] * layout.itemsize : filled] = 0
    return kept


def _index_files(task: ScanTask, use_mmap: bool) -> tuple[_Index, _Index]:
    """The offset index and the time index."""
    begin = f"{task.index_directory}/{segment_files.segment_file(task.segment.base_offset, '')}"
    return (
        read_index(f"{begin}{segment_files.OFFSET_INDEX_SUFFIX}", use_mmap),
        read_index(f"{begin}{segment_files.TIME_INDEX_SUFFIX}", use_mmap),
    )


def _audit_indexes(
    log: LogBytes,
    recovered: RecoveredSegment,
    task: ScanTask,
    files: tuple[_Index, _Index],
    clean_shutdown: bool,
) -> tuple[list[Finding], OffsetPosition | None]:
    """The findings on both indexes, and the last entry of the offset index."""
    if recovered.end.status is Status.QUARANTINED:
        suffixes = segment_files.OFFSET_INDEX_SUFFIX, segment_files.TIME_INDEX_SUFFIX
        return [_finding_on_quarantined_index(suffix, recovered.end) for suffix in suffixes], None
    segment, findings, index_end = task.segment, [], None
    offset_index, time_index = files
    right = OffsetIndex.from_bytes(recovered.offset_index, segment.base_offset)
    if isinstance(offset_index, OSError):
        findings.append(finding_on_unreadable_file(segment_files.OFFSET_INDEX_SUFFIX, offset_index))
    else:
        finding = audit_offset_index(log, recovered, segment.base_offset, offset_index, active=segment.active)
        findings.append(finding)
        if offset_index is not None:
            index_end = last_filled_entry(offset_index, segment.base_offset)
            if finding.verdict is not Verdict.BROKEN:
                right = OffsetIndex.from_bytes(offset_index, segment.base_offset)
    if isinstance(time_index, OSError):
        findings.append(finding_on_unreadable_file(segment_files.TIME_INDEX_SUFFIX, time_index))
    else:
        findings.append(
            audit_time_index(
                log,
                recovered,
                right,
                time_index,
                active=segment.active,
                clean_shutdown=clean_shutdown,
                rebuilt=offset_index is None,
            )
        )
    return findings, index_end


def _finding_on_unreadable_log(end: ScanEnd) -> Finding:
    """The finding has the words of a build, so that an acceptance holds for both findings."""
    return Finding(
        file=LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason=end.reason,
        position=end.position,
        detail=end.detail,
        consequence="its index and auxiliary files were not checked",
    )


def _finding_on_quarantined_index(suffix: str, end: ScanEnd) -> Finding:
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason=f"log-{end.reason}",
        detail=f"byte {end.position} of the log: {end.detail}",
        consequence="a broker that has to recover the segment fails",
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
    if not 0 <= magic <= MAGIC_V2:
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
        consequence=_NOT_INCREASING,
    )


def audit_records(log: LogBytes) -> Finding:
    """The finding on the records of a log up to the end of its last valid batch: the first of the worst oddities. Its
    detail says how many more there are.
    """
    worst: Finding | None = None
    more = 0
    for oddity in _oddities(log):
        if worst is None or (oddity.verdict, worst.verdict) == (Verdict.BROKEN, Verdict.SAFE):
            worst, more = oddity, 0
        elif (oddity.verdict, oddity.reason) == (worst.verdict, worst.reason):
            more += 1
    if worst is None:
        return Finding(file=LOG_SUFFIX, verdict=Verdict.WHOLE)
    return replace(worst, detail=f"{worst.detail}, and {more:,} more batches like this") if more else worst


def _oddities(log: LogBytes) -> Iterator[Finding]:
    """What is odd about batches, in the order of the log. Compiled loops find the batches that may be odd; these are
    then read one by one.
    """
    sequences, placer = SequenceAudit(), RecordPlacer()
    walk, last_offset = BatchWalk(log, 0, _ALL_BATCHES), -1
    for table in _readable_batches(walk):
        last_offsets = np.maximum.accumulate(np.concatenate([[last_offset], table.rows["last_offset"]]))
        before, last_offset = last_offsets[:-1], int(last_offsets[-1])
        is_odd = _may_be_odd(table.rows, _contents_of(placer, table), before)
        expected = sequences.gaps(table.rows)
        is_odd[list(expected)] = True
        for number in np.flatnonzero(is_odd).tolist():
            batch = next(batches(log, int(table.rows["position"][number])))
            yield from _oddities_in_records(log, batch, int(before[number]))
            if number in expected:
                yield _sequence_gap(batch, expected[number])


def _readable_batches(walk: BatchWalk) -> Iterator[BatchTable]:
    """The batches up to one with a negative magic, which the audit of headers reports: nothing can be read after it."""
    with contextlib.suppress(MalformedRecordsError):
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


def _contents_of(placer: RecordPlacer, table: BatchTable) -> NDArray[np.void]:
    """Count and measure the records of some batches: an array of `CONTENTS`, a row for each batch."""
    contents = np.zeros(len(table.rows), CONTENTS)
    contents["is_well_formed"] = 1
    positions = table.rows["position"]
    left = table
    while len(left.rows):
        try:
            for placed in placer.placed(left, _ALL_BATCHES):
                first = int(np.searchsorted(positions, placed.batches["position"][0]))
                summarize_placed_records(placed.places, first, contents)
            break
        except MalformedRecordsError as error:
            number = int(np.searchsorted(positions, error.position))
            contents[number]["is_well_formed"] = 0
            left = table.after(number)
    return contents


def _oddities_in_records(log: LogBytes, batch: BatchHeader, last_offset: int) -> Iterator[Finding]:
    """The oddities in the records of a batch, after batches whose largest last offset is `last_offset`."""
    content = read_record_times(log, batch)
    if content is None or not content.complete:
        yield from _malformed_records(log, batch)
    if content is not None:
        yield from _oddities_in_offsets(batch, content, last_offset)
        yield from _oddities_in_timestamps(batch, content)


def _malformed_records(log: LogBytes, batch: BatchHeader) -> Iterator[Finding]:
    """Why the records of a batch cannot be read one after the other; nothing if they can."""
    try:
        for _ in reader.records(log, batch):
            pass
    except MalformedRecordsError as error:
        yield _oddity(
            batch,
            Verdict.BROKEN,
            "malformed-records",
            f"found {error.found}, expected {error.expected}",
            f"a consumer that comes to offset {batch.last_offset} or one before it in this batch fails there",
        )


def _oddities_in_offsets(batch: BatchHeader, content: RecordTimes, last_offset: int) -> Iterator[Finding]:
    offsets = content.offsets
    if len(offsets) and (
        offsets[0] <= last_offset
        or (offsets[1:] <= offsets[:-1]).any()
        or offsets[0] < content.base_offset
        or offsets[-1] > batch.last_offset
    ):
        yield _oddity(
            batch,
            Verdict.BROKEN,
            "offsets-not-increasing",
            f"offsets {offsets[0]} to {offsets[-1]} in a batch of {content.base_offset} to {batch.last_offset}, "
            f"after offset {last_offset}",
            _NOT_INCREASING,
        )
    elif not batch.is_v2 and batch.last_offset != offsets[-1]:
        yield _oddity(
            batch,
            Verdict.SAFE,
            "last-offset-without-record",
            f"the last record of a wrapper has offset {offsets[-1]}, the wrapper says {batch.last_offset}",
            "compaction leaves it so",
        )


def _oddities_in_timestamps(batch: BatchHeader, content: RecordTimes) -> Iterator[Finding]:
    if not len(content.timestamps) or not content.complete:
        return
    largest = int(content.timestamps.max())
    if largest > batch.max_timestamp:
        yield _oddity(
            batch,
            Verdict.BROKEN,
            "records-newer-than-batch",
            f"a record has timestamp {largest}, the batch says {batch.max_timestamp} at most",
            f"searches for times {batch.max_timestamp + 1} to {largest} pass it by, and retention may "
            "delete it too early",
        )
    elif largest < batch.max_timestamp:
        yield _oddity(
            batch,
            Verdict.SAFE,
            "batch-newer-than-records",
            f"the records have timestamps up to {largest}, the batch says {batch.max_timestamp}",
            "searches look into it for nothing, and retention may keep it longer",
        )


def _oddity(batch: BatchHeader, verdict: Verdict, reason: str, detail: str, consequence: str) -> Finding:
    at = batch.position
    return Finding(file=LOG_SUFFIX, verdict=verdict, reason=reason, position=at, detail=detail, consequence=consequence)


def _sequence_gap(batch: BatchHeader, expected: int) -> Finding:
    return _oddity(
        batch,
        Verdict.SAFE,
        "sequence-gap",
        f"producer {batch.producer_id} goes on with sequence number {batch.base_sequence}, expected {expected}",
        "compaction leaves such gaps; in a topic that is not compacted, records are missing or stand twice",
    )


class SequenceAudit:
    """Finds gaps in the sequence numbers of a segment's log. It keeps the epoch and the last sequence number of each
    producer so far.
    """

    def __init__(self) -> None:
        self._last_by_producer = np.empty(0, _LAST_SEQUENCES)  # by producer id

    def gaps(self, batches: _Rows) -> dict[int, int]:
        """The gaps in sequence numbers within a segment's log, in its next batches, rows of `BATCH`: the numbers of
        batches that do not go on where their producer's batch before them in the segment ended, in the same epoch, in
        order; each with the sequence number that it should begin with.
        """
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
        return dict(zip(numbers[gaps].tolist(), expected[gaps].tolist(), strict=True))


def _last_sequences_of(rows: _Rows) -> _Rows:
    ends = np.empty(len(rows), _LAST_SEQUENCES)
    ends["producer_id"], ends["epoch"] = rows["producer_id"], rows["producer_epoch"]
    ends["sequence"] = incremented_sequences(rows["base_sequence"], rows["last_offset"] - rows["offset_field"])
    return ends


def _first_of_each_run(values: NDArray[Any]) -> NDArray[np.bool_]:
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = values[1:] != values[:-1]
    return is_first
