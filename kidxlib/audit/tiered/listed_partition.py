"""Audits a partition of tiered storage by its metadata and a listing of its objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.tiered.finding import (
    ALL_OBJECTS,
    METADATA,
    NEWER,
    OBJECTS,
    OTHERS,
    CopiedSegmentRow,
    Level,
    RemoteCountRow,
    RemoteFindingRow,
)
from kidxlib.audit.tiered.listing import (
    FindingOnSegment,
    Presence,
    findings_on_missing,
    findings_on_sizes,
    findings_on_transaction_index,
    flags,
    match_objects,
)
from kidxlib.audit.tiered.metadata import (
    AsOf,
    Copying,
    find_strays,
    findings_on_forgotten,
    findings_on_lineage,
    findings_on_retention,
    findings_on_states,
)
from kidxlib.catalog.findings import ListedSegmentRow, RemoteObject
from kidxlib.log.remote.layout import Layout, list_objects, object_name
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.storage.location import Location

_OBJECT_COLUMNS: Final = tuple(RemoteObject.__annotations__)
#: The objects of segments, by start offset and id.
_ObjectsBySegment: TypeAlias = defaultdict[tuple[int, str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartition:
    """A partition to audit.

    Attributes:
        directory: the directory of its objects; it may be missing.
        segments: rows of `REMOTE_METADATA`, by start offset.
        breaks: rows of `LINEAGE_BREAKS`.
        knows_metadata: whether all of its metadata was read.
        begins_late: whether the first records of its metadata partition are gone.
        forgotten: rows of `REMOTE_METADATA` whose records are below the log start of the metadata partition.
        flag_since: since when each broker is known to record that a segment has no transaction index.
        retention_ms: the topic's retention in its cluster's metadata, ms; None if it is not known.
        copying: whether and when the topic's segments are copied.
        is_recorded: whether `ListedPartition` has the listed segments, whatever the level.
    """

    partition: TopicIdPartition
    layout: Layout
    directory: Location
    segments: pa.Table
    breaks: pa.Table
    knows_metadata: bool
    begins_late: bool
    forgotten: pa.Table
    flag_since: Mapping[int, int]
    retention_ms: int | None
    as_of: AsOf
    level: Level
    copying: Copying
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """The result of comparing a listing with the metadata.

    Attributes:
        segments: the segments whose bytes can be read, if the level asks for them.
        listed: all segments, if they are recorded.
    """

    findings: list[RemoteFindingRow]
    counts: list[RemoteCountRow]
    segments: list[CopiedSegmentRow]
    listed: list[ListedSegmentRow]


def audit_listing(asked: RemotePartition) -> ListedPartition:
    """List the objects of a partition, and compare them with its metadata."""
    listed = list_objects(asked.directory, asked.layout.suffixes, etags=asked.is_recorded)
    presence = match_objects(asked.layout, asked.segments, listed.objects)
    strays = find_strays(presence, asked.as_of, knows_metadata=asked.knows_metadata, begins_late=asked.begins_late)
    findings = [_finding_row(asked, found) for found in (*_findings_on_listing(asked, presence), *strays.findings)]
    counts = [
        *_counts_by_state(asked.segments),
        (OBJECTS, listed.objects.num_rows, pc.sum(listed.objects["bytes"]).as_py() or 0),
        (NEWER, strays.newer, 0),
        (OTHERS, len(listed.others), 0),
    ]
    topic, topic_id = asked.partition.topic, asked.partition.topic_id
    rows = [
        RemoteCountRow(topic=topic, topic_id=topic_id, what=what, number=number, bytes=bytes_)
        for what, number, bytes_ in counts
    ]
    objects = _objects_of_segments(listed.objects if asked.is_recorded or asked.level is not Level.LISTING else None)
    to_read = [] if asked.level is Level.LISTING else list(_segments_to_read(presence, objects))
    return ListedPartition(
        findings, rows, to_read, list(_segments_to_record(asked, objects)) if asked.is_recorded else []
    )


def _findings_on_listing(asked: RemotePartition, presence: Presence) -> Iterator[FindingOnSegment]:
    if asked.layout.has_single_files:
        yield from findings_on_transaction_index(presence, asked.flag_since, reads_logs=asked.level is Level.FULL)
        yield from findings_on_sizes(presence, reads_indexes=asked.level is not Level.LISTING)
    yield from findings_on_missing(presence)
    yield from findings_on_lineage(presence, asked.breaks)
    yield from findings_on_forgotten(asked.forgotten)
    yield from findings_on_states(presence, asked.as_of, asked.copying)
    if asked.retention_ms is not None:
        yield from findings_on_retention(presence, asked.as_of, asked.retention_ms)


def _finding_row(asked: RemotePartition, found: FindingOnSegment) -> RemoteFindingRow:
    key, finding = found
    is_of_object = finding.file not in (METADATA, ALL_OBJECTS) and key.segment_id is not None
    path = asked.directory / object_name(key.start_offset, key.segment_id or "", finding.file)
    return RemoteFindingRow.found(asked.partition, key, finding, str(path) if is_of_object else None)


def _counts_by_state(segments: pa.Table) -> list[tuple[str, int, int]]:
    by_state = segments.group_by("state").aggregate([([], "count_all"), ("log_bytes", "sum")])
    return [(row["state"], row["count_all"], row["log_bytes_sum"]) for row in by_state.to_pylist()]


def _objects_of_segments(objects: pa.Table | None) -> _ObjectsBySegment:
    by_segment: _ObjectsBySegment = defaultdict(list)
    for row in [] if objects is None else objects.sort_by("name").to_pylist():
        by_segment[row["start_offset"], row["segment_id"]].append({name: row[name] for name in _OBJECT_COLUMNS})
    return by_segment


def _segments_to_read(presence: Presence, objects: _ObjectsBySegment) -> Iterator[CopiedSegmentRow]:
    is_read = (
        presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & flags(presence.segments["is_read"]) & presence.have_any
    )
    columns = [name for name in CopiedSegmentRow.names() if name != "objects"]
    for row in presence.segments.filter(pa.array(is_read)).select(columns).to_pylist():
        yield CopiedSegmentRow.of_dict({**row, "objects": objects[row["start_offset"], row["segment_id"]]})


def _segments_to_record(asked: RemotePartition, objects: _ObjectsBySegment) -> Iterator[ListedSegmentRow]:
    """The segments of the metadata, without deleted ones that have left no object; and objects of unknown segments."""
    columns = [name for name in ListedSegmentRow.names() if name != "objects"]
    known = set()
    for row in asked.segments.select(columns).to_pylist():
        known.add(key := (row["start_offset"], row["segment_id"]))
        of_segment = objects.get(key, [])
        if of_segment or row["state"] != SegmentState.DELETE_SEGMENT_FINISHED.name:
            yield ListedSegmentRow.of_dict({**row, "objects": of_segment})
    for key in sorted(objects.keys() - known):
        yield ListedSegmentRow.of(
            {
                "topic": asked.partition.topic,
                "partition": asked.partition.partition,
                "topic_id": asked.partition.topic_id,
                "start_offset": key[0],
                "segment_id": key[1],
                "is_read": False,
                "objects": objects[key],
            }
        )
