"""Reads the logs and objects of remote segments, compares metadata and objects with what recovery makes of the logs, or
with one another, and makes missing and broken objects anew.

The state of producers at the start of a segment is in the snapshot that was copied with the segment before it. So the
segments of a share follow one another, and shares are checked in any order. An object that is made from one log alone
is right if the log is right. An object that depends on earlier producers is right if their state at the log's first
offset is known: from offset 0 on, or by a snapshot that the log of the segment before bears out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import FAILS_CHECK, OTHER_VERSION, Finding, Verdict
from kidxlib.audit.index_files.leader_epochs import ExpectedLeaderEpochs, audit_epochs
from kidxlib.audit.index_files.snapshot import audit_snapshot
from kidxlib.audit.index_files.sparse_indexes import (
    SparseIndexEntries,
    audit_offset_index,
    audit_time_index,
    one_of_each_class,
)
from kidxlib.audit.index_files.transaction_index import (
    TransactionsOfSegment,
    abort_markers,
    audit_transaction_index,
    refused_later,
    refused_transaction_index,
)
from kidxlib.audit.segment import audit_log
from kidxlib.audit.tiered.remote_finding import (
    CONSEQUENCES_OF_MISSING,
    FETCHES_FAIL,
    METADATA,
    REPLICAS_FAIL,
    SILENT,
    broken_remote,
    safe_remote,
)
from kidxlib.audit.tiered.remote_segment import (
    SIDE_OBJECTS,
    RemoteSegmentToRead,
    SegmentContents,
    SegmentsToRemake,
    read_contents,
)
from kidxlib.errors import CheckpointError, CorruptIndexError, LogChangedError, SnapshotError, UnknownVersionError
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs, parse_epoch_entries
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.index.transaction import TransactionIndex
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition_fold import FoldedSegment, PartitionFold, ScannedSegment, StateSource
from kidxlib.recovery.past_end import past_end
from kidxlib.recovery.recover import RecoveredSegment, epoch_increases, recover
from kidxlib.storage.location import Location
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import opened_log

#: The consequence of a finding on a remote object, in place of that of the same finding on a broker's own file.
_CONSEQUENCES_FOR_REMOTE: Final[Mapping[tuple[str, str], str]] = {
    (OFFSET_INDEX_SUFFIX, FAILS_CHECK): FETCHES_FAIL,
    (TIME_INDEX_SUFFIX, FAILS_CHECK): FETCHES_FAIL,
    (TRANSACTION_INDEX_SUFFIX, FAILS_CHECK): FETCHES_FAIL,
    (TRANSACTION_INDEX_SUFFIX, OTHER_VERSION): f"from {KAFKA_4_4} on {FETCHES_FAIL}",
    (TRANSACTION_INDEX_SUFFIX, "missing"): SILENT,
    (SNAPSHOT_SUFFIX, "unreadable"): REPLICAS_FAIL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadSegment:
    """A segment whose log was read, or could not be.

    Attributes:
        contents: the bytes of its other objects.
        findings: findings on its metadata and objects, without those on its transaction index.
        made: the bytes of both indexes as recovery makes them of the log, by suffix; None if the log is not whole.
        log_bytes: the size of the log up to its last valid batch; 0 if the log could not be read.
        folded: what producers did in it.
        markers: see `TransactionsOfSegment`.
        snapshot_at: if the state of producers at its first offset comes from a snapshot, the segment at whose first
            offset that was read; every batch from there on was read. Else None.
        end_snapshot: a snapshot of the producers after it.
        is_local: whether the log was read in a log dir.
    """

    segment: RemoteSegmentToRead
    contents: SegmentContents
    findings: Sequence[Finding]
    made: Mapping[str, bytes] | None
    log_bytes: int
    folded: FoldedSegment
    markers: frozenset[tuple[int, int]]
    snapshot_at: RemoteSegmentToRead | None
    end_snapshot: bytes
    is_local: bool


def audit_remote_logs(
    segments: Sequence[RemoteSegmentToRead], use_mmap: bool
) -> Iterator[tuple[RemoteSegmentToRead, Finding]]:
    """Findings on remote segments of one partition, by their logs, in the order of their offsets."""
    logs, ongoing = _read_logs(segments, use_mmap)
    for read in logs:
        for finding in read.findings:
            yield read.segment, finding
    for read, finding in _findings_on_all_transaction_indexes(logs, ongoing):
        yield read.segment, finding


def findings_on_contents(segment: RemoteSegmentToRead, contents: SegmentContents) -> Iterator[Finding]:
    """What the bytes of a remote segment's indexes and snapshot show without its log."""
    findings_on = {
        OFFSET_INDEX_SUFFIX: _findings_on_offset_index,
        TIME_INDEX_SUFFIX: _findings_on_time_index,
        TRANSACTION_INDEX_SUFFIX: _findings_on_transaction_index,
        SNAPSHOT_SUFFIX: _findings_on_remote_snapshot,
    }
    for suffix, findings in findings_on.items():
        if (content := contents.part(suffix)) is not None:
            yield from findings(segment, content)
    yield from _findings_on_both_indexes(segment, contents)
    may_lack_part = contents.has_log and not contents.findings and not segment.layout.has_single_files
    if segment.has_aborted and may_lack_part and not contents.part(TRANSACTION_INDEX_SUFFIX):
        detail = "no object has one, and the metadata says that transactions were aborted in the segment"
        yield broken_remote(TRANSACTION_INDEX_SUFFIX, "missing", detail, segment.in_words(SILENT))


def findings_at_any_level(segment: RemoteSegmentToRead, contents: SegmentContents) -> Iterator[Finding]:
    """What the bytes of a remote segment's objects show, whether or not its log is read."""
    yield from contents.findings
    for suffix, content in contents.parts.items():
        if isinstance(content, OSError):
            yield broken_remote(suffix, "unreadable", content.strerror or str(content), "what is in it was not checked")
    if (epochs := contents.part(EPOCHS_SUFFIX)) is not None:
        yield from _findings_on_epochs(segment, epochs)


def _findings_on_epochs(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    """Compare the leader epochs that were copied with a segment with those in its metadata."""
    try:
        entries = parse_epoch_entries(content, "leader epochs")
    except CheckpointError as error:
        yield broken_remote(EPOCHS_SUFFIX, "unreadable", str(error), REPLICAS_FAIL)
        return
    copied = LeaderEpochs(entries).within(segment.start_offset, segment.end_offset + 1).entries
    if copied != segment.leader_epochs:
        detail = (
            f"{_epochs_in_words(copied)} in the segment, the metadata says {_epochs_in_words(segment.leader_epochs)}"
        )
        why = "a replica that is built from it truncates its log, or asks for records, by wrong epochs"
        yield broken_remote(EPOCHS_SUFFIX, "wrong-epochs", detail, why)


def _findings_on_remote_snapshot(_segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    try:
        read_snapshot(content)
    except SnapshotError as error:
        yield broken_remote(SNAPSHOT_SUFFIX, "unreadable", str(error), REPLICAS_FAIL)


def _findings_on_offset_index(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    index = OffsetIndex.from_bytes(content, segment.start_offset)
    relative_offsets = _relative_offsets(content, layouts.OFFSET_INDEX_ENTRY)
    if (of_other := _finding_on_entries(segment, OFFSET_INDEX_SUFFIX, index, relative_offsets)) is not None:
        yield of_other
        return
    entries = SparseIndexEntries.of(np.frombuffer(content, np.uint8), layouts.OFFSET_INDEX_ENTRY)
    offsets = entries.keys("relative_offset", segment.start_offset)
    targets = one_of_each_class(offsets, segment.start_offset, segment.end_offset)
    positions = index.lookup_many(targets)["position"]
    beyond = np.flatnonzero((positions < 0) | (positions >= segment.log_bytes))
    if len(beyond):
        target, position = targets[beyond[0]], positions[beyond[0]]
        yield broken_remote(
            OFFSET_INDEX_SUFFIX,
            "outside-log",
            f"it says byte {position} for offset {target}, and the log has {segment.log_bytes:,} bytes",
            f"fetches from offset {target} on fail, and consumers stop there",
        )


def _findings_on_time_index(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    index = TimeIndex.from_bytes(content, segment.start_offset)
    relative_offsets = _relative_offsets(content, layouts.TIME_INDEX_ENTRY)
    if (of_other := _finding_on_entries(segment, TIME_INDEX_SUFFIX, index, relative_offsets)) is not None:
        yield of_other
        return
    last = index.last_entry.timestamp if len(index) else -1
    if last >= 0 and last != segment.max_timestamp_ms:
        yield broken_remote(
            METADATA,
            "timestamps-disagree",
            f"the .timeindex ends with {last}, the metadata says that the largest is {segment.max_timestamp_ms}",
            "one is wrong, and --level full tells which; brokers search for times, and delete, by the metadata's",
        )


def _relative_offsets(content: bytes, layout: np.dtype[Any]) -> NDArray[np.int64]:
    """The relative offsets of an index's entries, without zeros at the end."""
    entries = np.frombuffer(content[: len(content) // layout.itemsize * layout.itemsize], layout)
    offsets = entries["relative_offset"].astype(np.int64)
    return offsets[: int(np.flatnonzero(offsets)[-1]) + 1] if offsets.any() else offsets[:0]


def _finding_on_entries(
    segment: RemoteSegmentToRead, suffix: str, index: OffsetIndex | TimeIndex, relative_offsets: NDArray[np.int64]
) -> Finding | None:
    """A finding on an index that a broker refuses to load, or that is another segment's."""
    try:
        index.sanity_check()
    except CorruptIndexError as error:
        detail = str(error).partition(": ")[2] or str(error)
        return broken_remote(suffix, FAILS_CHECK, detail, segment.in_words(FETCHES_FAIL))
    return _finding_on_outside_entries(segment, suffix, relative_offsets)


def _finding_on_outside_entries(
    segment: RemoteSegmentToRead, suffix: str, offsets: NDArray[np.int64]
) -> Finding | None:
    """A finding if the index has entries for offsets that the segment does not have."""
    most = segment.end_offset - segment.start_offset
    if not len(offsets) or (offsets.min() >= 0 and offsets.max() <= most):
        return None
    first, last = segment.start_offset + int(offsets.min()), segment.start_offset + int(offsets.max())
    return broken_remote(
        suffix,
        "outside-segment",
        f"it has entries for offsets {first} to {last}, and the segment has {segment.start_offset} to "
        f"{segment.end_offset}",
        "it is another segment's, or damaged: fetches and searches begin at wrong places",
    )


def _findings_on_both_indexes(segment: RemoteSegmentToRead, contents: SegmentContents) -> Iterator[Finding]:
    """Both indexes get an entry at the same batch; the time index may lack one there, and may have one more at the
    segment's end (`LogSegment.append`, `onBecomeInactiveSegment`). An index outside the segment has a finding already.
    """
    offset_index, time_index = contents.part(OFFSET_INDEX_SUFFIX), contents.part(TIME_INDEX_SUFFIX)
    if offset_index is None or time_index is None:
        return
    indexed = _relative_offsets(offset_index, layouts.OFFSET_INDEX_ENTRY)
    timed = _relative_offsets(time_index, layouts.TIME_INDEX_ENTRY)
    if _finding_on_outside_entries(segment, OFFSET_INDEX_SUFFIX, indexed) or _finding_on_outside_entries(
        segment, TIME_INDEX_SUFFIX, timed
    ):
        return
    timed = timed[:-1]
    last = int(indexed[-1]) if len(indexed) else -1
    if len(timed) and (len(timed) > len(indexed) or timed[-1] > last):
        yield safe_remote(
            OFFSET_INDEX_SUFFIX,
            "disagrees-with-time-index",
            f"{len(indexed)} entries, and the .timeindex has {len(timed)} and its last one; the last of these is for "
            f"offset {segment.start_offset + int(timed[-1])}",
            "one of the two is another segment's, or was made with another index.interval.bytes: --level full tells",
        )


def _findings_on_transaction_index(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    index = TransactionIndex.from_bytes(content, segment.start_offset, release=segment.kafka.release)
    try:
        index.sanity_check()
        entries = index.all()
    except (CorruptIndexError, UnknownVersionError) as error:
        yield _in_words_for_remote(segment, refused_transaction_index(index, error, segment.kafka))
        return
    if (later := refused_later(index, segment.kafka)) is not None:
        yield _in_words_for_remote(segment, later)
    outside = [entry for entry in entries if not segment.start_offset <= entry.last_offset <= segment.end_offset]
    if outside:
        yield broken_remote(
            TRANSACTION_INDEX_SUFFIX,
            "outside-segment",
            f"it has {outside[0]}, which does not end in offsets {segment.start_offset} to {segment.end_offset}",
            "it is another segment's, or damaged: consumers of committed records skip, or get, the wrong ones",
        )


def _epochs_in_words(entries: tuple[EpochEntry, ...]) -> str:
    return ", ".join(f"epoch {entry.epoch} from {entry.start_offset}" for entry in entries) or "none"


def _read_logs(segments: Sequence[RemoteSegmentToRead], use_mmap: bool) -> tuple[Sequence[_ReadSegment], Sequence[int]]:
    """The segments with their logs read, and the first offsets of transactions that are ongoing after the last one."""
    by_offset = {segment.start_offset: segment for segment in segments}
    snapshot_at: RemoteSegmentToRead | None = None

    def read_snapshot_at(offset: int) -> bytes | None:
        nonlocal snapshot_at
        snapshot_at = by_offset[offset]
        return None if snapshot_at.before is None else read_contents(snapshot_at.before).part(SNAPSHOT_SUFFIX)

    fold = PartitionFold(read_snapshot_at)
    read: list[_ReadSegment] = []
    for segment in segments:
        contents = read_contents(segment)
        recovered, findings, is_local = _read_log(segment, contents, use_mmap)
        findings += findings_at_any_level(segment, contents)
        scanned = ScannedSegment.of(segment.start_offset, recovered)
        folded = fold.add(scanned)
        made = None
        if recovered is not None and recovered.end.status is Status.OK:  # else what follows the damage is not known
            findings += _findings_on_metadata(segment, recovered)
            if (snapshot := contents.part(SNAPSHOT_SUFFIX)) is not None:
                is_known = fold.end_source is not StateSource.UNKNOWN
                findings.append(audit_snapshot(snapshot, fold.end_snapshot, state_is_known=is_known))
            made = {OFFSET_INDEX_SUFFIX: recovered.offset_index, TIME_INDEX_SUFFIX: recovered.time_index}
        read.append(
            _ReadSegment(
                segment=segment,
                contents=contents,
                findings=[_in_words_for_remote(segment, finding) for finding in findings],
                made=made,
                log_bytes=0 if recovered is None else recovered.end.position,
                folded=folded,
                markers=abort_markers(scanned.producer_events),
                snapshot_at=snapshot_at if folded.state_source is StateSource.SNAPSHOT else None,
                end_snapshot=fold.end_snapshot,
                is_local=is_local,
            )
        )
    return read, fold.ongoing


def _read_log(
    segment: RemoteSegmentToRead, contents: SegmentContents, use_mmap: bool
) -> tuple[RecoveredSegment | None, list[Finding], bool]:
    """The result of `_scan_log`, and whether the log was read in a log dir: only if it is as the metadata says.

    Replicas of a partition (one topic id) that have the same leader epoch at an offset have the same records up to
    there, and a follower's batches are the leader's byte by byte. So a log is the one that was copied if it begins with
    the same offset, has the same size, every checksum is right, and the last offset, the largest timestamp and the
    epochs are the same.
    """
    if segment.local_log is not None and segment.path(LOG_SUFFIX) is not None:
        recovered, findings = _scan_log(segment, segment.local_log, contents, use_mmap)
        if recovered is not None and _is_copied_log(segment, recovered, findings):
            return recovered, findings, True
    return *_scan_log(segment, segment.path(LOG_SUFFIX) if contents.has_log else None, contents, use_mmap), False


def _is_copied_log(segment: RemoteSegmentToRead, recovered: RecoveredSegment, findings: Sequence[Finding]) -> bool:
    is_whole = recovered.end.status is Status.OK and recovered.end.position == segment.log_bytes
    is_damaged = any(finding.file == LOG_SUFFIX and finding.verdict is not Verdict.WHOLE for finding in findings)
    has_same_times = recovered.facts.max_timestamp_ms == segment.max_timestamp_ms
    return (
        is_whole
        and not is_damaged
        and has_same_times
        and not any(True for _ in _findings_on_metadata(segment, recovered))
    )


def _scan_log(
    segment: RemoteSegmentToRead, path: Location | None, contents: SegmentContents, use_mmap: bool
) -> tuple[RecoveredSegment | None, list[Finding]]:
    """What recovery makes of a log (None if it cannot be read), and the findings on the log and its indexes."""
    if path is None:
        return None, []
    findings: list[Finding] = []
    try:
        with opened_log(str(path)) as opened:
            log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
            recovered = recover(log, segment.start_offset, segment.options)
            valid = opened.log(recovered.end.position, use_mmap=use_mmap)
            past = past_end(log, recovered, segment.start_offset)
            findings.append(audit_log(valid, recovered, past, segment.start_offset, active=False, deep=False))
            if recovered.end.status is Status.OK:
                findings += _findings_on_indexes(segment, valid, recovered, contents)
            opened.ensure_unchanged()
    except FileNotFoundError:
        return None, []  # the metadata, read again, will say whether it was deleted
    except (LogChangedError, OSError) as error:
        detail = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return None, [broken_remote(LOG_SUFFIX, "unreadable", detail, "neither it nor what belongs to it was checked")]
    return recovered, findings


def _findings_on_indexes(
    segment: RemoteSegmentToRead, log: LogBytes, recovered: RecoveredSegment, contents: SegmentContents
) -> Iterator[Finding]:
    """`log` ends with its last valid batch."""
    right = OffsetIndex.from_bytes(recovered.offset_index, segment.start_offset)
    content = contents.part(OFFSET_INDEX_SUFFIX)
    if content is not None:
        index = np.frombuffer(content, np.uint8)
        finding = audit_offset_index(log, recovered, segment.start_offset, index, active=False)
        if finding.verdict is not Verdict.BROKEN:
            right = OffsetIndex.from_bytes(content, segment.start_offset)
        yield finding
    content = contents.part(TIME_INDEX_SUFFIX)
    if content is not None:
        yield audit_time_index(log, recovered, right, np.frombuffer(content, np.uint8), active=False)


def _findings_on_metadata(segment: RemoteSegmentToRead, recovered: RecoveredSegment) -> Iterator[Finding]:
    """Compare the metadata of a segment with its log."""
    facts = recovered.facts
    last_offset = facts.next_offset - 1
    said = f"the metadata says that {segment.end_offset} is the last offset, the log ends with {last_offset}"
    if last_offset > segment.end_offset:
        yield broken_remote(
            METADATA,
            "wrong-end-offset",
            said,
            f"brokers look for offsets {segment.end_offset + 1} to {last_offset} in the next segment: consumers that "
            "come there do not get these records",
        )
    elif last_offset < segment.end_offset:
        yield broken_remote(
            METADATA,
            "wrong-end-offset",
            said,
            f"records of offsets {last_offset + 1} to {segment.end_offset} are missing, unless compaction has removed "
            "them",
        )
    largest = facts.max_timestamp_ms
    if largest >= 0 and largest != segment.max_timestamp_ms:
        yield broken_remote(
            METADATA,
            "wrong-largest-timestamp",
            f"the metadata says {segment.max_timestamp_ms}, the log's largest is {largest}",
            _consequence_of_timestamp(segment.max_timestamp_ms, largest),
        )
    changes = recovered.leader_epochs
    begun, all_changes = (
        tuple(EpochEntry(epoch, start) for epoch, start, _ in rows.tolist())
        for rows in (epoch_increases(changes), changes)
    )
    in_logs = ExpectedLeaderEpochs(recovered=LeaderEpochs(begun), changes=all_changes)
    finding = audit_epochs(LeaderEpochs(segment.leader_epochs), in_logs)
    if finding.verdict is Verdict.BROKEN:
        why = "brokers look for an offset by its epoch: they do not find this segment for some of its offsets"
        yield broken_remote(METADATA, finding.reason or "", finding.detail, why)


def _consequence_of_timestamp(said: int, largest: int) -> str:
    if said < largest:
        return (
            f"searches for times {said + 1} to {largest} pass the segment by, and retention deletes it "
            f"{largest - said:,} ms too early"
        )
    return (
        f"searches for times {largest + 1} to {said} end in this segment with nothing, and retention keeps it "
        f"{said - largest:,} ms too long"
    )


def _findings_on_all_transaction_indexes(
    logs: Sequence[_ReadSegment], ongoing: Sequence[int]
) -> Iterator[tuple[_ReadSegment, Finding]]:
    """Findings on transaction indexes, the last segment's first."""
    later = min(ongoing, default=None)
    for read in reversed(logs):
        if read.made is None:
            continue
        aborted = read.folded.aborted
        if not isinstance(read.contents.parts.get(TRANSACTION_INDEX_SUFFIX), OSError):
            content = read.contents.part(TRANSACTION_INDEX_SUFFIX)
            transactions = TransactionsOfSegment(
                base_offset=read.segment.start_offset,
                aborted=aborted,
                state_source=read.folded.state_source,
                markers=read.markers,
                later_first_offset=later,
                kafka=read.segment.kafka,
            )
            index = None if content is None else np.frombuffer(content, np.uint8)
            yield read, _in_words_for_remote(read.segment, audit_transaction_index(index, transactions))
        firsts = aborted["first_offset"].tolist()
        later = min(firsts if later is None else [*firsts, later], default=None)


def _in_words_for_remote(segment: RemoteSegmentToRead, finding: Finding) -> Finding:
    """The finding in the words for an object of a bucket: no broker starts from it."""
    file, reason = finding.file, finding.reason or ""
    if (file, reason) == (TIME_INDEX_SUFFIX, "wrong-largest-timestamp"):
        why = "searches begin at a place before what they look for, or at it; for the largest, brokers ask the metadata"
        return replace(finding, verdict=Verdict.SAFE, consequence=why)
    if (file, reason) == (TRANSACTION_INDEX_SUFFIX, "missing") and segment.has_aborted is False:
        why = segment.in_words(SILENT)
        return replace(
            finding,
            reason="not-in-metadata",
            detail=f"{finding.detail}; the metadata says that no transaction was aborted in the segment",
            consequence=f"no broker asks for a transaction index: {why}",
        )
    if file == LOG_SUFFIX and finding.verdict is Verdict.BROKEN and finding.consequence is None:
        why = segment.in_words("consumers stop at the damage, or get no records from there to offset {end}")
        return replace(finding, consequence=why)
    words = _CONSEQUENCES_FOR_REMOTE.get((file, reason))
    return finding if words is None else replace(finding, consequence=segment.in_words(words))


_SUFFIXES_OF_PRODUCER_STATE: Final = (TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemadeObject:
    """An object as it should be.

    Attributes:
        content: the right bytes; None if `why_not` says why they are not made.
        found: the bytes in the bucket; None if there are none.
        finding: the finding on these; None if nothing is wrong.
        is_local: whether it is made from a log in a log dir.
    """

    suffix: str
    content: bytes | None
    why_not: str | None
    found: bytes | None
    finding: Finding | None
    is_local: bool = False


def remake_objects(
    asked: SegmentsToRemake, use_mmap: bool
) -> Iterator[tuple[RemoteSegmentToRead, Sequence[RemadeObject]]]:
    """Make the side objects of remote segments anew from logs, and compare them with those in the bucket."""
    logs, ongoing = _read_logs(asked.segments, use_mmap)
    of_indexes = _findings_on_all_transaction_indexes(logs, ongoing)
    on_transactions = {read.segment.segment_id: finding for read, finding in of_indexes}
    starts = _ProducerStateStarts(use_mmap)
    for read, epochs in zip(logs, asked.epochs, strict=True):
        findings = {finding.file: finding for finding in read.findings if finding.verdict is Verdict.BROKEN}
        on_transaction_index = on_transactions.get(read.segment.segment_id)
        if on_transaction_index is not None and on_transaction_index.verdict is Verdict.BROKEN:
            findings[TRANSACTION_INDEX_SUFFIX] = on_transaction_index
        remade = _ObjectsOfSegment(read, epochs, starts, findings)
        yield read.segment, [remade.object(suffix) for suffix in SIDE_OBJECTS]


@dataclass(slots=True)
class _ProducerStateStarts:
    """Tells whether the state of producers at a segment's first offset is certain. A log that was read once for this is
    not read again.
    """

    use_mmap: bool
    _is_certain_by_segment: dict[str, bool] = field(default_factory=dict)

    def why_unknown(self, read: _ReadSegment) -> str | None:
        """Why the state is not certain; None if it is."""
        if read.folded.state_source is StateSource.LOG_START:
            return None
        if read.snapshot_at is None or read.snapshot_at.before is None:
            return "the state of producers where its log begins is not known: no snapshot of it is there, or none reads"
        before = read.snapshot_at.before
        if before.segment_id not in self._is_certain_by_segment:
            [of_before], _ = _read_logs([before], self.use_mmap)
            self._is_certain_by_segment[before.segment_id] = _why_log_unsound(of_before) is None and not any(
                finding.file == SNAPSHOT_SUFFIX and finding.verdict is Verdict.BROKEN for finding in of_before.findings
            )
        if self._is_certain_by_segment[before.segment_id]:
            return None
        return f"the log of the segment before it, {before.segment_id}, does not bear out the snapshot of that"


def _why_log_unsound(read: _ReadSegment) -> str | None:
    """Why nothing is made from a segment's log; None if the log is whole and agrees with the metadata."""
    bad = (finding for finding in read.findings if finding.verdict.severity > Verdict.SAFE.severity)
    broken_files = {finding.file: finding for finding in bad}
    if read.made is None or LOG_SUFFIX in broken_files:
        finding = broken_files.get(LOG_SUFFIX)
        said = "" if finding is None or finding.reason is None else f" ({finding.reason})"
        return f"its .log is missing, damaged or cannot be read{said}"
    if read.folded.failure is not None:
        return f"Kafka fails on its .log: {read.folded.failure.reason}"
    if METADATA in broken_files:
        return f"the metadata and its .log disagree ({broken_files[METADATA].reason})"
    if read.log_bytes != read.segment.log_bytes:
        return f"its .log has {read.log_bytes:,} bytes, the metadata says {read.segment.log_bytes:,}"
    return None


@dataclass(frozen=True)
class _ObjectsOfSegment:
    read: _ReadSegment
    epochs: tuple[EpochEntry, ...] | None
    starts: _ProducerStateStarts
    broken: Mapping[str, Finding]

    def object(self, suffix: str) -> RemadeObject:
        finding = self.broken.get(suffix)
        if finding is None and suffix not in self.read.contents.parts and suffix in CONSEQUENCES_OF_MISSING:
            finding = broken_remote(
                suffix, "missing", None, self.read.segment.in_words(CONSEQUENCES_OF_MISSING[suffix])
            )
        why_not = self._why_not_made(suffix)
        content = None if why_not is not None else self._object_content(suffix)
        return RemadeObject(
            suffix=suffix,
            content=content,
            why_not=why_not,
            found=self.read.contents.part(suffix),
            finding=finding,
            is_local=self.read.is_local,
        )

    def _object_content(self, suffix: str) -> bytes:
        if suffix == TRANSACTION_INDEX_SUFFIX:
            return self.read.folded.aborted.tobytes()
        if suffix == SNAPSHOT_SUFFIX:
            return self.read.end_snapshot
        if suffix == EPOCHS_SUFFIX:
            return LeaderEpochs(self.epochs or ()).checkpoint()
        return (self.read.made or {})[suffix]

    def _why_not_made(self, suffix: str) -> str | None:
        if self._why_log_is_unsound is not None:
            return self._why_log_is_unsound
        if isinstance(content := self.read.contents.parts.get(suffix), OSError):
            return f"what is there cannot be read: {content.strerror or content}"
        if suffix == TRANSACTION_INDEX_SUFFIX and not len(self.read.folded.aborted):
            return "nothing was aborted in its log: there should be none"
        if suffix == TRANSACTION_INDEX_SUFFIX and self.read.segment.has_aborted is False:
            return "the metadata says that nothing was aborted in it: no broker asks for one"
        if suffix in _SUFFIXES_OF_PRODUCER_STATE and (unknown := self.starts.why_unknown(self.read)) is not None:
            return unknown
        if suffix == EPOCHS_SUFFIX and not self.epochs:
            return "the metadata does not have all leader epochs before it"
        return None

    @cached_property
    def _why_log_is_unsound(self) -> str | None:
        return _why_log_unsound(self.read)
