"""Rewrites a segment's index files at another interval."""

from __future__ import annotations

from dataclasses import replace

from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.compaction.change import NOT_LOCKED, UNFINISHED, Change, ChangeAction, ChangeOutcome, Coarsened
from kidxlib.compaction.partition_files import FilesToCompact, why_not_read
from kidxlib.compaction.task import Mode
from kidxlib.errors import LogChangedError
from kidxlib.format.checksums.crc import crc32c
from kidxlib.format.layouts import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.index.file import IndexFile
from kidxlib.recovery.coarsen import Indexes, from_denser, from_headers, scan_cost
from kidxlib.recovery.outcome import Status
from kidxlib.storage.directory import read_file
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.publisher import Published


def coarsen_segment(files: FilesToCompact, segment: SegmentToCompact) -> Change | None:
    """Give a segment's indexes the interval of the policy; None if they have it, or there are none."""
    if segment.version is None or segment.offset_index_crc32c is None or segment.valid_bytes is None:
        return None  # nothing was published of it
    interval = files.options.policy.interval_for(
        files.task.key[1], segment.version.size, segment.largest_timestamp_ms, files.options.now_ms
    )
    if interval is None or interval == segment.options.interval_bytes:
        return None
    directory = files.task.index_directory
    names = [segment_file(segment.base_offset, suffix) for suffix in (TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX)]
    sizes = [files.listed[directory][name].st_size for name in names if name in files.listed[directory]]
    change = Change(
        key=files.task.key,
        base_offset=segment.base_offset,
        action=ChangeAction.COARSEN if interval > segment.options.interval_bytes else ChangeAction.DENSIFY,
        outcome=ChangeOutcome.PLANNED,
        place=files.place(directory, names[-1]),
        bytes_before=sum(sizes),
        bytes_after=None,
        coarsened=Coarsened(segment.version, segment.options.interval_bytes, interval),
    )
    if not segment.is_finished:
        return replace(change, outcome=ChangeOutcome.KEPT, reason=UNFINISHED)
    if not files.may_write(change.place):
        return replace(change, outcome=ChangeOutcome.KEPT, reason=NOT_LOCKED)
    if files.mode is Mode.LOOK:
        return change
    present = _as_recorded(files, segment)
    denser = present if segment.options.interval_bytes < interval and segment.offsets_increase else None
    try:
        with files.opened(segment, Access.NORMAL if denser is None else Access.RANDOM) as (log, owner):
            indexes = _indexes(log, segment, interval, denser)
    except (OSError, LogChangedError) as error:
        return replace(change, outcome=ChangeOutcome.KEPT, reason=why_not_read(error))
    if isinstance(indexes, str):
        return replace(change, outcome=ChangeOutcome.KEPT, reason=indexes)
    outcome = ChangeOutcome.UNCHANGED if indexes == present else ChangeOutcome.PLANNED
    if files.mode is Mode.APPLY:  # the offset index last, as in a build
        contents = zip(names, (indexes.time_index, indexes.offset_index), strict=True)
        published = {
            files.publisher.stage(directory, name, content, files.owner_in(directory, owner))
            for name, content in contents
        }
        outcome = ChangeOutcome.WRITTEN if Published.WRITTEN in published else ChangeOutcome.UNCHANGED
    coarsened = Coarsened(
        segment.version,
        segment.options.interval_bytes,
        interval,
        None if present is None else scan_cost(present.offset_index, segment.valid_bytes),
        scan_cost(indexes.offset_index, segment.valid_bytes),
        IndexFile.of(indexes.offset_index, OFFSET_INDEX_ENTRY),
        IndexFile.of(indexes.time_index, TIME_INDEX_ENTRY),
    )
    return replace(change, outcome=outcome, bytes_after=indexes.size, coarsened=coarsened)


def _indexes(log: LogBytes, segment: SegmentToCompact, interval: int, denser: Indexes | None) -> Indexes | str:
    """The new indexes, or why there are none: Kafka fails on the segment at this interval."""
    options = replace(segment.options, interval_bytes=interval)
    if denser is not None:
        found = from_denser(log, segment.base_offset, options, denser)
        if found is not None:
            return found
    recovered = from_headers(log, segment.base_offset, options)
    if recovered.end.status is Status.QUARANTINED:
        assert recovered.end.reason is not None
        return recovered.end.reason
    return Indexes(recovered.offset_index, recovered.time_index)


def _as_recorded(files: FilesToCompact, segment: SegmentToCompact) -> Indexes | None:
    """The segment's indexes; None where they are not, byte for byte, what the catalog says."""
    contents = []
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        content = read_file(files.task.index_directory, segment_file(segment.base_offset, suffix))
        if content is None or crc32c(content) != segment.crc32c_of(suffix):
            return None
        contents.append(content)
    return Indexes(*contents)
