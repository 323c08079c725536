"""The engine of one machine: processes on its cores, and a directory that the processes and the command share."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from kidxlib.engine.processes import Workers, until_stopped
from kidxlib.engine.staged import StagedFiles
from kidxlib.engine.units import UnitDone, do_unit, run_in_process, units_of
from kidxlib.engine.work import RowsInFile, Work
from kidxlib.storage.scratch import writing_in
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.phase import Done, Span


class LocalEngine:
    """Processes of this machine. They are started when there is much work; the command does a little work itself. Rows
    are written to a directory that its owner removes.
    """

    def __init__(self, workers: Workers, directory: Path) -> None:
        self._workers, self._directory = workers, directory
        self._segments = self._log_bytes = 0
        self._requests = Requests()
        self._span = Span()
        self._seconds = 0.0
        self._shared = itertools.count()

    @property
    def cores(self) -> int:
        return self._workers.processes

    @property
    def is_on_this_machine(self) -> bool:
        return True

    def start(self) -> None:
        """Processes start with their first unit."""

    def stopping(self) -> AbstractContextManager[None]:
        return self._workers.stopping()

    def share(self, rows: pa.Table) -> RowsInFile:
        with writing_in(self._directory):
            return RowsInFile.write(rows, str(self._directory / f"shared-{next(self._shared)}.parquet"))

    def run(self, work: Work[Any]) -> StagedFiles:
        directory = self._directory / work.name
        files: list[str] = []
        self._seconds, self._span = self.done().seconds, Span()

        def take(unit: UnitDone) -> None:
            files.append(unit.path)
            self._segments += unit.segments
            self._log_bytes += unit.log_bytes
            self._span |= unit.span

        def take_of_worker(unit: UnitDone) -> None:
            take(unit)
            self._requests += unit.requests

        if work.is_small and not self._workers.are_started:
            return run_in_process(work, directory, self._workers.until_stopped, take)
        do = partial(do_unit, until_stopped=until_stopped)
        self._workers.run(do, units_of(work, directory), take_of_worker)
        return StagedFiles(sorted(files), work.schema)

    def sweep(self, older_than_ms: int) -> None:
        """This engine stages nothing at URLs."""

    def done(self) -> Done:
        return Done(self._segments, self._log_bytes, self._seconds + self._span.seconds)

    def requests(self) -> Requests:
        return self._requests
