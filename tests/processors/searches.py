"""Lookups in the indexes of a recovered segment, searches in its log, and its records."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator

import numpy as np

from kidxlib.errors import KidxError, MalformedRecordsError
from kidxlib.format.codecs import zstd_module
from kidxlib.format.layouts import BATCH_V2_BYTES_MIN, CODEC_ZSTD
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.records.arrow_columns import records_schema
from kidxlib.records.arrow_records import record_rows
from kidxlib.records.batch_headers import batches
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import Wanted
from kidxlib.recovery.recover import RecoveredSegment
from kidxlib.storage.log_bytes import WholeLog
from tests.processors.questions import Question, Said

_ZSTD = zstd_module()


def _indexes(question: Question, recovered: RecoveredSegment) -> tuple[OffsetIndex, TimeIndex]:
    return (
        OffsetIndex.from_bytes(recovered.offset_index, question.base_offset),
        TimeIndex.from_bytes(recovered.time_index, question.base_offset),
    )


def lookups(question: Question, recovered: RecoveredSegment) -> tuple[list[tuple[int, ...]], ...]:
    """The entries of both indexes for all targets, one by one and many at a time, which use other loops."""
    offset_index, time_index = _indexes(question, recovered)
    one_by_one: tuple[list[tuple[int, ...]], ...] = (
        [(entry.offset, entry.position) for entry in map(offset_index.lookup, question.offsets)],
        [(entry.timestamp, entry.offset) for entry in map(time_index.lookup, question.timestamps)],
    )
    return (
        *one_by_one,
        offset_index.lookup_many(np.array(question.offsets, np.int64)).tolist(),
        time_index.lookup_many(np.array(question.timestamps, np.int64)).tolist(),
    )


def searches(question: Question, recovered: RecoveredSegment) -> tuple[Said, ...]:
    """The batches that have the offsets, and the records that have the timestamps."""
    log = WholeLog(np.frombuffer(question.log, np.uint8))
    segment = LogSegment(log, question.base_offset, *_indexes(question, recovered))
    return (
        *(_said(segment.translate_offset, offset) for offset in question.offsets),
        *(_said(segment.find_offset_by_timestamp, timestamp) for timestamp in question.timestamps),
    )


def _said(search: Callable[[int], object], target: int) -> Said:
    try:
        return search(target)
    except KidxError as error:
        return f"{type(error).__name__}: {error}"


def records(data: bytes) -> tuple[tuple[Said, ...], str | None]:
    """The records as rows, up to the first that cannot be read, and why not."""
    log = WholeLog(np.frombuffer(data, np.uint8))
    schema = records_schema(["offset", "timestamp_ms", "key", "value", "headers"])
    rows: list[Said] = []
    try:
        for batch in record_rows(BatchWalk(log, 0, Wanted()).tables(), 0, schema, Wanted()):
            rows += batch.to_pylist()
    except MalformedRecordsError as error:
        return tuple(rows), str(error)
    return tuple(rows), None


def frames(data: bytes) -> tuple[int | None, ...]:
    """What libzstd by itself makes of each batch's zstd data: the checksum of what it gives; None where it refuses."""
    return tuple(_frames(data))


def _frames(data: bytes) -> Iterator[int | None]:
    with contextlib.suppress(MalformedRecordsError):
        for batch in batches(WholeLog(np.frombuffer(data, np.uint8))):
            if batch.is_v2 and batch.codec == CODEC_ZSTD:
                try:
                    yield zlib.crc32(
                        _ZSTD.ZstdDecompressor().decompress(
                            data[batch.position + BATCH_V2_BYTES_MIN : batch.next_position]
                        )
                    )
                except _ZSTD.ZstdError:
                    yield None
