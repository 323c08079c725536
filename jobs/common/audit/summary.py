"""What an audit on executors comes to, for the screen and for JSON."""

from __future__ import annotations

from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kidxlib.audit.finding import WORST_FIRST
from kidxlib.audit.rows import AuditRows, Kind
from kidxlib.audit.summary import COUNTED, NOTHING_LOST, AuditSummary
from kidxlib.catalog.audit_results import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.rows import Row
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.terminal.audit import SHOWN

_R = TypeVar("_R", bound=Row)

#: The order in which rows are reported.
_ORDERS = {
    Kind.FILE: (*SEGMENTS.key, "file"),
    Kind.SEGMENT: SEGMENTS.key,
    Kind.PARTITION: PARTITIONS.key,
    Kind.NOT_READY: SEGMENTS.key,
}


def summarise(found: DataFrame, *, tiering: bool) -> AuditSummary:
    """Sum an audit up.

    Args:
        found: rows of `FOUND`, computed.
    """
    summary = AuditSummary()
    files, segments = _of(found, Kind.FILE), _of(found, Kind.SEGMENT)
    for row in files.groupBy("file", "verdict").count().collect():
        summary.files[row["file"], row["verdict"]] = row["count"]
    unsound = files.where(F.col("verdict").isin(*(verdict.value for verdict in WORST_FIRST)))
    severity = F.array_position(F.array(*(F.lit(verdict.value) for verdict in WORST_FIRST)), F.col("verdict"))
    summary.reported = _first(FileFinding, unsound, severity, F.col("file") != LOG_SUFFIX, *_ORDERS[Kind.FILE])
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTED)
    for row in segments.groupBy("action").agg(F.count("*").alias("segments"), *sums).collect():
        summary.add_action(**row.asDict())
    lost = segments.where(~F.col("action").isin(*(action.value for action in NOTHING_LOST)))
    summary.lost = _first(StartupRow, lost, *_ORDERS[Kind.SEGMENT])
    for row in _of(found, Kind.PARTITION).collect():
        summary.add_start(StartupPartitionRow.of_dict(row.asDict(recursive=True)))
    if tiering:
        not_ready = _of(found, Kind.NOT_READY)
        summary.not_ready = _first(NotReadyRow, not_ready, *_ORDERS[Kind.NOT_READY])
        summary.not_ready_count = not_ready.count()
    return summary


def all_rows(found: DataFrame) -> AuditRows:
    """All rows of an audit, in order."""
    ordered = {kind: _of(found, kind).orderBy(*order).toArrow() for kind, order in _ORDERS.items()}
    return AuditRows(
        files=FileFinding.of_arrow(ordered[Kind.FILE]),
        startup=StartupRow.of_arrow(ordered[Kind.SEGMENT]),
        partitions=StartupPartitionRow.of_arrow(ordered[Kind.PARTITION]),
        not_ready=NotReadyRow.of_arrow(ordered[Kind.NOT_READY]),
    )


def _of(found: DataFrame, kind: Kind) -> DataFrame:
    return found.where(f"{kind} IS NOT NULL").select(f"{kind}.*")


def _first(row_type: type[_R], rows: DataFrame, *order: str | Column) -> list[_R]:
    return [row_type.of_dict(row.asDict(recursive=True)) for row in rows.orderBy(*order).limit(SHOWN).collect()]
