"""The records of a restored cluster: their order, whose users they have, and no default of Kafka's in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, read_framed, write_framed
from kidxlib.operations.restore.cluster import (
    SAFE_CONFIGS,
    ConfigProof,
    RestoredCluster,
    RestoredConfig,
    RestoredPartition,
    RestoredTopic,
)
from kidxlib.operations.restore.records import records_of
from tests.kidxlib.operations.restore.formatted_log_dir import levels, user
from tests.support.cluster_metadata import topic_id

_A, _D = topic_id("a"), topic_id("d")
_PARTITION = RestoredPartition(
    topic="t", topic_id=_A, partition=0, replicas=(2, 1), in_sync=(2,), leader=2, leader_epoch=8, directories=(_D, _D)
)
_TOPIC = RestoredTopic(
    name="t",
    topic_id=_A,
    partitions=(_PARTITION,),
    configs=tuple(
        RestoredConfig(name=name, value=value, proof=ConfigProof.NOTHING, was=None)
        for name, value in SAFE_CONFIGS.items()
    ),
)


def _read(values: list[bytes]) -> tuple[FramedMessage, ...]:
    return tuple(read_framed(value, CLUSTER_METADATA) for value in values)


def _cluster(**fields: Any) -> RestoredCluster:
    cluster = RestoredCluster(
        cluster_id="c",
        source=None,
        topics=(_TOPIC,),
        brokers=(),
        features={"a.version": 1, "metadata.version": 30, "none.version": 0},
        next_producer_id=5_000,
    )
    return replace(cluster, **fields)


def test_each_record_names_what_is_before_it() -> None:
    found = records_of(_cluster(), ())
    named = [record.values.get("name", record.values.get("nextProducerId")) for record in found]
    assert named == ["metadata.version", "a.version", "t", None, *SAFE_CONFIGS, 5_000]
    assert Counter(record.message.name for record in found) == {
        "ConfigRecord": 4,
        "FeatureLevelRecord": 2,
        "PartitionRecord": 1,
        "ProducerIdsRecord": 1,
        "TopicRecord": 1,
    }
    partition = next(record.values for record in _read([*map(write_framed, found)]) if "replicas" in record.values)
    assert (partition["replicas"], partition["isr"], partition["leader"], partition["leaderEpoch"]) == (
        [2, 1],
        [2],
        2,
        8,
    )
    assert (partition["directories"], partition["eligibleLeaderReplicas"]) == ([_D, _D], None)


@pytest.mark.parametrize(("level", "version"), [(16, 0), (17, 1), (22, 1), (23, 2), (33, 2)])
def test_partitions_are_written_as_their_level_has_them(level: int, version: int) -> None:
    found = records_of(_cluster(features={"metadata.version": level}), ())
    [partition] = [record for record in found if record.message.name == "PartitionRecord"]
    assert partition.version == version
    assert ("directories" in partition.values) == (version > 0)


@pytest.mark.parametrize("name", sorted(SAFE_CONFIGS))
def test_no_default_of_kafka_decides_what_is_deleted(name: str) -> None:
    """Neither where a topic has no such setting, nor where it is said to have none."""
    others = tuple(config for config in _TOPIC.configs if config.name != name)
    unset = RestoredConfig(name=name, value=None, proof=ConfigProof.METADATA, was=None)
    for configs in (others, (*others, unset)):
        with pytest.raises(ValueError, match=f"topic t: no value of {name}"):
            records_of(_cluster(topics=(replace(_TOPIC, configs=configs),)), ())


def test_users_of_the_formatted_directory_win() -> None:
    formatted = _read([*levels(), user("admin", b"new")])
    old = _read([user("admin", b"old"), user("other", b"old")])
    found = [record.values for record in records_of(_cluster(carried=old), formatted) if "salt" in record.values]
    assert {values["name"]: values["salt"] for values in found} == {"admin": b"new", "other": b"old"}
    assert len(found) == 2
