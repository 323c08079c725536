"""Who wrote a record: its batch says which producer, the partition's markers what became of the transaction, and
`__transaction_state` which transactional id the producer has.
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
from kidxlib.lookup.cataloged_partitions import no_such_partition
from kidxlib.messages.typed_records import TRANSACTION_STATE, read_coordinator_record
from kidxlib.reading.batches import batch_rows_of
from kidxlib.reading.gaps_met import LogRead
from kidxlib.reading.left_out import Damage, fail_on, lines_of
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import Paths, ReadRequest, read_request
from kidxlib.reading.rows import rows_of
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records import batch_headers, reader
from kidxlib.records.arrow.batches import LISTED_BATCHES
from kidxlib.records.arrow.schema import CONSUMED
from kidxlib.records.control import read_control_record
from kidxlib.storage.location import Location
from kidxlib.storage.opened_log import opened_log

_COORDINATORS_TOPIC: Final = "__transaction_state"
_ANY_TOPIC: Final = re.compile(".*")
_NO_PRODUCER: Final = -1
#: Of a value of `TransactionLogValue`, whatever its version: the bytes of the producer's id, behind the version.
_ID_START, _ID_END = 2, 10
_MARKERS: Final = pa.schema(
    [LISTED_BATCHES.field(name) for name in ("position", "last_offset", "producer_id", "control")]
)
_KEYS_AND_VALUES: Final = pa.schema([CONSUMED.field(name) for name in ("key", "value")])


class Outcome(enum.StrEnum):
    """What became of the transaction that a record is of."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"  # no marker of its producer follows
    NONE = "none"  # it is of no transaction
    MARKER = "marker"  # it ends one
    UNKNOWN = "unknown"  # the log is damaged, or a part of it missing, before a marker of its producer


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """A record, its batch and its producer.

    Attributes:
        topic, partition, offset: those of the record.
        log_path: the segment's log.
        batch: what its header says, by the columns of `read` in the mode `batches`.
        record: what consumers get of it, by the columns of `read` with headers; None of a marker.
        producer_id: −1 is none.
        outcome: what became of its transaction.
        marker: of a marker `COMMIT`, `ABORT` or one of KRaft's; else None.
        marker_offset: of the marker that ends its transaction; None where there is none.
        transactional_id: None where the record is of no transaction, or no `__transaction_state` that is here has it.
        notes: why something is not known, a line each.
    """

    topic: str
    partition: int
    offset: int
    log_path: str
    batch: dict[str, Any]
    record: dict[str, Any] | None
    producer_id: int
    outcome: Outcome
    marker: str | None = None
    marker_offset: int | None = None
    transactional_id: str | None = None
    notes: tuple[str, ...] = ()


def who_wrote(paths: Paths, partition: str, offset: int) -> WrittenBy:
    """Who wrote the record at an offset, and what became of its transaction. docs/read.md has more.

    The batch is looked up by the `.index`. Of batches behind it headers are read, up to the marker of its producer.
    `__transaction_state` is read in the log dirs that are given: each transactional id is in one of its partitions,
    which may be on other brokers.

    Args:
        paths: as of `kidxlib.read`.
        partition: the name of its directory, <topic>-<partition>.

    Returns:
        What is known of it.

    Raises:
        UsageError: there is no such partition, or no record has the offset.
        DamagedLogError, LogChangedError, OSError: the log cannot be read there.
    """
    wanted = parse_partition_directory(partition)
    if wanted is None:
        raise UsageError(f"{partition!r}: expected the name of a partition's directory, <topic>-<partition>")
    request = _request(paths, wanted, offset, offset + 1)
    there = [each.topic_partition for each in request.partitions()]
    if wanted not in there:
        raise UsageError(f"{request.place}: {no_such_partition(wanted, there)}")
    plan = plan_reads(request, goes_on=False)
    batch, read = _batch(plan, request, wanted, offset)
    record, notes = _record(plan.reads)
    if not batch["crc_is_right"]:
        notes = ("the checksum of the batch is wrong: nothing in it can be relied on",)
    found = WrittenBy(
        topic=wanted.topic,
        partition=wanted.partition,
        offset=offset,
        log_path=read.log_path,
        batch=batch,
        record=record,
        producer_id=batch["producer_id"],
        outcome=Outcome.NONE,
        notes=(*notes, *plan.of_another_time, *lines_of(each for each in plan.left_out if each.told_by is not None)),
    )
    if batch["control"]:
        found = replace(found, outcome=Outcome.MARKER, marker=_control_type(read.log_path, batch["position"]))
    elif batch["transactional"]:
        found = _with_end(found, _request(paths, wanted, batch["last_offset"] + 1, None))
    return found if batch["producer_id"] == _NO_PRODUCER or found.outcome is Outcome.NONE else _with_id(found, request)


def _request(paths: Paths, partition: TopicPartition, start: int | None, end: int | None) -> ReadRequest:
    return read_request(
        paths,
        topics=_ANY_TOPIC,
        offsets={partition.directory: (start, end)},
        times=None,
        isolation="read_uncommitted",
        index_dir=None,
        to_log_end=True,
    )


def _batch(
    plan: ReadPlan, request: ReadRequest, wanted: TopicPartition, offset: int
) -> tuple[dict[str, Any], SegmentRead]:
    """The batch that holds the offset, and the segment.

    Raises:
        UsageError: none does.
    """
    for read in plan.reads:
        for rows in batch_rows_of([read], LISTED_BATCHES, fail_on, goes_on=False):
            for batch in rows.to_pylist():
                if (batch["base_offset"] or 0) <= offset <= batch["last_offset"]:
                    return batch, read
    why = [*plan.problems, *plan.remarks] or [
        f"no batch holds offset {offset}: compaction has removed it, or a segment is missing; ask kidx verify"
    ]
    raise UsageError(f"{request.place}: {wanted.directory}: {why[0]}")


def _record(reads: Sequence[SegmentRead]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The record as consumers get it, None of a marker; and why it cannot be read."""
    try:
        for rows in rows_of(reads, CONSUMED, fail_on, goes_on=False, threads=1):
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


def _with_end(found: WrittenBy, behind: ReadRequest) -> WrittenBy:
    """With the next marker of the producer, which ends its transaction: it has one at a time.

    Args:
        behind: what follows the batch.
    """
    met, before = list[Damage](), list[LogRead]()
    for read in plan_reads(behind, goes_on=False, looks_around=False).reads:
        next_offset = before[-1].next_offset if before else read.base_offset
        # What the cleaner leaves of a transaction has its marker, too (`CleanedTransactionMetadata`).
        if next_offset < read.base_offset and not any(log.lacks_records for log in before):
            offsets = f"offsets {next_offset} to {read.base_offset - 1} are in no log"
            note = f"{offsets}; a marker of the producer may have been there"
            return replace(found, outcome=Outcome.UNKNOWN, notes=(*found.notes, note))
        for row in _markers_of(read, found.producer_id, met, before):
            name = _control_type(read.log_path, row["position"])
            outcome = Outcome.COMMITTED if name == "COMMIT" else Outcome.ABORTED
            return replace(found, outcome=outcome, marker_offset=row["last_offset"])
        if met:
            note = f"{met[0]}; a marker of the producer may have been there"
            return replace(found, outcome=Outcome.UNKNOWN, notes=(*found.notes, note))
    return replace(found, outcome=Outcome.OPEN)


def _markers_of(
    read: SegmentRead, producer_id: int, met: list[Damage], ended: list[LogRead]
) -> Iterator[dict[str, Any]]:
    wanted = pa.scalar(producer_id, pa.int64())
    for rows in batch_rows_of([read], _MARKERS, met.append, goes_on=False, on_end=ended.append):
        is_it = pc.and_(rows.column("control"), pc.equal(rows.column("producer_id"), wanted))
        yield from rows.filter(is_it).to_pylist()


def _with_id(found: WrittenBy, request: ReadRequest) -> WrittenBy:
    """With the transactional id of the producer, or why it is not known."""
    ids: dict[str, None] = {}
    notes = [*found.notes]
    is_here = False
    for log_dir in dict.fromkeys(request.log_dirs):
        try:
            of_coordinators = _coordinators(log_dir)
            if any(each.topic_partition.topic == _COORDINATORS_TOPIC for each in of_coordinators.partitions()):
                is_here = True
                plan = plan_reads(of_coordinators, goes_on=True, isolates=True)
                ids |= dict.fromkeys(_ids_in(plan, found.producer_id, notes))
        except (OSError, KidxError) as error:
            notes.append(describe_error(error))
    if not ids:
        elsewhere = "no partition of it that is here names the producer; the right one may be on another broker"
        notes.append(f"{_COORDINATORS_TOPIC}: {elsewhere if is_here else 'not in the log dirs that were given'}")
    return replace(found, transactional_id=next(reversed(ids), None), notes=tuple(notes))


def _coordinators(log_dir: Location) -> ReadRequest:
    return read_request(
        str(log_dir),
        topics=re.compile(re.escape(_COORDINATORS_TOPIC)),
        offsets=None,
        times=None,
        isolation="read_uncommitted",
        index_dir=None,
        to_log_end=True,
    )


def _ids_in(plan: ReadPlan, producer_id: int, notes: list[str]) -> Iterator[str]:
    """The transactional ids of a producer, in the order of the log."""
    notes += plan.failed.values()
    wanted = pa.scalar(producer_id.to_bytes(_ID_END - _ID_START, signed=True), pa.binary())

    def note(damage: Damage) -> None:
        notes.append(str(damage))

    for rows in rows_of(plan.reads, _KEYS_AND_VALUES, note, goes_on=True, threads=1):
        of_it = pc.equal(pc.binary_slice(rows.column("value"), _ID_START, _ID_END), wanted)
        for record in rows.filter(of_it).to_pylist():
            try:
                read = read_coordinator_record(record["key"], record["value"], TRANSACTION_STATE)
            except (UnreadableMessageError, UnknownRecordTypeError):
                continue  # of a newer Kafka
            yield str(read.key["transactionalId"])
