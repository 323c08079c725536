"""Answers the timestamps below 0, which ask for an end of the log or for the record with the largest timestamp."""

from __future__ import annotations

from kidxlib.errors import describe_error
from kidxlib.format import layouts as formats
from kidxlib.log.list_offsets import LATEST, MAX_TIMESTAMP
from kidxlib.log.log import Log
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.remarks import FILE_ERRORS, remark_on_end, remark_on_start
from kidxlib.lookup.row_groups import Longs


def answer_special(log: Log, target: int, rows: Longs, answers: Answers) -> None:
    """Answer a special target, see `Log.fetch_offset_by_timestamp`.

    Args:
        rows: those that ask for this target.
    """
    try:
        if target == MAX_TIMESTAMP:
            _answer_latest_timestamp(log, rows, answers)
            return
        found = log.fetch_offset_by_timestamp(target)
    except FILE_ERRORS as error:
        answers.unsure(rows, describe_error(error))
        return
    if found is None or found.offset < 0:
        answers.note(rows, "the log is not tiered")
        return
    answers.records(rows, found.offset, found.timestamp, found.leader_epoch)
    if target == LATEST:
        remark_on_end(log, rows, answers)
    else:
        remark_on_start(log, rows, answers)


def _answer_latest_timestamp(log: Log, rows: Longs, answers: Answers) -> None:
    segment = log.latest_timestamp_segment
    try:
        with answers.counting(rows, segment):
            found = segment.find_max_timestamp()
            batch = None if found is None else segment.translate_offset(found.offset)
    finally:
        segment.release()
    for each in log.segments[:-1]:
        answers.unsure(rows, each.truncation)
    if found is None:
        answers.note(rows, "no record has a timestamp")
        remark_on_end(log, rows, answers)
        return
    if batch is not None:
        answers.batches(rows, segment.base_offset, batch.position, batch.base_offset, formats.NO_LEADER_EPOCH)
    answers.records(rows, found.offset, found.timestamp, found.leader_epoch)
    answers.file_error(rows, segment.note)
    remark_on_end(log, rows, answers)
