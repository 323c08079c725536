"""What the library makes of logs, asked of a process that may have another processor, and of this one."""

from __future__ import annotations

import contextlib
import pickle
import platform
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from kidxlib.errors import KidxError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.checksum_kernel import CHOSEN, VECTOR_WORDS
from kidxlib.format.codecs import zstd_module
from kidxlib.format.layouts import BATCH_V2_BYTES_MIN, CODEC_ZSTD
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.records.arrow_columns import schema_of_columns
from kidxlib.records.arrow_records import record_rows
from kidxlib.records.batch_headers import batches
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.log_bytes import WholeLog


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
    schema = schema_of_columns(["offset", "timestamp_ms", "key", "value", "headers"])
    rows: list[Said] = []
    try:
        for batch in record_rows(BatchWalk(log, 0, WantedRecords()).tables(), 0, schema, WantedRecords()):
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
                        zstd_module()
                        .ZstdDecompressor()
                        .decompress(data[batch.position + BATCH_V2_BYTES_MIN : batch.next_position])
                    )
                except zstd_module().ZstdError:
                    yield None


#: What a search says: an answer, or the words of a refusal.
Said: TypeAlias = object

#: How many entries of an index are asked for, with what is next to them.
_ENTRIES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A log to recover, and to search and read with the indexes that recovery gives.

    Attributes:
        offsets: to look up and to search for.
        timestamps: the same.
        is_read: whether records are read and searched for, too.
    """

    name: str
    log: bytes
    base_offset: int
    options: RecoverOptions
    offsets: tuple[int, ...] = ()
    timestamps: tuple[int, ...] = ()
    is_read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    Attributes:
        lookups: the entries that the indexes lead to.
        found: the batches and records that searches lead to.
        records: as rows, up to the first that cannot be read.
        error: why that one cannot be read.
        frames: what libzstd by itself makes of each batch. It has other loops for other processors, which read
            different damaged data, or refuse it.
    """

    recovered: RecoveredSegment
    lookups: tuple[list[tuple[int, ...]], ...] = ()
    found: tuple[Said, ...] = ()
    records: tuple[Said, ...] = ()
    error: str | None = None
    frames: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers, and what gave them.

    Attributes:
        machine: the kind of processor, as the system names it.
        vector_words: how many words the processor multiplies at once, as kidx found it.
        checksums: the implementation that kidx has taken.
    """

    machine: str
    vector_words: int
    checksums: str
    answers: tuple[Answer, ...]


def question_about(
    rng: random.Random, name: str, log: bytes, base_offset: int, options: RecoverOptions
) -> tuple[Question, RecoveredSegment]:
    """A question with offsets and timestamps around those that the indexes have, and what recovery gives here."""
    recovered = _recover(log, base_offset, options)
    entries = np.frombuffer(recovered.offset_index, layouts.OFFSET_INDEX_ENTRY)["relative_offset"].tolist()
    times = np.frombuffer(recovered.time_index, layouts.TIME_INDEX_ENTRY)["timestamp"].tolist()
    offsets = [0, *rng.sample(entries, min(len(entries), _ENTRIES)), rng.randrange(-10, 3000)]
    timestamps = [-1, 0, *rng.sample(times, min(len(times), _ENTRIES))]
    question = Question(
        name=name,
        log=log,
        base_offset=base_offset,
        options=options,
        offsets=tuple(_as_long(base_offset + offset + step) for offset in offsets for step in (-1, 0, 1)),
        timestamps=tuple(_as_long(timestamp + step) for timestamp in timestamps for step in (-1, 0, 1)),
    )
    return question, recovered


def _as_long(number: int) -> int:
    return min(max(number, -(2**63)), 2**63 - 1)


def _recover(log: bytes, base_offset: int, options: RecoverOptions) -> RecoveredSegment:
    return recover(WholeLog(np.frombuffer(log, np.uint8)), base_offset, options)


def answered(question: Question) -> Answer:
    recovered = _recover(question.log, question.base_offset, question.options)
    if not question.is_read:
        return Answer(recovered=recovered)
    from tests.processors.questions import frames, lookups, records, searches  # whose loops a scan needs not

    rows, error = records(question.log)
    return Answer(
        recovered=recovered,
        lookups=lookups(question, recovered),
        found=searches(question, recovered),
        records=rows,
        error=error,
        frames=frames(question.log),
    )


def tell() -> None:
    """What another process calls: it answers the questions in the file that is named first, and writes the second."""
    questions, told = map(Path, sys.argv[1:])
    answers = tuple(answered(question) for question in pickle.loads(questions.read_bytes()))
    told.write_bytes(
        pickle.dumps(Told(machine=platform.machine(), vector_words=VECTOR_WORDS, checksums=CHOSEN, answers=answers))
    )
