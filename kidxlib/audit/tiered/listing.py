"""Compares the names and sizes of a partition's objects with the metadata of its segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.audit.finding import FAILS_CHECK, Finding
from kidxlib.audit.tiered.finding import ALL_OBJECTS, RemoteSegmentKey, broken, safe
from kidxlib.catalog.matching import Values
from kidxlib.format import layouts
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.log.remote.layout import EPOCHS_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX, Layout
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.text.times import show_time

#: A finding, and the segment that it is about.
FindingOnSegment: TypeAlias = tuple[RemoteSegmentKey, Finding]

_ENTRY_BYTES: Final = {
    OFFSET_INDEX_SUFFIX: layouts.OFFSET_INDEX_ENTRY.itemsize,
    TIME_INDEX_SUFFIX: layouts.TIME_INDEX_ENTRY.itemsize,
    TRANSACTION_INDEX_SUFFIX: layouts.ABORTED_TRANSACTION.itemsize,
}
_ABSENT_SIZE: Final = -1
FETCHES_FAIL: Final = (
    "a broker loads the three indexes of a segment together: fetches of offsets {start} to {end} fail, and consumers "
    "stop there"
)
REPLICAS_FAIL: Final = (
    "a replica that has nothing and begins after this segment cannot be built: it stays out of sync as long as the "
    "leader's own log begins there"
)
#: The consequence of a missing object, by its suffix.
_CONSEQUENCES_OF_MISSING: Final[Mapping[str, str]] = {
    LOG_SUFFIX: "fetches of offsets {start} to {end} fail, and consumers stop there",
    OFFSET_INDEX_SUFFIX: FETCHES_FAIL,
    TIME_INDEX_SUFFIX: FETCHES_FAIL,
    SNAPSHOT_SUFFIX: REPLICAS_FAIL,
    EPOCHS_SUFFIX: REPLICAS_FAIL,
    INDEXES_SUFFIX: FETCHES_FAIL,
    MANIFEST_SUFFIX: "the plugin finds nothing of the segment without it: fetches of offsets {start} to {end} fail, "
    "and consumers stop there",
}
#: The consequence of a transaction index that is missing, empty or not in the metadata: a broker takes it for empty.
SILENT: Final = (
    "consumers of committed records get those of transactions that were aborted in offsets {start} to {end}, and no "
    "broker says so"
)


@dataclass(frozen=True, slots=True)
class Presence:
    """Which objects the segments of a partition have.

    Attributes:
        segments: rows of `REMOTE_METADATA`.
        sizes: by suffix, the size of each segment's object in bytes; −1 if it has none.
        strays: rows of `OBJECTS` that belong to none of these segments.
    """

    layout: Layout
    segments: pa.Table
    sizes: Mapping[str, NDArray[np.int64]]
    strays: pa.Table

    def in_state(self, state: SegmentState) -> NDArray[np.bool_]:
        return flags(pc.equal(self.segments["state"], pa.scalar(state.name)))

    @property
    def have_any(self) -> NDArray[np.bool_]:
        """Which segments have an object."""
        have_any = np.zeros(self.segments.num_rows, np.bool_)
        for sizes in self.sizes.values():
            have_any |= sizes != _ABSENT_SIZE
        return have_any


def match_objects(layout: Layout, segments: pa.Table, objects: pa.Table) -> Presence:
    """Match objects (rows of `OBJECTS`) with segments (rows of `REMOTE_METADATA`) by the ids and offsets in names."""
    at = numbers(pc.index_in(objects["segment_id"], value_set=segments["segment_id"].combine_chunks()).fill_null(-1))
    is_known = at >= 0
    starts = numbers(segments["start_offset"])
    is_known[is_known] &= numbers(objects["start_offset"])[is_known] == starts[at[is_known]]
    bytes_ = numbers(objects["bytes"])
    sizes = {}
    for suffix in layout.suffixes:
        of_suffix = is_known & flags(pc.equal(objects["suffix"], pa.scalar(suffix)))
        sizes[suffix] = np.full(segments.num_rows, _ABSENT_SIZE, np.int64)
        sizes[suffix][at[of_suffix]] = bytes_[of_suffix]
    return Presence(layout, segments, sizes, objects.filter(pa.array(~is_known)))


def findings_on_missing(presence: Presence) -> Iterator[FindingOnSegment]:
    """Copied segments that lack an object that every segment has."""
    copied, have_any = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED), presence.have_any
    for segment in rows_where(presence.segments, copied & ~have_any):
        yield (
            key_of(segment),
            broken(
                ALL_OBJECTS,
                "missing",
                f"{segment['log_bytes']:,} bytes of log, copied by broker {segment['broker_id']}; no object is there",
                _CONSEQUENCES_OF_MISSING[LOG_SUFFIX].format(**_offsets_for_words(segment)),
            ),
        )
    for suffix in presence.layout.required:
        is_missing = copied & have_any & (presence.sizes[suffix] == _ABSENT_SIZE)
        for segment in rows_where(presence.segments, is_missing):
            yield (
                key_of(segment),
                broken(suffix, "missing", None, _CONSEQUENCES_OF_MISSING[suffix].format(**_offsets_for_words(segment))),
            )


def findings_on_transaction_index(
    presence: Presence, flag_since: Mapping[int, int], *, reads_logs: bool
) -> Iterator[FindingOnSegment]:
    """Transaction indexes that contradict the metadata. `flag_since` is as in `RemotePartition`. `reads_logs`: the
    logs will be read, and tell whether a segment should have a transaction index.
    """
    copied = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED) & presence.have_any
    says_empty = flags(presence.segments["transaction_index_empty"])
    sizes = presence.sizes[TRANSACTION_INDEX_SUFFIX]
    for segment in rows_where(presence.segments, copied & ~says_empty & (sizes == _ABSENT_SIZE)):
        since = flag_since.get(segment["broker_id"])
        if since is not None and since <= segment["copied_at_ms"]:
            yield (
                key_of(segment),
                broken(
                    TRANSACTION_INDEX_SUFFIX,
                    "missing",
                    "the metadata says that transactions were aborted in the segment",
                    SILENT.format(**_offsets_for_words(segment)),
                ),
            )
        elif not reads_logs:
            yield (
                key_of(segment),
                safe(
                    TRANSACTION_INDEX_SUFFIX,
                    "perhaps-missing",
                    f"broker {segment['broker_id']} is not known to have said by {show_time(segment['copied_at_ms'])} "
                    "which segments have none",
                    "brokers before Kafka 4.0 say of none that it has none; --level full reads the log, which tells",
                ),
            )
    for segment in rows_where(presence.segments, copied & ~says_empty & (sizes == 0)):
        yield (
            key_of(segment),
            broken(
                TRANSACTION_INDEX_SUFFIX,
                "empty",
                "0 bytes, and the metadata says that transactions were aborted in the segment",
                SILENT.format(**_offsets_for_words(segment)),
            ),
        )
    for segment in rows_where(presence.segments, copied & says_empty & (sizes > 0)):
        yield (
            key_of(segment),
            broken(
                TRANSACTION_INDEX_SUFFIX,
                "never-asked-for",
                "it has entries, and the metadata says that no transaction was aborted in the segment",
                f"no broker asks for it: {SILENT.format(**_offsets_for_words(segment))}",
            ),
        )


def findings_on_sizes(presence: Presence, *, reads_indexes: bool) -> Iterator[FindingOnSegment]:
    """Objects whose sizes cannot be right. `reads_indexes`: indexes will be read, and their bytes tell more."""
    copied = presence.in_state(SegmentState.COPY_SEGMENT_FINISHED)
    sizes = presence.sizes[LOG_SUFFIX]
    is_wrong = copied & (sizes != _ABSENT_SIZE) & (sizes != numbers(presence.segments["log_bytes"]))
    for number, segment in zip(np.flatnonzero(is_wrong), rows_where(presence.segments, is_wrong), strict=True):
        yield (
            key_of(segment),
            broken(
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
        for number, segment in zip(np.flatnonzero(is_wrong), rows_where(presence.segments, is_wrong), strict=True):
            detail = f"{sizes[number]:,} bytes, expected a multiple of {entry_bytes}"
            yield (
                key_of(segment),
                broken(suffix, FAILS_CHECK, detail, FETCHES_FAIL.format(**_offsets_for_words(segment))),
            )


def rows_where(rows: pa.Table, wanted: NDArray[np.bool_]) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = rows.filter(pa.array(wanted)).to_pylist() if wanted.any() else []
    return chosen


def key_of(segment: Mapping[str, Any]) -> RemoteSegmentKey:
    return RemoteSegmentKey(start_offset=segment["start_offset"], segment_id=segment["segment_id"])


def _offsets_for_words(segment: Mapping[str, Any]) -> dict[str, int]:
    return {"start": segment["start_offset"], "end": segment["end_offset"]}


def numbers(column: Values) -> NDArray[np.int64]:
    return np.array(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), np.int64
    )


def flags(column: Values) -> NDArray[np.bool_]:
    return np.array(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), np.bool_
    )
