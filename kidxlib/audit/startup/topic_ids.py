"""Topic ids that keep a broker from serving partitions, and how it reads `partition.metadata`."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.obstacles import Effect, Obstacle
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
STRAY: Final = "a broker that starts sets the directory aside (-stray), and begins an empty partition in its place"
NO_TOPIC_ID: Final = (
    f"write two lines into {PARTITION_METADATA}: 'version: 0', and 'topic_id: ID' with the topic's id, which the "
    "cluster's metadata has"
)
ASK_METADATA: Final = "--cluster-metadata DIR tells which is the cluster's"


def is_of_kraft(log_dir: Location) -> bool:
    try:
        return _OF_KRAFT.search(small_file(log_dir / META_PROPERTIES).decode(errors="replace")) is not None
    except OSError:
        return False


def obstacles_of_topic_ids(served: Mapping[TopicPartition, Location], *, is_kraft: bool) -> Iterator[Obstacle]:
    """Partitions without a topic id, and topics with several ids, of which at most one can be right. Only the cluster
    knows which; where its metadata is not there, the folders that are fewer are named. What does not parse as an id is
    reported with the partition's files.
    """
    by_topic: defaultdict[str, defaultdict[str, list[Location]]] = defaultdict(lambda: defaultdict(list))
    by_id: defaultdict[str, defaultdict[str, list[Location]]] = defaultdict(lambda: defaultdict(list))
    for partition, directory in sorted(served.items()):
        try:
            topic_id = read_topic_id(directory / PARTITION_METADATA)
        except FileNotFoundError:
            if is_kraft:
                yield Obstacle(directory, f"no {PARTITION_METADATA}", Effect.HIDES, STRAY, NO_TOPIC_ID)
            continue
        except (KafkaThrows, OSError):
            continue
        by_topic[partition.topic][topic_id].append(directory)
        by_id[topic_id][partition.topic].append(directory)
    for most, topic_id, directory in _fewer(by_topic.values()):
        has = f"topic id {topic_id}, {most[0].name} has {read_topic_id(most[0] / PARTITION_METADATA)}: a topic has one"
        does = f"of the directory with the wrong one: {STRAY}"
        yield Obstacle(directory / PARTITION_METADATA, has, Effect.HIDES, does, ASK_METADATA)
    for most, topic, directory in _fewer(by_id.values()):
        if len(by_topic[topic]) == 1:  # else it is said above
            own = read_topic_id(directory / PARTITION_METADATA)
            has = f"topic id {own}, as {most[0].name} has: no two topics have one"
            does = "the partition with the wrong one is not served (InconsistentTopicIdException)"
            yield Obstacle(directory / PARTITION_METADATA, has, Effect.HIDES, does, ASK_METADATA)


def _fewer(
    groups: Iterable[Mapping[str, Sequence[Location]]],
) -> Iterator[tuple[Sequence[Location], str, Location]]:
    """The directories that do not agree with most, where all should agree: these, what they say, and which they are."""
    for group in groups:
        (_, most), *others = sorted(group.items(), key=lambda item: -len(item[1]))
        for said, directories in others:
            for directory in directories:
                yield most, said, directory


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
