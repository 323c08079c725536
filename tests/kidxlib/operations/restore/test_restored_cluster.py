"""The restored cluster: what metadata, folders and logs say of it together, and why it is not written; the order of its
records, and no default of Kafka's in them; and the commands that give topics their settings back.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kidxlib.messages.typed_records import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    FramedMessage,
    read_framed,
    write_framed,
)
from kidxlib.operations.restore.inventory import LogEvidence
from kidxlib.operations.restore.new_nodes import read_formatted
from kidxlib.operations.restore.restored_cluster import (
    PRODUCER_IDS_SKIPPED,
    SAFE_CONFIGS,
    UNASSIGNED,
    ClusterEvidence,
    ConfigProof,
    RestoredCluster,
    RestoredConfig,
    RestoredPartition,
    RestoredTopic,
    cluster_metadata_records,
    hold_lifting_arguments,
    proven_levels,
    restored_cluster,
    why_cluster_is_not_written,
)
from kidxlib.operations.restore.surviving_metadata import surviving_metadata
from tests.kidxlib.operations.restore.formatted_log_dir import LEVELS, formatted_by_4_3, levels, properties, user
from tests.support.cluster_metadata import BROKER, change, config, partition, put_metadata, topic, topic_id

_A, _B, _C, _D = (topic_id(letter) for letter in "abcd")


def _found(topic: str, id_of_topic: str, number: int, epoch: int = 3) -> RestoredPartition:
    replicas: dict[str, Any] = {"replicas": (1, 2), "in_sync": (1,), "leader": 1, "directories": (_D, _D)}
    return RestoredPartition(topic=topic, topic_id=id_of_topic, partition=number, leader_epoch=epoch, **replicas)


def _known(tmp_path: Path, values: Sequence[bytes] | None = None, **fields: Any) -> ClusterEvidence:
    """With surviving metadata if there are records of it."""
    log_dir = tmp_path / "old"
    if values is not None:
        properties(log_dir)
        put_metadata(log_dir, values)
    controller = read_formatted(formatted_by_4_3(tmp_path / "new"))
    known = ClusterEvidence(
        surviving=None if values is None else surviving_metadata([log_dir]),
        found=[],
        brokers=[1, 2],
        controllers=[controller],
        evidence=LogEvidence(highest_producer_id=-1),
    )
    return replace(known, **fields)


def test_metadata_and_folders_together(tmp_path: Path) -> None:
    """Metadata says which partitions there are, and their ids; a topic that it does not know comes back, too."""
    values = [
        *levels(),
        *(topic("t", _A), config("t", "retention.ms", "5")),
        *(partition(_A, number, [2, 3], [_B, _C]) for number in range(3)),
        change("PartitionChangeRecord", 1, partitionId=1, topicId=_A, leader=2),
        *(topic("empty", _B), partition(_B, 0, [3], [_C])),
    ]
    found = [_found("t", _A, 0), _found("t", _A, 1, epoch=0), _found("new", _C, 1), _found("empty", _D, 0)]
    cluster = restored_cluster(_known(tmp_path, values, found=found))
    topics = {topic.name: topic for topic in cluster.topics}
    assert {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()} == {
        "empty": (_B, 1),
        "new": (_C, 2),
        "t": (_A, 3),
    }
    assert [each.begins_empty for each in topics["t"].partitions] == [False, False, True]
    assert [each.leader_epoch for each in topics["t"].partitions] == [3, 2, 1], "above those of folders and metadata"
    lost = topics["t"].partitions[2]
    assert (lost.replicas, lost.in_sync, lost.leader, lost.directories) == ((2,), (2,), 2, (UNASSIGNED,))
    assert topics["empty"].partitions[0].begins_empty, "its folder is of an older topic of that name"
    assert topics["empty"].partitions[0].replicas == (1,), "broker 3 is not there any more"
    assert topics["t"].configs == (RestoredConfig(name="retention.ms", value="5", proof=ConfigProof.METADATA, was="5"),)
    lacks = {each.kind: (each.count, each.why) for each in cluster.cannot_come_back}
    assert lacks["records of partitions"][0] == 3
    assert "empty-0, new-0, t-2 begin empty" in lacks["records of partitions"][1]
    assert lacks["directories of older topics"][0] == 1
    assert "what was set after the copy's end" in lacks


def test_a_cluster_made_from_folders(tmp_path: Path) -> None:
    """It has the levels of the formatted directory, raised to those that records prove, and no settings of topics."""
    evidence = LogEvidence(highest_producer_id=1_999, coordinator_records={(CONSUMER_OFFSETS, 3): 0})
    known = _known(tmp_path, found=[_found("t", _A, 0)], evidence=evidence)
    cluster = restored_cluster(known)
    assert cluster.source is None
    assert cluster.features == LEVELS | {"group.version": 1}
    assert cluster.topics[0].configs == ()
    assert cluster.next_producer_id == 2_000 + PRODUCER_IDS_SKIPPED
    assert {"ACLs", "SCRAM users", "quotas"} <= {each.kind for each in cluster.cannot_come_back}
    assert list(why_cluster_is_not_written(known, cluster)) == []


@pytest.mark.parametrize(
    ("records", "proven"),
    [
        ({}, {}),
        ({(CONSUMER_OFFSETS, 1): 4, (CONSUMER_OFFSETS, 2): 4, (TRANSACTION_STATE, 0): 0}, {}),
        ({(TRANSACTION_STATE, 0): 1}, {"transaction.version": 1}),
        ({(CONSUMER_OFFSETS, 5): 0}, {"group.version": 1}),
        ({(CONSUMER_OFFSETS, 11): 0}, {"share.version": 1}),
        ({(SHARE_GROUP_STATE, 0): 0}, {"share.version": 1}),
        ({(CONSUMER_OFFSETS, 17): 0}, {"streams.version": 1}),
    ],
)
def test_levels_that_records_prove(records: dict[tuple[str, int], int], proven: dict[str, int]) -> None:
    assert proven_levels(LogEvidence(highest_producer_id=-1, coordinator_records=records)) == proven


@pytest.mark.parametrize(("of_logs", "of_metadata", "expected"), [(-1, 0, 0), (5, 4_000, 4_000), (4_000, 1_000, 5_000)])
def test_new_producers_get_ids_that_no_log_knows(tmp_path: Path, of_logs: int, of_metadata: int, expected: int) -> None:
    values = [*levels(), change("ProducerIdsRecord", brokerId=1, brokerEpoch=1, nextProducerId=of_metadata)]
    cluster = restored_cluster(_known(tmp_path, values, evidence=LogEvidence(highest_producer_id=of_logs)))
    assert cluster.next_producer_id == expected + PRODUCER_IDS_SKIPPED


def test_what_the_first_controller_overrides_is_told(tmp_path: Path) -> None:
    """With eligible leader replicas alone."""
    of_brokers = config("", "min.insync.replicas", "2", BROKER)
    for feature, is_told in (("eligible.leader.replicas.version", True), ("group.version", False)):
        of = {"metadata.version": 30, feature: 1}
        cluster = restored_cluster(_known(tmp_path / feature, [*levels(of), of_brokers]))
        told = [each.why for each in cluster.cannot_come_back if each.kind.startswith("min.insync.replicas")]
        assert (len(told) == 1) == is_told
        assert all("min.insync.replicas=2 into the server.properties" in why for why in told)


def test_why_it_is_not_written(tmp_path: Path) -> None:
    def why(name: str, values: Sequence[bytes] | None = None, **fields: Any) -> list[str]:
        known = _known(tmp_path / name, values, **fields)
        return [
            text.removeprefix(str(tmp_path / name))
            for text in why_cluster_is_not_written(known, restored_cluster(known))
        ]

    assert why("well", [*levels()]) == []
    assert why("newer", levels({"metadata.version": 31})) == [
        "/new/bootstrap.checkpoint: metadata.version 30, and the old cluster had 31: format with a Kafka that has it"
    ]
    [feature] = why("feature", levels(LEVELS | {"share.version": 1}))
    assert feature.endswith("format with a Kafka that has it, and --feature share.version=1")
    of_t = [topic("t", _A), partition(_A, 0, [1], [_D]), config("t", "remote.storage.enable", "true")]
    [tiered] = why("tiered", [*levels(), *of_t])
    assert tiered.startswith("topic t: remote.storage.enable=true, and its older records are in a bucket: name it")
    [damaged] = why("damaged", evidence=LogEvidence(highest_producer_id=2**62))
    assert damaged.startswith(f"producer id {2**62} in a log or a snapshot")
    [old] = why("old", [topic("t", _A)])
    assert "no metadata.version in it; it is of a Kafka before 3.3" in old


def test_controllers_that_are_not_formatted_alike(tmp_path: Path) -> None:
    """Whichever leads first decides."""
    first = read_formatted(formatted_by_4_3(tmp_path / "1"))
    other_level = read_formatted(formatted_by_4_3(tmp_path / "2", levels({"metadata.version": 29}), node_id=2))
    other_voters = replace(first, voters={1: _A, 2: _B})
    for controllers, says in (
        ([first, other_level], "formatted otherwise than"),
        ([first, replace(first, properties=replace(first.properties, cluster_id="x"))], "formatted otherwise than"),
        ([first, other_voters], "other voters than in"),
        ([other_voters], "controller 2 is a voter, and its directory is not given"),
    ):
        known = _known(tmp_path / says / str(len(controllers)) / str(id(controllers)), controllers=controllers)
        assert any(says in text for text in why_cluster_is_not_written(known, restored_cluster(known)))


def test_a_shell_takes_a_command_as_it_is_printed(tmp_path: Path) -> None:
    """Files whose names fit `[compact,delete]` as a pattern are none of its business; Kafka's tool takes no `--help`
    for the name of a topic but with an equals sign (`tests/kafka/test_restore.py`).
    """
    was = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    configs = [RestoredConfig(name=name, value="-1", proof=ConfigProof.METADATA, was=was[name]) for name in was]
    topic = RestoredTopic(name="--help", topic_id="id", partitions=(), configs=tuple(configs))
    [command] = hold_lifting_arguments(topic)
    (tmp_path / "cleanup.policy=c,retention.ms=1000").touch()
    printed = subprocess.run(["bash", "-c", f"printf '%s\n' {command}"], cwd=tmp_path, capture_output=True, check=True)
    assert printed.stdout.decode().splitlines() == [
        *("--alter", "--entity-type", "topics", "--entity-name=--help"),
        *("--add-config", "cleanup.policy=[compact,delete],retention.ms=1000"),
    ]


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
        features={"a.version": 1, "metadata.version": 30, "none.version": 0},
        next_producer_id=5_000,
    )
    return replace(cluster, **fields)


def test_each_record_names_what_is_before_it() -> None:
    found = cluster_metadata_records(_cluster(), ())
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
    expected = {"replicas": [2, 1], "isr": [2], "leader": 2, "leaderEpoch": 8}
    assert {name: partition[name] for name in expected} == expected
    assert (partition["directories"], partition["eligibleLeaderReplicas"]) == ([_D, _D], None)


@pytest.mark.parametrize(("level", "version"), [(16, 0), (17, 1), (22, 1), (23, 2), (33, 2)])
def test_partitions_are_written_as_their_level_has_them(level: int, version: int) -> None:
    found = cluster_metadata_records(_cluster(features={"metadata.version": level}), ())
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
            cluster_metadata_records(_cluster(topics=(replace(_TOPIC, configs=configs),)), ())


def test_users_of_the_formatted_directory_win() -> None:
    formatted = _read([*levels(), user("admin", b"new")])
    old = _read([user("admin", b"old"), user("other", b"old")])
    found = [
        record.values
        for record in cluster_metadata_records(_cluster(carried=old), formatted)
        if "salt" in record.values
    ]
    assert {values["name"]: values["salt"] for values in found} == {"admin": b"new", "other": b"old"}
    assert len(found) == 2
