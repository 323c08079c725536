"""The table `retention_plans`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from kidxlib.catalog.rows import (
    BASE_OFFSET,
    PARTITION,
    SEGMENT_KEY,
    SOURCE,
    TOPIC,
    Formerly,
    Int32,
    Row,
    SegmentKey,
    Table,
    column,
    row,
    view_of,
)


@row
class _RetentionPlanRow(Row):
    """What each run of retention decided: a row for each segment and policy."""

    plan_id: str = column("id of the run")
    source: str = column(SOURCE)
    topic: str = column(TOPIC)
    partition: Int32 = column(PARTITION)
    base_offset: int = column(BASE_OFFSET)
    policy: str = column("name of the policy")
    decision: str = column("delete, keep, or undecided where its topic's policy is unknown")
    reason: str = column("the reason of the decision")
    warnings: Sequence[str] = column("what a person would not expect of the decision")
    bytes: int | None = column("size of the .log")
    largest_timestamp_ms: int | None = column("the time from which its age is counted, ms since the epoch")
    age_from_mtime: bool = column(
        "largest_timestamp_ms is the modification time of the .log: no batch has a timestamp",
        Formerly("of_mtime", before=7),
    )
    retention_ms: int = column("the topic's retention.ms; -1: no limit")
    retention_bytes: int = column("the topic's retention.bytes; -1: no limit")
    future_ms: int = column("how far its largest timestamp is in the future, in ms")
    backwards_ms: int = column("how much older it is than an earlier segment that stays, in ms")
    rolls_first: bool = column(
        "the partition's last segment is deleted: a broker rolls first, --apply keeps this segment"
    )
    next_offset: int | None = column("where the next segment begins, or the log ends")
    cut_offset: int | None = column(
        "the partition's first offset not older than retention.ms, in the row of the segment with it; else null"
    )
    first_timestamp_ms: int | None = column(
        "timestamp of the first record, in the row of the first segment that stays; else null"
    )
    decision_on_disk: str | None = column("the decision of a broker, by its index files; null: these were not read")
    reason_on_disk: str | None = column("the reason of decision_on_disk")
    timestamp_on_disk_ms: int | None = column("the largest timestamp by the index files, ms since the epoch")
    log_mtime_ns: int | None = column("modification time of the .log, ns since the epoch")
    log_path: str = column("the .log")
    index_directory: str = column("directory of the index files", Formerly("index_folder", before=7))
    cleanup_policy: str | None = column("the topic's cleanup.policy: delete, compact, compact,delete, or empty")
    remote_storage: bool | None = column("the topic's remote.storage.enable")
    policy_origins: Mapping[str, str] | None = column(
        "what sets cleanup.policy, retention.ms, retention.bytes and remote.storage.enable: topic, broker, pattern, "
        "default, option, or kafka-default if nothing does"
    )
    counted_bytes: int | None = column(
        "the size that is counted; for a truncated segment, the bytes that a broker would keep"
    )
    log_inode: int | None = column("inode number of the .log; null for an object, which has none")
    topic_id: str | None = column("topic id from partition.metadata; null where that file is absent")
    log_start_offset: int | None = column(
        "the partition's log start, from log-start-offset-checkpoint; null: not there"
    )
    high_watermark: int | None = column(
        "the partition's high watermark, from replication-offset-checkpoint; null: not there"
    )
    policy_file: str | None = column("the file of policies; null where there was none")
    what_if: bool | None = column(
        "decided for a given time, or with settings that are not known: --apply refuses it; null: written with "
        "catalog version 5 or older, also refused"
    )
    planned_at: datetime = column("the time for which the plan was made (its --now)")
    due_ms: int | None = column(
        "when a segment that stays, and all before it, are older than retention.ms, ms since the epoch; null: it or an "
        "earlier one stays for another reason than time, or the row was written with catalog version 8 or older"
    )


RETENTION_PLANS: Final = Table(
    name="retention_plans",
    row=_RetentionPlanRow,
    key=("plan_id", "policy", *SEGMENT_KEY),
    sort_by=("plan_id",),
    asked_by=("planned_at",),
)


@view_of(_RetentionPlanRow)
class PolicyInPlan(Row):
    """The policy of a topic, by which its segments stay or go."""

    policy: str
    retention_ms: int
    retention_bytes: int
    cleanup_policy: str | None
    remote_storage: bool | None
    policy_origins: Mapping[str, str] | None


@view_of(_RetentionPlanRow)
class SegmentToDelete(SegmentKey):
    """A segment that a plan deletes, and where its files are."""

    bytes: int | None
    log_mtime_ns: int | None
    log_path: str
    index_directory: str
    log_inode: int | None


@view_of(_RetentionPlanRow)
class SegmentInPlan(SegmentKey):
    """A segment of a planned partition, and the facts behind the decision on it."""

    reason: str
    bytes: int | None
    largest_timestamp_ms: int | None
    age_from_mtime: bool
    next_offset: int | None
    log_mtime_ns: int | None
    counted_bytes: int | None
    log_inode: int | None
    topic_id: str | None
    log_start_offset: int | None
    high_watermark: int | None
