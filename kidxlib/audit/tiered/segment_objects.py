"""What the bytes of a remote segment's parts show without its log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kidxlib.audit.finding import Finding
from kidxlib.audit.index_files.lookups import Entries, one_of_each_class
from kidxlib.audit.tiered.contents import Contents
from kidxlib.audit.tiered.finding import METADATA, broken
from kidxlib.audit.tiered.listing import FETCHES_FAIL, REPLICAS_FAIL, SILENT
from kidxlib.audit.tiered.segment import RemoteSegmentToRead
from kidxlib.errors import CheckpointError, CorruptIndexError, SnapshotError, UnknownVersionError
from kidxlib.format import layouts as formats
from kidxlib.format.leader_epochs import EpochEntry, LeaderEpochs
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
    entries = Entries.of(np.frombuffer(content, np.uint8), formats.OFFSET_INDEX_ENTRY)
    offsets = entries.keys("relative_offset", segment.start_offset)
    targets = one_of_each_class(offsets, segment.start_offset, segment.end_offset)
    positions = index.lookup_many(targets)["position"]
    outside = np.flatnonzero((positions < 0) | (positions >= segment.log_bytes))
    if len(outside):
        target, position = targets[outside[0]], positions[outside[0]]
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
    last = index.last_entry.timestamp if len(index) else -1
    if last >= 0 and last != segment.max_timestamp_ms:
        yield broken(
            METADATA,
            "timestamps-disagree",
            f"the .timeindex ends with {last}, the metadata says that the largest is {segment.max_timestamp_ms}",
            "one is wrong, and --level full tells which; brokers search for times, and delete, by the metadata's",
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
