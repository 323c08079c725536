"""What an audit over executors comes to, for the screen and for JSON."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.tables import PARTITIONS, SEGMENTS
from kidxlib.names import LOG_SUFFIX
from kidxlib.show_audit import COUNTED, NOTHING_LOST, SHOWN, WORST_FIRST, AuditSummary, Kind, Row

#: The order in which rows are told.
_ORDERS = {
    Kind.FILE: (*SEGMENTS.key, "file"),
    Kind.SEGMENT: SEGMENTS.key,
    Kind.PARTITION: PARTITIONS.key,
    Kind.NOT_READY: SEGMENTS.key,
}


def summarise(found: DataFrame, *, tiering: bool) -> AuditSummary:
    """Sum an audit up.

    Args:
        found: rows of `FOUND_SCHEMA`, computed.
    """
    summary = AuditSummary()
    files, segments = _of(found, Kind.FILE), _of(found, Kind.SEGMENT)
    for row in files.groupBy("file", "verdict").count().collect():
        summary.files[row["file"], row["verdict"]] = row["count"]
    told = files.where(F.col("verdict").isin(*(verdict.value for verdict in WORST_FIRST)))
    severity = F.array_position(F.array(*(F.lit(verdict.value) for verdict in WORST_FIRST)), F.col("verdict"))
    summary.told = _first(told, severity, F.col("file") != LOG_SUFFIX, *_ORDERS[Kind.FILE])
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTED)
    for row in segments.groupBy("action").agg(F.count("*").alias("segments"), *sums).collect():
        summary.add_action(**row.asDict())
    lost = segments.where(~F.col("action").isin(*(action.value for action in NOTHING_LOST)))
    summary.lost = _first(lost, *_ORDERS[Kind.SEGMENT])
    for row in _of(found, Kind.PARTITION).collect():
        summary.add_start(row.asDict(recursive=True))
    if tiering:
        not_ready = _of(found, Kind.NOT_READY)
        summary.not_ready, summary.not_ready_count = _first(not_ready, *_ORDERS[Kind.NOT_READY]), not_ready.count()
    return summary


def all_rows(found: DataFrame) -> dict[Kind, list[Row]]:
    """All rows of an audit, by their kind, in order."""
    return {kind: _of(found, kind).orderBy(*order).toArrow().to_pylist() for kind, order in _ORDERS.items()}


def _of(found: DataFrame, kind: Kind) -> DataFrame:
    return found.where(f"{kind} IS NOT NULL").select(f"{kind}.*")


def _first(rows: DataFrame, *order: str | Column) -> list[Row]:
    return [row.asDict(recursive=True) for row in rows.orderBy(*order).limit(SHOWN).collect()]
