"""Answers many questions for an offset or a time, one partition at a time.

The answers are those of `Log` and `LogSegment`, and so of a broker; but index lookups and walks over batch headers are
made for many targets at once, and a batch is decompressed once for all targets in it. A file's error is not raised: it
becomes the answer's note. Begin at `Seeker`.
"""

from __future__ import annotations

from os import PathLike
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kidxlib.errors import MalformedRecordsError, UsageError, describe_error
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_3
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.log.log import Log, LogDirEvidence
from kidxlib.log.segment import EARLIEST_PENDING_UPLOAD, LATEST, MAX_TIMESTAMP, LogSegment
from kidxlib.lookup.answers import (
    FILE_ERRORS,
    MARKER,
    NO_RECORDS,
    OFFSET,
    Answers,
    Longs,
    name_in_notes,
    note_on_not_found,
    note_past_end,
    remark_on_end,
    remark_on_gap,
    remark_on_hidden,
    remark_on_lost_start,
    remark_on_overlap,
    remark_on_start,
    remark_on_times,
    rows_by_key,
    unanswered,
)
from kidxlib.lookup.checked_segment import CheckedSegment
from kidxlib.lookup.checkpoint_evidence import checkpointed_high_watermark, evidence_of_checkpoints
from kidxlib.records import batch_headers, reader
from kidxlib.records.header_search import SearchOutcome, new_walks, step_to_offsets, step_to_timestamps, walk
from kidxlib.records.record_times import read_record_times
from kidxlib.storage.location import as_location
from kidxlib.text.times import show_ms

_LONG_MAX: Final = 2**63 - 1

_LEAST: Final = -(2**63)


class Seeker:
    """Answers questions to one partition.

    n questions have an answer of n rows, in the order of the questions, with these columns:

    - `found`: bool; whether there is such a batch or record.
    - `answered`: bool; whether `found` is certain. It is false if a file that the answer depends on is damaged,
      missing, or not the recorded one.
    - `segment_base_offset`, `position`, `batch_base_offset`: int64; the segment, the byte of its log where the batch
      starts, the batch's first offset.
    - `offset`, `timestamp`: int64; the record that was found for a time, null for an offset.
    - `leader_epoch`: int32; of the batch, null if it has none.
    - `bytes_read`: int64; the bytes of logs that this question read.
    - `note`: string; why nothing was found, or which problem was met.
    - `file_error`: bool; whether the note is about a file that is not as it should be.

    Attributes:
        log: its segments.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._base_offsets = np.array([segment.base_offset for segment in log.segments], np.int64)
        self._largest = _LargestTimestamps(log)

    @classmethod
    def of_directory(
        cls,
        directory: str | PathLike[str],
        index_directory: str | PathLike[str] | None = None,
        *,
        log_start_offset: int = 0,
        of_log_dir: LogDirEvidence | None = None,
    ) -> Self:
        """A seeker for the log in a partition's directory.

        Args:
            directory, index_directory: as for `Log.open`.
            log_start_offset: from the broker's checkpoint file; 0 if it has none.
            of_log_dir: what other files of the log dir say of the log; None for what its checkpoints say, if the
                directory has a partition's name.

        Raises:
            NoSegmentsError: there are none.
            CheckpointError: the `leader-epoch-checkpoint` is malformed.
            OSError: a directory cannot be listed, or a file cannot be looked at.
        """
        place = as_location(directory)
        partition = parse_partition_directory(place.name)
        if of_log_dir is None and partition is not None:
            of_log_dir = evidence_of_checkpoints(place, partition, None, checkpointed_high_watermark(place, partition))
        log = Log.open(
            directory,
            index_directory,
            log_start_offset=log_start_offset,
            segment_type=CheckedSegment,
            of_log_dir=of_log_dir,
        )
        return cls(log)

    def offsets(self, targets: ArrayLike) -> pa.RecordBatch:
        """Where a fetch from each offset starts: `segment_base_offset`, `position`, `batch_base_offset` and
        `leader_epoch` of the batch. In an offset gap that is the next batch.

        Args:
            targets: offsets, an array of shape (n,) of whole numbers, or a list of them. It is fastest if they are
                sorted.

        Returns:
            n rows with the columns of this class.

        Raises:
            UsageError: targets are no whole numbers of 64 bits, or not of that shape. No error of a file is raised: it
                is the answer's note.
        """
        wanted = _whole_numbers(targets)
        answers = Answers(len(wanted))
        _answer_offsets(self.log, self._base_offsets, wanted, answers)
        return answers.to_arrow()

    def timestamps(self, targets: ArrayLike) -> pa.RecordBatch:
        """The first record with each timestamp or a later one, as `ListOffsets` answers: `offset`, `timestamp` and
        `leader_epoch`, and where its batch lies.

        Args:
            targets: ms since the epoch, or what stands for a special target (see `Log.fetch_offset_by_timestamp`): an
                array of shape (n,) of whole numbers, or a list of them. It is fastest if they are sorted.

        Returns:
            n rows with the columns of this class.

        Raises:
            UsageError: as `offsets`.
        """
        wanted = _whole_numbers(targets)
        answers = Answers(len(wanted))
        is_special = (wanted <= LATEST) & (wanted >= EARLIEST_PENDING_UPLOAD)
        special, rest = np.flatnonzero(is_special), np.flatnonzero(~is_special)
        for target, rows in rows_by_key(wanted[special], special):
            answer_special(self.log, target, rows, answers)
        _answer_timestamps(self.log, self._largest, rest, wanted, answers)
        remark_on_times(self.log, rest, wanted, answers)
        hits = rest[answers.found[rest]]
        remark_on_hidden(self.log, hits[answers.offsets(hits) == self.log.log_start_offset], answers)
        return answers.to_arrow()


def seek_all(partition: Seeker | str, query: str, targets: Longs) -> pa.RecordBatch:
    """Have a seeker answer targets of one kind, `offset` or `timestamp`, as rows of `ANSWER`. The partition is a
    seeker, or the reason why there is none.
    """
    if isinstance(partition, Seeker):
        return partition.offsets(targets) if query == OFFSET else partition.timestamps(targets)
    return unanswered(len(targets), partition)


def _whole_numbers(targets: ArrayLike) -> Longs:
    try:
        given = np.asarray(targets)
    except ValueError as error:
        raise UsageError(f"targets: expected an array of whole numbers, of shape (n,): {error}") from error
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(
            f"targets of shape {given.shape} and type {given.dtype}: expected whole numbers of 64 bits, of shape (n,)"
        )
    if given.dtype.kind == "u" and given.size and given.max() > _LONG_MAX:
        raise UsageError(f"target {given.max()}: expected {_LONG_MAX} at most, as Kafka's offsets and times")
    return given.astype(np.int64, copy=False)


def _is_empty(log: Log) -> bool:
    """Whether no segment of a log has a byte; false if a file cannot be read, which the search tells."""
    try:
        return all(segment.size == 0 for segment in log.segments)
    except FILE_ERRORS:
        return False
    finally:
        for segment in log.segments:
            segment.release()


def _answer_offsets(log: Log, base_offsets: Longs, targets: Longs, answers: Answers) -> None:
    """Answer for each target in which batch a fetch from there starts, or why there is none. `base_offsets` are those
    of the log's segments.
    """
    inside = _rows_inside(log, targets, answers)
    floors = np.maximum(np.searchsorted(base_offsets, targets[inside], "right") - 1, 0)
    for floor, rows in rows_by_key(floors, inside):
        remark_on_overlap(log, floor, rows, answers)
        for number in range(floor, len(log.segments)):
            asked = rows
            rows = _answer_offsets_in(log.segments[number], asked, targets, answers)
            if number > floor:
                remark_on_gap(log, number, asked[answers.found[asked]], answers)
                remark_on_overlap(log, number, asked[answers.found[asked]], answers)
            if not len(rows):
                break
        answers.note(rows, "no batch of the log reaches it")


def _rows_inside(log: Log, targets: Longs, answers: Answers) -> Longs:
    """The rows whose offsets the log may have; the others are answered."""
    start = log.log_start_offset
    is_inside = targets >= start
    answers.note(np.flatnonzero(~is_inside), f"below the log start offset {start}")
    remark_on_hidden(log, np.flatnonzero(~is_inside & (targets >= log.segments[0].base_offset)), answers)
    remark_on_lost_start(log, targets, answers)
    try:
        end = log.log_end_offset
    except FILE_ERRORS:
        pass  # the search in the last segment tells why
    else:
        answers.note(np.flatnonzero(targets == end), f"at the log end offset {end}, which no record has yet")
        answers.note(np.flatnonzero(targets > end), f"above the log end offset {end}")
        remark_on_end(log, np.flatnonzero(targets >= end), answers)
        is_inside &= targets < end
    return np.flatnonzero(is_inside)


def _answer_offsets_in(segment: LogSegment, rows: Longs, targets: Longs, answers: Answers) -> Longs:
    """Answer the rows whose offsets one segment has; return the rows whose offsets are past its last batch."""
    try:
        walks = new_walks(targets[rows], segment.offset_index.lookup_many(targets[rows])["position"])
        walk(segment.log, walks, step_to_offsets)
        answers.add_bytes(rows, walks["bytes_read"])
        is_found = walks["outcome"] == SearchOutcome.FOUND
        answers.batches(
            rows[is_found],
            segment.base_offset,
            walks["position"][is_found],
            walks["base_offset"][is_found],
            walks["leader_epoch"][is_found],
        )
        past_end: NDArray[np.bool_] = walks["outcome"] == SearchOutcome.NONE
        for number in np.flatnonzero(walks["outcome"] == SearchOutcome.NOT_IN_HEADERS):
            past_end[number] = _answer_offset_by_hand(segment, rows[number], int(targets[rows[number]]), answers)
        missing = note_past_end(segment) if past_end.any() else None
    except FILE_ERRORS as error:
        answers.fail(rows, describe_error(error))
        return rows[:0]
    finally:
        segment.release()
    answers.file_error(rows, segment.note)
    rows = rows[past_end]
    answers.unsure(rows, missing)
    return rows


def _answer_offset_by_hand(segment: LogSegment, row: int, target: int, answers: Answers) -> bool:
    """Answer one row; return whether its offset is past the last batch."""
    rows = np.array([row])
    try:
        with answers.counting(rows, segment):
            batch = segment.translate_offset(target)
            if batch is not None:
                epoch = next(batch_headers.batches(segment.log, batch.position)).partition_leader_epoch
                answers.batches(rows, segment.base_offset, batch.position, batch.base_offset, epoch)
    except FILE_ERRORS as error:
        answers.unsure(rows, f"{name_in_notes(segment)}: {describe_error(error)}")
        return False
    return batch is None


def _answer_timestamps(log: Log, largest: _LargestTimestamps, rows: Longs, targets: Longs, answers: Answers) -> None:
    """Answer for each target which record is the first with this timestamp or a later one, or why there is none."""
    for number, asked in rows_by_key(largest.first_segments(targets[rows]), rows):
        if number < len(largest.known):
            _answer_times_in(log, number, asked, targets, answers)
            remark_on_gap(log, number, asked[answers.is_first_batch(asked)], answers)
            remark_on_overlap(log, number, asked, answers)
        elif _is_empty(log):
            answers.note(asked, NO_RECORDS)
            remark_on_end(log, asked, answers)
        else:
            answers.note(asked, f"all records are older, the latest is of {show_ms(largest.known[-1])}")
            remark_on_end(log, asked, answers)
        for passed, reason in largest.unknown:
            if passed < number:
                answers.unsure(asked, f"not searched: {reason}")


class _LargestTimestamps:
    """The largest timestamps of the first segments of a log.

    Attributes:
        known: the largest timestamp of a segment and all before it, for each segment, in ms since the epoch.
        unknown: the segments whose largest timestamp cannot be read, and why.
    """

    def __init__(self, log: Log) -> None:
        self.known: list[int] = []
        self.unknown: list[tuple[int, str]] = []
        self._log = log

    def first_segments(self, timestamps: Longs) -> Longs:
        """The number of the first segment with this timestamp or a later one, for each timestamp; the count of the
        log's segments if there is none.
        """
        if len(timestamps):
            self._read_up_to(int(timestamps.max()))
        return np.searchsorted(self.known, timestamps, "left")

    def _read_up_to(self, timestamp: int) -> None:
        """Read the largest timestamps, up to the first segment that has this timestamp or a later one."""
        for number in range(len(self.known), len(self._log.segments)):
            largest = self.known[-1] if self.known else _LEAST
            if largest >= timestamp > _LEAST:
                return
            segment = self._log.segments[number]
            try:
                largest = max(largest, segment.largest_timestamp)
            except FILE_ERRORS as error:
                self.unknown.append((number, describe_error(error)))
            else:
                if segment.truncation is not None:
                    self.unknown.append((number, segment.truncation))
            self.known.append(largest)


def _answer_times_in(log: Log, number: int, rows: Longs, targets: Longs, answers: Answers) -> None:
    """Answer from the one segment that a broker searches, by its number."""
    segment, since = log.segments[number], log.log_start_offset
    try:
        known_older = segment.time_index.lookup_many(targets[rows])["offset"]
        positions = segment.offset_index.lookup_many(np.maximum(known_older, since))["position"]
        walks = new_walks(targets[rows], positions)
        undecided = True
        while undecided:
            walk(segment.log, walks, step_to_timestamps)
            undecided = _look_inside(segment, since, walks, rows, answers)
        answers.add_bytes(rows, walks["bytes_read"])
        for row in rows[walks["outcome"] == SearchOutcome.NOT_IN_HEADERS]:
            _answer_time_by_hand(segment, since, row, int(targets[row]), answers)
        missed = rows[answers.is_open(rows)]
        if len(missed):
            answers.note(missed, NO_RECORDS if _is_empty(log) else note_on_not_found(segment, since))
            answers.unsure(missed, note_past_end(segment))
        answers.file_error(rows, segment.note)
    except FILE_ERRORS as error:
        answers.fail(rows, describe_error(error))
    finally:
        segment.release()


def _look_inside(segment: LogSegment, since: int, walks: NDArray[np.void], rows: Longs, answers: Answers) -> bool:
    """Search the batches that walks have come to for the records; return whether some walks have to go on."""
    arrived = np.flatnonzero((walks["outcome"] == SearchOutcome.FOUND) & ~answers.found[rows])
    goes_on = False
    for position, numbers in rows_by_key(walks["position"][arrived], arrived):
        batch = next(batch_headers.batches(segment.log, position))
        inside = read_record_times(segment.log, batch)
        answers.add_bytes(rows[numbers], batch.size)
        if inside is None:
            walks["outcome"][numbers] = SearchOutcome.NOT_IN_HEADERS
            continue
        eligible = inside.offsets >= since
        offsets, timestamps = inside.offsets[eligible], inside.timestamps[eligible]
        # The first timestamp at or above a target is where the running maximum first is at or above it.
        at = np.searchsorted(np.maximum.accumulate(timestamps), walks["target"][numbers], "left")
        hit = at < len(offsets)
        rows_hit = rows[numbers[hit]]
        answers.batches(
            rows_hit,
            segment.base_offset,
            batch.position,
            inside.base_offset,
            batch.partition_leader_epoch,
        )
        answers.records(rows_hit, offsets[at[hit]], timestamps[at[hit]])
        if batch.is_control and len(rows_hit):
            answers.note(rows_hit, MARKER)
        if not inside.complete:
            _remark_on_damage_behind(segment, batch, rows_hit, answers)
        missed = numbers[~hit]
        if inside.complete:
            walks["position"][missed], walks["outcome"][missed] = batch.next_position, SearchOutcome.UNDECIDED
            goes_on = goes_on or len(missed) > 0
        else:
            walks["outcome"][missed] = SearchOutcome.NOT_IN_HEADERS
    return goes_on


def _answer_time_by_hand(segment: LogSegment, since: int, row: int, target: int, answers: Answers) -> None:
    rows = np.array([row])
    try:
        with answers.counting(rows, segment):
            if (found := segment.find_record(target, since)) is not None:
                batch, record = found
                first = reader.base_offset(segment.log, batch)
                answers.batches(rows, segment.base_offset, batch.position, first, batch.partition_leader_epoch)
                answers.records(rows, record.offset, record.timestamp)
                _remark_on_damage_behind(segment, batch, rows, answers)
    except FILE_ERRORS as error:
        answers.unsure(rows, f"{name_in_notes(segment)}: {describe_error(error)}")


def _remark_on_damage_behind(
    segment: LogSegment, batch: batch_headers.BatchHeader, rows: Longs, answers: Answers
) -> None:
    """Remark on damage behind the record that was found in a compressed batch: up to 4.3 Kafka reads all of it before
    it answers, and fails (`FileRecords.searchForTimestamp`, `DefaultRecordBatch.iterator`).
    """
    if not len(rows) or not batch.is_v2 or batch.codec == layouts.CODEC_NONE:
        return
    try:
        for _ in reader.records(segment.log, batch):
            pass
    except MalformedRecordsError as error:
        fails = f"Kafka up to {KAFKA_4_3} fails on it, and does not find the record"
        answers.file_error(rows, f"{name_in_notes(segment)}: {describe_error(error)}, behind the record; {fails}")


def answer_special(log: Log, target: int, rows: Longs, answers: Answers) -> None:
    """Answer a special target for the rows that ask for it, see `Log.fetch_offset_by_timestamp`."""
    try:
        if target == MAX_TIMESTAMP:
            _answer_latest_timestamp(log, rows, answers)
            return
        record = log.fetch_offset_by_timestamp(target)
    except FILE_ERRORS as error:
        answers.unsure(rows, describe_error(error))
        return
    if record is None or record.offset < 0:
        answers.note(rows, "the log is not tiered")
        return
    answers.records(rows, record.offset, record.timestamp, record.leader_epoch)
    if target == LATEST:
        remark_on_end(log, rows, answers)
    else:
        remark_on_start(log, rows, answers)


def _answer_latest_timestamp(log: Log, rows: Longs, answers: Answers) -> None:
    segment = log.latest_timestamp_segment
    try:
        with answers.counting(rows, segment):
            record = segment.find_max_timestamp()
            batch = None if record is None else segment.translate_offset(record.offset)
    finally:
        segment.release()
    for earlier in log.segments[:-1]:
        answers.unsure(rows, earlier.truncation)
    remark_on_overlap(log, log.segments.index(segment), rows, answers)
    if record is None:
        answers.note(rows, "no record has a timestamp")
        remark_on_end(log, rows, answers)
        return
    if batch is not None:
        answers.batches(rows, segment.base_offset, batch.position, batch.base_offset, layouts.NO_LEADER_EPOCH)
    answers.records(rows, record.offset, record.timestamp, record.leader_epoch)
    answers.file_error(rows, segment.note)
    remark_on_end(log, rows, answers)
