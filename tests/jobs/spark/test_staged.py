"""Rows that executors have staged: in the order of their units, wherever they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark import StorageLevel

from jobs.common.spark.local_rows import of_arrow
from jobs.common.spark.schema import spark_schema
from jobs.common.spark.session import session
from jobs.common.spark.staged import StagedBySpark
from tests.support.spark.sessions import use_shared_session

_SCHEMA: Final = pa.schema(
    [("odd", pa.struct([("number", pa.int64())])), ("even", pa.struct([("number", pa.int64()), ("text", pa.string())]))]
)
#: Of unequal tasks, as Spark reads large files first.
_ROWS: Final = 5_000


def _rows() -> pa.Table:
    values = [
        {"odd": {"number": number}} if number % 2 else {"even": {"number": number, "text": "x" * (number % 50)}}
        for number in range(_ROWS)
    ]
    return pa.Table.from_pylist(values, _SCHEMA)


@pytest.mark.parametrize("is_in_files", [False, True], ids=["on-executors", "in-files"])
def test_rows_of_one_kind_come_in_order(is_in_files: bool, tmp_path: Path) -> None:
    use_shared_session()
    with session("test") as spark:
        data = (
            of_arrow(spark, _rows())
            .repartitionByRange(7, "odd.number", "even.number")
            .sortWithinPartitions("odd.number", "even.number")
        )
        if is_in_files:
            data.write.parquet(str(tmp_path / "staged"))
            data = spark.read.schema(spark_schema(_SCHEMA)).parquet(str(tmp_path / "staged"))
        else:
            data = data.persist(StorageLevel.DISK_ONLY)
        staged = StagedBySpark(data, _SCHEMA, str(tmp_path / "staged") if is_in_files else None)
        for kind, first in (("odd", 1), ("even", 0)):
            rows = pa.Table.from_batches(staged.batches(kind))
            assert rows["number"].to_pylist() == list(range(first, _ROWS, 2))
            assert rows.column_names == [field.name for field in _SCHEMA.field(kind).type]
        staged.remove()
        assert not (tmp_path / "staged").exists()
