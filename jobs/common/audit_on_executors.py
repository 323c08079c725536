"""An audit over executors: segments in any order, then each partition where it lies in one piece and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.distribute import Counters, SegmentRows, on_executors
from jobs.common.driver_rows import of_driver
from jobs.common.events import event_batches, from_leader_epochs, to_leader_epochs, with_events
from jobs.common.finish_partitions import by_partition
from jobs.common.tables import (
    AUDITED_ARROW_SCHEMA,
    AUDITED_SCHEMA,
    FOUND_ARROW_SCHEMA,
    FOUND_SCHEMA,
    PARTITIONS,
    PRODUCER_EVENTS,
    SEGMENTS,
)
from kidxlib.audit import Finding, Verdict
from kidxlib.audit_log import AuditedLog
from kidxlib.build import BuildTask
from kidxlib.discover import SegmentFile, Source
from kidxlib.fold import ScannedSegment
from kidxlib.names import LOG_SUFFIX
from kidxlib.offset_index import OffsetPosition
from kidxlib.pack import BINS_PER_CORE
from kidxlib.past_end import PastEnd
from kidxlib.plan import PartitionKey
from kidxlib.recover import ScanEnd, Status
from kidxlib.show_audit import Kind, Row, rows_of_partition, rows_of_segment
from kidxlib.startup import Recovery
from kidxlib.verify import AuditedSegment, PartitionAudit, audit_partition, audit_segment

_ROWS_PER_ARROW_BATCH: Final = 1000

#: What tells a row of a partition as such from its segments.
_NO_SEGMENT: Final = -1


def audit_segments(
    spark: SparkSession,
    bins: Sequence[Sequence[BuildTask]],
    sources: Sequence[Source],
    audits: Mapping[PartitionKey, PartitionAudit],
    counters: Counters,
    *,
    deep: bool,
) -> DataFrame:
    """Rows of `AUDITED_SCHEMA`; see `on_executors`. Nothing is written beside the source."""
    known_audits = spark.sparkContext.broadcast(dict(audits))

    def audit(tasks: Iterable[BuildTask], may_map: bool) -> Iterator[SegmentRows]:
        for task in tasks:
            audited = audit_segment(task, may_map, deep=deep)
            segment = task.segment
            found = rows_of_segment(segment.source, known_audits.value[segment.partition_key], audited)
            rows: list[dict[str, Row]] = [{kind.value: row} for kind, row in found]
            events = event_batches(segment, audited.scanned.producer_events, AUDITED_ARROW_SCHEMA)
            yield SegmentRows(task, events, [*rows, {"segment": _segment_row(segment, audited)}])

    return on_executors(spark, bins, sources, counters, audit, AUDITED_SCHEMA)


def audit_partitions(audited: DataFrame, audits: Mapping[PartitionKey, PartitionAudit]) -> DataFrame:
    """All that is found, as rows of `FOUND_SCHEMA`, computed where they are used.

    Args:
        audited: what `audit_segments` gave, computed.
        audits: what there is to audit of each partition, be there segments in it or not.
    """
    spark = audited.sparkSession
    known_audits = spark.sparkContext.broadcast(dict(audits))

    def audit_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out: list[dict[str, Row]] = []
        for key, rows in groupby(with_events(batches), key=lambda row: _partition_key(row[0])):
            segments = (_segment(head, events) for head, events in rows if head["base_offset"] != _NO_SEGMENT)
            task = known_audits.value[key]
            found = audit_partition(task, segments)
            out.extend({kind.value: row} for kind, row in rows_of_partition(key[0], task, found))
            while len(out) >= _ROWS_PER_ARROW_BATCH:
                yield pa.RecordBatch.from_pylist(out[:_ROWS_PER_ARROW_BATCH], FOUND_ARROW_SCHEMA)
                del out[:_ROWS_PER_ARROW_BATCH]
        if out:
            yield pa.RecordBatch.from_pylist(out, FOUND_ARROW_SCHEMA)

    key, no_position = list(SEGMENTS.key), F.lit(-1).cast("bigint").alias("position")
    partitions = of_driver(spark, [(*key_, _NO_SEGMENT) for key_ in audits], _KEY_SCHEMA)
    segments = audited.where("segment IS NOT NULL").select(
        *(f"segment.{name}" for name in key), no_position, F.struct("segment.*").alias("segment")
    )
    event_columns = [F.col(f"event.{name}") for name in PRODUCER_EVENTS.column_names if name not in key]
    events = audited.where("event IS NOT NULL").select(
        *(f"event.{name}" for name in key), "event.position", F.struct(*event_columns).alias("event")
    )
    rows = partitions.select(*key, no_position)
    for more in (segments, events):
        rows = rows.unionByName(more, allowMissingColumns=True)
    shares = min(len(audits), spark.sparkContext.defaultParallelism * BINS_PER_CORE)
    found = by_partition(rows, shares).mapInArrow(audit_all, FOUND_SCHEMA)
    files = audited.where(f"{Kind.FILE} IS NOT NULL").select(Kind.FILE.value)
    return found.unionByName(files, allowMissingColumns=True)


_KEY_SCHEMA: Final = SEGMENTS.schema(SEGMENTS.key)


def _partition_key(head: dict[str, Any]) -> PartitionKey:
    source, topic, partition = (head[name] for name in PARTITIONS.key)
    return source, topic, partition


def _segment_row(segment: SegmentFile, audited: AuditedSegment) -> Row:
    """What a partition's audit needs, as the `segment` of a row of `AUDITED_SCHEMA`."""
    scanned, end, recovery = audited.scanned, audited.end, audited.recovery
    row = {
        **dict(zip(PARTITIONS.key, segment.partition_key, strict=True)),
        "base_offset": scanned.base_offset,
        "status": end.status.value,
        "reason": end.reason,
        "reason_position": end.position,
        "reason_detail": end.detail,
        "log_path": segment.path,
        "leader_epochs": from_leader_epochs(scanned.leader_epochs),
        "broken": [
            {"file": each.file, "reason": each.reason} for each in audited.findings if each.verdict is Verdict.BROKEN
        ],
    }
    if recovery is not None:
        row |= {
            "log_bytes": recovery.log_bytes,
            "next_offset": recovery.next_offset,
            "map_end_offset": recovery.map_end_offset,
            "batches": recovery.batches,
            "records": recovery.records,
            "past_unfinished": recovery.past.unfinished,
            "past_batches": recovery.past.batches,
            "past_records": recovery.past.records,
        }
    if (finding := audited.log.finding) is not None:
        row["log"] = {name: getattr(finding, name) for name in _SAID_OF_LOG}
    if (entry := audited.log.index_end) is not None:
        row |= {"index_end_offset": entry.offset, "index_end_position": entry.position}
    return row


def _segment(head: dict[str, Any], events: NDArray[np.void]) -> AuditedSegment:
    segment = head["segment"]
    end = ScanEnd(Status(segment["status"]), segment["reason"], segment["reason_position"], segment["reason_detail"])
    recovery = None
    if segment["log_bytes"] is not None:
        recovery = Recovery(
            log_bytes=segment["log_bytes"],
            end=end,
            next_offset=segment["next_offset"],
            map_end_offset=segment["map_end_offset"],
            batches=segment["batches"],
            records=segment["records"],
            past=PastEnd(segment["past_unfinished"], segment["past_batches"], segment["past_records"]),
        )
    scanned = ScannedSegment(
        base_offset=head["base_offset"],
        well=end.status is Status.OK,
        next_offset=segment["next_offset"],
        map_end_offset=segment["map_end_offset"],
        producer_events=events,
        leader_epochs=to_leader_epochs(segment["leader_epochs"]),
    )
    findings = tuple(
        Finding(file=each["file"], verdict=Verdict.BROKEN, reason=each["reason"]) for each in segment["broken"]
    )
    log = AuditedLog(
        base_offset=head["base_offset"],
        finding=_said_of_log(segment["log"]),
        recovery=recovery,
        index_end=None
        if segment["index_end_offset"] is None
        else OffsetPosition(segment["index_end_offset"], segment["index_end_position"]),
    )
    return AuditedSegment(scanned=scanned, findings=findings, log=log, end=end)


_SAID_OF_LOG: Final = ("verdict", "reason", "position", "detail", "consequence")


def _said_of_log(said: Row | None) -> Finding | None:
    if said is None:
        return None
    return Finding(file=LOG_SUFFIX, **{**said, "verdict": Verdict(said["verdict"])})
