"""The remote segments of a partition by its objects alone, where the metadata of them is lost.

What `RemoteLogManager.copyLogSegment` writes of a segment into its metadata is read again: from its indexes and the end
of its log, or from the manifest of Aiven's plugin. Its log is not read as a whole.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kidxlib.errors import (
    CheckpointError,
    CorruptIndexError,
    IndexSizeError,
    MalformedRecordsError,
    RemoteLogMetadataError,
    describe_error,
)
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs, parse_epoch_entries
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.remote.layout import (
    EPOCHS_SUFFIX,
    INDEXES_SUFFIX,
    MANIFEST_SUFFIX,
    ObjectLayout,
    ensure_manifest_of_partition,
    ensure_manifest_of_segment,
    list_objects,
    object_name,
    read_manifest,
)
from kidxlib.log.remote.metadata_topic import MetadataRecord
from kidxlib.messages.remote_log_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
)
from kidxlib.records.batch_headers import batches
from kidxlib.storage.location import Location
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.store.requests import in_order

#: The end of a log is read in pieces of this size.
_END_BYTES: Final = 64 * 1024
#: What is wrong with the objects of one segment, and with no others.
_NOT_READ: Final = (CheckpointError, CorruptIndexError, IndexSizeError, MalformedRecordsError, RemoteLogMetadataError)
#: Rows of `list_objects`, by suffix.
_Objects: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedPartition:
    """A partition's directory in a bucket.

    Attributes:
        segments: those that a broker can read, in the order in which brokers are to learn of them: by their ends, of
            equal ends the longest last. So one that holds all offsets of others replaces them
            (`RemoteLogLeaderEpochState.handleSegmentWithCopySegmentFinishedState`).
        unusable: the others, a line each.
        newest_ms: when the newest object was written, in ms since the epoch; None: there is none.
    """

    partition: TopicIdPartition
    segments: Sequence[RemoteSegment]
    unusable: Sequence[str]
    newest_ms: int | None

    def records(self) -> Iterator[RemoteSegment | RemoteSegmentUpdate]:
        """What `__remote_log_metadata` is to have of the partition: each segment's copying has begun, and ended."""
        for segment in self.segments:
            yield segment
            yield RemoteSegmentUpdate(
                segment=segment.segment,
                custom_metadata=segment.custom_metadata,
                state=SegmentState.COPY_SEGMENT_FINISHED,
                event_timestamp_ms=segment.event_timestamp_ms,
                broker_id=segment.broker_id,
            )


def as_read(records: Iterable[RemoteSegment | RemoteSegmentUpdate]) -> Iterator[MetadataRecord]:
    """The records of uploaded segments, as they are read back from a metadata partition."""
    for offset, record in enumerate(records):
        yield MetadataRecord(offset, record.event_timestamp_ms, record)


def read_uploaded(
    layout: ObjectLayout, partition: TopicIdPartition, directory: Location, broker_id: int
) -> UploadedPartition:
    """Read what a partition's objects say of its segments. Of each, some small objects and the end of the log are read.

    Args:
        broker_id: the broker that is to have copied the segments, as the objects do not tell.

    Raises:
        OSError: the directory cannot be listed, or an object cannot be read.
        UsageError: a manifest is another partition's.
    """
    by_segment: defaultdict[tuple[int, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in list_objects(directory, layout.suffixes).objects.to_pylist():
        by_segment[row["start_offset"], row["segment_id"]][row["suffix"]] = row

    def read(item: tuple[tuple[int, str], _Objects]) -> RemoteSegment | str:
        (start_offset, segment_id), objects = item
        place = directory / object_name(start_offset, segment_id, "")
        try:
            segment = _segment(layout, directory, RemoteSegmentId(partition, segment_id), start_offset, objects)
        except (FileNotFoundError, *_NOT_READ) as error:
            return f"{place}: {describe_error(error)}"
        return segment if isinstance(segment, str) else replace(segment, broker_id=broker_id)

    found = list(in_order(read, sorted(by_segment.items())))
    segments = [segment for segment in found if not isinstance(segment, str)]
    return UploadedPartition(
        partition=partition,
        segments=sorted(
            segments,
            key=lambda each: (each.end_offset, -each.start_offset, each.event_timestamp_ms, each.segment.id),
        ),
        unusable=[line for line in found if isinstance(line, str)],
        newest_ms=max((row["written_ms"] for rows in by_segment.values() for row in rows.values()), default=None),
    )


def _segment(
    layout: ObjectLayout, directory: Location, segment: RemoteSegmentId, start_offset: int, objects: _Objects
) -> RemoteSegment | str:
    """A segment by its objects, or why brokers cannot read it."""
    if missing := [suffix for suffix in layout.required if suffix not in objects]:
        return f"{directory / object_name(start_offset, segment.id, missing[0])}: no such object"
    places = {suffix: directory / row["name"] for suffix, row in objects.items()}
    written_ms = max(row["written_ms"] for row in objects.values())
    if layout.has_single_files:
        copied = _by_files(segment, start_offset, places, objects[LOG_SUFFIX]["bytes"])
    else:
        copied = _by_manifest(segment, places, objects)
    if not isinstance(copied, RemoteSegment):
        return copied
    if copied.start_offset != start_offset or copied.end_offset < start_offset or not copied.leader_epochs:
        ends = f"{copied.start_offset} to {copied.end_offset}, leader epochs {dict(copied.leader_epochs)}"
        return f"{places[LOG_SUFFIX]}: offsets {ends}, which is no segment from offset {start_offset} on"
    return replace(copied, event_timestamp_ms=written_ms)


def _by_files(
    segment: RemoteSegmentId, start_offset: int, places: Mapping[str, Location], log_bytes: int
) -> RemoteSegment | str:
    index = OffsetIndex.from_bytes(
        places[OFFSET_INDEX_SUFFIX].read_bytes(), start_offset, name=str(places[OFFSET_INDEX_SUFFIX])
    )
    times = TimeIndex.from_bytes(
        places[TIME_INDEX_SUFFIX].read_bytes(), start_offset, name=str(places[TIME_INDEX_SUFFIX])
    )
    index.sanity_check()
    times.sanity_check()
    entry = index.last_entry
    largest, end, position = times.last_entry.timestamp, -1, entry.position
    with contextlib.closing(LogFile(str(places[LOG_SUFFIX]), _END_BYTES, log_bytes)) as log:
        for batch in batches(log, entry.position):
            largest, end, position = max(largest, batch.max_timestamp), batch.last_offset, batch.next_position
    if position != log_bytes or end < entry.offset:
        return (
            f"{places[LOG_SUFFIX]}: its index leads to offset {entry.offset}, and its batches to offset {end} at byte "
            f"{position} of {log_bytes}: it is not whole"
        )
    epochs = parse_epoch_entries(places[EPOCHS_SUFFIX].read_bytes(), str(places[EPOCHS_SUFFIX]))
    return RemoteSegment(
        segment=segment,
        start_offset=start_offset,
        end_offset=end,
        max_timestamp_ms=largest,
        broker_id=0,
        event_timestamp_ms=0,
        segment_bytes=log_bytes,
        leader_epochs=_own(epochs, start_offset, end),
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        transaction_index_empty=TRANSACTION_INDEX_SUFFIX not in places,
    )


def _own(epochs: Iterable[EpochEntry], start_offset: int, end_offset: int) -> dict[int, int]:
    """The epochs of a segment's own offsets (`RemoteLogManager.getLeaderEpochEntries`)."""
    within = LeaderEpochs(epochs).within(start_offset, end_offset + 1)
    return {entry.epoch: entry.start_offset for entry in within.entries}


def _by_manifest(segment: RemoteSegmentId, places: Mapping[str, Location], objects: _Objects) -> RemoteSegment | str:
    manifest = read_manifest(places[MANIFEST_SUFFIX].read_bytes())
    ensure_manifest_of_partition(manifest, segment.partition, places[MANIFEST_SUFFIX])
    ensure_manifest_of_segment(manifest, segment.id)
    if not manifest.is_plain:
        return f"{places[MANIFEST_SUFFIX]}: its objects are compressed or encrypted, and kidx cannot read them"
    of_indexes = max((position + size for position, size in manifest.indexes.values()), default=0)
    for suffix, expected in ((LOG_SUFFIX, manifest.log_bytes), (INDEXES_SUFFIX, of_indexes)):
        if objects[suffix]["bytes"] != expected:
            return f"{places[suffix]}: {objects[suffix]['bytes']} bytes, the manifest says {expected}"
    return RemoteSegment(
        segment=segment,
        start_offset=manifest.start_offset,
        end_offset=manifest.end_offset,
        max_timestamp_ms=manifest.max_timestamp_ms,
        broker_id=0,
        event_timestamp_ms=0,
        segment_bytes=manifest.log_bytes,
        leader_epochs={entry.epoch: entry.start_offset for entry in manifest.leader_epochs},
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_STARTED,
        transaction_index_empty=TRANSACTION_INDEX_SUFFIX not in manifest.indexes,
    )


def read_uploaded_part(
    layout: ObjectLayout, directory: Location, start_offset: int, segment_id: str, suffix: str
) -> bytes:
    """The bytes of a small part of a segment, in whichever object it is.

    Raises:
        OSError: it is not there, or cannot be read.
        RemoteLogMetadataError: the manifest cannot be read, is another segment's, or has no such part.
    """
    if layout.has_single_files:
        return (directory / object_name(start_offset, segment_id, suffix)).read_bytes()
    place = directory / object_name(start_offset, segment_id, MANIFEST_SUFFIX)
    manifest = read_manifest(place.read_bytes())
    ensure_manifest_of_segment(manifest, segment_id)
    if suffix not in manifest.indexes or not manifest.is_plain:
        raise RemoteLogMetadataError(f"{place}: no {suffix} in what it lists, expected one that is not encrypted")
    position, size = manifest.indexes[suffix]
    content = (directory / object_name(start_offset, segment_id, INDEXES_SUFFIX)).read_bytes()
    return content[position : position + size]
