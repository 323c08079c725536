"""Answers to many seeks at a time: first the columns and how they are filled, then the remarks in their notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import KidxError, describe_error
from kidxlib.format import layouts, segment_files
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from kidxlib.log.log import Log
from kidxlib.log.segment import LogSegment
from kidxlib.records.arrow_columns import flags_array, numbers_array, strings_array
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.log_dir import IN_BUCKET_OR_LOST
from kidxlib.storage.opened_log import LogFile
from kidxlib.text.times import show_ms
from kidxlib.text.words import counted

Longs: TypeAlias = NDArray[np.int64]
_Long: TypeAlias = NDArray[np.int64] | int

#: The kinds of questions: for the batch that holds an offset, or for the first record of a time.
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"

#: The columns of a result, in this order.
RESULT_COLUMNS: Final = (
    "topic",
    "partition",
    "query",
    "target",
    "found",
    "answered",
    "segment_base_offset",
    "position",
    "batch_base_offset",
    "offset",
    "timestamp",
    "leader_epoch",
    "bytes_read",
    "note",
    "source",
)

#: The columns of an answer.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("found", pa.bool_(), nullable=False),
    pa.field("answered", pa.bool_(), nullable=False),  # false: `found` is not certain, because of a file
    pa.field("segment_base_offset", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("batch_base_offset", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("leader_epoch", pa.int32()),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("note", pa.string()),
    pa.field("file_error", pa.bool_(), nullable=False),  # the note is about a file that is not as it should be
]
ANSWER: Final = pa.schema(_FIELDS)
_NUMBERS: Final = {field.name: field.type for field in _FIELDS if pa.types.is_integer(field.type)}

#: The errors that reading a segment's files can raise: the answer's note tells them.
FILE_ERRORS: Final = (KidxError, OSError)


class Answers:
    """Answers that are being filled, column by column. `found` tells whether a row has its answer."""

    def __init__(self, rows: int) -> None:
        self.found = np.zeros(rows, np.bool_)
        self._columns = {name: np.zeros(rows, np.int64) for name in _NUMBERS}
        self._filled = {name: np.zeros(rows, np.bool_) for name in self._columns}
        self._filled["bytes_read"][:] = True
        self._notes = np.zeros(rows, np.int32)
        self._texts = [""]
        self._file_error = np.zeros(rows, np.bool_)
        self._unsure = np.zeros(rows, np.bool_)

    def is_open(self, rows: Longs) -> NDArray[np.bool_]:
        """Which of the rows have neither an answer nor a note."""
        is_open: NDArray[np.bool_] = ~self.found[rows] & (self._notes[rows] == 0)
        return is_open

    def timestamps(self, rows: Longs) -> Longs:
        return self._columns["timestamp"][rows]

    def offsets(self, rows: Longs) -> Longs:
        return self._columns["offset"][rows]

    def segments(self, rows: Longs) -> Longs:
        """The base offsets of the segments in which the answers are."""
        return self._columns["segment_base_offset"][rows]

    def is_first_batch(self, rows: Longs) -> NDArray[np.bool_]:
        """Which of the rows have the first batch of a segment as their answer."""
        is_first: NDArray[np.bool_] = self._filled["position"][rows] & (self._columns["position"][rows] == 0)
        return is_first

    def batches(self, rows: Longs, segment: int, position: _Long, base_offset: _Long, leader_epoch: _Long) -> None:
        """Set the batches in which the answers are; a leader epoch of −1 is none."""
        self.found[rows] = True
        self._set("segment_base_offset", rows, segment)
        self._set("position", rows, position)
        self._set("batch_base_offset", rows, base_offset)
        self._set_epoch(rows, leader_epoch)

    def records(self, rows: Longs, offset: _Long, timestamp: _Long, leader_epoch: int | None = None) -> None:
        """Set the records, or the offset, of the answers."""
        self.found[rows] = True
        self._set("offset", rows, offset)
        self._set("timestamp", rows, timestamp)
        if leader_epoch is not None:
            self._set_epoch(rows, leader_epoch)

    def add_bytes(self, rows: Longs, bytes_read: _Long) -> None:
        self._columns["bytes_read"][rows] += bytes_read

    @contextlib.contextmanager
    def counting(self, rows: Longs, segment: LogSegment) -> Iterator[None]:
        """Count the bytes of a segment's log that are read within the context."""
        log = segment.log
        before = log.bytes_read if isinstance(log, LogFile) else 0
        yield
        self.add_bytes(rows, log.bytes_read - before if isinstance(log, LogFile) else 0)

    def file_error(self, rows: Longs, text: str | None) -> None:
        if text is not None:
            self.note(rows, text)
            self._file_error[rows] = True

    def unsure(self, rows: Longs, text: str | None) -> None:
        """Add a remark on a file because of which there is no answer, or the answer may be wrong."""
        if text is not None:
            self.file_error(rows, text)
            self._unsure[rows] = True

    def fail(self, rows: Longs, text: str) -> None:
        """Add a remark on a file that ends the search: answers that were found before remain, the others are unsure."""
        self.file_error(rows[self.found[rows]], text)
        self.unsure(rows[~self.found[rows]], text)

    def note(self, rows: Longs, text: str) -> None:
        for code in np.unique(self._notes[rows]).tolist():
            joined = f"{self._texts[code]}; {text}" if code else text
            self._notes[rows[self._notes[rows] == code]] = len(self._texts)
            self._texts.append(joined)

    def to_arrow(self) -> pa.RecordBatch:
        codes = numbers_array(pa.int32(), self._notes, self._notes != 0)
        columns = {
            "found": flags_array(self.found),
            "answered": flags_array(~self._unsure),
            "file_error": flags_array(self._file_error),
            "note": pa.DictionaryArray.from_arrays(codes, strings_array(self._texts)).cast(pa.string()),
        }
        for name, kind in _NUMBERS.items():
            columns[name] = numbers_array(pa.int64(), self._columns[name], self._filled[name]).cast(kind)
        return pa.RecordBatch.from_arrays([columns[name] for name in ANSWER.names], schema=ANSWER)

    def _set(self, column: str, rows: Longs, values: _Long) -> None:
        self._columns[column][rows] = values
        self._filled[column][rows] = True

    def _set_epoch(self, rows: Longs, leader_epoch: _Long) -> None:
        self._columns["leader_epoch"][rows] = leader_epoch
        self._filled["leader_epoch"][rows] = np.not_equal(leader_epoch, layouts.NO_LEADER_EPOCH)


def unanswered(count: int, file_error: str) -> pa.RecordBatch:
    """Rows of `ANSWER` that all have the reason why there is no answer."""
    answers = Answers(count)
    answers.unsure(np.arange(count), file_error)
    return answers.to_arrow()


def rows_by_key(keys: NDArray[Any], rows: Longs) -> Iterator[tuple[int, Longs]]:
    """Group rows of answers by key, both of shape (n,). Keys come in order; rows of one key keep their order."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(rows[order], starts[1:]), strict=True) if len(distinct) else ()


def name_in_notes(segment: LogSegment) -> str:
    """The name of a segment's log in the notes of answers."""
    return segment_files.segment_file(segment.base_offset, segment_files.LOG_SUFFIX)


def note_past_end(segment: LogSegment) -> str | None:
    """The note on answers past the end of a segment's log: why the log may have had more than it has now; None if
    nothing says so.
    """
    torn = segment.torn  # before `truncation`, which is known once `torn` has had to recover the segment
    return segment.truncation or torn


def note_on_not_found(segment: LogSegment, since: int) -> str:
    """The note on answers of a time that a segment has no record of from an offset on: a broker looks no further."""
    if segment.max_timestamp_so_far.timestamp < 0:
        return (
            f"{name_in_notes(segment)} has no timestamps; as its file is of {show_ms(segment.largest_timestamp)}, "
            f"a broker looks there and no further; {_READS_ON}"
        )
    name = name_in_notes(segment)
    return f"{name} has no such record from offset {since} on, and a broker looks no further; {_READS_ON}"


NO_RECORDS: Final = "no records"
#: The note where the answer is a transaction's marker, which consumers do not get.
MARKER: Final = "the marker at the end of a transaction; consumers that begin there get the record after it"
FAR: Final = "after the time that was asked for"
#: Notes on a record far from the time that was asked for: why it is the first, and which command tells more.
_BEGINS: Final = "the log begins there"
_ALL_OLDER: Final = "all records before it are older than that time"
_BETWEEN: Final = (
    "kidx export --times TIME/FOUND reads the logs, and has the records between the two times, if there are any"
)
_READS_ON: Final = "kidx export --times TIME/ reads on"
GAP: Final = "in no log: unless the topic is compacted, a segment is missing"
_LOST: Final = "in no log, and the topic is not compacted: a segment is missing; kidx verify looks for who has it"
HIDDEN: Final = "no consumer gets what the logs have below it"
_HOUR_MS: Final = 3_600_000
#: The units of a distance between times, and the ms of each.
_UNITS: Final = (("year", 365 * 24 * _HOUR_MS), ("day", 24 * _HOUR_MS), ("hour", _HOUR_MS))


def remark_on_times(log: Log, rows: Longs, targets: Longs, answers: Answers) -> None:
    """Add remarks to answers where a record is far from the time that was asked for, and why. `rows` are those that ask
    for times.
    """
    hits = rows[answers.found[rows]]
    timestamps = answers.timestamps(hits)
    is_far = np.maximum(timestamps, 0) - _HOUR_MS > targets[hits]
    if not is_far.any():
        return
    far = hits[is_far]
    distances = np.maximum(timestamps[is_far], 0) - np.maximum(targets[far], 0)
    numbers, units = _in_largest_units(np.maximum(distances, _HOUR_MS))
    for unit, (name, _) in enumerate(_UNITS):
        for number, rows_in in rows_by_key(numbers[units == unit], far[units == unit]):
            answers.note(rows_in, f"{counted(number, name)} {FAR}")
    last = _last_timestamp(log)
    is_later = is_far & (timestamps > last) if last is not None else np.zeros_like(is_far)
    merely_far = hits[is_far & ~is_later]
    is_first = answers.is_first_batch(merely_far) & (answers.segments(merely_far) == log.segments[0].base_offset)
    for rows_in, why in (merely_far[is_first], _BEGINS), (merely_far[~is_first], _ALL_OLDER):
        if len(rows_in):
            answers.note(rows_in, f"{why}; {_BETWEEN}")
    if last is None or not is_later.any():
        return
    by_base_offset = {segment.base_offset: segment for segment in log.segments}
    for base_offset, rows_in in rows_by_key(answers.segments(hits[is_later]), hits[is_later]):
        answers.note(rows_in, _in_the_way(by_base_offset[base_offset], last))


def _in_largest_units(distances: Longs) -> tuple[Longs, Longs]:
    """Distances in whole numbers of the largest unit of `_UNITS` that is not larger, and the number of that unit.
    Distances are in ms, and at least an hour.
    """
    sizes = np.array([size for _, size in _UNITS], np.int64)
    units: Longs = (distances[:, None] < sizes[:-1]).sum(axis=1).astype(np.int64)
    return distances // sizes[units], units


def _in_the_way(segment: LogSegment, last: int) -> str:
    """Why a search by time ends in a segment, though later segments may have earlier records. `last` is the largest
    timestamp at the end of the log.
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
    """The largest timestamp of a log's last batch; None if it cannot be read."""
    for segment in reversed(log.segments):
        timestamp = None
        try:
            start = segment.translate_offset(segment.offset_index.last_offset)
            # Behind the last entry there may be all that was written since a build, or the whole log.
            if start is not None:
                for table in BatchWalk(segment.log, start.position, WantedRecords(), whole=False).tables():
                    timestamp = int(table.rows["max_timestamp"][-1])
        except FILE_ERRORS:
            return None
        finally:
            segment.release()
        if timestamp is not None:
            return timestamp
    return None


def remark_on_gap(log: Log, number: int, rows: Longs, answers: Answers) -> None:
    """Add a remark to answers if offsets between a segment and the one before it are in no log. The answer of `rows` is
    the first batch of the segment with this number.
    """
    if number == 0 or not len(rows):
        _remark_on_lost_start(log, rows, answers)
        return
    before, base_offset = log.segments[number - 1], log.segments[number].base_offset
    try:
        with answers.counting(rows, before):
            end = before.next_offset()
    except FILE_ERRORS:
        return  # a search in that segment tells why
    finally:
        before.release()
    if end < base_offset:
        which = f"offset {end} is" if end + 1 == base_offset else f"offsets {end} to {base_offset - 1} are"
        is_lost = log.of_log_dir.is_compacted() is False
        aside = log.of_log_dir.unloaded_logs_remedy(end, base_offset)
        text = "; ".join(filter(None, (f"{which} {_LOST if is_lost else GAP}", aside)))
        if is_lost:
            answers.file_error(rows, text)
        else:
            answers.note(rows, text)


def remark_on_overlap(log: Log, number: int, rows: Longs, answers: Answers) -> None:
    """Add a remark to answers if the segment with this number may be another partition's. A broker searches it all the
    same.
    """
    if len(rows) and (overlap := log.overlap_at(number)) is not None:
        answers.unsure(rows, f"{name_in_notes(log.segments[number])}: {overlap.why}")


def remark_on_lost_start(log: Log, targets: Longs, answers: Answers) -> None:
    """Add a remark to answers if the offset that is asked for was in a lost log, before the first one."""
    _remark_on_lost_start(log, np.flatnonzero(targets < log.segments[0].base_offset), answers)


def _remark_on_lost_start(log: Log, rows: Longs, answers: Answers) -> None:
    if not len(rows) or (missing := log.of_log_dir.missing_start()) is None:
        return
    first, end = missing.first_offset, log.segments[0].base_offset
    which = f"offsets {first} to {end - 1} were in logs"
    aside = log.of_log_dir.unloaded_logs_remedy(first, end)
    then = "" if aside is None else f"; {aside}"
    if missing.is_lost:
        why = f"{LEADER_EPOCH_CHECKPOINT} begins at {first}, and a broker that deletes logs cuts it"
        answers.file_error(rows, f"{which} that are missing: {why}{then}")
    else:
        where = f"before the first log, where {LEADER_EPOCH_CHECKPOINT} begins"
        answers.note(rows, f"not known: {which} {where}; {IN_BUCKET_OR_LOST}{then}")


def remark_on_start(log: Log, rows: Longs, answers: Answers) -> None:
    """Add a remark to answers if the first segment, where the log starts, is not the one that was recorded, or not the
    first.
    """
    _remark_on_lost_start(log, rows, answers)
    remark_on_overlap(log, 0, rows, answers)
    first = log.segments[0]
    try:
        _ = first.size
        why = _why_start_is_late(log) if len(rows) else None
    except FILE_ERRORS as error:
        why = describe_error(error)
    finally:
        first.release()
    answers.unsure(rows, why)
    remark_on_hidden(log, rows, answers)


def remark_on_hidden(log: Log, rows: Longs, answers: Answers) -> None:
    """Add a remark to answers if an answer is at the log start, or below it, and the logs have more below that."""
    first, start = log.segments[0].base_offset, log.log_start_offset
    if not len(rows) or start <= first:
        return
    try:
        is_late = _why_start_is_late(log) is not None
    except FILE_ERRORS:
        return  # the remark on the end tells it
    if not is_late:
        answers.note(
            rows,
            f"the log start is {start}, by {LOG_START_OFFSET_CHECKPOINT}: {HIDDEN}, from offset {first} on",
        )


def remark_on_end(log: Log, rows: Longs, answers: Answers) -> None:
    """Add a remark to answers if the last segment, which decides where the log ends, is not the one that was recorded,
    or the log ends below the high watermark.
    """
    if not len(rows):
        return
    remark_on_overlap(log, len(log.segments) - 1, rows, answers)
    active = log.segments[-1]
    try:
        _ = active.size  # raises if the file is not the one that was recorded
        missing = note_past_end(active)
    except FILE_ERRORS as error:
        missing = describe_error(error)
    else:
        missing = "; ".join(filter(None, (missing, _why_end_is_early(log), _why_start_is_late(log)))) or None
        _remark_on_unknown_end(log, rows, answers)
    finally:
        active.release()
    answers.unsure(rows, missing)


def _why_start_is_late(log: Log) -> str | None:
    if log.log_start_offset <= log.segments[-1].base_offset or log.log_start_offset <= log.log_end_offset:
        return None
    return (
        f"the log ends at offset {log.log_end_offset}, below the log start {log.log_start_offset} that "
        f"{LOG_START_OFFSET_CHECKPOINT} has: kidx verify says what is wrong"
    )


def _why_end_is_early(log: Log) -> str | None:
    end, high_watermark = log.log_end_offset, log.of_log_dir.high_watermark
    if high_watermark is None or end >= high_watermark:
        return None
    aside = log.of_log_dir.unloaded_logs_remedy(end, high_watermark)
    return (
        f"the log ends at offset {end}, below the high watermark {high_watermark} that {HIGH_WATERMARK_CHECKPOINT} "
        f"has: offsets {end} to {high_watermark - 1} are missing{'' if aside is None else f'; {aside}'}"
    )


def _remark_on_unknown_end(log: Log, rows: Longs, answers: Answers) -> None:
    """Add a remark to answers if a broker's checkpoint does not tell whether the end of the log is missing."""
    if log.of_log_dir.high_watermark is not None or (why := log.of_log_dir.why_no_high_watermark()) is None:
        return
    text = f"{why[0]}: it is not known whether the log ends below its high watermark"
    if why[1]:
        answers.file_error(rows, text)
    else:
        answers.note(rows, text)
