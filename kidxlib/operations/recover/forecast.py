"""Forecasts what a broker does with a partition by itself as it starts, and whether it can be spared that. Also tells
what is missing from the partition's logs: offsets between two logs, the first logs, leader epochs. `kidx verify` finds
the same, and words it (`audit.gaps`, `audit.index_files.leader_epochs`).

An audit reads all logs. A plan reads the logs that the broker would read; of another log it reads the first header, and
the headers from the last index entry on. If these show a loss, or do not lead to the end of the log, the headers of all
logs of the partition are read: they may explain the loss, for example by compaction.

Workers forecast many partitions at the same time (`forecasts_of`); small logs of several are read in one pass.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.leader_epochs import (
    FIRST_LOGS_MISSING,
    ExpectedLeaderEpochs,
    audit_epochs,
    finding_on_lost_logs,
)
from kidxlib.audit.partition_logs import finding_on_shorter_log, offsets_known_by_index
from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.startup.loader import LoaderSnapshots, forgotten_producers, simulate_startup
from kidxlib.audit.startup.simulation import SegmentRecovery, SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.audit.tiered.local_log import LocalLog
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, Work
from kidxlib.errors import (
    CheckpointError,
    CorruptIndexError,
    IndexSizeError,
    LogChangedError,
    MalformedRecordsError,
    UntrustedError,
    describe_error,
)
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    parse_snapshot,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.index.offset import OffsetIndex, read_last_entry
from kidxlib.indexing.bins import into_bins
from kidxlib.operations.recover.page_cache import HeadersRead, is_sound_snapshot, read_cached_headers
from kidxlib.operations.recover.read_logs import EarlierRead, LogReader, SmallLog, log_path, read_logs_together
from kidxlib.operations.recover.stopped_broker import Refusal
from kidxlib.records.batch_headers import BatchHeader, batches, epochs_of_batches
from kidxlib.recovery.kept_scans import KeptScans, KeptScansWriter
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition_fold import PartitionFold, ScannedSegment, StateSource
from kidxlib.recovery.past_end import is_unfinished_append
from kidxlib.recovery.recover import recover
from kidxlib.storage.location import Directory, location
from kidxlib.storage.log_dir import read_leader_epochs
from kidxlib.storage.opened_log import LogFile, room_of_pass, small_log_passes
from kidxlib.text.words import counted

#: All headers are read in at most this many bytes of logs: for more, an audit takes no longer.
_READ_BYTES_MAX: Final = 1024 * 1024 * 1024
#: The end of a log is read in pieces of this size, about an index interval, and for at most this many batches.
_END_BYTES: Final = 64 * 1024
_END_BATCHES_MAX: Final = 10_000
#: Errors in a log that the broker does not read: none of them keeps the broker from starting.
_READ_ERRORS: Final = (CorruptIndexError, IndexSizeError, MalformedRecordsError, LogChangedError, OSError)
#: Forecasts of some partitions, by the numbers of their tasks, as Python writes them, for this very run.
_FORECASTS: Final = pa.schema([pa.field("forecast", pa.struct([pa.field("pickled", pa.binary())]))])
#: So many passes are in work in a process: while one waits for the disk, the other one's logs are scanned.
_PASSES_AT_ONCE: Final = 2
#: Threads of the command read as much as this in the time in which workers would start.
_BEFORE_WORKERS_BYTES: Final = 2 * 1024**3
_BEFORE_WORKERS_PARTITIONS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastDrop:
    """What a broker drops of a segment as it starts.

    Attributes:
        from_offset: the first offset that may be dropped.
        bytes: how many bytes of the segment's log.
        records: how many records; None if they cannot be counted.
        is_torn: the log ends with bytes that are no whole batch, as after a kill during an append.
        is_unseen: a broker does not look there by itself, as the segment lies below the recovery point.
        why: what the broker finds.
    """

    base_offset: int
    from_offset: int
    bytes: int
    records: int | None
    is_torn: bool
    is_unseen: bool
    why: str

    @property
    def amount(self) -> str:
        """How much of the segment a broker is forecast to drop, in words."""
        if self.is_torn:
            return f"{self.bytes:,} bytes that are no whole batch"
        records = "an unknown number of records" if self.records is None else counted(self.records, "record")
        return f"{self.bytes:,} bytes with {records}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLog:
    """What a plan has seen of a log.

    Attributes:
        status, next_offset: as `SegmentRecovery` has them; `UNREADABLE` and None if the end of the log was not found. A
            log that has lost only its end is `OK`: what it has is known.
        records: None if they were not counted.
        epochs: the leader epochs of the batches that were looked at.
        is_read: all headers were read.
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
        """What a forecast has seen of a log, in the columns of `audit.gaps.FACTS`."""
        names = ("base_offset", "log_bytes", "next_offset", "records")
        return {**{name: getattr(self, name) for name in names}, "status": self.status.value}


@dataclass(frozen=True, slots=True)
class SeenLogs:
    """The logs of a partition, and what is missing from them.

    Attributes:
        epochs_finding: what will be wrong with the leader epochs after a start; None for nothing.
        lost_first: the offsets of lost first logs, as the leader epochs show.
        perhaps_lost_first: the same for first logs that may instead be in a bucket.
        shorter_than_index: the finding that the `.index` of the last log leads beyond its end; None if it does not, or
            if the broker stopped cleanly.
    """

    logs: tuple[SeenLog, ...] = ()
    epochs_finding: Finding | None = None
    lost_first: range = range(0)
    perhaps_lost_first: range = range(0)
    shorter_than_index: Finding | None = None


def look_at_logs(
    directory: Path,
    simulation: StartupSimulation,
    stop: PartitionStop,
    options: RecoverOptions,
    reader: LogReader,
    *,
    is_compacted: bool,
) -> SeenLogs:
    """What a forecast has seen of a partition's logs, and what is missing from them, once the reader has read what the
    broker would read.

    In a compacted topic, offsets may be missing between logs.
    """
    if not simulation.segments or simulation.failures or simulation.renamed or simulation.log_end_offset is None:
        return SeenLogs()
    logs = [_seen_log(directory, segment, reader) for segment in simulation.segments]
    try:
        file = read_leader_epochs(directory) or LeaderEpochs()
    except (CheckpointError, OSError):
        file = None  # the broker fails on it, and the simulation says so
    finding = None if file is None else _epochs_finding(file, simulation, stop, logs)
    has_gaps = any(
        before.next_offset is None or before.next_offset < after.base_offset
        for before, after in itertools.pairwise(logs)
    )
    if (has_gaps and not is_compacted) or finding is not None:
        logs = list(_with_headers_read(directory, logs, options, reader))
        finding = None if file is None else _epochs_finding(file, simulation, stop, logs)
    if finding is not None and not all(log.is_read for log in logs):
        # Batches that were not read may explain the file's entries, but neither missing first logs nor an empty file.
        is_certain = finding.reason == FIRST_LOGS_MISSING or not (file and file.entries)
        finding = finding if is_certain else None
    lost_first = perhaps_lost_first = range(0)
    if (
        file is not None
        and file.first is not None
        and finding_on_lost_logs(file.first, logs[0].base_offset) is not None
    ):
        missing = range(file.first.start_offset, logs[0].base_offset)
        if finding is not None and finding.reason == FIRST_LOGS_MISSING:
            lost_first = missing
        elif not stop.begins_with_first_log:
            perhaps_lost_first = missing
    shorter = None if stop.clean_shutdown else _shorter_than_index(directory, simulation, stop, reader)
    return SeenLogs(tuple(logs), finding, lost_first, perhaps_lost_first, shorter)


def _seen_log(directory: Path, segment: SimulatedSegment, reader: LogReader) -> SeenLog:
    base_offset = segment.base_offset
    recovery, is_read = reader.recoveries.get(base_offset), base_offset in reader.epochs
    epochs = reader.epochs.get(base_offset, reader.end_epochs.get(base_offset))
    if recovery is not None and epochs is not None:
        return SeenLog(
            base_offset=base_offset,
            log_bytes=recovery.log_bytes,
            status=recovery.end.status if is_read else Status.OK,
            next_offset=recovery.next_offset,
            records=recovery.records if is_read else None,
            epochs=epochs,
            is_read=is_read,
        )
    ends = _first_and_last_batches(directory, segment)
    return SeenLog(
        base_offset=base_offset,
        log_bytes=segment.log_bytes,
        status=Status.OK if ends or segment.log_bytes == 0 else Status.UNREADABLE,
        next_offset=ends[-1].last_offset + 1 if ends else base_offset if segment.log_bytes == 0 else None,
        records=None,
        epochs=epochs_of_batches(ends),
        is_read=segment.log_bytes == 0,
    )


def _first_and_last_batches(directory: Path, segment: SimulatedSegment) -> list[BatchHeader]:
    """The first batch, and the batches from the last index entry on; none if these do not lead to the log's end."""
    index = directory / segment_file(segment.base_offset, OFFSET_INDEX_SUFFIX)
    with contextlib.closing(LogFile(log_path(directory, segment.base_offset), _END_BYTES)) as log:
        try:
            entry = OffsetIndex.open(index, segment.base_offset).last_entry
            last = list(itertools.islice(batches(log, entry.position), _END_BATCHES_MAX))
            is_sound = last and last[-1].next_position == log.size and last[-1].last_offset >= entry.offset
            return [*itertools.islice(batches(log), 1 if entry.position else 0), *last] if is_sound else []
        except _READ_ERRORS:
            return []  # an audit says what is wrong; the broker does not look there


def _with_headers_read(
    directory: Path, logs: Iterable[SeenLog], options: RecoverOptions, reader: LogReader
) -> Iterator[SeenLog]:
    """The logs, with all headers read in up to `_READ_BYTES_MAX` of them."""
    bytes_left, without_checksums = _READ_BYTES_MAX, replace(options, verify_crc=False)
    for log in logs:
        bytes_left -= 0 if log.is_read else log.log_bytes
        if log.is_read or bytes_left < 0:
            yield log
            continue
        path = log_path(directory, log.base_offset)
        log_reader = LogReader(use_mmap=reader.use_mmap)
        try:
            recovery = log_reader.read(path, log.log_bytes, log.base_offset, without_checksums)
        except _READ_ERRORS:
            yield log
            continue
        yield replace(
            log,
            status=Status.OK if _is_cut_off(directory, log.base_offset, recovery) else recovery.end.status,
            next_offset=recovery.next_offset,
            records=recovery.records,
            epochs=log_reader.epochs.get(log.base_offset, ()),
            is_read=True,
        )


def _is_cut_off(directory: Path, base_offset: int, recovery: SegmentRecovery) -> bool:
    """Whether a log was cut off: its `.index` leads beyond its last batch, and no whole batch is there. Then all
    offsets up to the next log are missing. A damaged log may still have some of them.
    """
    try:
        entry = OffsetIndex.open(directory / segment_file(base_offset, OFFSET_INDEX_SUFFIX), base_offset).last_entry
    except _READ_ERRORS:
        return False
    is_beyond = entry.offset >= recovery.next_offset and entry.position >= recovery.end.position
    return is_beyond and recovery.past.batches == 0


def _epochs_finding(
    file: LeaderEpochs, simulation: StartupSimulation, stop: PartitionStop, logs: Sequence[SeenLog]
) -> Finding | None:
    """The finding on a `leader-epoch-checkpoint`, if it is broken and the broker does not mend it as it starts."""
    in_logs = _epochs_in_logs(logs, stop)
    finding = audit_epochs(file, in_logs)
    if finding.verdict is not Verdict.BROKEN:
        return None
    recovered = {segment.base_offset for segment in simulation.segments if segment.action is not StartupAction.LOAD}
    at_start = LocalLog(
        entries=file.entries,
        log_start_offset=stop.log_start_offset,
        first_offset=logs[0].base_offset,
        end_offset=simulation.log_end_offset,
        recovered=[entry for log in logs if log.base_offset in recovered for entry in log.epochs],
    ).epochs_at_start()
    right = in_logs.recovered.within(stop.log_start_offset, simulation.log_end_offset or 0)
    is_mended = finding.reason != FIRST_LOGS_MISSING and at_start.entries == right.entries
    return None if is_mended else finding


def _epochs_in_logs(logs: Sequence[SeenLog], stop: PartitionStop) -> ExpectedLeaderEpochs:
    recovered, changes = LeaderEpochs(), list[EpochEntry]()
    for entry in (entry for log in logs for entry in log.epochs if entry.epoch >= 0 and entry.start_offset >= 0):
        if recovered.is_new_epoch(entry.epoch):
            recovered.assign(entry.epoch, entry.start_offset)
        if not changes or changes[-1].epoch != entry.epoch:
            changes.append(entry)
    ends = [0, *(log.next_offset for log in logs[:-1])]
    starts = {stop.log_start_offset, logs[0].base_offset}
    return ExpectedLeaderEpochs(
        recovered=recovered,
        changes=tuple(changes),
        all_are_known=all(
            log.is_read and log.status is Status.OK and log.base_offset == end
            for log, end in zip(logs, ends, strict=True)
        ),
        log_starts=tuple(sorted(start for start in starts if start > 0)),
        log_end_offset=max((log.next_offset or 0 for log in logs), default=0),
        lost_log_starts=stop.lost_log_starts,
        # A stopped broker is not about to delete the first logs (`may_be_deleting`).
        first_offset=logs[0].base_offset,
        may_begin_in_bucket=not stop.begins_with_first_log,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What becomes of a partition when its broker starts next.

    Attributes:
        options: those of the topic.
        stop: how the broker stopped.
        everything: the partition is looked at as if nothing had been flushed.
        headers: what the headers of its unflushed segments tell; None if headers are not enough.
        recoveries: the results of recovering segments, by base offset, for logs that were read as a whole.
        kept_scans: the scans of these logs; None if nobody reads them again.
        broker_start: what the broker does by itself.
        simulation: the same; with `everything`, what the broker would do if it had no recovery point.
        without_marker: after a clean stop, what the broker would do without its clean-shutdown marker; None if the log
            ends well.
        scan_from: the base offset of the first segment to read, to spare the broker its recovery; None if the broker
            would read nothing.
        dropped: what the broker drops.
        refusals: why the broker cannot be spared its recovery, each with what to do.
        forgotten: which producers the broker forgets after a clean stop, and what to do; None if it forgets none.
        seen: what was seen of the partition's logs, and what is missing from them.
    """

    topic_partition: TopicPartition
    directory: Path
    options: RecoverOptions
    stop: PartitionStop
    everything: bool
    headers: HeadersRead | None
    recoveries: Mapping[int, SegmentRecovery]
    kept_scans: KeptScans | None
    broker_start: StartupSimulation
    simulation: StartupSimulation
    without_marker: StartupSimulation | None
    scan_from: int | None
    dropped: tuple[ForecastDrop, ...]
    refusals: tuple[Refusal, ...]
    forgotten: str | None
    seen: SeenLogs

    @property
    def files(self) -> Directory:
        """The partition's directory, in which files are published and removed."""
        return Directory(str(self.directory.parent), self.directory.name)

    @property
    def to_scan(self) -> list[SimulatedSegment]:
        """The segments to read, from `scan_from` on."""
        start = self.scan_from
        return [] if start is None else [each for each in self.simulation.segments if each.base_offset >= start]

    @property
    def scan_bytes(self) -> int:
        return sum(each.log_bytes for each in self.to_scan) if self.headers is None else self.headers.bytes_read

    @property
    def reads_only_last(self) -> bool:
        return not self.everything and all(
            segment.action is StartupAction.LOAD for segment in self.simulation.segments[:-1]
        )

    @property
    def recovered(self) -> frozenset[int]:
        """Base offsets of the segments that the broker recovers."""
        return frozenset(s.base_offset for s in self.broker_start.segments if s.action is not StartupAction.LOAD)

    @property
    def can_be_cut(self) -> bool:
        """Whether the broker cuts off the end of the log, and something stays before the cut."""
        kept = self.simulation.left
        is_recovered = bool(kept) and not self.refusals and not self.stop.clean_shutdown
        return is_recovered and not any(segment.lost_bytes for segment in kept[:-1])

    @property
    def loses_known(self) -> bool:
        """Whether the broker drops offsets below the high watermark, which consumers may have seen, or below the
        recovery point. Without a high watermark, all whole batches count as seen.
        """
        lost = [dropped.from_offset for dropped in self.dropped]
        counts_as_seen = self.stop.high_watermark == 0 and any(not dropped.is_torn for dropped in self.dropped)
        return counts_as_seen or min([*lost, self.simulation.log_end_offset or 0]) < self.stop.known_end

    @property
    def is_empty(self) -> bool:
        return not self.simulation.segments and not self.refusals

    @property
    def ends_early(self) -> bool:
        """Whether the log ends below an offset that the broker's checkpoints say it had."""
        return (self.simulation.log_end_offset or 0) < self.stop.known_end

    @property
    def wrong_log_start(self) -> str | None:
        """What to do about a log start beyond all known offsets, by which a broker may delete the log; else None."""
        end = self.broker_start.ends_below_start
        return None if end is None else self.stop.wrong_log_start(end)

    @property
    def whole_end(self) -> int:
        """The offset after the last whole batch, as far as it was looked for."""
        return (self.without_marker or self.simulation).log_end_offset or 0

    @property
    def hidden(self) -> range:
        """The offsets of whole batches that a broker does not see after a clean stop, and assigns again."""
        return range(self.broker_start.log_end_offset or 0, self.whole_end if self.stop.clean_shutdown else 0)

    @property
    def lost_end(self) -> str:
        end, stop = self.whole_end, self.stop
        if end < stop.high_watermark:
            below, had = f"high watermark {stop.high_watermark}", "that consumers have seen"
        else:
            below, had = f"recovery point {stop.recovery_point}", "that had been flushed"
        return f"the log ends at offset {end}, below the {below}: records are gone {had}"

    @property
    def gone(self) -> range:
        """The offsets that the broker had by its checkpoints, and that no log has."""
        return range(self.whole_end, self.stop.known_end)

    @property
    def loses(self) -> bool:
        """Whether records are lost that were whole once, that consumers have seen, or that had been flushed."""
        return self.ends_early or any(not dropped.is_torn for dropped in self.dropped)


def lacks_snapshot(directory: Path, simulation: StartupSimulation, options: RecoverOptions) -> bool:
    """Forecast whether a broker with a clean-shutdown marker finds no producer snapshot. It then assumes that there are
    no producers (`UnifiedLog.rebuildProducerState`). Segments from which it makes a snapshot are enough.
    """
    kept = simulation.left
    start, end = simulation.log_start_offset, simulation.log_end_offset
    if start is None or end is None or start == end or not kept:
        return False
    deleted = {segment.base_offset for segment in simulation.segments} - {segment.base_offset for segment in kept}
    offsets = set(map(parse_snapshot, os.listdir(directory)))
    snapshots = LoaderSnapshots(
        {offset: True for offset in offsets if offset is not None and offset <= end and offset not in deleted}
    )
    snapshots.remove_strays([segment.base_offset for segment in kept])
    return not snapshots and not _segments_give_snapshot(directory, kept, options)


def _segments_give_snapshot(directory: Path, segments: Sequence[SimulatedSegment], options: RecoverOptions) -> bool:
    """Whether a broker makes a snapshot from the segments: the first one begins at offset 0, is whole, and ends where
    the second one begins.
    """
    if segments[0].base_offset != 0:
        return False
    fold, first = PartitionFold(lambda offset: None), _scan_segment(directory, segments[0], options)
    fold.add(first)
    if fold.end_source is StateSource.UNKNOWN:
        return False
    return fold.map_end_offset > 0 if len(segments) == 1 else first.next_offset == segments[1].base_offset


def _forgotten_after_clean_stop(directory: Path, simulation: StartupSimulation, options: RecoverOptions) -> str | None:
    """What a broker forgets if it finds no producer snapshot after a clean stop; None if it forgets nothing. Only if it
    finds none, the whole log is read.
    """
    if not simulation.forgets_producers:
        return None
    fold = PartitionFold(lambda offset: None)
    for segment in simulation.segments:
        fold.add(_scan_segment(directory, segment, replace(options, verify_crc=False)))
    return forgotten_producers(fold, location(str(directory)))


def _scan_segment(directory: Path, segment: SimulatedSegment, options: RecoverOptions) -> ScannedSegment:
    with contextlib.closing(LogFile(log_path(directory, segment.base_offset))) as log:
        log.keep_valid(segment.kept_bytes)
        return ScannedSegment.of(segment.base_offset, recover(log, segment.base_offset, options))


def forecast_partition(
    topic_partition: TopicPartition,
    directory: Path,
    options: RecoverOptions,
    stop: PartitionStop,
    reader: LogReader,
    *,
    everything: bool = False,
    trusts: bool = False,
    is_compacted: bool = False,
) -> Forecast:
    """Forecast what a broker does with a partition. Nothing is written.

    After a clean stop a broker reads no log. Without `everything`, only the end of the last log is then looked at. With
    `trusts`, the kernel is known to have all that was written (`page_cache.ensure_page_cache_kept`), and headers are
    enough.
    """
    headers, scan_from, forgotten, dropped, seen_logs = None, None, None, tuple[ForecastDrop, ...](), SeenLogs()
    without_marker: StartupSimulation | None = None
    try:
        if trusts and not stop.clean_shutdown:
            headers = read_cached_headers(directory, stop.recovery_point, replace(options, verify_crc=False), reader)
            options = options if headers is None else replace(options, verify_crc=False)
        simulation = broker_start = _simulate_start(directory, options, stop, reader)
        if everything and (stop.clean_shutdown or stop.recovery_point > 0):
            nothing_flushed = replace(stop, clean_shutdown=False, recovery_point=0)
            simulation = _simulate_start(directory, options, nothing_flushed, reader)
        if not stop.clean_shutdown:
            whole = frozenset[int]() if headers is None else headers.kept
            scan_from = _first_segment_to_scan(directory, simulation.segments, everything, whole)
        if stop.clean_shutdown:
            without_marker = (
                simulation
                if simulation is not broker_start
                else _simulate_without_marker(directory, broker_start, options, stop, reader)
            )
        cut_by_broker = {segment.base_offset for segment in broker_start.segments if segment.lost_bytes}
        dropped = tuple(_dropped_of_segments(directory, without_marker or simulation, cut_by_broker, options))
        forgotten = _forgotten_after_clean_stop(directory, broker_start, options)
        seen_logs = look_at_logs(directory, simulation, stop, options, reader, is_compacted=is_compacted)
    except (LogChangedError, MalformedRecordsError, UntrustedError, OSError) as error:
        simulation = broker_start = StartupSimulation(failures=[describe_error(error)])
    return Forecast(
        topic_partition=topic_partition,
        directory=directory,
        options=options,
        stop=stop,
        everything=everything,
        headers=headers,
        recoveries=reader.recoveries,
        kept_scans=None if reader.kept is None else reader.kept.of_partition(),
        broker_start=broker_start,
        simulation=simulation,
        without_marker=without_marker,
        scan_from=scan_from,
        dropped=dropped,
        refusals=tuple(_partition_refusals(directory, simulation)),
        forgotten=forgotten,
        seen=seen_logs,
    )


def _shorter_than_index(
    directory: Path, simulation: StartupSimulation, stop: PartitionStop, reader: LogReader
) -> Finding | None:
    """The finding on the last log, as in `SeenLogs`. A broker that recovers a log makes a new index, and does not tell
    what the old one knew.
    """
    last = simulation.segments[-1] if simulation.segments and not simulation.failures else None
    recovery = None if last is None else reader.recoveries.get(last.base_offset)
    if last is None or recovery is None:
        return None
    entry = read_last_entry(directory / segment_file(last.base_offset, OFFSET_INDEX_SUFFIX), last.base_offset)
    if entry is None or not offsets_known_by_index(entry, recovery):
        return None
    return finding_on_shorter_log(recovery, entry, stop, is_last=True)


def _simulate_without_marker(
    directory: Path, broker_start: StartupSimulation, options: RecoverOptions, stop: PartitionStop, reader: LogReader
) -> StartupSimulation | None:
    if (broker_start.log_end_offset or 0) >= stop.known_end and _ends_with_whole_batch(directory, broker_start):
        return None
    return _simulate_start(directory, options, replace(stop, clean_shutdown=False), reader)


def _simulate_start(
    directory: Path, options: RecoverOptions, stop: PartitionStop, reader: LogReader
) -> StartupSimulation:
    return simulate_startup(
        directory,
        options,
        clean_shutdown=stop.clean_shutdown,
        recovery_point=stop.recovery_point,
        log_start_offset=stop.log_start_offset,
        kafka=stop.kafka,
        recoveries=reader.recoveries,
        read_log=reader.read,
    )


def _first_segment_to_scan(
    directory: Path, segments: Sequence[SimulatedSegment], everything: bool, whole: Collection[int]
) -> int | None:
    """The first segment to read. The segments in `whole` need not be read, though the broker recovers them.

    Producers' state must be known before the first other segment that the broker recovers: reading begins at the last
    producer snapshot up to there. With `everything`, reading begins at the first segment of all.
    """
    recovered = [
        segment.base_offset
        for segment in segments
        if segment.action is not StartupAction.LOAD and segment.base_offset not in whole
    ]
    if not recovered:
        return None
    base_offsets = [segment.base_offset for segment in segments]
    if everything:
        return base_offsets[0]
    for number in reversed(range(1, bisect_right(base_offsets, recovered[0]))):
        if is_sound_snapshot(directory / segment_file(base_offsets[number], SNAPSHOT_SUFFIX)):
            return base_offsets[number]
    return base_offsets[0]


def _dropped_of_segments(
    directory: Path, simulation: StartupSimulation, cut_by_broker: Collection[int], options: RecoverOptions
) -> Iterator[ForecastDrop]:
    """What is dropped of each segment. The broker by itself drops only bytes of the segments in `cut_by_broker` (base
    offsets).
    """
    for segment in simulation.segments:
        if segment.lost_bytes:
            is_truncated_last = segment is simulation.segments[-1] and segment.action is StartupAction.TRUNCATE
            is_torn = is_truncated_last and _ends_in_unfinished_batch(directory, segment, simulation.log_end_offset)
            is_deleted = segment.action is StartupAction.DELETE or segment.next_offset is None
            records = segment.lost_records
            if records is None and segment.action is StartupAction.DELETE:
                records = _records_by_headers(directory, segment, options)
            yield ForecastDrop(
                base_offset=segment.base_offset,
                from_offset=segment.base_offset if is_deleted else segment.next_offset or 0,
                bytes=segment.lost_bytes,
                records=0 if is_torn else records,
                is_torn=is_torn,
                is_unseen=segment.base_offset not in cut_by_broker,
                why=segment.detail or str(segment.action),
            )


def _records_by_headers(directory: Path, segment: SimulatedSegment, options: RecoverOptions) -> int | None:
    """How many records a segment has by its headers, if a broker drops it unread; None if the headers do not tell, or
    if a swap file is about to take the log's place.
    """
    log = directory / segment_file(segment.base_offset, LOG_SUFFIX)
    if log.with_name(log.name + SWAP_SUFFIX).exists():
        return None
    without_checksums = replace(options, verify_crc=False)
    try:
        read = LogReader().read(str(log), segment.log_bytes, segment.base_offset, without_checksums)
    except MalformedRecordsError:
        return None  # the broker does not read it
    return None if read.records is None or read.past.records is None else read.records + read.past.records


def _ends_with_whole_batch(directory: Path, simulation: StartupSimulation) -> bool:
    """Whether the last log ends with a whole batch. A broker does not look there after a clean stop."""
    kept = simulation.left
    if not kept or simulation.log_end_offset is None or kept[-1].action is not StartupAction.LOAD:
        return True
    base_offset = kept[-1].base_offset
    index = OffsetIndex.open(directory / segment_file(base_offset, OFFSET_INDEX_SUFFIX), base_offset)
    with contextlib.closing(LogFile(log_path(directory, base_offset))) as log:
        end = index.last_entry.position
        for batch in batches(log, end):
            end = batch.next_position
        return end == log.size  # not equal either if the index is of a longer log


def _ends_in_unfinished_batch(directory: Path, segment: SimulatedSegment, log_end_offset: int | None) -> bool:
    if log_end_offset is None:
        return False
    with contextlib.closing(LogFile(log_path(directory, segment.base_offset))) as log:
        return is_unfinished_append(log, segment.kept_bytes, segment.base_offset, log_end_offset)


def _partition_refusals(directory: Path, simulation: StartupSimulation) -> Iterator[Refusal]:
    if directory.is_symlink() and directory.exists():  # a broken link leaves nothing to start with
        yield Refusal(
            f"{directory}: a symbolic link, through which nothing is written: let the broker start by itself",
            recovers=True,
            is_link=True,
        )
    for failure in simulation.failures:
        yield Refusal(failure if failure.startswith(f"{directory}") else f"{directory}: {failure}")
    for segment in simulation.segments:
        if segment.action not in (StartupAction.FAIL, StartupAction.SPLIT):
            continue
        log = directory / segment_file(segment.base_offset, LOG_SUFFIX)
        if segment.action is StartupAction.FAIL:
            yield Refusal(
                f"{log}: {segment.detail}; a broker fails on it: restore the segment, or take the partition away"
            )
        else:
            yield Refusal(
                f"{log}: {segment.detail}; a broker splits the segment: let it start by itself", recovers=True
            )
    if simulation.renamed:
        yield Refusal(
            f"{directory / simulation.renamed[0]}: the broker was about to put it in the place of other files, and "
            "does so as it starts: run kidx verify, which says whether records go, and let it start by itself",
            recovers=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTask:
    """A partition to look at.

    Attributes:
        number: its place among all tasks.
        segments, log_bytes: how much is to be read, of what is unflushed.
        small: base offsets of the segments to be read whose logs are read together with others.
        known: what was found before of the others, by the paths of their logs.
        scans: a directory for the scans of its logs; None where nobody reads them again.
        is_compacted: as for `look_at_logs`.
        threads: how many may read a log at the same time.
    """

    number: int
    topic_partition: TopicPartition
    directory: Path
    options: RecoverOptions
    stop: PartitionStop
    everything: bool
    trusts: bool
    segments: int
    log_bytes: int
    scans: Path | None
    is_compacted: bool = False
    threads: int = 1
    small: tuple[int, ...] = ()
    known: Mapping[str, EarlierRead] = field(default_factory=dict)

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=threads)


def forecasts_of(tasks: Sequence[ForecastTask], engine: Engine, name: str = "forecasts") -> list[Forecast]:
    """The forecasts of some partitions, in their order. An engine does work of each name once."""
    log_bytes = engine.done().log_bytes + sum(task.log_bytes for task in tasks)  # also those of other sources
    with engine.abandoning():
        units = into_bins(tasks, engine.cores)
        is_small = log_bytes <= _BEFORE_WORKERS_BYTES and len(tasks) <= _BEFORE_WORKERS_PARTITIONS
        staged = engine.run(Work(name, units, forecast_partitions, _FORECASTS, is_small=is_small, maps=True))
    forecasts: dict[int, Forecast] = {}
    for batch in staged.batches("forecast"):
        for row in batch.to_pylist():
            forecasts.update(pickle.loads(row["pickled"]))
    staged.remove()
    return [forecasts[task.number] for task in tasks]


def forecast_partitions(tasks: Iterable[ForecastTask], use_mmap: bool) -> Iterator[ItemRows]:
    """In a worker: the forecasts of some partitions. While logs are read from the disk, others are scanned."""
    rooms = queue.SimpleQueue[_PassRoom]()
    coming: deque[Future[ItemRows]] = deque()
    with (
        contextlib.ExitStack() as writers,  # they are closed once no pass is at work
        ThreadPoolExecutor(_PASSES_AT_ONCE, thread_name_prefix="kidx-forecast") as pool,
    ):
        for of_pass in small_log_passes(tasks):
            if len(coming) < _PASSES_AT_ONCE:
                writer: KeptScansWriter | None = None
                if (scans := of_pass[0].scans) is not None:
                    writer = writers.enter_context(contextlib.closing(KeptScansWriter(scans / str(of_pass[0].number))))
                rooms.put(_PassRoom(room_of_pass(), writer))
            else:
                yield coming.popleft().result()
            coming.append(pool.submit(_forecast_pass, of_pass, use_mmap, rooms))
        while coming:
            yield coming.popleft().result()


@dataclass(frozen=True, slots=True)
class _PassRoom:
    """What one pass after the other uses, one at a time.

    Attributes:
        log_bytes: the room of `read_logs_together`.
        writer: gets the scans; None where nobody reads the logs again. A file for each pass took a tenth of a
            forecast by headers.
    """

    log_bytes: NDArray[np.uint8]
    writer: KeptScansWriter | None


def _forecast_pass(tasks: Sequence[ForecastTask], use_mmap: bool, rooms: queue.SimpleQueue[_PassRoom]) -> ItemRows:
    """The forecasts of partitions whose small logs are read together, in one of the rooms."""
    room = rooms.get()
    try:
        small = [SmallLog(log_path(each.directory, base), base, each.options) for each in tasks for base in each.small]
        together = read_logs_together(small, use_mmap, room.log_bytes, room.writer)
        forecasts = {
            task.number: forecast_partition(
                task.topic_partition,
                task.directory,
                task.options,
                task.stop,
                LogReader(use_mmap=use_mmap, threads=task.threads, kept=room.writer, known={**together, **task.known}),
                everything=task.everything,
                trusts=task.trusts,
                is_compacted=task.is_compacted,
            )
            for task in tasks
        }
    finally:
        rooms.put(room)
    return ItemRows(
        segments=sum(task.segments for task in tasks),
        log_bytes=sum(task.log_bytes for task in tasks),
        rows=[{"forecast": {"pickled": pickle.dumps(forecasts, pickle.HIGHEST_PROTOCOL)}}],
    )
