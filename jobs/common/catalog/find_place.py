"""The place of a catalog, from its directory or the name of a database."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.spark.hadoop import hadoop_path
from kidxlib.errors import UsageError
from kidxlib.run.catalog_place import local_path


def find_place(spark: SparkSession, path: str | None, database: str | None) -> str:
    """The directory or URL of a catalog, or of the database that has it; its tables need not exist."""
    if database is not None:
        if database == "default":
            raise UsageError("--database default: its directory is the whole warehouse; make a database for it")
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"--database {database}: no such database; make it with CREATE DATABASE {database}")
        path = local_path(spark.catalog.getDatabase(database).locationUri)
    assert path is not None
    try:
        hadoop_path(spark, path)  # fails without the jars of the URL's file system
    except Py4JJavaError as error:
        raise UsageError(
            f"--catalog {path}: {error.java_exception.getMessage()}; give Spark its jars after --"
        ) from error
    return path.rstrip("/")
