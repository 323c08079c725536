"""What Kafka's own `kafka-configs` and `kafka-topics` print of a real broker's topics is read as the broker has it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kidxlib.retention.policy import DECIDING_CONFIGS, Cleanup, Origin, TopicConfig, TopicPolicy
from kidxlib.retention.policy_file import read_policies
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.broker import Broker

_CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
_TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_TWO_DAYS_MS: Final = 2 * 24 * 60 * 60 * 1000
#: By topic, what is set for it.
_SET: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "with.dots_and-dashes": {"cleanup.policy": "compact,delete", "retention.ms": "1000"},
    "compacted": {"cleanup.policy": "compact", "leader.replication.throttled.replicas": "0:1,1:1"},
    "large": {"retention.bytes": "5", "retention.ms": "-1"},
}


def test_what_kafkas_tools_print_is_what_the_broker_has(broker_version: str, tmp_path: Path) -> None:
    """A broker whose own default is two days: of all topics at once, of one, and of what was set alone."""
    broker = Broker(tmp_path / "broker", {"log.retention.hours": 48}, version=broker_version)
    here = ("--bootstrap-server", broker.bootstrap)
    with broker.running():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(topic, 1, 1, config=values) for topic, values in _SET.items()]
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_SECONDS)
        of_topics = (_CONFIGS, *here, "--describe", "--entity-type", "topics")
        said = broker.run_tool(*of_topics, "--all")
        one = broker.run_tool(*of_topics, "--all", "--entity-name", "with.dots_and-dashes")
        alone = broker.run_tool(*of_topics)
        listed = broker.run_tool(_TOPICS, *here, "--describe")

    expected = {
        "plain": TopicPolicy(retention_ms=_TWO_DAYS_MS),
        "with.dots_and-dashes": TopicPolicy(retention_ms=1000, cleanup=frozenset(Cleanup)),
        "compacted": TopicPolicy(retention_ms=_TWO_DAYS_MS, cleanup=frozenset({Cleanup.COMPACT})),
        "large": TopicPolicy(retention_ms=-1, retention_bytes=5),
    }
    found = {topic: _read(tmp_path, said, topic) for topic in _SET}
    assert {topic: config.policy for topic, config in found.items()} == expected
    for topic, config in found.items():
        origins = {name: Origin.TOPIC if name in _SET[topic] else Origin.BROKER for name in DECIDING_CONFIGS}
        assert dict(config.origins) == origins and config.unknown == (), topic
    assert _read(tmp_path, one, "with.dots_and-dashes") == found["with.dots_and-dashes"]
    assert _read(tmp_path, one, "plain").unknown == DECIDING_CONFIGS

    for text in (alone, listed):
        assert _read(tmp_path, text, "plain").unknown == DECIDING_CONFIGS
        both = _read(tmp_path, text, "with.dots_and-dashes")
        assert both.policy == expected["with.dots_and-dashes"]
        assert both.unknown == ("retention.bytes", "remote.storage.enable")


def _read(directory: Path, text: str, topic: str) -> TopicConfig:
    (directory / "described.txt").write_text(text)
    [policy] = read_policies(directory / "described.txt")
    return policy.of_topic(topic)
