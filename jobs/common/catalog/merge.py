"""Merges of rows into the catalog's tables, and which of them commit only what differs."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import LATER_NAMES, SEGMENTS, FinishedFacts, ReadCost


def same_key(table: Table) -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}") == F.col(f"new.{name}") for name in table.key])


def in_order(rows: DataFrame, table: Table) -> DataFrame:
    """Rows that are to be written, each task's in the order of the table, which its files then have.

    Not all rows in one order: that would compute them twice, once to find the bounds. Compaction does it now and then.
    """
    return rows.sortWithinPartitions(*table.order)


def merge_whole_rows(target: DeltaTable, table: Table, rows: DataFrame) -> None:
    """Add rows, each in the place of the one that has its key."""
    merge = target.alias("old").merge(rows.alias("new"), same_key(table))
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def delete_rows(target: DeltaTable, table: Table, keys: DataFrame) -> None:
    """Remove the rows with these keys, some columns of which may be null."""
    merge = target.alias("old").merge(keys.alias("new"), same_values(table.key))
    merge.whenMatchedDelete().execute()


def merge_scanned(target: DeltaTable, rows: DataFrame) -> int:
    """Add the rows that are new by key and replace those that differ in what a scan finds; return their number.

    What was added to a row that is replaced becomes null: its partition is to be finished again.
    """
    compared = [name for name in rows.columns if name not in (*SEGMENTS.key, "build_id", *ReadCost.names())]
    same = same_values(compared)
    joined = rows.alias("new").join(target.toDF().alias("old"), same_key(SEGMENTS), "left")
    is_new = F.col("old.source").isNull()
    changed = joined.where(is_new | ~same).select("new.*", is_new.alias("is_new"))
    counted = changed.groupBy("is_new").count().collect()
    values: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in rows.columns}
    values |= dict.fromkeys(LATER_NAMES, F.lit(None))
    if counted:
        merge = target.alias("old").merge(in_order(changed, SEGMENTS).alias("new"), same_key(SEGMENTS))
        merge = merge.whenNotMatchedInsert(values=values)
        if not all(row["is_new"] for row in counted):  # a merge that only inserts is a simpler one
            merge = merge.whenMatchedUpdate(condition=~same, set=values)
        merge.execute()
    return sum(row["count"] for row in counted)


#: A segment that finishing quarantines loses these, as its index files were withdrawn.
_OF_INDEXES: Final = tuple(name for name in SEGMENTS.column_names if name.startswith(("offset_index_", "time_index_")))


def merge_finished_rows(target: DeltaTable, rows: DataFrame) -> int:
    failed = F.col("new.status").isNotNull()
    values: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in (*FinishedFacts.names(), "build_id")}
    for name in ("status", "reason", "reason_position", "reason_detail"):
        values[name] = F.when(failed, F.col(f"new.{name}")).otherwise(F.col(f"old.{name}"))
    for name in _OF_INDEXES:
        values[name] = F.when(~failed, F.col(f"old.{name}"))
    same = same_values(FinishedFacts.names()) & (~failed | F.col("old.status").eqNullSafe(F.col("new.status")))
    joined = rows.alias("new").join(target.toDF().alias("old"), same_key(SEGMENTS))
    is_first_change = ~F.col("old.build_id").eqNullSafe(F.col("new.build_id"))
    changed = joined.where(~same).select("new.*", is_first_change.alias("is_first_change"))
    counted = changed.agg(F.count("*").alias("all"), F.count_if("is_first_change").alias("first")).head()
    assert counted is not None
    if counted["all"]:
        merge = target.alias("old").merge(changed.alias("new"), same_key(SEGMENTS))
        merge.whenMatchedUpdate(condition=~same, set=values).execute()
    return int(counted["first"])


def replace_rows(target: DeltaTable, table: Table, scope: DataFrame, rows: DataFrame) -> None:
    """Make `rows` all that a table has within `scope`, which has some columns of its key; commit only what differs."""
    old = target.toDF().join(scope, scope.columns, "left_semi")
    new: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in table.column_names}
    if old.isEmpty():
        if not rows.isEmpty():
            merge = target.alias("old").merge(in_order(rows, table).alias("new"), same_key(table))
            merge.whenNotMatchedInsert(values=new).execute()
        return
    compared = [name for name in table.column_names if name not in table.key]
    is_new, is_gone = F.col("old.source").isNull(), F.col("new.source").isNull()
    joined = rows.alias("new").join(old.alias("old"), same_key(table), "full_outer")
    key = [F.coalesce(f"new.{name}", f"old.{name}").alias(name) for name in table.key]
    values = [F.col(f"new.{name}") for name in compared]
    changed = joined.where(is_new | is_gone | ~same_values(compared)).select(*key, *values, is_gone.alias("is_gone"))
    if changed.isEmpty():
        return
    merge = target.alias("old").merge(changed.alias("new"), same_key(table))
    merge.whenMatchedDelete("new.is_gone").whenMatchedUpdate(set=new).whenNotMatchedInsert(values=new).execute()


def same_values(names: Collection[str]) -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in names])
