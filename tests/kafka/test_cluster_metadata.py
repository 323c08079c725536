"""What log dirs, tools and settings files say of topics is what the live broker and Java say of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kidxlib.format.segment_files import parse_kraft_snapshot
from kidxlib.java import parse_properties
from kidxlib.log.metadata_image import (
    TOPIC_CONFIGS,
    BrokerSettings,
    ClusterMetadata,
    ConfigOrigin,
    ConfigValue,
    read_cluster_metadata,
    topic_config,
)
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.retention.policy import DECIDING_CONFIGS, Cleanup, Origin, TopicConfig, TopicPolicy
from kidxlib.retention.policy_file import read_retention_policies
from kidxlib.storage.log_dir import read_topic_id
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.admin import delete_topic, make_topics, set_config, wait_until
from tests.support.kafka.broker import Broker
from tests.support.kafka.classes import Kafka
from tests.support.spark.jobs import Ended, kidx_build_here, kidx_retention_here

#: What the broker is started with: of each pair of synonyms one that wins, and one that loses.
_SETTINGS: Final[Mapping[str, Any]] = {
    "log.retention.minutes": 90,
    "log.retention.hours": 48,
    "log.message.timestamp.type": "LogAppendTime",
    "metadata.log.max.snapshot.interval.ms": 300,
    "log.initial.task.delay.ms": 3_600_000,  # before it deletes what is old itself
}
_OF_THEIR_OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "dense": {"index.interval.bytes": "512", "segment.index.bytes": "65536"},
    "compacted": {"cleanup.policy": "compact,delete", "retention.ms": "1000", "local.retention.ms": "1000"},
    "by-size": {"retention.bytes": "5000000", "retention.ms": "-1", "message.timestamp.type": "CreateTime"},
    "short": {
        "retention.ms": "1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
        "internal.segment.bytes": "2048",
    },
}
#: Kafka's `ConfigSource`, as a client has it.
_ORIGINS: Final = {
    1: ConfigOrigin.TOPIC,
    2: ConfigOrigin.BROKER,
    3: ConfigOrigin.BROKERS,
    4: ConfigOrigin.FILE,
    5: ConfigOrigin.KAFKA,
}
_CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
_BY_FILE: Final = (ConfigOrigin.FILE, ConfigOrigin.KAFKA)


@dataclass(frozen=True, slots=True)
class Described:
    """A broker after its work: its files, and what it said of each topic's settings while it ran.

    Attributes:
        printed: what `kafka-configs` printed.
        early: a copy of its metadata from before topics were configured anew, and one was made again.
    """

    broker: Broker
    configs: Mapping[str, Mapping[str, ConfigValue]]
    read_live: ClusterMetadata
    printed: Path
    early: Path

    @property
    def metadata_directory(self) -> Path:
        return self.broker.log_dir / METADATA_DIRECTORY

    @property
    def server_properties(self) -> dict[str, str]:
        return parse_properties((self.broker.directory / "server.properties").read_bytes())


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Described:
    broker = Broker(tmp_path_factory.mktemp("metadata") / "broker", _SETTINGS, version=broker_version)
    with broker.running():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        _create(
            broker.bootstrap, {**_OF_THEIR_OWN, "made-again": {"retention.ms": "1"}, "deleted": {"retention.ms": "2"}}
        )
        early = broker.directory / METADATA_DIRECTORY
        shutil.copytree(broker.log_dir / METADATA_DIRECTORY, early, copy_function=_copy_if_there)
        delete_topic(broker.bootstrap, "made-again")
        _create(broker.bootstrap, {"made-again": {"retention.bytes": "7"}})
        delete_topic(broker.bootstrap, "deleted")
        set_config(broker.bootstrap, "by-size", {"retention.ms": None})
        set_config(broker.bootstrap, "short", {"retention.bytes": 1_000_000})
        set_config(broker.bootstrap, "1", {"log.retention.bytes": 123_456_789}, ResourceType.BROKER)
        broker.run_tool(
            *(_CONFIGS, "--bootstrap-server", broker.bootstrap, "--broker-defaults", "--alter"),
            *("--add-config", "log.index.interval.bytes=2048,log.retention.bytes=5"),
        )
        _create(broker.bootstrap, {"as-the-broker": {}})  # an open segment keeps the interval that it was begun with
        # The controller has made it; a broker that knows of it knows of all changes before.
        wait_until(
            lambda: "as-the-broker" in admin.list_topics(timeout=TIMEOUT_SECONDS).topics,
            "the broker does not hear of a topic",
        )
        configs = {topic: _describe(admin, topic) for topic in ("as-the-broker", *_OF_THEIR_OWN, "made-again")}
        _write(broker.bootstrap)
        live = read_cluster_metadata(broker.log_dir / METADATA_DIRECTORY)
        of_topics = ("--bootstrap-server", broker.bootstrap, "--describe", "--all", "--entity-type", "topics")
        printed = broker.directory / "topics.txt"
        printed.write_text(broker.run_tool(_CONFIGS, *of_topics))
    return Described(broker, configs, live, printed, early)


def _copy_if_there(source: str, target: str) -> None:
    """The broker renames a snapshot when it has written it."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _create(bootstrap: str, topics: Mapping[str, Mapping[str, str]]) -> None:
    make_topics(bootstrap, [NewTopic(topic, 1, 1, config=dict(configs)) for topic, configs in topics.items()])


def _write(bootstrap: str) -> None:
    """Enough for entries of different intervals."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(40):
        for topic in ("as-the-broker", "dense", "short"):
            producer.produce(topic, bytes(700))
    assert producer.flush(TIMEOUT_SECONDS) == 0


def _describe(admin: AdminClient, topic: str) -> dict[str, ConfigValue]:
    """What `kafka-configs --describe --all` asks for."""
    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = described.result(TIMEOUT_SECONDS)
    return {name: ConfigValue(entries[name].value, _ORIGINS[int(entries[name].source)]) for name in TOPIC_CONFIGS}


@pytest.mark.parametrize("is_live", [True, False])
def test_settings_of_topics_are_those_of_the_broker(described: Described, is_live: bool) -> None:
    """Each value, and who set it; while the broker runs, and after it has stopped."""
    metadata = described.read_live if is_live else read_cluster_metadata(described.metadata_directory)
    broker = BrokerSettings(1, described.server_properties)
    for topic, configs in described.configs.items():
        for name, expected in configs.items():
            found = topic_config(metadata, broker, topic, name)
            if name == "retention.ms" and expected.origin is ConfigOrigin.KAFKA:
                # Of three synonyms a broker tells the origin of the first alone; the file has the second.
                expected = ConfigValue(str(_SETTINGS["log.retention.minutes"] * 60_000), ConfigOrigin.FILE)
                assert configs[name].value == expected.value
            assert found == expected, (topic, name)
    assert {value.origin for configs in described.configs.values() for value in configs.values()} == set(ConfigOrigin)


def test_what_only_the_file_says_is_unknown_without_it(described: Described) -> None:
    metadata = described.read_live
    for topic, configs in described.configs.items():
        for name, expected in configs.items():
            is_known = expected.origin not in _BY_FILE or name == "remote.storage.enable"  # which no broker has
            found = topic_config(metadata, BrokerSettings(1, None), topic, name)
            assert found == (expected if is_known else None), (topic, name)
    # Of a broker that nobody knows, what was set for one broker may hold or not.
    for topic in ("as-the-broker", "dense"):
        assert topic_config(metadata, BrokerSettings(None, None), topic, "retention.bytes") is None
        assert topic_config(metadata, BrokerSettings(2, None), topic, "retention.bytes") == ConfigValue(
            "5", ConfigOrigin.BROKERS
        )


def test_topics_have_the_ids_of_their_directories(described: Described) -> None:
    """One that was deleted is not there; one that was made again has its new id, and nothing of the old one's."""
    metadata = read_cluster_metadata(described.metadata_directory)
    assert described.configs.keys() == {topic for topic in metadata.topics if not topic.startswith("__")}
    for topic in described.configs:
        assert metadata.topics[topic] == read_topic_id(described.broker.log_dir / f"{topic}-0")
    assert dict(metadata.topic_configs["made-again"]) == {"retention.bytes": "7"}


def test_each_snapshot_and_the_log_behind_it_say_the_same(described: Described, tmp_path: Path) -> None:
    """And so does the log alone."""
    expected = read_cluster_metadata(described.metadata_directory)
    snapshots = [path for path in described.metadata_directory.iterdir() if parse_kraft_snapshot(path.name) is not None]
    assert len(snapshots) > 2
    for kept in (None, *snapshots):
        copy = tmp_path / METADATA_DIRECTORY
        shutil.copytree(described.metadata_directory, copy)
        for path in snapshots:
            if path != kept:
                (copy / path.name).unlink()
        found = read_cluster_metadata(copy)
        assert (found.topics, found.topic_configs) == (expected.topics, expected.topic_configs), kept
        assert (found.broker_configs, found.as_of) == (expected.broker_configs, expected.as_of)
        shutil.rmtree(copy)


def test_a_build_makes_the_indexes_that_the_broker_has(described: Described, tmp_path: Path) -> None:
    """Of one topic with an interval of its own, and of one with that of all brokers, and nobody types them."""
    log_dir = described.broker.log_dir
    built = kidx("build", log_dir, "--index-dir", tmp_path / "index", "--topics", "dense|as-the-broker")
    assert f"{METADATA_DIRECTORY} as of offset " in built.out
    sizes = set()
    for path in [*(log_dir / "dense-0").glob("*.index"), *(log_dir / "as-the-broker-0").glob("*.index")]:
        made = tmp_path / "index" / path.parent.name / path.name
        assert made.read_bytes() == path.read_bytes(), path
        sizes.add(made.stat().st_size)
    assert len(sizes) == 2


def test_a_plan_of_retention_is_that_of_what_kafkas_tools_print(described: Described, tmp_path: Path) -> None:
    """Of each segment the decision and the reason, and of each topic the values and who has set them. Without the file
    that the broker was started with, topics without values of their own are not decided on; and one that was made again
    is not decided on by what was said of the other.
    """
    archive = _Archive(described, tmp_path)
    printed = archive.plan("--policy", described.printed)
    told = archive.plan("--server-properties", archive.server_properties)
    assert told["segments"] == printed["segments"] and not told["unknown_policies"]
    assert {s["decision"] for s in told["segments"]} == {"delete", "keep"}
    [read] = told["cluster_metadata"]
    assert read["taken"]["retention.ms"] == {"topic": 2, "server.properties": 4}

    alone = archive.plan()
    assert alone["unknown_policies"].keys() == described.configs.keys() - {"short", "compacted"}
    of_short, told_of_short = ([s for s in plan["segments"] if s["topic"] == "short"] for plan in (alone, told))
    assert of_short == told_of_short

    early = archive.retention("--cluster-metadata", described.early, "--server-properties", archive.server_properties)
    line = f"topic made-again: its topic id is {read_topic_id(archive.log_dir / 'made-again-0')} in source b, and "
    assert line in early.out and "not decided: 2 segments of 2 topics (the first: as-the-broker)" in early.out


def test_a_plan_is_applied_by_what_metadata_says_then(described: Described, tmp_path: Path) -> None:
    """Not where a topic is configured otherwise by now, and not where that cannot be known."""
    archive = _Archive(described, tmp_path)
    by_file = ("--server-properties", archive.server_properties)
    early = ("--cluster-metadata", described.early, *by_file)
    for options, then, parts in (
        (early, by_file, ("topic short: retention.bytes is 1000000 now, planned with -1; plan again",)),
        (early, (*early, "--max-metadata-lag", "1ms"), (METADATA_DIRECTORY, ": short-0 goes on to ", "0:00:00.001000")),
        (("--retention-ms", "0", *by_file), by_file, ("retention.ms is 5400000 now, planned with 0",)),
    ):
        refused = archive.apply(archive.plan(*options)["plan_id"], *then, "--same-broker")
        assert refused.code == ExitCode.USAGE and [part for part in parts if part not in refused.err] == [], refused
    plan = archive.plan(*by_file)
    elsewhere = archive.apply(plan["plan_id"], *by_file)
    assert elsewhere.code == ExitCode.USAGE and f"do not name {archive.log_dir}; " in elsewhere.err, elsewhere
    applied = archive.apply(plan["plan_id"], *by_file, "--same-broker")
    assert applied.code == 0, applied
    going = [s for s in plan["segments"] if s["decision"] == "delete"]
    assert applied.json["by_outcome"] == {"deleted": len(going) - 1, "last": 1} and len(going) > 5


class _Archive:
    """A copy of the broker's log dir, with a catalog."""

    def __init__(self, described: Described, directory: Path) -> None:
        self.log_dir, self._catalog = directory / "data", directory / "catalog"
        self.server_properties = described.broker.directory / "server.properties"
        shutil.copytree(described.broker.log_dir, self.log_dir)
        built = kidx_build_here(
            "--source", f"b={self.log_dir}", "--index-dir", directory / "i", "--catalog", self._catalog
        )
        assert built.code in (0, 3), built.err  # the controller's log is never stopped cleanly

    def plan(self, *options: str | Path) -> dict[str, Any]:
        return self.retention(*options, "--json").json

    def apply(self, plan_id: str, *options: str | Path) -> Ended:
        return self.retention("--apply", "--plan", plan_id, "--delete-delay", "0s", *options, "--json")

    def retention(self, *options: str | Path) -> Ended:
        return kidx_retention_here("--catalog", self._catalog, *options)


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
        topics = [NewTopic(topic, 1, 1, config=values) for topic, values in _SET.items()]
        make_topics(broker.bootstrap, topics)
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
    [policy] = read_retention_policies(directory / "described.txt")
    return policy.of_topic(topic)


_PIECES = st.sampled_from([*"a=: \t\f\n\r\\#!ä", "key", "log.dirs", "\r\n", "\\\n", "\\u0041", "\\t"])


@given(st.lists(_PIECES, max_size=14).map("".join))
@settings(max_examples=400)
@example("a=b\\\n   c\\\\\n#d=e\n ! f\ng h : = i\n\\ j = k \n=l\nm\\=n:o\na=last")
def test_they_are_javas(kafka: Kafka, text: str) -> None:
    java = kafka.gateway.jvm.java
    properties = java.util.Properties()
    content = text.encode("latin-1")
    properties.load(java.io.ByteArrayInputStream(content))
    theirs = {str(name): str(properties.getProperty(name)) for name in properties}
    theirs.pop("", None)
    assert parse_properties(content) == theirs
