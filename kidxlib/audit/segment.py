"""Reads a segment's log, and checks its offset and time index against what recovery would write. Nothing is written.

Segments may be read in any order and on any executor, as in a build.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import IN_USE, Finding, Verdict, worse
from kidxlib.audit.index_files.reading import of_unreadable_file, read_index
from kidxlib.audit.index_files.sparse_indexes import audit_offset_index, audit_time_index
from kidxlib.audit.logs.log import AuditedLog, audit_log
from kidxlib.audit.startup.simulation import Recovery
from kidxlib.errors import LogChangedError
from kidxlib.format import segment_files
from kidxlib.format.layouts import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.index.abstract_index import filled_bytes
from kidxlib.index.offset import OffsetIndex, OffsetPosition, last_filled_entry
from kidxlib.indexing.segments import recover_task, why_not_read
from kidxlib.indexing.tasks import ScanTask
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition_fold import ScannedSegment
from kidxlib.recovery.scanned_logs import scan_logs
from kidxlib.recovery.segment import RecoveredSegment, recovered_of
from kidxlib.storage.location import FileVersion, location, version_at
from kidxlib.storage.log_bytes import Access, LogBytes, WholeLog
from kidxlib.storage.opened_log import SMALL_BYTES, OpenedLog, OpenedTogether, opened_log
from kidxlib.storage.store.s3 import is_object

#: How many times a log is read at most if a broker replaces it in the meantime.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    """The results of reading a segment.

    Attributes:
        findings: on its offset and time index.
        log: its log, judged by itself.
        end: where the scan ended and why, or why the log could not be read.
    """

    scanned: ScannedSegment
    findings: tuple[Finding, ...]
    log: AuditedLog
    end: ScanEnd

    @property
    def base_offset(self) -> int:
        return self.scanned.base_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentForPartition:
    """What the audit of a partition needs of a segment: its log, judged by itself, and why its offset index or time
    index is broken, by suffix; only broken ones are in `broken`.
    """

    scanned: ScannedSegment
    log: AuditedLog
    broken: Mapping[str, str | None]

    @classmethod
    def of(cls, audited: AuditedSegment) -> Self:
        broken = {finding.file: finding.reason for finding in audited.findings if finding.verdict is Verdict.BROKEN}
        return cls(scanned=audited.scanned, log=audited.log, broken=broken)


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log that was read together with others, and its scan."""

    log: LogBytes
    version: FileVersion
    recovered: RecoveredSegment


def read_together(tasks: Sequence[ScanTask], use_mmap: bool, opened: OpenedTogether) -> Iterator[ReadLog | None]:
    """Read small logs in one pass, for `audit_segment`; their bytes are valid as long as they are `opened`. None for a
    log that is not small, is in an object store or cannot be read: `audit_segment` reads it, and says why it cannot.
    """
    positions: list[int | None] = []
    for task in tasks:
        position = None
        if task.log_bytes <= SMALL_BYTES and not is_object(task.segment.path):
            with contextlib.suppress(LogChangedError, OSError):
                position = opened.open(task.segment.path, use_mmap=use_mmap and not task.segment.active)
        positions.append(position)
    read = [_with_checksums(task) for task, position in zip(tasks, positions, strict=True) if position is not None]
    scans = scan_logs(opened.logs, [task.segment.base_offset for task in read], [task.options for task in read])
    for position in positions:
        if position is None:
            yield None
        else:
            yield ReadLog(opened.logs[position], opened.versions[position], recovered_of(scans, position))


def _with_checksums(task: ScanTask) -> ScanTask:
    """Checksums are checked, even where builds do not check them."""
    return replace(task, options=replace(task.options, verify_crc=True))


def audit_segment(
    task: ScanTask, use_mmap: bool, *, deep: bool, clean_shutdown: bool, read: ReadLog | None = None
) -> AuditedSegment:
    """Read a segment's log, and check its offset and time index against it. `use_mmap` is as for
    `kidxlib.indexing.segments.build`; `deep` looks at the records, too. A log that was `read` is not read again, unless
    a broker has written to it meanwhile.
    """
    task, use_mmap = _with_checksums(task), use_mmap and not task.segment.active
    for attempt in range(_ATTEMPTS):
        try:
            if read is not None and (judged := _audit_read_log(task, read, use_mmap, deep, clean_shutdown)) is not None:
                return judged
            return _audit_opened_log(task, use_mmap, deep=deep, clean_shutdown=clean_shutdown)
        except (LogChangedError, OSError) as error:
            if isinstance(error, LogChangedError) and attempt + 1 < _ATTEMPTS:
                continue  # it was compacted or truncated in the meantime: read the new log
            end = why_not_read(task.segment.path, error)
            break
    # The log was deleted since the listing, together with its index and auxiliary files, as retention does.
    unread = None if end.status is Status.GONE else _finding_on_unreadable_log(end)
    base_offset = task.segment.base_offset
    return AuditedSegment(
        scanned=ScannedSegment.of(base_offset, None),
        findings=(),
        log=AuditedLog(base_offset=base_offset, finding=unread, recovery=None, index_end=None),
        end=end,
    )


def _audit_opened_log(task: ScanTask, use_mmap: bool, *, deep: bool, clean_shutdown: bool) -> AuditedSegment:
    segment, base_offset = task.segment, task.segment.base_offset
    with opened_log(segment.path) as opened:
        log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
        recovered = recover_task(log, task)
        past = Recovery.of(log, recovered, base_offset).past
        files = _IndexFiles.of(task, use_mmap)
        in_use = _is_written_to(opened, segment.path, recovered.end)
        if in_use and (past.unfinished or recovered.end.reason is None):
            # The append was still going on when it was read, so its end is not torn.
            log = opened.log(recovered.end.position, use_mmap=use_mmap)
            recovered = replace(recovered, end=ScanEnd(Status.OK, None, recovered.end.position, None))
        if in_use:
            in_log = recovered.facts.next_offset - base_offset
            files = _IndexFiles(
                _entries_up_to(files.offset_index, OFFSET_INDEX_ENTRY, "position", recovered.end.position),
                _entries_up_to(files.time_index, TIME_INDEX_ENTRY, "relative_offset", in_log),
            )
        valid = opened.log(recovered.end.position, use_mmap=use_mmap)
        judged = _judge_log(task, log, valid, recovered, files, deep=deep, clean_shutdown=clean_shutdown)
        if _is_written_to(opened, segment.path, recovered.end) or in_use:
            on_log = _finding_on_log_in_use(opened.version.size, recovered.end.position)
            if judged.log.finding is not None:
                on_log = worse(on_log, judged.log.finding)
            judged = replace(judged, log=replace(judged.log, finding=on_log))
    return judged


def _audit_read_log(
    task: ScanTask, read: ReadLog, use_mmap: bool, deep: bool, clean_shutdown: bool
) -> AuditedSegment | None:
    """The audit of a segment whose log was read; None where it is no longer what it was."""
    files = _IndexFiles.of(task, use_mmap)
    valid = WholeLog(read.log.window(0)[1][: read.recovered.end.position])
    judged = _judge_log(task, read.log, valid, read.recovered, files, deep=deep, clean_shutdown=clean_shutdown)
    return judged if version_at(location(task.segment.path)) == read.version else None


def _judge_log(
    task: ScanTask,
    log: LogBytes,
    valid: LogBytes,
    recovered: RecoveredSegment,
    files: _IndexFiles,
    *,
    deep: bool,
    clean_shutdown: bool,
) -> AuditedSegment:
    """Judge a log that was scanned, and its index files. `valid` is the log up to where the scan ended."""
    segment, base_offset = task.segment, task.segment.base_offset
    findings, index_end = _audit_indexes(valid, recovered, task, files, clean_shutdown)
    recovery = Recovery.of(log, recovered, base_offset)
    on_log = audit_log(valid, recovered, recovery.past, base_offset, active=segment.active, deep=deep)
    return AuditedSegment(
        scanned=ScannedSegment.of(base_offset, recovered),
        findings=tuple(findings),
        log=AuditedLog(base_offset=base_offset, finding=on_log, recovery=recovery, index_end=index_end),
        end=recovered.end,
    )


def _is_written_to(opened: OpenedLog, path: str, end: ScanEnd) -> bool:
    is_appended = False
    try:
        opened.ensure_unchanged()
    except LogChangedError:
        now, before = opened.status, opened.version.size
        # A preallocated log does not grow when it is written to.
        if now is None or now.st_size < before or (now.st_size == before and end.position == before):
            raise
        is_appended = True
    if opened.status is not None and os.stat(path).st_ino != opened.version.inode:
        raise LogChangedError("another file has taken its place since it was opened: compacted, or put there")
    return is_appended


def _finding_on_log_in_use(size: int, judged: int) -> Finding:
    more = "" if judged == size else f", of which an append that was on its way began at byte {judged:,}"
    return Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.SAFE,
        reason=IN_USE,
        position=judged,
        detail=f"it had {size:,} bytes when it was opened{more}, and was written to since: what follows is not judged",
        consequence="a broker is running; all before that is judged",
    )


def _entries_up_to(
    content: NDArray[np.uint8] | OSError | None, layout: np.dtype[np.void], field: str, end: int
) -> NDArray[np.uint8] | OSError | None:
    """An index of a log in use, without the entries of batches that were appended since the log was opened."""
    if content is None or isinstance(content, OSError):
        return content
    filled = filled_bytes(content, layout.itemsize) // layout.itemsize * layout.itemsize
    later = np.flatnonzero(np.frombuffer(content.data, layout, filled // layout.itemsize)[field] >= end)
    if not len(later):
        return content
    kept = content.copy()
    kept[later[0] * layout.itemsize : filled] = 0
    return kept


@dataclass(frozen=True, slots=True)
class _IndexFiles:
    """The content of the offset index and of the time index; None for a missing one."""

    offset_index: NDArray[np.uint8] | OSError | None
    time_index: NDArray[np.uint8] | OSError | None

    @classmethod
    def of(cls, task: ScanTask, use_mmap: bool) -> Self:
        begin = f"{task.index_directory}/{segment_files.segment_file(task.segment.base_offset, '')}"
        return cls(
            read_index(f"{begin}{segment_files.OFFSET_INDEX_SUFFIX}", use_mmap),
            read_index(f"{begin}{segment_files.TIME_INDEX_SUFFIX}", use_mmap),
        )


def _audit_indexes(
    log: LogBytes,
    recovered: RecoveredSegment,
    task: ScanTask,
    files: _IndexFiles,
    clean_shutdown: bool,
) -> tuple[list[Finding], OffsetPosition | None]:
    """The findings on both indexes, and the last entry of the offset index."""
    if recovered.end.status is Status.QUARANTINED:
        suffixes = segment_files.OFFSET_INDEX_SUFFIX, segment_files.TIME_INDEX_SUFFIX
        return [_finding_on_quarantined_index(suffix, recovered.end) for suffix in suffixes], None
    segment, findings, index_end = task.segment, [], None
    offset_index, time_index = files.offset_index, files.time_index
    right = OffsetIndex.from_bytes(recovered.offset_index, segment.base_offset)
    if isinstance(offset_index, OSError):
        findings.append(of_unreadable_file(segment_files.OFFSET_INDEX_SUFFIX, offset_index))
    else:
        finding = audit_offset_index(log, recovered, segment.base_offset, offset_index, active=segment.active)
        findings.append(finding)
        if offset_index is not None:
            index_end = last_filled_entry(offset_index, segment.base_offset)
            if finding.verdict is not Verdict.BROKEN:
                right = OffsetIndex.from_bytes(offset_index, segment.base_offset)
    if isinstance(time_index, OSError):
        findings.append(of_unreadable_file(segment_files.TIME_INDEX_SUFFIX, time_index))
    else:
        findings.append(
            audit_time_index(
                log,
                recovered,
                right,
                time_index,
                active=segment.active,
                clean_shutdown=clean_shutdown,
                rebuilt=offset_index is None,
            )
        )
    return findings, index_end


def _finding_on_unreadable_log(end: ScanEnd) -> Finding:
    """The finding has the words of a build, so that an acceptance holds for both findings."""
    return Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason=end.reason,
        position=end.position,
        detail=end.detail,
        consequence="its index and auxiliary files were not checked",
    )


def _finding_on_quarantined_index(suffix: str, end: ScanEnd) -> Finding:
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason=f"log-{end.reason}",
        detail=f"byte {end.position} of the log: {end.detail}",
        consequence="a broker that has to recover the segment fails",
    )
