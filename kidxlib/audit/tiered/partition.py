"""Audits a partition of tiered storage by its metadata and a listing of its objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.tiered.finding import (
    ALL_OBJECTS,
    METADATA,
    NEWER,
    OBJECTS,
    OTHERS,
    RemoteCountRow,
    RemoteFindingRow,
    RemoteSegmentRow,
)
from kidxlib.audit.tiered.level import Level
from kidxlib.audit.tiered.listing import (
    Found,
    Presence,
    flags,
    match_objects,
    of_missing,
    of_sizes,
    of_transaction_index,
)
from kidxlib.audit.tiered.metadata import AsOf, of_lineage, of_retention, of_states, of_strays
from kidxlib.log.remote.layout import Layout
from kidxlib.log.remote.objects import list_objects, object_name
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.storage.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartition:
    """A partition to audit.

    Attributes:
        layout: of the bucket.
        directory: that of its objects; it may be missing.
        segments: rows of `REMOTE_SEGMENTS`, by start offset.
        breaks: rows of `LINEAGE_BREAKS`.
        knows_metadata: all of its metadata was read.
        flag_since: as for `of_transaction_index`.
        retention_ms: of the topic, as its cluster says; None where nobody knows it.
    """

    partition: TopicIdPartition
    layout: Layout
    directory: Location
    segments: pa.Table
    breaks: pa.Table
    knows_metadata: bool
    flag_since: Mapping[int, int]
    retention_ms: int | None
    as_of: AsOf
    level: Level


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """What a listing has shown.

    Attributes:
        segments: those whose bytes can be read, where the level asks for them.
    """

    findings: list[RemoteFindingRow]
    counts: list[RemoteCountRow]
    segments: list[RemoteSegmentRow]


def audit_listing(asked: RemotePartition) -> ListedPartition:
    """List the objects of a partition, and compare them with its metadata.

    Raises:
        OSError: the directory cannot be listed.
    """
    listed = list_objects(asked.directory, asked.layout.suffixes)
    found = match_objects(asked.layout, asked.segments, listed.objects)
    strays = of_strays(found, asked.as_of, knows_metadata=asked.knows_metadata)
    findings = [_row(asked, each) for each in (*_findings(asked, found), *strays.found)]
    counts = [
        *_state_counts(asked.segments),
        (OBJECTS, listed.objects.num_rows, pc.sum(listed.objects["bytes"]).as_py() or 0),
        (NEWER, strays.newer, 0),
        (OTHERS, len(listed.others), 0),
    ]
    topic, topic_id = asked.partition.topic, asked.partition.topic_id
    rows = [
        RemoteCountRow(topic=topic, topic_id=topic_id, what=what, number=number, bytes=bytes_)
        for what, number, bytes_ in counts
    ]
    to_read = [] if asked.level is Level.LISTING else list(_to_read(found, listed.objects))
    return ListedPartition(findings, rows, to_read)


def _findings(asked: RemotePartition, found: Presence) -> Iterator[Found]:
    if asked.layout.has_single_files:
        yield from of_transaction_index(found, asked.flag_since, reads_logs=asked.level is Level.FULL)
        yield from of_sizes(found, reads_indexes=asked.level is not Level.LISTING)
    yield from of_missing(found)
    yield from of_lineage(found, asked.breaks)
    yield from of_states(found, asked.as_of)
    if asked.retention_ms is not None:
        yield from of_retention(found, asked.as_of, asked.retention_ms)


def _row(asked: RemotePartition, each: Found) -> RemoteFindingRow:
    key, finding = each
    is_of_object = finding.file not in (METADATA, ALL_OBJECTS) and key.segment_id is not None
    path = asked.directory / object_name(key.start_offset, key.segment_id or "", finding.file)
    return RemoteFindingRow.found(asked.partition, key, finding, str(path) if is_of_object else None)


def _state_counts(segments: pa.Table) -> list[tuple[str, int, int]]:
    of_states = segments.group_by("state").aggregate([([], "count_all"), ("log_bytes", "sum")])
    return [(row["state"], row["count_all"], row["log_bytes_sum"]) for row in of_states.to_pylist()]


def _to_read(found: Presence, objects: pa.Table) -> Iterator[RemoteSegmentRow]:
    names: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for each in objects.to_pylist():
        names[each["start_offset"], each["segment_id"]].append(
            {"suffix": each["suffix"], "name": each["name"], "bytes": each["bytes"]}
        )
    is_read = found.in_state(SegmentState.COPY_SEGMENT_FINISHED) & flags(found.segments["is_read"]) & found.have_any
    columns = [name for name in RemoteSegmentRow.names() if name != "objects"]
    for row in found.segments.filter(pa.array(is_read)).select(columns).to_pylist():
        yield RemoteSegmentRow.of_dict({**row, "objects": names[row["start_offset"], row["segment_id"]]})
