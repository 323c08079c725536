"""Runs an audit: workers read segments, and then audit each partition from the rows of its segments."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.gaps import FoundGaps
from kidxlib.audit.rows import AuditRows, Kind
from kidxlib.audit.tasks import PartitionAudit
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS, partition_keys
from kidxlib.catalog.results import AUDITED, FOUND, TO_AUDIT, NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine, ensure_logs_visible, source_directories
from kidxlib.engine.shares import share_rows_of, shares, with_rows
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work, reads_little
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.bins import pack
from kidxlib.indexing.source import Source
from kidxlib.indexing.tasks import ScanTask
from kidxlib.operations.audit.audit_work import PartitionsToAudit, SegmentAudit, audit_partitions, audit_segments
from kidxlib.operations.events import event_rows, segment_rows
from kidxlib.tables.protocol import ROWS
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.words import counted

_COMPARING: Final = "comparing partitions"

#: So few partitions with small logs are audited faster than workers start.
_PARTITIONS_FEW: Final = 50

#: Rows of `FileFinding`.
FINDING_ROWS: Final = pa.schema([*AUDITED.field(Kind.FILE.value).type])

#: The order in which rows are reported.
ORDERS: Final[Mapping[Kind, Sequence[str]]] = {
    Kind.FILE: (*SEGMENTS.key, "file"),
    Kind.SEGMENT: SEGMENTS.key,
    Kind.PARTITION: PARTITIONS.key,
    Kind.NOT_READY: SEGMENTS.key,
}

#: How many rows of segments and events are held at a time, unless one partition has more.
_ROWS_MAX: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class AuditResults:
    """What an audit found.

    Attributes:
        segments: rows of `AUDITED`, from the audit of segments.
        partitions: rows of `FOUND`, from the audit of partitions.
        gaps: the gaps between logs.
        gap_findings: rows of `FileFinding` on gaps whose offsets are lost.
        unread_findings: rows of `FileFinding` on partitions whose logs were not read.
    """

    segments: Staged
    partitions: Staged
    gaps: FoundGaps = field(default_factory=FoundGaps)
    gap_findings: pa.Table = field(default_factory=FINDING_ROWS.empty_table)
    unread_findings: pa.Table = field(default_factory=FINDING_ROWS.empty_table)

    def with_gaps(self, gaps: FoundGaps, rows: Sequence[FileFinding]) -> Self:
        return replace(self, gaps=gaps, gap_findings=_finding_table(rows))

    def with_unread(self, rows: Sequence[FileFinding]) -> Self:
        return replace(self, unread_findings=_finding_table(rows))

    def rows(self, kind: Kind, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """The rows of one kind; see `Staged.rows`."""
        rows = self.partitions.rows(kind.value, names, where)
        if kind is not Kind.FILE:
            return rows
        others = [
            rows_where(table, where).select(rows.column_names) for table in (self.gap_findings, self.unread_findings)
        ]
        return pa.concat_tables([self.segments.rows(kind.value, names, where), rows, *others])

    def all_rows(self) -> AuditRows:
        ordered = {
            kind: self.rows(kind).sort_by([(name, "ascending") for name in order]) for kind, order in ORDERS.items()
        }
        return AuditRows(
            files=FileFinding.of_arrow(ordered[Kind.FILE]),
            startup=StartupRow.of_arrow(ordered[Kind.SEGMENT]),
            partitions=StartupPartitionRow.of_arrow(ordered[Kind.PARTITION]),
            not_ready=NotReadyRow.of_arrow(ordered[Kind.NOT_READY]),
        )


def _finding_table(rows: Sequence[FileFinding]) -> pa.Table:
    return pa.Table.from_pylist([row.values() for row in rows], FINDING_ROWS)


def partitions_to_audit(
    staged: Staged, engine: Engine, audits: Mapping[PartitionKey, PartitionAudit], rows_max: int = _ROWS_MAX
) -> Iterator[PartitionsToAudit]:
    """The partitions in shares, with the rows of their segments (`AUDITED`); up to `rows_max` rows are held at a time.
    Partitions without segments are among `audits`, too.
    """

    def read(scope: Sequence[Condition]) -> pa.Table:
        segments = segment_rows(staged.rows("segment", where=scope), TO_AUDIT)
        return pa.concat_tables([segments, event_rows(staged.rows("event", where=scope), TO_AUDIT)])

    partitions = with_rows(audits, _counts(staged))
    share_rows = share_rows_of(partitions, engine.cores, rows_max)
    for keys, rows in shares(read, partitions, share_rows, rows_max, ("base_offset", "position")):
        audits_of_share = {key: audits[key] for key in partition_keys(keys)}
        yield PartitionsToAudit(engine.share(rows), rows.nbytes, audits_of_share)


def _counts(staged: Staged) -> pa.Table:
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
        bins = pack([_segment_audit(task, audits) for task in tasks], engine.cores)
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
