"""The log directory of a Delta table before its first commit: a run is making the table, or has ended amid that.

A first build that is killed, or that finds the disk full, leaves such a directory, and Delta never makes a table there.
It could be named in an error, but the same command again is what helps after all other kills (docs/operations.md), and
what a scheduler does by itself. So the next run removes what nobody works on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.spark.hadoop import hadoop_path


@dataclass(frozen=True, slots=True)
class UncommittedLog:
    """What is in it at one moment; equal to a later one as long as no run works on it.

    Attributes:
        path: its directory.
        entries: path, size and time of each file and directory, a directory after what it holds.
    """

    path: str
    entries: tuple[tuple[str, int, int], ...]
    _statuses: tuple[Any, ...] = field(compare=False, repr=False)
    _file_system: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, spark: SparkSession, location: str) -> Self | None:
        """The log directory of the table there. None where the table has none, or where there is more in it than
        Delta's temporary files.
        """
        path = f"{location}/_delta_log"
        directory, file_system = hadoop_path(spark, path)
        if is_instance_of(spark.sparkContext._gateway, file_system, "org.apache.hadoop.fs.ChecksumFileSystem"):
            file_system = file_system.getRawFileSystem()  # it shows files with checksums, too
        if not file_system.exists(directory):
            return None
        statuses = tuple(_below(file_system, file_system.getFileStatus(directory)))
        if not all(status.isDirectory() or status.getPath().getName().startswith(".") for status in statuses):
            return None
        entries = tuple((str(each.getPath()), each.getLen(), each.getModificationTime()) for each in statuses)
        return cls(path, entries, statuses, file_system)

    def remove(self) -> bool:
        """Whether it is gone. Directories go only if they are empty by then: no commit goes that was made meanwhile."""
        try:
            return all(self._file_system.delete(status.getPath(), False) for status in self._statuses)
        except Py4JJavaError:  # a directory is not empty
            return False


def _below(file_system: Any, status: Any) -> Iterator[Any]:
    if status.isDirectory():
        for inner in file_system.listStatus(status.getPath()):
            yield from _below(file_system, inner)
    yield status
