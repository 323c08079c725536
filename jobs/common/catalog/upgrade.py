"""Brings a table of an older version to this one: its columns and properties, and the protocol that both engines write.

Tables up to version 6 are clustered, which delta-rs refuses to write. Delta has no command that would do: DROP FEATURE
knows no clustering; REPLACE TABLE ... AS SELECT may lower the protocol, but not while there is clustering to remove,
and it forgets which columns are never null; RENAME COLUMN turns on column mapping. So Delta's own transactions do it
here, in two commits: the first one takes the clustering away. The second one gives the table all that this version has,
and with it the version; only where a column is called otherwise by now it has the rows in new files. History stays, and
whoever is stopped between the two goes on from there.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.common.spark.schema import spark_type
from kidxlib.catalog.columns import Column
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError
from kidxlib.tables.layout import FILE_BYTES, READER_VERSION, properties_of

#: A transaction that makes a table anew may lower its protocol, where this is set.
_DOWNGRADE: Final = "spark.databricks.delta.replace.protocolDowngradeAllowed"

#: What Delta calls the columns that a table is clustered by.
_CLUSTERING: Final = "delta.clustering"

_log = logging.getLogger(__name__)


def upgrade(spark: SparkSession, location: str, table: Table) -> None:
    """Give a table this version's columns, properties and protocol, and with these its version.

    Raises:
        CatalogError: somebody has given the table a feature that other readers do not know.
    """
    delta = _jvm(spark).org.apache.spark.sql.delta
    transaction = _begun(spark, location)
    protocol = transaction.protocol()
    if protocol.minReaderVersion() > READER_VERSION:
        raise CatalogError(
            f"{location}: has a feature that other readers do not know (reader version {protocol.minReaderVersion()}); "
            "remove it with ALTER TABLE … DROP FEATURE, then run this again"
        )
    if _is_clustered(spark, transaction):
        _commit(spark, transaction, [delta.actions.DomainMetadata(_CLUSTERING, "{}", True)])
        transaction = _begun(spark, location)
    spark.conf.set(_DOWNGRADE, "true")  # no job replaces a table, so nothing else asks for it
    old = transaction.metadata()
    present = json.loads(old.schemaString())["fields"]
    # By their names now.
    taken_from = {table.renamed.get(field["name"], field["name"]): field["name"] for field in present}
    renamed = {name: new for new, name in taken_from.items() if name != new}
    known = {*table.column_names, *table.renamed}  # others are somebody else's, and stay
    fields = [*map(_field, table.columns), *(field for field in present if field["name"] not in known)]
    transaction.updateMetadataForNewTable(_metadata(old, table, fields))
    _commit(spark, transaction, _rewritten(spark, location, table, transaction, taken_from) if renamed else ())
    _log.warning(
        "%s: brought to catalog version %d (added: %s; renamed: %s)",
        *(location, CATALOG_VERSION),
        ", ".join(name for name in table.column_names if name not in taken_from) or "no column",
        ", ".join(f"{name} to {new}" for name, new in renamed.items()) or "no column",
    )


def sql_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _begun(spark: SparkSession, location: str) -> Any:
    nothing = _jvm(spark).scala.Option.empty()
    return DeltaTable.forPath(spark, location)._jdt.deltaLog().startTransaction(nothing, nothing)


def _is_clustered(spark: SparkSession, transaction: Any) -> bool:
    domains = _jvm(spark).scala.jdk.javaapi.CollectionConverters.asJava(transaction.snapshot().domainMetadata())
    return any(domain.domain() == _CLUSTERING and not domain.removed() for domain in domains)


def _commit(spark: SparkSession, transaction: Any, actions: Iterable[Any]) -> None:
    jvm = _jvm(spark)
    sequence = jvm.java.util.ArrayList()
    for action in actions:
        sequence.add(action)
    operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    transaction.commit(jvm.org.apache.spark.api.python.PythonUtils.toSeq(sequence), operation)


def _metadata(old: Any, table: Table, fields: list[dict[str, Any]]) -> Any:
    """Delta's metadata of a table, as this version has it."""
    properties = old.configuration()
    for name, value in properties_of(table).items():
        properties = properties.updated(name, value)
    return old.copy(
        *(old.id(), old.name(), table.comment, old.format(), json.dumps({"type": "struct", "fields": fields})),
        *(old.partitionColumns(), properties, old.createdTime()),
    )


def _field(column: Column) -> dict[str, Any]:
    """A column, as Delta has it in its schema."""
    kind, metadata = json.loads(spark_type(column).json()), {"comment": column.comment}
    return {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": metadata}


def _rewritten(
    spark: SparkSession, location: str, table: Table, transaction: Any, taken_from: Mapping[str, str]
) -> Iterator[Any]:
    """All rows in new files, sorted as in a new table, and the old files removed: actions of one commit.

    The transaction has read all files then, so it fails where another run has committed rows since it was begun.

    Args:
        taken_from: columns that are there, by their names now.
    """
    converters = _jvm(spark).scala.jdk.javaapi.CollectionConverters
    files = converters.asJava(transaction.filterFiles())
    names = [field["name"] for field in json.loads(transaction.metadata().schemaString())["fields"]]
    columns = [(F.col(taken_from[name]) if name in taken_from else F.lit(None)).alias(name) for name in names]
    count = max(1, math.ceil(sum(file.size() for file in files) / FILE_BYTES))
    rows = spark.read.format("delta").load(location).select(*columns)
    rows = rows.repartitionByRange(count, *table.order).sortWithinPartitions(*table.order)
    for file in files:
        yield file.remove()
    yield from converters.asJava(transaction.writeFiles(rows._jdf))


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
