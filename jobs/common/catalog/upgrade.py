"""Brings a table of an older version to this one: its columns and properties, and the protocol that both engines write.

Tables up to version 6 are clustered, which delta-rs refuses to write. Delta has no command that would do: DROP FEATURE
knows no clustering; REPLACE TABLE ... AS SELECT may lower the protocol, but not while there is clustering to remove,
and it forgets which columns are never null. So Delta's own transactions do it here, in two commits of metadata. No file
is written anew, rows and history stay, and whoever is stopped between the two does both again.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from jobs.common.spark.schema import spark_type
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError
from kidxlib.tables.layout import READER_VERSION, WRITER_VERSION, properties_of

#: A transaction that makes a table anew may lower its protocol, where this is set.
_DOWNGRADE: Final = "spark.databricks.delta.replace.protocolDowngradeAllowed"

_log = logging.getLogger(__name__)


def upgrade(spark: SparkSession, location: str, table: Table) -> None:
    """Give a table this version's columns, then its properties and protocol, and with these its version.

    Raises:
        CatalogError: somebody has given the table a feature that other readers do not know.
    """
    present = DeltaTable.forPath(spark, location).toDF().columns
    missing = [column for column in table.columns if column.name not in present]
    if missing:
        columns = ", ".join(
            f"`{column.name}` {spark_type(column).simpleString()} COMMENT '{sql_text(column.comment)}'"
            for column in missing
        )
        spark.sql(f"ALTER TABLE delta.`{location}` ADD COLUMNS ({columns})")
    _lay_out(spark, location, table)
    names = ", ".join(column.name for column in missing) or "no column"
    _log.warning("%s: brought to catalog version %d (added: %s)", location, CATALOG_VERSION, names)


def sql_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _lay_out(spark: SparkSession, location: str, table: Table) -> None:
    jvm: Any = spark.sparkContext._jvm
    delta = jvm.org.apache.spark.sql.delta
    begin = DeltaTable.forPath(spark, location)._jdt.deltaLog().startTransaction
    nothing, operation = jvm.scala.Option.empty(), getattr(delta, "DeltaOperations$ManualUpdate$")
    operation = getattr(operation, "MODULE$")

    def commit(transaction: Any, *actions: Any) -> None:
        sequence = jvm.java.util.ArrayList()
        for action in actions:
            sequence.add(action)
        transaction.commit(jvm.org.apache.spark.api.python.PythonUtils.toSeq(sequence), operation)

    transaction = begin(nothing, nothing)
    protocol = transaction.protocol()
    if protocol.minReaderVersion() > READER_VERSION:
        raise CatalogError(
            f"{location}: has a feature that other readers do not know (reader version {protocol.minReaderVersion()}); "
            "remove it with ALTER TABLE … DROP FEATURE, then run this again"
        )
    if protocol.minWriterVersion() > WRITER_VERSION:
        commit(transaction, delta.actions.DomainMetadata("delta.clustering", "{}", True))
        transaction = begin(nothing, nothing)
    spark.conf.set(_DOWNGRADE, "true")  # no job replaces a table, so nothing else asks for it
    old = transaction.metadata()
    properties = old.configuration()
    for name, value in properties_of(table).items():
        properties = properties.updated(name, value)
    new = old.copy(
        *(old.id(), old.name(), table.comment, old.format(), _with_comments(old.schemaString(), table)),
        *(old.partitionColumns(), properties, old.createdTime()),
    )
    transaction.updateMetadataForNewTable(new)
    commit(transaction)


def _with_comments(schema: str, table: Table) -> str:
    """Delta's schema of a table with what this version says of its columns."""
    comments = {column.name: column.comment for column in table.columns}
    found = json.loads(schema)
    for field in found["fields"]:
        if field["name"] in comments:
            field["metadata"]["comment"] = comments[field["name"]]
    return json.dumps(found)
