"""Makes missing and broken objects of remote segments anew from logs.

An object that is made from one log alone is right if the log is right. An object that depends on earlier producers is
right if their state at the log's first offset is known: from offset 0 on, or by a snapshot that the log of the segment
before bears out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.tiered.finding import METADATA, broken
from kidxlib.audit.tiered.listing import FETCHES_FAIL, REPLICAS_FAIL
from kidxlib.audit.tiered.remote_segment import SIDE_OBJECTS, RemoteSegmentToRead, SegmentsToRemake
from kidxlib.audit.tiered.segment_logs import ReadSegment, StateStart, findings_on_transaction_indexes, read_logs
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.recovery.partition_fold import StateSource

#: The objects that every segment has, and the consequence of a missing one.
_CONSEQUENCES_OF_MISSING: Final = {
    OFFSET_INDEX_SUFFIX: FETCHES_FAIL,
    TIME_INDEX_SUFFIX: FETCHES_FAIL,
    SNAPSHOT_SUFFIX: REPLICAS_FAIL,
    EPOCHS_SUFFIX: REPLICAS_FAIL,
}
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


def remake(asked: SegmentsToRemake, use_mmap: bool) -> Iterator[tuple[RemoteSegmentToRead, Sequence[RemadeObject]]]:
    """Make the side objects of segments anew, and compare them with those in the bucket."""
    logs = read_logs(asked.segments, use_mmap)
    on_transactions = {read.segment.segment_id: finding for read, finding in findings_on_transaction_indexes(logs)}
    starts = _ProducerStateStarts(use_mmap)
    for read, epochs in zip(logs.segments, asked.epochs, strict=True):
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

    def why_unknown(self, start: StateStart) -> str | None:
        """Why the state is not certain; None if it is."""
        if start.source is StateSource.LOG_START:
            return None
        if start.snapshot_at is None or start.snapshot_at.before is None:
            return "the state of producers where its log begins is not known: no snapshot of it is there, or none reads"
        before = start.snapshot_at.before
        if before.segment_id not in self._is_certain_by_segment:
            [read] = read_logs([before], self.use_mmap).segments
            self._is_certain_by_segment[before.segment_id] = _why_log_unsound(read) is None and not any(
                finding.file == SNAPSHOT_SUFFIX and finding.verdict is Verdict.BROKEN for finding in read.findings
            )
        if self._is_certain_by_segment[before.segment_id]:
            return None
        return f"the log of the segment before it, {before.segment_id}, does not bear out the snapshot of that"


def _why_log_unsound(read: ReadSegment) -> str | None:
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
    read: ReadSegment
    epochs: tuple[EpochEntry, ...] | None
    starts: _ProducerStateStarts
    broken: Mapping[str, Finding]

    def object(self, suffix: str) -> RemadeObject:
        finding = self.broken.get(suffix)
        if finding is None and suffix not in self.read.contents.parts and suffix in _CONSEQUENCES_OF_MISSING:
            finding = broken(suffix, "missing", None, self.read.segment.in_words(_CONSEQUENCES_OF_MISSING[suffix]))
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
        if suffix in _SUFFIXES_OF_PRODUCER_STATE and (unknown := self.starts.why_unknown(self.read.start)) is not None:
            return unknown
        if suffix == EPOCHS_SUFFIX and not self.epochs:
            return "the metadata does not have all leader epochs before it"
        return None

    @cached_property
    def _why_log_is_unsound(self) -> str | None:
        return _why_log_unsound(self.read)
