"""The model's records in the form of `kidxlib.read`'s rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from kidxlib.errors import DamagedLogError
from kidxlib.format.segment_files import LOG_SUFFIX, parse_segment_log
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.records.batch_headers import BatchHeader
from kidxlib.records.reader import Record
from tests.model.consume import consume

Row = dict[str, Any]


def row(partition: TopicPartition, batch: BatchHeader, record: Record) -> Row:
    timestamp_type = -1 if batch.magic == 0 else int(batch.is_log_append_time)
    headers = [{"key": header.key, "value": header.value} for header in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": timestamp_type,
        "headers": headers or None,
    }


def rows_of_log(log: Path) -> tuple[list[Row], int]:
    """The rows of a log, and the byte up to which it is sound."""
    partition, base_offset = parse_partition_directory(log.parent.name), parse_segment_log(log.name)
    assert partition is not None and base_offset is not None
    consumed = consume(log.read_bytes(), base_offset)
    return [row(partition, batch, record) for batch, record in consumed.records], consumed.end


def rows_of_partition(directory: Path) -> list[Row]:
    return [row for log in sorted(directory.glob(f"*{LOG_SUFFIX}")) for row in rows_of_log(log)[0]]


def read_rows(table: pa.Table) -> list[Row]:
    """The rows of a table; timestamps in ms since the epoch, which may be beyond any calendar."""
    if "timestamp" in table.schema.names:
        number = table.schema.get_field_index("timestamp")
        table = table.set_column(number, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[Row] = table.to_pylist()
    return rows


def rows_until_damage(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[list[Row], str | None]:
    """The rows that come, and what is said to be wrong then."""
    found: list[pa.RecordBatch] = []
    error: str | None = None
    try:
        for rows in batches:
            rows.validate(full=True)
            found.append(rows)
    except DamagedLogError as damage:
        error = str(damage)
    return read_rows(pa.Table.from_batches(found, schema)), error
