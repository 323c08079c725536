"""Compares a running cluster with the restore that made it: `kidx restore-check`. Nothing is written."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.operations.restore.record_digest import READ_UNCOMMITTED, IsolatedRecords
from kidxlib.operations.restore.running_cluster import (
    RunningCluster,
    RunningPartition,
    RunningTopic,
    client_settings,
)
from kidxlib.reading.request import READ_COMMITTED
from kidxlib.storage.log_dir import small_file
from kidxlib.terminal.console import begin_phase, first_of_each_kind
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.words import counted, shell_option

_LINES_SHOWN: Final = 20
_MORE_IN_JSON: Final = "; --json has them all"
#: So long a high watermark may take to reach the end of a log whose followers are in sync.
_SETTLES_SECONDS: Final = 30.0
_STRAY_SUFFIX: Final = "-stray"


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
class AppliedPartition:
    """A partition as it was restored.

    Attributes:
        start_offset, end_offset: of its log.
        isolated: the records at each isolation level; empty where they could not be read.
        why: why they could not be read.
    """

    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    start_offset: int
    end_offset: int
    isolated: Mapping[str, IsolatedRecords]
    why: str


@dataclass(frozen=True, slots=True)
class AppliedRestore:
    """What `kidx restore --apply` has done.

    Attributes:
        topics: the id of each topic.
        groups: the committed offsets of each group; None: they could not be read.
        log_dirs: the new log dirs with copies.
        lifts: the arguments of `kafka-configs` that lift the hold.
    """

    cluster_id: str
    topics: Mapping[str, str]
    partitions: Mapping[TopicPartition, AppliedPartition]
    groups: Mapping[str, Mapping[TopicPartition, int]] | None
    log_dirs: Sequence[Path]
    lifts: Sequence[str]


def read_applied(path: Path) -> AppliedRestore:
    """Read the output of `kidx restore --apply ID --json`.

    Raises:
        UsageError: it is something else.
    """
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


def _parse_applied_restore(given: Mapping[str, Any]) -> AppliedRestore:
    contents = {_parse_partition(each["partition"]): each for each in given["contents"]}
    partitions: dict[TopicPartition, AppliedPartition] = {}
    for topic in given["topics"]:
        for each in topic["partitions"]:
            partition = TopicPartition(topic["topic"], each["partition"])
            of_partition = contents[partition]
            levels = {READ_UNCOMMITTED: of_partition["uncommitted"], READ_COMMITTED: of_partition["committed"]}
            partitions[partition] = AppliedPartition(
                leader=each["leader"],
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
    return AppliedRestore(
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
    applied = read_applied(request.plan)
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


def _check_topics(cluster: RunningCluster, applied: AppliedRestore, found: _CheckFindings) -> list[TopicPartition]:
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


def _replica_differences(restored: AppliedPartition, running: RunningPartition) -> Iterator[str]:
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


def _added_partitions(applied: AppliedRestore, topics: Mapping[str, RunningTopic]) -> Iterator[str]:
    for name, topic in topics.items():
        for number in sorted(topic.partitions):
            partition = TopicPartition(name, number)
            if partition not in applied.partitions:
                yield f"{partition.directory}: not restored; somebody has added partitions"


def _look_for_stray_directories(applied: AppliedRestore, found: _CheckFindings) -> None:
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
    cluster: RunningCluster, applied: AppliedRestore, readable: Sequence[TopicPartition]
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
    restored: AppliedPartition,
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


def _check_groups(cluster: RunningCluster, applied: AppliedRestore, found: _CheckFindings) -> None:
    if applied.groups is None:
        found.not_compared.append("groups: their offsets could not be read when they were restored")
    for group, offsets in sorted((applied.groups or {}).items()):
        committed = cluster.committed(group)
        for partition, offset in sorted(offsets.items()):
            if committed.get(partition) != offset:
                now = "has no offset" if partition not in committed else f"is at offset {committed[partition]}"
                found.differs.append(f"group {group}, {partition.directory}: {now}, restored at {offset}")


def _check_outcome(request: CheckRequest, applied: AppliedRestore, found: _CheckFindings) -> Outcome:
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
        for line in first_of_each_kind(lines, _LINES_SHOWN, _MORE_IN_JSON):
            outcome.line(f"{what}: {line}")
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
