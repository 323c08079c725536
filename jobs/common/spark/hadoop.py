"""Hadoop's file systems, for what Spark itself offers no call for."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path, and the file system that holds it, as Hadoop's own objects."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    directory = jvm.org.apache.hadoop.fs.Path(path)
    return directory, directory.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
