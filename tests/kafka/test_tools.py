"""Kafka's own tools take the files that kidx writes for them, and do what was planned."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from kidxlib.text.times import show_time
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.admin import make_topics
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker
from tests.support.spark.jobs import kidx_build_here, kidx_retention_here, kidx_seek_here

_TOPIC: Final = "moments"
_MOMENT: Final = 1_795_168_800_000
#: First and last timestamp of a partition's records, relative to the moment: about it, all older, all younger, none.
_RANGES: Final = ((-500, 500), (-1_000, -1), (0, 900), None)
_RECORDS: Final = 3_000
_SETTINGS: Final = {"offsets.topic.num.partitions": 1}
_TOPIC_SETTINGS: Final = {
    "internal.segment.bytes": "65536",  # `segment.bytes` cannot be less than 1 MiB
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
_TOOL: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def _produce(bootstrap: str, rng: random.Random) -> None:
    """Records whose timestamps do not increase, in several segments."""
    make_topics(bootstrap, [NewTopic(_TOPIC, len(_RANGES), 1, config=_TOPIC_SETTINGS)])
    # A batch that is sent again stays in its place.
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 50, "enable.idempotence": True})
    for partition, between in enumerate(_RANGES):
        for number in range(_RECORDS if between else 0):
            assert between is not None
            width = between[1] - between[0]
            drift = between[0] + number * width // _RECORDS
            timestamp = _MOMENT + max(between[0], min(between[1], drift + rng.randint(-50, 50)))
            producer.produce(_TOPIC, b"v" * 60, partition=partition, timestamp=timestamp)
            producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def _committed(bootstrap: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(_TOPIC, partition) for partition in range(len(_RANGES))]
        return {found.partition: found.offset for found in consumer.committed(asked, TIMEOUT_SECONDS)}
    finally:
        consumer.close()


def test_offsets_of_a_group_are_those_that_kafka_would_set(
    broker_version: str, tmp_path: Path, rng: random.Random
) -> None:
    """A broker runs throughout; the catalog is built of its log dir, which is only read. Each file is given to the
    tool, the committed offsets are read by a client, and the tool does the same to another group by its own means.
    """
    broker = Broker(tmp_path / "broker", _SETTINGS, version=broker_version)
    with broker.running():
        _produce(broker.bootstrap, rng)
        catalog = tmp_path / "catalog"
        source = ("--source", f"live={broker.log_dir}", "--topics", _TOPIC)
        ended = kidx_build_here(*source, "--index-dir", tmp_path / "index", "--catalog", catalog)
        assert ended.code == 0, ended.err

        ways = {"timestamp": ("--to-datetime", show_time(_MOMENT)), "offset": ("--to-offset", "1234")}
        for column, (option, value) in ways.items():
            questions, offsets = tmp_path / f"{column}s.csv", tmp_path / f"{column}s-of-group.csv"
            lines = [f"{_TOPIC},{partition},{value}" for partition in range(len(_RANGES))]
            questions.write_text("\n".join([f"topic,partition,{column}", *lines]) + "\n")
            ended = kidx_seek_here("--catalog", catalog, "--queries", questions, "--consumer-group-csv", offsets)
            assert ended.code == 0, ended.err

            reset = ("--bootstrap-server", broker.bootstrap, "--reset-offsets", "--execute")
            broker.run_tool(_TOOL, *reset, "--group", f"ours-{column}", "--from-file", str(offsets))
            broker.run_tool(_TOOL, *reset, "--group", f"kafkas-{column}", "--topic", _TOPIC, option, value)
            ours = _committed(broker.bootstrap, f"ours-{column}")
            assert ours == _committed(broker.bootstrap, f"kafkas-{column}"), column
            written = {int(line.split(",")[1]): int(line.split(",")[2]) for line in offsets.read_text().splitlines()}
            assert written == ours
            if column == "timestamp":
                assert 0 < ours[0] < _RECORDS and (ours[1], ours[2], ours[3]) == (_RECORDS, 0, 0), ours
            else:
                assert ours == {0: 1234, 1: 1234, 2: 1234, 3: 0}, ours


_DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
_ORDERS: Final = "orders"
_FIRST_DAY_MS: Final = 1_700_000_000_000
_DAY_MS: Final = 24 * 60 * 60 * 1000
_DAYS: Final = 60
#: Written by a person for the very topic, which the cluster keeps for ever.
_POLICY: Final = f"""\
[[topic]]
match = "{_ORDERS}"
cleanup.policy = "delete"
retention.bytes = -1
remote.storage.enable = false
"""
#: `segment.bytes` cannot be less than 1 MiB; this one, of Kafka's own tests, can.
_CONFIG: Final = {"internal.segment.bytes": "2048", "segment.ms": str(2**63 - 1), "retention.ms": "-1"}


def _produce_orders(bootstrap: str) -> None:
    """Partition 0: a record a day in many segments. Partition 1: so few that all are too old."""
    make_topics(bootstrap, [NewTopic(_ORDERS, 2, 1, config=_CONFIG)])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(_DAYS):
        for partition in (0, 1) if number < 3 else (0,):
            timestamp = _FIRST_DAY_MS + _DAY_MS * number
            producer.produce(_ORDERS, bytes(200), partition=partition, timestamp=timestamp)
            assert producer.flush(TIMEOUT_SECONDS) == 0


def test_a_plan_is_applied_on_a_live_broker(broker_version: str, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", {}, version=broker_version)
    with broker.running():
        _produce_orders(broker.bootstrap)
    catalog, wanted = tmp_path / "catalog", tmp_path / "delete.json"
    built = kidx_build_here("--source", f"b={broker.log_dir}", "--index-dir", tmp_path / "index", "--catalog", catalog)
    assert built.code in (0, 3), built.err  # the controller's log is never stopped cleanly
    # As if it were the day of the last record: half of them are thirty days old.
    age_ms = int(time.time() * 1000) - (_FIRST_DAY_MS + _DAY_MS * _DAYS)
    policy = tmp_path / "policy.toml"
    policy.write_text(f"{_POLICY}retention.ms = {age_ms + 30 * _DAY_MS}\n")
    options = ("--topics", _ORDERS, "--policy", policy)
    planned = kidx_retention_here("--catalog", catalog, *options, "--delete-records-json", wanted, "--json")
    assert planned.code == 0, planned.err
    starts = {entry["partition"]: entry["offset"] for entry in json.loads(wanted.read_text())["partitions"]}
    kept = [s for s in planned.json["segments"] if s["partition"] == 0 and s["decision"] == "keep"]
    assert starts == {0: kept[0]["base_offset"], 1: 3} and 20 <= starts[0] <= 30

    with broker.running():
        tool = subprocess.run(
            broker.command(_DELETE_RECORDS, "--bootstrap-server", broker.bootstrap, "--offset-json-file", str(wanted)),
            cwd=broker.directory,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert tool.returncode == 0, tool.stdout + tool.stderr
        for partition, offset in starts.items():
            assert f"partition: {_ORDERS}-{partition}\tlow_watermark: {offset}" in tool.stdout, tool.stdout
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "it"})
        ends = {0: _DAYS, 1: 3}
        for partition, offset in starts.items():
            place = TopicPartition(_ORDERS, partition)
            assert consumer.get_watermark_offsets(place, TIMEOUT_SECONDS) == (offset, ends[partition])
        consumer.close()
