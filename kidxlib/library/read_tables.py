"""Batches and records of one log, or of a partition from one offset to another, as Arrow tables."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import UsageError
from kidxlib.format.layouts import BATCH_V2_BYTES_MIN
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.library.recover_directory import parse_segment_path
from kidxlib.log.log import Log
from kidxlib.records.arrow_columns import BATCHES, batch_rows, records_schema
from kidxlib.records.arrow_records import record_rows
from kidxlib.records.batch_headers import parse_batch
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.records.reader import base_offset
from kidxlib.records.wanted_records import Wanted
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.opened_log import LogFile

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
    wanted, schema = _range(source, start_offset, end_offset), records_schema(columns)
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
    wanted, schema = _range(source, start_offset, end_offset), records_schema(columns)
    return pa.RecordBatchReader.from_batches(schema, _record_rows(source, wanted, schema))


def _range(source: LogSource, start_offset: int | None, end_offset: int | None) -> Wanted:
    start = source.log_start_offset if isinstance(source, Log) and start_offset is None else start_offset
    if start is not None and end_offset is not None and end_offset < start:
        raise UsageError(f"offsets {start} to {end_offset}: expected an end that is not below the start")
    return Wanted.between(start, end_offset)


def _record_rows(source: LogSource, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for _, segment_base, tables in _segments(source, wanted, whole=True):
        yield from record_rows(tables, segment_base, schema, wanted)


def _segments(
    source: LogSource, wanted: Wanted, *, whole: bool
) -> Iterator[tuple[LogBytes, int, Iterator[BatchTable]]]:
    """The log, the base offset and the wanted batches of each segment, which is closed after them. With `whole`, the
    bytes of batches are read, and not only headers.
    """
    if wanted.is_empty:
        return
    if not isinstance(source, Log):
        path, segment_base = parse_segment_path(source)
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
