"""A partition's side files, each held to what recovery makes of the logs; nothing is written anywhere.

Segments are read one after the other, as a build reads them. What depends on later segments (whether a transaction
that was open at a segment's end was aborted) is known at the end, so findings come then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib import names
from kidxlib.abstract_index import map_file
from kidxlib.audit import Finding, Verdict, audit_offset_index, audit_time_index
from kidxlib.audit_state import audit_epochs, audit_snapshot
from kidxlib.audit_transactions import TransactionsOfSegment, audit_transaction_index, markers_in
from kidxlib.fold import FoldedSegment, PartitionFold, ScannedSegment, StateSource
from kidxlib.log_dir import CheckpointError, read_leader_epochs
from kidxlib.offset_index import OffsetIndex
from kidxlib.recover import RecoveredSegment, RecoverOptions, Status, recover
from kidxlib.storage import LogChangedError, LogFile

#: Snapshots are small; one that is larger is none.
_SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentFinding:
    """A finding, and the segment whose file it is about; of files of the partition the first base offset."""

    base_offset: int
    finding: Finding


@dataclass(frozen=True, slots=True)
class _Read:
    """What is kept until the end of a segment that could be read."""

    base_offset: int
    folded: FoldedSegment
    markers: frozenset[tuple[int, int]]


def verify_partition(
    folder: Path, index_folder: Path, base_offsets: list[int], options: RecoverOptions
) -> Iterator[SegmentFinding]:
    """Findings on all side files of a partition.

    Args:
        folder: where its logs are, and snapshots of the broker's.
        index_folder: where its indexes are; may be the same.
        base_offsets: of its segments, ascending.
        options: what indexes are to be like.

    """
    fold = PartitionFold(lambda offset: _content(folder / names.segment_file(offset, names.SNAPSHOT_SUFFIX)))
    read: list[_Read] = []
    for base_offset in base_offsets:
        log = LogFile(str(folder / names.segment_file(base_offset, names.LOG_SUFFIX)))
        recovered = None
        with contextlib.closing(log):
            try:
                recovered = recover(log, base_offset, options)
                log.keep_valid(recovered.end.position)
                yield from _indexes(log, recovered, base_offset, index_folder, base_offset == base_offsets[-1])
            except (OSError, LogChangedError) as error:
                yield SegmentFinding(base_offset, _of_unreadable(error))
        folded = fold.add(ScannedSegment.of(base_offset, recovered))
        if recovered is not None and recovered.end.status is not Status.QUARANTINED:
            read.append(_Read(base_offset, folded, markers_in(recovered.producer_events)))
    yield from _transactions(read, fold, index_folder)
    yield from _snapshots(read, fold, index_folder)
    yield from _epochs(read, fold, index_folder)


def _indexes(
    log: LogFile, recovered: RecoveredSegment, base_offset: int, index_folder: Path, active: bool
) -> Iterator[SegmentFinding]:
    offset_content, time_content = (
        _mapped(index_folder / names.segment_file(base_offset, suffix))
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
    )
    if recovered.end.status is Status.QUARANTINED:
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
            yield SegmentFinding(base_offset, _of_quarantined(suffix, recovered))
        return
    finding = audit_offset_index(log, recovered, base_offset, offset_content, active=active)
    yield SegmentFinding(base_offset, finding)
    right = OffsetIndex.from_bytes(recovered.offset_index, base_offset)
    if finding.verdict is not Verdict.BROKEN and offset_content is not None:
        right = OffsetIndex.from_bytes(offset_content, base_offset)
    rebuilt = offset_content is None
    finding = audit_time_index(log, recovered, right, time_content, active=active, rebuilt=rebuilt)
    yield SegmentFinding(base_offset, finding)


def _of_unreadable(error: OSError | LogChangedError) -> Finding:
    return Finding(
        file=names.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason="changed" if isinstance(error, LogChangedError) else "unreadable",
        detail=str(error),
        consequence="its side files were not looked at",
    )


def _of_quarantined(suffix: str, recovered: RecoveredSegment) -> Finding:
    end = recovered.end
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason=f"log-{end.reason}",
        detail=f"byte {end.position} of the log: {end.detail}",
        consequence="a broker that has to recover the segment fails",
    )


def _transactions(read: list[_Read], fold: PartitionFold, index_folder: Path) -> Iterator[SegmentFinding]:
    later = min(fold.undecided, default=None)
    findings = []
    for segment in reversed(read):
        aborted = segment.folded.aborted
        content = _mapped(index_folder / names.segment_file(segment.base_offset, names.TRANSACTION_INDEX_SUFFIX))
        logs = TransactionsOfSegment(
            base_offset=segment.base_offset,
            aborted=aborted,
            state_source=segment.folded.state_source,
            markers=segment.markers,
            later_first_offset=later,
        )
        if content is not None or len(aborted):
            findings.append(SegmentFinding(segment.base_offset, audit_transaction_index(content, logs)))
        firsts = aborted["first_offset"].tolist()
        later = min(firsts if later is None else [*firsts, later], default=None)
    yield from reversed(findings)


def _snapshots(read: list[_Read], fold: PartitionFold, index_folder: Path) -> Iterator[SegmentFinding]:
    states = {segment.base_offset: (segment.folded.snapshot, segment.folded.state_source) for segment in read}
    states.setdefault(fold.map_end_offset, (fold.end_snapshot, fold.end_source))
    for path in sorted(index_folder.glob(f"*{names.SNAPSHOT_SUFFIX}")):
        offset = names.parse_snapshot(path.name)
        content = _content(path)
        if offset is None or content is None:
            continue
        if offset in states:
            expected, source = states[offset]
            known = source is not StateSource.UNKNOWN
            yield SegmentFinding(offset, audit_snapshot(content, expected, state_is_known=known))
        else:
            yield SegmentFinding(
                offset,
                Finding(
                    file=names.SNAPSHOT_SUFFIX,
                    verdict=Verdict.SAFE,
                    reason="stray",
                    detail="no segment begins at its offset",
                    consequence="a broker that starts removes it, unless it is the last",
                ),
            )


def _epochs(read: list[_Read], fold: PartitionFold, index_folder: Path) -> Iterator[SegmentFinding]:
    first = read[0].base_offset if read else 0
    try:
        found = read_leader_epochs(index_folder)
    except CheckpointError as error:
        finding = Finding(
            file=names.LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="unreadable",
            detail=str(error),
            consequence="a broker that starts takes the log dir out of use",
        )
    else:
        if found is None and not fold.leader_epochs.entries:
            return
        finding = audit_epochs(found, fold.leader_epochs, all_are_known=fold.epochs_are_known)
    yield SegmentFinding(first, finding)


def _mapped(path: Path) -> NDArray[np.uint8] | None:
    return map_file(str(path)) if path.exists() else None


def _content(path: Path) -> bytes | None:
    if not path.is_file() or path.stat().st_size > _SNAPSHOT_BYTES_MAX:
        return None
    return path.read_bytes()
