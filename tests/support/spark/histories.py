"""Compares tables of several catalogs after every step of a history: they have the same rows, by value and type."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kidxlib.catalog.rows import Table

#: A table after each step, at its version of that time; None: there was no such table.
History: TypeAlias = Sequence[DeltaTable | None]


def assert_same_histories(
    table: Table, expected: History, found: Mapping[str, History], left_out: Collection[str]
) -> None:
    """Check that all histories have the same rows after each step, without columns that differ in each run. delta-rs
    reads them: Spark takes a second for each version of each table, which would be most of a test's time
    (`assert_spark_reads_the_same`). The names in `found` are shown with rows that differ.
    """
    exists = [delta is not None for delta in expected]
    assert {name: [delta is not None for delta in history] for name, history in found.items()} == dict.fromkeys(
        found, exists
    ), table.name
    kept = _kept(table, left_out)
    order = kept if {*table.key} & {*left_out} else table.key
    for step, ours in enumerate(expected):
        if ours is None:
            continue
        rows = list(_rows(ours, table, kept, order))
        for name, history in found.items():
            theirs = history[step]
            assert theirs is not None
            assert _types(theirs, kept) == _types(ours, kept), (table.name, name, step)
            assert list(_rows(theirs, table, kept, order)) == rows, (table.name, name, step)


def assert_spark_reads_the_same(
    spark: SparkSession, table: Table, expected: DeltaTable, found: DeltaTable, left_out: Collection[str]
) -> None:
    """Check that Spark reads the same rows from both tables, whoever wrote them."""
    ours, theirs = [
        spark.read.format("delta")
        .option("versionAsOf", delta.version())
        .load(delta.table_uri.removeprefix("file://"))
        .select(*_kept(table, left_out))
        for delta in (found, expected)
    ]
    assert ours.count() > 0
    assert_df_equality(ours, theirs, transforms=[lambda frame: frame.coalesce(1).sortWithinPartitions(*table.key)])


def _kept(table: Table, left_out: Collection[str]) -> list[str]:
    return [name for name in table.column_names if name not in left_out]


def _types(delta: DeltaTable, names: Sequence[str]) -> dict[str, str]:
    return {field.name: str(field.type) for field in delta.schema().fields if field.name in names}


def _rows(delta: DeltaTable, table: Table, names: Sequence[str], order: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The sorted rows of a table, with maps as sorted pairs."""
    schema = table.schema(names)
    maps = [field.name for field in schema if pa.types.is_map(field.type)]
    rows = delta.to_pyarrow_table(columns=schema.names).select(schema.names).cast(schema).to_pylist()
    for row in sorted(rows, key=lambda row: [repr(row[name]) for name in order]):
        yield row | {name: sorted(row[name]) for name in maps if row[name] is not None}
