"""What partitions are finished from: rows of the catalog, shared with workers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.changes import PartitionChange
from kidxlib.build.comparison.known_segments import flags_of
from kidxlib.build.finish.listings import Listings
from kidxlib.build.tasks import PartitionTask
from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.matching import Positions, Values, positions_in
from kidxlib.catalog.partitions import PARTITION_STATES, PARTITIONS
from kidxlib.catalog.results.build import TO_FINISH
from kidxlib.catalog.segment_views import SegmentToFinish
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import PRODUCER_EVENTS
from kidxlib.engine.protocol import Engine
from kidxlib.format.segment_files import parse_snapshot
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.finishing.finish_work import PartitionsToFinish
from kidxlib.operations.build.finishing.kept_states import OF_LOG_VERSION, KeptStates
from kidxlib.operations.build.finishing.unfolded import OF_UNFOLDED, unfolded
from kidxlib.operations.events import event_rows, segment_rows
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.recovery.partition import StateSource
from kidxlib.tables.protocol import Tables
from kidxlib.tables.scope import scope_of

_WANTED: Final = pa.schema([*PARTITIONS.schema(PARTITIONS.key), ("topic_id", pa.string()), ("first", pa.int64())])
_HEADS: Final = {
    *SEGMENTS.key,
    "reason",
    "topic_id",
    "producer_state",
    *SegmentToFinish.names(),
    *OF_LOG_VERSION,
    *OF_UNFOLDED,
}


@dataclass(frozen=True, slots=True)
class ToFinish:
    """Partitions to finish.

    Attributes:
        shares: for workers.
        unfolded: rows of `FINISHED_BY_TOPIC`: the present segments that are not folded again.
    """

    shares: Sequence[PartitionsToFinish]
    unfolded: pa.Table


def partitions_to_finish(
    tables: Tables,
    engine: Engine,
    tasks: Mapping[PartitionKey, PartitionTask],
    changes: Mapping[PartitionKey, PartitionChange],
    shares: int,
) -> ToFinish:
    """The partitions in so many shares, each with the rows that it is finished from.

    Args:
        engine: shares the rows.
        tasks: of the partitions.
        changes: of these, and others perhaps.
    """
    found: list[PartitionsToFinish] = []
    keys = sorted(tasks, key=itemgetter(1, 2, 0))  # as files are sorted
    wanted = _wanted({key: changes[key] for key in keys})
    scope = scope_of({"wanted": wanted}, PARTITIONS.key)
    heads, numbers = _heads(tables, wanted, scope)
    states = tables.read(PARTITION_STATES, None, scope)
    kept = KeptStates(keys, heads, numbers, _with_later_snapshots(keys, heads, numbers, tasks, changes), states)
    heads = kept.heads.filter(kept.is_folded)
    of_segments, of_events = segment_rows(heads, TO_FINISH), _events(tables, heads)
    for of_share in _in_parts(keys, shares):
        rows = pa.concat_tables([_of(of_segments, of_share), _of(of_events, of_share)])
        rows = rows.sort_by([(name, "ascending") for name in (*SEGMENTS.key, "position")])
        partitions = [kept.partition_to_finish(key, tasks[key]) for key in of_share]
        of_keys = {partition.task.key: partition for partition in partitions if partition is not None}
        found.append(PartitionsToFinish(engine.share(rows), rows.nbytes, of_keys))
    return ToFinish(found, unfolded(kept.heads.filter(~kept.is_folded)))


def _in_parts(keys: Sequence[PartitionKey], parts: int) -> list[Sequence[PartitionKey]]:
    """The keys in some parts of about the same length, none of them empty."""
    bounds = [len(keys) * number // parts for number in range(parts + 1)]
    return [keys[start:end] for start, end in itertools.pairwise(bounds) if start < end]


def _wanted(changes: Mapping[PartitionKey, PartitionChange]) -> pa.Table:
    """The partitions, with the topic id and the base offset of the first segment that each has now."""
    rows = [(*key, change.topic_id, change.first_present) for key, change in changes.items()]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=_WANTED)


def _heads(tables: Tables, wanted: pa.Table, scope: Sequence[Condition]) -> tuple[pa.Table, Positions]:
    """The segments that partitions are folded from, with `problem_free` and `present`; and where each one's partition
    stands in `wanted`.

    Segments that are gone or deleted count as long as they lie before the first one that is present, and are of the
    same topic: retention took them, and what was seen in them still holds. After it, compaction may have merged them
    into others.
    """
    rows = tables.read(SEGMENTS, [name for name in SEGMENTS.column_names if name in _HEADS], scope)
    at = positions_in(rows, wanted, PARTITIONS.key)
    rows, at = rows.filter(pa.array(at >= 0)), at[at >= 0]
    now = wanted.take(at)
    absent: Values = pc.is_in(rows["status"], value_set=pa.array([status.value for status in ABSENT]))
    some, other = rows["topic_id"], now["topic_id"]
    are_equal: Values = pc.equal(some, other).fill_null(False)
    same_topic = pc.or_(are_equal, pc.and_(some.is_null(), other.is_null()))
    earlier = pc.and_(pc.less(rows["base_offset"], now["first"]), same_topic)
    is_ok = pc.equal(rows["status"], pa.scalar(Status.OK.value))
    # A segment that is gone has kept its facts; its reason says how it stood.
    problem_free: Values = pc.or_(is_ok, pc.and_(absent, rows["reason"].is_null()))
    present: Values = pc.invert(absent)
    rows = rows.append_column("problem_free", problem_free).append_column("present", present)
    usable = flags_of(pc.or_(rows["present"], earlier))
    return rows.filter(usable), at[usable]


def _with_later_snapshots(
    keys: Sequence[PartitionKey],
    heads: pa.Table,
    numbers: Positions,
    tasks: Mapping[PartitionKey, PartitionTask],
    changes: Mapping[PartitionKey, PartitionChange],
) -> list[PartitionChange]:
    """The changes of the partitions. A segment is among them, too, where the producers were not known at its base
    offset, and a broker's snapshot tells them by now, as where a copy's logs came first. A whole fold goes by it.
    """
    is_unknown: Values = pc.equal(heads["producer_state"], pa.scalar(StateSource.UNKNOWN.value))
    unknown = np.flatnonzero(flags_of(is_unknown.fill_null(False)))
    unknown = unknown[np.argsort(numbers[unknown], kind="stable")]
    of_partitions, first = np.unique(numbers[unknown], return_index=True)
    base_offsets = np.split(heads["base_offset"].to_numpy()[unknown], first)[1:]
    found = [changes[key] for key in keys]
    directories = [tasks[keys[number]].segments_directory for number in of_partitions.tolist()]
    with Listings(directories) as listings:
        for number, directory, unknown_at in zip(of_partitions.tolist(), directories, base_offsets, strict=True):
            told = {*map(parse_snapshot, listings.names_in(directory))}.intersection(unknown_at.tolist())
            since = found[number].changed_from
            if told and since is not None:
                found[number] = replace(found[number], changed_from=min(since, *told))
    return found


def _events(tables: Tables, heads: pa.Table) -> pa.Table:
    """Rows of `TO_FINISH` that are of events."""
    rows = tables.read(PRODUCER_EVENTS, None, scope_of({"heads": heads}, SEGMENTS.key))
    rows = rows.filter(pa.array(positions_in(rows, heads, SEGMENTS.key) >= 0))
    return event_rows(rows, TO_FINISH)


def _of(rows: pa.Table, keys: Sequence[PartitionKey]) -> pa.Table:
    """The rows of some partitions."""
    columns = zip(*keys, strict=True)
    wanted = pa.table([list(column) for column in columns], schema=PARTITIONS.schema(PARTITIONS.key))
    return rows.filter(pa.array(positions_in(rows, wanted, PARTITIONS.key) >= 0))
