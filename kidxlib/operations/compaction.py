"""Compaction of a catalog's index files: workers get the catalog's rows and plan or make changes (`compact_files`, by
`compact_partitions`), and these are summed up by topic (`compaction_report`). Changes are made under the log dirs'
locks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import PRESENT, Among, rows_where
from kidxlib.catalog.index_bytes import packed_batches
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS, named_key, partition_keys
from kidxlib.catalog.results import COMPACTED, CompactedFile
from kidxlib.catalog.segments import SEGMENTS, IndexFacts, LogVersion, SegmentToCompact
from kidxlib.compaction.compact_partition import (
    NOT_OURS,
    ChangeAction,
    ChangeOutcome,
    CompactionOptions,
    CompactionTask,
    IndexChange,
    Mode,
    compact_each_partition,
)
from kidxlib.engine.protocol import Engine
from kidxlib.engine.shares import ROWS_AT_ONCE, share_rows_of, shares
from kidxlib.engine.work import ItemRows, SharedRows, StagedRows, Work, reads_little
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import index_directory, segments_directory
from kidxlib.operations.backend import Backend
from kidxlib.operations.packed import record_packed
from kidxlib.recovery.outcome import ABSENT
from kidxlib.run.sources import source_paths, sources_in_catalog
from kidxlib.storage.location import location
from kidxlib.storage.lock import locked
from kidxlib.storage.store.s3 import SCHEME
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import begin_phase
from kidxlib.terminal.outcome import LINES_SHOWN

_OF_INDEXES: Final = Among("action", (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value))
_IN_PLACE: Final = Among("outcome", (ChangeOutcome.WRITTEN.value, ChangeOutcome.UNCHANGED.value))

_NAMES: Final = tuple(dict.fromkeys([*SEGMENTS.key, *SegmentToCompact.names()]))

#: A row of the JSON object's `changes`.
_JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after", "interval_before"),
    *("interval_bytes", "mean_scan_bytes_before", "max_scan_bytes_before"),
    *("mean_scan_bytes_after", "max_scan_bytes_after"),
)

_KEPT: Final = Among("outcome", (ChangeOutcome.KEPT.value,))
_NOT_KEPT: Final = Among("outcome", (ChangeOutcome.KEPT.value,), negated=True)
_CHANGED: Final = Among("outcome", (ChangeOutcome.KEPT.value, ChangeOutcome.UNCHANGED.value), negated=True)
_MEANS: Final = ("mean_scan_bytes_before", "mean_scan_bytes_after")
_MOST: Final = ("max_scan_bytes_before", "max_scan_bytes_after")
_KINDS: Final = ["topic", "action"]
#: The columns that a line on screen needs.
_LINE_COLUMNS: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after"),
    *("interval_before", "interval_bytes"),
)


@dataclass(frozen=True, slots=True)
class PartitionsToCompact:
    """
    Attributes:
        rows: keys and the columns of `SegmentToCompact`; those of a partition follow one another, segments in order.
        log_bytes: size of the logs that exist.
    """

    rows: SharedRows
    log_bytes: int


def compact_partitions(
    shares: Iterable[PartitionsToCompact],
    use_mmap: bool,
    *,
    sources: Mapping[str, str],
    options: CompactionOptions,
    mode: Mode,
) -> Iterator[ItemRows]:
    """Rows of `COMPACTED`. If it is repeated, `Mode.APPLY` gives the same files and rows, except for `outcome`.
    `sources` has the paths of sources by name.
    """
    for share in shares:
        for change in compact_each_partition(_tasks(share.rows.batches(), sources), options, mode, use_mmap):
            yield ItemRows(batches=packed_batches(change.packed, COMPACTED), rows=[{"compacted": _row(change)}])


def _tasks(batches: Iterator[pa.RecordBatch], sources: Mapping[str, str]) -> Iterator[CompactionTask]:
    segments = (
        ((key["source"], key["topic"], key["partition"]), segment)
        for batch in batches
        for key, segment in zip(batch.select(PARTITIONS.key).to_pylist(), SegmentToCompact.of_arrow(batch), strict=True)
    )
    for key, group in groupby(segments, key=itemgetter(0)):
        source, topic, number = key
        partition, of_partition = TopicPartition(topic, number), [segment for _, segment in group]
        # Rows of segments that are gone still say where the files were.
        present = [segment for segment in of_partition if segment.status not in ABSENT] or of_partition
        directory = index_directory(partition, [segment.index_directory for segment in present])
        if directory is None:
            continue  # the rows do not say where the index files are
        path = sources.get(source)
        logs = {segment.base_offset: segment.log_path for segment in present}
        yield CompactionTask(
            key=key,
            segments_directory=None if path is None else segments_directory(location(path), partition, logs),
            index_directory=directory,
            segments=tuple(of_partition),
        )


def _row(change: IndexChange) -> dict[str, Any]:
    file, coarsened = _file(change).values(), change.coarsened
    if coarsened is None:
        return file
    indexes = IndexFacts.of_files(coarsened.interval_after, coarsened.offset_index, coarsened.time_index)
    return {**file, **indexes.values(), **LogVersion.of_file(coarsened.version).values()}


def _file(change: IndexChange) -> CompactedFile:
    coarsened = change.coarsened
    before, after = (coarsened.cost_before, coarsened.cost_after) if coarsened is not None else (None, None)
    return CompactedFile(
        **named_key(change.key),
        base_offset=change.base_offset,
        action=change.action.value,
        outcome=change.outcome.value,
        reason=change.reason,
        path=change.place.path,
        log_dir=change.place.log_dir,
        bytes_before=change.bytes_before,
        bytes_after=change.bytes_after,
        interval_before=None if coarsened is None else coarsened.interval_before,
        mean_scan_bytes_before=None if before is None else before.mean,
        max_scan_bytes_before=None if before is None else before.most,
        mean_scan_bytes_after=None if after is None else after.mean,
        max_scan_bytes_after=None if after is None else after.most,
    )


def _partitions_to_compact(
    tables: Tables, engine: Engine, named: Sequence[str], pattern: re.Pattern[str], options: CompactionOptions
) -> Iterator[PartitionsToCompact]:
    """The wanted partitions, in shares of about as many segments each, with segments that are gone. `named` are
    sources; all if empty.
    """
    known = tables.counts(SEGMENTS, PARTITIONS.key)
    topics: dict[str, set[str]] = {}
    for source, topic, _ in partition_keys(known):
        topics.setdefault(source, set()).add(topic)
    sources = sources_in_catalog(named, topics)
    matching = {topic for source in sources for topic in topics[source] if pattern.fullmatch(topic)}
    if not matching:
        raise UsageError(f"{tables.path}: no segment of a topic that matches {pattern.pattern}; give another --topics")
    wanted = rows_where(known, [Among("source", sources), Among("topic", matching)])
    share_rows = share_rows_of(wanted, engine.cores, ROWS_AT_ONCE)
    for _, rows in shares(partial(tables.read, SEGMENTS, _NAMES), wanted, share_rows, ROWS_AT_ONCE):
        if options.trim or options.orphans:
            _ensure_no_objects(rows)
        log_bytes = pc.sum(rows_where(rows, [PRESENT])["log_bytes"]).as_py()
        yield PartitionsToCompact(engine.share(rows), int(log_bytes or 0))


def _ensure_no_objects(rows: pa.Table) -> None:
    """Refuse to trim or remove files in an object store."""
    in_store: Values = pc.or_(pc.starts_with(rows["log_path"], SCHEME), pc.starts_with(rows["index_directory"], SCHEME))
    for row in rows.select(["source", "log_path", "index_directory"]).filter(in_store).slice(0, 1).to_pylist():
        raise UsageError(
            f"source {row['source']}: {row['log_path']}, with its index files in {row['index_directory']}: --trim and "
            "--orphans change nothing in an object store; name the others with --source, or leave both out"
        )


def compact_files(
    backend: Backend,
    named: Sequence[str],
    pattern: re.Pattern[str],
    options: CompactionOptions,
    *,
    apply: bool,
    stack: contextlib.ExitStack,
) -> StagedRows:
    """The changes, as rows of `COMPACTED`. With `apply` they are made and recorded. `named` are sources, all if empty;
    `stack` releases the locks of the log dirs that are written to.
    """
    begin_phase("looking at index files")
    engine, tables = backend.engine, backend.catalog.tables
    shares = list(_partitions_to_compact(tables, engine, named, pattern, options))
    sources = source_paths(tables)
    engine.start()
    if not apply:
        return engine.run(_work(shares, sources, options, Mode.PLAN))
    log_dirs = _lock(engine.run(_work(shares, sources, options, Mode.LOOK)), engine, stack)
    begin_phase("writing index files")
    with engine.stopping():
        changes = engine.run(_work(shares, sources, replace(options, locked=log_dirs), Mode.APPLY))
        begin_phase("recording in the catalog")
        _record(tables, changes)
    return changes


def _work(
    shares: Sequence[PartitionsToCompact], sources: Mapping[str, str], options: CompactionOptions, mode: Mode
) -> Work[PartitionsToCompact]:
    return Work(
        f"compact-{mode.name.lower()}",
        [[share] for share in shares],
        partial(compact_partitions, sources=sources, options=options, mode=mode),
        COMPACTED,
        is_small=reads_little(sum(share.log_bytes for share in shares), len(shares)),
        maps=True,
    )


def _record(tables: Tables, changes: StagedRows) -> None:
    """Record packed files, and in `segments` the indexes that were replaced, as many at a time as fit into memory."""
    record_packed(tables, changes)
    names = [*SEGMENTS.key, "action", "outcome", *IndexFacts.names(), *LogVersion.names()]
    rows = rows_where(changes.rows("compacted", names), [_OF_INDEXES, _IN_PLACE])
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        part = rows.slice(start, ROWS_AT_ONCE)
        tables.change_rows(SEGMENTS, {"compacted": part}, updates.coarsened, by=SEGMENTS.key)


def _lock(changes: StagedRows, engine: Engine, stack: contextlib.ExitStack) -> frozenset[str]:
    """Lock the log dirs that would be written to, and return their paths."""
    rows = rows_where(changes.rows("compacted", ["outcome", "log_dir"]), [_NOT_KEPT])
    log_dirs = sorted(str(log_dir) for log_dir in pc.unique(rows["log_dir"].drop_null()).to_pylist())
    if log_dirs and not engine.is_on_this_machine:
        raise UsageError(
            f"--apply: files in {log_dirs[0]} are to change; only with a local master, so that the log dir's lock "
            "covers every writer; give -- --master 'local[*]', or use kidx"
        )
    for log_dir in log_dirs:
        stack.enter_context(locked(Path(log_dir)))
    return frozenset(log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCompaction:
    """What one action does to the files of one topic, without files that stay.

    Attributes:
        changes: the number of files, or of pairs of indexes.
        mean_scan_bytes_before, mean_scan_bytes_after: bytes of log that a lookup walks through, on average.
        max_scan_bytes_before, max_scan_bytes_after: at most.
    """

    topic: str
    action: str
    changes: int
    bytes_before: int
    bytes_after: int
    mean_scan_bytes_before: int | None
    max_scan_bytes_before: int | None
    mean_scan_bytes_after: int | None
    max_scan_bytes_after: int | None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """
    Attributes:
        changed: the number of files that change, and the lines of some.
        unchanged: the number of pairs of indexes that have the same bytes with the new interval.
        kept: the number of files that stay although they were to change, and the lines of some.
        problems: the number of kept files that a person should look into.
    """

    topics: list[TopicCompaction]
    changed: tuple[int, list[str]]
    unchanged: int
    kept: tuple[int, list[str]]
    problems: int


def compaction_report(changes: StagedRows) -> CompactionReport:
    rows = changes.rows("compacted", _LINE_COLUMNS)
    changed, kept = rows_where(rows, [_CHANGED]), rows_where(rows, [_KEPT])
    not_ours = rows_where(kept, [Among("reason", (NOT_OURS,))]).num_rows
    return CompactionReport(
        topics=_savings(changes),
        changed=(changed.num_rows, _lines(changed)),
        unchanged=rows.num_rows - changed.num_rows - kept.num_rows,
        kept=(kept.num_rows, _lines(kept)),
        problems=kept.num_rows - not_ours,
    )


def _in_order(changes: pa.Table, first: int | None = None) -> pa.Table:
    """The changes, or the first so many, by partition, and files of no segment before those of segments."""
    names = (*SEGMENTS.key, "action", "path")
    order: Any = [(name, "ascending", "at_start") for name in names]
    at: Values = pc.sort_indices(changes, sort_keys=order)
    return changes.take(at if first is None else at.slice(0, first))


def _savings(changes: StagedRows) -> list[TopicCompaction]:
    names = [*_KINDS, "outcome", "bytes_before", "bytes_after", "log_bytes", *_MEANS, *_MOST]
    rows = rows_where(changes.rows("compacted", names), [_CHANGED])
    # The mean is weighted by the bytes of logs; a product of two sizes may exceed 64 bits.
    weight: Values = pc.coalesce(rows["log_bytes"].cast(pa.float64()), pa.scalar(0.0))
    for name in _MEANS:
        weighted: Values = pc.multiply(rows[name].cast(pa.float64()), weight)
        counted: Values = pc.if_else(rows[name].is_valid(), weight, pa.scalar(0.0))
        rows = rows.append_column(f"{name}_weighted", weighted).append_column(f"{name}_weight", counted)
    sums = ["bytes_before", "bytes_after", *(f"{name}_{of}" for name in _MEANS for of in ("weighted", "weight"))]
    summed = rows.group_by(_KINDS).aggregate(
        [([], "count_all"), *((name, "sum") for name in sums), *((name, "max") for name in _MOST)]
    )
    return [
        TopicCompaction(
            topic=row["topic"],
            action=row["action"],
            changes=row["count_all"],
            bytes_before=row["bytes_before_sum"],
            bytes_after=row["bytes_after_sum"] or 0,
            mean_scan_bytes_before=_mean(row, "mean_scan_bytes_before"),
            max_scan_bytes_before=row["max_scan_bytes_before_max"],
            mean_scan_bytes_after=_mean(row, "mean_scan_bytes_after"),
            max_scan_bytes_after=row["max_scan_bytes_after_max"],
        )
        for row in summed.sort_by([(name, "ascending") for name in _KINDS]).to_pylist()
    ]


def _mean(row: dict[str, Any], name: str) -> int | None:
    weight = row[f"{name}_weight_sum"]
    return int(row[f"{name}_weighted_sum"] / weight + 0.5) if weight else None


def _lines(changes: pa.Table) -> list[str]:
    return [_line(row) for row in _in_order(changes, LINES_SHOWN).to_pylist()]


def _line(row: dict[str, Any]) -> str:
    file = f"{row['action']}: {row['path']}: "
    if row["outcome"] == ChangeOutcome.KEPT.value:
        return f"kept: {file}{row['reason']}"
    if row["action"] == ChangeAction.REMOVE.value:
        return f"{file}{row['bytes_before']:,} bytes, {row['reason']}"
    of_index = (
        " with its .timeindex" if row["action"] in (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value) else ""
    )
    intervals = (
        "" if row["interval_before"] is None else f", every {row['interval_before']:,} → {row['interval_bytes']:,}"
    )
    return f"{file}{row['bytes_before']:,} → {row['bytes_after']:,} bytes{of_index}{intervals}"


def compaction_as_json(changes: StagedRows) -> list[dict[str, Any]]:
    """The changes for JSON, in order."""
    return _in_order(changes.rows("compacted", _JSON_COLUMNS)).select(_JSON_COLUMNS).to_pylist()
