"""Cuts partitions into shares (`partitions_to_finish`), and finishes them in a worker (`finish_partitions`), from the
catalog's rows of their segments. If it can, it goes on from the state that an earlier build kept.

A state is valid while the segments that led to it are unchanged. It is kept with their number, the number of those
without problems, and a digest of their logs' versions, which are compared with the segments' rows. So nothing has to
mark a state as invalid when a segment is read again or vanishes, or when another run writes the state. Present segments
that a kept state spares are counted as if they were finished again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.conditions import PRESENT, Condition, scope_of
from kidxlib.catalog.index_bytes import packed_batches
from kidxlib.catalog.matching import Flags, Longs, Positions, Values, differing, flags_of, numbers_in, positions_in
from kidxlib.catalog.partitions import (
    PARTITION_STATES,
    PARTITIONS,
    PRODUCER_EVENTS,
    AbortedTransactionRow,
    FoldedLogs,
    PartitionStateRow,
    named_key,
    partition_keys,
)
from kidxlib.catalog.results import FINISHED, TO_FINISH, FoldedPartition, KeptFile
from kidxlib.catalog.rows import PARTITION_KEY, rows_of_kind
from kidxlib.catalog.segments import SEGMENTS, SegmentToFinish
from kidxlib.engine.protocol import Engine
from kidxlib.engine.shares import keys_with_rows, share_rows_of, shares
from kidxlib.engine.work import ItemRows, SharedRows
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import parse_snapshot
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import PartitionChange
from kidxlib.indexing.finish_partition import FinishedPartition, UnfinishedSegment, fold_and_publish
from kidxlib.indexing.listing import IndexDirectoryListings
from kidxlib.indexing.plan import PartitionTask
from kidxlib.operations.build.waves import finished_by_topic
from kidxlib.operations.producer_events import (
    event_rows,
    leader_epoch_columns,
    plain_runs,
    segment_rows,
    to_leader_epochs,
    with_events,
)
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.recovery.partition_fold import FoldState, PlainSegments, ScannedSegment, StateSource
from kidxlib.storage.location import as_text
from kidxlib.storage.publisher import Published
from kidxlib.tables.protocol import Tables, counts_of

#: The columns of a segment that tell from which version of its log its events are.
_LOG_VERSION: Final = ("base_offset", "next_offset", "log_bytes", "log_mtime_ns")

#: 2⁶⁴ divided by the golden ratio: an odd number whose bits have no pattern.
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
#: No row, or no number.
_NONE: Final = -1
#: About so many finished segments' rows are made at a time.
_ROWS_AT_ONCE: Final = 1000
#: Below every base offset, so that no state is valid.
_FROM_THE_START: Final = np.iinfo(np.int64).min

#: A partition, and its first segment that is present.
_FIRST_SEGMENTS: Final = pa.schema(
    [*PARTITIONS.schema(PARTITIONS.key), ("topic_id", pa.string()), ("first_present", pa.int64())]
)

#: The columns of a segment from which the segments that are not folded are counted.
_COUNTED: Final = ("topic", "aborted_transactions", "transaction_index_bytes", "transaction_index_kept")

#: All columns of a segment that are read.
_SEGMENT_COLUMNS: Final = {
    *SEGMENTS.key,
    "reason",
    "topic_id",
    "producer_state",
    *SegmentToFinish.names(),
    *_LOG_VERSION,
    *_COUNTED,
}


@dataclass(frozen=True, slots=True)
class PartitionToFinish:
    """A partition's task.

    Attributes:
        logs: figures of the segments up to each of the last two, by its base offset: the states after these are kept.
    """

    task: PartitionTask
    logs: Mapping[int, FoldedLogs]


@dataclass(frozen=True, slots=True)
class PartitionsToFinish:
    """A share of the partitions.

    Attributes:
        rows: rows of `TO_FINISH`, by partition and in the order of segments.
        row_bytes: the size of the rows in memory.
    """

    rows: SharedRows
    row_bytes: int
    partitions: Mapping[PartitionKey, PartitionToFinish]


def finish_partitions(shares: Iterable[PartitionsToFinish]) -> Iterator[ItemRows]:
    """Finish partitions in a worker, as rows of `FINISHED`. Repeated, this gives the same files and the same rows,
    except for `published`.
    """
    for share in shares:
        tasks = {key: partition.task for key, partition in share.partitions.items()}
        index_directories = [tasks[key].index_directory for key in sorted(tasks)]  # in the order of the rows
        waiting: list[FinishedPartition] = []
        for finished in fold_and_publish(_partitions_in(share.rows.batches(), tasks), index_directories):
            waiting.append(finished)
            if sum(map(_segment_count, waiting)) >= _ROWS_AT_ONCE:
                yield _item_rows(waiting, share.partitions)
                waiting.clear()
        yield _item_rows(waiting, share.partitions)


def _segment_count(finished: FinishedPartition) -> int:
    return len(finished.segments) + sum(len(plain.state_sources) for plain in finished.plain)


def _item_rows(finished: Sequence[FinishedPartition], partitions: Mapping[PartitionKey, PartitionToFinish]) -> ItemRows:
    rows: list[dict[str, Any]] = []
    for partition in finished:
        rows += [*_other_rows(partition), *_rows_for_later_builds(partition, partitions[partition.task.key])]
    packed = packed_batches([file for partition in finished for file in partition.packed], FINISHED)
    return ItemRows(batches=[_segment_batch(finished), _plain_batch(finished), *packed], rows=rows)


def _partitions_in(
    batches: Iterator[pa.RecordBatch], tasks: Mapping[PartitionKey, PartitionTask]
) -> Iterator[tuple[PartitionTask, Iterator[UnfinishedSegment | PlainSegments]]]:
    """The task of each partition, with its segments in order, from rows of `TO_FINISH`."""
    for key, of_partition in groupby(_unfinished_segments(batches), key=itemgetter(0)):
        yield tasks[key], (segments for _, segments in of_partition)


def _unfinished_segments(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[PartitionKey, UnfinishedSegment | PlainSegments]]:
    for is_plain, runs in groupby(plain_runs(batches, _are_plain), key=itemgetter(0)):
        rows = (run for _, run in runs)
        if is_plain:
            yield from map(_plain_segments, rows)
        else:
            yield from (_unfinished_segment(row, events) for row, events in with_events(rows))


def _are_plain(segments: Values) -> Flags:
    """Which segments (structs of `TO_FINISH`) can be `PlainSegments`, if they have no events."""
    known = ("next_offset", "map_end_offset", "offset_index_bytes")
    plain = flags_of(segments.field("problem_free"))
    plain &= np.logical_and.reduce([flags_of(segments.field(name).is_valid()) for name in known])
    is_absent: Values = pc.is_in(segments.field("status"), value_set=pa.array([status.value for status in ABSENT]))
    plain &= ~flags_of(is_absent)
    epochs, bounds = leader_epoch_columns(segments.field("leader_epochs"))
    of_segment = np.searchsorted(bounds, np.flatnonzero(epochs["start_offset"] < 0), side="right") - 1
    plain[of_segment] = False
    return plain


def _plain_segments(rows: pa.RecordBatch) -> tuple[PartitionKey, PlainSegments]:
    segments: Values = rows.column("segment")
    leader_epochs, epoch_bounds = leader_epoch_columns(segments.field("leader_epochs"))
    plain = PlainSegments(
        base_offsets=rows.column("base_offset").to_numpy(),
        next_offsets=segments.field("next_offset").to_numpy(),
        map_end_offsets=segments.field("map_end_offset").to_numpy(),
        leader_epochs=leader_epochs,
        epoch_bounds=epoch_bounds,
    )
    source, topic, partition = (rows.column(name)[0].as_py() for name in PARTITION_KEY)
    return (source, topic, partition), plain


def _unfinished_segment(row: dict[str, Any], events: NDArray[np.void]) -> tuple[PartitionKey, UnfinishedSegment]:
    segment = row["segment"]
    scanned = ScannedSegment(
        base_offset=row["base_offset"],
        problem_free=segment["problem_free"],
        next_offset=segment["next_offset"],
        map_end_offset=segment["map_end_offset"],
        producer_events=events,
        leader_epochs=to_leader_epochs(segment["leader_epochs"]),
    )
    present = segment["status"] not in ABSENT
    task = UnfinishedSegment(scanned=scanned, present=present, published=segment["offset_index_bytes"] is not None)
    return (row["source"], row["topic"], row["partition"]), task


def _segment_batch(finished: Sequence[FinishedPartition]) -> pa.RecordBatch:
    """Rows of `FINISHED` for segments."""
    segments = [segment for partition in finished for segment in partition.segments]
    keys = [partition.task.key for partition in finished for _ in partition.segments]
    failures = [segment.failure for segment in segments]
    columns: dict[str, Sequence[Any]] = {
        "source": [source for source, _, _ in keys],
        "topic": [topic for _, topic, _ in keys],
        "partition": [partition for _, _, partition in keys],
        "base_offset": [segment.base_offset for segment in segments],
        "producer_state": [segment.state_source for segment in segments],
        "aborted_transactions": [len(segment.aborted) for segment in segments],
        "transaction_index_bytes": [segment.transaction_index_bytes for segment in segments],
        "transaction_index_crc32c": [segment.transaction_index_crc32c for segment in segments],
        "transaction_index_kept": [segment.published is Published.KEPT for segment in segments],
        "status": [None if failure is None else failure.status for failure in failures],
        "reason": [None if failure is None else failure.reason for failure in failures],
        "reason_position": [None if failure is None else failure.position for failure in failures],
        "reason_detail": [None if failure is None else failure.detail for failure in failures],
        "published": [segment.published for segment in segments],
    }
    types = {field.name: field.type for field in FINISHED.field("segment").type}
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
    return rows_of_kind("segment", arrays, len(segments), FINISHED)


def _plain_batch(finished: Sequence[FinishedPartition]) -> pa.RecordBatch:
    """Rows of `FINISHED` for plain segments."""
    plain = [(partition.task.key, segments) for partition in finished for segments in partition.plain]
    counts = [len(segments.state_sources) for _, segments in plain]
    row_count, partition_of_row = sum(counts), pa.array(np.repeat(np.arange(len(plain)), counts))
    types = {field.name: field.type for field in FINISHED.field("segment").type}
    keys = zip(*(key for key, _ in plain), strict=True) if plain else ([] for _ in PARTITION_KEY)
    base_offsets = [np.empty(0, np.int64), *(segments.base_offsets for _, segments in plain)]
    sources = [source for _, segments in plain for source in segments.state_sources]
    arrays: dict[str, Values] = {
        **{
            name: pa.array(values, types[name]).take(partition_of_row)
            for name, values in zip(PARTITION_KEY, keys, strict=True)
        },
        "base_offset": pa.array(np.concatenate(base_offsets)),
        "producer_state": pa.array(sources, types["producer_state"]),
        "aborted_transactions": pa.repeat(pa.scalar(0, types["aborted_transactions"]), row_count),
        "transaction_index_kept": pa.repeat(pa.scalar(False), row_count),
        "published": pa.repeat(pa.scalar(Published.NONE.value, types["published"]), row_count),
    }
    return rows_of_kind("segment", arrays, row_count, FINISHED)


def _other_rows(finished: FinishedPartition) -> Iterator[dict[str, Any]]:
    """Rows of `FINISHED`: aborted transactions and kept files."""
    key = named_key(finished.task.key)
    for segment in finished.segments:
        for _, producer_id, first_offset, last_offset, last_stable_offset in segment.aborted.tolist():
            aborted = AbortedTransactionRow(
                **key,
                base_offset=segment.base_offset,
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=last_offset,
                last_stable_offset=last_stable_offset,
            )
            yield {"aborted": aborted.values()}
    for name in finished.kept:
        yield {"kept": KeptFile(path=as_text(f"{finished.task.index_directory}/{name}")).values()}


def _state_row(key: PartitionKey, state: FoldState, logs: FoldedLogs) -> PartitionStateRow:
    """The row in which a state is kept, with figures of the segments that led to it."""
    return PartitionStateRow(
        **named_key(key),
        base_offset=state.base_offset,
        **logs.values(),
        state_source=state.source.value,
        expected_offset=state.expected_offset,
        map_end_offset=state.map_end_offset,
        epochs_are_known=state.epochs_are_known,
        producer_snapshot=state.snapshot,
        leader_epochs=[{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in state.leader_epochs],
    )


def kept_state(row: PartitionStateRow) -> FoldState:
    """The state that an earlier build kept, from which the finishing of a partition goes on."""
    return FoldState(
        base_offset=row.base_offset,
        source=StateSource(row.state_source),
        expected_offset=row.expected_offset,
        map_end_offset=row.map_end_offset,
        epochs_are_known=row.epochs_are_known,
        snapshot=row.producer_snapshot,
        leader_epochs=tuple(EpochEntry(**entry) for entry in row.leader_epochs),
    )


def _rows_for_later_builds(finished: FinishedPartition, partition: PartitionToFinish) -> Iterator[dict[str, Any]]:
    """Rows of `FINISHED` for a later build: the partition, and the states from which it can go on."""
    folded = FoldedPartition(**named_key(finished.task.key), unfolded=partition.task.earlier)
    yield {"partition": folded.values()}
    for state in finished.states:
        logs = partition.logs.get(state.base_offset)
        if logs is not None:
            yield {"state": _state_row(finished.task.key, state, logs).values()}


class KeptStates:
    """The best kept state of each partition: the valid one after the most segments.

    A partition's number is its position in `keys`. `segments` are all segments that the partitions are folded from, in
    any order, and `partitions` are the numbers of their partitions. `states` may have rows of other partitions.

    Attributes:
        segments: the segments, sorted by partition and base offset.
        is_folded: which of the segments have to be folded: those after the partition's state.
    """

    def __init__(
        self,
        keys: Sequence[PartitionKey],
        segments: pa.Table,
        partitions: Positions,
        changes: Sequence[PartitionChange],
        states: pa.Table,
    ) -> None:
        self._numbers = {key: number for number, key in enumerate(keys)}
        self._states = states
        order = np.lexsort((segments["base_offset"].to_numpy(), partitions))
        self.segments, self._partitions = segments.take(order), partitions[order]
        self._base_offsets: Longs = self.segments["base_offset"].to_numpy()
        self._present = flags_of(self.segments["present"])
        #: The first row of each partition, and at the end the number of rows.
        self._bounds = np.searchsorted(self._partitions, np.arange(len(keys) + 1))
        self._logs = self._logs_up_to_each()
        self._best_state, self._last_spared = self._best_states(changes)
        self.is_folded: Flags = np.arange(len(order)) > self._last_spared[self._partitions]

    def partition_to_finish(self, key: PartitionKey, task: PartitionTask) -> PartitionToFinish | None:
        """A partition with the state that it is folded from; None if no segment of it has to be folded."""
        number = self._numbers[key]
        first, end = int(self._bounds[number]), int(self._bounds[number + 1])
        folded_from = max(first, int(self._last_spared[number]) + 1)
        if folded_from == end:
            return None
        if folded_from > first:
            spared = slice(first, folded_from)
            earlier = self._base_offsets[spared][self._present[spared]].tolist()
            [row] = PartitionStateRow.of_arrow(self._states.slice(int(self._best_state[number]), 1))
            task = replace(task, start=kept_state(row), earlier=earlier)
        # The last two: a state is kept after each of them.
        logs = {
            int(self._base_offsets[row]): FoldedLogs.of({name: int(column[row]) for name, column in self._logs.items()})
            for row in range(max(first, end - 2), end)
        }
        return PartitionToFinish(task, logs)

    def _best_states(self, changes: Sequence[PartitionChange]) -> tuple[Positions, Positions]:
        """The row of each partition's best state, and the row of the last segment that led to it, by the number of the
        partition; −1 if there is none.
        """
        changed_from = [_FROM_THE_START if change.changed_from is None else change.changed_from for change in changes]
        rows = positions_in(self._states, self.segments, SEGMENTS.key)
        states = np.flatnonzero(rows >= 0)
        rows = rows[states]
        partitions = self._partitions[rows]
        valid: Flags = self._base_offsets[rows] < np.array(changed_from, np.int64)[partitions]
        for name, column in self._logs.items():
            valid &= self._states[name].to_numpy()[states] == column[rows]
        order = np.argsort(rows[valid], kind="stable")  # of a partition's states, the last one is assigned last
        best_state, last_spared = (np.full(len(changes), _NONE, np.int64) for _ in range(2))
        best_state[partitions[valid][order]] = states[valid][order]
        last_spared[partitions[valid][order]] = rows[valid][order]
        return best_state, last_spared

    def _logs_up_to_each(self) -> dict[str, Longs]:
        """The columns of `FoldedLogs`: for each segment, of the segments from its partition's first up to it."""
        summed = np.ones(len(self._partitions), np.int64), self.segments["problem_free"], _digests(self.segments)
        first = self._bounds[self._partitions]
        columns = {}
        for name, column in zip(FoldedLogs.names(), summed, strict=True):
            sums = np.cumsum(np.asarray(column).astype(np.int64))
            columns[name] = sums - np.concatenate([np.zeros(1, np.int64), sums])[first]
        return columns


def _digests(segments: pa.Table) -> NDArray[np.uint64]:
    digests = np.zeros(segments.num_rows, np.uint64)
    for name in _LOG_VERSION:
        numbers, is_known = numbers_in(segments[name])
        digests ^= np.where(is_known, numbers, _NONE).view(np.uint64)
        digests *= _FACTOR
        digests ^= digests >> np.uint64(29)
    return digests


def _counts_by_topic(segments: pa.Table) -> pa.Table:
    """Rows of `FINISHED_BY_TOPIC` of the present segments."""
    segments = segments.filter(segments["present"])
    kept: Values = pc.coalesce(segments["transaction_index_kept"], pa.scalar(False))
    has_index = segments["transaction_index_bytes"].is_valid()
    published = pc.if_else(has_index, Published.UNCHANGED.value, Published.NONE.value)
    published = pc.if_else(kept, Published.KEPT.value, published)
    return finished_by_topic(segments.select(["topic", "aborted_transactions"]).append_column("published", published))


def partitions_to_finish(
    tables: Tables,
    engine: Engine,
    tasks: Mapping[PartitionKey, PartitionTask],
    changes: Mapping[PartitionKey, PartitionChange],
) -> tuple[Sequence[PartitionsToFinish], pa.Table]:
    """Divide partitions into shares for `finish_partitions`, with the rows from which they are finished. Also gives
    rows of `FINISHED_BY_TOPIC`, of the present segments that are not folded again. `changes` may have other partitions
    too.
    """
    to_finish: list[PartitionsToFinish] = []
    keys = sorted(tasks, key=itemgetter(1, 2, 0))  # as files are sorted
    first_segments = _first_segments({key: changes[key] for key in keys})
    scope = scope_of({"wanted": first_segments}, PARTITIONS.key)
    segments, numbers = _segments(tables, first_segments, scope)
    states = tables.read(PARTITION_STATES, None, scope)
    kept = KeptStates(keys, segments, numbers, _with_later_snapshots(keys, segments, numbers, tasks, changes), states)
    folded = kept.segments.filter(kept.is_folded)
    all_rows = pa.concat_tables([segment_rows(folded, TO_FINISH), _events(tables, folded)])
    partitions = keys_with_rows(keys, counts_of(all_rows, PARTITIONS.key))
    rows_in_memory = all_rows.num_rows + len(keys)
    share_rows = share_rows_of(partitions, engine.cores, rows_in_memory)
    for share, rows in shares(lambda _: all_rows, partitions, share_rows, rows_in_memory, ("base_offset", "position")):
        share_partitions = [kept.partition_to_finish(key, tasks[key]) for key in partition_keys(share)]
        by_key = {partition.task.key: partition for partition in share_partitions if partition is not None}
        to_finish.append(PartitionsToFinish(engine.share(rows), rows.nbytes, by_key))
    return to_finish, _counts_by_topic(kept.segments.filter(~kept.is_folded))


def _first_segments(changes: Mapping[PartitionKey, PartitionChange]) -> pa.Table:
    """The partitions, each with the topic id and the base offset of its first segment that is present."""
    rows = [(*key, change.topic_id, change.first_present) for key, change in changes.items()]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=_FIRST_SEGMENTS)


def _segments(tables: Tables, first_segments: pa.Table, scope: Sequence[Condition]) -> tuple[pa.Table, Positions]:
    """The segments that partitions are folded from, with `problem_free` and `present`, and the positions of their
    partitions in `first_segments`.

    A segment that is gone or deleted counts if it lies before the first present segment and is of the same topic:
    retention removed it, and what was seen in it still holds. One that lies later may have been merged into another by
    compaction, and does not count.
    """
    rows = tables.read(SEGMENTS, [name for name in SEGMENTS.column_names if name in _SEGMENT_COLUMNS], scope)
    numbers = positions_in(rows, first_segments, PARTITIONS.key)
    rows, numbers = rows.filter(pa.array(numbers >= 0)), numbers[numbers >= 0]
    first, present = first_segments.take(numbers), PRESENT.mask(rows)
    is_before_first = flags_of(pc.less(rows["base_offset"], first["first_present"]))
    earlier = is_before_first & ~differing(rows, first, ("topic_id",))
    is_ok = pc.equal(rows["status"], pa.scalar(Status.OK.value))
    # The row of a segment that is gone keeps its facts; it has a reason if the segment had problems.
    problem_free: Values = pc.or_(is_ok, pc.and_(pc.invert(present), rows["reason"].is_null()))
    rows = rows.append_column("problem_free", problem_free).append_column("present", present)
    usable = flags_of(present) | earlier
    return rows.filter(usable), numbers[usable]


def _with_later_snapshots(
    keys: Sequence[PartitionKey],
    segments: pa.Table,
    numbers: Positions,
    tasks: Mapping[PartitionKey, PartitionTask],
    changes: Mapping[PartitionKey, PartitionChange],
) -> list[PartitionChange]:
    """The changes of the partitions. A change begins earlier, at a segment at whose base offset the producers were not
    known, if there is a broker's snapshot now, as when a copy's logs came first: a fold of all segments would use it.
    """
    is_unknown: Values = pc.equal(segments["producer_state"], pa.scalar(StateSource.UNKNOWN.value))
    unknown = np.flatnonzero(flags_of(is_unknown.fill_null(False)))
    unknown = unknown[np.argsort(numbers[unknown], kind="stable")]
    partitions, first = np.unique(numbers[unknown], return_index=True)
    base_offsets = np.split(segments["base_offset"].to_numpy()[unknown], first)[1:]
    new_changes = [changes[key] for key in keys]
    directories = [tasks[keys[number]].segments_directory for number in partitions.tolist()]
    with IndexDirectoryListings(directories) as listings:
        for number, directory, unknown_at in zip(partitions.tolist(), directories, base_offsets, strict=True):
            known_now = {*map(parse_snapshot, listings.names_in(directory))}.intersection(unknown_at.tolist())
            changed_from = new_changes[number].changed_from
            if known_now and changed_from is not None:
                new_changes[number] = replace(new_changes[number], changed_from=min(changed_from, *known_now))
    return new_changes


def _events(tables: Tables, segments: pa.Table) -> pa.Table:
    """The events of segments as rows of `TO_FINISH`."""
    rows = tables.read(PRODUCER_EVENTS, None, scope_of({"segments": segments}, SEGMENTS.key))
    rows = rows.filter(pa.array(positions_in(rows, segments, SEGMENTS.key) >= 0))
    return event_rows(rows, TO_FINISH)
