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
    reason: str = column("why")
    warnings: Sequence[str] = column("what a person would not expect of that")
    bytes: int | None = column("size of the .log")
    largest_timestamp_ms: int | None = column("what its age is counted from, ms since the epoch")
    age_from_mtime: bool = column(
        "that is the modification time of the .log: no batch has a timestamp", Formerly("of_mtime", before=7)
    )
    retention_ms: int = column("the topic's retention.ms; -1: no limit")
    retention_bytes: int = column("the topic's retention.bytes; -1: no limit")
    future_ms: int = column("by how much its largest timestamp lies in the future")
    backwards_ms: int = column("by how much it is older than an earlier segment that stays")
    rolls_first: bool = column("the partition's last segment goes: a broker rolls first, --apply keeps this segment")
    next_offset: int | None = column("where the next segment begins, or the log ends")
    cut_offset: int | None = column(
        "the partition's first offset not older than retention.ms, in the row of the segment with it; else null"
    )
    first_timestamp_ms: int | None = column("of the first segment that stays: its first record's timestamp")
    decision_on_disk: str | None = column("what a broker would decide by its index files; null: not looked at")
    reason_on_disk: str | None = column("why it would")
    timestamp_on_disk_ms: int | None = column("what it would take for the largest timestamp")
    log_mtime_ns: int | None = column("modification time of the .log, ns since the epoch")
    log_path: str = column("the .log")
    index_directory: str = column("directory of the index files", Formerly("index_folder", before=7))
    cleanup_policy: str | None = column("the topic's cleanup.policy: delete, compact, compact,delete, or empty")
    remote_storage: bool | None = column("the topic's remote.storage.enable")
    policy_origins: Mapping[str, str] | None = column(
        "who said cleanup.policy, retention.ms, retention.bytes and remote.storage.enable: topic, broker, pattern, "
        "default, option, or kafka-default where nobody did"
    )
    counted_bytes: int | None = column("what it counts with: of a truncated segment what a broker would leave of it")
    log_inode: int | None = column("inode number of the .log; null of an object, which has none")
    topic_id: str | None = column("topic id from partition.metadata; null where that file is absent")
    log_start_offset: int | None = column("of the partition, from log-start-offset-checkpoint; null: not there")
    high_watermark: int | None = column("of the partition, from replication-offset-checkpoint; null: not there")
    policy_file: str | None = column("the file of policies; null where there was none")
    what_if: bool | None = column(
        "decided for a time that was given, or with values that nobody said: --apply refuses it; null: written with "
        "catalog version 5 or older, refused too"
    )
    planned_at: datetime = column("the time that it was decided for (its --now)")
    due_ms: int | None = column(
        "of a segment that stays: when it and all before it are older than retention.ms, ms since the epoch; null: it "
        "stays for another reason than time, or behind one that does, or written with catalog version 8 or older"
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
    """The policy by which the segments of a topic are decided."""

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
    """A segment of a planned partition, and the facts by which it was decided."""

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
