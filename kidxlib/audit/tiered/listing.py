"""Audits a partition of tiered storage by its metadata and a listing of its objects: gaps, states that last too long,
overdue retention; objects that are missing, of a wrong size, or of no segment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.filesize import decimal

from kidxlib.audit.finding import FAILS_CHECK
from kidxlib.audit.tiered.remote_finding import (
    ALL_OBJECTS,
    CONSEQUENCES_OF_MISSING,
    EXPIRED,
    FETCHES_FAIL,
    METADATA,
    NEWER,
    OBJECTS,
    OTHERS,
    SILENT,
    STALLED,
    STALLS,
    AuditLevel,
    CopiedSegmentRow,
    FindingOnSegment,
    RemoteCountRow,
    RemoteFindingRow,
    RemoteSegmentKey,
    broken_remote,
    safe_remote,
)
from kidxlib.catalog.findings import ListedSegmentRow, RemoteObject
from kidxlib.catalog.matching import Values, flags_of
from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.layout import ObjectLayout, list_objects, object_name
from kidxlib.log.remote.segments import readable_segments
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.storage.location import Location
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

_ENTRY_BYTES: Final = {
    OFFSET_INDEX_SUFFIX: layouts.OFFSET_INDEX_ENTRY.itemsize,
    TIME_INDEX_SUFFIX: layouts.TIME_INDEX_ENTRY.itemsize,
    TRANSACTION_INDEX_SUFFIX: layouts.ABORTED_TRANSACTION.itemsize,
}
_ABSENT_SIZE: Final = -1

_OBJECT_COLUMNS: Final = tuple(RemoteObject.__annotations__)

_CONSEQUENCE_OF_FORGOTTEN: Final = (
    "a broker that starts does not know them: consumers do not get these offsets, and nobody deletes the objects"
)
#: States that should pass: the reason and the consequence of a finding on a segment that stays in one.
_CONSEQUENCES_OF_PASSING_STATES: Final = {
    SegmentState.COPY_SEGMENT_STARTED: (
        "copy-not-finished",
        "the copy was begun and given up: nobody reads its objects, and they go when retention reaches their offsets",
    ),
    SegmentState.DELETE_SEGMENT_STARTED: (
        "delete-not-finished",
        "nobody reads it any more; its objects stay until a leader of the partition has deleted them",
    ),
}
#: The objects of segments, by start offset and id.
_ObjectsBySegment: TypeAlias = defaultdict[tuple[int, str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAsOf:
    """The time at which a bucket is judged. Objects that are newer than the metadata are not judged.

    Attributes:
        metadata_ms: the time of the metadata, ms since the epoch.
        stuck_ms: how many ms a state may last, and a segment may stay that is due for deletion.
    """

    metadata_ms: int
    stuck_ms: int


@dataclass(frozen=True, slots=True)
class Copying:
    """Whether and when brokers copy a topic's segments.

    Attributes:
        is_on: whether brokers copy, as far as is known (`remote.storage.enable`, `remote.log.copy.disable`).
        lag_ms, lag_bytes: for how many ms, and until how many bytes wait, a full segment may wait (`remote.copy.lag.*`,
            from Kafka 4.4 on, KIP-1241); 0 if that is not set.
    """

    is_on: bool = True
    lag_ms: int = 0
    lag_bytes: int = 0

    def why_stalled(self, waiting_ms: int, bytes_: int, stuck_ms: int) -> str | None:
        """The wait that was allowed, if full segments wait for longer; else None."""
        too_long = waiting_ms > self.lag_ms + stuck_ms and (bytes_ > self.lag_bytes or self.lag_ms > 0)
        if not self.is_on or not too_long:
            return None
        configured = f"remote.copy.lag.ms={self.lag_ms} and " if self.lag_ms else ""
        return f"allowed: {configured}--stuck-after {timedelta(milliseconds=stuck_ms)}"


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
        is_recorded: whether `ListedRemotePartition` has the listed segments, whatever the level.
    """

    partition: TopicIdPartition
    layout: ObjectLayout
    directory: Location
    segments: pa.Table
    breaks: pa.Table
    knows_metadata: bool
    begins_late: bool
    forgotten: pa.Table
    flag_since: Mapping[int, int]
    retention_ms: int | None
    as_of: JudgedAsOf
    level: AuditLevel
    copying: Copying
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class ListedRemotePartition:
    """The result of comparing a listing with the metadata.

    Attributes:
        segments: the segments whose bytes can be read, if the level asks for them.
        listed: all segments, if they are recorded.
    """

    findings: list[RemoteFindingRow]
    counts: list[RemoteCountRow]
    segments: list[CopiedSegmentRow]
    listed: list[ListedSegmentRow]


def audit_listing(asked: RemotePartition) -> ListedRemotePartition:
    """List the objects of a partition, and compare them with its metadata."""
    listed = list_objects(asked.directory, asked.layout.suffixes, etags=asked.is_recorded)
    presence = match_objects(asked.layout, asked.segments, listed.objects)
    strays, newer = _find_strays(
        presence, asked.as_of, knows_metadata=asked.knows_metadata, begins_late=asked.begins_late
    )
    findings = [_finding_row(asked, found) for found in (*_findings_on_listing(asked, presence), *strays)]
    counts = [
        *_counts_by_state(asked.segments),
        (OBJECTS, listed.objects.num_rows, pc.sum(listed.objects["bytes"]).as_py() or 0),
        (NEWER, newer, 0),
        (OTHERS, len(listed.others), 0),
    ]
    topic, topic_id = asked.partition.topic, asked.partition.topic_id
    rows = [
        RemoteCountRow(topic=topic, topic_id=topic_id, what=what, number=number, bytes=bytes_)
        for what, number, bytes_ in counts
    ]
    objects = _objects_of_segments(
        listed.objects if asked.is_recorded or asked.level is not AuditLevel.LISTING else None
    )
    to_read = [] if asked.level is AuditLevel.LISTING else list(_segments_to_read(presence, objects))
    return ListedRemotePartition(
        findings, rows, to_read, list(_segments_to_record(asked, objects)) if asked.is_recorded else []
    )


def _findings_on_listing(asked: RemotePartition, presence: RemotePresence) -> Iterator[FindingOnSegment]:
    if asked.layout.has_single_files:
        yield from findings_on_transaction_index(presence, asked.flag_since, reads_logs=asked.level is AuditLevel.FULL)
        yield from _findings_on_sizes(presence, reads_indexes=asked.level is not AuditLevel.LISTING)
    yield from findings_on_missing(presence)
    yield from _findings_on_lineage(presence, asked.breaks)
    yield from _findings_on_forgotten(asked.forgotten)
    yield from _findings_on_states(presence, asked.as_of, asked.copying)
    if asked.retention_ms is not None:
        yield from _findings_on_retention(presence, asked.as_of, asked.retention_ms)


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


def _segments_to_read(presence: RemotePresence, objects: _ObjectsBySegment) -> Iterator[CopiedSegmentRow]:
    is_copied = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED)
    is_read = is_copied & flags_of(presence.segments["is_read"]) & presence.have_any
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


@dataclass(frozen=True, slots=True)
class RemotePresence:
    """Which objects the remote segments of a partition have.

    Attributes:
        segments: rows of `REMOTE_METADATA`.
        sizes: by suffix, the size of each segment's object in bytes; −1 if it has none.
        strays: rows of `ListedObjects.objects` that belong to none of these segments.
    """

    layout: ObjectLayout
    segments: pa.Table
    sizes: Mapping[str, NDArray[np.int64]]
    strays: pa.Table

    def in_state(self, state: SegmentState) -> NDArray[np.bool_]:
        """Which remote segments are in a state, by their metadata."""
        return flags_of(pc.equal(self.segments["state"], pa.scalar(state.name)))

    @property
    def have_any(self) -> NDArray[np.bool_]:
        """Which remote segments have an object."""
        have_any = np.zeros(self.segments.num_rows, np.bool_)
        for sizes in self.sizes.values():
            have_any |= sizes != _ABSENT_SIZE
        return have_any


def match_objects(layout: ObjectLayout, segments: pa.Table, objects: pa.Table) -> RemotePresence:
    """Match objects (as in `ListedObjects.objects`) with segments (rows of `REMOTE_METADATA`) by the ids and offsets in
    names.
    """
    at = _numbers(pc.index_in(objects["segment_id"], value_set=segments["segment_id"].combine_chunks()).fill_null(-1))
    is_known = at >= 0
    starts = _numbers(segments["start_offset"])
    is_known[is_known] &= _numbers(objects["start_offset"])[is_known] == starts[at[is_known]]
    bytes_ = _numbers(objects["bytes"])
    sizes = {}
    for suffix in layout.suffixes:
        of_suffix = is_known & flags_of(pc.equal(objects["suffix"], pa.scalar(suffix)))
        sizes[suffix] = np.full(segments.num_rows, _ABSENT_SIZE, np.int64)
        sizes[suffix][at[of_suffix]] = bytes_[of_suffix]
    return RemotePresence(layout, segments, sizes, objects.filter(pa.array(~is_known)))


def findings_on_missing(presence: RemotePresence) -> Iterator[FindingOnSegment]:
    """Copied segments that lack an object that every segment has."""
    copied, have_any = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED), presence.have_any
    for segment in _rows_where(presence.segments, copied & ~have_any):
        yield (
            RemoteSegmentKey.of(segment),
            broken_remote(
                ALL_OBJECTS,
                "missing",
                f"{segment['log_bytes']:,} bytes of log, copied by broker {segment['broker_id']}; no object is there",
                CONSEQUENCES_OF_MISSING[LOG_SUFFIX].format(**_offsets_for_words(segment)),
            ),
        )
    for suffix in presence.layout.required:
        is_missing = copied & have_any & (presence.sizes[suffix] == _ABSENT_SIZE)
        for segment in _rows_where(presence.segments, is_missing):
            yield (
                RemoteSegmentKey.of(segment),
                broken_remote(
                    suffix, "missing", None, CONSEQUENCES_OF_MISSING[suffix].format(**_offsets_for_words(segment))
                ),
            )


def findings_on_transaction_index(
    presence: RemotePresence, flag_since: Mapping[int, int], *, reads_logs: bool
) -> Iterator[FindingOnSegment]:
    """Transaction indexes that contradict the metadata. `flag_since` is as in `RemotePartition`. `reads_logs`: the
    logs will be read, and tell whether a segment should have a transaction index.
    """
    copied = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & presence.have_any
    says_empty = flags_of(presence.segments["transaction_index_empty"])
    sizes = presence.sizes[TRANSACTION_INDEX_SUFFIX]
    for segment in _rows_where(presence.segments, copied & ~says_empty & (sizes == _ABSENT_SIZE)):
        since = flag_since.get(segment["broker_id"])
        if since is not None and since <= segment["copied_at_ms"]:
            yield (
                RemoteSegmentKey.of(segment),
                broken_remote(
                    TRANSACTION_INDEX_SUFFIX,
                    "missing",
                    "the metadata says that transactions were aborted in the segment",
                    SILENT.format(**_offsets_for_words(segment)),
                ),
            )
        elif not reads_logs:
            yield (
                RemoteSegmentKey.of(segment),
                safe_remote(
                    TRANSACTION_INDEX_SUFFIX,
                    "perhaps-missing",
                    f"broker {segment['broker_id']} is not known to have said by {show_time(segment['copied_at_ms'])} "
                    "which segments have none",
                    "brokers before Kafka 4.0 say of none that it has none; --level full reads the log, which tells",
                ),
            )
    for segment in _rows_where(presence.segments, copied & ~says_empty & (sizes == 0)):
        yield (
            RemoteSegmentKey.of(segment),
            broken_remote(
                TRANSACTION_INDEX_SUFFIX,
                "empty",
                "0 bytes, and the metadata says that transactions were aborted in the segment",
                SILENT.format(**_offsets_for_words(segment)),
            ),
        )
    for segment in _rows_where(presence.segments, copied & says_empty & (sizes > 0)):
        yield (
            RemoteSegmentKey.of(segment),
            broken_remote(
                TRANSACTION_INDEX_SUFFIX,
                "never-asked-for",
                "it has entries, and the metadata says that no transaction was aborted in the segment",
                f"no broker asks for it: {SILENT.format(**_offsets_for_words(segment))}",
            ),
        )


def _findings_on_sizes(presence: RemotePresence, *, reads_indexes: bool) -> Iterator[FindingOnSegment]:
    """Objects whose sizes cannot be right. `reads_indexes`: indexes will be read, and their bytes tell more."""
    copied = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED)
    sizes = presence.sizes[LOG_SUFFIX]
    is_wrong = copied & (sizes != _ABSENT_SIZE) & (sizes != _numbers(presence.segments["log_bytes"]))
    for number, segment in zip(np.flatnonzero(is_wrong), _rows_where(presence.segments, is_wrong), strict=True):
        yield (
            RemoteSegmentKey.of(segment),
            broken_remote(
                LOG_SUFFIX,
                "wrong-size",
                f"{sizes[number]:,} bytes, the metadata says {segment['log_bytes']:,}",
                "it is not what was copied: records of offsets {start} to {end} are missing or others than were "
                "written".format(**_offsets_for_words(segment)),
            ),
        )
    for suffix, entry_bytes in {} if reads_indexes else _ENTRY_BYTES.items():
        sizes = presence.sizes[suffix]
        is_wrong = copied & (sizes > 0) & (sizes % entry_bytes != 0)
        for number, segment in zip(np.flatnonzero(is_wrong), _rows_where(presence.segments, is_wrong), strict=True):
            detail = f"{sizes[number]:,} bytes, expected a multiple of {entry_bytes}"
            yield (
                RemoteSegmentKey.of(segment),
                broken_remote(suffix, FAILS_CHECK, detail, FETCHES_FAIL.format(**_offsets_for_words(segment))),
            )


def _findings_on_states(presence: RemotePresence, as_of: JudgedAsOf, copying: Copying) -> Iterator[FindingOnSegment]:
    """Segments that stay in a state that should pass."""
    since = _numbers(presence.segments["state_since_ms"])
    for state, (reason, consequence) in _CONSEQUENCES_OF_PASSING_STATES.items():
        lasts = presence.in_state(state) & (since < as_of.metadata_ms - as_of.stuck_ms)
        for segment in _rows_where(presence.segments, lasts):
            waiting_ms = as_of.metadata_ms - segment["state_since_ms"]
            detail = (
                f"{state.name} since {show_time(segment['state_since_ms'])}, for {timedelta(milliseconds=waiting_ms)}"
            )
            allowed = copying.why_stalled(waiting_ms, segment["log_bytes"], as_of.stuck_ms)
            if (
                state is SegmentState.COPY_SEGMENT_STARTED
                and allowed
                and not _is_followed_by_finished(presence.segments, segment)
            ):
                detail = f"{detail}, {segment['log_bytes']:,} bytes of log, and no later segment follows; {allowed}"
                yield RemoteSegmentKey.of(segment), broken_remote(METADATA, STALLED, detail, STALLS)
            else:
                yield RemoteSegmentKey.of(segment), safe_remote(METADATA, reason, detail, consequence)


def _is_followed_by_finished(segments: pa.Table, segment: Mapping[str, Any]) -> bool:
    """Whether a segment with the same or later offsets has come further than `COPY_SEGMENT_STARTED`."""
    begun = np.array(segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_STARTED.name, np.bool_)
    return bool((~begun & (_numbers(segments["end_offset"]) >= segment["end_offset"])).any())


def _findings_on_lineage(presence: RemotePresence, breaks: pa.Table) -> Iterator[FindingOnSegment]:
    """Offsets that no segment has, or two (rows of `LINEAGE_BREAKS`), and segments that brokers do not read."""
    for row in breaks.to_pylist():
        key = RemoteSegmentKey(start_offset=row["segment_start_offset"], segment_id=row["segment_id"])
        offsets = f"offsets {row['first_offset']} to {row['last_offset']}"
        if row["is_gap"]:
            detail = f"{offsets}, before this one's of epoch {row['epoch']}, are in no remote segment"
            why = f"consumers that come to {offsets} get OFFSET_OUT_OF_RANGE, and go where auto.offset.reset sends them"
            yield key, broken_remote(METADATA, "gap", detail, why)
        else:
            detail = f"{offsets} are in a segment before it, too"
            why = "two leaders have copied them; of one epoch brokers read those of the later segment"
            yield key, safe_remote(METADATA, "overlap", detail, why)
    is_replaced = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & ~flags_of(presence.segments["is_read"])
    for segment in _rows_where(presence.segments, is_replaced):
        detail = f"{segment['log_bytes']:,} bytes of log; other segments have its offsets in each of its epochs"
        why = "nobody reads it, as a later leader has copied its offsets again; it goes when retention reaches them"
        yield RemoteSegmentKey.of(segment), safe_remote(METADATA, "unreferenced", detail, why)


def _findings_on_retention(
    presence: RemotePresence, as_of: JudgedAsOf, retention_ms: int
) -> Iterator[FindingOnSegment]:
    """Segments that retention by time should have deleted: the first ones, up to one that stays
    (`RLMExpirationTask.cleanupExpiredRemoteLogSegments`). `retention_ms` is below 0 if there is no limit.
    """
    if retention_ms < 0:
        return
    is_read = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & flags_of(presence.segments["is_read"])
    due = as_of.metadata_ms - as_of.stuck_ms - retention_ms
    stays = np.flatnonzero(is_read & (_numbers(presence.segments["max_timestamp_ms"]) >= due))
    is_read[stays[0] if len(stays) else len(is_read) :] = False
    for segment in _rows_where(presence.segments, is_read):
        detail = (
            f"its last record is of {show_time(segment['max_timestamp_ms'])}, and the topic keeps records for "
            f"{timedelta(milliseconds=retention_ms)}"
        )
        why = f"{segment['log_bytes']:,} bytes that are paid for and should be gone; consumers may still read them"
        yield RemoteSegmentKey.of(segment), safe_remote(METADATA, "retention-overdue", detail, why)


def _findings_on_forgotten(forgotten: pa.Table) -> Iterator[FindingOnSegment]:
    """Segments whose metadata is below the log start of its partition: rows of `REMOTE_METADATA`, by start offset."""
    rows = readable_segments(forgotten)
    if rows:
        last, size = max(row["end_offset"] for row in rows), sum(row["log_bytes"] for row in rows)
        detail = (
            f"the metadata of {counted(len(rows), 'segment')}, offsets {rows[0]['start_offset']} to {last}, "
            f"{size:,} bytes of log, lies below the log start of its partition"
        )
        yield RemoteSegmentKey.of(rows[0]), broken_remote(METADATA, EXPIRED, detail, _CONSEQUENCE_OF_FORGOTTEN)


def _find_strays(
    presence: RemotePresence, as_of: JudgedAsOf, *, knows_metadata: bool, begins_late: bool
) -> tuple[list[FindingOnSegment], int]:
    """Findings on objects that nobody will ever delete: of segments that the metadata does not know, and of deleted
    segments; and how many objects are not judged, as they are newer than the metadata. The arguments are as in
    `RemotePartition`.
    """
    left = presence.in_state(SegmentState.DELETE_SEGMENT_FINISHED) & presence.have_any
    strays = [
        (
            RemoteSegmentKey.of(segment),
            safe_remote(
                ALL_OBJECTS,
                "left-after-delete",
                f"deleted at {show_time(segment['state_since_ms'])}, and objects of it are there",
                "nobody reads them, and nobody will delete them",
            ),
        )
        for segment in _rows_where(presence.segments, left)
    ]
    newer = 0
    names = ["start_offset", "segment_id"]
    segments = presence.strays.group_by(names).aggregate([("bytes", "sum"), ("written_ms", "max"), ([], "count_all")])
    for row in segments.sort_by([(name, "ascending") for name in names]).to_pylist():
        if not knows_metadata or row["written_ms_max"] > as_of.metadata_ms:
            newer += row["count_all"]
            continue
        detail = (
            f"{counted(row['count_all'], 'object')}, {decimal(row['bytes_sum'])}, the last of "
            f"{show_time(row['written_ms_max'])}; the metadata, which is newer, has no such segment"
        )
        key = RemoteSegmentKey(start_offset=row["start_offset"], segment_id=row["segment_id"])
        if begins_late:
            strays.append(
                (key, broken_remote(ALL_OBJECTS, EXPIRED, f"{detail} any more, perhaps", _CONSEQUENCE_OF_FORGOTTEN))
            )
        else:
            strays.append(
                (key, safe_remote(ALL_OBJECTS, "orphan", detail, "nobody reads them, and nobody will delete them"))
            )
    return strays, newer


def flag_since(segments: pa.Table) -> Mapping[int, int]:
    """Since when each broker is known to record that a segment has no transaction index: since it copied the first
    segment of which it recorded so, ms since the epoch. Older brokers record of every segment that it has one.
    `segments` are rows of `REMOTE_METADATA` of all partitions.
    """
    says = segments.filter(segments["transaction_index_empty"])
    first = says.group_by("broker_id").aggregate([("copied_at_ms", "min")])
    return {row["broker_id"]: row["copied_at_ms_min"] for row in first.to_pylist()}


def _rows_where(rows: pa.Table, wanted: NDArray[np.bool_]) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = rows.filter(pa.array(wanted)).to_pylist() if wanted.any() else []
    return chosen


def _offsets_for_words(segment: Mapping[str, Any]) -> dict[str, int]:
    return {"start": segment["start_offset"], "end": segment["end_offset"]}


def _numbers(column: Values) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
