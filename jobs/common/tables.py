"""The catalog's tables: every column's name, type and meaning, once.

The tables in Delta, the rows that executors send back and `docs/catalog.md` all follow from here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

#: Raised by one with every column that a release adds; the tables carry it as a property.
CATALOG_VERSION: Final = 6
#: The last one that added columns which a scan fills: segments of rows of an earlier one are read again.
FACTS_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: t.DataType
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the catalog; rows are unique by `key`, and files are clustered by `cluster_by`."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    cluster_by: tuple[str, ...]

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def schema(self, names: Collection[str]) -> t.StructType:
        """Of some of its columns."""
        return spark_schema(tuple(column for column in self.columns if column.name in names))


_STRING, _INT, _LONG, _BOOLEAN, _DOUBLE, _TIMESTAMP = (
    t.StringType(),
    t.IntegerType(),
    t.LongType(),
    t.BooleanType(),
    t.DoubleType(),
    t.TimestampType(),
)

_REASON: Final = ("reason", "reason_position", "reason_detail")

#: What an executor knows about a segment after it was read and its indexes were published.
_SEGMENT_FACTS: Final = (
    Column("source", _STRING, "name of the log dir, backup or volume that holds the segment", nullable=False),
    Column("topic", _STRING, "topic", nullable=False),
    Column("partition", _INT, "partition number", nullable=False),
    Column("base_offset", _LONG, "the segment's base offset, from its file name", nullable=False),
    Column("topic_id", _STRING, "topic id from partition.metadata; null where that file is absent"),
    Column("next_offset", _LONG, "last offset of the last valid batch + 1; the base offset where there is no batch"),
    Column("status", _STRING, "ok, truncated, quarantined, changed, unreadable, gone or deleted", nullable=False),
    Column("reason", _STRING, "why the scan ended before the end of the log; null where it did not"),
    Column("reason_position", _LONG, "byte of the log at which it ended; null where reason is null"),
    Column("reason_detail", _STRING, "what was found there, and what was expected"),
    Column(
        "active", _BOOLEAN, "highest base offset of its partition in this source: a broker may still write to it", False
    ),
    Column("log_bytes", _LONG, "size of the .log"),
    Column("valid_bytes", _LONG, "bytes of the .log up to the end of the last valid batch"),
    Column("batches", _LONG, "record batches (magic 2) and messages, wrappers included (magic 0 and 1)"),
    Column("records", _LONG, "records in them; null where compressed magic 0 or 1 wrappers hide their count"),
    Column("max_timestamp_ms", _LONG, "largest batch timestamp, ms since the epoch, as Kafka keeps it; -1: none"),
    Column("offset_of_max_timestamp", _LONG, "last offset of the first batch with that timestamp; null: none"),
    Column("first_leader_epoch", _INT, "leader epoch of the first batch that carries one"),
    Column("last_leader_epoch", _INT, "leader epoch of the last batch that carries one"),
    Column("magics", t.ArrayType(_INT), "message formats seen, ascending; -1: not one of 0 to 62"),
    Column("codecs", t.ArrayType(_STRING), "compression codecs seen"),
    Column("transactional_batches", _LONG, "batches with the transactional attribute, markers included"),
    Column("control_batches", _LONG, "batches with the control attribute"),
    Column("interval_bytes", _INT, "index.interval.bytes that the indexes were built with", nullable=False),
    Column("max_index_bytes", _INT, "segment.index.bytes that the indexes were built with", nullable=False),
    Column(
        "interval_source", _STRING, "who chose the interval: settings (or an option), or compaction", nullable=False
    ),
    Column("crc_checked", _BOOLEAN, "whether every batch's checksum was verified", nullable=False),
    Column("offset_index_entries", _LONG, "entries in the .index; null where it was not published"),
    Column("offset_index_bytes", _LONG, "size of the .index"),
    Column("offset_index_crc32c", _LONG, "CRC-32C of the .index"),
    Column("time_index_entries", _LONG, "entries in the .timeindex; null where it was not published"),
    Column("time_index_bytes", _LONG, "size of the .timeindex"),
    Column("time_index_crc32c", _LONG, "CRC-32C of the .timeindex"),
    Column(
        "map_end_offset",
        _LONG,
        "last offset of the last batch of magic 2 + 1, by which a snapshot of the producers is named",
    ),
    Column(
        "leader_epochs",
        t.ArrayType(
            t.StructType(
                [
                    t.StructField("epoch", _INT),
                    t.StructField("start_offset", _LONG),
                    t.StructField("position", _LONG),
                ]
            )
        ),
        "batches with a leader epoch above all before them in the segment",
    ),
    Column(
        "offsets_increase",
        _BOOLEAN,
        "each batch's last offset is above that of the batch before it; null where catalog version 3 or older wrote "
        "the row",
    ),
    Column("log_mtime_ns", _LONG, "modification time of the .log, ns since the epoch"),
    Column("log_inode", _LONG, "inode number of the .log; null of an object, which has none"),
    Column("log_path", _STRING, "the .log", nullable=False),
    Column("index_folder", _STRING, "folder of the .index and .timeindex", nullable=False),
    Column(
        "read_requests",
        _LONG,
        "requests that reading the .log took, less those that the store's client repeats; null of a file",
    ),
    Column("read_bytes", _LONG, "bytes of the .log that they gave; null of a file"),
    Column("catalog_version", _INT, "version of the catalog's columns that this row was made with", nullable=False),
)

#: What finishing a segment's partition adds; null until then.
_FINISHED: Final = (
    Column(
        "producer_state",
        _STRING,
        "where the state of producers at the base offset comes from: log-start, snapshot or unknown",
    ),
    Column("aborted_transactions", _LONG, "transactions aborted in the segment: entries for its .txnindex"),
    Column("transaction_index_bytes", _LONG, "size of the .txnindex; null where there is none"),
    Column("transaction_index_crc32c", _LONG, "CRC-32C of the .txnindex"),
    Column(
        "transaction_index_kept",
        _BOOLEAN,
        "the .txnindex that was there before stays, as producer_state is unknown",
    ),
)
FINISHED_NAMES: Final = tuple(column.name for column in _FINISHED)

#: What a scan took, which says nothing of what it found.
READ_NAMES: Final = ("read_requests", "read_bytes")

_DELETED_AT: Final = Column("deleted_at", _TIMESTAMP, "when retention deleted it, as a plan said; else null")

#: What is null of a segment that was just read.
LATER_NAMES: Final = (*FINISHED_NAMES, _DELETED_AT.name)

SEGMENTS: Final = Table(
    name="segments",
    comment="One row per segment of each source: what its log holds, how its scan ended, and its index files.",
    columns=(
        *_SEGMENT_FACTS,
        *_FINISHED,
        Column("max_timestamp", _TIMESTAMP, "max_timestamp_ms as a timestamp; null for -1 and outside years 1-9999"),
        Column("log_mtime", _TIMESTAMP, "log_mtime_ns as a timestamp"),
        Column(
            "build_id",
            _STRING,
            "the build that found this row's facts; later builds that found the same left it",
            False,
        ),
        _DELETED_AT,
    ),
    key=("source", "topic", "partition", "base_offset"),
    cluster_by=("topic", "partition", "base_offset"),
)

PARTITIONS: Final = Table(
    name="partitions",
    comment="One row per partition of each source, as its log dir's checkpoint files and its segments had it last.",
    columns=(
        Column("source", _STRING, "name of the log dir, backup or volume that holds the partition", nullable=False),
        Column("topic", _STRING, "topic", nullable=False),
        Column("partition", _INT, "partition number", nullable=False),
        Column("topic_id", _STRING, "topic id from partition.metadata; null where that file is absent"),
        Column("first_base_offset", _LONG, "base offset of the first segment; null where there is none"),
        Column("log_end_offset", _LONG, "next offset of the last segment; null where that is not known"),
        Column(
            "log_start_offset", _LONG, "from log-start-offset-checkpoint; null: not there, so the first base offset"
        ),
        Column("high_watermark", _LONG, "from replication-offset-checkpoint; null: not there, take the log end offset"),
        Column("recovery_point", _LONG, "from recovery-point-offset-checkpoint; null: not there"),
        Column("cleaner_offset", _LONG, "from cleaner-offset-checkpoint; null: not there"),
        Column("clean_shutdown", _BOOLEAN, "the log dir says that its broker stopped cleanly", nullable=False),
        Column("present", _BOOLEAN, "the folder was there when its source was last listed", nullable=False),
        Column("folder", _STRING, "the partition's folder", nullable=False),
        Column("build_id", _STRING, "the build that found this row's facts", nullable=False),
    ),
    key=("source", "topic", "partition"),
    cluster_by=("topic", "partition"),
)

_SEGMENT_KEY: Final = _SEGMENT_FACTS[:4]

PRODUCER_EVENTS: Final = Table(
    name="producer_events",
    comment="What producers did in each segment: a row for each marker, and one for data batches of a producer with "
    "none of its markers between them. Later builds derive transactions from it without reading old logs.",
    columns=(
        *_SEGMENT_KEY,
        Column("position", _LONG, "byte of the log at which the (first) batch starts", nullable=False),
        Column("producer_id", _LONG, "the producer", nullable=False),
        Column("kind", _STRING, "data, transactional-data, commit, abort or empty-control (a compacted marker)", False),
        Column("producer_epoch", _INT, "the producer's epoch in the last batch, as all that follows", nullable=False),
        Column("first_offset", _LONG, "base offset of the first batch", nullable=False),
        Column("last_offset", _LONG, "last offset", nullable=False),
        Column("offset_delta", _INT, "last offset less base offset; -1 for a marker", nullable=False),
        Column("last_sequence", _INT, "last sequence number; -1: none", nullable=False),
        Column("timestamp_ms", _LONG, "largest timestamp of the batch, or a marker's own, ms since the epoch", False),
        Column("coordinator_epoch", _INT, "a marker's transaction coordinator epoch; -1: none", nullable=False),
    ),
    key=("source", "topic", "partition", "base_offset", "position"),
    cluster_by=("topic", "partition", "base_offset"),
)

ABORTED_TRANSACTIONS: Final = Table(
    name="aborted_transactions",
    comment="One row per aborted transaction, with the segment that holds its abort marker: what .txnindex files hold.",
    columns=(
        *_SEGMENT_KEY,
        Column("producer_id", _LONG, "the producer", nullable=False),
        Column("first_offset", _LONG, "base offset of the transaction's first batch", nullable=False),
        Column("last_offset", _LONG, "offset of the abort marker", nullable=False),
        Column("last_stable_offset", _LONG, "last stable offset when the marker was applied", nullable=False),
    ),
    key=("source", "topic", "partition", "base_offset", "last_offset"),
    cluster_by=("topic", "partition", "base_offset"),
)

BUILDS: Final = Table(
    name="builds",
    comment="One row per run of build_index.",
    columns=(
        Column("build_id", _STRING, "id of the run", nullable=False),
        Column("started_at", _TIMESTAMP, "when it started (its --now)", nullable=False),
        Column("seconds", _DOUBLE, "how long it took, listing to catalog", nullable=False),
        Column("scan_seconds", _DOUBLE, "of these, reading logs and publishing indexes", nullable=False),
        Column("waves", _INT, "commits of results to the catalog", nullable=False),
        Column("sources", t.MapType(_STRING, _STRING), "sources by name, with their paths", nullable=False),
        Column("options", t.MapType(_STRING, _STRING), "options of the run", nullable=False),
        Column("versions", t.MapType(_STRING, _STRING), "versions of the code and of what it ran on", nullable=False),
        Column("partitions", _LONG, "partitions listed", nullable=False),
        Column("segments", _LONG, "segments read", nullable=False),
        Column("log_bytes", _LONG, "bytes of their logs", nullable=False),
        Column("batches", _LONG, "batches in them", nullable=False),
        Column(
            "unchanged", _LONG, "segments that were not read, because nothing about them had changed", nullable=False
        ),
        Column("gone", _LONG, "segments newly marked as gone", nullable=False),
        Column("by_status", t.MapType(_STRING, _LONG), "segments read, by status", nullable=False),
        Column("by_published", t.MapType(_STRING, _LONG), "segments read, by what publishing did", nullable=False),
        Column("finished", _LONG, "partitions whose transactions were derived anew"),
        Column("aborted_transactions", _LONG, "aborted transactions in them"),
        Column(
            "by_transaction_index", t.MapType(_STRING, _LONG), "their segments, by what publishing did with .txnindex"
        ),
        Column("left_alone", t.MapType(_STRING, _LONG), "files and folders that are no segments, by reason", False),
        Column("rows_changed", _LONG, "rows of segments that this run added or changed", nullable=False),
    ),
    key=("build_id",),
    cluster_by=(),
)

RETENTION_PLANS: Final = Table(
    name="retention_plans",
    comment="What each run of retention decided: a row for each segment and policy.",
    columns=(
        Column("plan_id", _STRING, "id of the run", nullable=False),
        *_SEGMENT_KEY,
        Column("policy", _STRING, "name of the policy", nullable=False),
        Column("decision", _STRING, "delete, keep, or undecided where nobody said its topic's policy", nullable=False),
        Column("reason", _STRING, "why", nullable=False),
        Column("warnings", t.ArrayType(_STRING), "what a person would not expect of that", nullable=False),
        Column("bytes", _LONG, "size of the .log"),
        Column("largest_timestamp_ms", _LONG, "what its age is counted from, ms since the epoch"),
        Column("of_mtime", _BOOLEAN, "that is the modification time of the .log: no batch has a timestamp", False),
        Column("retention_ms", _LONG, "the topic's retention.ms; -1: no limit", nullable=False),
        Column("retention_bytes", _LONG, "the topic's retention.bytes; -1: no limit", nullable=False),
        Column("future_ms", _LONG, "by how much its largest timestamp lies in the future", nullable=False),
        Column("backwards_ms", _LONG, "by how much it is older than an earlier segment that stays", nullable=False),
        Column(
            "rolls_first",
            _BOOLEAN,
            "the partition's last segment goes: a broker rolls first, --apply keeps this segment",
            nullable=False,
        ),
        Column("next_offset", _LONG, "where the next segment begins, or the log ends"),
        Column("cut_offset", _LONG, "in the segment where it is: first offset that is not older than retention.ms"),
        Column("first_timestamp_ms", _LONG, "of the first segment that stays: its first record's timestamp"),
        Column("decision_on_disk", _STRING, "what a broker would decide by its index files; null: not looked at"),
        Column("reason_on_disk", _STRING, "why it would"),
        Column("timestamp_on_disk_ms", _LONG, "what it would take for the largest timestamp"),
        Column("log_mtime_ns", _LONG, "modification time of the .log, ns since the epoch"),
        Column("log_path", _STRING, "the .log", nullable=False),
        Column("index_folder", _STRING, "folder of the index files", nullable=False),
        Column("cleanup_policy", _STRING, "the topic's cleanup.policy: delete, compact, compact,delete, or empty"),
        Column("remote_storage", _BOOLEAN, "the topic's remote.storage.enable"),
        Column(
            "policy_origins",
            t.MapType(_STRING, _STRING),
            "who said cleanup.policy, retention.ms, retention.bytes and remote.storage.enable: topic, broker, pattern, "
            "default, option, or kafka-default where nobody did",
        ),
        Column("counted_bytes", _LONG, "what it counts with: of a truncated segment what a broker would leave of it"),
        Column("log_inode", _LONG, "inode number of the .log; null of an object, which has none"),
        Column("topic_id", _STRING, "topic id from partition.metadata; null where that file is absent"),
        Column("log_start_offset", _LONG, "of the partition, from log-start-offset-checkpoint; null: not there"),
        Column("high_watermark", _LONG, "of the partition, from replication-offset-checkpoint; null: not there"),
        Column("policy_file", _STRING, "the file of policies; null where there was none"),
        Column(
            "what_if",
            _BOOLEAN,
            "decided for a time that was given, or with values that nobody said: --apply refuses it; null: written "
            "with catalog version 5 or older, refused too",
        ),
        Column("planned_at", _TIMESTAMP, "the time that it was decided for (its --now)", nullable=False),
    ),
    key=("plan_id", "policy", "source", "topic", "partition", "base_offset"),
    cluster_by=("plan_id",),
)

FINDINGS: Final = Table(
    name="findings",
    comment="What each run of verify_index found: a row for each log and each side file that it looked at.",
    columns=(
        Column("audit_id", _STRING, "id of the run", nullable=False),
        *_SEGMENT_KEY[:3],
        Column("base_offset", _LONG, "the offset in the file's name; of the leader epochs the first segment's", False),
        Column("file", _STRING, "its suffix, or leader-epoch-checkpoint", nullable=False),
        Column("verdict", _STRING, "identical, safe or broken; of a log whole, safe, torn or broken", nullable=False),
        Column("reason", _STRING, "a short word for why; null where it is identical or whole"),
        Column("position", _LONG, "the first byte of the file that is wrong or different; null: missing, or none is"),
        Column("detail", _STRING, "what was found there, and what recovery would have written"),
        Column("consequence", _STRING, "what that does, or why it does nothing"),
        Column(
            "action",
            _STRING,
            "of a log: what a broker does with the segment at its next start; null of other files, as all up to path",
        ),
        Column("kept_bytes", _LONG, "bytes of the log that are left then"),
        Column("lost_bytes", _LONG, "bytes that it drops; where it drops none, what recovery would. null: not known"),
        Column("lost_batches", _LONG, "batches in them; null: cannot be counted for certain"),
        Column("lost_records", _LONG, "records in them; likewise"),
        Column("path", _STRING, "the file", nullable=False),
        Column("file_bytes", _LONG, "of a file that is torn or broken: its size; null: it was not there"),
        Column("file_mtime_ns", _LONG, "likewise its modification time, ns since the epoch"),
        Column("file_inode", _LONG, "likewise its inode number; null of an object, which has none"),
        Column("audited_at", _TIMESTAMP, "when the run started (its --now)", nullable=False),
    ),
    key=("audit_id", "source", "topic", "partition", "base_offset", "file"),
    cluster_by=("audit_id",),
)

ACCEPTED: Final = Table(
    name="accepted",
    comment="Damage that somebody has looked at and accepted: a row for each finding. It holds until the file, or what "
    "is found in it, is another.",
    columns=(
        *_SEGMENT_KEY[:3],
        Column("base_offset", _LONG, "the offset in the file's name; of the leader epochs the first segment's", False),
        Column("file", _STRING, "suffix of the damaged file, or leader-epoch-checkpoint; .log: the segment", False),
        Column("reason", _STRING, "the reason, as in segments or findings", nullable=False),
        Column("position", _LONG, "the byte at which it was found; null: none in particular"),
        Column("found", _STRING, "the segment's status, or the audit's verdict on the file", nullable=False),
        Column("detail", _STRING, "what was found there, and what was expected"),
        Column("consequence", _STRING, "as in findings; null where a build has found it"),
        Column("file_bytes", _LONG, "size of the file; null: it was not there, or could not be looked at"),
        Column("file_mtime_ns", _LONG, "its modification time, ns since the epoch"),
        Column("file_inode", _LONG, "its inode number; null of an object, which has none"),
        Column("path", _STRING, "the file", nullable=False),
        Column("accepted_by", _STRING, "who accepted it", nullable=False),
        Column("accepted_at", _TIMESTAMP, "when (the --now of accept)", nullable=False),
        Column("accepted_reason", _STRING, "why", nullable=False),
    ),
    key=("source", "topic", "partition", "base_offset", "file", "reason"),
    cluster_by=(),
)

TABLES: Final = (
    *(SEGMENTS, PARTITIONS, PRODUCER_EVENTS, ABORTED_TRANSACTIONS),
    *(BUILDS, RETENTION_PLANS, FINDINGS, ACCEPTED),
)

#: What executors send back of partitions that they planned: such rows, as yet of no plan.
PLANNED_COLUMNS: Final = tuple(
    column
    for column in RETENTION_PLANS.columns
    if column.name not in ("plan_id", "planned_at", "policy_file", "what_if")
)


def spark_schema(columns: tuple[Column, ...]) -> t.StructType:
    return t.StructType([t.StructField(column.name, column.type, column.nullable) for column in columns])


def _one_of(**kinds: tuple[Column, ...]) -> t.StructType:
    """Rows of several kinds from one pass over the data: each has one column filled, which says its kind."""
    return t.StructType(
        [
            t.StructField(kind, t.StructType([t.StructField(column.name, column.type) for column in columns]))
            for kind, columns in kinds.items()
        ]
    )


_PUBLISHED: Final = Column("published", _STRING, "written, unchanged, kept or none", nullable=False)

#: What executors send back of segments that they read: the facts and what publishing did in this run; and the events.
SCANNED_SCHEMA: Final = _one_of(segment=(*_SEGMENT_FACTS, _PUBLISHED), event=PRODUCER_EVENTS.columns)
SCANNED_ARROW_SCHEMA: Final[pa.Schema] = to_arrow_schema(SCANNED_SCHEMA)

#: What they send back of partitions that they finished. The status and its reason are null where they stay.
FINISHED_SCHEMA: Final = _one_of(
    segment=(
        *_SEGMENT_KEY,
        *_FINISHED,
        *(column for column in _SEGMENT_FACTS if column.name in ("status", *_REASON)),
        _PUBLISHED,
    ),
    aborted=ABORTED_TRANSACTIONS.columns,
    kept=(Column("path", _STRING, "a snapshot or checkpoint that stays as it is"),),
)
FINISHED_ARROW_SCHEMA: Final[pa.Schema] = to_arrow_schema(FINISHED_SCHEMA)

PLANNED_SCHEMA: Final = spark_schema(PLANNED_COLUMNS)
PLANNED_ARROW_SCHEMA: Final[pa.Schema] = to_arrow_schema(PLANNED_SCHEMA)

_OF_SEGMENT: Final = {column.name: column for column in _SEGMENT_FACTS}

_SAID_OF_LOG: Final = tuple(
    column for column in FINDINGS.columns if column.name in ("verdict", "reason", "position", "detail", "consequence")
)

#: What executors send back of segments that they audited: findings on their own files, and what their partitions need.
AUDITED_SCHEMA: Final = _one_of(
    files=FINDINGS.columns[1:-1],
    segment=(
        *_SEGMENT_KEY,
        *(
            _OF_SEGMENT[name]
            for name in (
                *("status", *_REASON, "log_path", "log_bytes"),
                *("next_offset", "map_end_offset", "batches", "records"),
            )
        ),
        _OF_SEGMENT["leader_epochs"],
        Column("past_unfinished", _BOOLEAN, "after the end of the scan stands an append that was not finished"),
        Column("past_batches", _LONG, "batches there; null where they cannot be counted"),
        Column("past_records", _LONG, "records there; likewise"),
        Column("index_end_offset", _LONG, "offset of the last entry of its .index; null: none"),
        Column("index_end_position", _LONG, "the byte of the log that it gives"),
        Column(
            "log",
            t.StructType([t.StructField(column.name, column.type) for column in _SAID_OF_LOG]),
            "what its log shows by itself; null: it is gone",
        ),
        Column(
            "broken",
            t.ArrayType(t.StructType([t.StructField("file", _STRING), t.StructField("reason", _STRING)])),
            "its files that are broken",
        ),
    ),
    event=PRODUCER_EVENTS.columns,
)
AUDITED_ARROW_SCHEMA: Final[pa.Schema] = to_arrow_schema(AUDITED_SCHEMA)

#: All that an audit finds (`kidxlib.show_audit.Kind`).
FOUND_SCHEMA: Final = _one_of(
    files=FINDINGS.columns[1:-1],
    startup=(
        *_SEGMENT_KEY,
        Column("action", _STRING, "what a broker would do with it at its next start"),
        Column("log_bytes", _LONG, "size of the .log"),
        Column("read_bytes", _LONG, "what it would read of it"),
        Column("lost_bytes", _LONG, "what would be lost"),
        Column("lost_batches", _LONG, "batches in that; null where they cannot be counted for certain"),
        Column("lost_records", _LONG, "records in that; likewise"),
        Column("detail", _STRING, "why"),
    ),
    partitions=(
        *_SEGMENT_KEY[:3],
        Column("folder", _STRING, "its folder"),
        Column("clean_shutdown", _BOOLEAN, "the broker of its log dir stopped cleanly"),
        Column("log_start_offset", _LONG, "where its log would start"),
        Column("log_end_offset", _LONG, "where it would end"),
        Column("failure", _STRING, "why loading fails before a segment is looked at"),
        Column(
            "removed",
            t.ArrayType(t.StructType([t.StructField("file", _STRING), t.StructField("why", _STRING)])),
            "files that a broker would remove",
        ),
        Column("renamed", t.ArrayType(_STRING), "files that would lose their .swap"),
    ),
    not_ready=(*_SEGMENT_KEY, Column("missing", t.ArrayType(_STRING), "what it lacks for tiered storage")),
)
FOUND_ARROW_SCHEMA: Final[pa.Schema] = to_arrow_schema(FOUND_SCHEMA)

#: The columns of `segments` that compaction writes anew.
COARSENED_NAMES: Final = (
    "interval_bytes",
    *("offset_index_entries", "offset_index_bytes", "offset_index_crc32c"),
    *("time_index_entries", "time_index_bytes", "time_index_crc32c"),
)
#: Those that tell one state of a log from another.
LOG_VERSION_NAMES: Final = ("log_bytes", "log_mtime_ns", "log_inode")

#: What executors send back of what compaction changes, or would: a row for each file, or for both indexes of a segment.
_COMPACTED: Final = (
    *(replace(column, nullable=column.name == "base_offset") for column in _SEGMENT_KEY),
    Column("action", _STRING, "trim, coarsen, densify or remove", nullable=False),
    Column("outcome", _STRING, "planned, written, unchanged, removed or kept", nullable=False),
    Column("reason", _STRING, "why it goes, or stays"),
    Column("path", _STRING, "the file; of both indexes the .index", nullable=False),
    Column("log_dir", _STRING, "the Kafka log dir, where it stands beside logs"),
    Column("bytes_before", _LONG, "of the file, or of both", nullable=False),
    Column("bytes_after", _LONG, "likewise"),
    Column("interval_before", _INT, "the interval that the indexes have"),
    Column("scan_mean_before", _LONG, "bytes of log that a lookup walks through, on average"),
    Column("scan_most_before", _LONG, "at most"),
    Column("scan_mean_after", _LONG, "likewise, by the new index"),
    Column("scan_most_after", _LONG, "likewise"),
    *(
        replace(column, nullable=True)
        for column in _SEGMENT_FACTS
        if column.name in (*COARSENED_NAMES, *LOG_VERSION_NAMES)
    ),
)
COMPACTED_SCHEMA: Final = spark_schema(_COMPACTED)
COMPACTED_ARROW_SCHEMA: Final[pa.Schema] = to_arrow_schema(COMPACTED_SCHEMA)
