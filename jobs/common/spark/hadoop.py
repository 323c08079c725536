"""Hadoop's file systems, for what Spark itself offers no call for."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

_COPY_BYTES: Final = 1024 * 1024


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path, and the file system that holds it, as Hadoop's own objects."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    directory = jvm.org.apache.hadoop.fs.Path(path)
    return directory, directory.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def concatenate(spark: SparkSession, directory: str, path: str, head: bytes) -> None:
    """Make one file of what Spark wrote into a directory, which goes.

    Args:
        head: what it starts with.
    """
    parts, file_system = hadoop_path(spark, directory)
    target, _ = hadoop_path(spark, path)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    file_system.setWriteChecksum(False)  # of a local file it would stand beside it, hidden
    whole = file_system.create(target, False)
    try:
        whole.write(head, 0, len(head))
        for part in file_system.globStatus(jvm.org.apache.hadoop.fs.Path(parts, "part-*")):
            piece = file_system.open(part.getPath())
            jvm.org.apache.hadoop.io.IOUtils.copyBytes(piece, whole, _COPY_BYTES, False)
            piece.close()
    finally:
        whole.close()
        file_system.setWriteChecksum(True)
    file_system.delete(parts, True)
