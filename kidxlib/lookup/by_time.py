"""Answers many questions for a time from the segments of a log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import describe_error
from kidxlib.log.log import Log
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.largest_timestamps import LargestTimestamps
from kidxlib.lookup.remarks import (
    FILE_ERRORS,
    MARKER,
    NO_RECORDS,
    is_empty,
    log_name,
    remark_on_end,
    remark_on_gap,
    why_end_is_missing,
    why_not_in,
)
from kidxlib.lookup.row_groups import Longs, groups
from kidxlib.records import batch_headers, reader
from kidxlib.records.columns import records_in
from kidxlib.records.header_search import SearchOutcome, new_walks, step_to_timestamps, walk
from kidxlib.text.times import show_ms


def answer_timestamps(log: Log, largest: LargestTimestamps, rows: Longs, targets: Longs, answers: Answers) -> None:
    """Answer for each target which record is the first with this timestamp or a later one, or why there is none.

    Args:
        largest: of the log.
        rows: the rows to answer, of the n in `targets` and `answers`.
    """
    for number, asked in groups(largest.first_segments(targets[rows]), rows):
        if number < len(largest.known):
            _answer_in(log, number, asked, targets, answers)
            remark_on_gap(log, number, asked[answers.is_first_batch(asked)], answers)
        elif is_empty(log):
            answers.note(asked, NO_RECORDS)
            remark_on_end(log, asked, answers)
        else:
            answers.note(asked, f"all records are older, the latest is of {show_ms(largest.known[-1])}")
            remark_on_end(log, asked, answers)
        for passed, reason in largest.unknown:
            if passed < number:
                answers.unsure(asked, f"not searched: {reason}")


def _answer_in(log: Log, number: int, rows: Longs, targets: Longs, answers: Answers) -> None:
    """Answer from the one segment in which a broker looks, by its number."""
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
            _answer_by_hand(segment, since, row, int(targets[row]), answers)
        missed = rows[answers.is_open(rows)]
        if len(missed):
            answers.note(missed, NO_RECORDS if is_empty(log) else why_not_in(segment, since))
            answers.unsure(missed, why_end_is_missing(segment))
        answers.file_error(rows, segment.note)
    except FILE_ERRORS as error:
        answers.fail(rows, describe_error(error))
    finally:
        segment.release()


def _look_inside(segment: LogSegment, since: int, walks: NDArray[np.void], rows: Longs, answers: Answers) -> bool:
    """Look for the records in the batches that walks have come to; whether some walks have to go on."""
    arrived = np.flatnonzero((walks["outcome"] == SearchOutcome.FOUND) & ~answers.found[rows])
    goes_on = False
    for position, numbers in groups(walks["position"][arrived], arrived):
        batch = next(batch_headers.batches(segment.log, position))
        inside = records_in(segment.log, batch)
        answers.add_bytes(rows[numbers], batch.size)
        if inside is None:
            walks["outcome"][numbers] = SearchOutcome.NOT_IN_HEADERS
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
        if batch.is_control and len(found):
            answers.note(found, MARKER)
        missed = numbers[~hit]
        if inside.complete:
            walks["position"][missed], walks["outcome"][missed] = batch.next_position, SearchOutcome.UNDECIDED
            goes_on = goes_on or len(missed) > 0
        else:
            walks["outcome"][missed] = SearchOutcome.NOT_IN_HEADERS
    return goes_on


def _answer_by_hand(segment: LogSegment, since: int, row: int, target: int, answers: Answers) -> None:
    rows = np.array([row])
    try:
        with answers.counting(rows, segment):
            found = segment.find_record(target, since)
            if found is not None:
                batch, record = found
                first = reader.base_offset(segment.log, batch)
                answers.batches(rows, segment.base_offset, batch.position, first, batch.partition_leader_epoch)
                answers.records(rows, record.offset, record.timestamp)
    except FILE_ERRORS as error:
        answers.unsure(rows, f"{log_name(segment)}: {describe_error(error)}")
