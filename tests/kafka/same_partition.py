"""What this project makes of a partition, and whether that is what Kafka made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition_fold import PartitionFold, ScannedSegment
from kidxlib.recovery.recover import RecoveredSegment
from tests.support.kafka.classes import KafkaError, KafkaPartition, KafkaSegment
from tests.support.logs.snapshots import producers_in

#: What Kafka throws, a part of its message, and which of our reasons stands for that.
_ERRORS: Final = (
    ("LogSegmentOffsetOverflowException", "", "offset-overflow"),
    ("InvalidOffsetException", " to position ", "offset-not-increasing"),
    ("InvalidOffsetException", " to slot ", "time-index-offset-decreasing"),
    ("IllegalArgumentException", "full index", "offset-index-full"),
    ("IllegalArgumentException", "full time index", "time-index-full"),
    ("IllegalArgumentException", "Invalid control record type", "unknown-control-type"),
    ("IllegalArgumentException", "Varint is too long", "malformed-control-record"),
    ("NullPointerException", "", "malformed-control-record"),
    ("BufferUnderflowException", "", "malformed-control-record"),
    ("InvalidTxnStateException", "", "non-transactional-in-transaction"),
    ("IllegalArgumentException", "appended transactions must increase", "abort-not-increasing"),
    ("IllegalArgumentException", "which was not started", "transaction-not-started"),
    ("IllegalArgumentException", "Received invalid partition leader epoch entry", "negative-leader-epoch-offset"),
)

#: What the fold finds, not the scan of a segment.
REASONS_OF_THE_FOLD: Final = frozenset(
    {
        "non-transactional-in-transaction",
        "abort-not-increasing",
        "transaction-not-started",
        "negative-leader-epoch-offset",
    }
)

#: Where Kafka fails on a control record itself.
REASONS_OF_CONTROL_RECORDS: Final = frozenset({"unknown-control-type", "malformed-control-record"})

#: What we do not look into and Kafka does; it writes neither.
NOT_COMPARED: Final = frozenset({"compressed-control-batch", "control-batch-too-large"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OurSegment:
    """What we made of a segment.

    Attributes:
        end: where and why it ended, the fold's failure included.
        snapshot: the producers at its base offset.
    """

    base_offset: int
    log_bytes: int
    end: ScanEnd
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes
    snapshot: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OurPartition:
    """What we made of a partition, in the words of `KafkaPartition`."""

    segments: tuple[OurSegment, ...]
    snapshot: bytes
    map_end_offset: int
    leader_epoch_checkpoint: bytes


def fold_partition(scanned: Iterable[tuple[int, int, RecoveredSegment]]) -> OurPartition:
    """Fold a partition's segments, each with its base offset and the bytes of its log. There are no snapshots."""
    fold = PartitionFold(snapshot_at=lambda offset: None)
    segments = []
    for base_offset, log_bytes, recovered in scanned:
        folded = fold.add(ScannedSegment.of(base_offset, recovered))
        segments.append(
            OurSegment(
                base_offset=base_offset,
                log_bytes=log_bytes,
                end=folded.failure or recovered.end,
                offset_index=recovered.offset_index,
                time_index=recovered.time_index,
                transaction_index=folded.aborted.tobytes(),
                snapshot=folded.snapshot,
            )
        )
    return OurPartition(
        segments=tuple(segments),
        snapshot=fold.end_snapshot,
        map_end_offset=fold.map_end_offset,
        leader_epoch_checkpoint=fold.leader_epochs.checkpoint(),
    )


def assert_as_kafka(ours: OurPartition, kafka: KafkaPartition) -> int:
    """They made the same of it: every byte where Kafka recovers, and the reason where it fails.

    Where the fold finds that Kafka fails, its collapsed events tell no longer what Kafka did before, so from there on
    only that is compared which is a function of one segment alone.

    Returns:
        How many segments were compared in full.
    """
    in_full = 0
    assert len(ours.segments) == len(kafka.segments)
    state_is_kafkas = True
    for segment, kafkas in zip(ours.segments, kafka.segments, strict=True):
        if state_is_kafkas:
            assert producers_in(segment.snapshot) == kafkas.producers, segment.base_offset
        if segment.end.reason in NOT_COMPARED:
            state_is_kafkas = False
        elif state_is_kafkas:
            in_full += 1
            assert_segment_as_kafka(segment, kafkas)
            assert kafkas.error or segment.transaction_index == (kafkas.transaction_index or b"")
            state_is_kafkas = segment.end.reason not in REASONS_OF_THE_FOLD
        elif segment.end.reason not in REASONS_OF_THE_FOLD and (
            kafkas.error is None or reason_for(kafkas.error) not in REASONS_OF_THE_FOLD
        ):
            assert_segment_as_kafka(segment, kafkas)
    if state_is_kafkas:
        assert producers_in(ours.snapshot) == kafka.producers
        assert ours.map_end_offset == kafka.map_end_offset
    # Kafka fails on a control record when it has noted the leader epoch of that batch, and the scan before that.
    if state_is_kafkas and not any(segment.end.reason in REASONS_OF_CONTROL_RECORDS for segment in ours.segments):
        assert ours.leader_epoch_checkpoint.decode() == (kafka.leader_epoch_checkpoint or "")
    return in_full


def assert_segment_as_kafka(segment: OurSegment, kafkas: KafkaSegment) -> None:
    """The same for what is a function of one segment alone, and for why Kafka fails."""
    if kafkas.error is not None:
        assert segment.end.status is Status.QUARANTINED, (segment.end, kafkas.error)
        assert segment.end.reason == reason_for(kafkas.error), (segment.end, kafkas.error)
        return
    assert segment.end.status in (Status.OK, Status.TRUNCATED), segment.end
    assert segment.log_bytes - segment.end.position == kafkas.truncated_bytes, segment.end
    assert segment.end.status is not Status.OK or kafkas.truncated_bytes == 0
    assert segment.offset_index == kafkas.offset_index
    assert segment.time_index == kafkas.time_index


def reason_for(error: KafkaError) -> str:
    """Our word for what Kafka threw."""
    found = [reason for name, part, reason in _ERRORS if error.name == name and part in error.message]
    assert len(found) == 1, error
    return found[0]
