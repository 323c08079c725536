"""Records as Arrow tables: of log dirs as a consumer gets them (`read`, `count`), and all batches and records of one
log, or of a partition from one offset to another (`read_batches`, `read_records`, `stream_records`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import UsageError
from kidxlib.format.layouts import BATCH_V2_BYTES_MIN
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.indexing.source import RemoteOptions, existing_index_dir, parse_topics
from kidxlib.jit.machine import cores
from kidxlib.log.log import Log
from kidxlib.reading.left_out import gaps_between_logs, lines_of_left_out
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import (
    Offsets,
    Paths,
    Times,
    ensure_isolation_means_something,
    read_request,
    requested_log,
    requested_schema,
)
from kidxlib.reading.rows import batch_rows_of, count_records, record_rows_of
from kidxlib.reading.segment_read import LogRead, SegmentRead
from kidxlib.reading.walk import OnDamage, TakeDamage, raise_damage, warn_of_damage
from kidxlib.records.arrow_batches import BATCHES, batch_rows
from kidxlib.records.arrow_columns import CONSUMED, schema_of_columns
from kidxlib.records.arrow_records import record_rows
from kidxlib.records.batch_headers import parse_batch
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.records.reader import base_offset
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.run.context import existing_catalog_tables
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.opened_log import LogFile

_log: Final = logging.getLogger(__name__)

#: More threads take more memory, and are seldom busy, as a single thread walks over the batches for them.
_THREADS_MAX: Final = 4


def read(
    path: Paths,
    *,
    topics: str = ".*",
    offsets: Offsets | None = None,
    times: Times | None = None,
    isolation: str = "read_uncommitted",
    mode: str = "records",
    columns: Iterable[str] | None = None,
    include_headers: bool = False,
    index_dir: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | None = None,
    to_log_end: bool | None = None,
    on_damage: OnDamage = "fail",
    threads: int | None = None,
    layout: str | None = None,
    tiered_metadata: Sequence[str | os.PathLike[str]] = (),
) -> pa.RecordBatchReader:
    """The records of a log dir, one partition or one segment as a consumer gets them, by topic, partition and offset:
    without markers of transactions, from the log start offset to the high watermark. docs/read.md has more.

    Args:
        path: a log dir, a partition's directory, a segment's log, a bucket of tiered storage, or several directories.
        topics: a regular expression for the full names of topics. Topics that brokers keep for themselves are read only
            if it spells their names, or if the path or `offsets` names their partitions.
        offsets: from the first on to below the second, None for no limit; or such a range for each partition by the
            name of its directory, and then no other partition is read.
        times: a range of timestamps in the same form, in ms since the epoch, or in ISO 8601 with a zone.
        isolation: `read_committed` leaves out aborted records, and all from the last stable offset on; logs of the
            partitions are scanned first.
        mode: `batches` gives a row for each batch; docs/read.md has its columns.
        columns: only these, in this order; None for all but `headers`, or all with `include_headers`.
        index_dir: the tree with the index files; None if they are beside the logs, or where the catalog has them.
        catalog: a catalog that has the logs, a directory or in S3, by kidx[catalog]. Its facts of logs that have not
            changed tell which times need not be read, and which logs need not be scanned for transactions.
        to_log_end: read beyond the high watermark, too. None to end there, with a warning by `logging`; but all is read
            if this is the only replica and no broker is at work on it.
        on_damage: `fail` ends with an error; `skip` warns by `logging` and goes on; a function is called with each
            `Damage`, and reading goes on.
        threads: besides the calling one; None for as many as there are cores, 4 at most.
        layout, tiered_metadata: for a bucket: `local` or `aiven`, log dirs with its metadata (docs/tiered-source.md).

    Returns:
        A reader of record batches of at most 65,536 records, or 16 MiB of them. Its columns are those of Spark's Kafka
        source, in that order; `columns` selects some:
        - `key`, `value`: binary; null is null, and a null value is a tombstone.
        - `topic`: string. `partition`: int32. `offset`: int64. `timestamp`: timestamp in ms, UTC; −1 ms is none.
        - `timestampType`: int32; −1 none, 0 CreateTime, 1 LogAppendTime.
        - `headers`: list of structs of `key` (string) and `value` (binary); null if there are none.

    Raises:
        UsageError, CheckpointError, CatalogError: an argument is wrong, there is no segment or no catalog, or the
            catalog or a checkpoint file cannot be read.
        DamagedLogError, LogChangedError, OSError: (while the reader is read, after all records before) a log is
            damaged, was replaced, cut or rewritten since it was listed, or cannot be read. One that grows is no error.
    """
    schema = requested_schema(mode, columns, include_headers=include_headers)
    places = index_dir, catalog, layout, tiered_metadata
    asked = _Asked(path, topics, offsets, times, isolation, *places, to_log_end, on_damage, threads)
    return pa.RecordBatchReader.from_batches(schema, (asked.batches if mode == "batches" else asked.records)(schema))


def count(
    path: Paths,
    *,
    topics: str = ".*",
    offsets: Offsets | None = None,
    times: Times | None = None,
    isolation: str = "read_uncommitted",
    index_dir: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | None = None,
    to_log_end: bool | None = None,
    on_damage: OnDamage = "fail",
    threads: int | None = None,
    layout: str | None = None,
    tiered_metadata: Sequence[str | os.PathLike[str]] = (),
) -> int:
    """How many records `read` gives, from the headers of batches alone. Checksums are not checked. Whole batches are
    read at the ends of ranges of offsets, if headers do not have the number (compressed ones of magic 0 and 1), and if
    `times` are asked for.

    Args:
        path, topics, offsets, times, isolation, index_dir, to_log_end, on_damage, threads, layout, tiered_metadata: as
            for `read`.
        catalog: as for `read`; logs that have not changed since, and of which all is asked for, are not opened.

    Raises:
        UsageError, CheckpointError, CatalogError, DamagedLogError, LogChangedError, OSError: as `read`.
    """
    places = index_dir, catalog, layout, tiered_metadata
    asked = _Asked(path, topics, offsets, times, isolation, *places, to_log_end, on_damage, threads)
    reads = asked.plan().reads
    if times is None:
        logs: list[LogRead] = []
        counted = count_records(
            reads, asked.take_damage, goes_on=asked.goes_on, threads=asked.threads_to_use, on_end=logs.append
        )
        _warn_of_gaps(logs)
        return counted
    known = [end for read in reads if (end := read.as_cataloged()) is not None]
    others = [read for read in reads if read.records is None]
    rows = asked.rows(others, pa.schema([CONSUMED.field("offset")]), known)
    return sum(read.records or 0 for read in reads) + sum(batch.num_rows for batch in rows)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `read`."""

    path: Paths
    topics: str
    offsets: Offsets | None
    times: Times | None
    isolation: str
    index_dir: str | os.PathLike[str] | None
    catalog: str | os.PathLike[str] | None
    layout: str | None
    tiered_metadata: Sequence[str | os.PathLike[str]]
    to_log_end: bool | None
    on_damage: OnDamage
    threads: int | None

    def plan(self) -> ReadPlan:
        request = read_request(
            self.path,
            topics=parse_topics(self.topics, "topics"),
            offsets=self.offsets,
            times=self.times,
            isolation=self.isolation,
            index_dir=None if self.index_dir is None else existing_index_dir("index_dir", os.fspath(self.index_dir)),
            to_log_end=self.to_log_end,
            remote=RemoteOptions(self.layout, tuple(os.fspath(log_dir) for log_dir in self.tiered_metadata)),
        )
        catalog = None if self.catalog is None else existing_catalog_tables("catalog", os.fspath(self.catalog))
        plan = plan_reads(request, goes_on=self.goes_on, threads=self.threads_to_use, catalog=catalog)
        _log.info("%s", plan)
        plan.warn_of_left_out()
        return plan

    def records(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return self.rows(self.plan().reads, schema)

    def rows(
        self, reads: Sequence[SegmentRead], schema: pa.Schema, known: Iterable[LogRead] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Rows of segments; gaps are told between their logs and those in `known`, which need not be read."""
        logs = list(known)
        rows = record_rows_of(
            reads, schema, self.take_damage, goes_on=self.goes_on, threads=self.threads_to_use, on_end=logs.append
        )
        return _with_gap_warnings(rows, logs)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        ensure_isolation_means_something("batches", self.isolation)
        reads, logs = self.plan().reads, list[LogRead]()
        rows = batch_rows_of(reads, schema, self.take_damage, goes_on=self.goes_on, on_end=logs.append)
        return _with_gap_warnings(rows, logs)

    @property
    def goes_on(self) -> bool:
        return self.on_damage != "fail"

    @property
    def take_damage(self) -> TakeDamage:
        if self.on_damage == "fail":
            return raise_damage
        if self.on_damage == "skip":
            return warn_of_damage
        if not callable(self.on_damage):
            raise UsageError(f"on_damage {self.on_damage!r}: expected 'fail', 'skip' or a function")
        return self.on_damage

    @property
    def threads_to_use(self) -> int:
        if self.threads is None:
            return min(cores(), _THREADS_MAX)
        if self.threads < 1:
            raise UsageError(f"threads {self.threads}: expected 1 or more")
        return self.threads


def _with_gap_warnings(rows: Iterator[pa.RecordBatch], logs: Sequence[LogRead]) -> Iterator[pa.RecordBatch]:
    """The rows, and then a warning of gaps between `logs`: those that were read to their ends, once all rows were
    taken.
    """
    yield from rows
    _warn_of_gaps(logs)


def _warn_of_gaps(logs: Sequence[LogRead]) -> None:
    for line in lines_of_left_out(gaps_between_logs(logs)):
        _log.warning("%s", line)


#: The path of a segment's log, or an opened partition.
LogSource: TypeAlias = str | os.PathLike[str] | Log


def read_batches(source: LogSource, start_offset: int | None = None, end_offset: int | None = None) -> pa.Table:
    """The headers of a log's batches, a row for each batch. Nothing is decompressed.

    Args:
        source: the path of a `.log`, here or `s3://<bucket>/<key>`, or the result of `open_partition`.
        start_offset: batches that end below it are left out. None for all of a file, or all of a partition from its log
            start offset on.
        end_offset: the table ends before the first batch that begins there or later; None for no limit.

    Returns:
        A table with a row for each batch, in the order of the log. Its columns have the names of `kidx dump --json`:

        - `segment_base_offset`, `position`, `bytes`: int64; the segment, the batch's first byte in its log, its size.
        - `magic`: int8; the version of the format.
        - `base_offset`: int64; null for a compressed message of magic 0 or 1, which has it inside.
        - `last_offset`: int64.
        - `records`: int32; null as `base_offset`.
        - `timestamp_type`: string; `NoTimestampType`, `CreateTime` or `LogAppendTime`.
        - `max_timestamp_ms`: int64; ms since the epoch.
        - `codec`: string.
        - `leader_epoch`: int32; `producer_id`: int64; `producer_epoch`: int16; `base_sequence`, `last_sequence`: int32.
        - `transactional`, `control`: bool.
        - `delete_horizon_ms`: int64; null if compaction has set none.
        - `crc`: uint32; the checksum in the header.

        A number of −1 is none. Bytes after the last whole batch of a segment are passed over: `recover_file` tells of
        them.

    Raises:
        UsageError: the file is not named as a segment's log, or the range ends before it begins.
        MalformedRecordsError: a size that no batch can have, or a negative magic.
        OSError, KidxError: a file cannot be read, or is damaged.
    """
    wanted = _range(source, start_offset, end_offset)
    rows = [
        batch_rows(segment_base, _before_end(log, table, wanted.last_offset))
        for log, segment_base, tables in _segments(source, wanted, whole=False)
        for table in tables
    ]
    return pa.Table.from_batches(rows, BATCHES)


def read_records(
    source: LogSource,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Iterable[str] | None = None,
) -> pa.Table:
    """The records of a log, a row for each.

    All records are there, also markers of transactions (see `control`) and records of aborted transactions. Checksums
    are not checked. `kidxlib.read` takes times, too, leaves out records that a consumer does not get, and can go on
    after damage.

    Args:
        source, start_offset, end_offset: as for `read_batches`; here they hold for each record.
        columns: only these, in this order; None for all.

    Returns:
        A table with a row for each record, in the order of the log. All of it is in memory; `stream_records` gives a
        part at a time. Its columns, from which `columns` selects some:

        - `offset`: int64.
        - `timestamp_ms`: int64; ms since the epoch. `timestamp_type`: string; `NoTimestampType` for magic 0, else
          `CreateTime` or `LogAppendTime`.
        - `key`, `value`: binary; null is null, and a null value is a tombstone.
        - `headers`: list of structs of `key` (string) and `value` (binary).
        - `leader_epoch`: int32; `producer_id`: int64; `producer_epoch`: int16; `sequence`: int32.
        - `transactional`, `control`: bool; of the record's batch.
        - `control_type`: string; `COMMIT`, `ABORT` or the name of KRaft's control record; null for data.
        - `segment_base_offset`, `batch_position`: int64; the segment, and the byte of its log where the batch starts.

        A number of −1 is none.

    Raises:
        UsageError: as `read_batches`, or there is no such column.
        MalformedRecordsError: as `read_batches`, or a batch's records do not match its header, its codec is unknown, or
            its compressed bytes are damaged.
        OSError, KidxError: a file cannot be read, or is damaged.
    """
    wanted, schema = _range(source, start_offset, end_offset), schema_of_columns(columns)
    return pa.Table.from_batches(_record_rows(source, wanted, schema), schema)


def stream_records(
    source: LogSource,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Iterable[str] | None = None,
) -> pa.RecordBatchReader:
    """The records of a log, a part of them at a time, so that memory does not depend on the size of the log.

    Args:
        source, start_offset, end_offset, columns: as for `read_records`.

    Returns:
        A reader of record batches with the columns of `read_records`. Each has 65,536 records, or 16 MiB of them, at
        most.

    Raises:
        UsageError: as `read_records`.

    Raises (while the reader is read, after all records before the malformed place):
        MalformedRecordsError, OSError, KidxError: as `read_records`.
    """
    wanted, schema = _range(source, start_offset, end_offset), schema_of_columns(columns)
    return pa.RecordBatchReader.from_batches(schema, _record_rows(source, wanted, schema))


def _range(source: LogSource, start_offset: int | None, end_offset: int | None) -> WantedRecords:
    start = source.log_start_offset if isinstance(source, Log) and start_offset is None else start_offset
    if start is not None and end_offset is not None and end_offset < start:
        raise UsageError(f"offsets {start} to {end_offset}: expected an end that is not below the start")
    return WantedRecords.between(start, end_offset)


def _record_rows(source: LogSource, wanted: WantedRecords, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for _, segment_base, tables in _segments(source, wanted, whole=True):
        yield from record_rows(tables, segment_base, schema, wanted)


def _segments(
    source: LogSource, wanted: WantedRecords, *, whole: bool
) -> Iterator[tuple[LogBytes, int, Iterator[BatchTable]]]:
    """The log, the base offset and the wanted batches of each segment, which is closed after them. With `whole`, the
    bytes of batches are read, and not only headers.
    """
    if wanted.is_empty:
        return
    if not isinstance(source, Log):
        path, segment_base = requested_log(source)
        file = LogFile(path)
        try:
            yield file, segment_base, BatchWalk(file, 0, wanted, whole=whole).tables()
        finally:
            file.close()
        return
    for segment in source.segments_between(max(wanted.first_offset, 0), min(wanted.last_offset, OFFSET_MAX - 1) + 1):
        try:
            start = wanted.first_offset
            position = segment.offset_index.lookup(start).position if start > segment.base_offset else 0
            with _read_sequentially(segment.log) as log:
                yield log, segment.base_offset, BatchWalk(log, position, wanted, whole=whole).tables()
        finally:
            segment.release()


def _read_sequentially(log: LogBytes) -> contextlib.AbstractContextManager[LogBytes]:
    return log.read_sequentially() if isinstance(log, LogFile) else contextlib.nullcontext(log)


def _before_end(log: LogBytes, table: BatchTable, last_offset: int) -> NDArray[np.void]:
    """The batches of a table that begin at an offset or before it. A compressed message has its first offset inside, so
    it is decompressed only if it may begin after that.
    """
    rows = table.rows
    if len(rows) and rows["records_count"][-1] == UNKNOWN_COUNT and rows["last_offset"][-1] > last_offset:
        position, size = int(rows["position"][-1]), int(rows["size"][-1])
        if base_offset(log, parse_batch(position, size, log.read(position, BATCH_V2_BYTES_MIN))) > last_offset:
            return rows[:-1]
    return rows
