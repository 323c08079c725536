"""Remarks for the note of an answer, on a segment or on the first or last segment of a log."""

from __future__ import annotations

from typing import Final

from kidxlib.errors import KidxError, describe_error
from kidxlib.format import segment_files
from kidxlib.log.log import Log
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.row_groups import Longs
from kidxlib.text.times import show_ms

#: What a segment of files can raise: it is said in the answer's note.
FILE_ERRORS: Final = (KidxError, OSError)


def log_name(segment: LogSegment) -> str:
    return segment_files.segment_file(segment.base_offset, segment_files.LOG_SUFFIX)


def why_end_is_missing(segment: LogSegment) -> str | None:
    """Why there may have been more in a segment's log than there is."""
    torn = segment.torn  # first: it may have to recover the segment, which finds out where it is to be truncated
    return segment.truncation or torn


def why_not_in(segment: LogSegment, since: int) -> str:
    if segment.max_timestamp_so_far.timestamp < 0:
        return (
            f"{log_name(segment)} has no timestamps; as its file is of {show_ms(segment.largest_timestamp)}, "
            "a broker looks there and no further"
        )
    return f"{log_name(segment)} has no such record from offset {since} on, and a broker looks no further"


def remark_on_start(log: Log, rows: Longs, answers: Answers) -> None:
    """Add a remark if the first segment, where the log starts, is not the one that was recorded."""
    first = log.segments[0]
    try:
        _ = first.size
    except FILE_ERRORS as error:
        answers.unsure(rows, describe_error(error))
    finally:
        first.release()


def remark_on_end(log: Log, rows: Longs, answers: Answers) -> None:
    """Add a remark if the last segment, which decides where the log ends, is not the one that was recorded."""
    if not len(rows):
        return
    active = log.segments[-1]
    try:
        _ = active.size  # where its file is not as it was recorded, that raises
        missing = why_end_is_missing(active)
    except FILE_ERRORS as error:
        missing = describe_error(error)
    finally:
        active.release()
    answers.unsure(rows, missing)
