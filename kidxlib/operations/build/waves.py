"""Reads segments in waves (`scan_in_waves`). Each is recorded in the catalog, and its partitions finished, before the
next begins: transactions, producers and leader epochs from the catalog's rows of their segments
(`finish_partitions_of`). Rows of scanned segments and of finished partitions are written into the tables, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import scope_of
from kidxlib.catalog.matching import Values, numbers_in, positions_in
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.results import FINISHED, SCANNED
from kidxlib.catalog.segments import SEGMENTS, FillableFacts
from kidxlib.engine.protocol import ensure_logs_visible
from kidxlib.engine.shares import cut_by_weight
from kidxlib.engine.work import StagedRows, Work, reads_little
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.build_counts import PROBLEM_FREE, PROBLEMS_KEPT, BuildCounts, SegmentProblem, count_unknown_facts
from kidxlib.indexing.changes import Changes, PartitionChange
from kidxlib.indexing.listed_segments import partition_numbers, sum_of_bytes
from kidxlib.indexing.plan import PartitionTask, Plan, PlannedPartition
from kidxlib.indexing.source import source_directories
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.packed import record_packed
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Progress, begin_phase
from kidxlib.text.words import counted

#: Bytes a second and core that the first wave is sized for; later ones use what was measured.
_FIRST_WAVE_RATE: Final = 100_000_000
#: Segments of a wave at most: their tasks and whole rows are held, some 2 kB each.
_WAVE_SEGMENTS: Final = 200_000
#: The phase in which a build writes what it has read into its catalog.
RECORDING: Final = "recording in the catalog"

#: Segments of the partitions that are finished at a time; the driver holds their rows, 0.5 kB each.
_SEGMENTS_AT_ONCE: Final = 200_000
_PROBLEM: Final = tuple(SegmentProblem.__dataclass_fields__)

#: Finished segments by topic and outcome, and the transactions aborted in them.
_BY_TOPIC: Final[list[pa.Field[Any]]] = [
    pa.field("topic", pa.string()),
    pa.field("published", pa.string()),
    pa.field("segments", pa.int64()),
    pa.field("aborted", pa.int64()),
]
FINISHED_BY_TOPIC: Final = pa.schema(_BY_TOPIC)
_ENTRIES: Final = ("offset_index_entries", "time_index_entries")


@dataclass(frozen=True, slots=True)
class BuildRun:
    """The parts of a run. `commit` commits the changes of `segments` that are held; those of other tables never are."""

    request: BuildRequest
    plan: Plan
    backend: Backend
    build_id: str
    commit: Callable[[], None]


@dataclass(slots=True)
class Scanned:
    """How far a build is, wave by wave.

    Attributes:
        unfinished: partitions that are still to be finished.
        seconds: of all waves, until their results were there.
        read_seconds: in which some executor was reading, so without the time until one began.
        finishing: how many groups of partitions were finished.
        rows_changed: rows of `segments` that reading and finishing have changed.
    """

    unfinished: dict[PartitionKey, PartitionChange]
    counts: BuildCounts = field(default_factory=BuildCounts)
    seconds: float = 0.0
    read_seconds: float = 0.0
    waves: int = 0
    finishing: int = 0
    rows_changed: int = 0


def scan_in_waves(run: BuildRun, changes: Changes) -> Scanned:
    """Read segments in waves. After each but the last, the partitions that it has read to the end are finished, and all
    is committed: so each row is written once. Partitions that are left after the last are the caller's.
    """
    scanned = Scanned(unfinished=dict(changes.to_finish))
    to_read, engine, limits = changes.to_read, run.backend.engine, run.request.limits
    if not to_read.num_rows:
        return scanned
    engine.start()
    before = engine.done()  # where workers have planned, they have listed segments

    def done() -> Progress:
        return engine.done() - before

    position, segments, log_bytes = 0, to_read.num_rows, changes.bytes_to_read
    bytes_a_second: float = _FIRST_WAVE_RATE * engine.cores
    with interrupts.telling(partial(_said_if_interrupted, run.request, scanned, segments)):
        while position < segments:
            wave_bytes = min(limits.wave_bytes, int(bytes_a_second * limits.wave_seconds))
            rows = _next_wave(to_read, position, wave_bytes)
            position += rows.num_rows
            begin_phase(
                "reading", done=done, segments=segments, log_bytes=log_bytes, after=recording_phase(run.request)
            )
            bytes_a_second = _scan(run, rows, scanned)
            if position < segments:
                begin_phase("finishing partitions")
                finish_partitions_of(run, _read_to_the_end(run.plan, rows, to_read.slice(position, 1)), scanned)
                begin_phase(recording_phase(run.request))
                run.commit()
    scanned.read_seconds = done().seconds
    return scanned


def recording_phase(request: BuildRequest) -> str:
    """The name of the phase after a wave is read."""
    return RECORDING if request.keeps_catalog else "collecting results"


def _said_if_interrupted(request: BuildRequest, scanned: Scanned, segments: int) -> str:
    """The words about an interrupted run, of so many segments to read."""
    of_all = f"{scanned.counts.total.segments:,} of {counted(segments, 'segment')}"
    if request.keeps_catalog:
        return f"{of_all} read and recorded in the catalog; run the same command again to go on"
    # In place an offset index may wait for the end of its partition, and is removed.
    read = f"{of_all} {'read' if request.in_place else 'indexed'}"
    return f"{read}; run the same command again, which reads all of them, as there is no catalog"


def _scan(run: BuildRun, rows: pa.Table, scanned: Scanned) -> float:
    """Read and record one wave, rows of `TO_READ`. Returns the bytes read a second."""
    from kidxlib.operations.build.scan_work import scan_shares  # compiled loops: not imported if nothing is read

    engine, request = run.backend.engine, run.request
    to_build = run.plan.to_build(rows, publish_truncated=request.publish_truncated)
    read_bytes = sum_of_bytes(rows)
    scanned.waves += 1
    start = time.monotonic()
    work = Work(
        f"{run.build_id}-{scanned.waves}",
        to_build.in_bins(engine.cores),
        scan_shares,
        SCANNED,
        source_directories({partition.source for partition in to_build.partitions}, request.sources),
        is_small=reads_little(read_bytes, rows.num_rows),
        maps=True,
    )
    with engine.stopping():
        staged = engine.run(work)
        seconds = time.monotonic() - start
        ensure_logs_visible(staged)
        begin_phase(recording_phase(request))
        scanned.rows_changed += _record_scanned(run.backend.catalog, staged, run.build_id)
        _count_scanned(staged, scanned.counts)
        staged.remove()
    scanned.seconds += seconds
    return max(1.0, read_bytes / seconds)


def _read_to_the_end(plan: Plan, rows: pa.Table, following: pa.Table) -> list[PlannedPartition]:
    """The partitions whose last segment is in a wave. `following` is the first row after the wave."""
    numbers = set(partition_numbers(rows).tolist()) - set(partition_numbers(following).tolist())
    return [plan.partitions[number] for number in sorted(numbers)]


def _next_wave(to_read: pa.Table, position: int, log_bytes: int) -> pa.Table:
    """The segments from `position` on that stay within `log_bytes`, one at least; all or none of the last partition,
    where that can be.
    """
    rows = to_read.slice(position, _WAVE_SEGMENTS + 1)
    bytes_up_to = np.cumsum(numbers_in(rows["log_bytes"])[0])
    end = int(np.searchsorted(bytes_up_to, log_bytes, side="right"))
    end = max(1, min(end, _WAVE_SEGMENTS))
    if end < rows.num_rows:
        partitions = partition_numbers(rows)
        end = int(np.searchsorted(partitions, partitions[end])) or end
    return rows.slice(0, end)


def finish_partitions_of(run: BuildRun, partitions: Iterable[PlannedPartition], scanned: Scanned) -> None:
    """Finish those of the partitions that are unfinished. Where there are many, what is held is committed after each
    group of partitions but the last.
    """
    auxiliary_files, unfinished = run.request.auxiliary_files, scanned.unfinished
    tasks = {
        partition.key: partition.partition_task(auxiliary_files)
        for partition in partitions
        if partition.key in unfinished
    }
    changes = {key: unfinished.pop(key) for key in tasks}
    for number, group in enumerate(_groups(changes)):
        if number:
            run.commit()
        scanned.finishing += 1
        name = f"{run.build_id}-finish-{scanned.finishing}"
        scanned.rows_changed += _finish(run, name, {key: tasks[key] for key in group}, changes, scanned.counts)


def _finish(
    run: BuildRun,
    name: str,
    tasks: Mapping[PartitionKey, PartitionTask],
    changes: Mapping[PartitionKey, PartitionChange],
    counts: BuildCounts,
) -> int:
    """Finish the tasks' partitions; `changes` may have others too. Returns how many rows of `segments` changed."""
    # compiled loops, as in `_scan`
    from kidxlib.operations.build.finish_work import finish_partitions, partitions_to_finish

    engine, catalog = run.backend.engine, run.backend.catalog
    with engine.stopping():
        shares, unfolded = partitions_to_finish(catalog.tables, engine, tasks, changes)
        units = [[share] for share in shares]
        is_small = reads_little(sum(share.row_bytes for share in shares), len(units))
        staged = engine.run(Work(name, units, finish_partitions, FINISHED, is_small=is_small))
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        _count_finished(staged, unfolded, _withdrawn_segments(catalog, staged), counts)
        return _record_finished(catalog, staged, run.build_id)


def _groups(changes: Mapping[PartitionKey, PartitionChange]) -> Iterator[list[PartitionKey]]:
    """Partitions that are finished together, neighbours in the tables."""
    keys = sorted(changes, key=itemgetter(1, 2, 0))  # as files are sorted
    for start, end in cut_by_weight([changes[key].segments for key in keys], _SEGMENTS_AT_ONCE):
        yield keys[start:end]


def _record_scanned(catalog: TablesCatalog, staged: StagedRows, build_id: str) -> int:
    """Record rows of `SCANNED`, packed files and events first: a segment that is recorded is not read again. Returns
    how many rows of `segments` were added or changed.
    """
    record_packed(catalog.tables, staged)
    tables, since = catalog.tables, catalog.compared_with
    rows = _not_overtaken(catalog, staged.found("segment", "event"), build_id)
    tables.change_rows(PRODUCER_EVENTS, rows, updates.events, by=SEGMENTS.key)
    change = partial(updates.scanned, build_id=build_id)
    return tables.change_rows(SEGMENTS, rows, change, by=SEGMENTS.key, since=since, build_id=build_id)


def _record_finished(catalog: TablesCatalog, staged: StagedRows, build_id: str) -> int:
    """Record rows of `FINISHED`. Returns how many rows of `segments` changed that this build had not changed before."""
    tables = catalog.tables
    record_packed(tables, staged)
    tables.change_rows(ABORTED_TRANSACTIONS, staged.found("partition", "aborted"), updates.aborted, by=PARTITIONS.key)
    tables.change_rows(PARTITION_STATES, staged.found("partition", "state"), updates.states, by=PARTITIONS.key)
    change = partial(updates.finished, build_id=build_id)
    return tables.change_rows(SEGMENTS, staged.found("segment"), change, by=SEGMENTS.key)


def _withdrawn_segments(catalog: TablesCatalog, staged: StagedRows) -> pa.Table:
    """The segments that finishing has quarantined, with their logs and `status_before`. To be asked for before the
    finished rows are recorded.
    """
    names = [*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail"]
    rows = staged.rows("segment", names)
    rows = rows.filter(rows["status"].is_valid())
    known_names = [*SEGMENTS.key, "status", "log_path"]
    if rows.num_rows:
        known = catalog.tables.read(SEGMENTS, known_names, scope_of({"segment": rows}, SEGMENTS.key))
    else:
        known = SEGMENTS.schema(known_names).empty_table()
    known = known.take(positions_in(rows, known, SEGMENTS.key))
    return rows.append_column("status_before", known["status"]).append_column("log_path", known["log_path"])


def _not_overtaken(catalog: TablesCatalog, rows: Found, build_id: str) -> Found:
    """Rows without the segments of which another run has recorded a later state since this one compared."""
    tables, since = catalog.tables, catalog.compared_with
    if since is None or tables.version(SEGMENTS) == since:
        return rows
    scope, names = scope_of({"segment": rows["segment"]}, SEGMENTS.key), [*SEGMENTS.key, "build_id"]
    before = tables.read(SEGMENTS, names, scope, since)
    now = tables.read(SEGMENTS, [*names, "log_mtime_ns"], scope)
    return updates.not_overtaken(rows, before, now, build_id)


def _count_scanned(staged: StagedRows, counts: BuildCounts) -> None:
    """Add a wave's rows of `SCANNED` to the counts."""
    kinds = ["topic", "status", "published"]
    rows = staged.rows("segment", [*kinds, "log_bytes", "batches", *_ENTRIES, *FillableFacts.names()])
    counts.unknown_facts.update(
        count_unknown_facts(rows.filter(pc.field("status").isin([*USABLE, Status.QUARANTINED])))
    )
    # Kafka's indexes of one segment have no more entries than an int32 counts, but all of a topic may.
    offset_entries, time_entries = (_or_zero(rows[name]) for name in _ENTRIES)
    entries: Values = pc.add(offset_entries, time_entries)
    summed = (
        rows.append_column("entries", entries)
        .group_by(kinds)
        .aggregate([([], "count_all"), *((name, "sum") for name in ("log_bytes", "batches", "entries"))])
    )
    for row in summed.to_pylist():
        counts.topic(row["topic"]).add(
            segments=row["count_all"],
            log_bytes=row["log_bytes_sum"] or 0,
            batches=row["batches_sum"] or 0,
            entries=row["entries_sum"] or 0,
            status=row["status"],
            published=row["published"],
        )
    if counts.total.problems > len(counts.problems):
        problem_free = pa.array([status.value for status in PROBLEM_FREE])
        problems = staged.rows("segment", _PROBLEM).filter(~pc.field("status").isin(problem_free))
        _keep_first(problems, counts)


def finished_by_topic(rows: pa.Table) -> pa.Table:
    """Count segments of finished partitions by topic and outcome, as rows of `FINISHED_BY_TOPIC`."""
    kinds = ["topic", "published"]
    summed = rows.group_by(kinds).aggregate([([], "count_all"), ("aborted_transactions", "sum")])
    summed = summed.select([*kinds, "count_all", "aborted_transactions_sum"])
    return summed.rename_columns(FINISHED_BY_TOPIC.names).cast(FINISHED_BY_TOPIC)


def _count_finished(staged: StagedRows, unfolded: pa.Table, withdrawn: pa.Table, counts: BuildCounts) -> None:
    """Add rows of `FINISHED` to the counts, with `unfolded`, rows of `FINISHED_BY_TOPIC` of the segments of the same
    partitions that were not folded again, and the withdrawn segments.
    """
    counts.kept += map(str, staged.rows("kept", ["path"])["path"].to_pylist())
    folded = finished_by_topic(staged.rows("segment", ["topic", "published", "aborted_transactions"]))
    for row in pa.concat_tables([folded, unfolded]).to_pylist():
        topic = counts.topic(row["topic"])
        topic.aborted_transactions += row["aborted"] or 0
        topic.by_transaction_index[row["published"]] += row["segments"]
    kinds = ["topic", "status_before"]
    for row in withdrawn.group_by(kinds).aggregate([([], "count_all")]).to_pylist():
        counts.topic(row["topic"]).withdraw(row["status_before"], row["count_all"])
    _keep_first(withdrawn, counts)


def _or_zero(column: Values) -> Values:
    return pc.coalesce(column.cast(pa.int64()), pa.scalar(0, pa.int64()))


def _keep_first(problems: pa.Table, counts: BuildCounts) -> None:
    """Keep the first segments with problems, up to the limit."""
    room = max(0, PROBLEMS_KEPT - len(counts.problems))
    first = problems.select(_PROBLEM).sort_by([(name, "ascending") for name in _PROBLEM[:4]]).slice(0, room)
    counts.problems.extend(SegmentProblem(**row) for row in first.to_pylist())
