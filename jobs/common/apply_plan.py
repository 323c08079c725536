"""A recorded plan of `retention`, and what carrying it out comes to."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog import Catalog
from jobs.common.driver_rows import of_driver
from jobs.common.retention_request import ApplyRequest
from jobs.common.tables import PARTITIONS, SEGMENTS
from kidxlib.console import note, print_line
from kidxlib.errors import UsageError
from kidxlib.log_dir import locked
from kidxlib.names import TopicPartition
from kidxlib.objects import Location, is_object, location
from kidxlib.plan import PartitionKey, index_folder, segments_folder
from kidxlib.policy import TopicConfig, read_policies
from kidxlib.publish import Retirer
from kidxlib.reconsider import PartitionThen, SegmentThen, reconsidered
from kidxlib.recover import ABSENT, USABLE
from kidxlib.retention import Decision, Reason
from kidxlib.retire import NOT_WELL, Outcome, PlannedSegment, Retired, Retirement, carry_out, log_dirs_of
from kidxlib.summary import NOT_WELL_KEPT, NOT_WELL_SHOWN
from kidxlib.times import show_time, to_ms

_WHAT: Final = {
    Outcome.DELETED: "deleted",
    Outcome.LAST: "kept, as the last of its partition",
    Outcome.CHANGED: "kept, as it is not what was planned",
    Outcome.NOT_DUE: "kept, as it would not go by what is known now",
    Outcome.NOT_RENAMED: "kept, as it cannot be renamed",
    Outcome.BEHIND: "kept, behind one that is kept",
    Outcome.GONE: "gone already",
}


def apply_plan(catalog: Catalog, request: ApplyRequest) -> list[Retired]:
    """Carry a plan out, and write into the catalog what was deleted.

    Raises:
        UsageError: there is no such plan, it is none that may be carried out, its policy says something else by now, or
            a log dir is not where it was or held by another process; nothing is done.
        PublishError: a file cannot be removed.
    """
    plan = _plan(catalog, request)
    retirements = _retirements(catalog, plan)
    configs = _configs(request, plan, {retirement.key[1] for retirement in retirements})

    def record(retired: Sequence[Retired]) -> None:
        deleted = [(*found.key, found.segment.base_offset) for found in retired if found.outcome is Outcome.DELETED]
        if deleted:
            catalog.mark_deleted(deleted, request.where.now)

    def wait() -> None:
        if request.delete_delay:
            note(f"renamed; the files are removed in {request.delete_delay}")
        time.sleep(request.delete_delay.total_seconds())

    with contextlib.ExitStack() as stack:
        for log_dir in log_dirs_of(retirements):
            stack.enter_context(locked(log_dir))
        now_ms = to_ms(request.where.now)
        then = partitions_then(catalog, plan.rows, [retirement.key for retirement in retirements])
        retirer = stack.enter_context(Retirer())
        again = [
            reconsidered(retirer, retirement, then[retirement.key], configs[retirement.key[1]].policy, now_ms)
            for retirement in retirements
        ]
        return carry_out(again, record, wait)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan that may be carried out, of one policy."""

    rows: DataFrame
    policy: str
    policy_file: str | None


def _plan(catalog: Catalog, request: ApplyRequest) -> _Plan:
    """A recorded plan.

    Raises:
        UsageError: it is not there, compares policies, asks what if, or is too old or of the future.
    """
    rows = catalog.plan(request.plan_id)
    head = rows.agg(
        F.unix_millis(F.min("planned_at")).alias("planned_ms"),
        F.array_sort(F.collect_set("policy")).alias("policies"),
        F.bool_or(F.coalesce("what_if", F.lit(True))).alias("what_if"),
        F.max("policy_file").alias("policy_file"),
    ).head()
    name = f"--plan {request.plan_id}"
    if head is None or head["planned_ms"] is None:
        raise UsageError(f"{name}: no such plan in {catalog.path}; retention without --apply makes one")
    if len(head["policies"]) > 1:
        raise UsageError(f"{name}: compares the policies {', '.join(head['policies'])}; plan again with one")
    if head["what_if"]:
        raise UsageError(
            f"{name}: says what would be (--now, --what-if or --high-watermark, or made by an older release), which is "
            "never carried out; plan again without"
        )
    refuse_age(name, head["planned_ms"], to_ms(request.where.now), request.max_plan_age)
    return _Plan(rows, head["policies"][0], head["policy_file"])


def refuse_age(name: str, planned_ms: int, now_ms: int, max_age: timedelta) -> None:
    """Refuse a plan that is too old, or of the future.

    Args:
        now_ms: by the machine's clock.

    Raises:
        UsageError: it is.
    """
    age = timedelta(milliseconds=now_ms - planned_ms)
    if age < timedelta(0):
        raise UsageError(
            f"{name}: planned for {show_time(planned_ms)}, which is {-age} from now by this machine's clock "
            f"({show_time(now_ms)}): one of the clocks is wrong; set it right and plan again"
        )
    if age > max_age:
        raise UsageError(
            f"{name}: made {age} ago by this machine's clock, expected {max_age} at most; plan again, or give a longer "
            "--max-plan-age"
        )


def _configs(request: ApplyRequest, plan: _Plan, topics: Collection[str]) -> dict[str, TopicConfig]:
    """What topics' configurations say now, which is what they said when it was planned.

    Raises:
        UsageError: the file of then cannot be read, or says something else.
    """
    if not topics:
        return {}
    file = request.policy_file or (None if plan.policy_file is None else Path(plan.policy_file))
    if file is None:
        raise UsageError(f"--plan {request.plan_id}: made without a file of policies; plan again with --policy")
    policies = {policy.name: policy for policy in read_policies(file)}
    if plan.policy not in policies:
        raise UsageError(f"{file}: no policy {plan.policy}, by which {request.plan_id} was planned; plan again")
    names = ("cleanup_policy", "retention_ms", "retention_bytes", "remote_storage", "policy_origins")
    rows = plan.rows.where(F.col("topic").isin(*topics)).groupBy("topic")
    found = rows.agg(*(F.any_value(name).alias(name) for name in names)).collect()
    configs = {}
    for row in found:
        config = configs[row["topic"]] = policies[plan.policy].of_topic(row["topic"])
        policy = config.policy
        values = (policy.cleanup_text, policy.retention_ms, policy.retention_bytes, policy.remote_storage)
        for name, now in zip((*names[:4], "origins"), (*values, dict(config.origins)), strict=True):
            before = row["policy_origins"] if name == "origins" else row[name]
            if now != before:
                raise UsageError(
                    f"{file}: topic {row['topic']}: {_KAFKAS_NAMES.get(name, 'who said it')} is {_shown(now)} by now, "
                    f"planned with {_shown(before)}; plan again"
                )
    return configs


_KAFKAS_NAMES: Final = {
    "cleanup_policy": "cleanup.policy",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "remote_storage": "remote.storage.enable",
}


def _shown(value: object) -> str:
    return ", ".join(f"{k}: {v}" for k, v in sorted(value.items())) if isinstance(value, dict) else str(value)


def _retirements(catalog: Catalog, plan: _Plan) -> list[Retirement]:
    columns = (*SEGMENTS.key, "bytes", "log_mtime_ns", "log_inode", "log_path", "index_folder")
    going = plan.rows.where(F.col("decision") == Decision.DELETE.value)
    rows = going.select(*columns).orderBy(*SEGMENTS.key).collect()
    for row in rows:
        if is_object(row["log_path"]) or is_object(row["index_folder"]):
            raise UsageError(
                f"--apply: {row['log_path']}, with its index files in {row['index_folder']}: nothing is deleted in an "
                "object store, where a file cannot be renamed first; delete there what the plan names by the store's "
                "own means"
            )
    paths = catalog.source_paths()
    return [
        _retirement(key, list(segments), location(paths.get(key[0], "/")))
        for key, segments in groupby(rows, key=lambda row: (row["source"], row["topic"], row["partition"]))
    ]


def _retirement(key: PartitionKey, rows: Sequence[Any], source: Location) -> Retirement:
    """What is to go of a partition. Its place follows from its source's, and is to be what it was in the plan.

    Raises:
        UsageError: it is not.
    """
    partition = TopicPartition(key[1], key[2])
    log_folder = segments_folder(source, partition, {row["base_offset"]: row["log_path"] for row in rows})
    if log_folder is None:
        raise UsageError(
            f"{rows[0]['log_path']}: not where source {key[0]} is by its last build ({source}); build and plan again"
        )
    side_files = index_folder(partition, [row["index_folder"] for row in rows])
    if side_files is None:
        raise UsageError(
            f"{rows[0]['index_folder']}: not the one index folder of {partition.folder}; build and plan again"
        )
    return Retirement(
        key=key,
        segments_folder=log_folder,
        index_folder=side_files,
        segments=tuple(_file(row) for row in rows),
    )


def _file(row: Any) -> PlannedSegment:
    return PlannedSegment(row["base_offset"], row["bytes"], row["log_mtime_ns"], row["log_inode"])


def partitions_then(
    catalog: Catalog, plan: DataFrame, keys: Collection[PartitionKey]
) -> dict[PartitionKey, PartitionThen]:
    """Partitions as they were planned, less what the catalog says of their segments by now: one that a build since then
    has found to be damaged is not well.
    """
    if not keys:
        return {}
    wanted = F.broadcast(of_driver(catalog.spark, list(keys), PARTITIONS.schema(PARTITIONS.key)))
    columns = ("bytes", "log_mtime_ns", "log_inode", "next_offset", "counted_bytes", "largest_timestamp_ms")
    of_partition = ("topic_id", "log_start_offset", "high_watermark")
    statuses = catalog.read(SEGMENTS).select(*SEGMENTS.key, "status")
    rows = plan.join(wanted, list(PARTITIONS.key), "left_semi").join(statuses, list(SEGMENTS.key), "left")
    rows = rows.select(*SEGMENTS.key, *columns, *of_partition, "of_mtime", "reason", "status").orderBy(*SEGMENTS.key)
    return {
        key: _partition_then(list(segments))
        for key, segments in groupby(rows.collect(), key=lambda row: tuple(row[name] for name in PARTITIONS.key))
    }


#: A segment that a run before this one has renamed was usable before.
_STILL_WELL: Final = frozenset(status.value for status in (*USABLE, *ABSENT))


def _partition_then(rows: Sequence[Any]) -> PartitionThen:
    return PartitionThen(
        topic_id=rows[0]["topic_id"],
        log_start_offset=rows[0]["log_start_offset"],
        high_watermark=rows[0]["high_watermark"],
        segments=[
            SegmentThen(
                file=_file(row),
                next_offset=row["next_offset"],
                counted_bytes=row["counted_bytes"],
                max_timestamp_ms=-1 if row["of_mtime"] else row["largest_timestamp_ms"],
                well=row["reason"] != Reason.NOT_WELL.value and row["status"] in _STILL_WELL,
            )
            for row in rows
        ],
    )


@dataclass(frozen=True, slots=True)
class Applied:
    """What carrying a plan out came to."""

    plan_id: str
    retired: Sequence[Retired]

    @property
    def all_well(self) -> bool:
        return not any(found.outcome in NOT_WELL for found in self.retired)

    @property
    def by_outcome(self) -> Counter[str]:
        return Counter(found.outcome.value for found in self.retired)

    @property
    def deleted_bytes(self) -> int:
        return _bytes(self.retired, Outcome.DELETED)

    def as_json(self) -> dict[str, Any]:
        not_well = [found for found in self.retired if found.outcome in NOT_WELL]
        return {
            "plan_id": self.plan_id,
            "by_outcome": self.by_outcome,
            "deleted_bytes": self.deleted_bytes,
            "not_well_count": len(not_well),
            "not_well": [
                {
                    **dict(zip(SEGMENTS.key, (*found.key, found.segment.base_offset), strict=True)),
                    "outcome": found.outcome.value,
                    "detail": found.detail,
                }
                for found in not_well[:NOT_WELL_KEPT]
            ],
        }

    def show(self) -> None:
        counts = Counter(found.outcome for found in self.retired)
        for outcome, what in _WHAT.items():
            if counts[outcome]:
                print_line(f"{counts[outcome]:,} segments, {_bytes(self.retired, outcome):,} bytes: {what}")
        if not counts:
            print_line("the plan names no segment to delete")
        told = [found for found in self.retired if found.outcome in NOT_WELL and found.detail is not None]
        for found in told[:NOT_WELL_SHOWN]:
            print_line(f"{found.outcome.value}: {found.detail}")
        if len(told) > NOT_WELL_SHOWN:
            print_line(f"… and {len(told) - NOT_WELL_SHOWN:,} more")


def _bytes(retired: Iterable[Retired], outcome: Outcome) -> int:
    return sum(found.segment.log_bytes for found in retired if found.outcome is outcome)
