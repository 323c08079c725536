"""What is missing of a partition's logs: offsets between two logs, the first logs, leader epochs. `kidx verify` finds
the same, and has the words (`audit.gaps`, `audit.index_files.leader_epochs`).

An audit reads all logs. A plan reads those that the broker would, and of the others the first header, and those from
the last index entry on. Where that tells of a loss, or does not lead to the end of a log, the headers of all logs of
the partition are read: they may explain the loss, as by compaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.leader_epochs import FIRST_LOGS_MISSING, LogEpochs, audit_epochs
from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.audit.tiered.local_epochs import LocalLog
from kidxlib.errors import (
    CheckpointError,
    CorruptIndexError,
    IndexSizeError,
    LogChangedError,
    MalformedRecordsError,
)
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.segment_files import DELETED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.index.offset import OffsetIndex
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.storage.checkpoints import read_leader_epochs
from kidxlib.storage.lazy_log import LogFile

#: Of more bytes of logs not all headers are read: an audit takes as long.
_READ_BYTES_MAX: Final = 1024 * 1024 * 1024
#: Read at a time of the end of a log, which is about as long as the interval of its index; and batches looked at there.
_END_BYTES: Final = 64 * 1024
_END_BATCHES_MAX: Final = 10_000
#: Of a log that the broker leaves as it is, none of these is an obstacle to its start.
_NOT_READ: Final = (CorruptIndexError, IndexSizeError, MalformedRecordsError, LogChangedError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLog:
    """What a plan has seen of a log.

    Attributes:
        status, next_offset: as `Recovery` has them; of a log of which the end was not found `UNREADABLE` and None.
        records: None where they were not counted.
        epochs: of the batches that were looked at, as they begin.
        is_read: all headers were.
    """

    base_offset: int
    log_bytes: int
    status: Status
    next_offset: int | None
    records: int | None
    epochs: tuple[EpochEntry, ...]
    is_read: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What gaps are found by (`audit.gaps.FACTS`)."""
        names = ("base_offset", "log_bytes", "next_offset", "records")
        return {**{name: getattr(self, name) for name in names}, "status": self.status.value}


@dataclass(frozen=True, slots=True)
class SeenLogs:
    """The logs of a partition, and what is wrong with its leader epochs after a start; None for nothing."""

    logs: tuple[SeenLog, ...] = ()
    epochs: Finding | None = None


def look_at_logs(
    directory: Path,
    found: StartupSimulation,
    stop: PartitionStop,
    options: RecoverOptions,
    reader: LogReader,
    *,
    is_compacted: bool,
) -> SeenLogs:
    """See what is missing of a partition's logs.

    Args:
        found: what the broker does with them.
        options: of the topic.
        reader: that has read what the broker would read.
        is_compacted: the topic is known to be, so that offsets between logs may be in none.
    """
    if not found.segments or found.failures or found.renamed or found.log_end_offset is None:
        return SeenLogs()
    logs = [_seen(directory, segment, reader) for segment in found.segments]
    try:
        file = read_leader_epochs(directory) or LeaderEpochs()
    except (CheckpointError, OSError):
        file = None  # the broker fails on it, and the simulation says so
    epochs = None if file is None else _lost_epochs(directory, file, found, stop, logs)
    lacks = any(
        before.next_offset is None or before.next_offset < after.base_offset
        for before, after in itertools.pairwise(logs)
    )
    if (lacks and not is_compacted) or epochs is not None:
        logs = list(_with_headers(directory, logs, options, reader))
        epochs = None if file is None else _lost_epochs(directory, file, found, stop, logs)
    if epochs is not None and not all(log.is_read for log in logs):
        # An epoch that was not seen may explain what is in the file, and nothing that is not there at all.
        is_certain = epochs.reason == FIRST_LOGS_MISSING or not (file and file.entries)
        epochs = epochs if is_certain else None
    return SeenLogs(tuple(logs), epochs)


def _seen(directory: Path, segment: SimulatedSegment, reader: LogReader) -> SeenLog:
    base_offset = segment.base_offset
    recovery, epochs = reader.recoveries.get(base_offset), reader.epochs.get(base_offset)
    if recovery is not None and epochs is not None:
        return SeenLog(
            base_offset=base_offset,
            log_bytes=recovery.log_bytes,
            status=recovery.end.status,
            next_offset=recovery.next_offset,
            records=recovery.records,
            epochs=epochs,
            is_read=True,
        )
    ends = _ends_of(directory, segment)
    return SeenLog(
        base_offset=base_offset,
        log_bytes=segment.log_bytes,
        status=Status.OK if ends else Status.UNREADABLE,
        next_offset=ends[-1].last_offset + 1 if ends else base_offset if segment.log_bytes == 0 else None,
        records=None,
        epochs=tuple(EpochEntry(each.partition_leader_epoch, each.offset_field) for each in ends if each.is_v2),
        is_read=segment.log_bytes == 0,
    )


def _ends_of(directory: Path, segment: SimulatedSegment) -> list[Batch]:
    """The first batch, and those from the last index entry on; none where they do not lead to the end of the log."""
    index = directory / segment_file(segment.base_offset, OFFSET_INDEX_SUFFIX)
    log = LogFile(str(directory / segment_file(segment.base_offset, LOG_SUFFIX)), _END_BYTES)
    try:
        entry = OffsetIndex.open(index, segment.base_offset).last_entry
        last = list(itertools.islice(batches(log, entry.position), _END_BATCHES_MAX))
        is_sound = last and last[-1].next_position == log.size and last[-1].last_offset >= entry.offset
        return [*itertools.islice(batches(log), 1 if entry.position else 0), *last] if is_sound else []
    except _NOT_READ:
        return []  # an audit says what is wrong; the broker does not look there
    finally:
        log.close()


def _with_headers(
    directory: Path, logs: Iterable[SeenLog], options: RecoverOptions, reader: LogReader
) -> Iterator[SeenLog]:
    """Logs of which all headers were read, up to a number of bytes."""
    left, without_checksums = _READ_BYTES_MAX, replace(options, verify_crc=False)
    for log in logs:
        left -= 0 if log.is_read else log.log_bytes
        if log.is_read or left < 0:
            yield log
            continue
        path = str(directory / segment_file(log.base_offset, LOG_SUFFIX))
        of_log = LogReader(use_mmap=reader.use_mmap)
        try:
            recovery = of_log.read(path, log.log_bytes, log.base_offset, without_checksums)
        except _NOT_READ:
            yield log
            continue
        yield replace(
            log,
            status=recovery.end.status,
            next_offset=recovery.next_offset,
            records=recovery.records,
            epochs=of_log.epochs.get(log.base_offset, ()),
            is_read=True,
        )


def _lost_epochs(
    directory: Path, file: LeaderEpochs, found: StartupSimulation, stop: PartitionStop, logs: Sequence[SeenLog]
) -> Finding | None:
    """The finding on a `leader-epoch-checkpoint`, if it is broken and the broker does not mend it as it starts.

    Args:
        file: what it says; nothing where there is none.
    """
    in_logs = _epochs_of(logs, stop)
    if not stop.begins_with_first_log or any(each.name.endswith(DELETED_SUFFIX) for each in directory.iterdir()):
        in_logs = replace(in_logs, first_offset=None)
    finding = audit_epochs(file, in_logs)
    if finding.verdict is not Verdict.BROKEN:
        return None
    recovered = {each.base_offset for each in found.segments if each.action is not StartupAction.LOAD}
    at_start = LocalLog(
        entries=file.entries,
        log_start_offset=stop.log_start_offset,
        first_offset=logs[0].base_offset,
        end_offset=found.log_end_offset,
        recovered=[entry for log in logs if log.base_offset in recovered for entry in log.epochs],
    ).epochs_at_start()
    kept = in_logs.recovered.within(stop.log_start_offset, found.log_end_offset or 0)
    is_mended = finding.reason != FIRST_LOGS_MISSING and at_start.entries == kept.entries
    return None if is_mended else finding


def _epochs_of(logs: Sequence[SeenLog], stop: PartitionStop) -> LogEpochs:
    recovered, changes = LeaderEpochs(), list[EpochEntry]()
    for entry in (entry for log in logs for entry in log.epochs if entry.epoch >= 0 and entry.start_offset >= 0):
        if recovered.is_new_epoch(entry.epoch):
            recovered.assign(entry.epoch, entry.start_offset)
        if not changes or changes[-1].epoch != entry.epoch:
            changes.append(entry)
    ends = [0, *(log.next_offset for log in logs[:-1])]
    starts = {stop.log_start_offset, logs[0].base_offset}
    return LogEpochs(
        recovered=recovered,
        changes=tuple(changes),
        all_are_known=all(
            log.is_read and log.status is Status.OK and log.base_offset == end
            for log, end in zip(logs, ends, strict=True)
        ),
        log_starts=tuple(sorted(start for start in starts if start > 0)),
        log_end_offset=max((log.next_offset or 0 for log in logs), default=0),
        lost_log_starts=stop.lost_log_starts,
        first_offset=logs[0].base_offset,
    )
