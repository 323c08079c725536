"""The states and lineage of remote segments, and where their metadata is, as Kafka's own classes have them."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any, Final

from kidxlib.log.remote.metadata_topic import MetadataRecord, metadata_partition, possible_counts
from kidxlib.log.remote.segments import fold_remote_segments
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition, read_remote_log_metadata
from kidxlib.messages.typed_records import FramedMessage, write_framed
from tests.conftest import Say
from tests.support.kafka.classes import Kafka
from tests.support.tiered import SEGMENT, segment, update

_OF: Final = TopicIdPartition("oAtiIQ95REujbuzNd_lkLQ", "t", 0)
_OFFSETS, _EPOCHS = 24, 4


def test_states_and_lineage(kafka: Kafka, rng: random.Random, say: Say, exhaustive: bool) -> None:
    """Segments of random offsets and epochs, copied and deleted in random order: what brokers find is the same."""
    rounds = 60 if exhaustive else 6
    read = 0
    for _ in range(rounds):
        messages = list(_messages(rng))
        values = [write_framed(message) for message in messages]
        records = (MetadataRecord(number, 0, read_remote_log_metadata(value)[1]) for number, value in enumerate(values))
        folded = fold_remote_segments(records).segments.to_pylist()
        states, found = _of_kafka(kafka, messages, values)
        gone = SegmentState.DELETE_SEGMENT_FINISHED.name
        assert {row["segment_id"]: row["state"] for row in folded if row["state"] != gone} == states
        assert {row["segment_id"] for row in folded if row["is_read"]} == found
        read += len(found)
    say(f"remote segments that brokers read, as Kafka's: {read}")


def _messages(rng: random.Random) -> Iterator[FramedMessage]:
    begun: list[str] = []
    for _ in range(40):
        if not begun or rng.random() < 0.3:
            begun.append(_random_id(rng))
            start = rng.randrange(_OFFSETS)
            end = min(_OFFSETS - 1, start + rng.randrange(10))
            first = rng.randrange(_EPOCHS)
            epochs = {first: start}
            if first + 1 < _EPOCHS and rng.random() < 0.5:
                epochs[rng.randrange(first + 1, _EPOCHS)] = rng.randint(start, end)
            yield segment(_OF, begun[-1], (start, end), epochs=epochs)
        else:
            weights = (6, 2, 1)
            states = [state for state in SegmentState if state is not SegmentState.COPY_SEGMENT_STARTED]
            yield update(_OF, rng.choice(begun), rng.choices(states, weights)[0])


def _of_kafka(kafka: Kafka, messages: list[FramedMessage], values: list[bytes]) -> tuple[dict[str, str], set[str]]:
    """The states of segments, and those to which some offset leads in some epoch."""
    storage: Any = kafka.gateway.jvm.org.apache.kafka.server.log.remote.metadata.storage
    cache, serde = storage.RemoteLogMetadataCache(), storage.serialization.RemoteLogMetadataSerde()
    for message, value in zip(messages, values, strict=True):
        metadata = serde.deserialize(value)
        if message.message.name == SEGMENT:
            cache.addCopyInProgressSegment(metadata)
        else:
            cache.updateRemoteLogSegmentMetadata(metadata)
    states = {}
    listed = cache.listAllRemoteLogSegments()
    while listed.hasNext():
        each = listed.next()
        states[each.remoteLogSegmentId().id().toString()] = each.state().toString()
    answers = (cache.remoteLogSegmentMetadata(epoch, offset) for epoch in range(_EPOCHS) for offset in range(_OFFSETS))
    return states, {each.get().remoteLogSegmentId().id().toString() for each in answers if each.isPresent()}


def test_where_metadata_is(kafka: Kafka, rng: random.Random) -> None:
    jvm: Any = kafka.gateway.jvm
    storage, common = jvm.org.apache.kafka.server.log.remote.metadata.storage, jvm.org.apache.kafka.common
    for partitions in (1, 2, 7, 50):
        partitioner = storage.RemoteLogMetadataTopicPartitioner(partitions)
        seen = []
        for _ in range(60):
            of = TopicIdPartition(_random_id(rng), "t", rng.choice([0, 1, 49, 2**31 - 1]))
            theirs = common.TopicIdPartition(common.Uuid.fromString(of.topic_id), of.partition, of.topic)
            seen.append((of, metadata_partition(of, partitions)))
            assert seen[-1][1] == partitioner.metadataPartition(theirs)
        assert possible_counts(seen, max(number for _, number in seen)) == [partitions]


def _random_id(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:-2]
