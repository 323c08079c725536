"""Answers many questions for an offset from the segments of a log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import describe_error
from kidxlib.log.log import Log
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.remarks import FILE_ERRORS, log_name, remark_on_end, remark_on_gap, why_end_is_missing
from kidxlib.lookup.row_groups import Longs, groups
from kidxlib.records import batch_headers
from kidxlib.records.header_search import SearchOutcome, new_walks, step_to_offsets, walk


def answer_offsets(log: Log, base_offsets: Longs, targets: Longs, answers: Answers) -> None:
    """Answer for each target in which batch a fetch from there starts, or why there is none.

    Args:
        base_offsets: of the log's segments.
        targets, answers: of n rows.
    """
    inside = _inside(log, targets, answers)
    floors = np.maximum(np.searchsorted(base_offsets, targets[inside], "right") - 1, 0)
    for floor, rows in groups(floors, inside):
        for number in range(floor, len(log.segments)):
            asked = rows
            rows = _answer_in(log.segments[number], asked, targets, answers)
            if number > floor:
                remark_on_gap(log, number, asked[answers.found[asked]], answers)
            if not len(rows):
                break
        answers.note(rows, "no batch of the log reaches it")


def _inside(log: Log, targets: Longs, answers: Answers) -> Longs:
    """The rows whose offsets the log may have; the others are answered."""
    start = log.log_start_offset
    is_inside = targets >= start
    answers.note(np.flatnonzero(~is_inside), f"below the log start offset {start}")
    try:
        end = log.log_end_offset
    except FILE_ERRORS:
        pass  # the last segment will say it
    else:
        answers.note(np.flatnonzero(targets == end), f"at the log end offset {end}, which no record has yet")
        answers.note(np.flatnonzero(targets > end), f"above the log end offset {end}")
        remark_on_end(log, np.flatnonzero(targets >= end), answers)
        is_inside &= targets < end
    return np.flatnonzero(is_inside)


def _answer_in(segment: LogSegment, rows: Longs, targets: Longs, answers: Answers) -> Longs:
    """Answer what one segment has; the rows whose offsets are past its last batch."""
    try:
        walks = new_walks(targets[rows], segment.offset_index.lookup_many(targets[rows])["position"])
        walk(segment.log, walks, step_to_offsets)
        answers.add_bytes(rows, walks["bytes_read"])
        found = walks["outcome"] == SearchOutcome.FOUND
        answers.batches(
            rows[found],
            segment.base_offset,
            walks["position"][found],
            walks["base_offset"][found],
            walks["leader_epoch"][found],
        )
        past_end: NDArray[np.bool_] = walks["outcome"] == SearchOutcome.NONE
        for number in np.flatnonzero(walks["outcome"] == SearchOutcome.NOT_IN_HEADERS):
            past_end[number] = _answer_by_hand(segment, rows[number], int(targets[rows[number]]), answers)
        missing = why_end_is_missing(segment) if past_end.any() else None
    except FILE_ERRORS as error:
        answers.fail(rows, describe_error(error))
        return rows[:0]
    finally:
        segment.release()
    answers.file_error(rows, segment.note)
    rows = rows[past_end]
    answers.unsure(rows, missing)
    return rows


def _answer_by_hand(segment: LogSegment, row: int, target: int, answers: Answers) -> bool:
    """Answer one; whether its offset is past the last batch."""
    rows = np.array([row])
    try:
        with answers.counting(rows, segment):
            batch = segment.translate_offset(target)
            if batch is not None:
                epoch = next(batch_headers.batches(segment.log, batch.position)).partition_leader_epoch
                answers.batches(rows, segment.base_offset, batch.position, batch.base_offset, epoch)
    except FILE_ERRORS as error:
        answers.unsure(rows, f"{log_name(segment)}: {describe_error(error)}")
        return False
    return batch is None
