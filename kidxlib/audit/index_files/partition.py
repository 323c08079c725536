"""Checks a partition's transaction indexes, producer snapshots and leader epochs against what its logs show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kidxlib.audit.finding import Finding, SegmentFinding, Verdict
from kidxlib.audit.index_files.cleaned import CleanedLogs
from kidxlib.audit.index_files.leader_epochs import LogEpochs, audit_epochs
from kidxlib.audit.index_files.reading import of_unreadable_file, read_index, read_snapshot_file, snapshot_files
from kidxlib.audit.index_files.snapshot import audit_snapshot
from kidxlib.audit.index_files.transaction_index import TransactionsOfSegment, audit_transaction_index
from kidxlib.errors import CheckpointError
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.checkpoint_files import LeaderEpochs
from kidxlib.recovery.partition import FoldedSegment, PartitionFold, StateSource
from kidxlib.storage.checkpoints import read_leader_epochs
from kidxlib.storage.location import Location


@dataclass(frozen=True, slots=True)
class ReadSegment:
    """What is kept of a readable segment until the partition's last segment was read."""

    base_offset: int
    folded: FoldedSegment
    markers: frozenset[tuple[int, int]]


def audit_transaction_indexes(
    read: list[ReadSegment], fold: PartitionFold, index_directory: Location
) -> Iterator[SegmentFinding]:
    later = min(fold.ongoing, default=None)
    findings = []
    for segment in reversed(read):
        aborted = segment.folded.aborted
        path = index_directory / segment_files.segment_file(segment.base_offset, segment_files.TRANSACTION_INDEX_SUFFIX)
        content = read_index(path, use_mmap=False)
        logs = TransactionsOfSegment(
            base_offset=segment.base_offset,
            aborted=aborted,
            state_source=segment.folded.state_source,
            markers=segment.markers,
            later_first_offset=later,
        )
        if isinstance(content, OSError):
            finding = of_unreadable_file(segment_files.TRANSACTION_INDEX_SUFFIX, content)
            findings.append(SegmentFinding(segment.base_offset, finding))
        elif content is not None or len(aborted):
            findings.append(SegmentFinding(segment.base_offset, audit_transaction_index(content, logs)))
        firsts = aborted["first_offset"].tolist()
        later = min(firsts if later is None else [*firsts, later], default=None)
    yield from reversed(findings)


def audit_snapshots(
    read: list[ReadSegment], fold: PartitionFold, index_directory: Location, cleaned: CleanedLogs
) -> Iterator[SegmentFinding]:
    states = {segment.base_offset: (segment.folded.snapshot, segment.folded.state_source) for segment in read}
    states.setdefault(fold.map_end_offset, (fold.end_snapshot, fold.end_source))
    for path in snapshot_files(index_directory):
        offset = segment_files.parse_snapshot(path.name)
        content = read_snapshot_file(path)
        if offset is None or content is None:
            continue
        if offset in states:
            expected, source = states[offset]
            known = source is not StateSource.UNKNOWN
            finding = audit_snapshot(content, expected, state_is_known=known, offset=offset, cleaned=cleaned)
            yield SegmentFinding(offset, finding)
        else:
            yield SegmentFinding(
                offset,
                Finding(
                    file=segment_files.SNAPSHOT_SUFFIX,
                    verdict=Verdict.SAFE,
                    reason="stray",
                    detail="no segment begins at its offset",
                    consequence="a broker that starts removes it, unless no other is of a later offset",
                ),
            )


def read_epochs(index_directory: Location) -> LeaderEpochs | CheckpointError | None:
    try:
        return read_leader_epochs(index_directory)
    except CheckpointError as error:
        return error


def audit_leader_epochs(
    read: list[ReadSegment],
    found: LeaderEpochs | CheckpointError | None,
    logs: LogEpochs,
    *,
    in_place: bool,
    remote: Finding | None = None,
) -> Iterator[SegmentFinding]:
    """
    Args:
        remote: what a leader that starts with it does to remote segments, if it does them harm.
    """
    first = read[0].base_offset if read else 0
    if isinstance(found, CheckpointError):
        without = "" if remote is None else f"; without the file {remote.consequence}"
        finding = Finding(
            file=checkpoint_files.LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="unreadable",
            detail=str(found),
            consequence=f"a broker that starts takes the log dir out of use{without}",
        )
    elif remote is not None:
        finding = remote
    else:
        # Where a broker has one for sure; in an index directory only if it was asked for.
        if found is None and not (in_place and logs.recovered.entries):
            return
        finding = audit_epochs(found, logs)
    yield SegmentFinding(first, finding)
