"""Applies a recorded plan: checks that it may be applied and that its topics are configured as they were, reads which
segments of each partition it deletes and how the partition was when it was planned, deletes them, and records the
result.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among, Condition, scope_of
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import PARTITIONS, rows_of_keys
from kidxlib.catalog.retention_plans import RETENTION_PLANS, PolicyInPlan, SegmentInPlan, SegmentToDelete
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.build_counts import PROBLEMS_KEPT
from kidxlib.indexing.source import index_directory, segments_directory
from kidxlib.operations.backend import Backend
from kidxlib.operations.packed import remove_packed
from kidxlib.operations.retention.plan_work import policy_in_plan
from kidxlib.operations.retention.retention_request import ApplyRequest, RequestConfigs
from kidxlib.recovery.outcome import ABSENT, USABLE, Status
from kidxlib.retention.delete import (
    PROBLEMS,
    DeletionOutcome,
    PartitionAsPlanned,
    PartitionDeletion,
    PlannedSegment,
    SegmentAsPlanned,
    SegmentResult,
    delete_planned_segments,
    log_dirs_of_deletions,
    reconsidered,
)
from kidxlib.retention.policy import Decision, Policy, Reason
from kidxlib.retention.policy_file import read_retention_policies
from kidxlib.run.retention_configs import RetentionConfigs
from kidxlib.run.sources import source_paths
from kidxlib.storage.location import Location, location
from kidxlib.storage.lock import locked
from kidxlib.storage.remover import Remover
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import begin_phase, more_line, note, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.text.times import show_time, to_ms
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

#: A segment that an earlier run has renamed, so that it is absent now, was usable before.
_STILL_FULLY_READ: Final = frozenset({*USABLE, *ABSENT})

#: The columns of a plan with a topic's policy, each with its name in messages.
_CALLED: Final = {
    "cleanup_policy": "cleanup.policy",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "remote_storage": "remote.storage.enable",
    "policy_origins": "who said it",
}


def apply_plan(backend: Backend, request: ApplyRequest) -> Outcome:
    """Apply a recorded plan, and give the outcome."""
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


def _apply_plan(tables: Tables, request: ApplyRequest) -> _AppliedPlan:
    """Apply a plan, and record the deleted segments in the catalog."""
    plan = _plan_to_apply(tables, request)
    deletions = _planned_deletions(plan)
    configs = _current_configs(request, plan, {deletion.key[1] for deletion in deletions})

    def record(results: Sequence[SegmentResult]) -> None:
        deleted = _keys_of(results, DeletionOutcome.DELETED)
        if deleted.num_rows:
            change = partial(updates.deleted, now=request.context.now)
            tables.change_rows(SEGMENTS, {"segment": deleted}, change, by=SEGMENTS.key)

    def wait() -> None:
        if request.delete_delay:
            note(f"renamed; the files are removed in {request.delete_delay}")
        time.sleep(request.delete_delay.total_seconds())

    with contextlib.ExitStack() as stack:
        for log_dir in log_dirs_of_deletions(deletions):
            stack.enter_context(locked(log_dir))
        now_ms = to_ms(request.context.now)
        then = _partitions_then(plan, [deletion.key for deletion in deletions])
        configs.ensure_recent({key: partition.written for key, partition in then.items()}, request.max_metadata_lag)
        remover = stack.enter_context(Remover())
        reconsidered_deletions = [
            reconsidered(remover, deletion, then[deletion.key], configs.by_topic[deletion.key[1]].policy, now_ms)
            for deletion in deletions
        ]
        results = delete_planned_segments(reconsidered_deletions, record, wait)
        # Their logs are gone, by this run or an earlier one that did not come to its end.
        remove_packed(tables, _keys_of(results, DeletionOutcome.DELETED, DeletionOutcome.GONE))
    deleted_before = {
        (key, segment.file.base_offset)
        for key, partition in then.items()
        for segment in partition.segments
        if segment.deleted
    }
    return _AppliedPlan(request.plan_id, results, configs.configured.other_log_dirs, deleted_before)


def _keys_of(results: Sequence[SegmentResult], *outcomes: DeletionOutcome) -> pa.Table:
    """The keys of the segments with one of these outcomes."""
    keys = [(*result.key, result.segment.base_offset) for result in results if result.outcome in outcomes]
    columns = zip(*keys, strict=True) if keys else ([] for _ in SEGMENTS.key)
    return pa.table([list(column) for column in columns], schema=SEGMENTS.schema(SEGMENTS.key))


@dataclass(frozen=True, slots=True)
class _AppliedPlan:
    """The result of applying a plan.

    Attributes:
        other_log_dirs: as in `RetentionConfigs`.
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
        for problem in reported[:LINES_SHOWN]:
            yield f"{problem.outcome.value}: {problem.detail}"
        yield from more_line(len(reported) - LINES_SHOWN)
        for line in self.other_log_dirs:
            yield f"problem: {line}"


def _outcome_lines(results: Sequence[SegmentResult], words: str) -> Iterator[str]:
    if results:
        log_bytes = sum(result.segment.log_bytes for result in results)
        yield f"{counted(len(results), 'segment')}, {log_bytes:,} bytes: {words}"


@dataclass(frozen=True, slots=True)
class _PlanToApply:
    """A plan that may be applied, of one policy."""

    tables: Tables
    plan_id: str
    policy: str
    policy_file: str | None

    def read_columns(self, names: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """Some columns of the plan's rows, in any order."""
        return _read(self.tables, self.plan_id, names, where)


def _plan_to_apply(tables: Tables, request: ApplyRequest) -> _PlanToApply:
    """Find the recorded plan that a request names, and check that it may be applied."""
    names = ["planned_at", "policy", "policy_file", "what_if"]
    rows = _read(tables, request.plan_id, names).group_by(names).aggregate([]).to_pylist()
    name = f"--plan {request.plan_id}"
    if not rows:
        raise UsageError(f"{name}: no such plan in {tables.path}; retention without --apply makes one")
    policies = sorted({row["policy"] for row in rows})
    if len(policies) > 1:
        raise UsageError(f"{name}: compares the policies {', '.join(policies)}; plan again with one")
    if any(row["what_if"] is not False for row in rows):
        raise UsageError(
            f"{name}: a what-if (made with --now or --what-if, or by an older release), which is never applied; "
            "plan again without these options"
        )
    planned_ms = min(to_ms(row["planned_at"]) for row in rows)
    ensure_plan_is_recent(name, planned_ms, to_ms(request.context.now), request.max_plan_age)
    return _PlanToApply(tables, request.plan_id, policies[0], rows[0]["policy_file"])


def ensure_plan_is_recent(name: str, planned_ms: int, now_ms: int, max_age: timedelta) -> None:
    """Refuse a plan that is too old, or was made in the future by the machine's clock (`now_ms`)."""
    age = timedelta(milliseconds=now_ms - planned_ms)
    if age < timedelta(0):
        raise UsageError(
            f"{name}: planned for {show_time(planned_ms)}, which is {-age} ahead of this machine's clock "
            f"({show_time(now_ms)}): one of the clocks is wrong; set it right and plan again"
        )
    if age > max_age:
        raise UsageError(
            f"{name}: made {age} ago by this machine's clock, expected {max_age} at most; plan again, or give a longer "
            "--max-plan-age"
        )


def _read(tables: Tables, plan_id: str, names: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
    return tables.read(RETENTION_PLANS, names, [Among("plan_id", (plan_id,)), *where])


def _current_configs(request: ApplyRequest, plan: _PlanToApply, topics: Collection[str]) -> RequestConfigs:
    """The configurations of topics now. They must be those by which the plan was made; a difference is refused."""
    if not topics:
        return RequestConfigs()
    file = request.policy_file or (None if plan.policy_file is None else Path(plan.policy_file))
    policies = {policy.name: policy for policy in (read_retention_policies(file) if file is not None else (Policy(),))}
    if plan.policy not in policies:
        raise UsageError(f"{file}: no policy {plan.policy}, by which {request.plan_id} was planned; plan again")
    configured = _configured(request, plan, topics)
    if file is None and not configured.values:
        raise UsageError(
            f"--plan {request.plan_id}: made without a file of policies, and no cluster's metadata says what its "
            "topics are configured to; plan again with --policy or --cluster-metadata"
        )
    own = {topic: policies[plan.policy].of_topic(topic) for topic in sorted(topics)}
    completed = configured.complete(
        {topic: {plan.policy: config} for topic, config in own.items()},
        deletes=True,
        described=[plan.policy] if policies[plan.policy].described else [],
    )
    current = {topic: configs[plan.policy] for topic, configs in completed.items()}
    told_by = " and ".join(str(origin) for origin in (file, configured.known.as_of) if origin is not None)
    for topic, planned in sorted(_planned_policies(plan, topics).items()):
        _ensure_same(told_by, topic, planned, policy_in_plan(plan.policy, current[topic]))
    listing = file if policies[plan.policy].described else None
    return RequestConfigs(current, configured, [topic for topic in own if own[topic] != current[topic]], listing)


def _configured(request: ApplyRequest, plan: _PlanToApply, topics: Collection[str]) -> RetentionConfigs:
    ids = plan.read_columns(["source", "topic", "topic_id"], [Among("topic", topics)])
    sources = set(map(str, ids["source"].to_pylist()))
    paths = source_paths(plan.tables)
    configured = RetentionConfigs.from_metadata(
        request.metadata, paths, sources, lambda: ids, deletes=True, same_broker=request.same_broker
    )
    warn_of_first(configured.known.warnings)
    return configured


def _ensure_same(told_by: str, topic: str, planned: PolicyInPlan, current: PolicyInPlan) -> None:
    for name, called in _CALLED.items():
        before, now = getattr(planned, name), getattr(current, name)
        if now != before:
            raise UsageError(
                f"{told_by}: topic {topic}: {called} is {_shown(now)} now, planned with {_shown(before)}; plan again, "
                "or give --policy, --cluster-metadata and --server-properties as then"
            )


def _shown(value: object) -> str:
    return ", ".join(f"{k}: {v}" for k, v in sorted(value.items())) if isinstance(value, dict) else str(value)


def _planned_policies(plan: _PlanToApply, topics: Collection[str]) -> dict[str, PolicyInPlan]:
    """The policy by which each topic was decided; it is the same for all segments of a topic."""
    rows = plan.read_columns(["topic", *PolicyInPlan.names()], [Among("topic", topics)])
    one_each = rows.take(positions_in(rows.group_by("topic").aggregate([]), rows, ["topic"]))
    return {row.pop("topic"): PolicyInPlan.of_dict(row) for row in one_each.to_pylist(maps_as_pydicts="strict")}


def _planned_deletions(plan: _PlanToApply) -> list[PartitionDeletion]:
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


def _partitions_then(plan: _PlanToApply, keys: Collection[PartitionKey]) -> dict[PartitionKey, PartitionAsPlanned]:
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


def _partition_then(segments: Sequence[tuple[SegmentInPlan, Status | None]]) -> PartitionAsPlanned:
    """A partition, from its segments and the status of each in the catalog now; None if the catalog has it no more."""
    first, _ = segments[0]
    return PartitionAsPlanned(
        topic_id=first.topic_id,
        log_start_offset=first.log_start_offset,
        high_watermark=first.high_watermark,
        segments=[_segment_then(segment, status) for segment, status in segments],
    )


def _segment_then(segment: SegmentInPlan, status: Status | None) -> SegmentAsPlanned:
    # Only a plan of an older release lacks these values, and such a plan is never applied.
    assert segment.next_offset is not None and segment.counted_bytes is not None
    assert segment.largest_timestamp_ms is not None
    return SegmentAsPlanned(
        file=_file(segment),
        next_offset=segment.next_offset,
        counted_bytes=segment.counted_bytes,
        max_timestamp_ms=-1 if segment.age_from_mtime else segment.largest_timestamp_ms,
        fully_read=segment.reason != Reason.NOT_WELL.value and status in _STILL_FULLY_READ,
        deleted=status is Status.DELETED,
    )
