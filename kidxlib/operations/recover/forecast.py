"""What a starting broker would do with a partition by itself, and whether it can be spared that."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.errors import LogChangedError, MalformedRecordsError, SnapshotError, UntrustedError, describe_error
from kidxlib.format.producer_snapshot import SNAPSHOT_BYTES_MAX
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SNAPSHOT_SUFFIX, SWAP_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.index.offset import OffsetIndex
from kidxlib.operations.recover.missing import SeenLogs, look_at_logs
from kidxlib.operations.recover.obstacle import Obstacle
from kidxlib.operations.recover.page_cache.unread import HeadersRead, read_headers
from kidxlib.operations.recover.producers import forgotten_after_clean_stop
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.records.batch_headers import batches
from kidxlib.recovery.kept_scans import KeptScans
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.producers import Producers
from kidxlib.recovery.unfinished_append import is_unfinished
from kidxlib.storage.lazy_log import LogFile
from kidxlib.text.counted import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """What a broker drops of a segment as it starts.

    Attributes:
        from_offset: the first offset that may be among what is dropped.
        bytes: of its log.
        records: None where nobody can count them.
        is_torn: the log ends with bytes that are no whole batch, as an append that a kill broke off.
        is_unseen: a broker does not look there by itself, below its recovery point.
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
        """How much it is, in words."""
        if self.is_torn:
            return f"{self.bytes:,} bytes that are no whole batch"
        records = "an unknown number of records" if self.records is None else counted(self.records, "record")
        return f"{self.bytes:,} bytes with {records}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A partition at the next start of its broker, by itself.

    Attributes:
        options: those of the topic.
        stop: how the broker stopped.
        everything: it is looked at as if nothing had been flushed.
        headers: its unflushed segments by their headers alone, where that tells as much; None where they were read.
        recoveries: what recovering its segments comes to, by base offset, of those that were read as a whole.
        kept_scans: the scans of these; None where nobody reads them again.
        alone: what the broker does by itself.
        simulation: the same; with `everything`, what it would do if it had no recovery point.
        without_marker: after a clean stop, what it would do if there was no marker; None where the log ends well.
        scan_from: the base offset of the first segment that has to be read to spare it that; None where it would read
            nothing.
        scan_bytes: of logs that are read for that.
        dropped: what it drops.
        obstacles: why it cannot be spared that, each with what to do.
        forgotten: which producers it forgets after a clean stop, and what to do; None where it forgets none.
        seen: what was seen of its logs, and what is missing there.
    """

    topic_partition: TopicPartition
    directory: Path
    options: RecoverOptions
    stop: PartitionStop
    everything: bool
    headers: HeadersRead | None
    recoveries: Mapping[int, Recovery]
    kept_scans: KeptScans | None
    alone: StartupSimulation
    simulation: StartupSimulation
    without_marker: StartupSimulation | None
    scan_from: int | None
    scan_bytes: int
    dropped: tuple[Dropped, ...]
    obstacles: tuple[Obstacle, ...]
    forgotten: str | None
    seen: SeenLogs

    @property
    def reads_last_alone(self) -> bool:
        """Whether a broker reads the last segment, and no other."""
        return not self.everything and all(
            segment.action is StartupAction.LOAD for segment in self.simulation.segments[:-1]
        )

    @property
    def recovered(self) -> frozenset[int]:
        """Base offsets of the segments that the broker recovers."""
        return frozenset(s.base_offset for s in self.alone.segments if s.action is not StartupAction.LOAD)

    @property
    def can_be_cut(self) -> bool:
        """Whether what the broker drops is one end of the log, and something stays before it."""
        left = [segment for segment in self.simulation.segments if segment.action is not StartupAction.DELETE]
        is_recovered = bool(left) and not self.obstacles and not self.stop.clean_shutdown
        return is_recovered and not any(segment.lost_bytes for segment in left[:-1])

    @property
    def loses_known(self) -> bool:
        """Whether what is dropped lies below what consumers may have seen (the high watermark), or below what had been
        flushed. Where no high watermark was noted, all whole batches count as seen.
        """
        lost = [dropped.from_offset for dropped in self.dropped]
        is_not_noted = self.stop.high_watermark == 0 and any(not each.is_torn for each in self.dropped)
        return is_not_noted or min([*lost, self.simulation.log_end_offset or 0]) < self.stop.known_end

    @property
    def is_empty(self) -> bool:
        """Whether no segment is there."""
        return not self.simulation.segments and not self.obstacles

    @property
    def ends_early(self) -> bool:
        """Whether the log ends below an offset that the broker's checkpoints say it had."""
        return (self.simulation.log_end_offset or 0) < self.stop.known_end

    @property
    def whole_end(self) -> int:
        """Behind the last whole batch, as far as it was looked for."""
        return (self.without_marker or self.simulation).log_end_offset or 0

    @property
    def hidden(self) -> range:
        """The offsets of whole batches that a broker which goes by its marker does not see, and writes anew."""
        return range(self.alone.log_end_offset or 0, self.whole_end if self.stop.clean_shutdown else 0)

    @property
    def lost_end(self) -> str:
        """What is lost of a log that ends early."""
        end, stop = self.whole_end, self.stop
        if end < stop.high_watermark:
            below, had = f"high watermark {stop.high_watermark}", "that consumers have seen"
        else:
            below, had = f"recovery point {stop.recovery_point}", "that had been flushed"
        return f"the log ends at offset {end}, below the {below}: records are gone {had}"

    @property
    def gone(self) -> range:
        """The offsets that the broker's checkpoints say it had, and that no log has."""
        return range(self.whole_end, self.stop.known_end)

    @property
    def loses(self) -> bool:
        """Whether records go that were whole once, that consumers have seen, or that had been flushed."""
        return self.ends_early or any(not each.is_torn for each in self.dropped)


def forecast(
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
    """What a broker does with a partition. Nothing is written.

    After a clean stop a broker reads none of its logs. Without `everything`, only the end of the last one is looked at.

    Args:
        reader: that has read nothing yet.
        everything: look at all segments as if nothing had been flushed.
        trusts: the kernel has all that was written (`page_cache.note.ensure_noted`), so headers are enough.
        is_compacted: as for `look_at_logs`.
    """
    headers, scan_from, forgotten, dropped, seen_logs = None, None, None, tuple[Dropped, ...](), SeenLogs()
    without_marker: StartupSimulation | None = None
    try:
        if trusts and not stop.clean_shutdown:
            headers = read_headers(directory, stop.recovery_point, replace(options, verify_crc=False), reader)
            options = options if headers is None else replace(options, verify_crc=False)
        found = alone = _simulate(directory, options, stop, stop.recovery_point, reader)
        if everything and (stop.clean_shutdown or stop.recovery_point > 0):
            found = _simulate(directory, options, replace(stop, clean_shutdown=False), 0, reader)
        if not stop.clean_shutdown:
            kept = frozenset[int]() if headers is None else headers.kept
            scan_from = _scan_from(directory, found.segments, everything, kept)
        seen = {segment.base_offset for segment in alone.segments if segment.lost_bytes}
        if stop.clean_shutdown:
            without_marker = found if found is not alone else _without_marker(directory, alone, options, stop, reader)
        dropped = tuple(_dropped(directory, without_marker or found, seen, options))
        forgotten = forgotten_after_clean_stop(directory, alone, options)
        seen_logs = look_at_logs(directory, found, stop, options, reader, is_compacted=is_compacted)
    except (LogChangedError, MalformedRecordsError, UntrustedError, OSError) as error:
        found = alone = StartupSimulation(failures=[describe_error(error)])
    return Forecast(
        topic_partition=topic_partition,
        directory=directory,
        options=options,
        stop=stop,
        everything=everything,
        headers=headers,
        recoveries=reader.recoveries,
        kept_scans=None if reader.kept is None else reader.kept.of_partition(),
        alone=alone,
        simulation=found,
        without_marker=without_marker,
        scan_from=scan_from,
        scan_bytes=_scan_bytes(found.segments, scan_from) if headers is None else headers.bytes_read,
        dropped=dropped,
        obstacles=tuple(_obstacles(directory, found)),
        forgotten=forgotten,
        seen=seen_logs,
    )


def _without_marker(
    directory: Path, alone: StartupSimulation, options: RecoverOptions, stop: PartitionStop, reader: LogReader
) -> StartupSimulation | None:
    """What a broker would do without its marker, as in `Forecast`.

    Raises:
        OSError, LogChangedError, MalformedRecordsError: the log cannot be read.
    """
    if (alone.log_end_offset or 0) >= stop.known_end and _ends_well(directory, alone):
        return None
    return _simulate(directory, options, replace(stop, clean_shutdown=False), stop.recovery_point, reader)


def _scan_bytes(segments: Sequence[SimulatedSegment], scan_from: int | None) -> int:
    return 0 if scan_from is None else sum(each.log_bytes for each in segments if each.base_offset >= scan_from)


def _simulate(
    directory: Path,
    options: RecoverOptions,
    stop: PartitionStop,
    recovery_point: int,
    reader: LogReader,
) -> StartupSimulation:
    return simulate_startup(
        directory,
        options,
        clean_shutdown=stop.clean_shutdown,
        recovery_point=recovery_point,
        log_start_offset=stop.log_start_offset,
        recoveries=reader.recoveries,
        read_log=reader.read,
    )


def _scan_from(
    directory: Path, segments: Sequence[SimulatedSegment], everything: bool, kept: Collection[int]
) -> int | None:
    """The first segment to read: that of the first one that the broker recovers, or the last one before it that has a
    producer snapshot, from which the state of producers goes on. With `everything` it is the first one of all.

    Args:
        kept: base offsets of segments that it recovers, and that are right.
    """
    recovered = [
        segment.base_offset
        for segment in segments
        if segment.action is not StartupAction.LOAD and segment.base_offset not in kept
    ]
    if not recovered:
        return None
    base_offsets = [segment.base_offset for segment in segments]
    if everything:
        return base_offsets[0]
    for number in reversed(range(1, bisect_right(base_offsets, recovered[0]))):
        if _is_sound_snapshot(directory / segment_file(base_offsets[number], SNAPSHOT_SUFFIX)):
            return base_offsets[number]
    return base_offsets[0]


def _is_sound_snapshot(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            Producers.from_snapshot(file.read(SNAPSHOT_BYTES_MAX))
    except (OSError, SnapshotError):
        return False
    return True


def _dropped(
    directory: Path, found: StartupSimulation, seen: Collection[int], options: RecoverOptions
) -> Iterator[Dropped]:
    """What is dropped.

    Args:
        seen: base offsets of the segments of which the broker drops something by itself.
    """
    for segment in found.segments:
        if segment.lost_bytes:
            is_truncated_last = segment is found.segments[-1] and segment.action is StartupAction.TRUNCATE
            is_torn = is_truncated_last and _is_torn(directory, segment, found.log_end_offset)
            is_deleted = segment.action is StartupAction.DELETE or segment.next_offset is None
            records = segment.lost_records
            if records is None and segment.action is StartupAction.DELETE:
                records = _records_in(directory, segment, options)
            yield Dropped(
                base_offset=segment.base_offset,
                from_offset=segment.base_offset if is_deleted else segment.next_offset or 0,
                bytes=segment.lost_bytes,
                records=0 if is_torn else records,
                is_torn=is_torn,
                is_unseen=segment.base_offset not in seen,
                why=segment.detail or str(segment.action),
            )


def _records_in(directory: Path, segment: SimulatedSegment, options: RecoverOptions) -> int | None:
    """The records of a segment that a broker drops without reading it, by its headers; None where they do not tell, or
    where a swap file is about to come in the log's place.
    """
    log = directory / segment_file(segment.base_offset, LOG_SUFFIX)
    if log.with_name(log.name + SWAP_SUFFIX).exists():
        return None
    read = LogReader().read(str(log), segment.log_bytes, segment.base_offset, replace(options, verify_crc=False))
    return None if read.records is None or read.past.records is None else read.records + read.past.records


def _ends_well(directory: Path, found: StartupSimulation) -> bool:
    """Whether the last log ends with a whole batch, from its last index entry on, where a broker does not look.

    Raises:
        OSError, LogChangedError, MalformedRecordsError: the log cannot be read.
    """
    left = [segment for segment in found.segments if segment.action is not StartupAction.DELETE]
    if not left or found.log_end_offset is None or left[-1].action is not StartupAction.LOAD:
        return True
    base_offset = left[-1].base_offset
    index = OffsetIndex.open(directory / segment_file(base_offset, OFFSET_INDEX_SUFFIX), base_offset)
    log = LogFile(str(directory / segment_file(base_offset, LOG_SUFFIX)))
    try:
        end = index.last_entry.position
        for batch in batches(log, end):
            end = batch.next_position
        return end == log.size  # an index that knows of more is of a log that was longer
    finally:
        log.close()


def _is_torn(directory: Path, segment: SimulatedSegment, log_end_offset: int | None) -> bool:
    if log_end_offset is None:
        return False
    log = LogFile(str(directory / segment_file(segment.base_offset, LOG_SUFFIX)))
    try:
        return is_unfinished(log, segment.kept_bytes, segment.base_offset, log_end_offset)
    finally:
        log.close()


def _obstacles(directory: Path, alone: StartupSimulation) -> Iterator[Obstacle]:
    if directory.is_symlink():
        yield Obstacle(
            f"{directory}: a symbolic link, through which nothing is written: let the broker start by itself",
            recovers=True,
        )
    for failure in alone.failures:
        yield Obstacle(failure if failure.startswith(f"{directory}") else f"{directory}: {failure}")
    for segment in alone.segments:
        log = directory / segment_file(segment.base_offset, LOG_SUFFIX)
        if segment.action is StartupAction.FAIL:
            yield Obstacle(
                f"{log}: {segment.detail}; a broker fails on it: restore the segment, or take the partition away"
            )
        elif segment.action is StartupAction.SPLIT:
            yield Obstacle(
                f"{log}: {segment.detail}; a broker splits the segment: let it start by itself", recovers=True
            )
    if alone.renamed:
        yield Obstacle(
            f"{directory / alone.renamed[0]}: the broker was about to put it in the place of other files, and does so "
            "as it starts: let it start by itself",
            recovers=True,
        )
