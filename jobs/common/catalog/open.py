"""Finding a catalog, by its directory or by the name of a database."""

from __future__ import annotations

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.create import catalog_version, make_tables
from jobs.common.spark.hadoop import hadoop_path
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import CatalogError, UsageError
from kidxlib.run.catalog_place import ensure_catalog_exists, ensure_known, local_path, no_catalog


def find_place(spark: SparkSession, path: str | None, database: str | None) -> str:
    """The directory or URL of a catalog, which may be that of a database; its tables need not exist.

    Raises:
        UsageError: there is no such database, or Spark has no access to the directory's file system.
    """
    if database is not None:
        if database == "default":
            raise UsageError("--database default: its directory is the whole warehouse; make a database for it")
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"--database {database}: no such database; make it with CREATE DATABASE {database}")
        path = local_path(spark.catalog.getDatabase(database).locationUri)
    assert path is not None
    try:
        hadoop_path(spark, path)
    except Py4JJavaError as error:
        raise UsageError(
            f"--catalog {path}: {error.java_exception.getMessage()}; give Spark its jars after --"
        ) from error
    return path.rstrip("/")


def find_catalog(spark: SparkSession, path: str | None, database: str | None) -> Catalog:
    """A catalog by its directory, or by the directory of a database; its tables need not exist.

    Raises:
        UsageError: as `find_place`.
    """
    return Catalog(spark, find_place(spark, path, database))


def catalog_to_build(spark: SparkSession, path: str | None, database: str | None) -> Catalog:
    """A catalog that is there, or a place where one may be made.

    Raises:
        UsageError: as `find_catalog`, or something else is there.
    """
    catalog = find_catalog(spark, path, database)
    if path is not None and "://" in path and not DeltaTable.isDeltaTable(spark, catalog.table_path(SEGMENTS)):
        directory, file_system = hadoop_path(spark, path)
        if file_system.exists(directory):
            ensure_known(f"--catalog {path}", [each.getPath().getName() for each in file_system.listStatus(directory)])
    return catalog


def existing_catalog(
    spark: SparkSession, path: str | None, database: str | None, *, bring_up_to_date: bool = False
) -> Catalog:
    """A catalog that build_index has made, by its directory or by the directory of a database.

    Args:
        bring_up_to_date: give it the tables and columns that this version of the code has, as a build does; otherwise
            nothing is changed.

    Raises:
        UsageError: as `find_catalog`, or there is none.
        CatalogError: it is of another version of the code.
    """
    if path is not None:
        ensure_catalog_exists(path)
    catalog = find_catalog(spark, path, database)
    if not DeltaTable.isDeltaTable(spark, catalog.table_path(SEGMENTS)):
        raise no_catalog(f"--catalog {path}" if database is None else f"--database {database}")
    if bring_up_to_date:
        make_tables(catalog, database, catalog_version(catalog))
    elif catalog_version(catalog) != CATALOG_VERSION:
        raise CatalogError(
            f"{catalog.path}: made by an older release than this one, which has catalog version {CATALOG_VERSION}; "
            "run ./spark-submit.sh build_index once, which brings it up to date"
        )
    return catalog
