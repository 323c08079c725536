"""Files of questions that are text: CSV, or a JSON object a line. They are read in blocks of columns, or row by row."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from kidxlib.errors import UsageError
from kidxlib.operations.seek.row_check import COLUMNS, Row
from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import ObjectPath, input_file

#: What is read of a file.
QUESTION_COLUMNS: Final = (*COLUMNS, "source")
EXPECTED_COLUMNS: Final = "topic, partition, and offset or timestamp"
JSON_SUFFIXES: Final = (".json", ".jsonl", ".ndjson")
#: Numbered by the line on which each ends.
Rows: TypeAlias = Iterator[tuple[int, Row]]

_BLOCK_BYTES: Final = 4 * 1024 * 1024
#: So many lines of a JSON file tell the kinds of its values.
_LINES_LOOKED_AT: Final = 100


def open_file(place: Location) -> Any:
    """A file of a disk or an object store, as Arrow reads it.

    Raises:
        OSError: it cannot be opened.
    """
    return input_file(place) if isinstance(place, ObjectPath) else place.open("rb")


def ensure_columns(path: str, names: list[str]) -> None:
    """
    Raises:
        UsageError: the columns are not those of questions.
    """
    if not {"topic", "partition"} <= set(names) or not {"offset", "timestamp"} & set(names):
        raise UsageError(f"--queries {path}: columns {', '.join(names) or 'none'}; expected {EXPECTED_COLUMNS}")


def read_blocks(place: Location, *, is_csv: bool) -> Iterator[pa.RecordBatch]:
    """The questions of a regular file, in blocks of columns.

    Raises:
        pa.ArrowInvalid: the file is not so regular that it can be read like this; `read_rows` may read it.
        OSError: it cannot be read.
    """
    yield from _csv_blocks(place) if is_csv else _json_blocks(place)


def read_rows(place: Location, *, is_csv: bool) -> Rows:
    """The questions of any file, as Python's own modules read it.

    Raises:
        UsageError: a line is none of a question, or the columns are not those of questions.
        OSError: it cannot be read.
    """
    yield from _csv_rows(place) if is_csv else _json_rows(place)


def _lines(place: Location) -> io.TextIOWrapper:
    return io.TextIOWrapper(open_file(place), encoding="utf-8-sig", errors="replace", newline="")


def _csv_blocks(place: Location) -> Iterator[pa.RecordBatch]:
    with _lines(place) as lines:
        names = next(csv.reader([lines.readline()]), [])
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=[name for name in QUESTION_COLUMNS if name in names],
        strings_can_be_null=True,
        null_values=[""],
    )
    ensure_columns(str(place), names)
    with (
        open_file(place) as file,
        pa_csv.open_csv(file, pa_csv.ReadOptions(block_size=_BLOCK_BYTES), convert_options=convert) as reader,
    ):
        yield from reader


def _csv_rows(place: Location) -> Rows:
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
                    ensure_columns(path, names)
                else:
                    yield reader.line_num, dict(zip(names, fields, strict=False))
        except csv.Error as error:
            raise UsageError(f"--queries {path}: line {reader.line_num}: {error}") from error
        ensure_columns(path, names or [])


def _json_blocks(place: Location) -> Iterator[pa.RecordBatch]:
    """Each value is a number or a text throughout the file, as it is in the first lines that have it."""
    with _lines(place) as lines:
        kinds = _kinds(itertools.islice(lines, _LINES_LOOKED_AT))
    parse = pa_json.ParseOptions(explicit_schema=pa.schema(kinds), unexpected_field_behavior="ignore")
    with (
        open_file(place) as file,
        pa_json.open_json(file, pa_json.ReadOptions(block_size=_BLOCK_BYTES), parse) as reader,
    ):
        yield from reader


def _kinds(lines: Iterator[str]) -> Mapping[str, pa.DataType]:
    kinds = {name: pa.string() if name in ("topic", "source") else pa.int64() for name in QUESTION_COLUMNS}
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        values = row.items() if isinstance(row, dict) else ()
        kinds |= {name: pa.string() for name, value in values if name in kinds and isinstance(value, str)}
    return kinds


def _json_rows(place: Location) -> Rows:
    with _lines(place) as opened:
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_int=str, parse_float=str)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UsageError(f"--queries {place}: line {number}: no JSON object; expected {EXPECTED_COLUMNS}")
            yield number, {name: None if value is None else str(value) for name, value in row.items()}
