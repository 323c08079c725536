"""A partition in a log dir, and tiered storage (KIP-405): what its leader epochs do to its remote segments, and which
of its segments are not ready to be copied.

A leader deletes the remote segments whose epochs all come before the first of its own ("leader-epoch-cache truncation",
`RLMExpirationTask.cleanupExpiredRemoteLogSegments`). It finds a remote segment only by the epoch that its own file has
at an offset (`RemoteLogManager.fetchRemoteLogSegmentMetadata`).

`RemoteLogManager` copies a segment together with its index files, snapshot and leader epochs. `copyLogSegment` needs
the producer snapshot at the next segment's base offset (without one it fails with a NullPointerException and the
partition's uploads stand still, KAFKA-16209) and an epoch for the segment's offsets (`RemoteLogSegmentMetadata` refuses
none). It checks neither the content of files nor whether indexes are there. If an index is missing that a running
broker has not opened yet, it makes one full of zeros and copies that. The error shows only when somebody fetches from
the tier. It copies no segment that reaches beyond the last stable offset (`RLMCopyTask.candidateLogSegments`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.tiered.remote_finding import (
    DELETES,
    HIDES,
    METADATA,
    FindingOnSegment,
    RemoteSegmentKey,
    broken_remote,
)
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochs
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.log.remote.segments import epochs_up_to, readable_segments
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.storage.location import Location, files_in
from kidxlib.text.words import counted

#: First and last offset.
_Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """A partition in a log dir that has remote segments.

    Attributes:
        segments: rows of `REMOTE_METADATA`, by start offset.
        entries: the entries of its `leader-epoch-checkpoint`, read before the metadata; None if the file is missing or
            does not read.
        moved_start: where a running broker's log may begin although `log-start-offset-checkpoint` does not say it yet.
    """

    segments: pa.Table
    entries: Sequence[EpochEntry] | None
    moved_start: int = 0

    @property
    def partition(self) -> TopicIdPartition:
        first: dict[str, Any] = self.segments.slice(0, 1).to_pylist()[0]
        return TopicIdPartition(first["topic_id"], first["topic"], first["partition"])

    @property
    def remote_epochs(self) -> frozenset[int]:
        """The leader epochs of the partition's remote segments, of those that brokers read."""
        return frozenset(epoch for row in readable_segments(self.segments) for epoch in _epochs_of_segment(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLog:
    """A partition's log as a starting broker finds it in its log dir.

    Attributes:
        entries: as in `TieredPartition`.
        log_start_offset: by `log-start-offset-checkpoint`; 0 if that does not have it.
        first_offset: the base offset of the first segment; None if there is no segment.
        end_offset: the offset after the last record; None if it is not known.
        recovered: the epochs that begin in the segments that the broker recovers.
    """

    entries: Sequence[EpochEntry] | None
    log_start_offset: int
    first_offset: int | None
    end_offset: int | None
    recovered: Sequence[EpochEntry] = ()

    @property
    def start_offset(self) -> int:
        """Where the log in the log dir begins (`localLogStartOffset`)."""
        return max(self.log_start_offset, self.first_offset or 0)

    def epochs_at_start(self) -> LeaderEpochs:
        """The epochs that a broker has once it has loaded the log (`LogLoader.load`)."""
        epochs = LeaderEpochs(self.entries or ())
        epochs.assign_new(self.recovered)
        end = self.log_start_offset if self.first_offset is None else self.end_offset
        if end is not None and end < self.log_start_offset:
            return LeaderEpochs()  # deleteSegmentsIfLogStartGreaterThanLogEnd
        return epochs.within(self.log_start_offset, segment_files.OFFSET_MAX if end is None else end)


def local_log(directory: Location, partition: TieredPartition, stop: PartitionStop) -> LocalLog:
    """A partition's log as a starting broker finds it, by the names and sizes of its files."""
    try:
        files = files_in(directory)
    except FileNotFoundError:
        files = {}  # a starting broker makes the directory
    named = ((parse_segment_log(name), path) for name, path in files.items())
    logs = {offset: path for offset, path in named if offset is not None}
    last = max(logs, default=None)
    return LocalLog(
        entries=partition.entries,
        log_start_offset=max(stop.log_start_offset, partition.moved_start),
        first_offset=min(logs, default=None),
        end_offset=last if last is not None and logs[last].stat().st_size == 0 else None,
    )


def finding_on_local_epochs(segments: pa.Table, local: LocalLog) -> FindingOnSegment | None:
    """The harm that a leader with this `leader-epoch-checkpoint` does to remote segments (rows of `REMOTE_METADATA` by
    start offset), and the first segment that it harms. None if it keeps and finds all at or above the log start.
    """
    rows = [row for row in readable_segments(segments) if row["end_offset"] >= local.log_start_offset]
    epochs = local.epochs_at_start()
    first = epochs.first
    deleted = [row for row in rows if first is None or max(_epochs_of_segment(row)) < first.epoch]
    if deleted:
        last_epoch = max(epoch for row in deleted for epoch in _epochs_of_segment(row))
        then = f"; its log then begins at offset {local.start_offset}" if len(deleted) == len(rows) else ""
        return RemoteSegmentKey.of(deleted[0]), broken_remote(
            LEADER_EPOCH_CHECKPOINT,
            DELETES,
            f"{_first_epoch_in_words(local, epochs)}; {_segments_in_words(deleted)} have no epoch above {last_epoch}",
            f"a broker that becomes leader with it deletes these segments from the bucket{then}",
        )
    hidden = list(_hidden_offsets(rows, epochs, local))
    if not hidden:
        return None
    missed = [
        row for row in rows if any(row["start_offset"] <= end and row["end_offset"] >= begin for begin, end in hidden)
    ]
    offsets = ", ".join(f"{begin} to {end}" for begin, end in hidden[:3]) + (" and others" if hidden[3:] else "")
    return RemoteSegmentKey.of(missed[0]), broken_remote(
        LEADER_EPOCH_CHECKPOINT,
        HIDES,
        f"{_first_epoch_in_words(local, epochs)}; {_segments_in_words(missed)} have other epochs at offsets {offsets}",
        "a broker that becomes leader with it does not find these segments: consumers that come to these offsets get "
        "OFFSET_OUT_OF_RANGE",
    )


def finding_on_local_start(segments: pa.Table, local: LocalLog) -> FindingOnSegment | None:
    """Offsets between the last remote segment and the log in the log dir."""
    rows = readable_segments(segments)
    end = max((row["end_offset"] + 1 for row in rows), default=0)
    if not rows or local.first_offset is None or max(end, local.log_start_offset) >= local.first_offset:
        return None
    lost = f"offsets {max(end, local.log_start_offset)} to {local.first_offset - 1}"
    return RemoteSegmentKey.of(rows[-1]), broken_remote(
        METADATA,
        "gap",
        f"{lost}, after this one, are in no remote segment, and the log in the log dir begins at {local.first_offset}",
        f"consumers that come to {lost} get OFFSET_OUT_OF_RANGE, and go where auto.offset.reset sends them",
    )


def mended_epochs(segments: pa.Table, local: LocalLog, of_log: LeaderEpochs) -> LeaderEpochs | str:
    """The `leader-epoch-checkpoint` of a tiered partition, made again: the epochs of its remote segments (rows of
    `REMOTE_METADATA` by start offset) up to where the log in the log dir begins, and from there on `of_log`, the epochs
    that recovery makes of its batches. If that is not certain, the result says why.
    """
    rows = readable_segments(segments)
    if not rows:
        return "the metadata has no remote segment of the partition"
    last = max(rows, key=lambda row: (row["end_offset"], row["start_offset"]))
    copied = epochs_up_to(rows)[last["segment_id"]]
    if copied is None:
        return "the remote segments do not follow one another, or two leaders have copied the same offsets"
    end, start = last["end_offset"] + 1, local.start_offset
    if start > end:
        return f"offsets {end} to {start - 1} are in no remote segment, and the log begins at {start}"
    in_bucket = LeaderEpochs(copied).within(start, end).entries
    in_log = LeaderEpochs(of_log.entries).within(start, end).entries
    if in_log and in_bucket != in_log:
        return f"the log and the remote segments have other epochs at offsets {start} to {end - 1}"
    mended = LeaderEpochs(copied).within(local.log_start_offset, max(start, end))
    for entry in of_log.entries:
        if entry.start_offset >= end and mended.last is not None and entry.epoch < mended.last.epoch:
            return f"the log has epoch {entry.epoch} at offset {entry.start_offset}, after epoch {mended.last.epoch}"
        if mended.is_new_epoch(entry.epoch):
            mended.assign(entry.epoch, entry.start_offset)
    return mended


def _epochs_of_segment(row: dict[str, Any]) -> list[int]:
    return [entry["epoch"] for entry in row["leader_epochs"]]


def _hidden_offsets(rows: Sequence[dict[str, Any]], epochs: LeaderEpochs, local: LocalLog) -> Iterator[_Range]:
    """Offsets of remote segments that a leader does not find in the bucket, and does not have in its log."""
    asked = local.log_start_offset, local.start_offset - 1
    in_bucket = _merge_ranges(_intersection(asked, (row["start_offset"], row["end_offset"])) for row in rows)
    entries = epochs.entries
    ends = [*(entry.start_offset - 1 for entry in entries[1:]), segment_files.OFFSET_MAX][: len(entries)]
    of_epoch = {entry.epoch: (entry.start_offset, end) for entry, end in zip(entries, ends, strict=True)}
    visible = _merge_ranges(
        _intersection(of_epoch.get(epoch, (0, -1)), offsets) for row in rows for epoch, offsets in _ranges_by_epoch(row)
    )
    for first, last in in_bucket:
        for begin, end in visible:
            if end < first or begin > last:
                continue
            if begin > first:
                yield first, begin - 1
            first = end + 1
        if first <= last:
            yield first, last


def _ranges_by_epoch(row: dict[str, Any]) -> Iterator[tuple[int, _Range]]:
    """The epochs of a segment, each with its offsets in the segment."""
    begun = [(entry["epoch"], entry["start_offset"]) for entry in row["leader_epochs"]]
    for (epoch, first), (_, after) in pairwise([*begun, (0, row["end_offset"] + 1)]):
        yield epoch, (first, after - 1)


def _intersection(one: _Range, other: _Range) -> _Range:
    return max(one[0], other[0]), min(one[1], other[1])


def _merge_ranges(ranges: Iterable[_Range]) -> list[_Range]:
    """The ranges in order: ranges that touch become one, and empty ones are left out."""
    joined: list[_Range] = []
    for first, last in sorted(offsets for offsets in ranges if offsets[0] <= offsets[1]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def _first_epoch_in_words(local: LocalLog, epochs: LeaderEpochs) -> str:
    if epochs.first is not None:
        return f"its first epoch is {epochs.first.epoch}, from offset {epochs.first.start_offset} on"
    if local.entries:
        return "a broker that starts drops all its epochs, as the log ends before them or below the log start"
    return "it has no epoch" if local.entries is not None else "it is missing, or does not read"


def _segments_in_words(rows: Sequence[dict[str, Any]]) -> str:
    first, last = rows[0]["start_offset"], max(row["end_offset"] for row in rows)
    size = sum(row["log_bytes"] for row in rows)
    return f"{counted(len(rows), 'remote segment')} (offsets {first} to {last}, {size:,} bytes of log)"


@dataclass(frozen=True, slots=True)
class NotReady:
    """A segment that is not ready to be copied.

    Attributes:
        base_offset: the offset in its file names.
        missing: the missing or broken files, and what the copy waits for, in words.
    """

    base_offset: int
    missing: tuple[str, ...]


def not_ready_for_tiering(
    base_offsets: Sequence[int],
    logs: Mapping[int, Finding],
    broken: Mapping[tuple[int, str], str | None],
    snapshots: Collection[int],
    epochs: LeaderEpochs | None,
    first_unstable_offset: int | None,
) -> Iterator[NotReady]:
    """The inactive segments of a partition that are not ready. `base_offsets` ascend, and name segments whose log is
    missing, too; the last one is active. `broken` says why other files are, by offset and suffix. The first transaction
    that is open at the end of the log begins at `first_unstable_offset`.
    """
    for base_offset, next_base_offset in pairwise(base_offsets):
        missing = []
        log = logs.get(base_offset)
        if log is None:
            missing.append(f"{segment_files.LOG_SUFFIX} is missing")
        elif log.verdict not in (Verdict.WHOLE, Verdict.SAFE):
            missing.append(f"{segment_files.LOG_SUFFIX} is {log.verdict}: {log.reason}")
        missing += [
            f"{suffix} is {_missing_or_broken(broken[base_offset, suffix])}"
            for suffix in (
                segment_files.OFFSET_INDEX_SUFFIX,
                segment_files.TIME_INDEX_SUFFIX,
                segment_files.TRANSACTION_INDEX_SUFFIX,
            )
            if (base_offset, suffix) in broken
        ]
        snapshot = f"{segment_files.SNAPSHOT_SUFFIX} at {next_base_offset}"
        if next_base_offset not in snapshots:
            missing.append(f"{snapshot} is missing")
        elif (of_snapshot := (next_base_offset, segment_files.SNAPSHOT_SUFFIX)) in broken:
            missing.append(f"{snapshot} is {_missing_or_broken(broken[of_snapshot])}")
        if epochs is None or not epochs.within(base_offset, next_base_offset).entries:
            missing.append(f"{LEADER_EPOCH_CHECKPOINT} has no epoch before {next_base_offset}")
        if first_unstable_offset is not None and next_base_offset > first_unstable_offset:
            missing.append(
                f"a transaction has been open since offset {first_unstable_offset}, and Kafka copies nothing past that"
            )
        if missing:
            yield NotReady(base_offset, tuple(missing))


def _missing_or_broken(reason: str | None) -> str:
    return "missing" if reason == "missing" else f"broken: {reason}"
