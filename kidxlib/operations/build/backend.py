"""A build without Spark: an engine reads segments and finishes partitions, and the catalog's tables take the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.changes import FirstPresent
from kidxlib.build.source import Source
from kidxlib.build.summary import Counts
from kidxlib.build.tasks import BuildTask, PartitionTask
from kidxlib.catalog import updates
from kidxlib.catalog.change import Found
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import FINISHED, SCANNED
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.counts import count_finished, count_scanned
from kidxlib.operations.build.finish_work import finish_partitions
from kidxlib.operations.build.scan_work import scan_segments
from kidxlib.operations.build.to_finish import partitions_to_finish
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.scope import scope_of
from kidxlib.terminal.phase import Done


class EngineBackend:
    """See `kidxlib.operations.build.protocol.BuildBackend`.

    Args:
        versions: of what keeps the tables.
        scratch: a directory for files that workers read. It goes when its owner removes it.
    """

    def __init__(self, engine: Engine, catalog: TablesCatalog, versions: Mapping[str, str], scratch: Path) -> None:
        self.catalog = catalog
        self.versions = versions
        self._engine, self._scratch = engine, scratch

    @property
    def cores(self) -> int:
        """How many bins of work are done at a time."""
        return self._engine.cores

    def beginning_workers(self, wanted: bool) -> AbstractContextManager[None]:
        """Nothing: the engine's workers start with their work."""
        return contextlib.nullcontext()

    def stopping(self) -> AbstractContextManager[None]:
        """While the context lasts, work that was begun comes to its end where the run is interrupted."""
        return self._engine.stopping()

    def done(self) -> Done:
        """How much was read in all scans, as bins end."""
        return self._engine.done()

    @contextlib.contextmanager
    def scan(self, name: str, bins: Sequence[Sequence[BuildTask]], sources: Sequence[Source]) -> Iterator[_ScannedWave]:
        """Read segments, and stage what is found."""
        yield _ScannedWave(self.catalog, self._engine.run(Work(name, bins, scan_segments, SCANNED)))

    @contextlib.contextmanager
    def finish(
        self, name: str, tasks: Mapping[PartitionKey, PartitionTask], first_present: Mapping[PartitionKey, FirstPresent]
    ) -> Iterator[_FinishedPartitions]:
        """Finish partitions, and stage what comes of it."""
        shares = min(len(tasks), self.cores * BINS_PER_CORE)
        directory = self._scratch / f"{name}-from"
        directory.mkdir()
        units = [
            [share] for share in partitions_to_finish(self.catalog.tables, tasks, first_present, shares, directory)
        ]
        staged = self._engine.run(Work(name, units, finish_partitions, FINISHED))
        yield _FinishedPartitions(self.catalog, staged)


@dataclass(frozen=True, slots=True)
class _ScannedWave:
    catalog: TablesCatalog
    staged: Staged

    def record(self, build_id: str) -> int:
        """The events first: a segment that is recorded is not read again."""
        tables, since = self.catalog.tables, self.catalog.compared_with
        found = self._not_overtaken(self.staged.found("segment", "event"), build_id)
        tables.change(PRODUCER_EVENTS, found, updates.events, by=SEGMENTS.key)
        change = partial(updates.scanned, build_id=build_id)
        return tables.change(SEGMENTS, found, change, by=SEGMENTS.key, since=since, build_id=build_id)

    def count(self, counts: Counts) -> None:
        count_scanned(self.staged, counts)

    def _not_overtaken(self, found: Found, build_id: str) -> Found:
        """Without segments of which another run has recorded a later state since this one compared."""
        tables, since = self.catalog.tables, self.catalog.compared_with
        if since is None or tables.version(SEGMENTS) == since:
            return found
        scope, names = scope_of({"segment": found["segment"]}, SEGMENTS.key), [*SEGMENTS.key, "build_id"]
        before = tables.read(SEGMENTS, names, scope, since)
        now = tables.read(SEGMENTS, [*names, "log_mtime_ns"], scope)
        return updates.not_overtaken(found, before, now, build_id)


@dataclass(frozen=True, slots=True)
class _FinishedPartitions:
    catalog: TablesCatalog
    staged: Staged

    def count(self, counts: Counts) -> None:
        count_finished(self.staged, self._withdrawn(), counts)

    def record(self, build_id: str) -> int:
        tables = self.catalog.tables
        tables.change(ABORTED_TRANSACTIONS, self.staged.found("segment", "aborted"), updates.aborted, by=PARTITIONS.key)
        change = partial(updates.finished, build_id=build_id)
        return tables.change(SEGMENTS, self.staged.found("segment"), change, by=SEGMENTS.key)

    def _withdrawn(self) -> pa.Table:
        """The segments that finishing found to be quarantined, with their logs, and `status_before`."""
        names = [*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail"]
        rows = self.staged.rows("segment", names)
        rows = rows.filter(rows["status"].is_valid())
        known_names = [*SEGMENTS.key, "status", "log_path"]
        if rows.num_rows:
            known = self.catalog.tables.read(SEGMENTS, known_names, scope_of({"segment": rows}, SEGMENTS.key))
        else:
            known = SEGMENTS.schema(known_names).empty_table()
        known = known.take(positions_in(rows, known, SEGMENTS.key))
        return rows.append_column("status_before", known["status"]).append_column("log_path", known["log_path"])
