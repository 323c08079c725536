"""A partition of which something may be read: its logs as they were listed, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kidxlib.build.source import PartitionDirectory
from kidxlib.log.remote.visible import VisibleOffsets
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.bounds import ListedLog
from kidxlib.reading.known_logs import KnownLog
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.file_version import FileVersion


@dataclass(frozen=True, slots=True)
class LogToRead:
    """A segment's log as it was listed, and what a catalog knows of it as it is.

    Attributes:
        visible: what consumers get of it, where its other offsets are copied in another segment, too; None for all.
    """

    listed: ListedLog
    version: FileVersion
    facts: KnownLog | None
    visible: VisibleOffsets | None = None

    def of(self, seen: Wanted) -> Wanted:
        """What is wanted of it, of what is wanted of its partition."""
        if self.visible is None:
            return seen
        first, last = self.visible.first_offset, self.visible.last_offset
        return replace(seen, first_offset=max(seen.first_offset, first), last_offset=min(seen.last_offset, last))


@dataclass(frozen=True, slots=True)
class PartitionToRead:
    """A partition as it was listed.

    Attributes:
        logs: in their order.
        limit: what happens there and later does not count: the high watermark; None where all does.
        must_reach: the log has to go on to this offset; None where nobody says so, or it is told that it does not.
        seen: what is wanted of what consumers see.
        aborted: the transactions whose records are left out.
    """

    directory: PartitionDirectory
    logs: Sequence[LogToRead]
    limit: int | None
    must_reach: int | None
    seen: Wanted
    aborted: AbortedRanges = field(default_factory=AbortedRanges)


def visible_part(directory: PartitionDirectory, base_offset: int) -> VisibleOffsets | None:
    """What consumers get of a segment of which they get but a part."""
    visible = None if directory.remote is None else directory.remote.files().visible.get(base_offset)
    return None if visible is None or visible.is_whole else visible


def has_offsets(log: LogToRead, seen: Wanted) -> bool:
    """Whether a log may hold offsets that are wanted."""
    end = log.listed.end_offset
    is_outside = log.listed.base_offset > seen.last_offset or (end is not None and end <= seen.first_offset)
    return not (seen.is_empty or is_outside)


def may_hold(log: LogToRead, seen: Wanted) -> bool:
    """Whether a log may hold records that are wanted."""
    return has_offsets(log, seen) and not (log.facts is not None and log.facts.is_without(seen))
