"""Which partition of `__remote_log_metadata` has the metadata of which partition of a topic.

Source: `RemoteLogMetadataTopicPartitioner`, `Utils.murmur2`, `Objects.hash`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Final

from kidxlib.java import as_int
from kidxlib.messages.remote_log_metadata import TopicIdPartition

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
#: More partitions than anybody gives a metadata topic.
_PARTITIONS_MAX: Final = 10_000


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """The number of the metadata partition.

    Args:
        partitions: how many the metadata topic has.
    """
    return _positive_hash(partition) % partitions


def possible_counts(seen: Iterable[tuple[TopicIdPartition, int]], highest: int) -> Sequence[int]:
    """How many partitions the metadata topic may have: the numbers with which each record stands where it belongs.

    Args:
        seen: partitions of topics, each with the number of the metadata partition that has its records.
        highest: the highest number of a metadata partition that was seen at all.

    Returns:
        Ascending, and none above 10,000; nothing where no number fits: the topic was given more partitions since, or
        the records are of two clusters.
    """
    hashes = [(_positive_hash(partition), number) for partition, number in seen]
    return [
        count
        for count in range(highest + 1, _PARTITIONS_MAX + 1)
        if all(hashed % count == number for hashed, number in hashes)
    ]


def _positive_hash(partition: TopicIdPartition) -> int:
    uuid = base64.urlsafe_b64decode(f"{partition.topic_id}==")
    most, least = int.from_bytes(uuid[:8]), int.from_bytes(uuid[8:])
    hashed = 1
    for each in (_long_hash(least), _long_hash(most), partition.partition):
        hashed = as_int(31 * hashed + each)
    return _murmur2((hashed & _MASK).to_bytes(4)) & 0x7FFFFFFF


def _long_hash(value: int) -> int:
    """`Long.hashCode` of 64 bits."""
    return as_int((value ^ value >> 32) & _MASK)


def _murmur2(four: bytes) -> int:
    """`Utils.murmur2` of four bytes."""
    k = int.from_bytes(four, "little") * _M & _MASK
    k = (k ^ k >> _R) * _M & _MASK
    h = (_SEED ^ 4) * _M & _MASK ^ k
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
