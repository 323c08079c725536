"""Which offsets of which remote segment consumers get, where leaders have copied some of them twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kidxlib.errors import RemoteLogMetadataError


@dataclass(frozen=True, slots=True)
class EpochRead:
    """Offsets of one leader epoch that brokers find in a remote segment."""

    segment_id: str
    epoch: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VisibleOffsets:
    """What consumers get of a remote segment.

    Attributes:
        first_offset, last_offset: both included.
        is_whole: it is all that brokers find in it.
    """

    first_offset: int
    last_offset: int
    is_whole: bool


def visible_offsets(reads: Sequence[EpochRead]) -> dict[str, VisibleOffsets]:
    """What consumers get of each segment of a partition; those of which they get nothing are left out.

    A broker asks its leader epoch cache for the epoch of an offset, and then for the last segment of that epoch that
    begins at or before the offset (`RemoteLogManager.fetchRemoteLogSegmentMetadata`). An epoch ends where a later one
    begins: what an earlier leader has copied beyond that was never committed.

    Args:
        reads: what brokers read of one partition, see `kidxlib.log.remote.segments.epochs_read`.

    Raises:
        RemoteLogMetadataError: what consumers get of a segment has a gap.
    """
    of_epochs: defaultdict[int, list[EpochRead]] = defaultdict(list)
    for read in reads:
        of_epochs[read.epoch].append(read)
    epochs = sorted(of_epochs)
    starts = [min(read.start_offset for read in of_epochs[epoch]) for epoch in epochs]
    # Of each epoch the first offset of all later ones.
    ends = [*list(accumulate(reversed(starts), min))[::-1][1:], None][: len(epochs)]
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for epoch, end in zip(epochs, ends, strict=True):
        ordered = sorted(of_epochs[epoch], key=lambda read: read.start_offset)
        for read, after in zip(ordered, [*ordered[1:], None], strict=True):
            limits = [limit - 1 for limit in (end, None if after is None else after.start_offset) if limit is not None]
            last = min([read.end_offset, *limits])
            if last >= read.start_offset:
                found[read.segment_id].append((read.start_offset, last))
    firsts, lasts = dict[str, int](), dict[str, int]()
    for read in reads:
        firsts[read.segment_id] = min(read.start_offset, firsts.get(read.segment_id, read.start_offset))
        lasts[read.segment_id] = max(read.end_offset, lasts.get(read.segment_id, read.end_offset))
    visible = {}
    for segment_id, pieces in found.items():
        first, last = _joined(segment_id, sorted(pieces))
        is_whole = (first, last) == (firsts[segment_id], lasts[segment_id])
        visible[segment_id] = VisibleOffsets(first, last, is_whole)
    return visible


def _joined(segment_id: str, pieces: list[tuple[int, int]]) -> tuple[int, int]:
    for (_, last), (first, _) in pairwise(pieces):
        if first != last + 1:
            raise RemoteLogMetadataError(
                f"remote segment {segment_id}: consumers get offsets up to {last} of it and from {first} on, and those "
                "between of another; kidx reads no such segment"
            )
    return pieces[0][0], pieces[-1][1]
