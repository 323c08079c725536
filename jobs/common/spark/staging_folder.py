"""The folder in which a run on Spark stages rows: it has a heartbeat, and goes with the run. Those of runs that were
killed are swept.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from jobs.common.spark.hadoop import hadoop_path
from kidxlib.run.heartbeat import DEAD_AFTER, HEARTBEAT, beating, beating_in
from kidxlib.storage.scratch import writing_in

_DEAD_AFTER_MS: Final = DEAD_AFTER // timedelta(milliseconds=1)


@contextlib.contextmanager
def folder_in_file_system(folder: Path) -> Iterator[None]:
    """A new directory that is removed at the end.

    Raises:
        KidxError: it cannot be made.
    """
    try:
        with contextlib.ExitStack() as stack:
            with writing_in(folder.parent):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(beating_in(folder))
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def folder_at_url(spark: SparkSession, folder: str) -> Iterator[None]:
    """A new folder at a URL that Spark writes to, which is removed at the end.

    Raises:
        OSError: it cannot be made.
    """
    place, file_system = hadoop_path(spark, folder)
    heartbeat, _ = hadoop_path(spark, f"{folder}/{HEARTBEAT}")

    def beat() -> None:
        try:
            file_system.create(heartbeat, True).close()
        except Py4JError as error:
            raise OSError(errno.EIO, str(error).partition("\n")[0], folder) from error

    try:
        with beating(beat):
            yield
    finally:
        file_system.delete(place, True)


def sweep_url(spark: SparkSession, place: str, own: str, unmarked_before_ms: int) -> None:
    """Remove the folders of runs that were killed, as `kidxlib.run.heartbeat.sweep_folders` does in a directory.

    Args:
        place: the URL of the folders.
        own: of the run's own folder there, by whose heartbeat it is known what time it is there.
        unmarked_before_ms: a folder without a heartbeat goes where it was last changed before then; milliseconds since
            the epoch.
    """
    directory, file_system = hadoop_path(spark, place)
    heartbeat, _ = hadoop_path(spark, f"{own}/{HEARTBEAT}")
    dead_before_ms = file_system.getFileStatus(heartbeat).getModificationTime() - _DEAD_AFTER_MS
    for entry in file_system.listStatus(directory):
        with contextlib.suppress(Py4JError):  # its run has ended meanwhile
            heartbeat, _ = hadoop_path(spark, f"{entry.getPath()}/{HEARTBEAT}")
            if file_system.exists(heartbeat):
                is_dead = file_system.getFileStatus(heartbeat).getModificationTime() < dead_before_ms
            else:
                is_dead = entry.getModificationTime() < unmarked_before_ms
            if is_dead:
                file_system.delete(entry.getPath(), True)
