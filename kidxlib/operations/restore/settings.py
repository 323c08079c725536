"""Settings of restored topics: those that a source proves, and the hold on everything by which Kafka removes records.

No topic is deleted by a guess: where nobody says what a setting was, the value with which nothing is removed stands in
its place (`SAFE_CONFIGS`), and never Kafka's default. Held topics have these values, whatever is proven, until somebody
has checked the cluster. A compacted topic stays compacted, as coordinators and clients rely on that; no cleaner works
on it while `min.compaction.lag.ms` is at its largest value.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.operations.restore.cluster import (
    SAFE_CONFIGS,
    ConfigProof,
    RestoredCluster,
    RestoredConfig,
    RestoredTopic,
)
from kidxlib.retention.described_configs import OwnSettings, read_own_settings
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE
from kidxlib.storage.log_dir import small_file
from kidxlib.text.words import shell_option

_CLEANUP: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_LEAST_LAG: Final = "min.compaction.lag.ms"
_MOST_LAG: Final = "max.compaction.lag.ms"
#: With it a shorter replica whose broker starts first leads, and the others cut acknowledged records. So it is held
#: where retention is not, too.
_UNCLEAN: Final = "unclean.leader.election.enable"
_FOREVER: Final = str(2**63 - 1)
#: With it nothing is uploaded. Kafka takes no local retention of its own beside it, so it is lifted first
#: (`LogConfig.validateRemoteStorageRetentionTime`).
_NO_COPY: Final = "remote.log.copy.disable"
#: A log dir keeps what the topic keeps.
_LOCAL_AS_ALL: Final = {"local.retention.bytes": "-2", "local.retention.ms": "-2"}
#: `TopicBasedRemoteLogMetadataManager.createTopic`. What would be removed there, brokers would no longer find.
_REMOTE_METADATA_CONFIGS: Final = (
    ("cleanup.policy", "delete", ConfigProof.KAFKA),
    ("retention.ms", "-1", ConfigProof.KAFKA),
    ("retention.bytes", "-1", ConfigProof.KAFKA),
    ("unclean.leader.election.enable", "false", ConfigProof.KAFKA),
)


@dataclass(frozen=True, slots=True)
class ProvenSettings:
    """What the files of `--topic-configs` say, by topic."""

    by_topic: Mapping[str, OwnSettings]

    @classmethod
    def read(cls, files: Sequence[Path]) -> ProvenSettings:
        by_topic: dict[str, OwnSettings] = {}
        for path in files:
            try:
                text = small_file(path).decode()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--topic-configs {path}: cannot be read: {error}") from error
            settings = read_own_settings(path, text)
            if not settings:
                raise UsageError(
                    f"--topic-configs {path}: no topic in it; expected the output of kafka-configs --describe --all "
                    "--entity-type topics"
                )
            for topic, own in settings.items():
                if by_topic.setdefault(topic, own) != own:
                    raise UsageError(f"--topic-configs {path}: topic {topic}: another file says otherwise; keep one")
        return cls(by_topic)


def with_settings(
    cluster: RestoredCluster,
    proven: ProvenSettings,
    known: Mapping[str, str],
    tiered: Collection[str] = (),
    *,
    holds: bool,
) -> RestoredCluster:
    """The cluster, with the settings that each topic gets.

    Args:
        known: topic ids by name of the metadata that survives. Of a topic that was made later it says nothing, so that
            a setting which is not there may have been set.
        tiered: the topics with segments in a bucket.
    """
    topics = (
        replace(
            topic,
            configs=tuple(
                _proven_configs(
                    topic,
                    proven.by_topic.get(topic.name),
                    known.get(topic.name) == topic.topic_id,
                    holds,
                    topic.name in tiered,
                )
            ),
        )
        for topic in cluster.topics
    )
    return replace(cluster, topics=tuple(topics))


def _proven_configs(
    topic: RestoredTopic, described: OwnSettings | None, is_in_metadata: bool, holds: bool, is_tiered: bool
) -> Iterator[RestoredConfig]:
    own = {config.name: config for config in topic.configs}
    if described is not None:
        for name, value in described.of_topic.items():
            own.setdefault(name, RestoredConfig(name=name, value=value, proof=ConfigProof.DESCRIBED, was=value))
    for name, value, proof in (
        *([(REMOTE_STORAGE_ENABLE, "true", ConfigProof.BUCKET)] if is_tiered else ()),
        *(_REMOTE_METADATA_CONFIGS if topic.name == REMOTE_LOG_METADATA_TOPIC else ()),
    ):
        own.setdefault(name, RestoredConfig(name=name, value=value, proof=proof, was=value))
    policy = own[_CLEANUP].was if _CLEANUP in own else _default_cleanup_policy(topic)
    held = {**SAFE_CONFIGS, _CLEANUP: policy or SAFE_CONFIGS[_CLEANUP]}
    if _COMPACT in held[_CLEANUP] and holds:
        held[_LEAST_LAG] = _FOREVER
    is_tiered = is_tiered or (REMOTE_STORAGE_ENABLE in own and own[REMOTE_STORAGE_ENABLE].was == "true")
    if is_tiered and (holds or not is_in_metadata):
        held |= _LOCAL_AS_ALL
    if is_tiered and holds:
        held[_NO_COPY] = "true"
    nobody = ConfigProof.METADATA if is_in_metadata else ConfigProof.NOTHING
    for name, safe in held.items():
        config = own.pop(name, None)
        if config is None:
            is_listed = described is not None and name in described.listed
            yield RestoredConfig(name=name, value=safe, proof=ConfigProof.DESCRIBED if is_listed else nobody, was=None)
        else:
            yield replace(config, value=safe) if holds or name == _UNCLEAN else config
    if holds and _MOST_LAG in own:  # a broker refuses one below `min.compaction.lag.ms`
        yield replace(own.pop(_MOST_LAG), value=None)
    yield from own.values()


def _default_cleanup_policy(topic: RestoredTopic) -> str | None:
    """The policy of a topic that sets none. Brokers give some of their own topics one
    (`GroupCoordinatorConfig`, `TransactionLog`).
    """
    return _COMPACT if topic.name in COMPACTED_BY_BROKERS else None


def lifts(topic: RestoredTopic) -> list[str]:
    """The arguments of `kafka-configs --alter`, as a shell takes them, that give a topic the settings that a source
    proves, and let cleaners work again.
    """
    add = [
        f"{config.name}={config.was}"
        for config in topic.configs
        if config.is_held and config.was is not None and config.name != _NO_COPY
    ]
    delete = [
        config.name
        for config in topic.configs
        if config.is_held
        and config.was is None
        and (config.proof is not ConfigProof.NOTHING or config.name == _LEAST_LAG)
        and config.name != _NO_COPY
    ]
    for_topic = f"--alter --entity-type topics {shell_option('--entity-name', topic.name)}"
    copies = [config for config in topic.configs if config.name == _NO_COPY and config.value != config.was]
    return [
        *([f"{for_topic} --add-config {_NO_COPY}={copies[0].was or 'false'}"] if copies else []),
        *([f"{for_topic} --add-config {shlex.quote(','.join(map(_as_kafka_configs_takes, add)))}"] if add else []),
        *([f"{for_topic} --delete-config {','.join(delete)}"] if delete else []),
    ]


def _as_kafka_configs_takes(setting: str) -> str:
    """A setting whose value has commas, as `kafka-configs` takes it."""
    name, _, value = setting.partition("=")
    return f"{name}=[{value}]" if "," in value else setting


def will_be_tiered(topic: RestoredTopic) -> bool:
    """Whether its brokers will read what a bucket has of it."""
    return any(config.name == REMOTE_STORAGE_ENABLE and config.value == "true" for config in topic.configs)


def unproven(topic: RestoredTopic) -> list[str]:
    """The settings of a topic that no source says."""
    return [config.name for config in topic.configs if config.proof is ConfigProof.NOTHING]
