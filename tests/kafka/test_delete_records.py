"""Kafka's own `kafka-delete-records` takes a plan for a live cluster as it is written, and applies it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker
from tests.support.spark.jobs import kidx_build_here, kidx_retention_here

_TOOL: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
_TOPIC: Final = "orders"
_FIRST_MS: Final = 1_700_000_000_000
_DAY_MS: Final = 24 * 60 * 60 * 1000
_RECORDS: Final = 60
#: Written by a person for the very topic, which the cluster keeps for ever.
_POLICY: Final = f"""\
[[topic]]
match = "{_TOPIC}"
cleanup.policy = "delete"
retention.bytes = -1
remote.storage.enable = false
"""
#: `segment.bytes` cannot be less than 1 MiB; this one, of Kafka's own tests, can.
_CONFIG: Final = {"internal.segment.bytes": "2048", "segment.ms": str(2**63 - 1), "retention.ms": "-1"}


def _produce(bootstrap: str) -> None:
    """Partition 0: a record a day in many segments. Partition 1: so few that all are too old."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(_TOPIC, 2, 1, config=_CONFIG)]).values():
        future.result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(_RECORDS):
        for partition in (0, 1) if number < 3 else (0,):
            timestamp = _FIRST_MS + _DAY_MS * number
            producer.produce(_TOPIC, bytes(200), partition=partition, timestamp=timestamp)
            assert producer.flush(TIMEOUT_SECONDS) == 0


def test_a_plan_is_applied_on_a_live_broker(broker_version: str, tmp_path: Path) -> None:
    """What the broker then says of where its logs start is what was planned."""
    broker = Broker(tmp_path / "broker", {}, version=broker_version)
    with broker.running():
        _produce(broker.bootstrap)
    catalog, wanted = tmp_path / "catalog", tmp_path / "delete.json"
    built = kidx_build_here("--source", f"b={broker.log_dir}", "--index-dir", tmp_path / "index", "--catalog", catalog)
    assert built.code in (0, 3), built.err  # the controller's log is never stopped cleanly
    # As if it were the day of the last record: half of them are thirty days old.
    age_ms = int(time.time() * 1000) - (_FIRST_MS + _DAY_MS * _RECORDS)
    policy = tmp_path / "policy.toml"
    policy.write_text(f"{_POLICY}retention.ms = {age_ms + 30 * _DAY_MS}\n")
    options = ("--topics", _TOPIC, "--policy", policy)
    planned = kidx_retention_here("--catalog", catalog, *options, "--delete-records-json", wanted, "--json")
    assert planned.code == 0, planned.err
    starts = {entry["partition"]: entry["offset"] for entry in json.loads(wanted.read_text())["partitions"]}
    kept = [s for s in planned.json["segments"] if s["partition"] == 0 and s["decision"] == "keep"]
    assert starts == {0: kept[0]["base_offset"], 1: 3} and 20 <= starts[0] <= 30

    with broker.running():
        tool = subprocess.run(
            broker.command(_TOOL, "--bootstrap-server", broker.bootstrap, "--offset-json-file", str(wanted)),
            cwd=broker.directory,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert tool.returncode == 0, tool.stdout + tool.stderr
        for partition, offset in starts.items():
            assert f"partition: {_TOPIC}-{partition}\tlow_watermark: {offset}" in tool.stdout, tool.stdout
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "it"})
        ends = {0: _RECORDS, 1: 3}
        for partition, offset in starts.items():
            place = TopicPartition(_TOPIC, partition)
            assert consumer.get_watermark_offsets(place, TIMEOUT_SECONDS) == (offset, ends[partition])
        consumer.close()
