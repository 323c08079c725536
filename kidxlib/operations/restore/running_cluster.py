"""A running cluster as a client sees it: its topics, the ends of its logs, its records and committed offsets.

The client is librdkafka's (`confluent_kafka`). Nothing is produced, and no offset is committed: no group is joined, as
partitions are assigned.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from kidxlib.errors import NoAnswerError, UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.restore.record_digest import Consumed, IsolatedRecords, RecordDigest
from kidxlib.storage.log_dir import parse_properties, small_file

#: So long a broker may say nothing.
_TIMEOUT_SECONDS: Final = 60.0
#: So many partitions are asked for at a time.
_PARTITIONS_AT_ONCE: Final = 1_000
#: So many records, or bytes of them, are kept before they are added to a digest.
_RECORDS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 16 * 1024 * 1024
#: With these nothing is written, whatever a user's file says.
_CONSUMER_SETTINGS: Final[Mapping[str, str | int | bool]] = {
    "group.id": "kidx-restore-check",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
}
#: Settings that librdkafka calls otherwise than Java.
_SETTINGS_RENAMED: Final = {"sasl.mechanism": "sasl.mechanisms"}
#: Those that librdkafka needs not be told.
_SETTINGS_NOT_NEEDED: Final = frozenset(
    {"ssl.enabled.protocols", "ssl.protocol", "ssl.truststore.type", "ssl.truststore.password", "ssl.keystore.type"}
)
_TRUST_STORE: Final = "ssl.truststore.location"
_KEY_STORE: Final = "ssl.keystore.location"
_HOST_NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
_JAAS_CONFIG: Final = "sasl.jaas.config"
#: A user and a password, as `PlainLoginModule` and `ScramLoginModule` take them.
_LOGIN_IN_JAAS: Final = re.compile(r'\s(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
#: Errors of a connection: the client connects again.
_TRANSIENT_ERRORS: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class RunningPartition:
    """
    Attributes:
        leader: None: it has none.
    """

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class RunningTopic:
    topic_id: str
    partitions: Mapping[int, RunningPartition]


def client_settings(path: Path | None) -> dict[str, str]:
    """The settings of a file that Kafka's tools take as `--command-config`, as librdkafka names them. What it has no
    other name for goes to it as it is.

    Raises:
        UsageError: the file cannot be read, or has what librdkafka cannot use.
    """
    if path is None:
        return {}
    try:
        given = parse_properties(small_file(path))
    except OSError as error:
        raise UsageError(f"--command-config {path}: cannot be read: {error.strerror}") from error
    settings: dict[str, str] = {}
    for name, value in given.items():
        if name == _JAAS_CONFIG:
            login = dict(_LOGIN_IN_JAAS.findall(value))
            if login.keys() != {"username", "password"}:
                raise UsageError(
                    f"--command-config {path}: {_JAAS_CONFIG}: expected a username and a password, each in quotes; for "
                    "other logins give librdkafka's own settings, as sasl.oauthbearer.config or sasl.kerberos.keytab"
                )
            settings |= {f"sasl.{key}": re.sub(r"\\(.)", r"\1", text) for key, text in login.items()}
        elif name == _TRUST_STORE:
            _ensure_store_type(path, given, "ssl.truststore.type", "PEM", "ssl.ca.location")
            settings["ssl.ca.location"] = value
        elif name == _KEY_STORE:
            _ensure_store_type(
                path, given, "ssl.keystore.type", "PKCS12", "ssl.certificate.location and ssl.key.location"
            )
            settings[name] = value
        elif name == _HOST_NAME_CHECK:
            settings[name] = value or "none"
        elif name not in _SETTINGS_NOT_NEEDED:
            settings[_SETTINGS_RENAMED.get(name, name)] = value
    return settings


def _ensure_store_type(path: Path, given: Mapping[str, str], name: str, expected: str, instead: str) -> None:
    found = given.get(name, "JKS")
    if found.upper() != expected:
        raise UsageError(
            f"--command-config {path}: {name} is {found}, and expected {expected}, which librdkafka reads; or give "
            f"{instead}, with PEM files"
        )


class RunningCluster:
    """The client of a running cluster. All errors that a broker gives are `NoAnswerError`."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        """
        Args:
            bootstrap: `HOST:PORT[,HOST:PORT]`.
            settings: those of `client_settings`.
        """
        self._bootstrap = bootstrap
        # What is wrong is told by errors; librdkafka's own log would be lines amid the output.
        self._settings: dict[str, Any] = {"log_level": 0, **settings, "bootstrap.servers": bootstrap}
        try:
            self._admin = AdminClient(self._settings)
            self._consumers = {
                isolation: Consumer({**self._settings, **_CONSUMER_SETTINGS, "isolation.level": isolation})
                for isolation in ("read_uncommitted", "read_committed")
            }
        except KafkaException as error:
            raise UsageError(
                f"--command-config: {_error_text(error)}; expected settings that Kafka's tools or librdkafka know"
            ) from error

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def cluster_id(self) -> str:
        return str(self._answer_of(self._admin.describe_cluster(request_timeout=_TIMEOUT_SECONDS)).cluster_id)

    def topic_names(self) -> set[str]:
        try:
            return set(self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics)
        except KafkaException as error:
            raise self._no_answer_error(error) from error

    def topics(self, names: Sequence[str]) -> dict[str, RunningTopic]:
        """The topics that there are of `names`."""
        found: dict[str, RunningTopic] = {}
        for start in range(0, len(names), _PARTITIONS_AT_ONCE):
            asked = TopicCollection([*names[start : start + _PARTITIONS_AT_ONCE]])
            for name, future in self._admin.describe_topics(asked, request_timeout=_TIMEOUT_SECONDS).items():
                described = self._answer_of(future, unless=KafkaError.UNKNOWN_TOPIC_OR_PART)
                if described is not None:
                    found[name] = RunningTopic(
                        topic_id_text(described.topic_id),
                        {
                            each.id: RunningPartition(
                                None if each.leader is None else each.leader.id,
                                tuple(node.id for node in each.replicas),
                                frozenset(node.id for node in each.isr),
                            )
                            for each in described.partitions
                        },
                    )
        return found

    def offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The log start and the log end (the high watermark) of each partition. Each needs a leader."""
        starts = self._list_offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._list_offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {partition: (starts[partition], ends[partition]) for partition in partitions}

    def _list_offsets(self, partitions: Sequence[TopicPartition], which: OffsetSpec) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            asked = {
                ClientPartition(each.topic, each.partition): which
                for each in partitions[start : start + _PARTITIONS_AT_ONCE]
            }
            answers = self._admin.list_offsets(asked, request_timeout=_TIMEOUT_SECONDS)
            for place, future in answers.items():
                found[TopicPartition(place.topic, place.partition)] = self._answer_of(future).offset
        return found

    def records(self, partition: TopicPartition, start: int, end: int, isolation: str) -> IsolatedRecords:
        """The records from an offset to below another, which the partition has; fewer where what is readable ends
        before.
        """
        consumer, digest = self._consumers[isolation], RecordDigest()
        pending: list[Consumed] = []
        pending_bytes, reached = 0, start
        consumer.assign([ClientPartition(partition.topic, partition.partition, start)])
        while reached < end:
            message = consumer.poll(_TIMEOUT_SECONDS)
            if message is None:
                raise NoAnswerError(
                    f"{partition.directory}: no record from offset {reached} on within {_TIMEOUT_SECONDS:.0f} s: look "
                    "at its leader's log, and check again"
                )
            error, offset = message.error(), message.offset()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                assert offset is not None
                reached = min(offset, end)
                break
            if error is not None:
                if error.retriable() or error.code() in _TRANSIENT_ERRORS:
                    continue
                raise NoAnswerError(f"{partition.directory}: from offset {reached} on: {error.str()}; check again")
            record = _consumed_record(message)
            if record.offset >= end:
                reached = end
                break
            reached = record.offset + 1
            pending.append(record)
            pending_bytes += len(record.key or b"") + len(record.value or b"")
            if len(pending) >= _RECORDS_AT_ONCE or pending_bytes >= _BYTES_AT_ONCE:
                digest.add_consumed(pending)
                pending, pending_bytes = [], 0
        digest.add_consumed(pending)
        return IsolatedRecords(end_offset=reached, records=digest.records, digest=digest.hexdigest())

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed; none if there is no such group."""
        [future] = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=_TIMEOUT_SECONDS
        ).values()
        answer = self._answer_of(future, unless=KafkaError.GROUP_ID_NOT_FOUND)
        found: Iterable[ClientPartition] = () if answer is None else answer.topic_partitions or ()
        return {TopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def _answer_of(self, future: Future[_Answer], unless: int | None = None) -> _Answer:
        """What a broker answers; None where the error is the expected one."""
        try:
            return future.result()
        except KafkaException as error:
            if unless is not None and error.args[0].code() == unless:
                return None  # type: ignore[return-value]
            raise self._no_answer_error(error) from error

    def _no_answer_error(self, error: KafkaException) -> NoAnswerError:
        return NoAnswerError(
            f"--bootstrap-server {self._bootstrap}: {_error_text(error)}; look whether its brokers run, and whether "
            "--command-config has what they ask of clients"
        )


def topic_id_text(topic_id: Any) -> str:
    """A topic id as Kafka shows it (`Uuid.toString`). In librdkafka's text, `+` and `/` stand for `-` and `_`."""
    halves = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return base64.urlsafe_b64encode(b"".join(half.to_bytes(8, signed=True) for half in halves)).decode()[:-2]


def _error_text(error: KafkaException) -> str:
    return str(error.args[0].str())


def _consumed_record(message: Message) -> Consumed:
    offset, headers = message.offset(), message.headers()
    assert offset is not None
    key: Any = message.key()
    value: Any = message.value()
    _, timestamp_ms = message.timestamp()
    of_record: Any = headers or ()
    return Consumed(offset, timestamp_ms, key, value, of_record)
