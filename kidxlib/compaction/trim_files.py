"""Trims the index files of a segment that end in zeros, as a killed broker leaves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.compaction.change import NOT_LOCKED, Change, ChangeAction, ChangeOutcome
from kidxlib.compaction.partition_files import FilesToCompact, why_not_read
from kidxlib.compaction.task import Mode
from kidxlib.compaction.trim import Trimmed, ends_in_zeros, trim_offset_index, trim_time_index
from kidxlib.errors import LogChangedError
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.recovery.coarsen import from_headers
from kidxlib.storage.directory import Directory, read_end, read_file
from kidxlib.storage.log_bytes import LogBytes


def trim_segment(
    files: FilesToCompact, segment: SegmentToCompact, directories: Sequence[Directory]
) -> Iterator[Change]:
    """Truncate the zeros at the ends of a segment's index files in some directories."""
    for directory in directories:
        padded = {
            suffix: name
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            if (name := segment_file(segment.base_offset, suffix)) in files.listed[directory]
            and ends_in_zeros(read_end(directory, name, TimeIndex.entry_bytes) or b"", suffix)
        }
        if not padded:
            continue
        owner = None
        try:
            with files.opened(segment) as (log, owner):
                trimmed = list(_trimmed(segment, log, directory, padded))
        except (OSError, LogChangedError) as error:
            trimmed = [Trimmed(suffix, None, why_not_read(error)) for suffix in padded]
        for each in trimmed:
            name = padded[each.suffix]
            place = files.place(directory, name)
            before = files.listed[directory][name].st_size
            content, reason, outcome = each.content, each.reason, ChangeOutcome.PLANNED
            if content is not None and len(content) == before:
                continue  # the entry of 1970 is all that it has
            if content is not None and not files.may_write(place):
                content, reason = None, NOT_LOCKED
            if content is None:
                outcome = ChangeOutcome.KEPT
            elif files.mode is Mode.APPLY:
                files.publisher.stage(directory, name, content, files.owner_in(directory, owner))
                outcome = ChangeOutcome.WRITTEN
            yield Change(
                key=files.task.key,
                base_offset=segment.base_offset,
                action=ChangeAction.TRIM,
                outcome=outcome,
                place=place,
                reason=reason,
                bytes_before=before,
                bytes_after=before if content is None else len(content),
            )


def _trimmed(
    segment: SegmentToCompact, log: LogBytes, directory: Directory, padded: dict[str, str]
) -> Iterator[Trimmed]:
    base_offset = segment.base_offset
    recovered = from_headers(log, base_offset, segment.options)
    contents = {
        suffix: read_file(directory, segment_file(base_offset, suffix))
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    }
    right = contents[OFFSET_INDEX_SUFFIX]
    if OFFSET_INDEX_SUFFIX in padded and right is not None:
        trimmed = trim_offset_index(log, recovered, base_offset, right)
        right = trimmed.content
        yield trimmed
    if TIME_INDEX_SUFFIX in padded and (content := contents[TIME_INDEX_SUFFIX]) is not None:
        offset_index = OffsetIndex.from_bytes(recovered.offset_index if right is None else right, base_offset)
        yield trim_time_index(log, recovered, offset_index, content)
