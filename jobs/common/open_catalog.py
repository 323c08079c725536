"""Finding a catalog, by its folder or by the name of a database."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.catalog import STAGING, Catalog
from jobs.common.hadoop import hadoop_path
from jobs.common.make_tables import catalog_version, make_tables
from jobs.common.tables import CATALOG_VERSION, SEGMENTS, TABLES
from kidxlib.errors import CatalogError, UsageError
from kidxlib.log_dir import why_not_to_build_in


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


def catalog_to_build(spark: SparkSession, path: str | None, database: str | None) -> Catalog:
    """A catalog that is there, or a place where one may be made.

    Raises:
        UsageError: as `find_catalog`, or something else is there.
    """
    catalog = find_catalog(spark, path, database)
    if path is not None and "://" in path and not DeltaTable.isDeltaTable(spark, catalog.table_path(SEGMENTS)):
        folder, file_system = hadoop_path(spark, path)
        if file_system.exists(folder):
            refuse_strangers(f"--catalog {path}", [each.getPath().getName() for each in file_system.listStatus(folder)])
    return catalog


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
    if path is not None:
        refuse_no_catalog(path)
    catalog = find_catalog(spark, path, database)
    if not DeltaTable.isDeltaTable(spark, catalog.table_path(SEGMENTS)):
        raise _no_catalog(f"--catalog {path}" if database is None else f"--database {database}")
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


def refuse_no_catalog(path: str) -> None:
    """Say before Spark is started that no catalog is there, as far as this machine can tell.

    Raises:
        UsageError: there is none.
    """
    if "://" not in path and not _is_there(path):
        raise _no_catalog(f"--catalog {path}")


def refuse_unusable(path: str) -> None:
    """Say before Spark is started that a build cannot have its catalog there.

    Raises:
        UsageError: there is none, and none may be made: something else than a folder stands there, it cannot be
            written, it holds something else, or it is in a log dir or among index files.
    """
    if "://" in path:
        return
    _refuse_unwritable(path)
    if _is_there(path):
        return
    option = f"--catalog {path}"
    if os.path.isdir(path):
        try:
            refuse_strangers(option, os.listdir(path))
        except OSError as error:
            raise UsageError(f"{option}: cannot be listed: {error.strerror}") from error
    for folder in (Path(path), *Path(path).parents):
        if (why := why_not_to_build_in(folder)) is not None:
            raise UsageError(f"{option}: no catalog there, and none is made there: {why}; expected a place of its own")


def refuse_strangers(option: str, found: Iterable[str]) -> None:
    """No catalog is made among what somebody else has put there.

    Args:
        found: names of what is in the folder; tables are what a build left that was stopped while it made them.

    Raises:
        UsageError: something else is among it.
    """
    ours = {STAGING, *(table.name for table in TABLES), "lost+found"}
    others = sorted(name for name in found if name not in ours and not name.startswith("."))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UsageError(
            f"{option}: no catalog there, and it is not empty: it holds {others[0]}{more}; "
            "expected a catalog, or a new or empty directory"
        )


def _is_there(path: str) -> bool:
    """Whether a catalog's last table is there. One that is being made may have no version of it as yet."""
    return os.path.isdir(f"{path}/{SEGMENTS.name}/_delta_log")


def _no_catalog(option: str) -> UsageError:
    return UsageError(f"{option}: no catalog there; ./spark-submit.sh build_index makes one")


def _refuse_unwritable(path: str) -> None:
    nearest = next(folder for folder in (Path(path), *Path(path).parents) if os.path.exists(folder))
    if not os.path.isdir(nearest):
        raise UsageError(f"--catalog {path}: {nearest} is a file; expected a folder, or a place where one can be made")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"--catalog {path}: {nearest} cannot be written by this user")
