"""Who wrote a record: its batch names the producer, the partition's markers tell how the transaction ended, and
`__transaction_state` has the producer's transactional id.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.errors import (
    DamagedLogError,
    KidxError,
    UnknownRecordTypeError,
    UnreadableMessageError,
    UsageError,
    describe_error,
)
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.lookup.searched_partitions import no_such_partition
from kidxlib.messages.typed_records import TRANSACTION_STATE, read_coordinator_record
from kidxlib.reading.left_out import lines_of_left_out
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import Paths, ReadRequest, read_request
from kidxlib.reading.rows import batch_rows_of, record_rows_of
from kidxlib.reading.segment_read import LogRead, SegmentRead
from kidxlib.reading.walk import Damage, raise_damage
from kidxlib.records import batch_headers, reader
from kidxlib.records.arrow_batches import LISTED_BATCHES
from kidxlib.records.arrow_columns import CONSUMED
from kidxlib.records.control import read_control_record
from kidxlib.storage.location import Location
from kidxlib.storage.opened_log import opened_log

_COORDINATORS_TOPIC: Final = "__transaction_state"
_NO_PRODUCER: Final = -1
#: The bytes of the producer's id in a `TransactionLogValue`, behind the version, whatever that is.
_ID_START, _ID_END = 2, 10
_MARKERS: Final = pa.schema(
    [LISTED_BATCHES.field(name) for name in ("position", "last_offset", "producer_id", "control")]
)
_KEYS_AND_VALUES: Final = pa.schema([CONSUMED.field(name) for name in ("key", "value")])


class TransactionOutcome(enum.StrEnum):
    """How the transaction of a record ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"  # no marker of its producer follows
    NONE = "none"  # the record is in no transaction
    MARKER = "marker"  # the record ends a transaction
    UNKNOWN = "unknown"  # the log is damaged, or a part of it missing, before a marker of its producer


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """A record, its batch and its producer.

    Attributes:
        topic, partition, offset: those of the record.
        log_path: the segment's log.
        batch: the header of its batch, by the columns of `read` in the mode `batches`.
        record: the record as consumers get it, by the columns of `read` with headers; None for a marker.
        producer_id: −1 is none.
        outcome: how its transaction ended.
        marker: `COMMIT`, `ABORT` or the name of KRaft's control record, if the record is a marker; else None.
        marker_offset: the offset of the marker that ends its transaction; None if there is none.
        transactional_id: None if the record is in no transaction, or no `__transaction_state` that is here has the id.
        notes: why something is not known, a line each.
    """

    topic: str
    partition: int
    offset: int
    log_path: str
    batch: dict[str, Any]
    record: dict[str, Any] | None
    producer_id: int
    outcome: TransactionOutcome
    marker: str | None = None
    marker_offset: int | None = None
    transactional_id: str | None = None
    notes: tuple[str, ...] = ()


def who_wrote(paths: Paths, partition: str, offset: int) -> WrittenBy:
    """Who wrote the record at an offset, and how its transaction ended. docs/read.md has more.

    The batch is looked up by the `.index`. Then headers of batches are read, up to the marker of its producer.
    `__transaction_state` is read in the given log dirs: each transactional id is in one of its partitions, which may be
    on other brokers.

    Args:
        paths: as of `kidxlib.read`.
        partition: the name of its directory, <topic>-<partition>.

    Raises:
        UsageError: there is no such partition, or no record has the offset.
        DamagedLogError, LogChangedError, OSError: the log cannot be read there.
    """
    wanted = parse_partition_directory(partition)
    if wanted is None:
        raise UsageError(f"{partition!r}: expected the name of a partition's directory, <topic>-<partition>")
    request = _request(paths, wanted, offset, offset + 1)
    there = [directory.topic_partition for directory in request.partitions()]
    if wanted not in there:
        raise UsageError(f"{request.place}: {no_such_partition(wanted, there)}")
    plan = plan_reads(request, goes_on=False)
    batch, read = _batch(plan, request, wanted, offset)
    record, notes = _record(plan.reads)
    if not batch["crc_is_right"]:
        notes = ("the checksum of the batch is wrong: nothing in it can be relied on",)
    written_by = WrittenBy(
        topic=wanted.topic,
        partition=wanted.partition,
        offset=offset,
        log_path=read.log_path,
        batch=batch,
        record=record,
        producer_id=batch["producer_id"],
        outcome=TransactionOutcome.NONE,
        notes=(
            *notes,
            *plan.of_another_time,
            *lines_of_left_out(left for left in plan.left_out if left.told_by is not None),
        ),
    )
    if batch["control"]:
        written_by = replace(
            written_by, outcome=TransactionOutcome.MARKER, marker=_control_type(read.log_path, batch["position"])
        )
    elif batch["transactional"]:
        written_by = _with_end(written_by, _request(paths, wanted, batch["last_offset"] + 1, None))
    if batch["producer_id"] == _NO_PRODUCER or written_by.outcome is TransactionOutcome.NONE:
        return written_by
    return _with_id(written_by, request)


def _request(paths: Paths, partition: TopicPartition, start: int | None, end: int | None) -> ReadRequest:
    return read_request(paths, offsets={partition.directory: (start, end)}, to_log_end=True)


def _batch(
    plan: ReadPlan, request: ReadRequest, wanted: TopicPartition, offset: int
) -> tuple[dict[str, Any], SegmentRead]:
    """The batch that holds the offset, and its segment; an error if no batch holds it."""
    for read in plan.reads:
        for rows in batch_rows_of([read], LISTED_BATCHES, raise_damage, goes_on=False):
            for batch in rows.to_pylist():
                if (batch["base_offset"] or 0) <= offset <= batch["last_offset"]:
                    return batch, read
    why = [*plan.problems, *plan.remarks] or [
        f"no batch holds offset {offset}: compaction has removed it, or a segment is missing; ask kidx verify"
    ]
    raise UsageError(f"{request.place}: {wanted.directory}: {why[0]}")


def _record(reads: Sequence[SegmentRead]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The record as consumers get it, or None for a marker; and why it cannot be read."""
    try:
        for rows in record_rows_of(reads, CONSUMED, raise_damage, goes_on=False, threads=1):
            for record in rows.to_pylist():
                return record, ()
    except DamagedLogError as error:
        return None, (str(error),)
    return None, ()


def _control_type(log_path: str, position: int) -> str | None:
    with opened_log(log_path) as opened:
        log = opened.log(opened.version.size, use_mmap=False)
        batch = next(batch_headers.batches(log, position))
        return read_control_record(next(reader.records(log, batch))).name


def _with_end(written_by: WrittenBy, behind: ReadRequest) -> WrittenBy:
    """Add how the transaction ended, by the next marker of the producer, which has one transaction at a time. `behind`
    asks for all that follows the batch.
    """
    damages, before = list[Damage](), list[LogRead]()
    for read in plan_reads(behind, goes_on=False, looks_around=False).reads:
        next_offset = before[-1].next_offset if before else read.base_offset
        # What the cleaner leaves of a transaction has its marker, too (`CleanedTransactionMetadata`).
        if next_offset < read.base_offset and not any(log.lacks_records for log in before):
            offsets = f"offsets {next_offset} to {read.base_offset - 1} are in no log"
            note = f"{offsets}; a marker of the producer may have been there"
            return replace(written_by, outcome=TransactionOutcome.UNKNOWN, notes=(*written_by.notes, note))
        for row in _markers_of(read, written_by.producer_id, damages, before):
            name = _control_type(read.log_path, row["position"])
            outcome = TransactionOutcome.COMMITTED if name == "COMMIT" else TransactionOutcome.ABORTED
            return replace(written_by, outcome=outcome, marker_offset=row["last_offset"])
        if damages:
            note = f"{damages[0]}; a marker of the producer may have been there"
            return replace(written_by, outcome=TransactionOutcome.UNKNOWN, notes=(*written_by.notes, note))
    return replace(written_by, outcome=TransactionOutcome.OPEN)


def _markers_of(
    read: SegmentRead, producer_id: int, damages: list[Damage], ended: list[LogRead]
) -> Iterator[dict[str, Any]]:
    wanted = pa.scalar(producer_id, pa.int64())
    for rows in batch_rows_of([read], _MARKERS, damages.append, goes_on=False, on_end=ended.append):
        is_marker = pc.and_(rows.column("control"), pc.equal(rows.column("producer_id"), wanted))
        yield from rows.filter(is_marker).to_pylist()


def _with_id(written_by: WrittenBy, request: ReadRequest) -> WrittenBy:
    """Add the transactional id of the producer, or why it is not known."""
    ids: dict[str, None] = {}
    notes = [*written_by.notes]
    is_here = False
    for log_dir in dict.fromkeys(request.log_dirs):
        try:
            coordinators = _coordinators(log_dir)
            topics = {directory.topic_partition.topic for directory in coordinators.partitions()}
            if _COORDINATORS_TOPIC in topics:
                is_here = True
                plan = plan_reads(coordinators, goes_on=True, isolates=True)
                ids |= dict.fromkeys(_ids_in(plan, written_by.producer_id, notes))
        except (OSError, KidxError) as error:
            notes.append(describe_error(error))
    if not ids:
        elsewhere = "no partition of it that is here names the producer; the right one may be on another broker"
        notes.append(f"{_COORDINATORS_TOPIC}: {elsewhere if is_here else 'not in the log dirs that were given'}")
    return replace(written_by, transactional_id=next(reversed(ids), None), notes=tuple(notes))


def _coordinators(log_dir: Location) -> ReadRequest:
    return read_request(str(log_dir), topics=re.compile(re.escape(_COORDINATORS_TOPIC)), to_log_end=True)


def _ids_in(plan: ReadPlan, producer_id: int, notes: list[str]) -> Iterator[str]:
    """The transactional ids of a producer, in the order of the log."""
    notes += plan.failed.values()
    wanted = pa.scalar(producer_id.to_bytes(_ID_END - _ID_START, signed=True), pa.binary())

    def note(damage: Damage) -> None:
        notes.append(str(damage))

    for rows in record_rows_of(plan.reads, _KEYS_AND_VALUES, note, goes_on=True, threads=1):
        is_wanted = pc.equal(pc.binary_slice(rows.column("value"), _ID_START, _ID_END), wanted)
        for row in rows.filter(is_wanted).to_pylist():
            try:
                record = read_coordinator_record(row["key"], row["value"], TRANSACTION_STATE)
            except (UnreadableMessageError, UnknownRecordTypeError):
                continue  # a newer Kafka wrote it
            yield str(record.key["transactionalId"])
