"""Finishes partitions (`finish_partitions_of`): transactions, producers and leader epochs from the catalog's rows of
their segments. Rows of scanned segments and of finished partitions are written into the tables, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.change import Found
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.results import FINISHED
from kidxlib.catalog.segments import SEGMENTS, FillableFacts
from kidxlib.engine.shares import cut_by_weight
from kidxlib.engine.work import Staged, Work, reads_little
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import PartitionChange, count_unknown
from kidxlib.indexing.plan import ListedPartition
from kidxlib.indexing.summary import PROBLEM_FREE, PROBLEMS_KEPT, Counts, SegmentProblem
from kidxlib.indexing.tasks import PartitionTask
from kidxlib.operations.build.build_run import BuildRun, Scanned
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.packed import record_packed
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.tables.protocol import scope_of
from kidxlib.terminal import interrupts

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


def finish_partitions_of(run: BuildRun, partitions: Iterable[ListedPartition], scanned: Scanned) -> None:
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


def record_scanned(catalog: TablesCatalog, staged: Staged, build_id: str) -> int:
    """Record rows of `SCANNED`, packed files and events first: a segment that is recorded is not read again. Returns
    how many rows of `segments` were added or changed.
    """
    record_packed(catalog.tables, staged)
    tables, since = catalog.tables, catalog.compared_with
    rows = _not_overtaken(catalog, staged.found("segment", "event"), build_id)
    tables.change_rows(PRODUCER_EVENTS, rows, updates.events, by=SEGMENTS.key)
    change = partial(updates.scanned, build_id=build_id)
    return tables.change_rows(SEGMENTS, rows, change, by=SEGMENTS.key, since=since, build_id=build_id)


def record_finished(catalog: TablesCatalog, staged: Staged, build_id: str) -> int:
    """Record rows of `FINISHED`. Returns how many rows of `segments` changed that this build had not changed before."""
    tables = catalog.tables
    record_packed(tables, staged)
    tables.change_rows(ABORTED_TRANSACTIONS, staged.found("partition", "aborted"), updates.aborted, by=PARTITIONS.key)
    tables.change_rows(PARTITION_STATES, staged.found("partition", "state"), updates.states, by=PARTITIONS.key)
    change = partial(updates.finished, build_id=build_id)
    return tables.change_rows(SEGMENTS, staged.found("segment"), change, by=SEGMENTS.key)


def _withdrawn_segments(catalog: TablesCatalog, staged: Staged) -> pa.Table:
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


def count_scanned(staged: Staged, counts: Counts) -> None:
    """Add a wave's rows of `SCANNED` to the counts."""
    kinds = ["topic", "status", "published"]
    rows = staged.rows("segment", [*kinds, "log_bytes", "batches", *_ENTRIES, *FillableFacts.names()])
    counts.unknown_facts.update(count_unknown(rows.filter(pc.field("status").isin([*USABLE, Status.QUARANTINED]))))
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
    if counts.problem_count > len(counts.problems):
        problem_free = pa.array([status.value for status in PROBLEM_FREE])
        problems = staged.rows("segment", _PROBLEM).filter(~pc.field("status").isin(problem_free))
        _keep_first(problems, counts)


def finished_by_topic(rows: pa.Table) -> pa.Table:
    """Rows of `FINISHED_BY_TOPIC` from rows of finished segments."""
    kinds = ["topic", "published"]
    summed = rows.group_by(kinds).aggregate([([], "count_all"), ("aborted_transactions", "sum")])
    summed = summed.select([*kinds, "count_all", "aborted_transactions_sum"])
    return summed.rename_columns(FINISHED_BY_TOPIC.names).cast(FINISHED_BY_TOPIC)


def count_finished(staged: Staged, unfolded: pa.Table, withdrawn: pa.Table, counts: Counts) -> None:
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


def _keep_first(problems: pa.Table, counts: Counts) -> None:
    """Keep the first segments with problems, up to the limit."""
    room = max(0, PROBLEMS_KEPT - len(counts.problems))
    first = problems.select(_PROBLEM).sort_by([(name, "ascending") for name in _PROBLEM[:4]]).slice(0, room)
    counts.problems.extend(SegmentProblem(**row) for row in first.to_pylist())


def _finish(
    run: BuildRun,
    name: str,
    tasks: Mapping[PartitionKey, PartitionTask],
    changes: Mapping[PartitionKey, PartitionChange],
    counts: Counts,
) -> int:
    """Finish the tasks' partitions; `changes` may have others too. Returns how many rows of `segments` changed."""
    # Compiled loops, as in waves.py.
    from kidxlib.operations.build.finish_work import finish_partitions, partitions_to_finish

    engine, catalog = run.backend.engine, run.backend.catalog
    with engine.stopping():
        partitions = partitions_to_finish(catalog.tables, engine, tasks, changes)
        units = [[share] for share in partitions.shares]
        is_small = reads_little(sum(share.row_bytes for share in partitions.shares), len(units))
        staged = engine.run(Work(name, units, finish_partitions, FINISHED, is_small=is_small))
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        count_finished(staged, partitions.unfolded, _withdrawn_segments(catalog, staged), counts)
        return record_finished(catalog, staged, run.build_id)


def _groups(changes: Mapping[PartitionKey, PartitionChange]) -> Iterator[list[PartitionKey]]:
    """Partitions that are finished together, neighbours in the tables."""
    keys = sorted(changes, key=itemgetter(1, 2, 0))  # as files are sorted
    for start, end in cut_by_weight([changes[key].segments for key in keys], _SEGMENTS_AT_ONCE):
        yield keys[start:end]
