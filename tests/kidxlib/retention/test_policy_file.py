"""What Kafka's tools print of topics, in the forms that releases have: the values, and who set each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import UsageError
from kidxlib.retention.policy import DECIDING_CONFIGS, Cleanup, Origin, Reason, TopicConfig, TopicPolicy
from kidxlib.retention.policy_file import read_retention_policies
from tests.kidxlib.retention.test_policy import _kept

#: As `ConfigCommand` of 2.5 to 3.5 prints it: no release of these lists `remote.storage.enable`.
_OF_2_8: Final = """\
All configs for topic orders are:
  compression.type=producer sensitive=false synonyms={DEFAULT_CONFIG:compression.type=producer}
  leader.replication.throttled.replicas= sensitive=false synonyms={}
  message.downconversion.enable=true sensitive=false synonyms={DEFAULT_CONFIG:log.message.downconversion.enable=true}
  min.insync.replicas=1 sensitive=false synonyms={DEFAULT_CONFIG:min.insync.replicas=1}
  segment.jitter.ms=0 sensitive=false synonyms={}
  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
  flush.ms=9223372036854775807 sensitive=false synonyms={}
  follower.replication.throttled.replicas= sensitive=false synonyms={}
  segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}
  retention.ms=259200000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=259200000, \
STATIC_BROKER_CONFIG:log.retention.hours=168, DEFAULT_CONFIG:log.retention.hours=168}
  flush.messages=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.flush.interval.messages=\
9223372036854775807}
  message.format.version=2.8-IV1 sensitive=false synonyms={DEFAULT_CONFIG:log.message.format.version=2.8-IV1}
  max.compaction.lag.ms=9223372036854775807 sensitive=false synonyms={}
  file.delete.delay.ms=60000 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.delete.delay.ms=60000}
  max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}
  min.compaction.lag.ms=0 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.min.compaction.lag.ms=0}
  message.timestamp.type=CreateTime sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.type=CreateTime}
  preallocate=false sensitive=false synonyms={DEFAULT_CONFIG:log.preallocate=false}
  index.interval.bytes=4096 sensitive=false synonyms={DEFAULT_CONFIG:log.index.interval.bytes=4096}
  min.cleanable.dirty.ratio=0.5 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.min.cleanable.ratio=0.5}
  unclean.leader.election.enable=false sensitive=false synonyms={DEFAULT_CONFIG:unclean.leader.election.enable=false}
  retention.bytes=-1 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.bytes=-1}
  delete.retention.ms=86400000 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.delete.retention.ms=86400000}
  segment.ms=604800000 sensitive=false synonyms={}
  segment.index.bytes=10485760 sensitive=false synonyms={DEFAULT_CONFIG:log.index.size.max.bytes=10485760}
"""
_BOTH: Final = """\
INFO AdminClientConfig values:
\tbootstrap.servers = [127.0.0.1:9092]
Dynamic configs for topic both are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, \
DEFAULT_CONFIG:log.cleanup.policy=delete}
  retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}
Dynamic configs for topic plain are:
Default configs for brokers in the cluster are:
  log.retention.ms=5 sensitive=false synonyms={}
"""
_ALL: Final = frozenset(Cleanup)


def _topic(directory: Path, text: str, topic: str) -> TopicConfig:
    (directory / "described.txt").write_text(text)
    [policy] = read_retention_policies(directory / "described.txt")
    return policy.of_topic(topic)


def test_a_release_before_tiered_storage(tmp_path: Path) -> None:
    """All is known; what is not listed where all else is, that release does not have."""
    config = _topic(tmp_path, _OF_2_8, "orders")
    assert config.policy == TopicPolicy(retention_ms=259200000) and config.unknown == ()
    assert set(config.origins.values()) == {Origin.BROKER} and not config.assumes_delete
    assert _topic(tmp_path, _OF_2_8, "others").unknown == DECIDING_CONFIGS


def test_a_topics_properties(tmp_path: Path) -> None:
    """The file that `kafka-configs --add-config-file` takes: what it lacks, nobody has said."""
    file = tmp_path / "orders.v2.properties"
    file.write_text("# ours\n\ncleanup.policy=compact,delete\n retention.ms : 1000 \nsegment.bytes 5\n")
    [policy] = read_retention_policies(file)
    config = policy.of_topic("orders.v2")
    assert (config.policy.cleanup, config.policy.retention_ms) == (_ALL, 1000)
    assert config.unknown == ("retention.bytes", "remote.storage.enable")
    assert {config.origins[name] for name in ("cleanup.policy", "retention.ms")} == {Origin.TOPIC}
    assert policy.of_topic("orders").unknown == DECIDING_CONFIGS
    for text, message in (
        ("retention.ms=1\nretention.ms=2", "line 2: retention.ms: given twice"),
        ("retention.ms=1\n\nretention.ms", "line 3: 'retention.ms'; expected KEY=VALUE"),
        ("cleanup.policy=del\\\nete", "line 1: "),
        ("retention.ms=soon", "line 1: "),
        ("num.network.threads=3\nlog.retention.ms=5", "line 2: a broker's settings"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=re.escape(message)):
            read_retention_policies(file)


def test_lines_that_were_taken_out_make_unknown(tmp_path: Path) -> None:
    """By grep, say: what is not there may have been in the output, also where the topic has tiered storage."""
    some = "".join(f"{line}\n" for line in _OF_2_8.splitlines() if "configs for" in line or "retention" in line)
    assert _topic(tmp_path, some, "orders").unknown == ("cleanup.policy", "remote.storage.enable")


def test_dynamic_values_alone(tmp_path: Path) -> None:
    """Among lines of a log, of other topics, and of brokers: what was set for the topic is known, and no more."""
    config = _topic(tmp_path, _BOTH, "both")
    assert config.policy == TopicPolicy(retention_ms=1000, cleanup=_ALL)
    assert config.unknown == ("retention.bytes", "remote.storage.enable")
    assert [config.origins[name] for name in ("cleanup.policy", "retention.ms")] == [Origin.TOPIC] * 2
    assert _topic(tmp_path, _BOTH, "plain").unknown == DECIDING_CONFIGS


@pytest.mark.parametrize(
    "text",
    [
        "Configs for topic 'a' are cleanup.policy=compact,delete,retention.ms=5,segment.bytes=7\n",
        "Topic:a\tPartitionCount:1\tReplicationFactor:1\tConfigs:cleanup.policy=compact,delete,retention.ms=5\n",
        "Topic: a\tTopicId: x\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: retention.ms=5,"
        "cleanup.policy=compact,delete\n\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n",
        '{"a": {"cleanup.policy": "compact,delete", "retention.ms": "5"}}',
        '{"a": {"cleanup.policy": ["compact", "delete"], "retention.ms": 5}}',
    ],
    ids=["with zookeeper", "kafka-topics of 2.2", "kafka-topics of 4.3", "json", "json, typed"],
)
def test_other_forms(text: str, tmp_path: Path) -> None:
    config = _topic(tmp_path, text, "a")
    assert config.policy == TopicPolicy(retention_ms=5, cleanup=_ALL)
    assert config.unknown == ("retention.bytes", "remote.storage.enable")


@pytest.mark.parametrize("name", ["remote.storage.enable", "confluent.tier.enable"])
def test_a_tiered_topic_is_not_modelled(name: str, tmp_path: Path) -> None:
    line = f"  {name}=true sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{name}=true}}\n"
    config = _topic(tmp_path, _OF_2_8 + line, "orders")
    assert config.policy.remote_storage and _kept("orders", config) is Reason.NOT_MODELLED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            _BOTH.replace("=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}", "=10"),
            "line 5: 'retention.ms=10'; expected KEY=VALUE sensitive=… synonyms={…}, is the output cut off?",
        ),
        (_BOTH + _BOTH.replace("=1000", "=7"), "line 11: topic both: described before, with other values"),
        (_BOTH.replace("ms=1000 s", "ms=-2 s"), "line 5: topic both: retention.ms=-2; expected a whole number, -1 (no"),
        ('{"a": 5}', 'a: 5; expected an object, {"cleanup.policy": "delete", …}'),
        ('{"a": {', "not valid JSON: "),
        ('{"a": {"retention.ms": 1}, "a": {"retention.ms": 2}}', "a: given twice"),
        ('{"a": {"retention.ms": 1, "retention.ms": 2}}', "retention.ms: given twice"),
        ('{"a":' * 100_000, "not valid JSON: nested too deeply"),
        ('{"a": {"retention.ms": ' + "9" * 5000 + "}}", "not valid JSON: "),
        (_BOTH.replace("  cleanup.policy=", "  retention.ms="), "line 5: retention.ms: given twice"),
        ("Configs for topic 'a' are retention.ms=1,retention.ms=2\n", "line 1: retention.ms: given twice"),
    ],
    ids=[
        *("cut off", "two clusters", "a value", "json", "broken json"),
        *("topic twice", "key twice", "nested json", "digits", "line twice", "list twice"),
    ],
)
def test_what_cannot_be_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        _topic(tmp_path, text, "a")
    assert str(refused.value).startswith(f"{tmp_path}/described.txt: {message}")
