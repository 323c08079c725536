"""What tests ask of brokers as their administrator, and what they wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka.broker import DEADLINE_SECONDS


def make_topics(bootstrap: str, topics: Sequence[NewTopic]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for made in admin.create_topics(list(topics)).values():
        made.result(DEADLINE_SECONDS)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # what it does ends with it
    admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)


def delete_records(bootstrap: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Delete the records of partitions that are below an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(*place, offset) for place, offset in offsets.items()]).values():
        deleted.result(DEADLINE_SECONDS)


def set_config(
    bootstrap: str, resource: str, changes: Mapping[str, object], kind: ResourceType = ResourceType.TOPIC
) -> None:
    """Change settings of a topic, or of another resource; None takes one away."""
    entries = [
        ConfigEntry(
            name,
            None if value is None else str(value),
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [altered] = admin.incremental_alter_configs([ConfigResource(kind, resource, incremental_configs=entries)]).values()
    altered.result(DEADLINE_SECONDS)


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait for what a broker does in the background."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        threading.Event().wait(0.05)
