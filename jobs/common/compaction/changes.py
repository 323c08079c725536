"""Changes of compaction as the rows that executors send back."""

from __future__ import annotations

from typing import Any

from kidxlib.catalog.results import CompactedFile
from kidxlib.catalog.segments import IndexFacts, LogVersion
from kidxlib.compaction.change import Change


def change_row(change: Change) -> dict[str, Any]:
    """A change as a row of `COMPACTED`."""
    file, coarsened = _file(change).values(), change.coarsened
    if coarsened is None:
        return file
    indexes = IndexFacts.of_files(coarsened.interval_after, coarsened.offset_index, coarsened.time_index)
    return {**file, **indexes.values(), **LogVersion.of_file(coarsened.version).values()}


def _file(change: Change) -> CompactedFile:
    source, topic, partition = change.key
    coarsened = change.coarsened
    before, after = (coarsened.cost_before, coarsened.cost_after) if coarsened is not None else (None, None)
    return CompactedFile(
        source=source,
        topic=topic,
        partition=partition,
        base_offset=change.base_offset,
        action=change.action.value,
        outcome=change.outcome.value,
        reason=change.reason,
        path=change.place.path,
        log_dir=change.place.log_dir,
        bytes_before=change.bytes_before,
        bytes_after=change.bytes_after,
        interval_before=None if coarsened is None else coarsened.interval_before,
        mean_scan_bytes_before=None if before is None else before.mean,
        max_scan_bytes_before=None if before is None else before.most,
        mean_scan_bytes_after=None if after is None else after.mean,
        max_scan_bytes_after=None if after is None else after.most,
    )
