"""Ends that somebody gives (`--until-offsets`): each partition is restored up to an offset, and not behind it. And ends
by a time (`--propose-until`), in a file for that option, which somebody looks at before it is used.

A log that ends at a batch's border is one that a crash could have left, so nothing in it is rewritten. No transaction
is open at the end: its marker would be behind it, and a coordinator that has written that marker never writes it again,
so that consumers of committed records would stop there for ever. The end is thus the last one at or below the given
offset which is the log's last stable offset, too (`ProducerStateManager.firstUndecidedOffset`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from kidxlib.audit.startup.simulation import SimulatedSegment
from kidxlib.errors import KidxError, UsageError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.format.topic_partition import INTERNAL_TOPICS, TopicPartition
from kidxlib.log.metadata_image import Assignment
from kidxlib.operations.recover.read_logs import log_path
from kidxlib.operations.restore.choose_replicas import leader_of
from kidxlib.operations.restore.coordinators import TRANSACTION_TOPIC, PreparedCommit
from kidxlib.operations.restore.inventory import InventoryReplica
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.recovery.scan.scan_state import EventKind
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.small_files import small_file
from kidxlib.terminal import interrupts
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

#: Topics that are restored whole: coordinators and the tiered storage would go on from a state that is over.
RESTORED_WHOLE: Final = INTERNAL_TOPICS | {"__remote_log_metadata"}
_EXPECTED_FORM: Final = 'expected {"partitions": [{"topic": "orders", "partition": 0, "offset": 7}]}'
_MARKERS: Final = (EventKind.COMMIT, EventKind.ABORT)
#: The inventory has checked the checksums, and no index is wanted.
_SCAN_FOR_EVENTS: Final = RecoverOptions(interval_bytes=layouts.SEGMENT_BYTES_MAX, verify_crc=False)
_OPTION: Final = "--until-offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenEnd:
    """Where a partition is to end by an offset that somebody gives.

    Attributes:
        given: the first offset that is not wanted.
        end: the first offset that the restored log does not have.
        open_since: where the first transaction begins that is open at the last whole batch at or below `given`; None:
            none is.
        leader: the leader's replica as it was.
        left_bytes: the bytes of its log that stay behind.
    """

    topic_partition: TopicPartition
    given: int
    end: int
    open_since: int | None
    leader: InventoryReplica
    left_bytes: int

    @property
    def was(self) -> int:
        """Where the leader's log ended."""
        return self.leader.end_offset

    @property
    def is_cut(self) -> bool:
        return self.end < self.was

    @property
    def text(self) -> str:
        open_ = "" if self.open_since is None else f", as a transaction is open there since {self.open_since}"
        at = f"{self.topic_partition.directory}: at offset {self.end}, {self.given} given{open_}"
        return f"{at}; the log goes on to {self.was}" if self.is_cut else f"{at}: the whole log"

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.topic_partition.directory,
            "given": self.given,
            "end": self.end,
            "open_since": self.open_since,
            "was": self.was,
            "left_bytes": self.left_bytes,
        }


@dataclass(frozen=True, slots=True)
class GivenEnds:
    """
    Attributes:
        by_partition: of the partitions for which an end was given.
        refusals: why a given end cannot be, each with what to do.
        without_end: the partitions that are restored up to their ends, or not at all, a line each.
    """

    by_partition: Mapping[TopicPartition, GivenEnd] = field(default_factory=dict)
    refusals: Sequence[str] = ()
    without_end: Sequence[str] = ()

    def cut(self, replicas: Sequence[InventoryReplica]) -> Sequence[InventoryReplica]:
        """The replicas of a partition, each up to its end."""
        end = self.by_partition.get(replicas[0].topic_partition)
        return replicas if end is None else [_cut_replica(replica, end.end) for replica in replicas]


@dataclass(frozen=True, slots=True)
class ProposedEnd:
    """Where a partition ends by a time.

    Attributes:
        offset: of the first batch whose largest timestamp is above the time; the log's end where there is none.
        end: the log's end.
        later: how many batches behind that offset have no timestamp above the time.
        later_to: the last offset of these.
    """

    topic_partition: TopicPartition
    offset: int
    end: int
    later: int = 0
    later_to: int = -1

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "offset": self.offset,
            "was": self.end,
            "later_batches": self.later,
            "later_to": None if not self.later else self.later_to,
        }

    def warning(self, time_ms: int) -> str | None:
        if not self.later:
            return None
        return (
            f"{self.topic_partition.directory}: {counted(self.later, 'batch', 'batches')} after offset {self.offset} "
            f"are not later than {show_time(time_ms)}, the last with offset {self.later_to}, as producers' times need "
            "not ascend: left out, too; change the offset in the file to keep them"
        )


def read_until_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets before which partitions end, in the form of `kafka-delete-records --offset-json-file`."""
    what = f"--until-offsets {path}"
    try:
        content = json.loads(small_file(path), object_pairs_hook=_each_name_once)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{what}: cannot be read: {error}; {_EXPECTED_FORM}") from error
    rows = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{what}: no partitions in it; {_EXPECTED_FORM}")
    offsets: dict[TopicPartition, int] = {}
    for row in rows:
        values = [row.get(name) for name in ("topic", "partition", "offset")] if isinstance(row, dict) else []
        match values:
            case [str(topic), int(number), int(offset)] if (
                number >= 0 and 0 <= offset <= OFFSET_MAX and bool not in map(type, values)
            ):
                partition = TopicPartition(topic, number)
            case _:
                raise UsageError(f"{what}: {json.dumps(row)}; {_EXPECTED_FORM}")
        if topic in RESTORED_WHOLE:
            raise UsageError(
                f"{what}: {topic} has no end of its own, as its coordinators would go on from a state that "
                "is over; leave it out of the file"
            )
        if offsets.setdefault(partition, offset) != offset:
            raise UsageError(
                f"{what}: {partition.directory} has two offsets, {offsets[partition]} and {offset}; keep one"
            )
    return offsets


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these names and values, of which none stands for another: else the last would, with no word."""
    values = dict(pairs)
    if len(values) < len(pairs):
        name, _ = next(pair for number, pair in enumerate(pairs) if pair[0] in dict(pairs[:number]))
        raise ValueError(f'two values of "{name}" in one object; keep one')
    return values


def plan_ends(
    given: Mapping[TopicPartition, int] | None,
    partitions: Iterable[Sequence[InventoryReplica]],
    elsewhere: Collection[TopicPartition],
    threads: int,
    assignments: Mapping[TopicPartition, Assignment],
) -> GivenEnds:
    """Where partitions end for which an offset is given. Headers are read of one log for each, and of logs with
    transactions.

    Args:
        assignments: what the newest metadata says of partitions.
        elsewhere: partitions of the sources that are left out.
    """
    if given is None:
        return GivenEnds()
    named = ((replicas[0].topic_partition, replicas) for replicas in partitions)
    leaders = {partition: leader_of(replicas, assignments.get(partition)) for partition, replicas in named}
    missing = given.keys() - leaders.keys()
    refusals = [
        f"--until-offsets: {partition.directory} is in no source; take it out of the file, or name the source that "
        "has it"
        for partition in sorted(missing - set(elsewhere))
    ]
    without = [f"{partition.directory}: left out, and given an end" for partition in sorted(missing & set(elsewhere))]
    without += [
        f"{partition.directory}: no end is given: restored up to {leader.end_offset}"
        for partition, leader in leaders.items()
        if partition not in given and partition.topic not in RESTORED_WHOLE
    ]
    readable = [leader for partition, leader in leaders.items() if partition in given and not leader.forecast.refusals]
    ends: dict[TopicPartition, GivenEnd] = {}
    with ThreadPoolExecutor(threads, thread_name_prefix="kidx-ends") as pool:
        for end in pool.map(lambda leader: _planned_end(leader, given[leader.topic_partition]), readable):
            ends[end.topic_partition] = end
            if end.end < end.leader.start_offset:
                refusals.append(_why_end_is_below_start(end))
    return GivenEnds(ends, refusals, without)


def commits_cut_by_given_ends(prepared: Iterable[PreparedCommit], ends: GivenEnds) -> Iterator[str]:
    """Refusals of given ends (`--until-offsets`) that cut transactions which coordinators are about to commit: these
    would commit in part (`TransactionMarkerChannelManager`).
    """
    for commit in prepared:
        for partition in commit.partitions:
            end = ends.by_partition.get(partition)
            if end is not None and end.is_cut and _has_records_of(end.leader, commit.producer_ids, end.end):
                yield (
                    f"{partition.directory}: transaction {commit.transactional_id} is about to commit, by "
                    f"{TRANSACTION_TOPIC}, and has records after the end {end.end}: it would commit in part; give an "
                    "offset after its records, or leave the partition out of --until-offsets"
                )


def open_without_given_end(leaders: Iterable[InventoryReplica], ends: GivenEnds) -> Iterator[str]:
    """Refusals of logs without a given end (`--until-offsets`) that end within a transaction, where no coordinator
    comes back that would end it.
    """
    for leader in leaders:
        partition, end = leader.topic_partition, leader.end_offset
        if partition in ends.by_partition or leader.forecast.refusals:
            continue
        began = min((first for first, marker in _transactions_below(leader, end) if marker >= end), default=None)
        if began is not None:
            yield (
                f"{partition.directory}: a transaction is open since offset {began}, and --topics leaves "
                f"{TRANSACTION_TOPIC} out, so that nobody ends it, and consumers of committed records stop there: add "
                f"|{TRANSACTION_TOPIC} to --topics, or give an end of {end} with --until-offsets, which goes back to "
                "where none is open"
            )


def _why_end_is_below_start(end: GivenEnd) -> str:
    name, start = end.topic_partition.directory, end.leader.start_offset
    what = f"{name}: it would end at offset {end.end}, {end.given} given, and its log begins at {start}"
    if end.open_since is not None:
        return (
            f"{what}: a transaction is open in all of it; give a later offset, or leave {name} out of --until-offsets"
        )
    return f"{what}: what was before is gone; give {start} for an empty partition, or leave it out of --until-offsets"


def _planned_end(leader: InventoryReplica, given: int) -> GivenEnd:
    segments, last = _cut_point(leader, given)
    transactions = _transactions_below(leader, last)
    if (end := quiet_end(transactions, last)) < last:
        segments, end = _cut_point(leader, end)
    return GivenEnd(
        topic_partition=leader.topic_partition,
        given=given,
        end=end,
        open_since=min((first for first, marker in transactions if marker >= last), default=None),
        leader=leader,
        left_bytes=leader.kept_bytes - sum(segment.kept_bytes for segment in segments),
    )


def quiet_end(transactions: Iterable[tuple[int, int]], end: int) -> int:
    """Where a given end (`--until-offsets`) is moved: to the last offset up to `end` where no transaction is open."""
    for first, marker in sorted(transactions, reverse=True):
        if first < end <= marker:
            end = first
    return end


def _transactions_below(replica: InventoryReplica, end: int) -> list[tuple[int, int]]:
    """The transactions that begin below an offset: their first offset and that of their marker, `OFFSET_MAX` where
    there is none below `end` (`ProducerAppendInfo.appendDataBatch`, `appendEndTxnMarker`).
    """
    began: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    for kind, producer_id, first, _ in _transactional_events(replica, 0, end):
        if kind == EventKind.TRANSACTIONAL_DATA:
            began.setdefault(producer_id, first)
        elif kind in _MARKERS and producer_id in began:
            ended.append((began.pop(producer_id), first))
    return [*ended, *((first, OFFSET_MAX) for first in began.values())]


def _has_records_of(replica: InventoryReplica, producer_ids: Collection[int], start: int) -> bool:
    """Whether a log has transactional records of some producers at an offset or behind it."""
    return any(
        kind == EventKind.TRANSACTIONAL_DATA and producer_id in producer_ids and last >= start
        for kind, producer_id, _, last in _transactional_events(replica, start, replica.end_offset)
    )


def _transactional_events(replica: InventoryReplica, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """What transactional producers did from the segment on that has one offset, and below another: kind, producer,
    first and last offset.
    """
    segments = replica.forecast.simulation.left
    for segment, following in zip_longest(segments, segments[1:]):
        recovery = replica.forecast.recoveries.get(segment.base_offset)
        has_none = recovery is not None and recovery.transactional_batches == 0
        is_before = following is not None and following.base_offset <= start
        if has_none or is_before or segment.base_offset >= end:
            continue
        with contextlib.closing(_log_of(replica, segment)) as log:
            events = recover(log, segment.base_offset, _SCAN_FOR_EVENTS).producer_events
        events = events[events["first_offset"] < end]
        yield from zip(
            *(events[name].tolist() for name in ("kind", "producer_id", "first_offset", "last_offset")), strict=True
        )


def _cut_replica(replica: InventoryReplica, end: int) -> InventoryReplica:
    """A replica up to an offset, or up to its last whole batch below; itself where it does not go further."""
    if replica.end_offset <= end or replica.forecast.refusals:
        return replica
    segments, last = _cut_point(replica, end)
    forecast, bases = replica.forecast, {segment.base_offset for segment in segments}
    logs = tuple(
        replace(log, epochs=tuple(entry for entry in log.epochs if entry.start_offset < last))
        for log in forecast.seen.logs
        if log.base_offset in bases
    )
    return replace(
        replica,
        forecast=replace(
            forecast,
            simulation=replace(
                forecast.simulation,
                segments=segments,
                log_start_offset=min(replica.start_offset, last),
                log_end_offset=last,
            ),
            seen=replace(forecast.seen, logs=logs, shorter_than_index=None),
            dropped=(),
        ),
        index_without_log=None,
    )


def _cut_point(replica: InventoryReplica, offset: int) -> tuple[list[SimulatedSegment], int]:
    """What is left of the logs where the last whole batch at or below an offset ends them, and its next offset. Where
    no batch is left, the first log is empty. A start that deletes all logs leaves none.
    """
    segments = replica.forecast.simulation.left
    for number in reversed(range(len(segments))):
        segment = segments[number]
        found = _last_batch_below(replica, segment, offset) if segment.base_offset < offset else None
        if found is not None:
            kept_bytes, next_offset = found
            return [*segments[:number], replace(segment, kept_bytes=kept_bytes, next_offset=next_offset)], next_offset
    if not segments:
        return [], replica.end_offset
    first = segments[0]
    return [replace(first, kept_bytes=0, next_offset=first.base_offset)], first.base_offset


def _last_batch_below(replica: InventoryReplica, segment: SimulatedSegment, offset: int) -> tuple[int, int] | None:
    """Where the last batch ends that has no record at an offset or behind it, and the offset after it."""
    found = None
    with contextlib.closing(_log_of(replica, segment)) as log:
        for table in BatchWalk(log, 0, WantedRecords(last_offset=offset), whole=False).tables():
            rows = table.rows[table.rows["last_offset"] < offset]
            if len(rows):
                last = rows[-1]
                found = int(last["position"] + last["size"]), int(last["last_offset"]) + 1
    return found


def propose_ends(partitions: Iterable[Sequence[InventoryReplica]], time_ms: int, threads: int) -> list[ProposedEnd]:
    """The proposed end of each partition, but of topics that are restored whole. Headers are read from the first log on
    that has a later timestamp.

    Args:
        time_ms: in ms since the epoch.
    """
    leaders = [leader_of(replicas) for replicas in partitions]
    leaders = [
        leader
        for leader in leaders
        if leader.topic_partition.topic not in RESTORED_WHOLE and not leader.forecast.refusals
    ]
    with ThreadPoolExecutor(threads, thread_name_prefix="kidx-ends") as pool:
        return list(pool.map(lambda leader: _proposed_end(leader, time_ms), leaders))


def _proposed_end(leader: InventoryReplica, time_ms: int) -> ProposedEnd:
    offset: int | None = None
    before, later, later_to = leader.start_offset, 0, -1
    for segment in leader.forecast.simulation.left:
        recovery = leader.forecast.recoveries.get(segment.base_offset)
        if offset is None and recovery is not None and recovery.max_timestamp_ms <= time_ms:
            before = max(before, recovery.next_offset)
            continue
        with contextlib.closing(_log_of(leader, segment)) as log:
            for table in BatchWalk(log, 0, WantedRecords(), whole=False).tables():
                is_later, last = table.rows["max_timestamp"] > time_ms, table.rows["last_offset"]
                if offset is None:
                    first = int(is_later.argmax()) if is_later.any() else len(last)
                    before = max(before, int(last[first - 1]) + 1) if first else before
                    if first == len(last):
                        continue
                    offset, is_later, last = before, is_later[first:], last[first:]
                if not is_later.all():
                    later += int((~is_later).sum())
                    later_to = int(last[~is_later][-1])
    end = leader.end_offset
    return ProposedEnd(leader.topic_partition, end if offset is None else offset, end, later, later_to)


def write_proposal(path: Path, proposed: Iterable[ProposedEnd]) -> None:
    """Write the offsets in the form of `kafka-delete-records --offset-json-file`, into a new file: one that is there
    may have been changed by somebody.
    """
    partitions = [{name: each.as_json()[name] for name in ("topic", "partition", "offset")} for each in proposed]
    try:
        with interrupts.stopping(lambda: None), path.open("x") as file:  # a part of it would be in the way
            file.write(json.dumps({"partitions": partitions, "version": 1}, indent=2) + "\n")
            interrupts.tell_from_here(f"{path} is written")
    except FileExistsError as error:
        raise UsageError(f"{_OPTION} {path}: it is there already; name a new file for the proposal") from error
    except OSError as error:
        raise KidxError(f"{_OPTION} {path}: cannot be written: {error.strerror}") from error


def _log_of(replica: InventoryReplica, segment: SimulatedSegment) -> LogFile:
    """A segment's log, up to what a start leaves."""
    log = LogFile(log_path(replica.directory, segment.base_offset))
    log.keep_valid(segment.kept_bytes)
    return log
