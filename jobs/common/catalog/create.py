"""The catalog's tables: their version, and making them."""

from __future__ import annotations

import logging
import time
from typing import Final

from delta.tables import DeltaTable, DeltaTableBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from jobs.common.catalog.commit_retry import TableInTheMakingError
from jobs.common.catalog.uncommitted_log import UncommittedLog
from jobs.common.catalog.upgrade import sql_text, upgrade
from jobs.common.spark.errors import reason
from jobs.common.spark.hadoop import hadoop_path
from jobs.common.spark.schema import spark_type
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError
from kidxlib.tables.layout import properties_of
from kidxlib.tables.version import version_of

#: A run that makes a table has something to write in its log directory far more often.
_LEFT_AFTER_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


def register(spark: SparkSession, database: str, table: Table, location: str) -> None:
    """Make a table known in a database of the metastore."""
    name = f"`{database}`.`{table.name}`"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{sql_text(location)}'")


def _version(spark: SparkSession, location: str) -> int | None:
    if not DeltaTable.isDeltaTable(spark, location):
        return None
    # Not DeltaTable.detail(): that counts the table's files.
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{location}`").collect()}
    return version_of(location, properties)


class MakingTable:
    """One table, made or brought up to date. To be tried again as long as another run is at it."""

    def __init__(self, spark: SparkSession, location: str, table: Table) -> None:
        self._spark, self._location, self._table = spark, location, table
        self._seen: UncommittedLog | None = None
        self._seen_at = 0.0

    def __call__(self) -> None:
        version = _version(self._spark, self._location)
        if version is None:
            self._make()
        elif version < CATALOG_VERSION:
            upgrade(self._spark, self._location, self._table)

    def _make(self) -> None:
        try:
            _builder(self._spark, self._location, self._table).execute()
        except AnalysisException as error:
            directory, file_system = hadoop_path(self._spark, f"{self._location}/_delta_log")
            if not file_system.exists(directory):
                raise CatalogError(
                    f"{self._location}: cannot make the table {self._table.name}: {reason(error)}; "
                    "give --catalog a new or empty directory"
                ) from error
            # Perhaps there is a commit by now; Delta itself may not yet see it.
            if (begun := UncommittedLog.of(self._spark, self._location)) is not None:
                self._remove_if_left(begun)
            raise TableInTheMakingError(self._location) from error

    def _remove_if_left(self, begun: UncommittedLog) -> None:
        """A run that is killed, or has no room, leaves a log directory without a commit; Delta makes no table there."""
        now = time.monotonic()
        if begun != self._seen:
            self._seen, self._seen_at = begun, now
        elif now >= self._seen_at + _LEFT_AFTER_SECONDS:
            if begun.remove():
                _log.warning("%s: removed, left by a run that ended while it made this table", begun.path)
            elif begun == UncommittedLog.of(self._spark, self._location):
                raise CatalogError(
                    f"{begun.path}: left by a run that ended while it made this table: remove that directory"
                )


def _builder(spark: SparkSession, location: str, table: Table) -> DeltaTableBuilder:
    """What makes a table without rows: one that is made of a query's rows forgets which columns are never null."""
    builder = DeltaTable.createIfNotExists(spark).location(location).comment(table.comment)
    for name, value in properties_of(table).items():
        builder = builder.property(name, value)
    for column in table.columns:
        builder = builder.addColumn(column.name, spark_type(column), nullable=column.nullable, comment=column.comment)
    return builder
