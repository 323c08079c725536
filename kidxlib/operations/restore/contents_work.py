"""What workers do for the contents of restored partitions: they read the records of logs, and digest them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from kidxlib.engine.work import ItemRows
from kidxlib.errors import KidxError, describe_error
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import SkippedEntries, list_segments
from kidxlib.indexing.source import ANY_TOPIC, Source, SourceBucket, SourceLocalLogs
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.restore.record_digest import DIGESTED, READ_UNCOMMITTED, IsolatedRecords, RecordDigest
from kidxlib.reading.left_out import WhyLeftOut
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import ReadRequest, read_request
from kidxlib.reading.rows import record_rows_of
from kidxlib.reading.walk import raise_damage
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import read_offset_checkpoint

_LOGS_AT_ONCE: Final = 2
#: The most threads that read a log: together four, as in `kidxlib.library.read`, which bounds a worker's memory.
THREADS_MAX: Final = 4 // _LOGS_AT_ONCE

_BEYOND_STABLE: Final = WhyLeftOut.BEYOND_LAST_STABLE_OFFSET
_ISOLATED_RECORDS: Final = pa.struct(
    [pa.field("end_offset", pa.int64()), pa.field("records", pa.int64()), pa.field("digest", pa.string())]
)
#: The rows of `digest_logs`: the number of a log, and what consumers get of it.
CONTENTS: Final = pa.schema(
    [
        pa.field(
            "contents",
            pa.struct(
                [
                    pa.field("number", pa.int64()),
                    pa.field("uncommitted", _ISOLATED_RECORDS),
                    pa.field("committed", _ISOLATED_RECORDS),
                    pa.field("why", pa.string()),
                ]
            ),
        )
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToDigest:
    """A restored log to digest: that of its partition's leader.

    Attributes:
        number: its place among all logs.
        log_dir: None: it begins empty.
        start_offset, end_offset: of what consumers get.
        log_bytes: of what is in the log dir.
        topic_id: empty where it is not known.
        bucket: the bucket that has its beginning, with this partition alone; None: all of it is in the log dir.
        why_not: why it cannot be read; empty if it can.
        threads: how many may take its records apart at the same time.
        has_transactions: False: the plan has read all of it, and no batch is of a transaction.
    """

    topic_partition: TopicPartition
    number: int = 0
    log_dir: Path | None = None
    start_offset: int = 0
    end_offset: int = 0
    log_bytes: int = 0
    topic_id: str = ""
    bucket: SourceBucket | None = None
    why_not: str = ""
    threads: int = 1
    has_transactions: bool = True

    @property
    def id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.topic_partition.topic, self.topic_partition.partition)

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=min(max(self.threads, threads), THREADS_MAX))


def digest_logs(logs: Iterable[LogToDigest]) -> Iterator[ItemRows]:
    """In a worker: what consumers will get of some logs. While one is read from the disk, another is digested.

    A log is taken once there is a thread for it: the next ones are not begun after an interruption.
    """
    begun: set[Future[ItemRows]] = set()
    with ThreadPoolExecutor(_LOGS_AT_ONCE, thread_name_prefix="kidx-contents") as pool:
        for log in logs:
            begun.add(pool.submit(_log_contents, log))
            if len(begun) == _LOGS_AT_ONCE:
                done, begun = wait(begun, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        yield from (each.result() for each in as_completed(begun))


def _log_contents(log: LogToDigest) -> ItemRows:
    levels: tuple[IsolatedRecords, ...] = ()
    why = log.why_not
    try:
        levels = () if why else _read_at_isolation_levels(log)
    except (KidxError, OSError) as error:
        why = describe_error(error)
    uncommitted, committed = map(asdict, levels) if levels else (None, None)
    row = {"number": log.number, "uncommitted": uncommitted, "committed": committed, "why": why}
    return ItemRows(segments=1, log_bytes=log.log_bytes, rows=[{"contents": row}])


def _read_at_isolation_levels(log: LogToDigest) -> tuple[IsolatedRecords, IsolatedRecords]:
    """The records at both isolation levels. Where no transaction was aborted or is open, they are the same."""
    if log.start_offset == log.end_offset:
        nothing = IsolatedRecords(end_offset=log.end_offset, records=0, digest=RecordDigest().hexdigest())
        return nothing, nothing
    request = _log_read_request(log)
    if not log.has_transactions:
        both = _digest_records(_log_read_plan(request, log), log.end_offset, log.threads)
        return both, both
    plan = _log_read_plan(replace(request, committed=True), log)
    stable = min((left.first_offset for left in plan.left_out if left.why is _BEYOND_STABLE), default=log.end_offset)
    committed = _digest_records(plan, stable, log.threads)
    if stable == log.end_offset and not any(len(read.aborted) for read in plan.reads):
        return committed, committed
    return _digest_records(_log_read_plan(request, log), log.end_offset, log.threads), committed


def _log_read_request(log: LogToDigest) -> ReadRequest:
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
    if log.bucket is None:
        return request
    [local] = request.partitions()
    place = (log.bucket.directories or {}).get(log.id_partition)
    if place is None:
        raise KidxError(
            f"{log.bucket.place}: no directory of {log.topic_partition.directory} with topic id {log.topic_id}; "
            "expected the log's beginning there"
        )
    of_both = replace(
        log.bucket, local={log.id_partition: SourceLocalLogs(directory, list_segments(local, SkippedEntries()))}
    )
    return replace(
        request,
        sources=[Source(str(place), place, of_both)],
        offsets={log.topic_partition: (log.start_offset, log.end_offset)},
    )


def _log_read_plan(request: ReadRequest, log: LogToDigest) -> ReadPlan:
    """Plan what is read of a log. Its checkpoints are not read for it: each has an entry for every partition. Without a
    high watermark its end is not looked for, which without an index takes all headers of the last log.
    """
    of_file = {LOG_START_OFFSET_CHECKPOINT: log.start_offset}
    if log.has_transactions:
        of_file[HIGH_WATERMARK_CHECKPOINT] = log.end_offset

    def read_offsets(path: Location) -> Mapping[TopicPartition, int] | None:
        return {log.topic_partition: of_file[path.name]} if path.name in of_file else None

    return plan_reads(
        request,
        goes_on=False,
        threads=log.threads,
        looks_around=False,
        read_offsets=read_offsets if log.bucket is None else read_offset_checkpoint,
    )


def _digest_records(plan: ReadPlan, end_offset: int, threads: int) -> IsolatedRecords:
    digest = RecordDigest()
    for rows in record_rows_of(plan.reads, DIGESTED, raise_damage, goes_on=False, threads=threads):
        digest.add_rows(rows)
    return IsolatedRecords(end_offset=end_offset, records=digest.records, digest=digest.hexdigest())
