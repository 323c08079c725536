"""Tables of several catalogs, each as it was after every step of a history, compared by chispa in one go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Final, TypeAlias

import pyarrow as pa
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, array_sort, explode, lit, map_entries

from jobs.common.spark.local_rows import of_arrow
from kidxlib.catalog.rows import Table

#: Columns that are added, by names that no table has.
_CATALOG: Final = "in catalog"
_STEP: Final = "after step"

#: A table after each step, at the version that it had then; None where there was no such table.
History: TypeAlias = Sequence[DeltaTable | None]


def assert_same_histories(
    spark: SparkSession, table: Table, expected: History, found: Mapping[str, History], left_out: Collection[str]
) -> None:
    """All have the same rows after each step.

    The last step's rows are read by Spark, from the table itself. Those before it delta-rs has read for Spark: its own
    look at each old version of each table would take most of a test's time.

    Args:
        found: by a name that is shown with rows that differ.
        left_out: columns that are others in each run.
    """
    there = [each is not None for each in expected]
    assert {name: [each is not None for each in history] for name, history in found.items()} == dict.fromkeys(
        found, there
    ), table.name
    if not any(there):
        return
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # code for wide tables takes long to compile, and runs once
    kept = [name for name in table.column_names if name not in left_out]
    rows = {name: _rows(spark, table, history, kept) for name, history in found.items()}
    order = kept if {*table.key} & {*left_out} else table.key  # of rows
    names = explode(array(*map(lit, rows))).alias(_CATALOG)
    assert_df_equality(
        reduce(DataFrame.union, (of_one.select("*", lit(name).alias(_CATALOG)) for name, of_one in rows.items())),
        _rows(spark, table, expected, kept).select("*", names),
        transforms=[lambda frame: frame.coalesce(1).sortWithinPartitions(_CATALOG, _STEP, *order)],
    )


def _rows(spark: SparkSession, table: Table, history: History, names: Sequence[str]) -> DataFrame:
    """These columns, and the number of the step that each row is of."""
    *earlier, latest = enumerate(history)
    read = {number: delta.to_pyarrow_table(columns=list(names)) for number, delta in earlier if delta is not None}
    steps = {number: of_arrow(spark, rows) for number, rows in read.items() if rows.num_rows}
    number, delta = latest
    if delta is not None:
        steps[number] = _by_spark(spark, delta).select(*names)
    compared = [
        # Spark neither sorts nor compares maps.
        array_sort(map_entries(name)).alias(name) if pa.types.is_map(table.schema().field(name).type) else name
        for name in names
    ]
    return reduce(DataFrame.union, (rows.select(*compared, lit(number).alias(_STEP)) for number, rows in steps.items()))


def _by_spark(spark: SparkSession, delta: DeltaTable) -> DataFrame:
    place = delta.table_uri.removeprefix("file://")
    return spark.read.format("delta").option("versionAsOf", delta.version()).load(place)
