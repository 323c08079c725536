"""An audit with all cores of this machine: segments in any order, then partitions, as a build does it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kidxlib import interrupts
from kidxlib.audit import Verdict
from kidxlib.build import BuildTask
from kidxlib.cli.scratch import Spool, Spooled, scratch_folder
from kidxlib.cli.workers import Workers, until_stopped
from kidxlib.console import note
from kidxlib.names import LOG_SUFFIX
from kidxlib.pack import BINS_PER_CORE, pack
from kidxlib.plan import PartitionKey, Plan
from kidxlib.progress import Done, Span, begin_phase
from kidxlib.recover import RecoverOptions
from kidxlib.show_audit import Kind, Row, broken_files, rows_of_partition, rows_of_segment, say_broken_logs
from kidxlib.verify import AuditedSegment, PartitionAudit, audit_partition, audit_segment, partition_audits


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """Where a worker has put the `AuditedSegment` of a segment that it read."""

    partition: PartitionKey
    base_offset: int
    audited: Spooled


@dataclass(frozen=True, slots=True)
class _Bin:
    """Segments that one worker reads one after the other, and where it puts what it finds."""

    tasks: Sequence[BuildTask]
    spool: Path
    deep: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """What one worker has read."""

    segments: list[_ReadSegment]
    log_bytes: int
    span: Span


@dataclass(frozen=True, slots=True)
class _Share:
    """Partitions that one worker looks at, each with its segments, which were all read."""

    partitions: Sequence[tuple[PartitionKey, PartitionAudit, list[_ReadSegment]]]


def audit(
    plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], workers: Workers, *, deep: bool
) -> dict[Kind, list[Row]]:
    """Audit all that a plan lists.

    Args:
        audits: what there is to audit of each partition.

    Returns:
        The rows of each kind, in the order of partitions, segments and file names.
    """
    read: dict[PartitionKey, list[_ReadSegment]] = defaultdict(list)
    rows: dict[Kind, list[Row]] = {kind: [] for kind in Kind}
    segments, log_bytes, span = 0, 0, Span()

    def take_segments(result: _Read) -> None:
        nonlocal segments, log_bytes, span
        segments += len(result.segments)
        log_bytes += result.log_bytes
        span |= result.span
        for segment in result.segments:
            read[segment.partition].append(segment)

    def take_rows(result: list[tuple[Kind, Row]]) -> None:
        for kind, row in result:
            rows[kind].append(row)

    def read_so_far() -> str:
        of_all = f"{segments:,} of {len(plan.tasks):,} segments read"
        return f"{of_all}, and none reported; run the same command again"

    with interrupts.telling(read_so_far), scratch_folder() as scratch:
        bins = [
            _Bin(tasks, scratch / f"{number}.audited", deep)
            for number, tasks in enumerate(pack(plan.tasks, workers.processes))
        ]
        begin_phase(
            "reading",
            done=lambda: Done(segments, log_bytes, span.seconds),
            segments=len(plan.tasks),
            log_bytes=plan.log_bytes,
        )
        workers.run(_audit_bin, bins, take_segments)
        begin_phase("comparing partitions")
        partitions = [(key, task, read[key]) for key, task in audits.items()]
        shares = workers.processes * BINS_PER_CORE
        work = [_Share(share) for number in range(shares) if (share := partitions[number::shares])]
        workers.run(_audit_share, work, take_rows)
    for of_kind in rows.values():
        of_kind.sort(key=_place)
    return rows


def broken_now(plan: Plan, options: RecoverOptions, workers: Workers) -> tuple[dict[PartitionKey, frozenset[str]], int]:
    """Names of the index and auxiliary files that are broken, by partition, and how many logs are: without a catalog
    nobody remembers an earlier audit.

    Args:
        options: what files are to be like.
    """
    audits, _ = partition_audits(plan, lambda topic: options, clean_shutdown=None, tiering=False)
    files = audit(plan, audits, workers, deep=False)[Kind.FILE]
    broken = broken_files(files)
    note(f"{sum(map(len, broken.values())):,} index files in {len(broken):,} partitions are broken")
    logs = (row for row in files if row["file"] == LOG_SUFFIX and row["verdict"] == Verdict.BROKEN.value)
    return broken, say_broken_logs(row["path"] for row in logs)


def _place(row: Row) -> tuple[str, str, int, int, str]:
    return row["source"], row["topic"], row["partition"], row.get("base_offset", 0), row.get("file", "")


def _audit_bin(work: _Bin, may_map: bool) -> _Read:
    read, log_bytes, begin = [], 0, time.time()
    with Spool(work.spool) as spool:
        for task in until_stopped(work.tasks):
            audited = audit_segment(task, may_map, deep=work.deep)
            segment = task.segment
            read.append(_ReadSegment(segment.partition_key, segment.base_offset, spool.append(audited)))
            log_bytes += task.log_bytes
    return _Read(read, log_bytes, Span(begin, time.time()))


def _audit_share(work: _Share, may_map: bool) -> list[tuple[Kind, Row]]:
    rows: list[tuple[Kind, Row]] = []

    def in_order(source: str, task: PartitionAudit, segments: list[_ReadSegment]) -> Iterator[AuditedSegment]:
        for segment in sorted(segments, key=lambda each: each.base_offset):
            audited: AuditedSegment = segment.audited.read()
            rows.extend(rows_of_segment(source, task, audited))
            yield audited

    for (source, _, _), task, segments in until_stopped(work.partitions):
        audited = audit_partition(task, in_order(source, task, segments))
        rows.extend(rows_of_partition(source, task, audited))
    return rows
