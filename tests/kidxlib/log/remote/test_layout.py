"""Names of directories and objects, what else lies among them, and manifests as the published test vectors of Aiven's
plugin have them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.log.remote.layout import (
    AIVEN,
    LOCAL,
    PARTS,
    STORAGE_DIRECTORY,
    find_bucket,
    list_bucket_partitions,
    list_objects,
    local_storage_directory,
    object_name,
    parse_topic_id_partition,
    read_manifest,
)
from kidxlib.messages.remote_log_metadata import TopicIdPartition

_ID = "-AtiIQ95REujbuzNd_lkL-"

#: `SegmentManifestV1SerdeTest` of the plugin: this value, written in this form.
_MANIFEST: Final[dict[str, Any]] = {
    "version": "1",
    "chunkIndex": {
        "type": "fixed",
        "originalChunkSize": 100,
        "originalFileSize": 1000,
        "transformedChunkSize": 110,
        "finalTransformedChunkSize": 110,
    },
    "segmentIndexes": {
        "offset": {"position": 0, "size": 1},
        "timestamp": {"position": 1, "size": 1},
        "producerSnapshot": {"position": 2, "size": 1},
        "leaderEpoch": {"position": 3, "size": 1},
        "transaction": {"position": 4, "size": 1},
    },
    "compression": False,
    "remoteLogSegmentMetadata": {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": "lZ6vvmajTWKDBUTV6SQAtQ",
                "topicPartition": {"topic": "topic1", "partition": 42},
            },
            "id": "adh9f8BMS4anaUnD8KWfWg",
        },
        "startOffset": 0,
        "endOffset": 1000,
        "maxTimestampMs": 1000000000,
        "brokerId": 2,
        "eventTimestampMs": 2000000000,
        "segmentLeaderEpochs": {"0": 100, "1": 200, "2": 300},
    },
}


@pytest.mark.parametrize("topic", ["t", "a-b", "a-1", "x.y_z-0"])
def test_directories_of_partitions(topic: str) -> None:
    """Ids may begin with a dash, and topics hold some."""
    partition = TopicIdPartition(_ID, topic, 12)
    assert parse_topic_id_partition(local_storage_directory(partition)) == partition


@pytest.mark.parametrize("name", ["t-0", f"t-{_ID}", f"t-01-{_ID}", f"t-0-{_ID}x/", f"-0-{_ID}", f"..-0-{_ID}"])
def test_what_is_no_directory_of_a_partition(name: str) -> None:
    assert parse_topic_id_partition(name) is None


def test_objects_of_a_partition(tmp_path: Path) -> None:
    """Offsets have 20 digits, or as many as they need in newer releases; other files are named as such."""
    bucket = tmp_path / STORAGE_DIRECTORY
    place = bucket / local_storage_directory(TopicIdPartition(_ID, "t", 0))
    place.mkdir(parents=True)
    (bucket / "lost+found").mkdir()
    names = [object_name(7, _ID, suffix) for suffix in PARTS]
    others = ["junk", f"7-{_ID}.log.tmp", f"7-{_ID}.other", f"{'9' * 20}-{_ID}.log", f"7-{_ID[1:]}.log"]
    for name in (*names, *others, f"8-{_ID}.log"):
        (place / name).write_bytes(b"xy")
    assert find_bucket(tmp_path) == find_bucket(bucket) == bucket
    assert list_bucket_partitions(bucket) == {TopicIdPartition(_ID, "t", 0): place}
    listed = list_objects(place, LOCAL.suffixes)
    assert sorted(listed.others) == sorted(others)
    assert {(row["start_offset"], row["suffix"], row["bytes"]) for row in listed.objects.to_pylist()} == {
        *((7, suffix, 2) for suffix in PARTS),
        (8, ".log", 2),
    }
    assert list_objects(bucket / "no such", LOCAL.suffixes).objects.num_rows == 0


def test_a_manifest() -> None:
    found = read_manifest(json.dumps(_MANIFEST).encode())
    assert found.indexes == {
        ".index": (0, 1),
        ".timeindex": (1, 1),
        ".snapshot": (2, 1),
        ".leader_epoch_checkpoint": (3, 1),
        ".txnindex": (4, 1),
    }
    assert (found.log_bytes, found.start_offset, found.end_offset, found.max_timestamp_ms) == (1000, 0, 1000, 10**9)
    assert found.leader_epochs == (EpochEntry(0, 100), EpochEntry(1, 200), EpochEntry(2, 300))
    assert found.is_plain


def test_manifests_of_other_kinds() -> None:
    """Without a transaction index, encrypted, and compressed."""
    without = {**_MANIFEST, "segmentIndexes": _MANIFEST["segmentIndexes"] | {"transaction": None}}
    assert ".txnindex" not in read_manifest(json.dumps(without).encode()).indexes
    encrypted = read_manifest(json.dumps({**_MANIFEST, "encryption": {"aad": "CgsMDQ=="}}).encode())
    compressed = read_manifest(json.dumps({**_MANIFEST, "compression": True}).encode())
    assert (encrypted.is_encrypted, encrypted.is_plain) == (True, False)
    assert (compressed.is_compressed, compressed.is_plain) == (True, False)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": "2"}', json.dumps(_MANIFEST).encode()[:-9], b"\xff"])
def test_what_is_no_manifest(data: bytes) -> None:
    with pytest.raises(RemoteLogMetadataError):
        read_manifest(data)


def test_aiven_directories_of_partitions(tmp_path: Path) -> None:
    """`someprefix/topic-MWJ6FHTfRYy67jzwZdeqSQ/7/…`."""
    for name in ("topic-MWJ6FHTfRYy67jzwZdeqSQ/7", "a-b-MWJ6FHTfRYy67jzwZdeqSQ/x", "other/7", "topic-short/0"):
        (tmp_path / name).mkdir(parents=True)
    partition = TopicIdPartition("MWJ6FHTfRYy67jzwZdeqSQ", "topic", 7)
    assert AIVEN.list_partitions(tmp_path) == {partition: tmp_path / AIVEN.partition_path(partition)}
