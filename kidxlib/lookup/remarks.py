"""Remarks for the note of an answer, on a segment or on the first or last segment of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kidxlib.errors import KidxError, describe_error
from kidxlib.format import segment_files
from kidxlib.log.log import Log
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.row_groups import Longs, groups
from kidxlib.records.bulk.batch_table import BatchTable, BatchWalk
from kidxlib.records.bulk.wanted import Wanted
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


NO_RECORDS: Final = "no records"
#: What is found of a transaction's end is no record that consumers get.
MARKER: Final = "the marker at the end of a transaction; consumers that begin there get the record after it"
FAR: Final = "more than an hour after the time that was asked for"
GAP: Final = "in no log: unless the topic is compacted, a segment is missing"
_HOUR_MS: Final = 3_600_000


def remark_on_times(log: Log, rows: Longs, targets: Longs, answers: Answers) -> None:
    """Add remarks where what was found is far from the time that was asked for, and why.

    Args:
        rows: those that ask for times, of the n in `targets` and `answers`.
    """
    found = rows[answers.found[rows]]
    timestamps = answers.timestamps(found)
    is_far = np.maximum(timestamps, 0) - _HOUR_MS > targets[found]
    if not is_far.any():
        return
    answers.note(found[is_far], FAR)
    last = _last_timestamp(log)
    if last is None or not (is_later := is_far & (timestamps > last)).any():
        return
    by_base_offset = {segment.base_offset: segment for segment in log.segments}
    for base_offset, rows_in in groups(answers.segments(found[is_later]), found[is_later]):
        answers.note(rows_in, _in_the_way(by_base_offset[base_offset], last))


def _in_the_way(segment: LogSegment, last: int) -> str:
    """Why a search by time ends in a segment, though later ones may have earlier records.

    Args:
        last: the largest timestamp at the end of the log.
    """
    try:
        largest = show_ms(segment.largest_timestamp)
    except FILE_ERRORS:
        largest = "not known"  # the answer says why
    finally:
        segment.release()
    return (
        f"its timestamp is later than those at the end of the log, {show_ms(last)}: segment {segment.base_offset} "
        f"stands in the way, whose largest timestamp is {largest}; kidx export --times TIME/ reads the logs, and its "
        "first record is the first of that time"
    )


def _last_timestamp(log: Log) -> int | None:
    """The largest timestamp of a log's last batch; None where it cannot be read."""
    for segment in reversed(log.segments):
        try:
            start = segment.translate_offset(segment.offset_index.last_offset)
            # Behind the last entry there may be all that was written since a build, or the whole log.
            found = None
            for table in () if start is None else _batches(segment, start.position):
                found = int(table.rows["max_timestamp"][-1])
        except FILE_ERRORS:
            return None
        finally:
            segment.release()
        if found is not None:
            return found
    return None


def _batches(segment: LogSegment, position: int) -> Iterator[BatchTable]:
    return BatchWalk(segment.log, position, Wanted(), whole=False).tables()


def is_empty(log: Log) -> bool:
    """Whether no segment of a log has a byte; not where that cannot be seen, which others say."""
    try:
        return all(segment.size == 0 for segment in log.segments)
    except FILE_ERRORS:
        return False
    finally:
        for segment in log.segments:
            segment.release()


def remark_on_gap(log: Log, number: int, rows: Longs, answers: Answers) -> None:
    """Add a remark where offsets between a segment and the one before it are in no log.

    Args:
        number: of the segment.
        rows: those whose answer is the first batch of it.
    """
    if number == 0 or not len(rows):
        return
    before, base_offset = log.segments[number - 1], log.segments[number].base_offset
    try:
        with answers.counting(rows, before):
            end = before.next_offset()
    except FILE_ERRORS:
        return  # whoever looks for something in it says why
    finally:
        before.release()
    if end < base_offset:
        which = f"offset {end} is" if end + 1 == base_offset else f"offsets {end} to {base_offset - 1} are"
        answers.note(rows, f"{which} {GAP}")


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
