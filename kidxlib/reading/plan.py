"""What is read of which segment: a plan, made from names, checkpoints and indexes, and no log but at single batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from kidxlib.build.listed import NO_INODE, NOT_SEEN, FoundSegment
from kidxlib.build.listing import list_partitions
from kidxlib.build.skipped import Skipped
from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.bounds import Bound, ListedLog, bounds_of
from kidxlib.reading.known_events import KnownEvents
from kidxlib.reading.known_logs import KnownLog, KnownLogs, KnownPartition
from kidxlib.reading.partition_to_read import LogToRead, PartitionToRead, has_offsets, may_hold, visible_part
from kidxlib.reading.request import ReadRequest
from kidxlib.reading.settled import settled_segments
from kidxlib.reading.transactions import (
    LogToScan,
    PartitionToScan,
    ScanLogs,
    ScannedLog,
    scan_in_threads,
    transactions_of,
)
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.checkpoints import Checkpoints, read_checkpoints
from kidxlib.storage.file_version import FileVersion
from kidxlib.storage.location import Location, location
from kidxlib.tables.protocol import TablesToRead
from kidxlib.text.counted import counted

_OFFSET_MAX: Final = 2**63 - 1
#: Partitions that are listed before what becomes of them is planned: their logs may be scanned at the same time.
_PARTITIONS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRead:
    """What is read of one segment, or of a part of a large one. It says all that the reading needs to know, and can be
    pickled.

    Attributes:
        log_path: its log, here or in an object store.
        version: of the log when the plan was made. It may have grown since, as an active one does.
        position: the byte from which batches are read, where one starts.
        end_position: the byte before which it ends: the end of the log, or a batch that holds nothing wanted or is read
            by another.
        last_offset_before: of the batch before the position; below the base offset where there is none.
        end_offset: the first offset of what follows, in this segment or the next, which no offset that is read reaches;
            None of what is last.
        wanted: the records that are asked for, none of which lies beyond the end of what consumers see.
        must_reach: the log has to go on to this offset, as a checkpoint says; None where nobody says it.
        aborted: transactions whose records are left out.
        records: how many there are to read, where a catalog tells; None where nobody knows it.
    """

    topic: str
    partition: int
    base_offset: int
    log_path: str
    version: FileVersion
    position: int
    end_position: int
    last_offset_before: int
    end_offset: int | None
    wanted: Wanted
    must_reach: int | None
    aborted: AbortedRanges
    records: int | None = None

    @property
    def log_bytes(self) -> int:
        """Bytes of the log that are read at most."""
        return self.end_position - self.position


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is read of which segment, and what is not looked at.

    Attributes:
        reads: in the order of topics, partitions and offsets.
        named_partitions: those that topics and offsets name, also where nothing in them is wanted.
        skipped_partitions, skipped_segments: those whose names say that nothing in them is wanted, or a catalog.
        skipped_bytes: of segments, and of what stands in others before and after what is wanted.
        first_offsets: of partitions that hold offsets that are wanted, the first one of these that may be there.
        notes: what a person should know, a line each.
    """

    reads: tuple[SegmentRead, ...]
    named_partitions: int
    skipped_partitions: int
    skipped_segments: int
    skipped_bytes: int
    first_offsets: Mapping[TopicPartition, int]
    notes: tuple[str, ...]

    @property
    def log_bytes(self) -> int:
        """Bytes of logs that are read at most."""
        return sum(read.log_bytes for read in self.reads)

    @property
    def segments(self) -> int:
        """How many segments are read."""
        return len({read.log_path for read in self.reads})

    def __str__(self) -> str:
        return (
            f"{counted(self.segments, 'segment')} to read, {self.log_bytes:,} bytes of logs; passed over: "
            f"{counted(self.skipped_partitions, 'partition')}, {counted(self.skipped_segments, 'segment')}, "
            f"{self.skipped_bytes:,} bytes"
        ) + "".join(f"; {note}" for note in self.notes)


def plan_reads(
    request: ReadRequest,
    *,
    goes_on: bool,
    threads: int = 1,
    scan: ScanLogs | None = None,
    part_bytes: int | None = None,
    catalog: TablesToRead | None = None,
) -> ReadPlan:
    """Plan what is read. Directories are listed and checkpoint files read; of a segment in which reading begins or ends
    amid the log, or that is divided, its `.index` and a batch at each such place. Where only what is committed is read,
    logs of the partitions are scanned, see `transactions_of`.

    Args:
        goes_on: reading goes on after damage. Then each segment is read as a whole: of a damaged disk no index and no
            catalog is believed.
        threads: that scan logs, where no `scan` is given.
        scan: scans logs elsewhere.
        part_bytes: segments that are larger are divided into parts of so many bytes, about, where their indexes tell
            how; None for not.
        catalog: tells which times and transactions are in segments that are as they were when it was written; others
            are read.

    Raises:
        UsageError: there is no segment, or what lies there is no log dir and no partition's directory.
        CheckpointError, CatalogError: a checkpoint file is malformed, or the catalog cannot be read.
        DamagedLogError: what was committed cannot be told, see `transactions_of`.
        OSError, LogChangedError: a directory cannot be listed, or a file cannot be read.
    """
    skipped = Skipped()
    directories = list_partitions(request.source, skipped)
    asked = [(each, wanted) for each in directories if (wanted := _wanted(request, each)) is not None]
    known, known_events = None, None
    if catalog is not None and not goes_on:
        known = KnownLogs.read(catalog, {directory.topic_partition.topic for directory, _ in asked})
        known_events = KnownEvents(catalog) if request.committed else None
    planner = _Planner(request, goes_on=goes_on, part_bytes=part_bytes, known=known)
    planner.named_partitions = sum(request.names(each) for each in directories)
    planner.skipped_partitions = len(directories) - len(asked)
    for start in range(0, len(asked), _PARTITIONS_AT_ONCE):
        listed = [planner.listed(*each) for each in asked[start : start + _PARTITIONS_AT_ONCE]]
        if request.committed:
            listed = planner.committed(listed, scan or scan_in_threads(threads), known_events)
        for partition in listed:
            planner.add(partition)
    if not planner.listed_segments and planner.skipped_partitions < max(len(directories), 1):
        raise UsageError(f"{request.source.path}: no segment found; expected files named <20 digits>{LOG_SUFFIX}")
    if directories and not asked:
        there = counted(len(directories), "partition")
        planner.notes.append(f"{request.source.path}: it has {there}, none of which is asked for")
    if request.source.remote is not None and request.source.remote.visible is None:
        planner.notes.append(
            f"{request.source.path}: all segments that lie there are read, also those that brokers do not read yet or "
            "any more, as no metadata is named (--tiered-metadata)"
        )
    planner.left_out = sorted({each.topic_partition.topic for each in directories if request.leaves_out(each)})
    return planner.plan()


def _wanted(request: ReadRequest, directory: PartitionDirectory) -> Wanted | None:
    wanted = request.wanted(directory)
    return None if wanted is None or wanted.is_empty else wanted


def _with_ends(segments: Sequence[FoundSegment]) -> Iterator[tuple[FoundSegment, int | None]]:
    """Segments in their order, each with the base offset of the next one."""
    ends: list[int | None] = [base_offset for base_offset, *_ in segments[1:]]
    return zip(segments, [*ends, None], strict=True)


class _Planner:
    def __init__(self, request: ReadRequest, *, goes_on: bool, part_bytes: int | None, known: KnownLogs | None) -> None:
        self.named_partitions = self.skipped_partitions = 0
        self.listed_segments = 0
        self.notes: list[str] = []
        self.left_out: list[str] = []
        self._request, self._goes_on, self._part_bytes, self._known = request, goes_on, part_bytes, known
        self._reads: list[SegmentRead] = []
        self._skipped_segments = self._skipped_bytes = 0
        self._checkpoints: dict[Location, Checkpoints] = {}
        self._first_offsets: dict[TopicPartition, int] = {}
        self._ended_at_watermark = self._read_to_log_end = 0
        self._scanned_logs = self._scanned_bytes = 0

    def plan(self) -> ReadPlan:
        if self._ended_at_watermark:
            self.notes.append(
                f"read to the high watermark, which {HIGH_WATERMARK_CHECKPOINT} says: "
                f"{counted(self._ended_at_watermark, 'partition')}"
            )
        if self._read_to_log_end:
            self.notes.append(
                f"read to the end of the log, as no {HIGH_WATERMARK_CHECKPOINT} says how far: "
                f"{counted(self._read_to_log_end, 'partition')}"
            )
        if self.left_out:
            self.notes.append(f"not read, as brokers keep them for themselves: {', '.join(self.left_out)}")
        if self._scanned_logs:
            self.notes.append(
                f"scanned for transactions: {counted(self._scanned_logs, 'log')}, {self._scanned_bytes:,} bytes"
            )
        skipped = self.skipped_partitions, self._skipped_segments, self._skipped_bytes
        return ReadPlan(tuple(self._reads), self.named_partitions, *skipped, self._first_offsets, tuple(self.notes))

    def listed(self, directory: PartitionDirectory, wanted: Wanted) -> PartitionToRead:
        """A partition with its logs."""
        high_watermark, seen = self._seen(directory, wanted)
        known = KnownPartition() if self._known is None else self._known.of(directory.topic_partition)
        logs: list[LogToRead] = []
        for (base_offset, size, mtime_ns, inode), end in _with_ends(settled_segments(directory)):
            visible = visible_part(directory, base_offset)
            end = end if visible is None else None  # what is beyond is in another segment, too, and no damage
            log = ListedLog(directory.file(base_offset, LOG_SUFFIX), size, base_offset, end)
            version = FileVersion(size, mtime_ns, None if inode == NO_INODE else inode)
            facts = known.log(log.path, base_offset, version)
            if facts is not None and end is None and not facts.reaches(high_watermark or 0):
                facts = None  # it is damaged, and reading it tells so
            logs.append(LogToRead(log, version, facts, visible))
        return PartitionToRead(directory, logs, high_watermark, seen)

    def committed(
        self, partitions: Sequence[PartitionToRead], scan: ScanLogs, known_events: KnownEvents | None
    ) -> list[PartitionToRead]:
        """Partitions of which only what is below the last stable offset is wanted, and not what was aborted."""
        to_scan = [self._to_scan(partition) for partition in partitions]

        def counted(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
            self._scanned_logs += len(logs)
            self._scanned_bytes += sum(log.log_bytes for log in logs)
            return scan(logs)

        return [
            replace(
                partition,
                seen=replace(partition.seen, last_offset=min(partition.seen.last_offset, found.last_stable_offset - 1)),
                aborted=found.aborted,
            )
            for partition, found in zip(partitions, transactions_of(to_scan, counted, known_events), strict=True)
        ]

    def _to_scan(self, partition: PartitionToRead) -> PartitionToScan:
        """A partition with the logs that may say what became of transactions; with none if none is wanted."""
        if cut := [log for log in partition.logs if log.visible is not None]:
            raise UsageError(
                f"{cut[0].listed.path}: it holds offsets that consumers get of another segment; of such logs kidx does "
                "not tell what was committed: read them with isolation read_uncommitted"
            )
        high_watermark = partition.high_watermark
        end_offset = _OFFSET_MAX if high_watermark is None or self._request.to_log_end else high_watermark
        wanted = [log for log in partition.logs if self._is_asked_for(log) and may_hold(log, partition.seen)]
        last = wanted[-1].listed.end_offset if wanted else None
        last_offset = partition.seen.last_offset if last is None else min(partition.seen.last_offset, last - 1)
        logs = [
            LogToScan(
                path=str(log.listed.path),
                base_offset=log.listed.base_offset,
                size=log.listed.size,
                is_last=log.listed.end_offset is None,
                end_offset=end_offset,
                goes_on=self._goes_on,
                known=log.facts,
            )
            for log in (partition.logs if wanted else ())
            if log.listed.base_offset < end_offset
        ]
        return PartitionToScan(logs=logs, end_offset=end_offset, last_offset=last_offset)

    def _is_asked_for(self, log: LogToRead) -> bool:
        return self._request.log_name in (None, log.listed.path.name)

    def add(self, partition: PartitionToRead) -> None:
        """Plan a partition."""
        for log in partition.logs:
            if not self._is_asked_for(log):
                continue
            seen = log.of(partition.seen)
            self.listed_segments += 1
            if has_offsets(log, seen):
                first_offset = max(log.listed.base_offset, seen.first_offset)
                self._first_offsets.setdefault(partition.directory.topic_partition, first_offset)
            if not may_hold(log, seen):
                self._skipped_segments += 1
                self._skipped_bytes += max(log.listed.size, 0)
                continue
            if log.listed.size == NOT_SEEN:
                log.listed.path.stat()  # raises what it is
            self._add(partition, log)

    def _add(self, partition: PartitionToRead, log: LogToRead) -> None:
        """Plan a segment, of which something may be wanted."""
        directory, listed, facts, seen = partition.directory, log.listed, log.facts, log.of(partition.seen)
        bounds = self._bounds(directory, listed, seen, facts)
        self._skipped_bytes += listed.size - (bounds[-1].position - bounds[0].position)
        for start, stop in pairwise(bounds):
            first_offset = listed.base_offset if start.offset is None else start.offset
            aborted = partition.aborted.between(first_offset, _OFFSET_MAX if stop.offset is None else stop.offset)
            records = facts.records(seen) if facts is not None and bounds == listed.whole and not aborted else None
            self._reads.append(
                SegmentRead(
                    topic=directory.topic_partition.topic,
                    partition=directory.topic_partition.partition,
                    base_offset=listed.base_offset,
                    log_path=str(listed.path),
                    version=log.version,
                    position=start.position,
                    end_position=stop.position,
                    last_offset_before=first_offset - 1,
                    end_offset=stop.offset,
                    wanted=seen,
                    must_reach=partition.high_watermark if stop.offset is None else None,
                    aborted=aborted,
                    records=records,
                )
            )

    def _seen(self, directory: PartitionDirectory, wanted: Wanted) -> tuple[int | None, Wanted]:
        """The high watermark of a partition, where one is known, and what is wanted of what consumers see."""
        partition, log_dir = directory.topic_partition, directory.log_dir
        if log_dir not in self._checkpoints:
            self._checkpoints[log_dir] = read_checkpoints(log_dir)
        known = self._checkpoints[log_dir]
        log_start_offset = (known.log_start_offsets or {}).get(partition, 0)
        high_watermark = (known.high_watermarks or {}).get(partition)
        last_offset = wanted.last_offset
        if high_watermark is not None and not self._request.to_log_end:
            last_offset = min(last_offset, high_watermark - 1)
            self._ended_at_watermark += 1
        elif high_watermark is None and not self._request.to_log_end:
            self._read_to_log_end += 1
        first_offset = max(wanted.first_offset, log_start_offset)
        return high_watermark, replace(wanted, first_offset=first_offset, last_offset=last_offset)

    def _bounds(
        self, directory: PartitionDirectory, log: ListedLog, seen: Wanted, facts: KnownLog | None
    ) -> tuple[Bound, ...]:
        if self._goes_on:
            return log.whole
        if self._request.index_dir is not None:
            indexes = self._request.index_dir / directory.topic_partition.directory
        else:
            indexes = directory.path if facts is None else location(facts.index_directory)
        is_beside = indexes == directory.path
        index_name = segment_file(log.base_offset, OFFSET_INDEX_SUFFIX)
        index_path = directory.file(log.base_offset, OFFSET_INDEX_SUFFIX) if is_beside else indexes / index_name
        if facts is None:
            return bounds_of(log, index_path, seen, self._part_bytes)
        time_index = indexes / segment_file(log.base_offset, TIME_INDEX_SUFFIX)
        first_offset = max(seen.first_offset, facts.first_offset(seen, time_index))
        offsets = replace(seen, first_offset=first_offset)
        return bounds_of(log, index_path, offsets, self._part_bytes, facts.end_position(seen))
