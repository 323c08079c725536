"""A partition's side files, each held to what recovery makes of the logs; nothing is written anywhere.

As a build does it: segments are read in any order and anywhere (`audit_segment`); what depends on the segments before
and behind, and on the folder as a whole, comes when all of them were read (`audit_partition`), and opens no log again
but for a forecast that needs one read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib import names, start_failures
from kidxlib.abstract_index import map_file
from kidxlib.audit import Finding, Verdict, audit_offset_index, audit_time_index
from kidxlib.audit_log import AuditedLog, audit_log, audit_logs
from kidxlib.audit_state import audit_epochs, audit_snapshot
from kidxlib.audit_transactions import TransactionsOfSegment, audit_transaction_index, markers_in
from kidxlib.build import BuildTask, recover_task, why_not_read
from kidxlib.epochs import LeaderEpochs
from kidxlib.errors import why
from kidxlib.fold import FoldedSegment, PartitionFold, ScannedSegment, StateSource
from kidxlib.log_dir import CheckpointError, read_leader_epochs
from kidxlib.objects import Location, location
from kidxlib.offset_index import OffsetIndex, OffsetPosition
from kidxlib.plan import PartitionKey, Plan
from kidxlib.recover import RecoveredSegment, RecoverOptions, ScanEnd, Status
from kidxlib.startup import Forecast, PartitionStop, Recovery, forecast, last_stop
from kidxlib.storage import LogBytes, LogChangedError, opened_log
from kidxlib.tiering import NotReady, not_ready_for_tiering

#: Snapshots are small; one that is larger is none.
_SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentFinding:
    """A finding, and the segment whose file it is about; of files of the partition the first base offset."""

    base_offset: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    """A segment that was read, and what its partition's audit needs of it.

    Attributes:
        findings: on its offset and time index.
        log: what its log shows by itself.
        end: where the scan ended and why, or why the log could not be read.
    """

    scanned: ScannedSegment
    findings: tuple[Finding, ...]
    log: AuditedLog
    end: ScanEnd

    @property
    def recovery(self) -> Recovery | None:
        """None where the log could not be read."""
        return self.log.recovery

    @property
    def base_offset(self) -> int:
        return self.scanned.base_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """One partition to audit.

    Attributes:
        folder: where its logs are, and snapshots of the broker's.
        index_folder: where its side files are; may be the same.
        options: what a broker that starts would make indexes with.
        last_stop: how the broker of its log dir stopped.
        tiering: say which segments are not ready for tiered storage.
    """

    topic_partition: names.TopicPartition
    folder: Location
    index_folder: Location
    options: RecoverOptions
    last_stop: PartitionStop
    tiering: bool


@dataclass(slots=True)
class AuditedPartition:
    """What is to be said of a partition, besides the findings on its segments.

    Attributes:
        not_ready: None where nobody asked.
    """

    forecast: Forecast
    findings: list[SegmentFinding] = field(default_factory=list)
    not_ready: list[NotReady] | None = None


def partition_audits(
    plan: Plan,
    options_for: Callable[[str], RecoverOptions],
    *,
    clean_shutdown: bool | None,
    tiering: bool,
    topics: re.Pattern[str] | None = None,
) -> tuple[dict[PartitionKey, PartitionAudit], list[str]]:
    """What there is to audit of a plan's partitions, when their segments were read; and what a person should be told.

    Args:
        options_for: as for `find_segments`.
        clean_shutdown: of their log dirs; None asks these.
        topics: as for `find_segments`: of these, partitions that a log dir's recovery points name are audited even if
            their directory is not there. None: only those of the plan.
    """
    log_dirs = sorted({partition.folder.log_dir for partition in plan.partitions}, key=str)
    listed = {
        partition.folder.log_dir for partition in plan.partitions if partition.folder.source.name in plan.log_dirs
    }
    stops = {log_dir: last_stop(log_dir, clean_shutdown, is_listed=log_dir in listed) for log_dir in log_dirs}
    audits = {
        partition.key: PartitionAudit(
            topic_partition=partition.folder.topic_partition,
            folder=partition.folder.path,
            index_folder=location(str(partition.index_folder)),
            options=replace(options_for(partition.folder.topic_partition.topic), verify_crc=True),
            last_stop=stops[partition.folder.log_dir].of(partition.folder.topic_partition),
            tiering=tiering,
        )
        for partition in plan.partitions
        if partition.key not in plan.unlistable
    }
    if topics is not None:
        there = {partition.key for partition in plan.partitions}
        sources = {
            partition.folder.log_dir: partition.folder.source.name
            for partition in plan.partitions
            if partition.folder.source.name in plan.log_dirs
        }
        for log_dir, source in sources.items():
            for topic_partition, offset in stops[log_dir].recovery_points.items():
                key = source, topic_partition.topic, topic_partition.partition
                if offset > 0 and key not in there and topics.fullmatch(topic_partition.topic):
                    audits[key] = PartitionAudit(
                        topic_partition=topic_partition,
                        folder=log_dir / topic_partition.folder,
                        index_folder=log_dir / topic_partition.folder,
                        options=options_for(topic_partition.topic),
                        last_stop=stops[log_dir].of(topic_partition),
                        tiering=tiering,
                    )
    return audits, [note for stop in stops.values() for note in stop.notes]


# ---- segments ----


def audit_segment(task: BuildTask, may_map: bool, *, deep: bool) -> AuditedSegment:
    """Read a segment's log, and hold its offset and time index to it.

    Args:
        task: as for a build; nothing is written in its index folder.
        may_map: see `kidxlib.build.build`.
        deep: look at the records, too.
    """
    task = _checked(task)
    segment, base_offset = task.segment, task.segment.base_offset
    may_map = may_map and not segment.active
    try:
        with opened_log(segment.path) as opened:
            log = opened.log(may_map=may_map, end_to_end=True)
            recovered = recover_task(log, task)
            valid = opened.log(recovered.end.position, may_map=may_map)
            findings, index_end = _indexes(valid, recovered, task, may_map)
            recovery = Recovery.of(log, recovered, base_offset)
            found = audit_log(valid, recovered, recovery.past, base_offset, active=segment.active, deep=deep)
            opened.refuse_changed()
    except (LogChangedError, OSError) as error:
        end = why_not_read(segment.path, error)
        # A log that was deleted since it was listed took its side files along, as retention does.
        unread = None if end.status is Status.GONE else _of_unreadable(end)
        return AuditedSegment(
            scanned=ScannedSegment.of(base_offset, None),
            findings=(),
            log=AuditedLog(base_offset=base_offset, finding=unread, recovery=None, index_end=None),
            end=end,
        )
    return AuditedSegment(
        scanned=ScannedSegment.of(base_offset, recovered),
        findings=tuple(findings),
        log=AuditedLog(base_offset=base_offset, finding=found, recovery=recovery, index_end=index_end),
        end=recovered.end,
    )


def _checked(task: BuildTask) -> BuildTask:
    """Checksums are checked, whatever a build does."""
    return replace(task, options=replace(task.options, verify_crc=True))


def _indexes(
    log: LogBytes, recovered: RecoveredSegment, task: BuildTask, may_map: bool
) -> tuple[list[Finding], OffsetPosition | None]:
    """The findings on both indexes, and the last entry of the offset index as it was found."""
    if recovered.end.status is Status.QUARANTINED:
        suffixes = names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX
        return [_of_quarantined(suffix, recovered.end) for suffix in suffixes], None
    segment, findings, index_end = task.segment, [], None
    offset_index, time_index = (
        _index(location(str(task.index_folder)) / names.segment_file(segment.base_offset, suffix), may_map)
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
    )
    right = OffsetIndex.from_bytes(recovered.offset_index, segment.base_offset)
    if isinstance(offset_index, OSError):
        findings.append(_of_unreadable_file(names.OFFSET_INDEX_SUFFIX, offset_index))
    else:
        finding = audit_offset_index(log, recovered, segment.base_offset, offset_index, active=segment.active)
        findings.append(finding)
        if offset_index is not None:
            index = OffsetIndex.from_bytes(offset_index, segment.base_offset)
            index_end = index.last_entry if len(index) else None
            if finding.verdict is not Verdict.BROKEN:
                right = index
    if isinstance(time_index, OSError):
        findings.append(_of_unreadable_file(names.TIME_INDEX_SUFFIX, time_index))
    else:
        rebuilt = offset_index is None
        findings.append(audit_time_index(log, recovered, right, time_index, active=segment.active, rebuilt=rebuilt))
    return findings, index_end


def _index(path: Location, may_map: bool) -> NDArray[np.uint8] | OSError | None:
    """The content of an index; None where there is none."""
    try:
        return map_file(str(path)) if may_map else np.frombuffer(path.read_bytes(), np.uint8)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _of_unreadable(end: ScanEnd) -> Finding:
    """With a build's words: who accepts what one of both found has accepted the other one's."""
    return Finding(
        file=names.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason=end.reason,
        position=end.position,
        detail=end.detail,
        consequence="its side files were not looked at",
    )


def _of_unreadable_file(suffix: str, error: OSError) -> Finding:
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason="unreadable",
        detail=error.strerror or str(error),
        consequence="a broker that cannot read it takes its log dir out of use",
    )


def _of_quarantined(suffix: str, end: ScanEnd) -> Finding:
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason=f"log-{end.reason}",
        detail=f"byte {end.position} of the log: {end.detail}",
        consequence="a broker that has to recover the segment fails",
    )


# ---- partitions ----


@dataclass(frozen=True, slots=True)
class _Read:
    """What is kept until the end of a segment that could be read."""

    base_offset: int
    folded: FoldedSegment
    markers: frozenset[tuple[int, int]]


def audit_partition(task: PartitionAudit, segments: Iterable[AuditedSegment]) -> AuditedPartition:
    """What is to be said when all segments were read.

    Args:
        segments: by base offset.

    Raises:
        OSError: its folders cannot be listed.
    """
    fold = PartitionFold(lambda offset: _content(task.folder / names.segment_file(offset, names.SNAPSHOT_SUFFIX)))
    read: list[_Read] = []
    broken: dict[tuple[int, str], Finding] = {}
    base_offsets: list[int] = []
    logs: list[AuditedLog] = []
    recoveries: dict[int, Recovery] = {}
    for segment in segments:
        folded = fold.add(segment.scanned)
        base_offset, recovery = segment.base_offset, segment.recovery
        base_offsets.append(base_offset)
        logs.append(segment.log)
        broken |= {(base_offset, each.file): each for each in segment.findings if each.verdict is Verdict.BROKEN}
        if recovery is not None:
            recoveries[base_offset] = recovery
            if recovery.end.status is not Status.QUARANTINED:
                read.append(_Read(base_offset, folded, markers_in(segment.scanned.producer_events)))
    in_place = task.index_folder == task.folder
    found = AuditedPartition(_forecast(task, recoveries, is_empty=not logs))
    mirrored = None if in_place else _offset_indexes(task.index_folder)
    of_logs = dict(audit_logs(logs, found.forecast, task.last_stop, mirrored))
    found.findings += [SegmentFinding(base_offset, finding) for base_offset, finding in of_logs.items()]
    found.findings += _transactions(read, fold, task.index_folder)
    found.findings += _snapshots(read, fold, task.index_folder)
    epochs = _leader_epochs(task.index_folder)
    found.findings += _epochs(read, fold, epochs, in_place=in_place)
    if task.tiering:
        broken |= {
            (each.base_offset, each.finding.file): each.finding
            for each in found.findings
            if each.finding.verdict is Verdict.BROKEN
        }
        known_epochs = None if isinstance(epochs, CheckpointError) else epochs
        found.not_ready = list(
            not_ready_for_tiering(base_offsets, of_logs, broken, set(_snapshot_offsets(task)), known_epochs)
        )
    return found


def _forecast(task: PartitionAudit, recoveries: dict[int, Recovery], *, is_empty: bool) -> Forecast:
    found = _forecast_of_empty(task) if is_empty else _forecast_of_segments(task, recoveries)
    found.failures[:0] = task.last_stop.failures
    return found


def _forecast_of_empty(task: PartitionAudit) -> Forecast:
    stop = task.last_stop
    known = max(stop.recovery_point, stop.high_watermark)
    had = f", though the broker's checkpoints say that it had offsets up to {known - 1}" if known else ""
    empty = f"no segment is there{had}; a broker that starts makes an empty log"
    return Forecast(failures=[empty, *start_failures.in_folder(task.folder)])


def _forecast_of_segments(task: PartitionAudit, recoveries: dict[int, Recovery]) -> Forecast:
    stop = task.last_stop
    try:
        return forecast(
            task.folder,
            task.options,
            clean_shutdown=stop.clean_shutdown,
            recovery_point=stop.recovery_point,
            log_start_offset=stop.log_start_offset,
            recoveries=recoveries,
        )
    except (LogChangedError, OSError) as error:
        return Forecast(failures=[why(error)])


def _transactions(read: list[_Read], fold: PartitionFold, index_folder: Location) -> Iterator[SegmentFinding]:
    later = min(fold.undecided, default=None)
    findings = []
    for segment in reversed(read):
        aborted = segment.folded.aborted
        path = index_folder / names.segment_file(segment.base_offset, names.TRANSACTION_INDEX_SUFFIX)
        content = _index(path, may_map=False)
        logs = TransactionsOfSegment(
            base_offset=segment.base_offset,
            aborted=aborted,
            state_source=segment.folded.state_source,
            markers=segment.markers,
            later_first_offset=later,
        )
        if isinstance(content, OSError):
            finding = _of_unreadable_file(names.TRANSACTION_INDEX_SUFFIX, content)
            findings.append(SegmentFinding(segment.base_offset, finding))
        elif content is not None or len(aborted):
            findings.append(SegmentFinding(segment.base_offset, audit_transaction_index(content, logs)))
        firsts = aborted["first_offset"].tolist()
        later = min(firsts if later is None else [*firsts, later], default=None)
    yield from reversed(findings)


def _snapshots(read: list[_Read], fold: PartitionFold, index_folder: Location) -> Iterator[SegmentFinding]:
    states = {segment.base_offset: (segment.folded.snapshot, segment.folded.state_source) for segment in read}
    states.setdefault(fold.map_end_offset, (fold.end_snapshot, fold.end_source))
    for path in _snapshot_files(index_folder):
        offset = names.parse_snapshot(path.name)
        content = _content(path)
        if offset is None or content is None:
            continue
        if offset in states:
            expected, source = states[offset]
            known = source is not StateSource.UNKNOWN
            yield SegmentFinding(offset, audit_snapshot(content, expected, state_is_known=known))
        else:
            yield SegmentFinding(
                offset,
                Finding(
                    file=names.SNAPSHOT_SUFFIX,
                    verdict=Verdict.SAFE,
                    reason="stray",
                    detail="no segment begins at its offset",
                    consequence="a broker that starts removes it, unless it is the last",
                ),
            )


def _leader_epochs(index_folder: Location) -> LeaderEpochs | CheckpointError | None:
    try:
        return read_leader_epochs(index_folder)
    except CheckpointError as error:
        return error


def _epochs(
    read: list[_Read], fold: PartitionFold, found: LeaderEpochs | CheckpointError | None, *, in_place: bool
) -> Iterator[SegmentFinding]:
    first = read[0].base_offset if read else 0
    if isinstance(found, CheckpointError):
        finding = Finding(
            file=names.LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="unreadable",
            detail=str(found),
            consequence="a broker that starts takes the log dir out of use",
        )
    else:
        # Where a broker has one for sure; in a mirror tree only if it was asked for.
        if found is None and not (in_place and fold.leader_epochs.entries):
            return
        finding = audit_epochs(found, fold.leader_epochs, all_are_known=fold.epochs_are_known)
    yield SegmentFinding(first, finding)


def _snapshot_offsets(task: PartitionAudit) -> Iterator[int]:
    for path in _snapshot_files(task.index_folder):
        offset = names.parse_snapshot(path.name)
        if offset is not None:
            yield offset


def _offset_indexes(folder: Location) -> set[int]:
    """The base offsets of the offset indexes there."""
    parsed = (names.parse_segment_file(path.name) for path in folder.glob(f"*{names.OFFSET_INDEX_SUFFIX}"))
    return {found[0] for found in parsed if found is not None}


def _snapshot_files(folder: Location) -> list[Location]:
    return sorted(folder.glob(f"*{names.SNAPSHOT_SUFFIX}"), key=str)


def _content(path: Location) -> bytes | None:
    if not path.is_file() or path.stat().st_size > _SNAPSHOT_BYTES_MAX:
        return None
    return path.read_bytes()
