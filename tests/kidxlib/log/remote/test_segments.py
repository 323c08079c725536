"""What records of the metadata topic leave of segments; tests/kafka compares many with Kafka's own cache. What
consumers get of them, against a broker that is asked for each offset by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC, metadata_partitions
from kidxlib.log.remote.segments import EpochRead, FoldedMetadata, VisibleOffsets, fold_remote_segments, visible_offsets
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.remote_log_metadata import PartitionDeleteState, SegmentState, TopicIdPartition
from kidxlib.messages.typed_records import REMOTE_LOG_METADATA, FramedMessage
from tests.support.cluster_metadata import topic_id as _id
from tests.support.tiered import PARTITION_DELETE, copied, segment, update, write_metadata

_OF = TopicIdPartition("A" * 22, "t", 0)
_STARTED, _FINISHED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED

_OFFSETS = 40


def _folded(directory: Path, messages: Sequence[FramedMessage]) -> FoldedMetadata:
    write_metadata(directory, 0, messages)
    return fold_remote_segments(metadata_partitions([directory])[0].records())


def _states(folded: FoldedMetadata) -> dict[str, tuple[str, bool]]:
    return {row["segment_id"][0]: (row["state"], row["is_read"]) for row in folded.segments.to_pylist()}


def _breaks(folded: FoldedMetadata) -> list[tuple[Any, ...]]:
    names = ("epoch", "first_offset", "last_offset", "is_gap")
    return [tuple(row[name] for name in names) for row in folded.breaks.to_pylist()]


def test_segments_that_follow_one_another(tmp_path: Path) -> None:
    """One that is still copied is not read; what is deleted leaves no gap at the beginning."""
    messages = [
        *copied(_OF, _id("a"), (0, 9)),
        *copied(_OF, _id("b"), (10, 29), epochs={0: 10, 2: 20}),
        *copied(_OF, _id("c"), (30, 39), epochs={2: 30}, at_ms=50),
        segment(_OF, _id("d"), (40, 49), epochs={2: 40}, at_ms=60),
        update(_OF, _id("a"), _STARTED),
        update(_OF, _id("a"), _FINISHED),
    ]
    folded = _folded(tmp_path, messages)
    assert _states(folded) == {
        "a": ("DELETE_SEGMENT_FINISHED", False),
        "b": ("COPY_SEGMENT_FINISHED", True),
        "c": ("COPY_SEGMENT_FINISHED", True),
        "d": ("COPY_SEGMENT_STARTED", False),
    }
    assert (_breaks(folded), folded.records, folded.last_ms) == ([], 9, 60)


def test_gaps_overlaps_and_segments_that_another_has_replaced(tmp_path: Path) -> None:
    messages = [
        *copied(_OF, _id("a"), (0, 9)),
        *copied(_OF, _id("b"), (5, 19)),
        *copied(_OF, _id("c"), (30, 34), epochs={1: 30}),
        *copied(_OF, _id("d"), (30, 39), epochs={1: 30}),
    ]
    folded = _folded(tmp_path, messages)
    assert _breaks(folded) == [(0, 5, 9, False), (1, 20, 29, True)]
    assert {name: is_read for name, (_, is_read) in _states(folded).items()} == {"a": 1, "b": 1, "c": 0, "d": 1}


def test_a_partition_that_was_deleted_has_no_segment(tmp_path: Path) -> None:
    """Nor has one whose segment nobody ever began to copy."""
    deleted = {
        "topicIdPartition": {"name": _OF.topic, "id": _OF.topic_id, "partition": _OF.partition},
        "remotePartitionDeleteState": PartitionDeleteState.DELETE_PARTITION_FINISHED.value,
        "eventTimestampMs": 1,
        "brokerId": 1,
    }
    delete = FramedMessage(messages_of(REMOTE_LOG_METADATA)[PARTITION_DELETE], 0, deleted)
    folded = _folded(tmp_path, [*copied(_OF, _id("a"), (0, 9)), update(_OF, _id("x"), _STARTED), delete])
    assert _states(folded) == {"a": ("DELETE_SEGMENT_FINISHED", False)}


def test_the_copy_that_has_read_furthest_counts(tmp_path: Path) -> None:
    """A batch that is torn is the end of the last segment; amid others it is an error."""
    messages = [*copied(_OF, _id("a"), (0, 9)), *copied(_OF, _id("b"), (10, 19))]
    write_metadata(tmp_path / "old", 0, messages[:2])
    write_metadata(tmp_path / "new", 0, messages)
    found = metadata_partitions([tmp_path / "old", tmp_path / "new"])
    assert len(list(found[0].records())) == len(messages)
    log = tmp_path / "new" / f"{REMOTE_LOG_METADATA_TOPIC}-0" / segment_file(0, LOG_SUFFIX)
    log.write_bytes(log.read_bytes() + log.read_bytes()[:70])
    assert len(list(found[0].records())) == len(messages)
    (log.parent / segment_file(4, LOG_SUFFIX)).touch()
    with pytest.raises(RemoteLogMetadataError, match="no whole batch"):
        list(metadata_partitions([tmp_path / "new"])[0].records())


def _broker(reads: Sequence[EpochRead]) -> dict[int, str]:
    """The segment that a broker gives for each offset: it asks for the offset's epoch, and then for the last segment of
    that epoch that begins at the offset or before it.
    """
    found = {}
    for offset in range(_OFFSETS):
        begun = [read.epoch for read in reads if min(_starts(reads, read.epoch)) <= offset]
        if not begun:
            continue
        of_epoch = [read for read in reads if read.epoch == max(begun) and read.start_offset <= offset]
        floor = max(of_epoch, key=lambda read: read.start_offset)
        if offset <= floor.end_offset:
            found[offset] = floor.segment_id
    return found


def _starts(reads: Sequence[EpochRead], epoch: int) -> list[int]:
    return [read.start_offset for read in reads if read.epoch == epoch]


@st.composite
def _reads(draw: st.DrawFn) -> list[EpochRead]:
    """Segments of up to three epochs; of an epoch no two begin at one offset, as the metadata keeps one."""
    reads: dict[tuple[int, int], EpochRead] = {}
    for number in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, _OFFSETS - 2))
        end = draw(st.integers(start, _OFFSETS - 1))
        epoch = draw(st.integers(0, 2))
        middle = draw(st.one_of(st.none(), st.integers(start + 1, end))) if end > start else None
        pieces = [(epoch, start, end)] if middle is None else [(epoch, start, middle - 1), (epoch + 1, middle, end)]
        for of_epoch, first, last in pieces:
            reads[of_epoch, first] = EpochRead(f"s{number}", of_epoch, first, last, (start, end))
    return sorted(reads.values(), key=lambda read: (read.epoch, read.start_offset))


@given(_reads())
def test_each_offset_is_visible_in_the_segment_that_a_broker_gives(reads: list[EpochRead]) -> None:
    by_broker = _broker(reads)
    try:
        visible = visible_offsets(reads)
    except RemoteLogMetadataError:
        of_segments = [[o for o, of in by_broker.items() if of == each] for each in set(by_broker.values())]
        assert any(max(each) - min(each) >= len(each) for each in of_segments), "none has a gap"
        return
    ours = {o: each for each, of in visible.items() for o in range(of.first_offset, of.last_offset + 1)}
    assert ours == by_broker
    for each, of in visible.items():
        of_segment = next(read.of_segment for read in reads if read.segment_id == each)
        assert of.is_whole == (of_segment == (of.first_offset, of.last_offset))


def test_a_later_leader_ends_an_epoch() -> None:
    reads = [EpochRead("a", 0, 0, 9, (0, 9)), EpochRead("b", 0, 10, 19, (10, 19)), EpochRead("c", 1, 15, 29, (15, 29))]
    assert visible_offsets(reads) == {
        "a": VisibleOffsets(0, 9, True),
        "b": VisibleOffsets(10, 14, False),
        "c": VisibleOffsets(15, 29, True),
    }
    assert visible_offsets([]) == {}


def test_a_segment_that_consumers_get_around_another_is_refused() -> None:
    reads = [EpochRead("a", 0, 0, 4, (0, 9)), EpochRead("b", 0, 5, 7, (5, 7)), EpochRead("a", 1, 8, 9, (0, 9))]
    with pytest.raises(RemoteLogMetadataError, match="a: consumers get offsets up to 4 of it and from 8 on"):
        visible_offsets(reads)
