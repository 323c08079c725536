"""The Spark session. Settings that results depend on stand here; what only tunes a machine stands in `conf/`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession


@contextlib.contextmanager
def session(job: str) -> Iterator[SparkSession]:
    """The session of one job, stopped at the end."""
    spark = (
        SparkSession.builder.appName(f"kidx {job}")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        # Tasks publish files; they may run twice, but need not.
        .config("spark.speculation", "false")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
