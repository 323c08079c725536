"""What Kafka's own clients alone do: groups of kinds that librdkafka does not know, and what administrators ask for."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.support.kafka.broker import DEADLINE_SECONDS
from tests.support.kafka.classes import Kafka

_CLIENTS: Final = "org.apache.kafka.clients"
_MESSAGES: Final = "org.apache.kafka.common.message"
_REQUESTS: Final = "org.apache.kafka.common.requests"


class JavaClients:
    """Clients in a JVM that has Kafka's classes, of the version of these."""

    def __init__(self, kafka: Kafka, bootstrap: str) -> None:
        self._kafka, self._java, self._bootstrap = kafka, kafka.gateway.jvm.java, bootstrap

    def consume_as_share_group(self, group: str, topic: str, least: int) -> None:
        """Let a share group take at least so many records, from the earliest on, and acknowledge them (KIP-932)."""
        self._set_config_of_group(group, "share.auto.offset.reset", "earliest")
        deserializer = self._kafka.find("org.apache.kafka.common.serialization.ByteArrayDeserializer")
        consumer = self._kafka.find(f"{_CLIENTS}.consumer.KafkaShareConsumer")(
            self._settings({"group.id": group}), deserializer(), deserializer()
        )
        try:
            consumer.subscribe(self._list(topic))
            taken, deadline = 0, time.monotonic() + DEADLINE_SECONDS
            while taken < least:
                assert time.monotonic() < deadline, f"share group {group}: {taken} records, expected {least}"
                taken += consumer.poll(self._java.time.Duration.ofMillis(500)).count()
            consumer.commitSync()
        finally:
            consumer.close()

    def join_streams_group(self, group: str, topic: str) -> None:
        """Let one member join a streams group that reads a topic (KIP-1071)."""
        data = self._kafka.find(f"{_MESSAGES}.StreamsGroupHeartbeatRequestData")
        kind = f"{_MESSAGES}.StreamsGroupHeartbeatRequestData$"
        subtopology = self._kafka.find(f"{kind}Subtopology")().setSubtopologyId("0").setSourceTopics(self._list(topic))
        topology = self._kafka.find(f"{kind}Topology")().setEpoch(1).setSubtopologies(self._list(subtopology))
        asked = data().setGroupId(group).setMemberId("AAAAAAAAAAAAAAAAAAAAAQ").setMemberEpoch(0)
        asked.setRebalanceTimeoutMs(60_000).setTopology(topology).setProcessId("process")
        for tasks in (asked.setActiveTasks, asked.setStandbyTasks, asked.setWarmupTasks, asked.setClientTags):
            tasks(self._list())
        request = self._kafka.find(f"{_REQUESTS}.StreamsGroupHeartbeatRequest$Builder")(asked).build()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (error := self._error_of(request)) != 0:  # the coordinator may still be loading
            assert time.monotonic() < deadline, f"streams group {group}: error {error}"
            threading.Event().wait(0.2)

    def unregister_controller(self, node_id: int) -> None:
        """As `kafka-cluster` does; since Kafka 4.4."""
        with self._admin() as admin:
            admin.unregisterController(node_id).all().get()

    def _set_config_of_group(self, group: str, name: str, value: str) -> None:
        resource = self._kafka.find("org.apache.kafka.common.config.ConfigResource")
        kind = self._kafka.find("org.apache.kafka.common.config.ConfigResource$Type")
        operation = self._kafka.find(f"{_CLIENTS}.admin.AlterConfigOp$OpType")
        entry = self._kafka.find(f"{_CLIENTS}.admin.ConfigEntry")(name, value)
        change = self._kafka.find(f"{_CLIENTS}.admin.AlterConfigOp")(entry, operation.SET)
        changes = self._java.util.HashMap()
        changes.put(resource(kind.GROUP, group), self._list(change))
        with self._admin() as admin:
            admin.incrementalAlterConfigs(changes).all().get()

    def _error_of(self, request: Any) -> int:
        """Send a request, and return the error's number in the answer, which is its first field after the throttling
        time.
        """
        version, kind = request.version(), request.apiKey()
        header = self._kafka.find(f"{_REQUESTS}.RequestHeader")(kind, version, "test", 1)
        buffer = request.serializeWithHeader(header)
        content = bytes(buffer.array())[: buffer.limit()]
        host, _, port = self._bootstrap.partition(":")
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(content)) + content)
            with connection.makefile("rb") as answers:
                answer = answers.read(struct.unpack(">i", answers.read(4))[0])
        _correlation, _tags, _throttled, error = struct.unpack_from(">ibih", answer)
        return int(error)

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        admin = self._kafka.find(f"{_CLIENTS}.admin.Admin").create(self._settings({}))
        try:
            yield admin
        finally:
            admin.close()

    def _settings(self, more: Mapping[str, str]) -> Any:
        settings = self._java.util.Properties()
        for name, value in {"bootstrap.servers": self._bootstrap, **more}.items():
            settings.put(name, value)
        return settings

    def _list(self, *items: Any) -> Any:
        made = self._java.util.ArrayList()
        for item in items:
            made.add(item)
        return made
