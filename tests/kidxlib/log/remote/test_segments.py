"""What records of the metadata topic leave of segments; tests/kafka compares many with Kafka's own cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.log.remote.metadata_record import REMOTE_LOG_METADATA_TOPIC
from kidxlib.log.remote.metadata_topic import metadata_partitions
from kidxlib.log.remote.segments import FoldedMetadata, fold_metadata
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.framed import REMOTE_LOG_METADATA, FramedMessage
from kidxlib.messages.remote_log_metadata import PartitionDeleteState, SegmentState, TopicIdPartition
from tests.support.tiered import PARTITION_DELETE, copied, segment, update, write_metadata

_OF = TopicIdPartition("A" * 22, "t", 0)
_STARTED, _FINISHED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED


def _id(letter: str) -> str:
    return letter * 21 + "A"


def _folded(directory: Path, messages: Sequence[FramedMessage]) -> FoldedMetadata:
    write_metadata(directory, 0, messages)
    return fold_metadata(metadata_partitions([directory])[0].records())


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
