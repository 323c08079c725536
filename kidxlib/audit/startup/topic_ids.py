"""Topic ids that keep a broker from serving partitions, and how it reads `partition.metadata`."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.text_files import INT_BITS, KafkaThrows, Thrown, read_lines, split
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.storage.small_files import small_file
from kidxlib.text.quoted import quoted

_COLON: Final = re.compile(r":[ \t\n\x0b\f\r]+")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_TOPIC_ID_BYTES: Final = 16

#: `meta.properties` of a broker with KRaft (`MetaPropertiesVersion.V1`).
_OF_KRAFT: Final = re.compile(r"^version\s*[=:]\s*1\s*$", re.MULTILINE)
#: `BrokerMetadataPublisher.initializeManagers`, `LogManager.isStrayReplica`.
_STRAY: Final = "a broker that starts sets the directory aside (-stray), and begins an empty partition in its place"


def is_of_kraft(log_dir: Location) -> bool:
    try:
        return _OF_KRAFT.search(small_file(log_dir / META_PROPERTIES).decode(errors="replace")) is not None
    except OSError:
        return False


def failures_of_topic_ids(served: Mapping[TopicPartition, Location], *, is_kraft: bool) -> Iterator[str]:
    """The failures of partitions without a topic id, and of topics with several ids, of which at most one can be right.
    Only the cluster knows which. What does not parse as an id is reported with the partition's files.
    """
    of_topics: dict[str, tuple[str, Location]] = {}
    of_ids: dict[str, tuple[str, Location]] = {}
    for partition, directory in sorted(served.items()):
        try:
            topic_id = read_topic_id(directory / PARTITION_METADATA)
        except FileNotFoundError:
            if is_kraft:
                yield f"{directory}: no {PARTITION_METADATA}; {_STRAY}"
            continue
        except (KafkaThrows, OSError):
            continue
        known, first = of_topics.setdefault(partition.topic, (topic_id, directory))
        topic, namesake = of_ids.setdefault(topic_id, (partition.topic, directory))
        if known != topic_id:
            yield (
                f"{directory / PARTITION_METADATA}: topic id {topic_id}, {first.name} has {known}: a topic has one; of "
                f"the directory with the wrong one: {_STRAY}"
            )
        elif topic != partition.topic:
            yield (
                f"{directory / PARTITION_METADATA}: topic id {topic_id}, as {namesake.name} has: no two topics have "
                "one; the partition with the wrong one is not served (InconsistentTopicIdException)"
            )


def read_topic_id(path: Location) -> str:
    """Read a topic id as `PartitionMetadataReadBuffer` does: from two lines, ignoring what is before their colons."""
    lines = read_lines(path)
    version = java.parse_integer(_metadata_field(lines, 1), INT_BITS)
    if version is None or version < 0:
        raise KafkaThrows(f"line 1: {quoted(lines[0])}, expected 'version: 0'", Thrown.IO)
    topic_id = _metadata_field(lines, 2)
    if _TOPIC_ID.fullmatch(topic_id) is None:
        raise KafkaThrows(f"line 2: {quoted(lines[1])}, expected a topic id of 22 characters", Thrown.OTHER)
    if base64.urlsafe_b64decode(f"{topic_id[:22]}==") == bytes(_TOPIC_ID_BYTES):
        raise KafkaThrows(f"line 2: {quoted(lines[1])}, an id that no topic has", Thrown.IO)
    return topic_id[:22]


def _metadata_field(lines: list[str], number: int) -> str:
    if len(lines) < number:
        raise KafkaThrows(f"line {number}: not there, expected 'version: 0' and 'topic_id: <id>'", Thrown.OTHER)
    parts = split(_COLON, lines[number - 1])
    if len(parts) != 2:
        raise KafkaThrows(f"line {number}: {quoted(lines[number - 1])}, expected '<name>: <value>'", Thrown.IO)
    return parts[1]
