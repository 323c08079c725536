"""Where is offset N, where is time T: many such questions to one partition at a time.

The answers are those of `Log` and `LogSegment`, and so of a broker; but index lookups and walks over batch headers are
made for many targets in one go, and a batch is decompressed once for all that look into it. What stands in the way of
an answer never raises: it is the answer's note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib import formats, names, records
from kidxlib.answers import OFFSET, Answers
from kidxlib.batch_records import records_in
from kidxlib.errors import KidxError, why
from kidxlib.log import EARLIEST_PENDING_UPLOAD, LATEST, MAX_TIMESTAMP, Log
from kidxlib.log_segment import LogSegment
from kidxlib.objects import Location
from kidxlib.seek_segment import SeekSegment
from kidxlib.times import show_ms
from kidxlib.walk import Outcome, new_walks, step_to_offsets, step_to_timestamps, walk

_Longs: TypeAlias = NDArray[np.int64]


#: What a segment of files can raise: it is said in the answer's note.
_TROUBLE: Final = (KidxError, OSError)


class Seeker:
    """Answers questions to one partition.

    Attributes:
        log: its segments.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._base_offsets = np.array([segment.base_offset for segment in log.segments], np.int64)
        # Of the first segments, as many as were needed so far:
        self._largest: list[int] = []  # the largest timestamp of each and of those before it
        self._unknown: list[tuple[int, str]] = []  # which of them do not tell theirs, and why

    @classmethod
    def of_folder(cls, folder: Location, index_folder: Location | None = None, *, log_start_offset: int = 0) -> Self:
        """For the log in a partition's folder.

        Args:
            index_folder: as for `Log.open`.
            log_start_offset: what the broker's checkpoint file says; 0 where it says nothing.

        Raises:
            NoSegmentsError: there are none.
            CheckpointError: the `leader-epoch-checkpoint` is malformed.
            OSError: a folder cannot be listed, or a file cannot be looked at.
        """
        return cls(Log.open(folder, index_folder, log_start_offset=log_start_offset, segment_type=SeekSegment))

    def offsets(self, targets: _Longs) -> pa.RecordBatch:
        """Where a fetch from each offset starts: `segment_base_offset`, `position`, `batch_base_offset` and
        `leader_epoch` of the batch. In a hole that is the next batch.

        Args:
            targets: of shape (n,); fastest if they are sorted.

        Returns:
            n rows of `ANSWER`.
        """
        answers = Answers(len(targets))
        start = self.log.log_start_offset
        is_inside = targets >= start
        answers.note(np.flatnonzero(~is_inside), f"below the log start offset {start}")
        try:
            end = self.log.log_end_offset
        except _TROUBLE:
            pass  # the last segment will say it
        else:
            answers.note(np.flatnonzero(targets == end), f"at the log end offset {end}, which no record has yet")
            answers.note(np.flatnonzero(targets > end), f"above the log end offset {end}")
            self._check_end(np.flatnonzero(targets >= end), answers)
            is_inside &= targets < end
        inside = np.flatnonzero(is_inside)
        floors = np.maximum(np.searchsorted(self._base_offsets, targets[inside], "right") - 1, 0)
        for floor, rows in _groups(floors, inside):
            for segment in self.log.segments[floor:]:
                rows = self._offsets_in(segment, rows, targets, answers)
                if not len(rows):
                    break
            answers.note(rows, "no batch of the log reaches it")
        return answers.to_arrow()

    def timestamps(self, targets: _Longs) -> pa.RecordBatch:
        """The first record with each timestamp or a later one, as `ListOffsets` answers: `offset`, `timestamp` and
        `leader_epoch`, and where its batch lies.

        Args:
            targets: ms since the epoch, or what stands for a special target (see `Log.fetch_offset_by_timestamp`), of
                shape (n,); fastest if they are sorted.

        Returns:
            n rows of `ANSWER`.
        """
        answers = Answers(len(targets))
        is_special = (targets <= LATEST) & (targets >= EARLIEST_PENDING_UPLOAD)
        special, rest = np.flatnonzero(is_special), np.flatnonzero(~is_special)
        for target, rows in _groups(targets[special], special):
            self._special(target, rows, answers)
        if len(rest):
            self._load_largest(int(targets[rest].max()))
        for number, rows in _groups(np.searchsorted(self._largest, targets[rest], "left"), rest):
            if number < len(self._largest):
                self._timestamps_in(self.log.segments[number], rows, targets, answers)
            else:
                answers.note(rows, f"all records are older, the youngest of {show_ms(self._largest[-1])}")
                self._check_end(rows, answers)
            for passed, reason in self._unknown:
                if passed < number:
                    answers.unsure(rows, f"not searched: {reason}")
        return answers.to_arrow()

    def _check_start(self, rows: _Longs, answers: Answers) -> None:
        """Whether the first segment, where the log starts, is what it is known as."""
        first = self.log.segments[0]
        try:
            _ = first.size
        except _TROUBLE as error:
            answers.unsure(rows, why(error))
        finally:
            first.let_go()

    def _check_end(self, rows: _Longs, answers: Answers) -> None:
        """Whether the last segment, which says where the log ends, is what it is known as."""
        if not len(rows):
            return
        active = self.log.segments[-1]
        try:
            _ = active.size  # where its file is not as it was recorded, that raises
            missing = _missing(active)
        except _TROUBLE as error:
            missing = why(error)
        finally:
            active.let_go()
        answers.unsure(rows, missing)

    # ---- by offset ----

    def _offsets_in(self, segment: LogSegment, rows: _Longs, targets: _Longs, answers: Answers) -> _Longs:
        """Answer what one segment has; the rows whose offsets stand behind its last batch."""
        try:
            walks = new_walks(targets[rows], segment.offset_index.lookup_many(targets[rows])["position"])
            walk(segment.log, walks, step_to_offsets)
            answers.add_bytes(rows, walks["bytes_read"])
            found = walks["outcome"] == Outcome.FOUND
            answers.batches(
                rows[found],
                segment.base_offset,
                walks["position"][found],
                walks["base_offset"][found],
                walks["leader_epoch"][found],
            )
            behind: NDArray[np.bool_] = walks["outcome"] == Outcome.NONE
            for number in np.flatnonzero(walks["outcome"] == Outcome.NOT_IN_HEADERS):
                behind[number] = self._offset_by_hand(segment, rows[number], int(targets[rows[number]]), answers)
            missing = _missing(segment) if behind.any() else None
        except _TROUBLE as error:
            self._failed(rows, error, answers)
            return rows[:0]
        finally:
            segment.let_go()
        answers.trouble(rows, _note(segment))
        rows = rows[behind]
        answers.unsure(rows, missing)
        return rows

    @staticmethod
    def _failed(rows: _Longs, error: KidxError | OSError, answers: Answers) -> None:
        """A file let no more be answered than what was found by then."""
        answers.trouble(rows[answers.found[rows]], why(error))
        answers.unsure(rows[~answers.found[rows]], why(error))

    def _offset_by_hand(self, segment: LogSegment, row: int, target: int, answers: Answers) -> bool:
        """Answer one; whether its offset stands behind the last batch."""
        rows = np.array([row])
        try:
            with answers.counting(rows, segment):
                batch = segment.translate_offset(target)
                if batch is not None:
                    epoch = next(records.batches(segment.log, batch.position)).partition_leader_epoch
                    answers.batches(rows, segment.base_offset, batch.position, batch.base_offset, epoch)
        except _TROUBLE as error:
            answers.unsure(rows, f"{_name(segment)}: {why(error)}")
            return False
        return batch is None

    # ---- by time ----

    def _load_largest(self, timestamp: int) -> None:
        """Ask the segments for their largest timestamps, up to the first that has this one or a later."""
        for number in range(len(self._largest), len(self.log.segments)):
            largest = self._largest[-1] if self._largest else _LEAST
            if largest >= timestamp > _LEAST:
                return
            segment = self.log.segments[number]
            try:
                largest = max(largest, segment.largest_timestamp)
            except _TROUBLE as error:
                self._unknown.append((number, why(error)))
            else:
                if (cut := _cut(segment)) is not None:
                    self._unknown.append((number, cut))
            self._largest.append(largest)

    def _timestamps_in(self, segment: LogSegment, rows: _Longs, targets: _Longs, answers: Answers) -> None:
        """Answer from the one segment in which a broker looks."""
        since = self.log.log_start_offset
        try:
            known_older = segment.time_index.lookup_many(targets[rows])["offset"]
            positions = segment.offset_index.lookup_many(np.maximum(known_older, since))["position"]
            walks = new_walks(targets[rows], positions)
            undecided = True
            while undecided:
                walk(segment.log, walks, step_to_timestamps)
                undecided = self._look_inside(segment, since, walks, rows, answers)
            answers.add_bytes(rows, walks["bytes_read"])
            for row in rows[walks["outcome"] == Outcome.NOT_IN_HEADERS]:
                self._timestamp_by_hand(segment, row, int(targets[row]), since, answers)
            missed = rows[answers.is_open(rows)]
            if len(missed):
                answers.note(missed, _why_not_in(segment, since))
                answers.unsure(missed, _missing(segment))
            answers.trouble(rows, _note(segment))
        except _TROUBLE as error:
            self._failed(rows, error, answers)
        finally:
            segment.let_go()

    def _look_inside(
        self, segment: LogSegment, since: int, walks: NDArray[np.void], rows: _Longs, answers: Answers
    ) -> bool:
        """Look for the records in the batches that walks have come to; whether some walks have to go on."""
        arrived = np.flatnonzero((walks["outcome"] == Outcome.FOUND) & ~answers.found[rows])
        goes_on = False
        for position, numbers in _groups(walks["position"][arrived], arrived):
            batch = next(records.batches(segment.log, position))
            inside = records_in(segment.log, batch)
            answers.add_bytes(rows[numbers], batch.size)
            if inside is None:
                walks["outcome"][numbers] = Outcome.NOT_IN_HEADERS
                continue
            eligible = inside.offsets >= since
            offsets, timestamps = inside.offsets[eligible], inside.timestamps[eligible]
            # The first that is not below a target is the first at which the largest so far is not below it.
            at = np.searchsorted(np.maximum.accumulate(timestamps), walks["target"][numbers], "left")
            hit = at < len(offsets)
            found = rows[numbers[hit]]
            answers.batches(
                found,
                segment.base_offset,
                batch.position,
                inside.base_offset,
                batch.partition_leader_epoch,
            )
            answers.records(found, offsets[at[hit]], timestamps[at[hit]])
            missed = numbers[~hit]
            if inside.complete:
                walks["position"][missed], walks["outcome"][missed] = batch.next_position, Outcome.UNDECIDED
                goes_on = goes_on or len(missed) > 0
            else:
                walks["outcome"][missed] = Outcome.NOT_IN_HEADERS
        return goes_on

    def _timestamp_by_hand(self, segment: LogSegment, row: int, target: int, since: int, answers: Answers) -> None:
        rows = np.array([row])
        try:
            with answers.counting(rows, segment):
                found = segment.find_record(target, since)
                if found is not None:
                    batch, record = found
                    first = records.base_offset(segment.log, batch)
                    answers.batches(rows, segment.base_offset, batch.position, first, batch.partition_leader_epoch)
                    answers.records(rows, record.offset, record.timestamp)
        except _TROUBLE as error:
            answers.unsure(rows, f"{_name(segment)}: {why(error)}")

    def _special(self, target: int, rows: _Longs, answers: Answers) -> None:
        """What is asked for by a timestamp below 0: an end of the log, or the youngest record."""
        try:
            if target == MAX_TIMESTAMP:
                self._youngest(rows, answers)
                return
            found = self.log.fetch_offset_by_timestamp(target)
        except _TROUBLE as error:
            answers.unsure(rows, why(error))
            return
        if found is None or found.offset < 0:
            answers.note(rows, "the log is not tiered")
            return
        answers.records(rows, found.offset, found.timestamp, found.leader_epoch)
        if target == LATEST:
            self._check_end(rows, answers)
        else:
            self._check_start(rows, answers)

    def _youngest(self, rows: _Longs, answers: Answers) -> None:
        segment = self.log.youngest_segment
        try:
            with answers.counting(rows, segment):
                found = segment.find_max_timestamp()
                batch = None if found is None else segment.translate_offset(found.offset)
        finally:
            segment.let_go()
        for each in self.log.segments[:-1]:
            answers.unsure(rows, _cut(each))
        if found is None:
            answers.note(rows, "no record has a timestamp")
            self._check_end(rows, answers)
            return
        if batch is not None:
            answers.batches(rows, segment.base_offset, batch.position, batch.base_offset, formats.NO_LEADER_EPOCH)
        answers.records(rows, found.offset, found.timestamp, found.leader_epoch)
        answers.trouble(rows, _note(segment))
        self._check_end(rows, answers)


def answer_all(partition: Seeker | str, query: str, targets: _Longs) -> pa.RecordBatch:
    """Rows of `ANSWER` for targets of one kind, `offset` or `timestamp`.

    Args:
        partition: what answers, or why nothing can.
    """
    if isinstance(partition, Seeker):
        return partition.offsets(targets) if query == OFFSET else partition.timestamps(targets)
    return unanswered(len(targets), partition)


def unanswered(count: int, trouble: str) -> pa.RecordBatch:
    """So many rows of `ANSWER` that all say why there is none."""
    answers = Answers(count)
    answers.unsure(np.arange(count), trouble)
    return answers.to_arrow()


_LEAST: Final = -(2**63)


def _groups(keys: NDArray[Any], rows: _Longs) -> Iterator[tuple[int, _Longs]]:
    """Rows by key, both of shape (n,), keys in order; rows of a key stay in theirs."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    yield from zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True) if len(found) else ()


def _name(segment: LogSegment) -> str:
    return names.segment_file(segment.base_offset, names.LOG_SUFFIX)


def _note(segment: LogSegment) -> str | None:
    return segment.note if isinstance(segment, SeekSegment) else None


def _cut(segment: LogSegment) -> str | None:
    return segment.cut if isinstance(segment, SeekSegment) else None


def _missing(segment: LogSegment) -> str | None:
    """Why there may have been more in a segment's log than there is."""
    if not isinstance(segment, SeekSegment):
        return None
    torn = segment.torn  # first: it may have to recover the segment, which finds out where it is to be truncated
    return segment.cut or torn


def _why_not_in(segment: LogSegment, since: int) -> str:
    if segment.max_timestamp_so_far.timestamp < 0:
        return (
            f"{_name(segment)} has no timestamps; as its file is of {show_ms(segment.largest_timestamp)}, "
            "a broker looks there and no further"
        )
    return f"{_name(segment)} has no such record from offset {since} on, and a broker looks no further"
