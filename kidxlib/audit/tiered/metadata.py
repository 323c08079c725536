"""What the metadata of a partition says by itself: lineage, states that last too long, retention; and stray objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
from rich.filesize import decimal

from kidxlib.audit.tiered.finding import ALL_OBJECTS, METADATA, RemoteSegmentKey, broken, safe
from kidxlib.audit.tiered.listing import Found, Presence, flags, key_of, numbers, rows_where
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time

#: States that a broker leaves again, and what is so where it has not.
_PASSING: Final = {
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
    """What is too old, or too new to be judged.

    Attributes:
        metadata_ms: the time of the metadata, ms since the epoch.
        stuck_ms: how long a state may last, and how long what is due may stay.
    """

    metadata_ms: int
    stuck_ms: int


def of_states(found: Presence, as_of: AsOf) -> Iterator[Found]:
    """Segments that stay in a state that passes."""
    since = numbers(found.segments["state_since_ms"])
    for state, (reason, consequence) in _PASSING.items():
        lasts = found.in_state(state) & (since < as_of.metadata_ms - as_of.stuck_ms)
        for segment in rows_where(found.segments, lasts):
            age = timedelta(milliseconds=as_of.metadata_ms - segment["state_since_ms"])
            detail = f"{state.name} since {show_time(segment['state_since_ms'])}, for {age}"
            yield key_of(segment), safe(METADATA, reason, detail, consequence)


def of_lineage(found: Presence, breaks: pa.Table) -> Iterator[Found]:
    """Offsets that no segment has, or two, and segments that no offset leads to.

    Args:
        breaks: rows of `LINEAGE_BREAKS`.
    """
    for each in breaks.to_pylist():
        key = RemoteSegmentKey(start_offset=each["segment_start_offset"], segment_id=each["segment_id"])
        offsets = f"offsets {each['first_offset']} to {each['last_offset']}"
        if each["is_gap"]:
            detail = f"{offsets}, before this one's of epoch {each['epoch']}, are in no remote segment"
            why = f"consumers that come to {offsets} get OFFSET_OUT_OF_RANGE, and go where auto.offset.reset sends them"
            yield key, broken(METADATA, "gap", detail, why)
        else:
            detail = f"{offsets} are in a segment before it, too"
            why = "two leaders have copied them; of one epoch brokers read those of the later segment"
            yield key, safe(METADATA, "overlap", detail, why)
    is_replaced = found.in_state(SegmentState.COPY_SEGMENT_FINISHED) & ~flags(found.segments["is_read"])
    for segment in rows_where(found.segments, is_replaced):
        detail = f"{segment['log_bytes']:,} bytes of log; other segments have its offsets in each of its epochs"
        why = "nobody reads it, as a later leader has copied its offsets again; it goes when retention reaches them"
        yield key_of(segment), safe(METADATA, "unreferenced", detail, why)


def of_retention(found: Presence, as_of: AsOf, retention_ms: int) -> Iterator[Found]:
    """Segments that retention by time should have deleted: the first ones, up to one that stays
    (`RLMExpirationTask.cleanupExpiredRemoteLogSegments`).

    Args:
        retention_ms: of the topic; below 0 for no limit.
    """
    if retention_ms < 0:
        return
    is_read = found.in_state(SegmentState.COPY_SEGMENT_FINISHED) & flags(found.segments["is_read"])
    due = as_of.metadata_ms - as_of.stuck_ms - retention_ms
    stays = np.flatnonzero(is_read & (numbers(found.segments["max_timestamp_ms"]) >= due))
    is_read[stays[0] if len(stays) else len(is_read) :] = False
    for segment in rows_where(found.segments, is_read):
        detail = (
            f"its last record is of {show_time(segment['max_timestamp_ms'])}, and the topic keeps records for "
            f"{timedelta(milliseconds=retention_ms)}"
        )
        why = f"{segment['log_bytes']:,} bytes that are paid for and should be gone; consumers may still read them"
        yield key_of(segment), safe(METADATA, "retention-overdue", detail, why)


@dataclass(frozen=True, slots=True)
class Strays:
    """Objects that are of no segment.

    Attributes:
        found: those that nobody will ever delete.
        newer: how many are newer than the metadata, and are not judged.
    """

    found: list[Found]
    newer: int


def of_strays(found: Presence, as_of: AsOf, *, knows_metadata: bool) -> Strays:
    """Objects of segments that the metadata does not know, and of those that are deleted.

    Args:
        knows_metadata: the metadata of the partition was read.
    """
    left = found.in_state(SegmentState.DELETE_SEGMENT_FINISHED) & found.have_any
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
        for segment in rows_where(found.segments, left)
    ]
    newer = 0
    names = ["start_offset", "segment_id"]
    of_segments = found.strays.group_by(names).aggregate([("bytes", "sum"), ("written_ms", "max"), ([], "count_all")])
    for row in of_segments.sort_by([(name, "ascending") for name in names]).to_pylist():
        if not knows_metadata or row["written_ms_max"] > as_of.metadata_ms:
            newer += row["count_all"]
            continue
        detail = (
            f"{counted(row['count_all'], 'object')}, {decimal(row['bytes_sum'])}, the last of "
            f"{show_time(row['written_ms_max'])}; the metadata, which is newer, has no such segment"
        )
        key = RemoteSegmentKey(start_offset=row["start_offset"], segment_id=row["segment_id"])
        strays.append((key, safe(ALL_OBJECTS, "orphan", detail, "nobody reads them, and nobody will delete them")))
    return Strays(strays, newer)


def flag_since(segments: pa.Table) -> Mapping[int, int]:
    """Since when each broker is known to say of which segments it has copied no transaction index: from its first
    segment on of which it says so, ms since the epoch. Older brokers say of all that they have one.

    Args:
        segments: rows of `REMOTE_METADATA`, of all partitions.
    """
    says = segments.filter(segments["transaction_index_empty"])
    first = says.group_by("broker_id").aggregate([("copied_at_ms", "min")])
    return {row["broker_id"]: row["copied_at_ms_min"] for row in first.to_pylist()}
