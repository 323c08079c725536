"""An audit with all cores of this machine: segments in any order, then partitions, as a build does it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kidxlib.audit.finding import Verdict
from kidxlib.audit.partition import audit_partition
from kidxlib.audit.plan import PartitionAudit, partition_audits
from kidxlib.audit.rows import AuditRows, broken_files, rows_of_partition, rows_of_segment
from kidxlib.audit.segment import AuditedSegment, SegmentForPartition, audit_segment
from kidxlib.build.bins import BINS_PER_CORE, pack
from kidxlib.build.plan import Plan
from kidxlib.build.tasks import ScanTask
from kidxlib.cli.spool import Spool, Spooled
from kidxlib.engine.processes import Workers, until_stopped
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.scratch import scratch_directory
from kidxlib.terminal import interrupts
from kidxlib.terminal.audit import say_broken_logs
from kidxlib.terminal.console import note
from kidxlib.terminal.phase import Done, Span
from kidxlib.terminal.progress import begin_phase


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """Where a worker has put the `AuditedSegment` of a segment that it read."""

    partition: PartitionKey
    base_offset: int
    audited: Spooled


@dataclass(frozen=True, slots=True)
class _Bin:
    """Segments that one worker reads one after the other, and where it puts what it finds.

    Attributes:
        clean: partitions whose broker stopped cleanly.
    """

    tasks: Sequence[ScanTask]
    clean: frozenset[PartitionKey]
    spool: Path
    deep: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """What one worker has read."""

    segments: list[_ReadSegment]
    log_bytes: int
    span: Span


@dataclass(frozen=True, slots=True)
class _WorkUnit:
    """Partitions that one worker looks at, each with its segments, which were all read."""

    partitions: Sequence[tuple[PartitionKey, PartitionAudit, list[_ReadSegment]]]


def audit(plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], workers: Workers, *, deep: bool) -> AuditRows:
    """Audit all that a plan lists.

    Args:
        audits: what there is to audit of each partition.

    Returns:
        The rows, in the order of partitions, segments and file names.
    """
    read: dict[PartitionKey, list[_ReadSegment]] = defaultdict(list)
    rows = AuditRows()
    segments, log_bytes, span = 0, 0, Span()

    def take_segments(result: _Read) -> None:
        nonlocal segments, log_bytes, span
        segments += len(result.segments)
        log_bytes += result.log_bytes
        span |= result.span
        for segment in result.segments:
            read[segment.partition].append(segment)

    def read_so_far() -> str:
        of_all = f"{segments:,} of {plan.segments.num_rows:,} segments read"
        return f"{of_all}, and none reported; run the same command again"

    with interrupts.telling(read_so_far), scratch_directory() as scratch:
        bins = [
            _Bin(tasks, _stopped_cleanly(tasks, audits), scratch / f"{number}.audited", deep)
            for number, tasks in enumerate(pack(plan.scan_tasks(), workers.processes))
        ]
        begin_phase(
            "reading",
            done=lambda: Done(segments, log_bytes, span.seconds),
            segments=plan.segments.num_rows,
            log_bytes=plan.log_bytes,
        )
        with workers.stopping():
            workers.run(_audit_bin, bins, take_segments)
        begin_phase("comparing partitions")
        partitions = [(key, task, read[key]) for key, task in audits.items()]
        shares = workers.processes * BINS_PER_CORE
        work = [_WorkUnit(share) for number in range(shares) if (share := partitions[number::shares])]
        with workers.stopping():
            workers.run(_audit_unit, work, rows.add)
    rows.sort()
    return rows


def broken_now(plan: Plan, options: RecoverOptions, workers: Workers) -> tuple[dict[PartitionKey, frozenset[str]], int]:
    """Names of the index and auxiliary files that are broken, by partition, and how many logs are: without a catalog
    nobody remembers an earlier audit.

    Args:
        options: what files are to be like.
    """
    audits, _ = partition_audits(plan, lambda topic: options, clean_shutdown=None, tiering=False)
    files = audit(plan, audits, workers, deep=False).files
    broken = broken_files(files)
    note(f"{sum(map(len, broken.values())):,} index files in {len(broken):,} partitions are broken")
    logs = (file for file in files if file.file == LOG_SUFFIX and file.verdict == Verdict.BROKEN.value)
    return broken, say_broken_logs(log.path for log in logs)


def _stopped_cleanly(
    tasks: Sequence[ScanTask], audits: Mapping[PartitionKey, PartitionAudit]
) -> frozenset[PartitionKey]:
    keys = {task.segment.partition_key for task in tasks}
    return frozenset(key for key in keys if audits[key].last_stop.clean_shutdown)


def _audit_bin(work: _Bin, use_mmap: bool) -> _Read:
    read, log_bytes, begin = [], 0, time.time()
    with Spool(work.spool) as spool:
        for task in until_stopped(work.tasks):
            segment = task.segment
            audited = audit_segment(task, use_mmap, deep=work.deep, clean_shutdown=segment.partition_key in work.clean)
            read.append(_ReadSegment(segment.partition_key, segment.base_offset, spool.append(audited)))
            log_bytes += task.log_bytes
    return _Read(read, log_bytes, Span(begin, time.time()))


def _audit_unit(work: _WorkUnit, use_mmap: bool) -> AuditRows:
    rows = AuditRows()

    def in_order(source: str, task: PartitionAudit, segments: list[_ReadSegment]) -> Iterator[SegmentForPartition]:
        for segment in sorted(segments, key=lambda each: each.base_offset):
            audited: AuditedSegment = segment.audited.read()
            rows.files.extend(rows_of_segment(source, task, audited))
            yield SegmentForPartition.of(audited)

    for (source, _, _), task, segments in until_stopped(work.partitions):
        audited = audit_partition(task, in_order(source, task, segments))
        rows.add(rows_of_partition(source, task, audited))
    return rows
