"""The facts and producer events that a catalog has of logs which have not changed since they were scanned. Nothing else
from a catalog is used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.conditions import PRESENT, Among, Between, Condition
from kidxlib.catalog.matching import positions_in, runs
from kidxlib.catalog.partitions import EVENT_KINDS, PRODUCER_EVENTS, ProducerEventRow
from kidxlib.catalog.rows import SEGMENT_KEY, Int32, Row, view_of
from kidxlib.catalog.segments import SEGMENTS, SegmentToRead
from kidxlib.errors import LogChangedError
from kidxlib.format.checksums import crc32c
from kidxlib.format.layouts import MAGIC_V2, TIME_INDEX_ENTRY
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition_fold import NO_EVENTS
from kidxlib.recovery.scan.scan_state import PRODUCER_EVENT, EventKind
from kidxlib.storage.location import FileVersion, Location
from kidxlib.storage.small_files import small_file
from kidxlib.tables.protocol import TablesToRead

#: Up to so many topics are selected by name; for more, the rows of all topics are read.
_TOPICS_MAX: Final = 1_000
_PARTITION: Final = ("topic", "partition")


class CatalogedLogs:
    """The rows of a catalog's segments, of all sources, with the columns of `SegmentToRead`."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.sort_by([(name, "ascending") for name in _PARTITION])
        columns = [self._rows[name].combine_chunks() for name in _PARTITION]
        self._bounds = {
            TopicPartition(*(column[start].as_py() for column in columns)): (start, end) for start, end in runs(columns)
        }

    @classmethod
    def from_catalog(cls, tables: TablesToRead, topics: Collection[str]) -> Self:
        of_topics = [Among("topic", sorted(topics))] if len(topics) <= _TOPICS_MAX else []
        return cls(tables.read(SEGMENTS, SegmentToRead.names(), [PRESENT, *of_topics]))

    def of_partition(self, partition: TopicPartition) -> CatalogedPartitionLogs:
        start, end = self._bounds.get(partition, (0, 0))
        return CatalogedPartitionLogs(SegmentToRead.of_arrow(self._rows.slice(start, end - start)))


class CatalogedPartitionLogs:
    def __init__(self, rows: Sequence[SegmentToRead] = ()) -> None:
        self._rows = {_key(row.base_offset, row.version, row.log_path): row for row in rows if _is_sound(row)}

    def log(self, path: Location, base_offset: int, version: FileVersion) -> CatalogedLog | None:
        """The facts of a log; None if the catalog does not have this state of it, or the log is not whole and sound.

        A file is recognised by size, modification time and inode, whatever its path is. An object has no inode, so its
        path must be the same.
        """
        row = self._rows.get(_key(base_offset, version, str(path)))
        return None if row is None else CatalogedLog(row)


def _key(base_offset: int, version: FileVersion | None, path: str) -> tuple[int, FileVersion | None, str | None]:
    return base_offset, version, None if version is not None and version.inode is not None else path


def _is_sound(row: SegmentToRead) -> bool:
    """Whether a log was scanned to its end with checksums, and its headers can be trusted."""
    return row.status is Status.OK and row.crc_checked and bool(row.offsets_increase)


@dataclass(frozen=True, slots=True)
class CatalogedLog:
    """The facts of a log in its present state."""

    row: SegmentToRead

    def reaches(self, offset: int) -> bool:
        return self.row.next_offset is not None and self.row.next_offset >= offset

    def has_no_wanted_time(self, wanted: WantedRecords) -> bool:
        smallest = self.row.smallest_timestamp_ms
        is_later = smallest is not None and smallest > wanted.last_ms
        return is_later or (self._has_largest and (self.row.max_timestamp_ms or 0) < wanted.first_ms)

    def records(self, wanted: WantedRecords) -> int | None:
        """How many records of the log consumers get; None if not all are wanted, or the catalog does not say."""
        row = self.row
        first_ms, last_ms = row.smallest_timestamp_ms, row.max_timestamp_ms if self._has_largest else None
        is_whole = (
            wanted.first_offset <= row.base_offset
            and row.next_offset is not None
            and wanted.last_offset >= row.next_offset - 1
            and (wanted.first_ms == WantedRecords().first_ms or (first_ms is not None and first_ms >= wanted.first_ms))
            and (wanted.last_ms == WantedRecords().last_ms or (last_ms is not None and last_ms <= wanted.last_ms))
        )
        return row.records if is_whole and row.control_batches == 0 else None

    def first_offset(self, wanted: WantedRecords, time_index: Location) -> int:
        """An offset before which no record has a wanted time; the base offset if nothing better is known.

        It is found in the `.timeindex`, if that was made of this log: up to the offset of an entry, no timestamp is
        larger than the entry's (`LogSegment.recover`).
        """
        base_offset = self.row.base_offset
        if wanted.first_ms == WantedRecords().first_ms or not self._has_largest or self.row.time_index_crc32c is None:
            return base_offset
        try:
            content = small_file(time_index)
        except (OSError, LogChangedError):
            return base_offset
        if crc32c(content) != self.row.time_index_crc32c:
            return base_offset
        entries = np.frombuffer(content, TIME_INDEX_ENTRY)
        before = int(np.searchsorted(entries["timestamp"], wanted.first_ms))
        return base_offset + int(entries["relative_offset"][before - 1]) + 1 if before else base_offset

    def end_position(self, wanted: WantedRecords) -> int | None:
        """The start of a batch from which on all timestamps are later than wanted; None if there is none, or it is not
        known.
        """
        entries = self.row.smallest_timestamps or ()
        return next((entry["position"] for entry in entries if entry["timestamp_ms"] > wanted.last_ms), None)

    @property
    def _has_largest(self) -> bool:
        """Whether the largest timestamps in headers can be trusted. In compressed messages of magic 1 they are not
        checked.
        """
        return self.row.max_timestamp_ms is not None and all(magic >= MAGIC_V2 for magic in self.row.magics or ())


@view_of(ProducerEventRow)
class _Event(Row):
    """The columns of `producer_events` that determine transactions."""

    source: str
    topic: str
    partition: Int32
    base_offset: int
    position: int
    producer_id: int
    kind: str
    first_offset: int


class CatalogedEvents:
    """Reads one version of the table `producer_events`. It must be opened after the rows of segments were read, and
    before logs are listed.

    A build writes a segment's events before its row, and removes them after the row. So if a log is as its row says,
    the events belong to this state of it. They are not older, because the row was there already; they are not newer,
    because the log had not changed.
    """

    def __init__(self, tables: TablesToRead) -> None:
        self._tables, self._version = tables, tables.version(PRODUCER_EVENTS)

    def of_logs(self, logs: Sequence[CatalogedLog]) -> list[NDArray[np.void] | None]:
        """The events of each log, of dtype `PRODUCER_EVENT`, with only position, producer, kind and first offset set.
        None if the catalog does not have as many as the log's row says.
        """
        segments = [log.row for log in logs]
        with_transactions = [segment for segment in segments if segment.transactional_batches]
        events = iter(self._events(with_transactions))
        by_segment = [next(events) if segment.transactional_batches else NO_EVENTS for segment in segments]
        return [
            scanned if _are_all(scanned, segment) else None
            for scanned, segment in zip(by_segment, segments, strict=True)
        ]

    def _events(self, segments: Sequence[SegmentToRead]) -> list[NDArray[np.void]]:
        if not segments or self._version is None:
            return [NO_EVENTS] * len(segments)
        rows = self._tables.read(PRODUCER_EVENTS, _Event.names(), _where(segments), self._version)
        columns = zip(*map(_event_key, segments), strict=True)
        asked = pa.table([list(column) for column in columns], schema=PRODUCER_EVENTS.schema(SEGMENT_KEY))
        places = positions_in(rows, asked, SEGMENT_KEY)
        order = np.lexsort((rows["position"].to_numpy(), places))
        events, places = _to_events(rows)[order], places[order]
        bounds = np.searchsorted(places, np.arange(len(segments) + 1)).tolist()
        return [events[start:end] for start, end in pairwise(bounds)]


def _event_key(segment: SegmentToRead) -> tuple[str, str, int, int]:
    return segment.source, segment.topic, segment.partition, segment.base_offset


def _where(segments: Sequence[SegmentToRead]) -> list[Condition]:
    """Conditions that hold for the events of some segments, and for few others."""
    sources, topics, partitions, base_offsets = zip(*map(_event_key, segments), strict=True)
    where: list[Condition] = [Among("source", sorted(set(sources))), Among("topic", sorted(set(topics)))]
    where.append(Between("partition", min(partitions), max(partitions)))
    if len(set(zip(topics, partitions, strict=True))) == 1:
        where.append(Between("base_offset", min(base_offsets), max(base_offsets)))
    return where


def _to_events(rows: pa.Table) -> NDArray[np.void]:
    events = np.zeros(rows.num_rows, PRODUCER_EVENT)
    for name in ("position", "producer_id", "first_offset"):
        events[name] = rows[name].to_numpy()
    events["kind"] = pc.index_in(rows["kind"], EVENT_KINDS).to_numpy()
    return events


def _are_all(events: NDArray[np.void], segment: SegmentToRead) -> bool:
    """Whether the events are complete by the segment's row: one for each marker, unless compaction has emptied some,
    and one for data if there is any in transactions. Also whether a build found that producers did nothing which a
    broker refuses.
    """
    if not segment.is_finished or segment.transactional_batches is None or segment.control_batches is None:
        return False
    counts = np.bincount(events["kind"], minlength=len(EventKind))
    markers = int(counts[EventKind.COMMIT] + counts[EventKind.ABORT])
    are_less = markers < segment.control_batches and bool(counts[EventKind.EMPTY_CONTROL])
    has_data = segment.transactional_batches <= segment.control_batches or bool(counts[EventKind.TRANSACTIONAL_DATA])
    return (markers == segment.control_batches or are_less) and has_data
