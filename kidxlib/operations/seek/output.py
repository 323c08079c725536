"""Writes answers. The name of the output says where, and in which format. Lines of text are made a column at a time."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kidxlib.catalog.matching import Values
from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek.answer_work import RESULT
from kidxlib.storage.location import Location, location, not_packed
from kidxlib.storage.store.s3 import ObjectPath, object_written

WRITTEN: Final = pa.schema([RESULT.field(name) for name in RESULT_COLUMNS])
#: Each Parquet file has about so many rows.
_ROWS_PER_FILE: Final = 1_000_000

CSV_HEAD: Final = ",".join(RESULT_COLUMNS).encode() + b"\n"
#: A field of CSV with one of these is quoted.
_SPECIAL: Final = ('"', ",", "\n", "\r")


def ensure_new(path: str) -> None:
    """Refuse an output that exists: answers never replace a file."""
    place = location(path)
    try:
        exists = place.exists() if isinstance(place, ObjectPath) else os.path.lexists(place)
    except OSError as error:
        raise UsageError(f"--output {describe_error(error)}") from error
    if exists:
        raise there_already(path)
    if isinstance(place, Path):
        above = place.absolute().parent
        if not os.path.lexists(above):
            raise UsageError(f"--output {path}: no directory {above}; expected one that is there")
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise UsageError(
                f"--output {path}: {above} is no directory that this user can write in; name another place"
            )


def there_already(path: str) -> UsageError:
    return UsageError(f"--output {path}: it is there already; expected a new name")


def csv_lines(answers: pa.RecordBatch) -> bytes:
    """A line of CSV for each answer; null is an empty field."""
    columns = [_text(answers.column(name), _csv_field) for name in RESULT_COLUMNS]
    return _joined(columns, ",", "", "\n")


def json_lines(answers: pa.RecordBatch) -> bytes:
    """A JSON object for each answer, a line each."""
    columns: list[Values] = []
    for number, name in enumerate(RESULT_COLUMNS):
        text: Values = _text(answers.column(name), _json_text).fill_null("null")
        columns.append(pc.binary_join_element_wise("{" if number == 0 else "", f'"{name}":', text, ""))
    return _joined(columns, ",", "null", "}\n")


def _text(column: Values, form: Callable[[str], str]) -> Values:
    """A column as text. A text that many rows share is formatted once."""
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    words = column.dictionary_encode()
    formed = pa.array(list(map(form, words.dictionary.to_pylist())), pa.string())
    return formed.take(words.indices)


def _csv_field(text: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(special in text for special in _SPECIAL) else text


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _joined(columns: list[Values], between: str, null: str, end: str) -> bytes:
    options = pc.JoinOptions("replace", null)
    last: Values = pc.call_function("binary_join_element_wise", [columns[-1], end, ""], options)
    lines: Values = pc.call_function("binary_join_element_wise", [*columns[:-1], last, between], options)
    _, ends, text = lines.buffers()
    return b"" if text is None else text.to_pybytes()[: np.frombuffer(ends, np.int32)[len(lines)]]


class Format(enum.Enum):
    """The formats, by the end of a name: one file of text, a directory of Parquet files, or a Delta table."""

    CSV = ".csv"
    JSON = ".json"
    PARQUET = ".parquet"
    DELTA = ""

    @classmethod
    def of_path(cls, path: str) -> Format:
        try:
            return cls(PurePosixPath(path).suffix)
        except ValueError as error:
            raise UsageError(
                f"--output {path}: expected a name that ends in .csv, .json or .parquet, or without a dot for a Delta "
                "table"
            ) from error


def write_answers(answers: Iterable[pa.RecordBatch], path: str) -> None:
    """Write rows of `RESULT`, without `file_error`, in their order. The output appears as a whole."""
    try:
        match Format.of_path(path):
            case Format.CSV:
                _write_text(location(path), CSV_HEAD, map(csv_lines, answers))
            case Format.JSON:
                _write_text(location(path), b"", map(json_lines, answers))
            case Format.PARQUET:
                _write_parquet(location(path), answers)
            case Format.DELTA:
                from kidxlib.tables.delta_tables import write_delta

                write_delta(path, (answer.select(RESULT_COLUMNS) for answer in answers), WRITTEN)
    except OSError as error:
        raise KidxError(f"--output {path}: cannot be written: {describe_error(error)}") from error


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
            raise there_already(str(place))
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
