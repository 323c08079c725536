"""Finding a catalog, by its folder or by the name of a database."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.catalog import Catalog
from jobs.common.hadoop import hadoop_path
from jobs.common.make_tables import catalog_version, make_tables
from jobs.common.tables import CATALOG_VERSION, SEGMENTS
from kidxlib.errors import CatalogError, UsageError


def find_catalog(spark: SparkSession, path: str | None, database: str | None) -> Catalog:
    """A catalog by its folder, or by the folder of a database; its tables need not exist.

    Raises:
        UsageError: there is no such database, or Spark has no access to the folder's file system.
    """
    if database is not None:
        if database == "default":
            raise UsageError("--database default: its folder is the whole warehouse; make a database for it")
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"--database {database}: no such database; make it with CREATE DATABASE {database}")
        path = local_path(spark.catalog.getDatabase(database).locationUri)
    assert path is not None
    try:
        hadoop_path(spark, path)
    except Py4JJavaError as error:
        raise UsageError(
            f"--catalog {path}: {error.java_exception.getMessage()}; give Spark its jars behind --"
        ) from error
    return Catalog(spark, path.rstrip("/"))


def existing_catalog(
    spark: SparkSession, path: str | None, database: str | None, *, bring_up_to_date: bool = False
) -> Catalog:
    """A catalog that build_index has made, by its folder or by the folder of a database.

    Args:
        bring_up_to_date: give it the tables and columns that this version of the code has, as a build does; otherwise
            nothing is changed.

    Raises:
        UsageError: as `find_catalog`, or there is none.
        CatalogError: it is of another version of the code.
    """
    catalog = find_catalog(spark, path, database)
    if not DeltaTable.isDeltaTable(spark, catalog.table_path(SEGMENTS)):
        option = f"--catalog {path}" if database is None else f"--database {database}"
        raise UsageError(f"{option}: no catalog there; ./spark-submit.sh build_index makes one")
    if bring_up_to_date:
        make_tables(catalog, database, catalog_version(catalog))
    elif catalog_version(catalog) != CATALOG_VERSION:
        raise CatalogError(
            f"{catalog.path}: made by an older release than this one, which has catalog version {CATALOG_VERSION}; "
            "run ./spark-submit.sh build_index once, which brings it up to date"
        )
    return catalog


def local_path(location: str) -> str:
    """A `file:` URL as the path that it means; anything else as it is."""
    return unquote(urlsplit(location).path) if location.startswith("file:") else location


def refuse_unusable(path: str) -> None:
    """Say before Spark is started that a catalog cannot be made there.

    Raises:
        UsageError: something else than a folder stands there, or it cannot be written.
    """
    if "://" in path:
        return
    nearest = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    if not nearest.is_dir():
        raise UsageError(f"--catalog {path}: {nearest} is a file; expected a folder, or a place where one can be made")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"--catalog {path}: {nearest} cannot be written by this user")
