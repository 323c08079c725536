"""The files of seeks: questions are read, and answers are written. The name of a file, or of a table, says where it is
and in which format.

Questions, of a file, a table or a place that only an engine reaches, are checked and brought into one form before
anything else is done. The first row that is wrong is named. Text is CSV, or a JSON object a line. Values that are
plainly right are taken a column at a time. The few others, as numbers of 19 digits or times in the year 9999, are
looked at one by one. Lines of answers are made a column at a time, too.
"""

from __future__ import annotations

import contextlib
import csv
import enum
import io
import itertools
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from kidxlib.catalog.matching import Flags, Longs, Values
from kidxlib.errors import CatalogError, KidxError, NoDeltaTableError, NotReadHereError, UsageError, describe_error
from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.backend import Backend
from kidxlib.operations.seek.answer_work import RESULT
from kidxlib.records.arrow_columns import numbers_array
from kidxlib.storage.location import Location, ensure_text, location, not_packed
from kidxlib.storage.store.s3 import ObjectPath, input_file, is_object, object_written
from kidxlib.terminal.options import needing_packages
from kidxlib.text.times import parse_milliseconds

EXPECTED: Final = "expected a file called .csv, .json or .parquet, or a Delta table"
#: So many rows that are read one by one are brought into columns at a time.
_ROWS_AT_ONCE: Final = 10_000

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp")

_Row: TypeAlias = Mapping[str, str | None]
_LONG: Final = re.compile(r"-?[0-9]{1,19}")
#: Narrower than what an option takes: a file of these alone means the same to every reader.
_MOMENT: Final = re.compile(
    r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-]([0-9]{2}):[0-9]{2})"
)
_ZONE_HOURS_MAX: Final = 18  # as in Java, and so in Kafka's own tools
_A_TIME: Final = "ISO 8601 with a zone (2026-11-20T10:00Z) or milliseconds since the epoch"

QUESTION_COLUMNS: Final = (*_COLUMNS, "source")
_EXPECTED_COLUMNS: Final = "topic, partition, and offset or timestamp"
JSON_SUFFIXES: Final = (".json", ".jsonl", ".ndjson")
#: Each row with the number of the line on which it ends.
_Rows: TypeAlias = Iterator[tuple[int, _Row]]

_BLOCK_BYTES: Final = 4 * 1024 * 1024
#: The first so many lines of a JSON file tell the types of its values.
_LINES_LOOKED_AT: Final = 100

_TEXTS: Final = pa.schema([(name, pa.string()) for name in QUESTION_COLUMNS])
_INT96: Final = "INT96"

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

#: Texts that are plainly right match these.
_NUMBER: Final = "^-?[0-9]{1,18}$"
_LEAP_YEAR: Final = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY: Final = "(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31"
_YEAR: Final = "(000[2-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-8][0-9]{3}|9[0-8][0-9]{2})"
_TIME: Final = (
    rf"^({_YEAR}-({_DAY})|{_LEAP_YEAR}-02-29)[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{{1,6}})?)?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
)
_US_PER_MS: Final = 1000

WRITTEN: Final = pa.schema([RESULT.field(name) for name in RESULT_COLUMNS])

#: Each Parquet file has about so many rows.
_ROWS_PER_FILE: Final = 1_000_000

CSV_HEAD: Final = ",".join(RESULT_COLUMNS).encode() + b"\n"

#: A field of CSV with one of these is quoted.
_SPECIAL: Final = ('"', ",", "\n", "\r")


class SeekFilesElsewhere(Protocol):
    """Files of questions and answers that only an engine reaches."""

    def read(self, backend: Backend, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file or a table of questions, with all its columns, in any order; one batch at least."""

    def ensure_new(self, backend: Backend, path: str) -> None:
        """Refuse an output that exists: answers never replace a file."""

    def write(self, backend: Backend, answers: Iterator[pa.RecordBatch], path: str) -> None:
        """Write rows of `RESULT`, in order and without `file_error`, in the format that the name says."""


def is_elsewhere(path: str) -> bool:
    """Whether a file of questions or answers lies neither on this machine nor in an S3 store."""
    return "://" in path and not is_object(path)


def not_reached(option: str, path: str) -> UsageError:
    """The error of a seek without Spark that does not reach a file of questions or answers."""
    return UsageError(
        f"{option} {path}: kidx reaches files of this machine and s3://<bucket>/<key>; "
        "use ./spark-submit.sh seek for what Spark reaches"
    )


def read_questions(path: str) -> pa.Table:
    """Rows of `QUESTIONS`, one at least, of a file, of the files in a directory, or of a Delta table, in their order.
    `path` is absolute, or a URL.
    """
    if is_elsewhere(path):
        raise NotReadHereError(str(not_reached("--queries", path)))
    suffix = PurePosixPath(path).suffix
    blocks: Iterator[pa.RecordBatch]
    try:
        if suffix == ".csv" or suffix in JSON_SUFFIXES:
            blocks = itertools.chain.from_iterable(_of_text(file, is_csv=suffix == ".csv") for file in _files(path))
        elif suffix == ".parquet":
            blocks = itertools.chain.from_iterable(map(_of_parquet, _files(path)))
        else:
            blocks = questions_of_blocks(path, _delta_blocks(path), None)
        return questions_in_one_table(path, blocks)
    except FileNotFoundError as error:
        raise UsageError(f"--queries {path}: Path does not exist; {EXPECTED}") from error
    except OSError as error:
        raise UsageError(f"--queries {describe_error(error)}") from error


def write_answers(answers: Iterable[pa.RecordBatch], path: str) -> None:
    """Write rows of `RESULT`, without `file_error`, in their order. The output appears as a whole."""
    try:
        match AnswerFormat.of_path(path):
            case AnswerFormat.CSV:
                _write_text(location(path), CSV_HEAD, map(csv_lines, answers))
            case AnswerFormat.JSON:
                _write_text(location(path), b"", map(answers_as_json_lines, answers))
            case AnswerFormat.PARQUET:
                _write_parquet(location(path), answers)
            case AnswerFormat.DELTA:
                from kidxlib.tables.delta_tables import write_delta

                write_delta(path, (answer.select(RESULT_COLUMNS) for answer in answers), WRITTEN)
    except OSError as error:
        raise KidxError(f"--output {path}: cannot be written: {describe_error(error)}") from error


class AnswerFormat(enum.Enum):
    """The formats, by the end of a name: one file of text, a directory of Parquet files, or a Delta table."""

    CSV = ".csv"
    JSON = ".json"
    PARQUET = ".parquet"
    DELTA = ""

    @classmethod
    def of_path(cls, path: str) -> AnswerFormat:
        try:
            return cls(PurePosixPath(path).suffix)
        except ValueError as error:
            raise UsageError(
                f"--output {path}: expected a name that ends in .csv, .json or .parquet, or without a dot for a Delta "
                "table"
            ) from error


def ensure_new_output(path: str) -> None:
    """Refuse an output that exists: answers never replace a file."""
    place = location(path)
    try:
        exists = place.exists() if isinstance(place, ObjectPath) else os.path.lexists(place)
    except OSError as error:
        raise UsageError(f"--output {describe_error(error)}") from error
    if exists:
        raise output_exists(path)
    if isinstance(place, Path):
        above = place.absolute().parent
        if not os.path.lexists(above):
            raise UsageError(f"--output {path}: no directory {above}; expected one that is there")
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise UsageError(
                f"--output {path}: {above} is no directory that this user can write in; name another place"
            )


def output_exists(path: str) -> UsageError:
    """The error of a seek whose output exists."""
    return UsageError(f"--output {path}: it is there already; expected a new name")


def why_wrong(row: _Row) -> str | None:
    """What is wrong with a question in a row of a file, if anything. Spaces around a value do not count."""
    values = {name: (row.get(name) or "").strip(" ") for name in _COLUMNS}
    topic, partition, offset, timestamp = (values[name] for name in _COLUMNS)
    of = f"{topic}-{partition}, " if partition.isascii() and partition.isdigit() else ""
    if not topic:
        return "a row without a topic"
    if (number := _whole(partition)) is None or not 0 <= number <= PARTITION_MAX:
        return f"partition {partition or 'missing'}, expected a whole number from 0 on"
    if offset and timestamp:
        return f"{of}a row with an offset and a timestamp"
    if not offset and not timestamp:
        return f"{of}a row without an offset and a timestamp"
    if offset and _whole(offset) is None:
        return f"{of}offset {offset}, expected a whole number"
    if timestamp and _whole(timestamp) is None and not _is_moment(timestamp):
        return f"{of}timestamp {timestamp}, expected {_A_TIME}"
    return None


def _whole(text: str) -> int | None:
    if not _LONG.fullmatch(text):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def _is_moment(text: str) -> bool:
    match = _MOMENT.fullmatch(text)
    if match is None or int(match[4] or 0) > _ZONE_HOURS_MAX:
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class WrongRow:
    """The first row of a block that is wrong; `number` counts from 0 on."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class _Column:
    """Whole numbers of a column.

    Attributes:
        values: 0 where there is none.
        is_given: there is a value.
        is_plain: the value is plainly right, and in `values` already.
    """

    values: Longs
    is_given: Flags
    is_plain: Flags


def to_questions(block: pa.RecordBatch) -> pa.RecordBatch | WrongRow:
    """Rows of `QUESTIONS`, or the first row that is wrong. The columns of `block` are texts, or can be cast to text."""
    topic = _filled_text(block, "topic")
    columns = {name: _column(block, name) for name in _COLUMNS[1:]}
    partition, offset, timestamp = columns.values()
    has_topic = _flags(topic.is_valid())
    is_plain: Flags = has_topic & partition.is_plain & (partition.values >= 0) & (partition.values <= PARTITION_MAX)
    is_plain &= offset.is_given != timestamp.is_given
    is_plain &= (offset.is_plain | ~offset.is_given) & (timestamp.is_plain | ~timestamp.is_given)
    if (wrong := _take_odd_rows(block, np.flatnonzero(~is_plain), columns)) is not None:
        return wrong
    by_time = timestamp.is_given
    target = np.where(by_time, timestamp.values, offset.values)
    return pa.RecordBatch.from_arrays(
        [
            topic.dictionary_encode(),
            numbers_array(pa.int32(), partition.values),
            numbers_array(pa.int8(), by_time),
            numbers_array(pa.int64(), target),
            _filled_text(block, "source").dictionary_encode(),
        ],
        schema=QUESTIONS,
    )


def _take_odd_rows(block: pa.RecordBatch, odd: Longs, columns: dict[str, _Column]) -> WrongRow | None:
    """Look at rows one by one, and put their values into the columns. Returns the first that is wrong, if any."""
    if not len(odd):
        return None
    names = [name for name in _COLUMNS if name in block.schema.names]
    for number, values in zip(odd.tolist(), block.select(names).take(odd).to_pylist(), strict=True):
        row = {name: None if value is None else str(value).strip(" ") for name, value in values.items()}
        if (why := why_wrong(row)) is not None:
            return WrongRow(number, why)
        for name, column in columns.items():
            if row.get(name):
                column.values[number] = parse_milliseconds(str(row[name]))  # a number stays as it is
    return None


def _column(block: pa.RecordBatch, name: str) -> _Column:
    if name not in block.schema.names:
        none = np.zeros(len(block), np.bool_)
        return _Column(np.zeros(len(block), np.int64), none, none)
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
    # Readers write a float with a point or without one, and it is not exact where offsets are large.
    is_plain = np.zeros(len(text), np.bool_) if pa.types.is_floating(column.type) else _flags(is_number)
    values = _numbers(pc.if_else(is_number, text, pa.scalar(None, pa.string())).cast(pa.int64()))
    if name == "timestamp" and not is_plain.all():
        is_time = _matches(text, _TIME)
        where = np.flatnonzero(_flags(is_time))
        values[where] = _first_milliseconds(text.filter(is_time).cast(pa.timestamp("us", "UTC")))
        is_plain[where] = True
    return _Column(values, is_given, is_plain)


def _filled_text(block: pa.RecordBatch, name: str) -> Values:
    """The texts of a column without spaces around them; null where no other character is left."""
    if name not in block.schema.names:
        return pa.nulls(len(block), pa.string())
    column: Values = block.column(name)
    text: Values = pc.utf8_trim(column.cast(pa.string()), " ")
    return pc.if_else(pc.equal(text, pa.scalar("")), pa.scalar(None, pa.string()), text)


def _first_milliseconds(moments: Values) -> Longs:
    """The first full millisecond since the epoch that is not before each moment; 0 for a null."""
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


def _numbers(column: Values) -> Longs:
    numbers: Values = np.from_dlpack(column.cast(pa.int64()).fill_null(0))
    copied: Longs = numbers.copy()
    return copied


def _flags(column: Values) -> Flags:
    flags: Flags = np.from_dlpack(column.cast(pa.uint8())).astype(np.bool_)
    return flags


def _matches(text: Values, pattern: str) -> Values:
    matches: Values = pc.match_substring_regex(text, pattern)
    return matches.fill_null(False)


def _open_file(place: Location) -> Any:
    place = not_packed(place)
    return input_file(place) if isinstance(place, ObjectPath) else place.open("rb")


def _ensure_columns(path: str, names: list[str]) -> None:
    if not {"topic", "partition"} <= set(names) or not {"offset", "timestamp"} & set(names):
        raise UsageError(f"--queries {path}: columns {', '.join(names) or 'none'}; expected {_EXPECTED_COLUMNS}")


def _lines(place: Location) -> io.TextIOWrapper:
    return io.TextIOWrapper(_open_file(place), encoding="utf-8-sig", errors="replace", newline="")


def _csv_blocks(place: Location) -> Iterator[pa.RecordBatch]:
    with _lines(place) as lines:
        names = next(csv.reader([lines.readline()]), [])
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=[name for name in QUESTION_COLUMNS if name in names],
        strings_can_be_null=True,
        null_values=[""],
    )
    _ensure_columns(str(place), names)
    with (
        _open_file(place) as file,
        pa_csv.open_csv(file, pa_csv.ReadOptions(block_size=_BLOCK_BYTES), convert_options=convert) as reader,
    ):
        yield from reader


def _csv_rows(place: Location) -> _Rows:
    path = str(place)
    with _lines(place) as opened:
        reader = csv.reader(opened)
        names: list[str] | None = None
        try:
            for fields in reader:
                if not any(field.strip() for field in fields) and len(fields) <= 1:
                    continue  # a line of spaces
                if names is None:
                    names = fields
                    _ensure_columns(path, names)
                else:
                    yield reader.line_num, dict(zip(names, fields, strict=False))
        except csv.Error as error:
            raise UsageError(f"--queries {path}: line {reader.line_num}: {error}") from error
        _ensure_columns(path, names or [])


def _json_blocks(place: Location) -> Iterator[pa.RecordBatch]:
    """The blocks of a file in which each value has one type, number or text, as in the first lines that have it."""
    with _lines(place) as lines:
        types = _types(itertools.islice(lines, _LINES_LOOKED_AT))
    parse = pa_json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")
    with (
        _open_file(place) as file,
        pa_json.open_json(file, pa_json.ReadOptions(block_size=_BLOCK_BYTES), parse) as reader,
    ):
        yield from reader


def _types(lines: Iterator[str]) -> Mapping[str, pa.DataType]:
    types = {name: pa.string() if name in ("topic", "source") else pa.int64() for name in QUESTION_COLUMNS}
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        values = row.items() if isinstance(row, dict) else ()
        types |= {name: pa.string() for name, value in values if name in types and isinstance(value, str)}
    return types


def _json_rows(place: Location) -> _Rows:
    with _lines(place) as opened:
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_int=str, parse_float=str)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UsageError(f"--queries {place}: line {number}: no JSON object; expected {_EXPECTED_COLUMNS}")
            yield number, {name: None if value is None else str(value) for name, value in row.items()}


def questions_of_blocks(path: str, blocks: Iterable[pa.RecordBatch], unit: str | None) -> Iterator[pa.RecordBatch]:
    """The questions of blocks that are no texts of a file. A message names a wrong row by `unit` and its number; `unit`
    is None where rows have no order.
    """
    before = 0
    for block in blocks:
        _ensure_columns(path, block.schema.names)
        columns = block.select([name for name in QUESTION_COLUMNS if name in block.schema.names])
        try:
            questions = to_questions(columns)
        except pa.ArrowNotImplementedError as error:
            types = ", ".join(f"{field.name} {field.type}" for field in columns.schema)
            raise UsageError(f"--queries {path}: columns {types}; expected numbers, texts and times") from error
        if isinstance(questions, WrongRow):
            raise _wrong(path, questions.why, unit, before + questions.number + 1)
        yield questions
        before += len(block)


def questions_in_one_table(path: str, blocks: Iterable[pa.RecordBatch]) -> pa.Table:
    questions = pa.Table.from_batches(list(blocks), QUESTIONS)
    if not questions.num_rows:
        raise UsageError(f"--queries {path}: no row in it; expected one question or more")
    return questions.unify_dictionaries()


def _delta_blocks(path: str) -> Iterator[pa.RecordBatch]:
    with needing_packages("--queries"):
        from kidxlib.tables.delta_tables import read_delta
    ensure_text("--queries ", path)
    try:
        yield from read_delta(path)
    except NoDeltaTableError as error:
        raise UsageError(f"--queries {error}; {EXPECTED}") from error
    except CatalogError as error:
        raise NotReadHereError(f"--queries {error}; {EXPECTED}") from error


def _files(path: str) -> list[Location]:
    """The file, or those in a directory, as Spark and others write one."""
    place = location(path)
    if place.is_file():
        return [place]
    files = (file for file in place.iterdir() if not file.name.startswith((".", "_")))
    return sorted((file for file in files if file.is_file()), key=lambda file: file.name)


def _of_text(place: Location, *, is_csv: bool) -> Iterator[pa.RecordBatch]:
    """The questions of a text, in blocks; row by row, as Python's own modules read it, if Arrow cannot, or if a row is
    wrong.
    """
    read_blocks, read_rows = (_csv_blocks, _csv_rows) if is_csv else (_json_blocks, _json_rows)
    count = 0
    questions: list[pa.RecordBatch] = []
    try:
        for block in read_blocks(place):
            of_block = to_questions(block)
            if isinstance(of_block, WrongRow):
                _ensure_right(place, itertools.islice(read_rows(place), count + of_block.number, None))
                break
            questions.append(of_block)
            count += len(block)
        else:
            if count:
                yield from questions
                return
    except pa.ArrowInvalid:
        pass
    # There are quoted line breaks, rows of another length or texts amid numbers.
    yield from _of_rows(place, read_rows(place))


def _ensure_right(place: Location, rows: _Rows) -> None:
    for number, row in itertools.islice(rows, 1):
        if (why := why_wrong(row)) is not None:
            raise _wrong(str(place), why, "line", number)


def _of_rows(place: Location, rows: _Rows) -> Iterator[pa.RecordBatch]:
    while numbered := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        questions = to_questions(pa.RecordBatch.from_pylist([dict(row) for _, row in numbered], _TEXTS))
        if isinstance(questions, WrongRow):
            raise _wrong(str(place), questions.why, "line", numbered[questions.number][0])
        yield questions


def _of_parquet(place: Location) -> Iterator[pa.RecordBatch]:
    path = str(place)
    with _open_file(place) as opened:
        try:
            file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
        except pa.ArrowInvalid as error:
            raise UsageError(f"--queries {path}: {' '.join(str(error).split())}; {EXPECTED}") from error
        names = file.schema_arrow.names
        _ensure_columns(path, names)
        blocks = file.iter_batches(columns=[name for name in QUESTION_COLUMNS if name in names])
        yield from questions_of_blocks(path, map(_with_zone, blocks) if _has_int96(file) else blocks, "row")


def _has_int96(file: pq.ParquetFile) -> bool:
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    return any(column.name == "timestamp" and column.physical_type == _INT96 for column in columns)


def _with_zone(block: pa.RecordBatch) -> pa.RecordBatch:
    """The block with times in UTC: Spark's older format of times does not say that they are."""
    zoned = pa.schema(
        [field.with_type(pa.timestamp("us", "UTC")) if field.name == "timestamp" else field for field in block.schema]
    )
    return block.cast(zoned)


def _wrong(path: str, why: str, unit: str | None, number: int) -> UsageError:
    where = "" if unit is None else f"{unit} {number}: "
    return UsageError(f"--queries {path}: {where}{why}; nothing was answered")


def csv_lines(answers: pa.RecordBatch) -> bytes:
    """A line of CSV for each answer; null is an empty field."""
    return _joined([_text(answers.column(name), _csv_field) for name in RESULT_COLUMNS], "\n")


def answers_as_json_lines(answers: pa.RecordBatch) -> bytes:
    """A JSON object for each answer, a line each."""
    columns: list[Values] = []
    for number, name in enumerate(RESULT_COLUMNS):
        text: Values = _text(answers.column(name), partial(json.dumps, ensure_ascii=False)).fill_null("null")
        columns.append(pc.binary_join_element_wise("{" if number == 0 else "", f'"{name}":', text, ""))
    return _joined(columns, "}\n")


def _text(column: Values, form: Callable[[str], str]) -> Values:
    """A column as text. A text that many rows share is formatted once."""
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    words = column.dictionary_encode()
    formed = pa.array(list(map(form, words.dictionary.to_pylist())), pa.string())
    return formed.take(words.indices)


def _csv_field(text: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(special in text for special in _SPECIAL) else text


def _joined(columns: list[Values], end: str) -> bytes:
    """Lines of fields with commas between them; null is an empty field."""
    options = pc.JoinOptions("replace", "")
    last: Values = pc.call_function("binary_join_element_wise", [columns[-1], end, ""], options)
    lines: Values = pc.call_function("binary_join_element_wise", [*columns[:-1], last, ","], options)
    _, ends, text = lines.buffers()
    return b"" if text is None else text.to_pybytes()[: np.frombuffer(ends, np.int32)[len(lines)]]


def _write_text(place: Location, head: bytes, lines: Iterable[bytes]) -> None:
    with _appearing(place) as part, _sink(part) as sink:
        sink.write(head)
        for some in lines:
            sink.write(some)


def _write_parquet(place: Location, answers: Iterable[pa.RecordBatch]) -> None:
    with _appearing(place) as directory:
        if isinstance(directory, Path):
            directory.mkdir(parents=True)
        number, rows = 0, 0
        with contextlib.ExitStack() as stack:
            writer = None
            for batch in answers:
                if writer is None or rows >= _ROWS_PER_FILE:
                    stack.close()
                    sink = stack.enter_context(_sink(directory / f"part-{number:05}.parquet"))
                    writer = stack.enter_context(pq.ParquetWriter(sink, WRITTEN))
                    number, rows = number + 1, 0
                writer.write_batch(batch.select(RESULT_COLUMNS))
                rows += len(batch)


@contextlib.contextmanager
def _appearing(place: Location) -> Iterator[Location]:
    """A temporary path, renamed at the end. An object needs none: it appears only once it is complete."""
    place = not_packed(place)
    if isinstance(place, ObjectPath):
        yield place
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.kidx-{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield part
        if os.path.lexists(place):
            raise output_exists(str(place))
        part.rename(place)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _sink(place: Location) -> Iterator[Any]:
    """Open a new file. An object that is not written to its end never appears."""
    place = not_packed(place)
    if isinstance(place, ObjectPath):
        with object_written(place) as sink:
            yield sink
        return
    with place.open("xb") as file:
        yield file
