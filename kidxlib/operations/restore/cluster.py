"""The cluster that a restore makes: what its metadata says, where each part is known from, and what cannot come back.

Node ids are those of the new brokers. UUIDs are texts as Kafka shows them (`Uuid.toString`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kidxlib.messages.typed_records import FramedMessage
from kidxlib.storage.location import Location

#: Settings that each topic of a restored cluster has a value of, as brokers' defaults may delete records; and the
#: values with which none is deleted. `unclean.leader.election.enable` is among them: with it, a replica that lacks
#: records leads as soon as it starts before the leader does, and the leader cuts its own log.
SAFE_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
#: The id of a log dir that the broker chooses itself (`DirectoryId.UNASSIGNED`).
UNASSIGNED: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """A partition, with those of its replicas that a directory was found of.

    Attributes:
        replicas: the brokers that get a copy; the preferred leader is the first.
        in_sync: those that hold the same batches as the leader up to the leader's end, the leader among them.
        leader: the broker with the longest log, by leader epoch and then end.
        leader_epoch: above every epoch in any source.
        directories: for each replica the id of its new log dir (`directory.id`).
        begins_empty: no source has a directory: the partition is there because the topic's partitions have no gaps.
    """

    topic: str
    topic_id: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[str, ...]
    begins_empty: bool = False


class ConfigProof(enum.StrEnum):
    """Which source says what a setting of a topic was."""

    METADATA = "metadata"  # surviving metadata
    DESCRIBED = "topic-configs"  # the file given as --topic-configs
    BUCKET = "bucket"  # the topic has remote segments
    KAFKA = "kafka"  # brokers make this topic of their own so
    NOTHING = "nothing"  # no source does


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredConfig:
    """A setting of a topic.

    Attributes:
        value: the value in the restored metadata; None: the topic does not set it.
        proof: which source says what the setting was.
        was: the value that this source has; None: no source says, or the topic did not set it. Then the brokers' own
            setting decided, which is in their `server.properties`: metadata does not prove its value.
    """

    name: str
    value: str | None
    proof: ConfigProof
    was: str | None

    @property
    def is_held(self) -> bool:
        """Whether the restored value is another one than the proven value, or than a value that nobody knows."""
        return self.proof is ConfigProof.NOTHING or self.value != self.was


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """
    Attributes:
        partitions: in order of their numbers, from 0 on without gaps.
        configs: the settings of the topic itself, by name.
    """

    name: str
    topic_id: str
    partitions: tuple[RestoredPartition, ...]
    configs: tuple[RestoredConfig, ...]


@dataclass(frozen=True, slots=True)
class RestoredBroker:
    """
    Attributes:
        directories: the ids of its new log dirs (`directory.id` of `meta.properties`), by path.
    """

    node_id: int
    directories: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSource:
    """The copy of `__cluster_metadata` that the restored metadata comes from.

    Attributes:
        directory: the copy.
        node_id: the node whose copy it is; None: no `meta.properties` says.
        epoch: the epoch of the last record (the leader epoch of its batch).
        end_offset: the offset after the last record.
        timestamp_ms: the time of the last record, in ms since the epoch; None: there is none.
        is_committed: whether all its records are known to be committed. With several voters the last ones may not be.
        older: the copies that were not taken, as they end before this one.
    """

    directory: Location
    node_id: int | None
    epoch: int
    end_offset: int
    timestamp_ms: int | None
    is_committed: bool
    older: tuple[MetadataSource, ...] = ()


@dataclass(frozen=True, slots=True)
class CannotComeBack:
    """Something that the old cluster may have had, and that the restored one lacks.

    Attributes:
        kind: such as `ACLs`.
        count: how many; None: not known.
        why: a sentence.
    """

    kind: str
    count: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvidence:
    """What the logs of all sources say of the cluster as a whole.

    Attributes:
        highest_producer_id: of all batches, producer snapshots and `__transaction_state`; −1: there is none.
        coordinator_records: the records in the internal topics: module of the messages (`CONSUMER_OFFSETS`, …), type of
            the key, and the largest version of the value.
        partitions: how many partitions a coordinator's topic had, by the names of groups and transactions in it.
    """

    highest_producer_id: int
    coordinator_records: Mapping[tuple[str, int], int] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCluster:
    """
    Attributes:
        source: where the metadata comes from; None: it was made from the directories.
        topics: in order of their names.
        brokers: in order of their node ids.
        features: levels by name, `metadata.version` among them.
        next_producer_id: above every producer id that a source knows.
        carried: records of surviving metadata that are taken over as they are: ACLs, quotas, SCRAM credentials, …
        cannot_come_back: what the restored cluster lacks.
    """

    cluster_id: str
    source: MetadataSource | None
    topics: tuple[RestoredTopic, ...]
    brokers: tuple[RestoredBroker, ...]
    features: Mapping[str, int]
    next_producer_id: int
    carried: tuple[FramedMessage, ...] = ()
    cannot_come_back: tuple[CannotComeBack, ...] = ()
