"""A plan that workers make, each a part of it: the command holds partitions, and of segments what is to be done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.changes import RELISTED, Changes, PartitionChange
from kidxlib.build.comparison.missing import KEYS
from kidxlib.build.discover import judge_listing
from kidxlib.build.listed import TO_READ
from kidxlib.build.plan import ListedPartition, Plan
from kidxlib.build.skipped import UnlistableDirectory
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.matching import Flags, Values
from kidxlib.catalog.segment_key import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, FillableFacts
from kidxlib.engine.mapped_rows import mapped
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.errors import UsageError
from kidxlib.format.not_segments import NotASegment
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.planning.listed_plan import say_what_was_listed
from kidxlib.operations.build.planning.plan_work import PartitionsToPlan, plan_partitions
from kidxlib.operations.build.planning.planned_rows import PLANNED_PARTITIONS
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.protocol import TablesToRead
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.times import NS_PER_MS

#: Of so many a worker lists and compares the segments at a time: some tens of megabytes if each has a thousand.
_PARTITIONS_AT_ONCE: Final = 200
_UNITS_PER_CORE: Final = 4


def plan_on_workers(request: BuildRequest, plan: Plan, engine: Engine, catalog: TablesCatalog | None) -> Changes:
    """List the partitions of a plan that is not `is_listed`, and compare them with the catalog.

    Args:
        plan: gets what a listing says of partitions and sources; of segments it knows nothing after this either.
        catalog: None where there is nothing to compare with.

    Raises:
        UsageError: there is nothing to index in any source; a worker does not see one; or workers do not reach the
            catalog.
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
    work = Work(f"{request.context.run_id()}-plan", units, plan_partitions, PLANNED_PARTITIONS, directories)
    with engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()  # a part of a plan is none
    partitions = staged.rows("partition").sort_by("listed_partition")
    _say_of_partitions(plan, partitions, staged)
    have_segments: Flags = partitions["segments"].to_numpy() > 0
    judge_listing(plan, request.sources, request.topics, have_segments)
    segments, log_bytes = (int(pc.sum(partitions[name]).as_py() or 0) for name in ("segments", "log_bytes"))
    say_what_was_listed(request, plan, segments, log_bytes)
    changes = _changes(plan, partitions, staged, () if catalog is None else FillableFacts.names())
    staged.remove()
    return changes


def _shares(request: BuildRequest, plan: Plan, tables: TablesToRead | None, cores: int) -> Iterator[PartitionsToPlan]:
    """The partitions in shares, neighbours in the catalog together; and those that are not listed any more."""
    age = datetime.now(UTC) - request.limits.longest_run
    version = None if tables is None else tables.version(SEGMENTS)
    unlisted = [] if tables is None else _unlisted(request, plan, tables)
    size = min(_PARTITIONS_AT_ONCE, -(-len(plan.partitions) // (cores * _UNITS_PER_CORE)))

    def share(first: int, partitions: list[ListedPartition], unlisted: list[PartitionKey]) -> PartitionsToPlan:
        return PartitionsToPlan(
            first=first,
            partitions=partitions,
            unlisted=unlisted,
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
        yield share(first, plan.partitions[first : first + size], [])
    for start in range(0, len(unlisted), _PARTITIONS_AT_ONCE):
        yield share(0, [], unlisted[start : start + _PARTITIONS_AT_ONCE])


def _unlisted(request: BuildRequest, plan: Plan, tables: TablesToRead) -> list[PartitionKey]:
    """The partitions of the catalog that a listing would have, and has not."""
    sources = tuple(source.name for source in request.sources)
    known = tables.counts(SEGMENTS, PARTITION_KEY, [Among("source", sources)])
    listed = {partition.key for partition in plan.partitions}
    keys = zip(*(known[name].to_pylist() for name in PARTITION_KEY), strict=True)
    wanted = (key for key in keys if key not in listed and request.topics.fullmatch(key[1]))
    return sorted(wanted, key=itemgetter(1, 2, 0))  # as files are sorted


def _say_of_partitions(plan: Plan, partitions: pa.Table, staged: Staged) -> None:
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


def _changes(plan: Plan, partitions: pa.Table, staged: Staged, known_facts: Sequence[str]) -> Changes:
    """
    Args:
        known_facts: of which unchanged segments may lack some; none where all segments are new.
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
        to_read=mapped(staged.batches("to_read"), TO_READ),  # in the order of the units, so of the plan
        unchanged=summed["unchanged"],
        unchanged_bytes=summed["unchanged_bytes"],
        relisted=mapped(staged.batches("relisted"), RELISTED),
        gone=mapped(_of_filled_sources(plan, staged.batches("gone")), KEYS),
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
    """Without those of sources that have no segment: nothing may be mounted there."""
    empty = pa.array(sorted(plan.empty), pa.string())
    for batch in gone:
        of_empty: Values = pc.is_in(batch["source"], value_set=empty)
        kept: Values = pc.invert(of_empty)
        yield batch.filter(kept)
