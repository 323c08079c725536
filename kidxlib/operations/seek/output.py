"""Answers, written where and as what their name says."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek.answer_format import Format
from kidxlib.operations.seek.answer_lines import CSV_HEAD, csv_lines, json_lines
from kidxlib.operations.seek.answer_work import RESULT
from kidxlib.storage.location import Location, location
from kidxlib.storage.store.s3 import ObjectPath, object_written

WRITTEN: Final = pa.schema([RESULT.field(name) for name in RESULT_COLUMNS])
#: Rows of a file of a directory, about.
_ROWS_PER_FILE: Final = 1_000_000


def ensure_new(path: str) -> None:
    """Answers never replace what is there.

    Raises:
        UsageError: something is, or nothing can be written there.
    """
    place = location(path)
    try:
        is_there = place.exists() if isinstance(place, ObjectPath) else os.path.lexists(place)
    except OSError as error:
        raise UsageError(f"--output {describe_error(error)}") from error
    if is_there:
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


def write_answers(answers: Iterable[pa.RecordBatch], path: str) -> None:
    """Write the columns of a result; of text, into one file in the order of the rows. It appears as a whole.

    Args:
        answers: rows of `RESULT`.

    Raises:
        KidxError: it cannot be written; nothing is left of it, but for parts in an object store.
    """
    try:
        match Format.of(path):
            case Format.CSV:
                _write_text(location(path), CSV_HEAD, map(csv_lines, answers))
            case Format.JSON:
                _write_text(location(path), b"", map(json_lines, answers))
            case Format.PARQUET:
                _write_parquet(location(path), answers)
            case Format.DELTA:
                from kidxlib.tables.delta_file import write_delta

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
        batches = iter(answers)
        number, rows = 0, 0
        with contextlib.ExitStack() as stack:
            writer = None
            for batch in batches:
                if writer is None or rows >= _ROWS_PER_FILE:
                    stack.close()
                    sink = stack.enter_context(_sink(directory / f"part-{number:05}.parquet"))
                    writer = stack.enter_context(pq.ParquetWriter(sink, WRITTEN))
                    number, rows = number + 1, 0
                writer.write_batch(batch.select(RESULT_COLUMNS))
                rows += len(batch)


@contextlib.contextmanager
def _appearing(place: Location) -> Iterator[Location]:
    """Where to write what then gets its name. In an object store a file appears as a whole by itself."""
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
    """A new file. One in an object store that is not written to its end never appears."""
    if isinstance(place, ObjectPath):
        with object_written(place) as sink:
            yield sink
        return
    with place.open("xb") as file:
        yield file
