"""What a catalog knows of logs that are still as they were scanned. Nothing else of a catalog is believed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.run_lengths import runs
from kidxlib.catalog.segment_views import SegmentToRead
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import LogChangedError
from kidxlib.format.checksums.crc import crc32c
from kidxlib.format.layouts import MAGIC_V2, TIME_INDEX_ENTRY
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.recovery.outcome import Status
from kidxlib.storage.file_version import FileVersion
from kidxlib.storage.location import Location
from kidxlib.storage.small_files import small_file
from kidxlib.tables.protocol import TablesToRead

#: So many topics are asked for by their names; where there are more, rows of all topics are read.
_TOPICS_MAX: Final = 1_000
_PARTITION: Final = ("topic", "partition")


class KnownLogs:
    """Rows of a catalog's segments, of whatever sources."""

    def __init__(self, rows: pa.Table) -> None:
        """
        Args:
            rows: with the columns of `SegmentToRead`.
        """
        self._rows = rows.sort_by([(name, "ascending") for name in _PARTITION])
        columns = [self._rows[name].combine_chunks() for name in _PARTITION]
        self._bounds = {
            TopicPartition(*(column[start].as_py() for column in columns)): (start, end) for start, end in runs(columns)
        }

    @classmethod
    def read(cls, tables: TablesToRead, topics: Collection[str]) -> Self:
        """
        Raises:
            CatalogError: the catalog cannot be read.
        """
        of_topics = [Among("topic", sorted(topics))] if len(topics) <= _TOPICS_MAX else []
        return cls(tables.read(SEGMENTS, SegmentToRead.names(), [PRESENT, *of_topics]))

    def of(self, partition: TopicPartition) -> KnownPartition:
        """What is known of a partition."""
        start, end = self._bounds.get(partition, (0, 0))
        return KnownPartition(SegmentToRead.of_arrow(self._rows.slice(start, end - start)))


class KnownPartition:
    """Rows of one partition."""

    def __init__(self, rows: Sequence[SegmentToRead] = ()) -> None:
        self._rows = {_key(row.base_offset, row.version, row.log_path): row for row in rows if _is_sound(row)}

    def log(self, path: Location, base_offset: int, version: FileVersion) -> KnownLog | None:
        """What is known of a log; None where the catalog has not just this state of it, as a whole and sound.

        A file is known by its size, time and inode, whatever its path. An object has no inode, so it has to be the one
        that was scanned.
        """
        row = self._rows.get(_key(base_offset, version, str(path)))
        return None if row is None else KnownLog(row)


def _key(base_offset: int, version: FileVersion | None, path: str) -> tuple[int, FileVersion | None, str | None]:
    return base_offset, version, None if version is not None and version.inode is not None else path


def _is_sound(row: SegmentToRead) -> bool:
    """Whether a log was scanned to its end, with its checksums, and no header in it can mislead."""
    return row.status is Status.OK and row.crc_checked and bool(row.offsets_increase)


@dataclass(frozen=True, slots=True)
class KnownLog:
    """Facts of a log as it is.

    Attributes:
        row: what the catalog has of it.
    """

    row: SegmentToRead

    @property
    def index_directory(self) -> str:
        return self.row.index_directory

    def reaches(self, offset: int) -> bool:
        """Whether it goes on to an offset."""
        return self.row.next_offset is not None and self.row.next_offset >= offset

    def is_without(self, wanted: Wanted) -> bool:
        """Whether no record of it has a time that is wanted."""
        smallest = self.row.smallest_timestamp_ms
        is_later = smallest is not None and smallest > wanted.last_ms
        return is_later or (self._has_largest and (self.row.max_timestamp_ms or 0) < wanted.first_ms)

    def records(self, wanted: Wanted) -> int | None:
        """How many records consumers get of it; None where not all in it are wanted, or the catalog does not say it."""
        row = self.row
        first_ms, last_ms = row.smallest_timestamp_ms, row.max_timestamp_ms if self._has_largest else None
        is_whole = (
            wanted.first_offset <= row.base_offset
            and row.next_offset is not None
            and wanted.last_offset >= row.next_offset - 1
            and (wanted.first_ms == Wanted().first_ms or (first_ms is not None and first_ms >= wanted.first_ms))
            and (wanted.last_ms == Wanted().last_ms or (last_ms is not None and last_ms <= wanted.last_ms))
        )
        return row.records if is_whole and row.control_batches == 0 else None

    def first_offset(self, wanted: Wanted, time_index: Location) -> int:
        """No record before this offset has a time that is wanted; the base offset where nobody says more.

        The `.timeindex` tells it, if it is the one that was made of the log: up to the offset of an entry no timestamp
        is larger than the entry's (`LogSegment.recover`).
        """
        base_offset = self.row.base_offset
        if wanted.first_ms == Wanted().first_ms or not self._has_largest or self.row.time_index_crc32c is None:
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

    def end_position(self, wanted: Wanted) -> int | None:
        """A byte at which a batch starts, and from which on all timestamps are later than is wanted; None where there
        is none, or nobody says it.
        """
        later = (
            each["position"] for each in self.row.smallest_timestamps or () if each["timestamp_ms"] > wanted.last_ms
        )
        return next(later, None)

    @property
    def _has_largest(self) -> bool:
        """Whether headers tell the largest timestamps. Of wrappers of magic 1 nobody has checked them."""
        return self.row.max_timestamp_ms is not None and all(magic >= MAGIC_V2 for magic in self.row.magics or ())
