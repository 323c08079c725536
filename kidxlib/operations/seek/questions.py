"""Questions of a file: read, checked and brought into one form, before anything else is done."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.errors import CatalogError, NoDeltaTableError, NotReadHereError, UsageError, describe_error
from kidxlib.operations.seek.elsewhere import is_elsewhere, not_reached
from kidxlib.operations.seek.question_columns import QUESTIONS, WrongRow, to_questions
from kidxlib.operations.seek.row_check import why_wrong
from kidxlib.operations.seek.text_file import (
    JSON_SUFFIXES,
    QUESTION_COLUMNS,
    Rows,
    ensure_columns,
    open_file,
    read_blocks,
    read_rows,
)
from kidxlib.storage.location import Location, ensure_text, location
from kidxlib.terminal.extras import needing_packages

#: What may be asked from.
EXPECTED: Final = "expected a file called .csv, .json or .parquet, or a Delta table"
#: Rows that are read one by one are looked at so many at a time.
_ROWS_AT_ONCE: Final = 10_000
_TEXTS: Final = pa.schema([(name, pa.string()) for name in QUESTION_COLUMNS])
_INT96: Final = "INT96"


def read_questions(path: str) -> pa.Table:
    """The questions of a file, of the files in a directory, or of a Delta table.

    Args:
        path: of this machine, absolute, or a URL.

    Returns:
        Rows of `QUESTIONS` in the order of the file, one at least.

    Raises:
        NotReadHereError: it is a URL of a store other than S3, or a Delta table of a kind that delta-rs does not read.
        UsageError: a row is wrong, or the columns are not those of questions; or nothing can be read there.
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
            blocks = of_blocks(path, _delta_blocks(path), None)
        return one_table(path, blocks)
    except FileNotFoundError as error:
        raise UsageError(f"--queries {path}: Path does not exist; {EXPECTED}") from error
    except OSError as error:
        raise UsageError(f"--queries {describe_error(error)}") from error


def of_blocks(path: str, blocks: Iterable[pa.RecordBatch], unit: str | None) -> Iterator[pa.RecordBatch]:
    """Questions of blocks of columns that are no texts of a file.

    Args:
        unit: what a wrong row is named by, with its number; None where rows have no order.

    Raises:
        UsageError: as `read_questions`.
    """
    before = 0
    for block in blocks:
        ensure_columns(path, block.schema.names)
        columns = block.select([name for name in QUESTION_COLUMNS if name in block.schema.names])
        try:
            questions = to_questions(columns)
        except pa.ArrowNotImplementedError as error:
            kinds = ", ".join(f"{field.name} {field.type}" for field in columns.schema)
            raise UsageError(f"--queries {path}: columns {kinds}; expected numbers, texts and times") from error
        if isinstance(questions, WrongRow):
            raise _wrong(path, questions.why, unit, before + questions.number + 1)
        yield questions
        before += len(block)


def one_table(path: str, blocks: Iterable[pa.RecordBatch]) -> pa.Table:
    """
    Raises:
        UsageError: there is no row.
    """
    questions = pa.Table.from_batches(list(blocks), QUESTIONS)
    if not questions.num_rows:
        raise UsageError(f"--queries {path}: no row in it; expected one question or more")
    return questions.unify_dictionaries()


def _delta_blocks(path: str) -> Iterator[pa.RecordBatch]:
    with needing_packages("--queries"):
        from kidxlib.tables.delta_file import read_delta
    ensure_text("--queries ", path)
    try:
        yield from read_delta(path)
    except NoDeltaTableError as error:
        raise UsageError(f"--queries {error}; {EXPECTED}") from error
    except CatalogError as error:
        raise NotReadHereError(f"--queries {error}; {EXPECTED}") from error


def _files(path: str) -> list[Location]:
    """A file, or those in a directory, as Spark and others write one.

    Raises:
        OSError: there is none.
    """
    place = location(path)
    if place.is_file():
        return [place]
    files = (file for file in place.iterdir() if not file.name.startswith((".", "_")))
    return sorted((file for file in files if file.is_file()), key=lambda file: file.name)


def _of_text(place: Location, *, is_csv: bool) -> Iterator[pa.RecordBatch]:
    """Questions of a text, in blocks; of one that is not regular, or not right, row by row."""
    count = 0
    questions: list[pa.RecordBatch] = []
    try:
        for block in read_blocks(place, is_csv=is_csv):
            found = to_questions(block)
            if isinstance(found, WrongRow):
                _ensure_right(place, itertools.islice(read_rows(place, is_csv=is_csv), count + found.number, None))
                break
            questions.append(found)
            count += len(block)
        else:
            if count:
                yield from questions
                return
    except pa.ArrowInvalid:
        pass
    # There are quoted line breaks, rows of another length or texts amid numbers.
    yield from _of_rows(place, read_rows(place, is_csv=is_csv))


def _ensure_right(place: Location, rows: Rows) -> None:
    """
    Raises:
        UsageError: the first row is wrong, as a look at whole columns had found.
    """
    for number, row in itertools.islice(rows, 1):
        if (why := why_wrong(row)) is not None:
            raise _wrong(str(place), why, "line", number)


def _of_rows(place: Location, rows: Rows) -> Iterator[pa.RecordBatch]:
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        questions = to_questions(pa.RecordBatch.from_pylist([dict(row) for _, row in some], _TEXTS))
        if isinstance(questions, WrongRow):
            raise _wrong(str(place), questions.why, "line", some[questions.number][0])
        yield questions


def _of_parquet(place: Location) -> Iterator[pa.RecordBatch]:
    path = str(place)
    with open_file(place) as opened:
        try:
            file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
        except pa.ArrowInvalid as error:
            raise UsageError(f"--queries {path}: {' '.join(str(error).split())}; {EXPECTED}") from error
        names = file.schema_arrow.names
        ensure_columns(path, names)
        blocks = file.iter_batches(columns=[name for name in QUESTION_COLUMNS if name in names])
        yield from of_blocks(path, map(_with_zone, blocks) if _has_int96(file) else blocks, "row")


def _has_int96(file: pq.ParquetFile) -> bool:
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    return any(column.name == "timestamp" and column.physical_type == _INT96 for column in columns)


def _with_zone(block: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's older format of times is of moments in UTC, and does not say so."""
    zoned = pa.schema(
        [field.with_type(pa.timestamp("us", "UTC")) if field.name == "timestamp" else field for field in block.schema]
    )
    return block.cast(zoned)


def _wrong(path: str, why: str, unit: str | None, number: int) -> UsageError:
    where = "" if unit is None else f"{unit} {number}: "
    return UsageError(f"--queries {path}: {where}{why}; nothing was answered")
