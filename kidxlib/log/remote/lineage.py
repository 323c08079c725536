"""Which remote segments a broker reads at which offsets, by leader epoch.

Source: `RemoteLogLeaderEpochState`.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class EpochLineage:
    """The segments of one leader epoch of a partition.

    Attributes:
        starts: the first offsets of the epoch in segments whose copying has ended and that no other has replaced,
            ascending.
        ids: the segment of each of these, by that offset.
        highest_offset: the highest that was copied in this epoch; None where none was.
    """

    __slots__ = ("highest_offset", "ids", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ids: dict[int, str] = {}
        self.highest_offset: int | None = None

    def copied(self, start_offset: int, segment_id: str, end_offset: int) -> None:
        """A segment was copied. It takes the place of those that begin at or after its start and that it reaches beyond
        (`handleSegmentWithCopySegmentFinishedState`).

        Args:
            start_offset, end_offset: of the epoch in the segment, both included.
        """
        reaches = self.highest_offset is None or self.highest_offset <= end_offset
        while reaches and self.starts and self.starts[-1] >= start_offset:
            del self.ids[self.starts.pop()]
        if start_offset not in self.ids:
            insort(self.starts, start_offset)
        self.ids[start_offset] = segment_id
        if self.highest_offset is None or end_offset > self.highest_offset:
            self.highest_offset = end_offset

    def deleting(self, start_offset: int, segment_id: str) -> None:
        """A segment is being deleted (`handleSegmentWithDeleteSegmentStartedState`)."""
        if self.ids.get(start_offset) == segment_id:
            del self.ids[start_offset]
            self.starts.pop(bisect_left(self.starts, start_offset))
