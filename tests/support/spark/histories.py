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
_EXPECTED: Final = "expected"

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
    kept = [name for name in table.column_names if name not in left_out]
    order = kept if {*table.key} & {*left_out} else table.key  # of rows
    names = explode(array(*map(lit, found))).alias(_CATALOG)
    assert_df_equality(
        _rows(spark, table, found, kept),
        _rows(spark, table, {_EXPECTED: expected}, kept).drop(_CATALOG).select("*", names),
        transforms=[lambda frame: frame.coalesce(1).sortWithinPartitions(_CATALOG, _STEP, *order)],
    )


def _rows(spark: SparkSession, table: Table, histories: Mapping[str, History], names: Sequence[str]) -> DataFrame:
    """These columns, the number of the step that each row is of, and the name of its catalog."""
    parts = [of_arrow(spark, _of_earlier_steps(table, histories, names))]
    for name, (*_, delta) in histories.items():
        if delta is not None:
            read = _by_spark(spark, delta).select(*names)
            parts.append(read.select("*", lit(len(histories[name]) - 1).alias(_STEP), lit(name).alias(_CATALOG)))
    compared = [
        # Spark neither sorts nor compares maps.
        array_sort(map_entries(name)).alias(name) if pa.types.is_map(table.schema().field(name).type) else name
        for name in names
    ]
    return reduce(DataFrame.union, parts).select(*compared, _STEP, _CATALOG)


def _of_earlier_steps(table: Table, histories: Mapping[str, History], names: Sequence[str]) -> pa.Table:
    schema = table.schema(names)
    added = [pa.field(_STEP, pa.int32(), nullable=False), pa.field(_CATALOG, pa.string(), nullable=False)]
    whole = pa.schema([*schema, *added])
    parts = [whole.empty_table()]
    for name, (*earlier, _) in histories.items():
        for number, delta in enumerate(earlier):
            if delta is not None:
                rows = delta.to_pyarrow_table(columns=schema.names).select(schema.names).cast(schema)
                values = (pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows), pa.repeat(name, rows.num_rows))
                parts.append(pa.table([*rows.columns, *values], schema=whole))
    return pa.concat_tables(parts)


def _by_spark(spark: SparkSession, delta: DeltaTable) -> DataFrame:
    place = delta.table_uri.removeprefix("file://")
    return spark.read.format("delta").option("versionAsOf", delta.version()).load(place)
