"""Compares a running cluster with the restore that made it: `kidx restore-check`. Nothing is written.

`RunningCluster` is the cluster as a client sees it. The client is librdkafka's (`confluent_kafka`). Nothing is
produced, and no offset is committed: no group is joined, as partitions are assigned.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
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
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.java import parse_properties
from kidxlib.operations.restore.record_digest import READ_UNCOMMITTED, Consumed, IsolatedRecords, RecordDigest
from kidxlib.reading.request import READ_COMMITTED
from kidxlib.storage.small_files import small_file
from kidxlib.terminal.console import begin_phase
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.words import counted, shell_option

#: So long a high watermark may take to reach the end of a log whose followers are in sync.
_SETTLES_SECONDS: Final = 30.0
_STRAY_SUFFIX: Final = "-stray"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What is to be checked.

    Attributes:
        plan: the output of `kidx restore --apply ID --json`.
        bootstrap: `HOST:PORT[,HOST:PORT]`.
        command_config: the client's settings; None for a cluster that asks for none.
    """

    plan: Path
    bootstrap: str
    command_config: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _AppliedPartition:
    """A partition as it was restored.

    Attributes:
        start_offset, end_offset: of its log.
        isolated: the records at each isolation level; empty where they could not be read.
        why: why they could not be read.
    """

    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    start_offset: int
    end_offset: int
    isolated: Mapping[str, IsolatedRecords]
    why: str


@dataclass(frozen=True, slots=True)
class _AppliedRestore:
    """What `kidx restore --apply` has done.

    Attributes:
        topics: the id of each topic.
        groups: the committed offsets of each group; None: they could not be read.
        log_dirs: the new log dirs with copies.
        lifts: the arguments of `kafka-configs` that lift the hold.
    """

    cluster_id: str
    topics: Mapping[str, str]
    partitions: Mapping[TopicPartition, _AppliedPartition]
    groups: Mapping[str, Mapping[TopicPartition, int]] | None
    log_dirs: Sequence[Path]
    lifts: Sequence[str]


def _read_applied(path: Path) -> _AppliedRestore:
    """Read the output of `kidx restore --apply ID --json`."""
    try:
        given = json.loads(small_file(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
        raise UsageError(f"{path}: {why}; expected the output of kidx restore … --apply PLAN --json") from error
    if not isinstance(given, dict) or given.get("applied") is not True or "contents" not in given:
        raise UsageError(
            f"{path}: not of a restore that was carried out; expected the output of kidx restore … --apply PLAN --json"
        )
    try:
        return _parse_applied_restore(given)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"{path}: {why}; expected the whole output of kidx restore … --apply PLAN --json, of this kidx"
        ) from error


def _parse_applied_restore(given: Mapping[str, Any]) -> _AppliedRestore:
    contents = {_parse_partition(each["partition"]): each for each in given["contents"]}
    partitions: dict[TopicPartition, _AppliedPartition] = {}
    for topic in given["topics"]:
        for each in topic["partitions"]:
            partition = TopicPartition(topic["topic"], each["partition"])
            of_partition = contents[partition]
            levels = {READ_UNCOMMITTED: of_partition["uncommitted"], READ_COMMITTED: of_partition["committed"]}
            partitions[partition] = _AppliedPartition(
                replicas=tuple(each["replicas"]),
                in_sync=frozenset(each["in_sync"]),
                start_offset=of_partition["start_offset"],
                end_offset=of_partition["end_offset"],
                isolated={name: IsolatedRecords(**level) for name, level in levels.items() if level is not None},
                why=of_partition["why"],
            )
    groups: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for each in given["groups"] or ():
        groups[each["group"]][_parse_partition(each["partition"])] = each["offset"]
    return _AppliedRestore(
        cluster_id=given["cluster_id"],
        topics={topic["topic"]: topic["topic_id"] for topic in given["topics"]},
        partitions=partitions,
        groups=None if given["groups"] is None else groups,
        log_dirs=[Path(name) for name in sorted({each["log_dir"] for each in given["replicas"]} - {None})],
        lifts=given["lift"],
    )


def _parse_partition(name: str) -> TopicPartition:
    partition = parse_partition_directory(name)
    if partition is None:
        raise ValueError(f"{name}: no partition")
    return partition


@dataclass(slots=True)
class _CheckFindings:
    """What a check finds, a line each.

    Attributes:
        differs: what is otherwise than it was restored.
        not_compared: what could not be looked at.
        notes: what is to be expected, or does no harm.
        records: how many were equal, at the level `read_uncommitted`.
        equal: how many partitions have equal records at both levels.
    """

    differs: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: int = 0
    equal: int = 0


def check_restore(request: CheckRequest) -> Outcome:
    """Compare the running cluster with what was restored, and print the commands that lift the hold if all is equal."""
    applied = _read_applied(request.plan)
    cluster = RunningCluster(request.bootstrap, client_settings(request.command_config))
    try:
        found = _CheckFindings()
        begin_phase("asking the cluster")
        if (cluster_id := cluster.cluster_id()) != applied.cluster_id:
            raise UsageError(
                f"--bootstrap-server {request.bootstrap}: cluster {cluster_id}, and {request.plan} is of "
                f"{applied.cluster_id}; name a broker of the restored cluster"
            )
        readable = _check_topics(cluster, applied, found)
        _look_for_stray_directories(applied, found)
        begin_phase("reading records")
        for partition, (start, end) in _settled_offsets(cluster, applied, readable).items():
            _check_partition(cluster, partition, applied.partitions[partition], (start, end), found)
        begin_phase("asking for the offsets of groups")
        _check_groups(cluster, applied, found)
    finally:
        cluster.close()
    return _check_outcome(request, applied, found)


def _check_topics(cluster: RunningCluster, applied: _AppliedRestore, found: _CheckFindings) -> list[TopicPartition]:
    """Compare topics and replicas. Return the partitions whose records can be read, in order."""
    topics = cluster.topics(sorted(applied.topics))
    readable: list[TopicPartition] = []
    for name, topic_id in applied.topics.items():
        if name not in topics:
            found.differs.append(
                f"topic {name}: the cluster has none; its directories are set aside as {_STRAY_SUFFIX}, or deleted"
            )
        elif topics[name].topic_id != topic_id:
            found.differs.append(f"topic {name}: topic id {topics[name].topic_id}, restored as {topic_id}")
    for partition, restored in sorted(applied.partitions.items()):
        topic = topics.get(partition.topic)
        running = None if topic is None else topic.partitions.get(partition.partition)
        if topic is not None and running is None:
            found.differs.append(f"{partition.directory}: the cluster has no such partition")
        if running is not None:
            found.differs += [f"{partition.directory}: {text}" for text in _replica_differences(restored, running)]
            if running.leader is not None:
                readable.append(partition)
                if running.leader not in restored.in_sync:
                    found.notes.append(f"{partition.directory}: led by broker {running.leader}, which had to catch up")
    found.differs += _added_partitions(applied, topics)
    more = sorted(cluster.topic_names() - applied.topics.keys())
    found.notes += [f"topic {name}: not restored; it was made since" for name in more]
    return readable


def _replica_differences(restored: _AppliedPartition, running: _RunningPartition) -> Iterator[str]:
    if running.leader is None:
        yield "it has no leader"
    if set(running.replicas) != set(restored.replicas):
        yield f"replicas {_node_ids_in_words(running.replicas)}, restored as {_node_ids_in_words(restored.replicas)}"
    if missing := set(restored.replicas) - running.in_sync:
        behind = missing - restored.in_sync
        why = "it still catches up" if missing == behind else "it was in sync: look whether it runs"
        yield f"not in sync: {_node_ids_in_words(missing)} ({why})"


def _node_ids_in_words(nodes: Any) -> str:
    return ", ".join(map(str, sorted(nodes)))


def _added_partitions(applied: _AppliedRestore, topics: Mapping[str, RunningTopic]) -> Iterator[str]:
    for name, topic in topics.items():
        for number in sorted(topic.partitions):
            partition = TopicPartition(name, number)
            if partition not in applied.partitions:
                yield f"{partition.directory}: not restored; somebody has added partitions"


def _look_for_stray_directories(applied: _AppliedRestore, found: _CheckFindings) -> None:
    """Look for directories that a broker has set aside, where its log dirs are on this machine."""
    for log_dir in applied.log_dirs:
        try:
            names = sorted(os.listdir(log_dir))
        except OSError:
            found.notes.append(f"{log_dir}: not on this machine, so not looked at for directories {_STRAY_SUFFIX}")
            continue
        found.differs += [
            f"{log_dir / name}: set aside by its broker: its metadata does not have this replica"
            for name in names
            if name.endswith(_STRAY_SUFFIX)
        ]


def _settled_offsets(
    cluster: RunningCluster, applied: _AppliedRestore, readable: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets of each partition, once its high watermark has reached the restored end. Until the followers of a
    leader that has just started have fetched from it, consumers see less (`Partition.maybeIncrementLeaderHW`).
    """
    offsets = cluster.offsets(readable)
    deadline = time.monotonic() + _SETTLES_SECONDS
    while time.monotonic() < deadline:
        behind = [each for each, (_, end) in offsets.items() if end < applied.partitions[each].end_offset]
        if not behind:
            break
        time.sleep(1.0)
        offsets |= cluster.offsets(behind)
    return offsets


def _check_partition(
    cluster: RunningCluster,
    partition: TopicPartition,
    restored: _AppliedPartition,
    offsets: tuple[int, int],
    found: _CheckFindings,
) -> None:
    """Compare the ends of a log and its records. Where an end differs, records are not read."""
    name, (start, end) = partition.directory, offsets
    if start != restored.start_offset:
        found.differs.append(f"{name}: its log begins at offset {start}, restored from {restored.start_offset}")
    if end < restored.end_offset:
        found.differs.append(f"{name}: its log ends at offset {end}, restored to {restored.end_offset}")
    if start != restored.start_offset or end < restored.end_offset:
        return
    if end > restored.end_offset:
        found.notes.append(
            f"{name}: {counted(end - restored.end_offset, 'offset')} after the restored ones: what clients or "
            "coordinators have written since"
        )
    if not restored.isolated:
        found.not_compared.append(f"{name}: its records could not be read when they were restored: {restored.why}")
    is_equal = bool(restored.isolated)
    for isolation, expected in restored.isolated.items():
        records = cluster.records(partition, start, expected.end_offset, isolation)
        if differences := [*_record_differences(expected, records)]:
            found.differs.append(f"{name}, {isolation}: {'; '.join(differences)}")
            is_equal = False
    if is_equal:
        found.equal += 1
        found.records += restored.isolated[READ_UNCOMMITTED].records


def _record_differences(expected: IsolatedRecords, found: IsolatedRecords) -> Iterator[str]:
    if found.end_offset < expected.end_offset:
        yield f"consumers get no further than offset {found.end_offset}, restored to {expected.end_offset}"
    if found.records != expected.records:
        yield f"{counted(found.records, 'record')}, restored {expected.records}"
    elif found.digest != expected.digest:
        yield f"{counted(found.records, 'record')}, and other offsets, times, keys, values or headers than restored"


def _check_groups(cluster: RunningCluster, applied: _AppliedRestore, found: _CheckFindings) -> None:
    if applied.groups is None:
        found.not_compared.append("groups: their offsets could not be read when they were restored")
    for group, offsets in sorted((applied.groups or {}).items()):
        committed = cluster.committed(group)
        for partition, offset in sorted(offsets.items()):
            if committed.get(partition) != offset:
                now = "has no offset" if partition not in committed else f"is at offset {committed[partition]}"
                found.differs.append(f"group {group}, {partition.directory}: {now}, restored at {offset}")


def _check_outcome(request: CheckRequest, applied: _AppliedRestore, found: _CheckFindings) -> Outcome:
    is_equal = not found.differs and not found.not_compared
    offsets = sum(map(len, (applied.groups or {}).values()))
    outcome = Outcome(
        code=ExitCode.OK if is_equal else ExitCode.PROBLEMS_FOUND,
        counts={
            "partitions": len(applied.partitions),
            "equal": found.equal,
            "differs": len(found.differs),
            "not_compared": len(found.not_compared),
        },
    )
    for what, lines in (("differs", found.differs), ("not compared", found.not_compared), ("note", found.notes)):
        outcome.first_lines(what, lines)
    outcome.line(
        f"equal: {found.equal} of {counted(len(applied.partitions), 'partition')}, {counted(found.records, 'record')}, "
        "in both isolation levels"
    )
    commands = [f"kafka-configs {_client_options(request)} {lift}" for lift in applied.lifts]
    if not is_equal:
        outcome.line("do not lift the hold, and keep the sources, until all is equal")
    else:
        outcome.line(
            f"groups: {counted(offsets, 'offset')} of {counted(len(applied.groups or {}), 'group')} as restored"
        )
        outcome.line(*(("lift the hold:", *(f"  {command}" for command in commands)) if commands else ()))
    outcome.values.update(
        cluster_id=applied.cluster_id,
        equal=is_equal,
        partitions=len(applied.partitions),
        equal_partitions=found.equal,
        records=found.records,
        group_offsets=offsets,
        differs=found.differs,
        not_compared=found.not_compared,
        notes=found.notes,
        lift=commands if is_equal else [],
    )
    return outcome


def _client_options(request: CheckRequest) -> str:
    """How the commands that are printed reach the cluster: as the check has."""
    bootstrap = f"--bootstrap-server {shlex.quote(request.bootstrap)}"
    if request.command_config is None:
        return bootstrap
    return f"{bootstrap} {shell_option('--command-config', request.command_config)}"


def client_settings(path: Path | None) -> dict[str, str]:
    """The settings of a file that Kafka's tools take as `--command-config`, as librdkafka names them. What it has no
    other name for goes to it as it is.
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


@dataclass(frozen=True, slots=True)
class _RunningPartition:
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
    partitions: Mapping[int, _RunningPartition]


class RunningCluster:
    """The client of a running cluster. All errors that a broker gives are `NoAnswerError`."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        """A client by the settings of `client_settings`."""
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
                            each.id: _RunningPartition(
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
    """A topic id that the running cluster's client gives, as Kafka shows it (`Uuid.toString`). In librdkafka's text,
    `+` and `/` stand for `-` and `_`.
    """
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
