"""Runs an audit (`run_audit`): workers read segments and make a row of each (`audit_segments`), and then audit each
partition from the rows of its segments (`audit_partitions`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.gaps import FoundGaps
from kidxlib.audit.partition import PartitionAudit, audit_partition
from kidxlib.audit.rows import AuditRows, RowKind, rows_of_partition, rows_of_segment
from kidxlib.audit.segment import AuditedLog, AuditedSegment, SegmentForPartition, audit_segment, scan_small_logs
from kidxlib.audit.startup.simulation import SegmentRecovery
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS, named_key, partition_keys
from kidxlib.catalog.results import (
    AUDITED,
    FOUND,
    TO_AUDIT,
    AuditedSegmentRow,
    IndexEnd,
    LogFinding,
    NotReadyRow,
    RecoveryColumns,
    StartupPartitionRow,
    StartupRow,
)
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine, ensure_logs_visible
from kidxlib.engine.shares import keys_with_rows, share_rows_of, shares
from kidxlib.engine.work import ItemRows, SharedRows, StagedRows, Work, reads_little
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.index.offset import OffsetPosition
from kidxlib.indexing.bins import into_bins
from kidxlib.indexing.plan import ScanTask
from kidxlib.indexing.source import Source, SourceLog, source_directories
from kidxlib.operations.producer_events import (
    event_batches,
    event_rows,
    from_leader_epochs,
    segment_rows,
    to_leader_epochs,
    with_events,
)
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition_fold import ScannedSegment
from kidxlib.recovery.past_end import PastEnd
from kidxlib.storage.location import as_text
from kidxlib.storage.opened_log import OpenedTogether, room_of_pass, small_log_passes
from kidxlib.tables.protocol import ROWS
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase
from kidxlib.text.words import counted

_COMPARING: Final = "comparing partitions"

#: So few partitions with small logs are audited faster than workers start.
_PARTITIONS_FEW: Final = 50

#: Rows of `FileFinding`.
_FINDING_ROWS: Final = pa.schema([*AUDITED.field(RowKind.FILE.value).type])

#: The order in which rows are reported.
ORDERS: Final[Mapping[RowKind, Sequence[str]]] = {
    RowKind.FILE: (*SEGMENTS.key, "file"),
    RowKind.SEGMENT: SEGMENTS.key,
    RowKind.PARTITION: PARTITIONS.key,
    RowKind.NOT_READY: SEGMENTS.key,
}

#: How many rows of segments and events are held at a time, unless one partition has more.
_ROWS_MAX: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAudit(ScanTask):
    """One segment to audit, and whether the broker of its log dir stopped cleanly."""

    clean_shutdown: bool


def _to_segment_row(segment: SourceLog, audited: AuditedSegment) -> AuditedSegmentRow:
    """An audited segment as the row that the audit of its partition reads. Its producer events are other rows."""
    needed, end = audited.for_partition(), audited.end
    return AuditedSegmentRow(
        **named_key(segment.partition_key),
        base_offset=segment.base_offset,
        status=end.status,
        reason=end.reason,
        reason_position=end.position,
        reason_detail=None if end.detail is None else as_text(end.detail),
        log_path=as_text(segment.path),
        recovery=None if needed.log.recovery is None else _recovery_columns(needed.log.recovery),
        leader_epochs=from_leader_epochs(needed.scanned.leader_epochs),
        index_end=_index_end(needed.log.index_end),
        log=None if needed.log.finding is None else _log_finding(needed.log.finding),
        broken=[{"file": suffix, "reason": reason} for suffix, reason in needed.broken.items()],
        events=len(needed.scanned.producer_events),
    )


def _from_segment_row(row: AuditedSegmentRow, events: NDArray[np.void]) -> SegmentForPartition:
    """An audited segment from its row, and from its producer events, of dtype `scan_state.PRODUCER_EVENT`."""
    recovered = row.recovery
    return SegmentForPartition(
        scanned=ScannedSegment(
            base_offset=row.base_offset,
            problem_free=row.status is Status.OK,
            next_offset=None if recovered is None else recovered["next_offset"],
            map_end_offset=None if recovered is None else recovered["map_end_offset"],
            producer_events=events,
            leader_epochs=to_leader_epochs(row.leader_epochs),
        ),
        log=AuditedLog(
            base_offset=row.base_offset,
            finding=None if row.log is None else _finding(row.log),
            recovery=None if recovered is None else _recovery(row, recovered),
            index_end=None
            if row.index_end is None
            else OffsetPosition(row.index_end["offset"], row.index_end["position"]),
        ),
        broken={each["file"]: each["reason"] for each in row.broken},
    )


def _recovery_columns(recovery: SegmentRecovery) -> RecoveryColumns:
    return {
        "log_bytes": recovery.log_bytes,
        "next_offset": recovery.next_offset,
        "map_end_offset": recovery.map_end_offset,
        "batches": recovery.batches,
        "records": recovery.records,
        "past_unfinished": recovery.past.unfinished,
        "past_batches": recovery.past.batches,
        "past_records": recovery.past.records,
    }


def _recovery(row: AuditedSegmentRow, columns: RecoveryColumns) -> SegmentRecovery:
    return SegmentRecovery(
        log_bytes=columns["log_bytes"],
        end=ScanEnd(row.status, row.reason, row.reason_position, row.reason_detail),
        next_offset=columns["next_offset"],
        map_end_offset=columns["map_end_offset"],
        batches=columns["batches"],
        records=columns["records"],
        past=PastEnd(columns["past_unfinished"], columns["past_batches"], columns["past_records"]),
    )


def _index_end(entry: OffsetPosition | None) -> IndexEnd | None:
    return None if entry is None else {"offset": entry.offset, "position": entry.position}


def _log_finding(finding: Finding) -> LogFinding:
    return {
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "position": finding.position,
        "detail": None if finding.detail is None else as_text(finding.detail),
        "consequence": finding.consequence,
    }


def _finding(stored: LogFinding) -> Finding:
    return Finding(
        file=LOG_SUFFIX,
        verdict=Verdict(stored["verdict"]),
        reason=stored["reason"],
        position=stored["position"],
        detail=stored["detail"],
        consequence=stored["consequence"],
    )


def audit_segments(tasks: Iterable[SegmentAudit], use_mmap: bool, *, deep: bool) -> Iterator[ItemRows]:
    """Audit segments in a worker, as rows of `AUDITED`. Nothing is written. `deep` looks at the records, too."""
    room = room_of_pass()
    for of_pass in small_log_passes(tasks):
        with OpenedTogether(room) as opened:
            for task, read in zip(of_pass, scan_small_logs(of_pass, use_mmap, opened), strict=True):
                stopped = task.clean_shutdown
                yield _item_rows(task, audit_segment(task, use_mmap, deep=deep, clean_shutdown=stopped, read=read))


def _item_rows(task: SegmentAudit, audited: AuditedSegment) -> ItemRows:
    events = audited.scanned.producer_events
    files = [{RowKind.FILE.value: row.values()} for row in rows_of_segment(task, audited)]
    return ItemRows(
        segments=1,
        log_bytes=task.log_bytes,
        batches=event_batches([task.segment], [len(events)], events, AUDITED),
        rows=[*files, {"segment": _to_segment_row(task.segment, audited).values()}],
    )


@dataclass(frozen=True, slots=True)
class PartitionsToAudit:
    """Some partitions, with or without segments, and the rows of their audited segments.

    Attributes:
        rows: rows of `TO_AUDIT`; those of a partition follow one another, segments in order.
        row_bytes: size of these rows in memory.
    """

    rows: SharedRows
    row_bytes: int
    audits: Mapping[PartitionKey, PartitionAudit]


def audit_partitions(shares: Iterable[PartitionsToAudit]) -> Iterator[ItemRows]:
    """Audit partitions in a worker, as rows of `FOUND`. Nothing is written."""
    for share in shares:
        left = dict(share.audits)
        for key, rows in groupby(with_events(share.rows.batches()), key=lambda row: _partition_key(row[0])):
            segments = (_from_segment_row(AuditedSegmentRow.of_dict(head["segment"]), events) for head, events in rows)
            yield _audited(key, left.pop(key), segments)
        for key, audit in left.items():
            yield _audited(key, audit, ())


def _audited(key: PartitionKey, audit: PartitionAudit, segments: Iterable[SegmentForPartition]) -> ItemRows:
    rows = rows_of_partition(key[0], audit, audit_partition(audit, segments))
    return ItemRows(rows=[{kind.value: row.values()} for kind, of_kind in rows.by_kind().items() for row in of_kind])


def _partition_key(head: Mapping[str, Any]) -> PartitionKey:
    source, topic, partition = (head[name] for name in PARTITIONS.key)
    return source, topic, partition


@dataclass(frozen=True, slots=True)
class AuditResults:
    """What an audit found.

    Attributes:
        segments: rows of `AUDITED`, from the audit of segments.
        partitions: rows of `FOUND`, from the audit of partitions.
        gaps: the gaps between logs.
        others: rows of `FileFinding` on gaps whose offsets are lost, and on partitions whose logs were not read.
    """

    segments: StagedRows
    partitions: StagedRows
    gaps: FoundGaps = field(default_factory=FoundGaps)
    others: pa.Table = field(default_factory=_FINDING_ROWS.empty_table)

    def with_others(self, rows: Sequence[FileFinding]) -> Self:
        """The results, with these findings before the others."""
        table = pa.Table.from_pylist([row.values() for row in rows], _FINDING_ROWS)
        return replace(self, others=pa.concat_tables([table, self.others]))

    def rows(self, kind: RowKind, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """The rows of one kind; see `StagedRows.rows`."""
        rows = self.partitions.rows(kind.value, names, where)
        if kind is not RowKind.FILE:
            return rows
        others = rows_where(self.others, where).select(rows.column_names)
        return pa.concat_tables([self.segments.rows(kind.value, names, where), rows, others])

    def all_rows(self) -> AuditRows:
        ordered = {
            kind: self.rows(kind).sort_by([(name, "ascending") for name in order]) for kind, order in ORDERS.items()
        }
        return AuditRows(
            files=FileFinding.of_arrow(ordered[RowKind.FILE]),
            startup=StartupRow.of_arrow(ordered[RowKind.SEGMENT]),
            partitions=StartupPartitionRow.of_arrow(ordered[RowKind.PARTITION]),
            not_ready=NotReadyRow.of_arrow(ordered[RowKind.NOT_READY]),
        )


def partitions_to_audit(
    staged: StagedRows, engine: Engine, audits: Mapping[PartitionKey, PartitionAudit], rows_max: int = _ROWS_MAX
) -> Iterator[PartitionsToAudit]:
    """The partitions in shares, with the rows of their segments (`AUDITED`); up to `rows_max` rows are held at a time.
    Partitions without segments are among `audits`, too.
    """

    def read(scope: Sequence[Condition]) -> pa.Table:
        segments = segment_rows(staged.rows("segment", where=scope), TO_AUDIT)
        return pa.concat_tables([segments, event_rows(staged.rows("event", where=scope), TO_AUDIT)])

    partitions = keys_with_rows(audits, _counts(staged))
    share_rows = share_rows_of(partitions, engine.cores, rows_max)
    for keys, rows in shares(read, partitions, share_rows, rows_max, ("base_offset", "position")):
        audits_of_share = {key: audits[key] for key in partition_keys(keys)}
        yield PartitionsToAudit(engine.share(rows), rows.nbytes, audits_of_share)


def _counts(staged: StagedRows) -> pa.Table:
    """How many rows of segments and events each partition has."""
    key = list(PARTITIONS.key)
    counted = staged.rows("segment", [*key, "events"]).group_by(key).aggregate([([], "count_all"), ("events", "sum")])
    rows: Values = pc.add(counted["count_all"], counted["events_sum"])
    return counted.select(key).append_column(ROWS, rows)


def run_audit(
    engine: Engine,
    tasks: Sequence[ScanTask],
    audits: Mapping[PartitionKey, PartitionAudit],
    sources: Sequence[Source],
    *,
    deep: bool,
) -> AuditResults:
    """Audit all segments of partitions, then the partitions, with or without segments. `deep` looks at the records,
    too.
    """
    if tasks:
        engine.start()
    log_bytes = sum(task.log_bytes for task in tasks)
    directories = source_directories({task.segment.source for task in tasks}, sources)
    # An earlier run with the same id may have been killed and have left rows.
    attempt = uuid.uuid4().hex[:16]

    def read_so_far() -> str:
        read = f"{engine.done().segments:,} of {counted(len(tasks), 'segment')} read"
        return f"{read}, and none reported; run the same command again"

    begin_phase("reading", done=engine.done, segments=len(tasks), log_bytes=log_bytes, after=_COMPARING)
    with interrupts.telling(read_so_far):
        bins = into_bins([_segment_audit(task, audits) for task in tasks], engine.cores)
        with engine.stopping():
            segments = engine.run(
                Work(
                    f"audit-{attempt}-segments",
                    bins,
                    partial(audit_segments, deep=deep),
                    AUDITED,
                    directories,
                    is_small=reads_little(log_bytes, len(tasks)),
                    maps=True,
                )
            )
        ensure_logs_visible(segments)
        begin_phase(_COMPARING)
        units = [[share] for share in partitions_to_audit(segments, engine, audits)]
        # Logs may be read a second time. A partition's directory is listed as well, but that has no bytes to count.
        read_bytes = log_bytes + sum(share.row_bytes for [share] in units)
        is_small = len(audits) <= _PARTITIONS_FEW and reads_little(read_bytes, len(units))
        with engine.stopping():
            partitions = engine.run(
                Work(f"audit-{attempt}-partitions", units, audit_partitions, FOUND, directories, is_small)
            )
    return AuditResults(segments, partitions)


def _segment_audit(task: ScanTask, audits: Mapping[PartitionKey, PartitionAudit]) -> SegmentAudit:
    return SegmentAudit(
        segment=task.segment,
        options=task.options,
        index_directory=task.index_directory,
        clean_shutdown=audits[task.segment.partition_key].last_stop.clean_shutdown,
    )
