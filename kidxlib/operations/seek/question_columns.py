"""Questions as whole columns: texts and numbers of a file brought into one form, and the first row that is wrong.

Values that are plainly right are taken a column at a time. The few others, as numbers of 19 digits or times in the year
9999, are looked at one by one (`row_check`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.arrow_arrays import numbers_array
from kidxlib.catalog.matching import Flags, Values
from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.operations.seek.row_check import COLUMNS, why_wrong
from kidxlib.text.times import parse_milliseconds

_Longs = NDArray[np.int64]
_NAMES: Final = pa.dictionary(pa.int32(), pa.string())

#: A question, in as few bytes as it has.
QUESTIONS: Final = pa.schema(
    [
        pa.field("topic", _NAMES, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("by_time", pa.int8(), nullable=False),  # 1: the target is a time; 0: it is an offset
        pa.field("target", pa.int64(), nullable=False),
        pa.field("source", _NAMES),
    ]
)

#: What is plainly right.
_NUMBER: Final = "^-?[0-9]{1,18}$"
_LEAP_YEAR: Final = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY: Final = "(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31"
_YEAR: Final = "(000[2-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-8][0-9]{3}|9[0-8][0-9]{2})"
_TIME: Final = (
    rf"^({_YEAR}-({_DAY})|{_LEAP_YEAR}-02-29)[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{{1,6}})?)?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
)
_US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class WrongRow:
    """The first row of a block that is wrong.

    Attributes:
        number: its place in the block, from 0 on.
    """

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class _Column:
    """Whole numbers of a column.

    Attributes:
        values: 0 where there is none.
        is_given, is_plain: whether there is a value, and whether it is in `values` already.
    """

    values: _Longs
    is_given: Flags
    is_plain: Flags


def to_questions(block: pa.RecordBatch) -> pa.RecordBatch | WrongRow:
    """Rows of `QUESTIONS`, or the first row that is wrong.

    Args:
        block: rows with a topic, a partition, an offset or a timestamp, and perhaps a source: texts, or what can be
            written as one.

    Raises:
        pa.ArrowNotImplementedError: a column is neither.
    """
    rows = len(block)
    topic = _filled_text(block, "topic")
    columns = {name: _column(block, name) for name in COLUMNS[1:]}
    partition, offset, timestamp = columns.values()
    has_topic = _flags(topic.is_valid())
    is_plain: Flags = has_topic & partition.is_plain & (partition.values >= 0) & (partition.values <= PARTITION_MAX)
    is_plain &= offset.is_given != timestamp.is_given
    is_plain &= (offset.is_plain | ~offset.is_given) & (timestamp.is_plain | ~timestamp.is_given)
    if (wrong := _take_odd_rows(block, np.flatnonzero(~is_plain), columns)) is not None:
        return wrong
    by_time = timestamp.is_given
    target = np.where(by_time, timestamp.values, offset.values)
    everywhere = np.ones(rows, np.bool_)
    return pa.RecordBatch.from_arrays(
        [
            topic.dictionary_encode(),
            numbers_array(pa.int32(), partition.values.astype(np.int32), everywhere),
            numbers_array(pa.int8(), by_time.astype(np.int8), everywhere),
            numbers_array(pa.int64(), target, everywhere),
            _filled_text(block, "source").dictionary_encode(),
        ],
        schema=QUESTIONS,
    )


def _take_odd_rows(block: pa.RecordBatch, odd: _Longs, columns: dict[str, _Column]) -> WrongRow | None:
    """Look at rows one by one, and put the values of the right ones into the columns; the first that is wrong."""
    if not len(odd):
        return None
    names = [name for name in COLUMNS if name in block.schema.names]
    for number, values in zip(odd.tolist(), block.select(names).take(odd).to_pylist(), strict=True):
        row = {name: None if value is None else str(value).strip(" ") for name, value in values.items()}
        if (why := why_wrong(row)) is not None:
            return WrongRow(number, why)
        for name, column in columns.items():
            if row.get(name):
                column.values[number] = parse_milliseconds(str(row[name]))  # of a number that is the number
    return None


def _column(block: pa.RecordBatch, name: str) -> _Column:
    if name not in block.schema.names:
        nowhere = np.zeros(len(block), np.bool_)
        return _Column(np.zeros(len(block), np.int64), nowhere, nowhere)
    column: Values = block.column(name)
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        is_given = _flags(column.is_valid())
        return _Column(_numbers(column), is_given, is_given)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        is_given = _flags(column.is_valid())
        return _Column(_first_milliseconds(column), is_given, is_given)
    text = _filled_text(block, name)
    is_given = _flags(text.is_valid())
    is_number = _matches(text, _NUMBER)
    # A float is written with a point here and without one there, and is not exact where offsets are large.
    is_plain = np.zeros(len(text), np.bool_) if pa.types.is_floating(column.type) else _flags(is_number)
    values = _numbers(pc.if_else(is_number, text, pa.scalar(None, pa.string())).cast(pa.int64()))
    if name == "timestamp" and not is_plain.all():
        is_time = _matches(text, _TIME)
        where = np.flatnonzero(_flags(is_time))
        values[where] = _first_milliseconds(text.filter(is_time).cast(pa.timestamp("us", "UTC")))
        is_plain[where] = True
    return _Column(values, is_given, is_plain)


def _filled_text(block: pa.RecordBatch, name: str) -> Values:
    """The texts of a column without spaces around them; null where nothing else is there."""
    if name not in block.schema.names:
        return pa.nulls(len(block), pa.string())
    column: Values = block.column(name)
    text: Values = pc.utf8_trim(column.cast(pa.string()), " ")
    return pc.if_else(pc.equal(text, pa.scalar("")), pa.scalar(None, pa.string()), text)


def _first_milliseconds(moments: Values) -> _Longs:
    """The first full millisecond since the epoch that is not before each moment; 0 of a null."""
    ticks = _numbers(moments.cast(pa.int64()))
    match moments.type.unit:
        case "s":
            return ticks * _US_PER_MS
        case "ms":
            return ticks
        case "us":
            return -(-ticks // _US_PER_MS)
        case _:
            return -(-ticks // _US_PER_MS**2)


def _numbers(column: Values) -> _Longs:
    numbers: Values = np.from_dlpack(column.cast(pa.int64()).fill_null(0))
    copied: _Longs = numbers.copy()
    return copied


def _flags(column: Values) -> Flags:
    found: Flags = np.from_dlpack(column.cast(pa.uint8())).astype(np.bool_)
    return found


def _matches(text: Values, pattern: str) -> Values:
    found: Values = pc.match_substring_regex(text, pattern)
    return found.fill_null(False)
