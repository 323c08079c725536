"""Segments read by a task of Spark: rows in Spark's types, in batches of a size that suits Spark, in bounded memory;
damage ends the task or is passed over, as the options say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NoReturn

import pyarrow as pa

from kidxlib.errors import DamagedLogError, UsageError
from kidxlib.reading.left_out import gaps_between_logs, lines_of_left_out
from kidxlib.reading.request import MODES
from kidxlib.reading.rows import batch_rows_of, record_rows_of
from kidxlib.reading.segment_read import LogRead, SegmentRead
from kidxlib.reading.walk import Damage, TakeDamage, warn_of_damage

_log: Final = logging.getLogger(__name__)

#: Spark is slower with fewer rows at once: batches of 1,000 cost it half as much again.
_ROWS_MIN: Final = 10_000
#: Batches of so many bytes are not joined, however few rows they have: joining copies them.
_BYTES_MIN: Final = 2 * 1024 * 1024


def task_rows(
    reads: Sequence[SegmentRead],
    mode: str,
    schema: pa.Schema,
    on_damage: TakeDamage,
    *,
    goes_on: bool,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task in Spark's schema. A warning tells of gaps behind logs that the task has read to their
    ends.
    """
    columns, logs = pa.schema([MODES[mode].field(name) for name in schema.names]), list[LogRead]()
    if mode == "batches":
        rows = batch_rows_of(reads, columns, on_damage, goes_on=goes_on, on_end=logs.append)
    else:
        rows = record_rows_of(reads, columns, on_damage, goes_on=goes_on, threads=1, on_end=logs.append)
    for joined in _joined(rows):
        yield _in_spark_types(joined, schema)
    for line in lines_of_left_out(gaps_between_logs(logs)):
        _log.warning("%s", line)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of at least so many rows or bytes, but for the last one."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if rows >= _ROWS_MIN or size >= _BYTES_MIN:
            yield _as_one(pending)
            pending, rows, size = [], 0, 0
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pending:
        yield _as_one(pending)


def _as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]  # pyarrow-stubs does not know it
    return joined


def damage_taker(*, fails: bool) -> TakeDamage:
    """What is done about damage in a task of Spark, or as its reads are planned: the reading ends, or a warning says
    what is lost.
    """
    return _raise_damage if fails else warn_of_damage


def _raise_damage(damage: Damage) -> NoReturn:
    raise DamagedLogError(f"{damage}; failOnDataLoss=false reads what comes after it")


def _in_spark_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types of Spark's schema, which has the same columns."""
    try:
        return rows.cast(schema)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"a timestamp beyond those that Spark has, which are 292,000 years at most ({error}); read without the "
            "column timestamp: .schema('…') names the columns to read"
        ) from error
