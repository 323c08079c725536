"""Findings on the metadata of a partition: gaps, states that last too long, overdue retention; and on stray objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.filesize import decimal

from kidxlib.audit.tiered.finding import ALL_OBJECTS, METADATA, RemoteSegmentKey, broken, safe
from kidxlib.audit.tiered.listing import FindingOnSegment, Presence, flags, key_of, numbers, rows_where
from kidxlib.log.remote.segments import read_segments
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

#: The metadata was deleted before the data.
EXPIRED: Final = "metadata-expired"
_CONSEQUENCE_OF_FORGOTTEN: Final = (
    "a broker that starts does not know them: consumers do not get these offsets, and nobody deletes the objects"
)
#: Copying stands still, and the consequence.
STALLED: Final = "stalled"
STALLS: Final = (
    "the partition's copying stands still: its full segments pile up in log dirs, as local retention deletes none that "
    "is not copied"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
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


def findings_on_states(presence: Presence, as_of: AsOf, copying: Copying) -> Iterator[FindingOnSegment]:
    """Segments that stay in a state that should pass."""
    since = numbers(presence.segments["state_since_ms"])
    for state, (reason, consequence) in _CONSEQUENCES_OF_PASSING_STATES.items():
        lasts = presence.in_state(state) & (since < as_of.metadata_ms - as_of.stuck_ms)
        for segment in rows_where(presence.segments, lasts):
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
                yield key_of(segment), broken(METADATA, STALLED, detail, STALLS)
            else:
                yield key_of(segment), safe(METADATA, reason, detail, consequence)


def _is_followed_by_finished(segments: pa.Table, segment: Mapping[str, Any]) -> bool:
    """Whether a segment with the same or later offsets has come further than `COPY_SEGMENT_STARTED`."""
    begun = np.array(segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_STARTED.name, np.bool_)
    return bool((~begun & (numbers(segments["end_offset"]) >= segment["end_offset"])).any())


def findings_on_lineage(presence: Presence, breaks: pa.Table) -> Iterator[FindingOnSegment]:
    """Offsets that no segment has, or two (rows of `LINEAGE_BREAKS`), and segments that brokers do not read."""
    for row in breaks.to_pylist():
        key = RemoteSegmentKey(start_offset=row["segment_start_offset"], segment_id=row["segment_id"])
        offsets = f"offsets {row['first_offset']} to {row['last_offset']}"
        if row["is_gap"]:
            detail = f"{offsets}, before this one's of epoch {row['epoch']}, are in no remote segment"
            why = f"consumers that come to {offsets} get OFFSET_OUT_OF_RANGE, and go where auto.offset.reset sends them"
            yield key, broken(METADATA, "gap", detail, why)
        else:
            detail = f"{offsets} are in a segment before it, too"
            why = "two leaders have copied them; of one epoch brokers read those of the later segment"
            yield key, safe(METADATA, "overlap", detail, why)
    is_replaced = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & ~flags(presence.segments["is_read"])
    for segment in rows_where(presence.segments, is_replaced):
        detail = f"{segment['log_bytes']:,} bytes of log; other segments have its offsets in each of its epochs"
        why = "nobody reads it, as a later leader has copied its offsets again; it goes when retention reaches them"
        yield key_of(segment), safe(METADATA, "unreferenced", detail, why)


def findings_on_retention(presence: Presence, as_of: AsOf, retention_ms: int) -> Iterator[FindingOnSegment]:
    """Segments that retention by time should have deleted: the first ones, up to one that stays
    (`RLMExpirationTask.cleanupExpiredRemoteLogSegments`). `retention_ms` is below 0 if there is no limit.
    """
    if retention_ms < 0:
        return
    is_read = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & flags(presence.segments["is_read"])
    due = as_of.metadata_ms - as_of.stuck_ms - retention_ms
    stays = np.flatnonzero(is_read & (numbers(presence.segments["max_timestamp_ms"]) >= due))
    is_read[stays[0] if len(stays) else len(is_read) :] = False
    for segment in rows_where(presence.segments, is_read):
        detail = (
            f"its last record is of {show_time(segment['max_timestamp_ms'])}, and the topic keeps records for "
            f"{timedelta(milliseconds=retention_ms)}"
        )
        why = f"{segment['log_bytes']:,} bytes that are paid for and should be gone; consumers may still read them"
        yield key_of(segment), safe(METADATA, "retention-overdue", detail, why)


@dataclass(frozen=True, slots=True)
class Strays:
    """Objects of no segment: findings on objects that nobody will ever delete, and the number of objects that are not
    judged because they are newer than the metadata.
    """

    findings: list[FindingOnSegment]
    newer: int


def findings_on_forgotten(forgotten: pa.Table) -> Iterator[FindingOnSegment]:
    """Segments whose metadata is below the log start of its partition: rows of `REMOTE_METADATA`, by start offset."""
    rows = read_segments(forgotten)
    if rows:
        last, size = max(row["end_offset"] for row in rows), sum(row["log_bytes"] for row in rows)
        detail = (
            f"the metadata of {counted(len(rows), 'segment')}, offsets {rows[0]['start_offset']} to {last}, "
            f"{size:,} bytes of log, lies below the log start of its partition"
        )
        yield key_of(rows[0]), broken(METADATA, EXPIRED, detail, _CONSEQUENCE_OF_FORGOTTEN)


def find_strays(presence: Presence, as_of: AsOf, *, knows_metadata: bool, begins_late: bool) -> Strays:
    """Objects of segments that the metadata does not know, and of deleted segments. The arguments are as in
    `RemotePartition`.
    """
    left = presence.in_state(SegmentState.DELETE_SEGMENT_FINISHED) & presence.have_any
    strays = [
        (
            key_of(segment),
            safe(
                ALL_OBJECTS,
                "left-after-delete",
                f"deleted at {show_time(segment['state_since_ms'])}, and objects of it are there",
                "nobody reads them, and nobody will delete them",
            ),
        )
        for segment in rows_where(presence.segments, left)
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
            strays.append((key, broken(ALL_OBJECTS, EXPIRED, f"{detail} any more, perhaps", _CONSEQUENCE_OF_FORGOTTEN)))
        else:
            strays.append((key, safe(ALL_OBJECTS, "orphan", detail, "nobody reads them, and nobody will delete them")))
    return Strays(strays, newer)


def flag_since(segments: pa.Table) -> Mapping[int, int]:
    """Since when each broker is known to record that a segment has no transaction index: since it copied the first
    segment of which it recorded so, ms since the epoch. Older brokers record of every segment that it has one.
    `segments` are rows of `REMOTE_METADATA` of all partitions.
    """
    says = segments.filter(segments["transaction_index_empty"])
    first = says.group_by("broker_id").aggregate([("copied_at_ms", "min")])
    return {row["broker_id"]: row["copied_at_ms_min"] for row in first.to_pylist()}
