"""The engine of one machine: processes on its cores, and a directory that they and the command share."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.engine.processes import Workers, until_stopped
from kidxlib.engine.row_batches import row_batches
from kidxlib.engine.scratch import writing_in
from kidxlib.engine.shared_rows import RowsInFile
from kidxlib.engine.staged import StagedFiles
from kidxlib.engine.work import ItemRows, Work
from kidxlib.terminal.phase import Done, Span

#: Rows that a worker holds before it writes them. Few segments have as many, but one may have millions of events.
_ROWS_PER_GROUP: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of work, and the file that it fills."""

    items: Sequence[Any]
    do: Callable[[Iterable[Any], bool], Iterator[ItemRows]]
    schema: pa.Schema
    path: str


@dataclass(frozen=True, slots=True)
class _UnitDone:
    path: str
    segments: int
    log_bytes: int
    span: Span


class LocalEngine:
    """Processes of this machine. They are started when there is work, and end with the context.

    Args:
        workers: the processes.
        directory: where rows are put. It goes when its owner removes it.
    """

    def __init__(self, workers: Workers, directory: Path) -> None:
        self._workers, self._directory = workers, directory
        self._segments = self._log_bytes = 0
        self._span = Span()
        self._seconds = 0.0
        self._shared = itertools.count()

    @property
    def cores(self) -> int:
        """See `Engine.cores`."""
        return self._workers.processes

    def stopping(self) -> AbstractContextManager[None]:
        """See `Engine.stopping`."""
        return self._workers.stopping()

    def share(self, rows: pa.Table) -> RowsInFile:
        """See `Engine.share`."""
        with writing_in(self._directory):
            return RowsInFile.write(rows, str(self._directory / f"shared-{next(self._shared)}.parquet"))

    def run(self, work: Work[Any]) -> StagedFiles:
        """See `Engine.run`."""
        directory = self._directory / work.name
        with writing_in(self._directory):
            directory.mkdir(parents=True)
        files: list[str] = []
        self._seconds, self._span = self.done().seconds, Span()

        def take(unit: _UnitDone) -> None:
            files.append(unit.path)
            self._segments += unit.segments
            self._log_bytes += unit.log_bytes
            self._span |= unit.span

        units = [
            _Unit(items, work.do, work.schema, str(directory / f"{number}.parquet"))
            for number, items in enumerate(work.units)
        ]
        self._workers.run(_do_unit, units, take)
        return StagedFiles(sorted(files), work.schema)

    def done(self) -> Done:
        """See `Engine.done`."""
        return Done(self._segments, self._log_bytes, self._seconds + self._span.seconds)


def _do_unit(unit: _Unit, use_mmap: bool) -> _UnitDone:
    begin = time.time()
    segments = log_bytes = 0

    def rows() -> Iterator[dict[str, Any] | pa.RecordBatch]:
        nonlocal segments, log_bytes
        for done in unit.do(until_stopped(unit.items), use_mmap):
            yield from done.batches
            yield from done.rows
            segments += done.segments
            log_bytes += done.log_bytes

    _write(unit.path, row_batches(rows(), unit.schema), unit.schema)
    return _UnitDone(unit.path, segments, log_bytes, Span(begin, time.time()))


def _write(path: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    place = Path(path).parent.parent
    with contextlib.ExitStack() as stack:
        with writing_in(place):
            writer = stack.enter_context(pq.ParquetWriter(path, schema, compression="lz4"))
        for group in _groups(batches):
            with writing_in(place):
                writer.write_table(pa.Table.from_batches(group, schema), row_group_size=_ROWS_PER_GROUP)
        with writing_in(place):
            writer.close()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches until they have as many rows as a group of a file."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= _ROWS_PER_GROUP:
            yield group
            group = []
    if group:
        yield group
