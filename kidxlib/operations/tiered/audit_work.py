"""The work of workers in an audit of tiered storage: they list partitions and compare them, then read segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kidxlib.audit.finding import Finding
from kidxlib.audit.tiered.finding import Level, RemoteFindingRow
from kidxlib.audit.tiered.listed_partition import RemotePartition, audit_listing
from kidxlib.audit.tiered.remote_segment import RemoteSegmentToRead, read_contents
from kidxlib.engine.work import ItemRows
from kidxlib.storage.store.requests import in_order


@dataclass(frozen=True, slots=True)
class SegmentsToRead:
    """Consecutive segments of one partition whose bytes are read."""

    segments: Sequence[RemoteSegmentToRead]
    level: Level

    @property
    def bytes(self) -> int:
        """How many bytes of logs are read."""
        return sum(each.log_bytes for each in self.segments) if self.level is Level.FULL else 0


def audit_listings(partitions: Iterable[RemotePartition]) -> Iterator[ItemRows]:
    """Rows of `REMOTE_FOUND`."""
    for asked, listed in in_order(lambda each: (each, audit_listing(each)), partitions):
        yield ItemRows(
            segments=asked.segments.num_rows,
            rows=[
                *({"finding": row.values()} for row in listed.findings),
                *({"count": row.values()} for row in listed.counts),
                *({"segment": row.values()} for row in listed.segments),
                *({"listed": row.values()} for row in listed.listed),
            ],
        )


def audit_bytes(shares: Iterable[SegmentsToRead], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `REMOTE_FOUND`."""
    for share in shares:
        rows = [{"finding": row.values()} for row in _findings(share, use_mmap)]
        yield ItemRows(segments=len(share.segments), log_bytes=share.bytes, rows=rows)


def _findings(share: SegmentsToRead, use_mmap: bool) -> Iterator[RemoteFindingRow]:
    if share.level is Level.FULL:
        from kidxlib.audit.tiered.segment_logs import audit_logs  # compiled loops, which a listing does not wait for

        found = audit_logs(share.segments, use_mmap)
    else:
        found = _of_objects(share.segments)
    for segment, finding in found:
        if not finding.verdict.is_problem_free:
            yield RemoteFindingRow.found(segment.partition, segment.key, finding, segment.object(finding.file))


def _of_objects(segments: Iterable[RemoteSegmentToRead]) -> Iterator[tuple[RemoteSegmentToRead, Finding]]:
    from kidxlib.audit.tiered.segment_logs import of_any_level, of_contents  # compiled loops, too

    def look(segment: RemoteSegmentToRead) -> list[Finding]:
        contents = read_contents(segment)
        return [*of_any_level(segment, contents), *of_contents(segment, contents)]

    for segment, findings in in_order(lambda each: (each, look(each)), segments):
        yield from ((segment, finding) for finding in findings)
