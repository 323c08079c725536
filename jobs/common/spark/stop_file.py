"""How work on executors learns that its run was interrupted: a file that the driver makes then, and that they look for
before each piece of work. What was begun is done, and its results come back as ever.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from jobs.common.spark.masters import is_local
from kidxlib.terminal import interrupts

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StopFile:
    """The file's path; None where executors would not see it: their work is then cancelled, its results are lost."""

    path: str | None = None

    def until_stopped(self, work: Iterable[_T]) -> Iterator[_T]:
        """On an executor: what there is to do, until the run is interrupted."""
        return iter(work) if self.path is None else takewhile(lambda _: not os.path.exists(self.path or ""), work)

    def stopping(self) -> AbstractContextManager[None]:
        """On the driver: while the context lasts work comes to its end where the run is interrupted."""
        return contextlib.nullcontext() if self.path is None else interrupts.stopping(self._make)

    def _make(self) -> None:
        if self.path is not None:
            Path(self.path).touch()


@contextlib.contextmanager
def stop_file(spark: SparkSession, staging: str | None) -> Iterator[StopFile]:
    """A file that is not there yet, and that is gone at the end.

    Args:
        staging: a directory of the catalog that every executor sees where it is no URL; it may be missing. None where
            there is no catalog.
    """
    if is_local(spark):
        directory = tempfile.mkdtemp(prefix="kidx-stop-")
    elif staging is None or "://" in staging:
        yield StopFile()
        return
    else:
        Path(staging).mkdir(parents=True, exist_ok=True)
        directory = tempfile.mkdtemp(prefix="stop-", dir=staging)
        Path(directory).chmod(0o755)
    try:
        yield StopFile(f"{directory}/stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
