"""Applies a recorded plan: reads which segments of each partition it deletes and how the partition was when it was
planned, deletes them, and records the result.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.conditions import Among
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import PARTITIONS, rows_of_keys
from kidxlib.catalog.retention_plans import SegmentInPlan, SegmentToDelete
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.source import index_directory, segments_directory
from kidxlib.indexing.summary import PROBLEMS_KEPT
from kidxlib.operations.backend import Backend
from kidxlib.operations.packed import remove_packed
from kidxlib.operations.retention.plan_options import ApplyRequest
from kidxlib.operations.retention.recorded import mark_deleted
from kidxlib.operations.retention.recorded_plan import RecordedPlan, current_configs, plan_to_apply
from kidxlib.recovery.outcome import ABSENT, USABLE, Status
from kidxlib.retention.apply import SegmentResult, apply_deletions, reconsidered
from kidxlib.retention.plan import (
    PROBLEMS,
    DeletionOutcome,
    PartitionDeletion,
    PartitionThen,
    PlannedSegment,
    SegmentThen,
    log_dirs_of,
)
from kidxlib.retention.policy import Decision, Reason
from kidxlib.run.sources import source_paths
from kidxlib.storage.location import Location, location
from kidxlib.storage.lock import locked
from kidxlib.storage.remover import Remover
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.protocol import Tables, scope_of
from kidxlib.terminal.console import begin_phase, more, note
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.terminal.run_summary import PROBLEMS_SHOWN
from kidxlib.text.times import to_ms
from kidxlib.text.words import counted

_IN_WORDS: Final = {
    DeletionOutcome.DELETED: "deleted",
    DeletionOutcome.LAST: "kept, as the last of its partition",
    DeletionOutcome.CHANGED: "kept, as it is not what was planned",
    DeletionOutcome.LEFT: "kept, as another of its partition is not what was planned",
    DeletionOutcome.NOT_DUE: "kept: the policy would no longer delete them",
    DeletionOutcome.NOT_RENAMED: "kept, as it cannot be renamed",
    DeletionOutcome.EPOCHS_NOT_CUT: "renamed, and not removed, as leader epochs cannot be cut; run again",
    DeletionOutcome.AFTER_KEPT: "kept, after one that is kept",
    DeletionOutcome.GONE: "already missing",
}


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """The result of applying a plan.

    Attributes:
        other_log_dirs: as in `ConfiguredTopics`.
        deleted_before: the segments, as partition and base offset, that an earlier run of a plan had deleted by the
            catalog.
    """

    plan_id: str
    results: Sequence[SegmentResult]
    other_log_dirs: Sequence[str] = ()
    deleted_before: Collection[tuple[PartitionKey, int]] = ()

    @property
    def is_problem_free(self) -> bool:
        return not self.other_log_dirs and not any(result.outcome in PROBLEMS for result in self.results)

    @property
    def by_outcome(self) -> Counter[str]:
        return Counter(result.outcome.value for result in self.results)

    @property
    def deleted_bytes(self) -> int:
        return sum(r.segment.log_bytes for r in self.results if r.outcome is DeletionOutcome.DELETED)

    def _is_again(self, result: SegmentResult) -> bool:
        return (
            result.outcome is DeletionOutcome.GONE and (result.key, result.segment.base_offset) in self.deleted_before
        )

    def as_json(self) -> dict[str, Any]:
        problems = [result for result in self.results if result.outcome in PROBLEMS]
        return {
            "plan_id": self.plan_id,
            "by_outcome": self.by_outcome,
            "deleted_bytes": self.deleted_bytes,
            "other_log_dirs": list(self.other_log_dirs),
            "not_well_count": len(problems),
            "not_well": [
                {
                    **dict(zip(SEGMENTS.key, (*problem.key, problem.segment.base_offset), strict=True)),
                    "outcome": problem.outcome.value,
                    "detail": problem.detail,
                }
                for problem in problems[:PROBLEMS_KEPT]
            ],
        }

    def lines(self) -> Iterator[str]:
        again = [result for result in self.results if self._is_again(result)]
        others = [result for result in self.results if not self._is_again(result)]
        for outcome, words in _IN_WORDS.items():
            yield from _outcome_lines([result for result in others if result.outcome is outcome], words)
        yield from _outcome_lines(again, "deleted before, by this plan or another")
        if not self.results:
            yield "the plan names no segment to delete"
        reported = [result for result in self.results if result.outcome in PROBLEMS and result.detail is not None]
        for problem in reported[:PROBLEMS_SHOWN]:
            yield f"{problem.outcome.value}: {problem.detail}"
        yield from more(len(reported) - PROBLEMS_SHOWN)
        for line in self.other_log_dirs:
            yield f"problem: {line}"


def _outcome_lines(results: Sequence[SegmentResult], words: str) -> Iterator[str]:
    if results:
        log_bytes = sum(result.segment.log_bytes for result in results)
        yield f"{counted(len(results), 'segment')}, {log_bytes:,} bytes: {words}"


def planned_deletions(plan: RecordedPlan) -> list[PartitionDeletion]:
    """The segments that a plan deletes, by partition. Refuses segments in an object store, and moved ones."""
    rows = plan.read_columns(SegmentToDelete.names(), [Among("decision", (Decision.DELETE.value,))])
    segments = SegmentToDelete.of_arrow(rows.sort_by([(name, "ascending") for name in SEGMENTS.key]))
    for segment in segments:
        if is_object(segment.log_path) or is_object(segment.index_directory):
            raise UsageError(
                f"--apply: {segment.log_path}, with its index files in {segment.index_directory}: nothing is deleted "
                "in an object store, where a file cannot be renamed first; delete what the plan names with the object "
                "store's own tools"
            )
    paths = source_paths(plan.tables)
    return [
        _deletion(key, list(of_partition), location(paths.get(key[0], "/")))
        for key, of_partition in groupby(segments, key=lambda segment: segment.partition_key)
    ]


def _deletion(key: PartitionKey, segments: Sequence[SegmentToDelete], source: Location) -> PartitionDeletion:
    """The segments of a partition to delete. The partition's directory follows from its source's, and must be the
    plan's.
    """
    partition = TopicPartition(key[1], key[2])
    logs = {segment.base_offset: segment.log_path for segment in segments}
    log_directory = segments_directory(source, partition, logs)
    if log_directory is None:
        raise UsageError(
            f"{segments[0].log_path}: not in {source}, where source {key[0]} was at its last build; run "
            "build_index and plan again"
        )
    auxiliary_files = index_directory(partition, [segment.index_directory for segment in segments])
    if auxiliary_files is None:
        raise UsageError(
            f"{segments[0].index_directory}: not the one index directory of {partition.directory}; run build_index and "
            "plan again"
        )
    return PartitionDeletion(
        key=key,
        segments_directory=log_directory,
        index_directory=auxiliary_files,
        segments=tuple(_file(segment) for segment in segments),
    )


def _file(segment: SegmentToDelete | SegmentInPlan) -> PlannedSegment:
    return PlannedSegment(segment.base_offset, segment.bytes or 0, segment.log_mtime_ns, segment.log_inode)


def partitions_then(plan: RecordedPlan, keys: Collection[PartitionKey]) -> dict[PartitionKey, PartitionThen]:
    """Partitions as they were when they were planned. The status of their segments is that of the catalog now: a
    segment that a build has found damaged since then does not count as fully read.
    """
    if not keys:
        return {}
    wanted = rows_of_keys(keys)
    scope = scope_of({"wanted": wanted}, PARTITIONS.key)
    planned = plan.read_columns(SegmentInPlan.names(), scope)
    planned = planned.filter(positions_in(planned, wanted, PARTITIONS.key) >= 0)
    planned = planned.sort_by([(name, "ascending") for name in SEGMENTS.key])
    now = plan.tables.read(SEGMENTS, [*SEGMENTS.key, "status"], scope)
    words, at = now["status"].to_pylist(), positions_in(planned, now, SEGMENTS.key).tolist()
    statuses = [None if place < 0 else Status(words[place]) for place in at]
    with_status = zip(SegmentInPlan.of_arrow(planned), statuses, strict=True)
    return {
        key: _partition_then(list(segments))
        for key, segments in groupby(with_status, key=lambda pair: pair[0].partition_key)
    }


#: A segment that an earlier run has renamed, so that it is absent now, was usable before.
_STILL_FULLY_READ: Final = frozenset({*USABLE, *ABSENT})


def _partition_then(segments: Sequence[tuple[SegmentInPlan, Status | None]]) -> PartitionThen:
    """A partition, from its segments and the status of each in the catalog now; None if the catalog has it no more."""
    first, _ = segments[0]
    return PartitionThen(
        topic_id=first.topic_id,
        log_start_offset=first.log_start_offset,
        high_watermark=first.high_watermark,
        segments=[_segment_then(segment, status) for segment, status in segments],
    )


def _segment_then(segment: SegmentInPlan, status: Status | None) -> SegmentThen:
    # Only a plan of an older release lacks these values, and such a plan is never applied.
    assert segment.next_offset is not None and segment.counted_bytes is not None
    assert segment.largest_timestamp_ms is not None
    return SegmentThen(
        file=_file(segment),
        next_offset=segment.next_offset,
        counted_bytes=segment.counted_bytes,
        max_timestamp_ms=-1 if segment.age_from_mtime else segment.largest_timestamp_ms,
        fully_read=segment.reason != Reason.NOT_WELL.value and status in _STILL_FULLY_READ,
        deleted=status is Status.DELETED,
    )


def _apply_plan(tables: Tables, request: ApplyRequest) -> AppliedPlan:
    """Apply a plan, and record the deleted segments in the catalog."""
    plan = plan_to_apply(tables, request)
    deletions = planned_deletions(plan)
    configs = current_configs(request, plan, {deletion.key[1] for deletion in deletions})

    def record(results: Sequence[SegmentResult]) -> None:
        deleted = [
            (*result.key, result.segment.base_offset) for result in results if result.outcome is DeletionOutcome.DELETED
        ]
        if deleted:
            mark_deleted(tables, deleted, request.context.now)

    def wait() -> None:
        if request.delete_delay:
            note(f"renamed; the files are removed in {request.delete_delay}")
        time.sleep(request.delete_delay.total_seconds())

    with contextlib.ExitStack() as stack:
        for log_dir in log_dirs_of(deletions):
            stack.enter_context(locked(log_dir))
        now_ms = to_ms(request.context.now)
        then = partitions_then(plan, [deletion.key for deletion in deletions])
        configs.ensure_recent({key: partition.written for key, partition in then.items()}, request.max_metadata_lag)
        remover = stack.enter_context(Remover())
        reconsidered_deletions = [
            reconsidered(remover, deletion, then[deletion.key], configs.by_topic[deletion.key[1]].policy, now_ms)
            for deletion in deletions
        ]
        results = apply_deletions(reconsidered_deletions, record, wait)
        remove_packed(tables, _without_log(results))
    deleted_before = {
        (key, segment.file.base_offset)
        for key, partition in then.items()
        for segment in partition.segments
        if segment.deleted
    }
    return AppliedPlan(request.plan_id, results, configs.configured.other_log_dirs, deleted_before)


def _without_log(results: Sequence[SegmentResult]) -> pa.Table:
    """The keys of the segments whose logs are gone, by this run or an earlier one that did not come to its end."""
    gone = (DeletionOutcome.DELETED, DeletionOutcome.GONE)
    keys = [(*result.key, result.segment.base_offset) for result in results if result.outcome in gone]
    columns = zip(*keys, strict=True) if keys else ([] for _ in SEGMENTS.key)
    return pa.table([list(column) for column in columns], schema=SEGMENTS.schema(SEGMENTS.key))


def apply_plan(backend: Backend, request: ApplyRequest) -> Outcome:
    if not backend.engine.is_on_this_machine:
        raise UsageError(
            "--apply: only with a local master, so that the log dir's lock covers every writer; give -- --master "
            "'local[*]', or use kidx"
        )
    begin_phase("deleting what the plan names")
    applied = _apply_plan(backend.catalog.tables, request)
    outcome = Outcome(
        code=ExitCode.OK if applied.is_problem_free else ExitCode.PROBLEMS_FOUND,
        run_id=applied.plan_id,
        counts=applied.by_outcome,
        bytes=applied.deleted_bytes,
    )
    outcome.line(*applied.lines())
    outcome.values.update(applied.as_json())
    return outcome
