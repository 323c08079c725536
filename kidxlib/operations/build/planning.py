"""The plan of a build: its sources are listed (`listed_plan`) and compared with the catalog (`plan_changes`), by the
command itself or by workers. With workers the command holds partitions, and only those segments that have work to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.catalog.conditions import PRESENT, Among, scope_of
from kidxlib.catalog.matching import Flags, Values, numbers_in, positions_in
from kidxlib.catalog.partitions import named_key, partition_keys, rows_of_keys
from kidxlib.catalog.rows import PARTITION_KEY, SEGMENT_KEY, rows_of_kind
from kidxlib.catalog.segments import SEGMENTS, FillableFacts
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, StagedRows, Work, mapped_table
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import NotASegment
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.indexing.changes import RELISTED, Changes, PartitionChange, all_new, compare_with_catalog
from kidxlib.indexing.known_segments import KEYS, KNOWN, warnings_of_missing
from kidxlib.indexing.listed_segments import TO_READ
from kidxlib.indexing.listing import UnlistableDirectory
from kidxlib.indexing.plan import (
    AuxiliaryFiles,
    Plan,
    PlannedPartition,
    add_segments,
    find_partitions,
    find_segments,
)
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.storage.log_dir import usable_checkpoints
from kidxlib.storage.publisher import sweep_staging_files
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.protocol import ROWS, TablesToRead
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Progress, begin_phase, note, warn_of_first
from kidxlib.text.times import NS_PER_MS
from kidxlib.text.words import counted

#: Partitions that a worker lists and compares at a time: some tens of megabytes if each has a thousand segments.
_PARTITIONS_AT_ONCE: Final = 200

_PARTITION: Final = pa.schema(
    [
        TO_READ.field("listed_partition"),
        pa.field("topic_id", pa.string()),
        pa.field("why_unlistable", pa.string()),  # null where it was listed
        pa.field("segments", pa.int64()),
        pa.field("log_bytes", pa.int64()),
        pa.field("is_to_finish", pa.bool_()),
        # As in `PartitionChange`; null where it is not to be finished.
        pa.field("first_present", pa.int64()),
        pa.field("changed_from", pa.int64()),
    ]
)
#: Of some partitions together: unchanged segments, and of how many of these each fact is not known.
_SUMS: Final = pa.schema(
    [pa.field(name, pa.int64()) for name in ("unchanged", "unchanged_bytes", *FillableFacts.names())]
)
#: Partitions without a segment left, and how many are missing.
_EMPTIED: Final = SEGMENTS.schema(PARTITION_KEY).append(pa.field("segments", pa.int64()))
#: Entries that are no segments: those that nobody expects by their paths, and how many of each kind.
_UNEXPECTED: Final = pa.schema([pa.field("path", pa.string()), pa.field("reason", pa.string())])
_SKIPPED: Final = pa.schema([pa.field("reason", pa.string())]).append(pa.field("entries", pa.int64()))
_WARNING: Final = pa.schema([pa.field("text", pa.string())])

_KINDS: Final = {
    "to_read": TO_READ,
    "relisted": RELISTED,
    "gone": KEYS,
    "missing_at_end": KEYS,
    "emptied": _EMPTIED,
    "partition": _PARTITION,
    "sums": _SUMS,
    "skipped": _SKIPPED,
    "unexpected": _UNEXPECTED,
    "warning": _WARNING,
}
#: Each row is of one kind, whose column is filled.
PLANNED_PARTITIONS: Final = pa.schema(
    [
        pa.field(kind, pa.struct([pa.field(field.name, field.type) for field in schema]))
        for kind, schema in _KINDS.items()
    ]
)


def listed_plan(request: BuildRequest) -> Plan:
    """List the sources, and say what is there. Where there are many segments, or where it is asked for, only their
    partitions: workers list these. Checkpoints are read first: a running broker has written by then what they say.
    """
    log_dirs = {source.log_dir for source in request.sources if source.remote is None}
    checkpoints = {log_dir: usable_checkpoints(log_dir) for log_dir in log_dirs}
    listed = 0

    def say_listed(segments: int) -> None:
        nonlocal listed
        listed = segments

    warn_of_first(request.known_topics.warnings)
    begin_phase("listing", done=lambda: Progress(listed))
    listing = (request.sources, request.topics, request.index_place, request.options_for)
    if request.plans_on_workers or _knows_many(request):
        plan = find_partitions(*listing)
    else:
        # Without a catalog there is nothing to compare with. To fill facts, bytes are shared out among all segments.
        holds_all = not request.keeps_catalog or request.fill_bytes is not None
        at_most = None if holds_all else request.limits.driver_listing_max
        plan = find_segments(*listing, at_most=at_most, say_listed=say_listed)
        if plan.is_listed:
            _say_what_was_listed(request, plan, plan.segments.num_rows, plan.log_bytes)
    plan.checkpoints = checkpoints
    return plan


def _knows_many(request: BuildRequest) -> bool:
    """Whether the catalog has more segments than the command lists itself, as far as it can be asked without Spark."""
    path = request.context.catalog
    if path is None or request.fill_bytes is not None or ("://" in path and not is_object(path)):
        return False
    from kidxlib.tables.delta_tables import DeltaTables  # a build without a catalog needs no delta-rs

    of_sources = Among("source", tuple(source.name for source in request.sources))
    counts = DeltaTables(path).counts(SEGMENTS, ["source"], [of_sources, PRESENT])
    return int(pc.sum(counts[ROWS.name]).as_py() or 0) > request.limits.driver_listing_max


def _say_what_was_listed(request: BuildRequest, plan: Plan, segments: int, log_bytes: int) -> None:
    """Warn, and say how much there is, where a part of it may be known already."""
    warn_of_first(plan.warnings)
    if request.keeps_catalog:
        note(f"{counted(segments, 'segment')}, {decimal(log_bytes)}, in {counted(len(plan.partitions), 'partition')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsToBuild:
    """A share of the partitions.

    Attributes:
        first: the position of the first one in the whole plan; the others follow it there.
        unlisted: partitions of the catalog that no source lists any more.
        log_dirs: as in `Plan`.
        tables: None where there is nothing to compare with.
        version: of `segments`.
        swept_before_ns: files that killed runs staged before then are removed; nanoseconds since the epoch.
        auxiliary_files, publish_truncated, explicit_interval, rebuild: as for `compare_with_catalog`.
    """

    first: int
    partitions: Sequence[PlannedPartition]
    unlisted: Sequence[PartitionKey]
    log_dirs: frozenset[str]
    tables: TablesToRead | None
    version: int | None
    swept_before_ns: int
    auxiliary_files: AuxiliaryFiles
    publish_truncated: bool
    explicit_interval: bool
    rebuild: bool


def plan_partitions_to_build(shares: Iterable[PartitionsToBuild]) -> Iterator[ItemRows]:
    """In a worker: list partitions and compare them with the catalog. Rows of `PLANNED_PARTITIONS`."""
    for share in shares:
        for partition in share.partitions:
            sweep_staging_files(partition.index_directory, share.swept_before_ns)
        plan = Plan(is_listed=False, partitions=list(share.partitions), log_dirs=set(share.log_dirs))
        add_segments(plan)
        changes = all_new(plan) if share.tables is None else _compared_with_catalog(share, share.tables, plan)
        yield ItemRows(
            segments=plan.segments.num_rows,
            batches=_segments_to_do(share, changes),
            rows=[{kind: row} for kind, row in _other_rows(share, plan, changes)],
        )


def _compared_with_catalog(share: PartitionsToBuild, tables: TablesToRead, plan: Plan) -> Changes:
    keys = rows_of_keys([*(partition.key for partition in share.partitions), *share.unlisted])
    known = tables.read(SEGMENTS, KNOWN.names, scope_of({"asked": keys}, PARTITION_KEY), share.version)
    return compare_with_catalog(
        plan,
        known.filter(pa.array(positions_in(known, keys, PARTITION_KEY) >= 0)),
        share.auxiliary_files,
        publish_truncated=share.publish_truncated,
        explicit_interval=share.explicit_interval,
        rebuild=share.rebuild,
    )


def _segments_to_do(share: PartitionsToBuild, changes: Changes) -> Iterator[pa.RecordBatch]:
    """Rows of segments that have work to do; there may be many."""
    numbers = pc.add(changes.to_read["listed_partition"], pa.scalar(share.first, pa.int32()))
    to_read = changes.to_read.set_column(0, TO_READ.field(0), numbers)
    for kind, rows in (("to_read", to_read), ("relisted", changes.relisted), ("gone", changes.gone)):
        for batch in rows.combine_chunks().to_batches():
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield rows_of_kind(kind, columns, len(batch), PLANNED_PARTITIONS)


def _other_rows(share: PartitionsToBuild, plan: Plan, changes: Changes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of all else, each with its kind."""
    for key, offsets in changes.missing_at_end.items():
        yield from (("missing_at_end", {**named_key(key), "base_offset": offset}) for offset in offsets)
    for key, count in changes.emptied.items():
        yield "emptied", {**named_key(key), "segments": count}
    unchanged = {"unchanged": changes.unchanged, "unchanged_bytes": changes.unchanged_bytes}
    yield "sums", {**unchanged, **changes.unknown_facts}
    for reason, entries in plan.skipped.counts.items():
        yield "skipped", {"reason": reason.value, "entries": entries}
    for path, reason in plan.skipped.unexpected:
        yield "unexpected", {"path": path, "reason": reason.value}
    yield from (("warning", {"text": text}) for text in plan.warnings)
    bounds, (log_bytes, _) = plan.bounds(), numbers_in(plan.segments["log_bytes"])
    for number, partition in enumerate(plan.partitions):
        start, end = int(bounds[number]), int(bounds[number + 1])
        change, unlistable = changes.to_finish.get(partition.key), plan.unlistable.get(partition.key)
        yield (
            "partition",
            {
                "listed_partition": share.first + number,
                "topic_id": partition.topic_id,
                "why_unlistable": None if unlistable is None else unlistable.reason,
                "segments": end - start,
                "log_bytes": int(log_bytes[start:end].sum()),
                "is_to_finish": change is not None,
                "first_present": None if change is None else change.first_present,
                "changed_from": None if change is None else change.changed_from,
            },
        )


def _plan_on_workers(request: BuildRequest, plan: Plan, engine: Engine, catalog: TablesCatalog | None) -> Changes:
    """List the partitions of a plan that is not `is_listed`, and compare them with the catalog, where there is one. The
    plan gets what the listing says of partitions and sources, but no segments.
    """
    tables = None if catalog is None else catalog.tables.for_workers()
    if catalog is not None:
        if tables is None:
            raise UsageError(
                f"--plan-on-executors: Spark alone reaches the catalog {catalog.path}, and executors cannot; "
                "leave the option out"
            )
        catalog.compared_with = tables.version(SEGMENTS)
    engine.start()
    begin_phase("listing partitions and comparing them with the catalog", done=engine.done)
    units = [[share] for share in _shares(request, plan, tables, engine.cores)]
    directories = [source.path for source in request.sources]
    work = Work(f"{request.context.run_id()}-plan", units, plan_partitions_to_build, PLANNED_PARTITIONS, directories)
    with engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()  # a part of a plan is none
    partitions = staged.rows("partition").sort_by("listed_partition")
    _add_listing(plan, partitions, staged)
    have_segments: Flags = partitions["segments"].to_numpy() > 0
    plan.judge_listing(request.sources, request.topics, have_segments)
    segments, log_bytes = (int(pc.sum(partitions[name]).as_py() or 0) for name in ("segments", "log_bytes"))
    _say_what_was_listed(request, plan, segments, log_bytes)
    changes = _changes(plan, partitions, staged, () if catalog is None else FillableFacts.names())
    staged.remove()
    return changes


def _shares(request: BuildRequest, plan: Plan, tables: TablesToRead | None, cores: int) -> Iterator[PartitionsToBuild]:
    """The partitions in shares, neighbours in the catalog together, then those that are not listed any more."""
    age = datetime.now(UTC) - request.limits.longest_run
    version = None if tables is None else tables.version(SEGMENTS)
    unlisted = [] if tables is None else _unlisted(request, plan, tables)
    size = min(_PARTITIONS_AT_ONCE, -(-len(plan.partitions) // (cores * BINS_PER_CORE)))
    share = partial(
        PartitionsToBuild,
        log_dirs=frozenset(plan.log_dirs),
        tables=tables,
        version=version,
        swept_before_ns=int(age.timestamp() * 1000) * NS_PER_MS,
        auxiliary_files=request.auxiliary_files,
        publish_truncated=request.publish_truncated,
        explicit_interval=request.interval_bytes is not None,
        rebuild=request.rebuild,
    )
    for first in range(0, len(plan.partitions), max(1, size)):
        yield share(first=first, partitions=plan.partitions[first : first + size], unlisted=())
    for start in range(0, len(unlisted), _PARTITIONS_AT_ONCE):
        yield share(first=0, partitions=(), unlisted=unlisted[start : start + _PARTITIONS_AT_ONCE])


def _unlisted(request: BuildRequest, plan: Plan, tables: TablesToRead) -> list[PartitionKey]:
    """The catalog's partitions of these sources and topics that the listing lacks."""
    sources = tuple(source.name for source in request.sources)
    known = tables.counts(SEGMENTS, PARTITION_KEY, [Among("source", sources)])
    listed = {partition.key for partition in plan.partitions}
    wanted = (key for key in partition_keys(known) if key not in listed and request.topics.fullmatch(key[1]))
    return sorted(wanted, key=itemgetter(1, 2, 0))  # as files are sorted


def _add_listing(plan: Plan, partitions: pa.Table, staged: StagedRows) -> None:
    for row in partitions.select(["listed_partition", "topic_id", "why_unlistable"]).to_pylist():
        number, reason = row["listed_partition"], row["why_unlistable"]
        partition = plan.partitions[number] = replace(plan.partitions[number], topic_id=row["topic_id"])
        if reason is not None:
            plan.unlistable[partition.key] = UnlistableDirectory(str(partition.directory.path), reason)
    for row in staged.rows("skipped").to_pylist():
        plan.skipped.counts[NotASegment(row["reason"])] += row["entries"]
    for row in staged.rows("unexpected").to_pylist():
        plan.skipped.unexpected.append((row["path"], NotASegment(row["reason"])))
    plan.warnings += map(str, staged.rows("warning")["text"].to_pylist())


def _changes(plan: Plan, partitions: pa.Table, staged: StagedRows, known_facts: Sequence[str]) -> Changes:
    """The changes of all shares. `known_facts` are the facts that unchanged segments may lack; none where all segments
    are new.
    """
    sums = staged.rows("sums")
    summed = {name: int(pc.sum(sums[name]).as_py() or 0) for name in sums.column_names}
    missing_at_end: dict[PartitionKey, list[int]] = defaultdict(list)
    for row in staged.rows("missing_at_end").sort_by([(name, "ascending") for name in SEGMENT_KEY]).to_pylist():
        missing_at_end[row["source"], row["topic"], row["partition"]].append(row["base_offset"])
    emptied = sorted(
        ((row["source"], row["topic"], row["partition"]), row["segments"]) for row in staged.rows("emptied").to_pylist()
    )
    return Changes(
        to_read=mapped_table(staged.batches("to_read"), TO_READ),  # in the order of the units, so of the plan
        unchanged=summed["unchanged"],
        unchanged_bytes=summed["unchanged_bytes"],
        relisted=mapped_table(staged.batches("relisted"), RELISTED),
        gone=mapped_table(_of_filled_sources(plan, staged.batches("gone")), KEYS),
        emptied={key: count for key, count in emptied if key[0] not in plan.empty},
        missing_at_end=dict(missing_at_end),
        to_finish=dict(_to_finish(plan, partitions)),
        unknown_facts={name: summed[name] for name in known_facts},
    )


def _to_finish(plan: Plan, partitions: pa.Table) -> Iterator[tuple[PartitionKey, PartitionChange]]:
    wanted = partitions.filter(partitions["is_to_finish"])
    names = ("listed_partition", "topic_id", "first_present", "changed_from", "segments")
    for number, *values in zip(*(wanted[name].to_pylist() for name in names), strict=True):
        yield plan.partitions[number].key, PartitionChange(*values)


def _of_filled_sources(plan: Plan, gone: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Missing segments, but not of sources that have no segment: nothing may be mounted there."""
    empty = pa.array(sorted(plan.empty), pa.string())
    for batch in gone:
        of_empty: Values = pc.is_in(batch["source"], value_set=empty)
        kept: Values = pc.invert(of_empty)
        yield batch.filter(kept)


def plan_changes(request: BuildRequest, plan: Plan, catalog: TablesCatalog | None, engine: Engine) -> Changes:
    """Plan what a build reads: what is new or has changed, or all where there is no catalog to compare with. If the
    plan is not `is_listed`, workers list its partitions and compare them.
    """
    if catalog is None:
        return all_new(plan, request.fill_bytes) if plan.is_listed else _plan_on_workers(request, plan, engine, None)
    if not plan.is_listed and not request.plans_on_workers and catalog.tables.for_workers() is None:
        note(f"{catalog.path}: Spark alone reaches this catalog, so its segments are listed and compared here")
        add_segments(plan)
        plan.judge_listing(request.sources, request.topics, plan.have_segments())
        _say_what_was_listed(request, plan, plan.segments.num_rows, plan.log_bytes)
    sources = [source.name for source in request.sources]
    others = catalog.index_directories_of_others(sources)
    for partition in plan.partitions:
        if (other := others.get(str(partition.index_directory))) is not None:
            raise UsageError(
                f"{partition.index_directory}: holds the index files of the same partition of source {other}; "
                "give each source its own --index-dir, or all of them in one run"
            )
    if plan.is_listed:
        changes = compare_with_catalog(
            plan,
            catalog.known_segments(sources, request.topics),
            request.auxiliary_files,
            publish_truncated=request.publish_truncated,
            explicit_interval=request.interval_bytes is not None,
            rebuild=request.rebuild,
            fill_bytes=request.fill_bytes,
        )
    else:
        changes = _plan_on_workers(request, plan, engine, catalog)
    # Before they are recorded: a later run finds nothing new.
    warn_of_first(warnings_of_missing(changes.emptied, changes.missing_at_end, request.sources))
    return changes
