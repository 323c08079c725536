"""The backend of a job: Spark's executors, and the catalog through delta-rs or Spark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib import metadata

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.spark.engine import spark_engine
from jobs.common.spark.session import JobSession, hadoop_path
from jobs.common.spark.spark_tables import SparkMaintenance, SparkTables
from kidxlib.catalog.tables import CATALOG_VERSION, LAYOUT_VERSION, UPGRADE_ORDER, made_by_an_older_release
from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.local_backend import local_maintenance
from kidxlib.run.context import STAGING, RunContext, no_catalog
from kidxlib.storage.location import plain_location
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.memory_tables import MemoryTables
from kidxlib.tables.protocol import Maintenance, Tables


def find_place(spark: SparkSession, path: str | None, database: str | None) -> str:
    """The directory or URL of a catalog, or of the database that has it; its tables need not exist."""
    if database is not None:
        if database == "default":
            raise UsageError("--database default: its directory is the whole warehouse; make a database for it")
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"--database {database}: no such database; make it with CREATE DATABASE {database}")
        path = plain_location(spark.catalog.getDatabase(database).locationUri)
    assert path is not None
    try:
        hadoop_path(spark, path)  # fails without the jars of the URL's file system
    except Py4JJavaError as error:
        raise UsageError(
            f"--catalog {path}: {error.java_exception.getMessage()}; give Spark its jars after --"
        ) from error
    return path.rstrip("/")


@contextlib.contextmanager
def open_spark(
    job: str,
    context: RunContext,
    *,
    must_exist: bool = True,
    upgrade: bool = True,
    changes: bool = True,
) -> Iterator[Backend]:
    """Spark's executors, and the catalog, which only a build makes. A catalog of an older release is brought up to
    date, or refused without `upgrade`. A job with `changes=False` changes and records nothing. No JVM is started before
    there is work for executors, unless Spark alone reaches the catalog.
    """
    with JobSession(job, context.event_log_dir, changes=changes) as session:
        tables = _tables(session, context)
        option = f"--catalog {context.catalog}" if context.database is None else f"--database {context.database}"
        catalog = TablesCatalog(tables)
        if must_exist and not catalog.has_segments():
            raise no_catalog(option)
        oldest = catalog.oldest_version()
        if oldest is not None and oldest < CATALOG_VERSION:
            if oldest < LAYOUT_VERSION and not upgrade:
                raise made_by_an_older_release(tables.path, oldest)
            # Spark alone writes tables of an earlier layout.
            writer = SparkTables(session.get(), tables.path, context.database) if oldest < LAYOUT_VERSION else tables
            for table in UPGRADE_ORDER if upgrade else ():
                writer.make(table)
        versions = {
            "spark": pyspark.__version__,  # Spark's own: a cluster's Spark has no package with a version
            "delta": metadata.version("delta-spark"),
            "deltalake": metadata.version("deltalake"),
        }
        # A job that changes nothing may have a catalog that cannot be written. In a store, rows come back from
        # executors unstaged: Spark alone has no client to write there.
        is_shared = changes and not is_object(tables.path)
        staging = f"{tables.path}/{STAGING}" if is_shared else None
        with spark_engine(session, staging, f"run-{os.urandom(8).hex()}") as engine:
            yield Backend(engine, catalog, versions, spark_maintenance)


def spark_maintenance(tables: Tables) -> Maintenance:
    """The maintenance of the catalog's tables for a job: by the driver if it reaches them, else by Spark."""
    return SparkMaintenance(tables) if isinstance(tables, SparkTables) else local_maintenance(tables)


@contextlib.contextmanager
def open_spark_once(job: str, context: RunContext) -> Iterator[Backend]:
    """Spark's executors for a job that keeps no catalog, and tables that go with the run. Staged rows wait on the
    executors' disks.
    """
    with (
        JobSession(job, context.event_log_dir, changes=False) as session,
        spark_engine(session, None, f"run-{os.urandom(8).hex()}") as engine,
    ):
        yield Backend(engine, TablesCatalog(MemoryTables("no catalog")), {})


def open_spark_on(job: str, context: RunContext) -> AbstractContextManager[Backend]:
    """Spark's executors for a job with or without a catalog."""
    return open_spark(job, context) if context.has_catalog else open_spark_once(job, context)


def _tables(session: JobSession, context: RunContext) -> Tables:
    """The catalog's tables through delta-rs, in a directory or in S3, where commits of Spark can overwrite one another;
    through Spark in a metastore and at other URLs.
    """
    path = context.catalog
    if path is not None and (is_object(path) or "://" not in path):
        return DeltaTables(path.rstrip("/"))
    return SparkTables(session.get(), find_place(session.get(), path, context.database), context.database)
