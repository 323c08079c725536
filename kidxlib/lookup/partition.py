"""A partition in the catalog, ready to be searched. No directory is listed, and no file is opened before it is needed.

The files are checked against the catalog. A log that is missing, or whose size differs from its row, is reported and
not searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from kidxlib.catalog.partitions import PartitionToSearch
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.format.checkpoint_files import LeaderEpochs
from kidxlib.index.time import TimestampOffset
from kidxlib.log.log import Log
from kidxlib.lookup.checked_segment import CheckedSegment, ExpectedFiles
from kidxlib.lookup.seeker import Seeker
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.storage.location import location
from kidxlib.text.times import NS_PER_MS


@dataclass(frozen=True, slots=True)
class CatalogedPartition:
    """A partition of one source.

    Attributes:
        facts: its row of `partitions`.
        segments: its rows of `segments` that are present, with the columns of `SegmentToSearch`.
    """

    facts: PartitionToSearch
    segments: pa.Table

    def seeker(self) -> Seeker | str:
        """The seeker that answers questions to this partition, or the reason why none can be answered."""
        rows = sorted(SegmentToSearch.of_arrow(self.segments), key=lambda row: row.base_offset)
        if not rows:
            return f"{self.facts.directory}: no segment was there when the catalog was built"
        log = Log(
            [_segment(row) for row in rows],
            name=self.facts.directory,
            log_start_offset=self.facts.log_start_offset or 0,
            log_end_offset=self.facts.log_end_offset,
            leader_epochs=_leader_epochs(rows),
        )
        return Seeker(log)


def _segment(row: SegmentToSearch) -> CheckedSegment:
    is_usable = row.status in USABLE
    problem = None if row.status is Status.OK else _problem(row)
    expected = ExpectedFiles(
        log_bytes=row.log_bytes,
        valid_bytes=row.valid_bytes,
        offset_index_bytes=row.offset_index_bytes,
        time_index_bytes=row.time_index_bytes,
        broken=None if is_usable else problem,
        truncation=problem if is_usable else None,
    )
    return CheckedSegment(
        location(row.log_path),
        row.base_offset,
        location(row.index_directory),
        expected,
        mtime_ms=None if row.log_mtime_ns is None else row.log_mtime_ns // NS_PER_MS,
        # Of what cannot be searched nothing is known: what its row has is of the batches before the scan ended.
        max_timestamp=_max_timestamp(row) if is_usable else None,
    )


def _max_timestamp(row: SegmentToSearch) -> TimestampOffset | None:
    if row.max_timestamp_ms is None:
        return None
    offset = row.offset_of_max_timestamp
    return TimestampOffset(row.max_timestamp_ms, row.base_offset if offset is None else offset)


def _problem(row: SegmentToSearch) -> str:
    where = "" if row.reason_position is None else f" at byte {row.reason_position}"
    reason = "" if row.reason is None else f" ({row.reason}{where})"
    return f"{row.log_path} was {row.status}{reason} when the catalog was built"


def _leader_epochs(rows: Iterable[SegmentToSearch]) -> LeaderEpochs:
    """The leader epochs of a partition, as recovery assigns them."""
    epochs = LeaderEpochs()
    for entry in (entry for row in rows for entry in row.leader_epochs or ()):
        if epochs.is_new_epoch(entry["epoch"]):
            epochs.assign(entry["epoch"], entry["start_offset"])
    return epochs
