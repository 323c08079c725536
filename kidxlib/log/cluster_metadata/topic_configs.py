"""The value that a topic's setting has on a broker, and who set it.

Sources: `ServerTopicConfigSynonyms`, `KafkaConfig.extractLogConfigMap`, `DynamicBrokerConfig.overrideProps`,
`ConfigHelper.createTopicConfigEntry`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.java import parse_integer
from kidxlib.log.cluster_metadata.read import ClusterMetadata

_MS_PER_MINUTE: Final = 60 * 1000
_MS_PER_HOUR: Final = 60 * _MS_PER_MINUTE
_UNLIMITED: Final = "-1"
#: What a value begins with that a broker takes from elsewhere, by a config provider (KIP-297).
_FROM_ELSEWHERE: Final = "${"


class ConfigOrigin(enum.StrEnum):
    """Who set a value."""

    TOPIC = "topic"  # it was set for the topic itself
    BROKER = "broker"  # for this broker, while it ran
    BROKERS = "brokers"  # for all brokers, while they ran
    FILE = "server.properties"
    KAFKA = "kafka-default"  # nobody


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value as Kafka's tools print it."""

    value: str
    origin: ConfigOrigin


@dataclass(frozen=True, slots=True)
class _Synonyms:
    """What a broker calls a topic's setting.

    Attributes:
        names: the first that is set counts. Of a time each has what one of its units is in ms, and no limit is -1,
            whatever number below 0 stands there; of others it is None.
        default: Kafka's own.
    """

    names: Sequence[tuple[str, int | None]]
    default: str


#: By the topic's name of a setting. `remote.storage.enable` is a topic's alone.
_SYNONYMS: Final[Mapping[str, _Synonyms]] = {
    "cleanup.policy": _Synonyms([("log.cleanup.policy", None)], "delete"),
    "index.interval.bytes": _Synonyms([("log.index.interval.bytes", None)], "4096"),
    "local.retention.bytes": _Synonyms([("log.local.retention.bytes", None)], "-2"),
    "local.retention.ms": _Synonyms([("log.local.retention.ms", None)], "-2"),
    "message.timestamp.type": _Synonyms([("log.message.timestamp.type", None)], "CreateTime"),
    "remote.storage.enable": _Synonyms([], "false"),
    "retention.bytes": _Synonyms([("log.retention.bytes", None)], "-1"),
    "retention.ms": _Synonyms(
        [("log.retention.ms", 1), ("log.retention.minutes", _MS_PER_MINUTE), ("log.retention.hours", _MS_PER_HOUR)],
        str(7 * 24 * _MS_PER_HOUR),
    ),
    "segment.index.bytes": _Synonyms([("log.index.size.max.bytes", None)], str(10 * 1024 * 1024)),
}
#: The settings that are known here, by the topic's names of them.
TOPIC_CONFIGS: Final = tuple(_SYNONYMS)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker on which a topic is asked for.

    Attributes:
        node_id: None where nobody knows which it is.
        server_properties: what it was started with; None where nobody knows.
    """

    node_id: int | None
    server_properties: Mapping[str, str] | None


def topic_config(metadata: ClusterMetadata, broker: BrokerSettings, topic: str, name: str) -> ConfigValue | None:
    """The value of a topic's setting.

    Args:
        topic: one that the metadata has.
        name: one of `TOPIC_CONFIGS`.

    Returns:
        None where it is not known: nobody has set it for the topic, and what its broker has is not known.
    """
    own = metadata.topic_configs.get(topic, {}).get(name)
    if own is not None:
        return ConfigValue(own, ConfigOrigin.TOPIC)
    synonyms = _SYNONYMS[name]
    if not synonyms.names:
        return ConfigValue(synonyms.default, ConfigOrigin.KAFKA)
    if broker.node_id is None and any(_set_in(configs, synonyms) for node, configs in _of_nodes(metadata)):
        return None
    for configs, origin in (
        (metadata.broker_configs.get(str(broker.node_id), {}), ConfigOrigin.BROKER),
        (metadata.broker_configs.get("", {}), ConfigOrigin.BROKERS),
    ):
        found = _set_in(configs, synonyms)
        if len(found) > 1:  # which of them wins is for the order in which a broker happens to take them
            return None
        if found:
            return ConfigValue(found[0], origin)
    if broker.server_properties is None:
        return None
    found = _set_in(broker.server_properties, synonyms)
    if any(value.startswith(_FROM_ELSEWHERE) for value in found):
        return None
    return ConfigValue(found[0], ConfigOrigin.FILE) if found else ConfigValue(synonyms.default, ConfigOrigin.KAFKA)


def _of_nodes(metadata: ClusterMetadata) -> list[tuple[str, Mapping[str, str]]]:
    return [(node, configs) for node, configs in metadata.broker_configs.items() if node]


def _set_in(configs: Mapping[str, str], synonyms: _Synonyms) -> list[str]:
    """The values that some settings have of a topic's, as the topic would have them, in the order of precedence."""
    return [_as_topics(configs[name].strip(), unit) for name, unit in synonyms.names if name in configs]


def _as_topics(text: str, unit: int | None) -> str:
    number = parse_integer(text, 64)
    if unit is None or number is None:
        return text
    return str(number * unit) if number >= 0 else _UNLIMITED
