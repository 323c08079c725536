"""What the bytes of a remote segment's parts show without its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding
from kidxlib.audit.index_files.lookups import Entries, one_of_each_class
from kidxlib.audit.tiered.contents import Contents
from kidxlib.audit.tiered.finding import METADATA, broken, safe
from kidxlib.audit.tiered.listing import FETCHES_FAIL, REPLICAS_FAIL, SILENT
from kidxlib.audit.tiered.segment import RemoteSegmentToRead
from kidxlib.errors import CheckpointError, CorruptIndexError, SnapshotError, UnknownVersionError
from kidxlib.format import layouts as formats
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.index.transaction import TransactionIndex
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.storage.checkpoints import parse_epoch_entries


def of_contents(segment: RemoteSegmentToRead, contents: Contents) -> Iterator[Finding]:
    """What the bytes of indexes, snapshots and leader epochs show, without the log."""
    looks = {
        OFFSET_INDEX_SUFFIX: _of_offset_index,
        TIME_INDEX_SUFFIX: _of_time_index,
        TRANSACTION_INDEX_SUFFIX: _of_transaction_index,
        SNAPSHOT_SUFFIX: _of_snapshot,
    }
    for suffix, look in looks.items():
        if (content := contents.part(suffix)) is not None:
            yield from look(segment, content)
    yield from _of_both_indexes(segment, contents)
    if segment.has_aborted and contents.has_log and not contents.findings and not segment.layout.has_single_files:
        yield from _of_no_transaction_index(segment, contents)


def of_any_level(segment: RemoteSegmentToRead, contents: Contents) -> Iterator[Finding]:
    """What the bytes show that no log says better."""
    yield from contents.findings
    for suffix, content in contents.parts.items():
        if isinstance(content, OSError):
            yield broken(suffix, "unreadable", content.strerror or str(content), "what is in it was not checked")
    if (epochs := contents.part(EPOCHS_SUFFIX)) is not None:
        yield from of_epochs(segment, epochs)


def _of_no_transaction_index(segment: RemoteSegmentToRead, contents: Contents) -> Iterator[Finding]:
    if not contents.part(TRANSACTION_INDEX_SUFFIX):
        detail = "no object has one, and the metadata says that transactions were aborted in the segment"
        yield broken(TRANSACTION_INDEX_SUFFIX, "missing", detail, segment.in_words(SILENT))


def of_epochs(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    """The leader epochs that were copied with a segment, against those that its metadata has."""
    try:
        entries = parse_epoch_entries(content, "leader epochs")
    except CheckpointError as error:
        yield broken(EPOCHS_SUFFIX, "unreadable", str(error), REPLICAS_FAIL)
        return
    copied = LeaderEpochs(entries).within(segment.start_offset, segment.end_offset + 1).entries
    if copied != segment.leader_epochs:
        detail = f"{_shown(copied)} in the segment, the metadata says {_shown(segment.leader_epochs)}"
        why = "a replica that is built from it truncates its log, or asks for records, by wrong epochs"
        yield broken(EPOCHS_SUFFIX, "wrong-epochs", detail, why)


def _of_snapshot(_segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    try:
        read_snapshot(content)
    except SnapshotError as error:
        yield broken(SNAPSHOT_SUFFIX, "unreadable", str(error), REPLICAS_FAIL)


def _of_offset_index(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    index = OffsetIndex.from_bytes(content, segment.start_offset)
    try:
        index.sanity_check()
    except CorruptIndexError as error:
        yield _refused(segment, OFFSET_INDEX_SUFFIX, error)
        return
    if (outside := _outside(segment, OFFSET_INDEX_SUFFIX, _offsets(content, formats.OFFSET_INDEX_ENTRY))) is not None:
        yield outside
        return
    entries = Entries.of(np.frombuffer(content, np.uint8), formats.OFFSET_INDEX_ENTRY)
    offsets = entries.keys("relative_offset", segment.start_offset)
    targets = one_of_each_class(offsets, segment.start_offset, segment.end_offset)
    positions = index.lookup_many(targets)["position"]
    beyond = np.flatnonzero((positions < 0) | (positions >= segment.log_bytes))
    if len(beyond):
        target, position = targets[beyond[0]], positions[beyond[0]]
        yield broken(
            OFFSET_INDEX_SUFFIX,
            "outside-log",
            f"it says byte {position} for offset {target}, and the log has {segment.log_bytes:,} bytes",
            f"fetches from offset {target} on fail, and consumers stop there",
        )


def _of_time_index(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    index = TimeIndex.from_bytes(content, segment.start_offset)
    try:
        index.sanity_check()
    except CorruptIndexError as error:
        yield _refused(segment, TIME_INDEX_SUFFIX, error)
        return
    if (outside := _outside(segment, TIME_INDEX_SUFFIX, _offsets(content, formats.TIME_INDEX_ENTRY))) is not None:
        yield outside
        return
    last = index.last_entry.timestamp if len(index) else -1
    if last >= 0 and last != segment.max_timestamp_ms:
        yield broken(
            METADATA,
            "timestamps-disagree",
            f"the .timeindex ends with {last}, the metadata says that the largest is {segment.max_timestamp_ms}",
            "one is wrong, and --level full tells which; brokers search for times, and delete, by the metadata's",
        )


def _offsets(content: bytes, layout: np.dtype[Any]) -> NDArray[np.int64]:
    """The offsets of an index's entries, from the base offset on, without zeros at its end."""
    entries = np.frombuffer(content[: len(content) // layout.itemsize * layout.itemsize], layout)
    offsets = entries["relative_offset"].astype(np.int64)
    return offsets[: int(np.flatnonzero(offsets)[-1]) + 1] if offsets.any() else offsets[:0]


def _outside(segment: RemoteSegmentToRead, suffix: str, offsets: NDArray[np.int64]) -> Finding | None:
    """The finding on an index whose entries are for offsets that the segment does not have."""
    most = segment.end_offset - segment.start_offset
    if not len(offsets) or (offsets.min() >= 0 and offsets.max() <= most):
        return None
    first, last = segment.start_offset + int(offsets.min()), segment.start_offset + int(offsets.max())
    return broken(
        suffix,
        "outside-segment",
        f"it has entries for offsets {first} to {last}, and the segment has {segment.start_offset} to "
        f"{segment.end_offset}",
        "it is another segment's, or damaged: fetches and searches begin at wrong places",
    )


def _of_both_indexes(segment: RemoteSegmentToRead, contents: Contents) -> Iterator[Finding]:
    """Both indexes get an entry at the same batch, the time index perhaps none there, and perhaps one more at the
    segment's end (`LogSegment.append`, `onBecomeInactiveSegment`). An index outside the segment has a finding already.
    """
    of_offsets, of_times = contents.part(OFFSET_INDEX_SUFFIX), contents.part(TIME_INDEX_SUFFIX)
    if of_offsets is None or of_times is None:
        return
    indexed, timed = _offsets(of_offsets, formats.OFFSET_INDEX_ENTRY), _offsets(of_times, formats.TIME_INDEX_ENTRY)
    if _outside(segment, OFFSET_INDEX_SUFFIX, indexed) or _outside(segment, TIME_INDEX_SUFFIX, timed):
        return
    timed = timed[:-1]
    last = int(indexed[-1]) if len(indexed) else -1
    if len(timed) and (len(timed) > len(indexed) or timed[-1] > last):
        yield safe(
            OFFSET_INDEX_SUFFIX,
            "disagrees-with-time-index",
            f"{len(indexed)} entries, and the .timeindex has {len(timed)} and its last one; the last of these is for "
            f"offset {segment.start_offset + int(timed[-1])}",
            "one of the two is another segment's, or was made with another index.interval.bytes: --level full tells",
        )


def _of_transaction_index(segment: RemoteSegmentToRead, content: bytes) -> Iterator[Finding]:
    index = TransactionIndex.from_bytes(content, segment.start_offset)
    try:
        index.sanity_check()
        entries = index.all()
    except (CorruptIndexError, UnknownVersionError) as error:
        yield _refused(segment, TRANSACTION_INDEX_SUFFIX, error)
        return
    outside = [each for each in entries if not segment.start_offset <= each.last_offset <= segment.end_offset]
    if outside:
        yield broken(
            TRANSACTION_INDEX_SUFFIX,
            "outside-segment",
            f"it has {outside[0]}, which does not end in offsets {segment.start_offset} to {segment.end_offset}",
            "it is another segment's, or damaged: consumers of committed records skip, or get, the wrong ones",
        )


def _refused(segment: RemoteSegmentToRead, suffix: str, error: Exception) -> Finding:
    """The finding on an index that a broker refuses when it fetches it."""
    detail = str(error).partition(": ")[2] or str(error)
    return broken(suffix, "fails-sanity-check", detail, segment.in_words(FETCHES_FAIL))


def _shown(entries: tuple[EpochEntry, ...]) -> str:
    return ", ".join(f"epoch {entry.epoch} from {entry.start_offset}" for entry in entries) or "none"
