"""The work of workers in an audit of tiered storage: they list and compare partitions, then read segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kidxlib.audit.finding import Finding
from kidxlib.audit.tiered.listing import RemotePartition, audit_listing
from kidxlib.audit.tiered.remote_finding import AuditLevel, RemoteFindingRow
from kidxlib.audit.tiered.remote_segment import RemoteSegmentToRead, read_contents
from kidxlib.engine.work import ItemRows
from kidxlib.storage.store.requests import in_order


@dataclass(frozen=True, slots=True)
class SegmentsToRead:
    """Consecutive segments of one partition whose bytes are read."""

    segments: Sequence[RemoteSegmentToRead]
    level: AuditLevel

    @property
    def bytes(self) -> int:
        """How many bytes of logs are read."""
        return sum(segment.log_bytes for segment in self.segments) if self.level is AuditLevel.FULL else 0


def audit_listings(partitions: Iterable[RemotePartition]) -> Iterator[ItemRows]:
    """In a worker of an audit: list partitions of a bucket, compare them with their metadata, and give what was found
    and counted as rows of `REMOTE_FOUND`.
    """
    for partition, listed in in_order(lambda partition: (partition, audit_listing(partition)), partitions):
        yield ItemRows(
            segments=partition.segments.num_rows,
            rows=[
                *({"finding": row.values()} for row in listed.findings),
                *({"count": row.values()} for row in listed.counts),
                *({"segment": row.values()} for row in listed.segments),
                *({"listed": row.values()} for row in listed.listed),
            ],
        )


def audit_bytes(shares: Iterable[SegmentsToRead], use_mmap: bool) -> Iterator[ItemRows]:
    """Read remote segments in a worker of an audit, and give what is wrong with them as rows of `REMOTE_FOUND`."""
    for share in shares:
        rows = [{"finding": row.values()} for row in _problems_in_share(share, use_mmap)]
        yield ItemRows(segments=len(share.segments), log_bytes=share.bytes, rows=rows)


def _problems_in_share(share: SegmentsToRead, use_mmap: bool) -> Iterator[RemoteFindingRow]:
    if share.level is AuditLevel.FULL:
        from kidxlib.audit.tiered.segment_logs import audit_remote_logs  # compiled, which a listing does not wait for

        findings = audit_remote_logs(share.segments, use_mmap)
    else:
        findings = _findings_on_objects(share.segments)
    for segment, finding in findings:
        if not finding.verdict.is_problem_free:
            yield RemoteFindingRow.found(segment.partition, segment.key, finding, segment.object(finding.file))


def _findings_on_objects(segments: Iterable[RemoteSegmentToRead]) -> Iterator[tuple[RemoteSegmentToRead, Finding]]:
    from kidxlib.audit.tiered.segment_logs import findings_at_any_level, findings_on_contents  # compiled loops, too

    def look(segment: RemoteSegmentToRead) -> list[Finding]:
        contents = read_contents(segment)
        return [*findings_at_any_level(segment, contents), *findings_on_contents(segment, contents)]

    for segment, findings in in_order(lambda segment: (segment, look(segment)), segments):
        yield from ((segment, finding) for finding in findings)
