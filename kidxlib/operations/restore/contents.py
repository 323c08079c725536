"""What consumers will get of restored partitions: counts and digests of records in both isolation levels, and the
offsets that groups have committed. `restore-check` compares them with the running cluster.

All is read from the new log dirs before there is metadata: what was copied was read back from the disk, and nothing
that no broker keeps is in there any longer. Logs without transactions are read as soon as they are there
(`is_read_alone`), others once all is ready for the first start. A partition whose beginning
is in a bucket is read from there up to its log in the log dir, by the `__remote_log_metadata` of the new log dirs, as
its leader will.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import Work, reads_little
from kidxlib.errors import KidxError, WorkersDiedError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.bins import into_bins
from kidxlib.indexing.source import RemoteBucket, RemoteOptions, remote_bucket
from kidxlib.operations.restore.bucket import TakenBucket
from kidxlib.operations.restore.contents_work import CONTENTS, THREADS_MAX, RestoredLog, read_logs
from kidxlib.operations.restore.coordinators import OFFSETS_TOPIC
from kidxlib.operations.restore.record_digest import IsolatedRecords
from kidxlib.operations.restore.restore_plan import PlannedReplica, RestorePlan
from kidxlib.operations.restore.targets import NewBroker
from kidxlib.terminal.console import begin_phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContents:
    """What consumers will get of a restored partition.

    Attributes:
        start_offset, end_offset: of its log.
        uncommitted, committed: at both isolation levels; None if its records cannot be read.
        why: why not; empty if they can.
    """

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    uncommitted: IsolatedRecords | None
    committed: IsolatedRecords | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """
    Attributes:
        partitions: in order.
        groups: as in `GroupOffsets.expected`; None: a partition of `__consumer_offsets` cannot be read.
    """

    partitions: Sequence[PartitionContents]
    groups: Mapping[tuple[str, TopicPartition], int] | None

    def as_json(self) -> dict[str, Any]:
        groups = None
        if self.groups is not None:
            groups = [
                {"group": group, "partition": partition.directory, "offset": offset}
                for (group, partition), offset in self.groups.items()
            ]
        return {"contents": [_partition_as_json(each) for each in self.partitions], "groups": groups}


def _partition_as_json(contents: PartitionContents) -> dict[str, Any]:
    return {
        "partition": contents.topic_partition.directory,
        "start_offset": contents.start_offset,
        "end_offset": contents.end_offset,
        "uncommitted": None if contents.uncommitted is None else asdict(contents.uncommitted),
        "committed": None if contents.committed is None else asdict(contents.committed),
        "why": contents.why,
    }


def is_read_alone(replica: PlannedReplica) -> bool:
    """Whether a copy tells by itself what consumers will get: it leads, all of its partition is in the log dir, and no
    transaction has to be looked for.
    """
    source = replica.source
    return replica.is_leader and source is not None and not (source.may_have_transactions or source.begins_in_bucket)


def read_contents(plan: RestorePlan, reader: RecordReader, known: Sequence[PartitionContents]) -> Contents:
    """Read the records of a plan's partitions from the new log dirs, but for those that are `known` already. The
    offsets of groups are the plan's.

    Only `restore-check` needs them: where they cannot be read, each partition says why, and the copies are as good.
    """
    engine = reader.engine
    logs = _other_logs(plan, engine.cores)
    log_bytes, before = sum(log.log_bytes for log in logs), engine.done()
    begin_phase(
        "reading the records for restore-check",
        done=lambda: engine.done() - before,
        segments=len(logs),
        log_bytes=log_bytes,
    )
    is_local = all(log.bucket is None for log in logs)  # nobody has counted the bytes in a bucket
    is_small = is_local and reads_little(log_bytes, len(logs))
    contents = [*known, *reader.read(logs, "contents", is_small=is_small)]
    contents.sort(key=lambda each: each.topic_partition)
    is_read = all(each.committed for each in contents if each.topic_partition.topic == OFFSETS_TOPIC)
    return Contents(contents, plan.groups.expected if is_read else None)


class RecordReader:
    """Reads the records of restored logs for `restore-check`. Once workers have died over that, no more are read."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._died = ""

    def read(self, logs: Sequence[RestoredLog], name: str, *, is_small: bool) -> list[PartitionContents]:
        """Read logs, as `Work` of a name that no other has. One that cannot be read says why."""
        rows: dict[int, Mapping[str, Any]] = {}
        why = self._died
        try:
            if not why:
                rows = self._rows(logs, name, is_small=is_small)
        except WorkersDiedError:
            why = self._died = "the processes that read its records died, as where memory runs out (see dmesg)"
        except (KidxError, OSError) as error:
            why = describe_error(error)
        unread = {"uncommitted": None, "committed": None, "why": why}
        return [_partition_contents(log, rows.get(log.number, unread)) for log in logs]

    def _rows(self, logs: Sequence[RestoredLog], name: str, *, is_small: bool) -> dict[int, Mapping[str, Any]]:
        units = into_bins(logs, self.engine.cores)
        with self.engine.abandoning():
            staged = self.engine.run(Work(name, units, read_logs, CONTENTS, is_small=is_small))
        rows = [row for batch in staged.batches("contents") for row in batch.to_pylist()]
        staged.remove()
        return {row["number"]: row for row in rows}


def _partition_contents(log: RestoredLog, row: Mapping[str, Any]) -> PartitionContents:
    levels = (row["uncommitted"], row["committed"])
    uncommitted, committed = (None if level is None else IsolatedRecords(**level) for level in levels)
    return PartitionContents(
        topic_partition=log.topic_partition,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        uncommitted=uncommitted,
        committed=committed,
        why=row["why"],
    )


def _bucket_of_restored_cluster(taken: TakenBucket, brokers: Sequence[NewBroker]) -> RemoteBucket:
    """The bucket as brokers of the restored cluster read it. It is listed once."""
    place, layout = taken.bucket.place, taken.bucket.layout
    metadata = tuple(str(path) for broker in brokers for path in broker.log_dirs)
    bucket = remote_bucket(place, RemoteOptions(layout.name, metadata))
    assert bucket is not None  # with metadata it is an error that there is none
    return replace(bucket, directories=layout.list_partitions(bucket.place))


def restored_logs(leaders: Iterable[PlannedReplica], cores: int) -> list[RestoredLog]:
    """The logs of leaders that are read alone."""
    listed = list(leaders)
    bytes_of_core = _kept_bytes(listed) // cores
    return [replace(_restored_log(leader, bytes_of_core), number=number) for number, leader in enumerate(listed)]


def _other_logs(plan: RestorePlan, cores: int) -> list[RestoredLog]:
    """The leader's log of each partition that is not read alone. One that begins empty is in no log dir yet."""
    bucket, why_not = None, "its beginning is in a bucket, and none is named"
    try:
        if plan.bucket is not None:
            bucket, why_not = _bucket_of_restored_cluster(plan.bucket, plan.brokers), ""
    except (KidxError, OSError) as error:
        why_not = describe_error(error)  # of each partition that begins there
    leaders = [replica for replica in plan.copied if replica.is_leader and not is_read_alone(replica)]
    bytes_of_core = _kept_bytes(leaders) // cores
    logs = [_with_beginning(leader, _restored_log(leader, bytes_of_core), bucket, why_not) for leader in leaders]
    logs += [
        RestoredLog(topic_partition=TopicPartition(topic.name, partition.partition))
        for topic in plan.cluster.topics
        for partition in topic.partitions
        if partition.begins_empty
    ]
    return [replace(log, number=number) for number, log in enumerate(logs)]


def _kept_bytes(replicas: Iterable[PlannedReplica]) -> int:
    return sum(replica.source.kept_bytes for replica in replicas if replica.source is not None)


def _restored_log(leader: PlannedReplica, bytes_of_core: int) -> RestoredLog:
    """The log of a leader. `bytes_of_core` is a core's share of all logs: several threads read a log of more."""
    source = leader.source
    assert source is not None
    return RestoredLog(
        log_dir=leader.log_dir,
        topic_partition=leader.topic_partition,
        start_offset=source.first_offset,
        end_offset=source.end_offset,
        log_bytes=source.kept_bytes,
        topic_id=source.topic_id or "",
        threads=min(math.ceil(source.kept_bytes / max(bytes_of_core, 1)) or 1, THREADS_MAX),
        has_transactions=not is_read_alone(leader),
    )


def _with_beginning(leader: PlannedReplica, log: RestoredLog, bucket: RemoteBucket | None, why_not: str) -> RestoredLog:
    """A log with what a bucket has before it."""
    assert leader.source is not None
    if not leader.source.begins_in_bucket:
        return log
    return replace(log, bucket=None if bucket is None else _bucket_with_partition_alone(bucket, log), why_not=why_not)


def _bucket_with_partition_alone(bucket: RemoteBucket, log: RestoredLog) -> RemoteBucket:
    """A bucket with one partition, as a worker gets it."""
    directories, visible = bucket.directories or {}, bucket.visible or {}
    wanted = log.id_partition
    return replace(
        bucket,
        directories={wanted: directories[wanted]} if wanted in directories else {},
        visible={wanted: visible.get(wanted, {})},
    )
