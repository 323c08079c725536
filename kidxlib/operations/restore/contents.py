"""What consumers will get of restored partitions: counts and digests of records in both isolation levels, and the
offsets that groups have committed. `restore-check` compares them with the running cluster.

All is read from the new log dirs, once they are ready for the first start, and before there is metadata: what was
copied was read back from the disk, and nothing that no broker keeps is in there any longer. A partition whose beginning
is in a bucket is read from there up to its log in the log dir, by the `__remote_log_metadata` of the new log dirs, as
its leader will.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.errors import KidxError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import list_segments
from kidxlib.indexing.remote_logs import LocalLogs, RemoteBucket, RemoteOptions, remote_bucket
from kidxlib.indexing.skipped import Skipped
from kidxlib.indexing.source import ANY_TOPIC, Source
from kidxlib.jit.processor import cores
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.restore.bucket import TakenBucket
from kidxlib.operations.restore.coordinators import OFFSETS_TOPIC
from kidxlib.operations.restore.restore_plan import RestorePlan
from kidxlib.operations.restore.targets import NewBroker
from kidxlib.reading.damage import fail_on
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import ReadRequest, read_request
from kidxlib.reading.rows import rows_of
from kidxlib.reading.unread_offsets import Why
from kidxlib.records.arrow.schema import CONSUMED

DIGESTED: Final = pa.schema([CONSUMED.field(name) for name in ("offset", "timestamp", "key", "value", "headers")])
_UNSTABLE: Final = Why.BEYOND_LAST_STABLE_OFFSET
READ_UNCOMMITTED: Final = "read_uncommitted"
#: A key or value without bytes: −1 stands for null, as in Kafka's records.
_NULL: Final = -1
#: As in `kidxlib.library.read`.
_THREADS_MAX: Final = 4


class RecordDigest:
    """A digest of records in the order of their offsets: of offsets, timestamps, keys, values and headers. It does not
    depend on the batches that hold the records, on compression, or on leader epochs.
    """

    def __init__(self) -> None:
        self.records = 0
        #: One for each sequence of numbers or of bytes: it does not matter in which pieces they come.
        self._parts = [hashlib.sha256() for _ in range(6)]

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of `DIGESTED`."""
        offsets, times, keys, values, headers = rows.columns
        counts = _filled(pc.list_value_length(headers), 0)
        numbers = (_numbers(offsets), _numbers(times.cast(pa.int64())), _lengths(keys), _lengths(values), counts)
        self._add(np.stack(numbers, axis=1), _bytes(keys), _bytes(values))
        if counts.any():
            names, contents = pc.list_flatten(headers).flatten()
            names = names.cast(pa.binary())
            sizes = np.stack((_lengths(names), _lengths(contents)), axis=1)
            self._add_headers(sizes, _bytes(names), _bytes(contents))

    def add_consumed(self, records: Sequence[Consumed]) -> None:
        """Add records as a consumer has got them."""
        numbers = [
            (record.offset, record.timestamp_ms, _length(record.key), _length(record.value), len(record.headers))
            for record in records
        ]
        keys, values = (
            b"".join(record.key or b"" for record in records),
            b"".join(record.value or b"" for record in records),
        )
        self._add(np.array(numbers, np.int64), keys, values)
        if headers := [header for record in records for header in record.headers]:
            names = [name.encode() for name, _ in headers]
            contents = [content for _, content in headers]
            sizes = np.array([*zip(map(len, names), map(_length, contents), strict=True)], np.int64)
            self._add_headers(sizes, b"".join(names), b"".join(filter(None, contents)))

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(part.digest() for part in self._parts)).hexdigest()

    def _add(self, numbers: NDArray[np.int64], keys: bytes | memoryview, values: bytes | memoryview) -> None:
        self.records += len(numbers)
        self._update(self._parts[:3], numbers, keys, values)

    def _add_headers(self, sizes: NDArray[np.int64], names: bytes | memoryview, contents: bytes | memoryview) -> None:
        self._update(self._parts[3:], sizes, names, contents)

    @staticmethod
    def _update(parts: Sequence[hashlib._Hash], numbers: NDArray[np.int64], *contents: bytes | memoryview) -> None:
        for part, content in zip(parts, (numbers.tobytes(), *contents), strict=True):
            part.update(content)


class Consumed(NamedTuple):
    """A record as a consumer gets it; a key, a value or a header's content may be null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def _length(content: bytes | None) -> int:
    return _NULL if content is None else len(content)


def _numbers(column: Any) -> NDArray[np.int64]:
    """The numbers of an array without nulls."""
    return np.from_dlpack(column).astype(np.int64)


def _filled(column: Any, value: int) -> NDArray[np.int64]:
    return _numbers(pc.fill_null(column, value))


def _lengths(column: Any) -> NDArray[np.int64]:
    return _filled(pc.binary_length(column), _NULL)


def _bytes(column: Any) -> bytes | memoryview:
    """The bytes of all values that are not null, one after the other."""
    column = pc.drop_null(column) if column.null_count else column
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return b""
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(content)[ends[0] : ends[-1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedRecords:
    """The records that consumers get of a partition at one isolation level.

    Attributes:
        end_offset: where they end: the log's end, or the last stable offset for `read_committed`.
        digest: of `RecordDigest`, in hexadecimal digits.
    """

    end_offset: int
    records: int
    digest: str


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


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """A log that leads its partition, in a new log dir; without offsets, there need be none.

    Attributes:
        in_bucket: its beginning is in a bucket, and not in the log dir.
    """

    log_dir: Path | None
    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    topic_id: str = ""
    in_bucket: bool = False


def read_contents(plan: RestorePlan) -> Contents:
    """Read the records of a plan's partitions from the new log dirs. The offsets of groups are the plan's."""
    bucket, why = None, "its beginning is in a bucket, and none is named"
    try:
        if plan.bucket is not None:
            bucket, why = _bucket_of(plan.bucket, plan.brokers), ""
    except (KidxError, OSError) as error:
        why = describe_error(error)  # of each partition that begins there
    contents = [_read_log(log, bucket, why) for log in _restored_logs(plan)]
    is_read = all(each.committed for each in contents if each.topic_partition.topic == OFFSETS_TOPIC)
    return Contents(contents, plan.groups.expected if is_read else None)


def _bucket_of(taken: TakenBucket, brokers: Sequence[NewBroker]) -> RemoteBucket:
    """The bucket as brokers of the restored cluster read it. It is listed once."""
    place, layout = taken.bucket.place, taken.bucket.layout
    metadata = tuple(str(path) for broker in brokers for path in broker.log_dirs)
    bucket = remote_bucket(place, RemoteOptions(layout.name, metadata))
    assert bucket is not None  # with metadata it is an error that there is none
    return replace(bucket, directories=layout.list_partitions(bucket.place))


def _restored_logs(plan: RestorePlan) -> list[RestoredLog]:
    """The leader's log of each partition. One that begins empty is in no log dir yet."""
    logs = [
        RestoredLog(
            replica.log_dir,
            replica.topic_partition,
            replica.source.first_offset,
            replica.source.end_offset,
            topic_id=replica.source.topic_id or "",
            in_bucket=replica.source.first_offset < replica.source.start_offset,
        )
        for replica in plan.copied
        if replica.is_leader and replica.source is not None
    ]
    empty = [
        RestoredLog(None, TopicPartition(topic.name, partition.partition), 0, 0)
        for topic in plan.cluster.topics
        for partition in topic.partitions
        if partition.begins_empty
    ]
    return sorted([*logs, *empty], key=lambda log: log.topic_partition)


def _read_log(log: RestoredLog, bucket: RemoteBucket | None, why_no_bucket: str) -> PartitionContents:
    uncommitted = committed = None
    why = why_no_bucket if log.in_bucket else ""
    try:
        if not why:
            uncommitted, committed = _read_records(log, bucket if log.in_bucket else None)
    except (KidxError, OSError) as error:
        why = describe_error(error)
    return PartitionContents(
        topic_partition=log.topic_partition,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        uncommitted=uncommitted,
        committed=committed,
        why=why,
    )


def _read_records(log: RestoredLog, bucket: RemoteBucket | None) -> tuple[IsolatedRecords, IsolatedRecords]:
    """The records at both isolation levels. Where no transaction was aborted or is open, they are the same."""
    if log.start_offset == log.end_offset:
        nothing = IsolatedRecords(end_offset=log.end_offset, records=0, digest=RecordDigest().hexdigest())
        return nothing, nothing
    request = _request(log, bucket)
    plan = _plan(replace(request, committed=True))
    stable = min((left.first_offset for left in plan.left_out if left.why is _UNSTABLE), default=log.end_offset)
    committed = _read(plan, stable)
    if stable == log.end_offset and not any(len(read.aborted) for read in plan.reads):
        return committed, committed
    return _read(_plan(request), log.end_offset), committed


def _request(log: RestoredLog, bucket: RemoteBucket | None) -> ReadRequest:
    """What is to be read of a log: all that is in its log dir, and before it what the bucket has, if one is given."""
    assert log.log_dir is not None
    directory = log.log_dir / log.topic_partition.directory
    request = read_request(
        directory,
        topics=ANY_TOPIC,
        offsets=None,
        times=None,
        isolation=READ_UNCOMMITTED,
        index_dir=None,
        to_log_end=True,
    )
    if bucket is None:
        return request
    [local] = request.partitions()
    name = log.topic_partition
    partition = TopicIdPartition(log.topic_id, name.topic, name.partition)
    place = (bucket.directories or {}).get(partition)
    if place is None:
        raise KidxError(
            f"{bucket.place}: no directory of {name.directory} with topic id {log.topic_id}; "
            "expected the log's beginning there"
        )
    of_both = replace(
        bucket,
        directories={partition: place},
        local={partition: LocalLogs(directory, list_segments(local, Skipped()))},
    )
    return replace(
        request,
        sources=[Source(str(place), place, of_both)],
        offsets={name: (log.start_offset, log.end_offset)},
    )


def _plan(request: ReadRequest) -> ReadPlan:
    return plan_reads(request, goes_on=False, threads=_threads(), looks_around=False)


def _threads() -> int:
    return min(cores(), _THREADS_MAX)


def _read(plan: ReadPlan, end_offset: int) -> IsolatedRecords:
    digest = RecordDigest()
    for rows in rows_of(plan.reads, DIGESTED, fail_on, goes_on=False, threads=_threads()):
        digest.add_rows(rows)
    return IsolatedRecords(end_offset=end_offset, records=digest.records, digest=digest.hexdigest())
