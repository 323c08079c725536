"""What partitions are finished from: rows of the catalog, shared with workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.changes import FirstPresent
from kidxlib.build.tasks import PartitionTask
from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.matching import Flags, Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import TO_FINISH
from kidxlib.catalog.segment_views import SegmentToFinish
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import PRODUCER_EVENTS
from kidxlib.engine.protocol import Engine
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.finishing.finish_work import PartitionsToFinish
from kidxlib.operations.events import event_rows, segment_rows
from kidxlib.recovery.outcome import ABSENT
from kidxlib.tables.protocol import Tables
from kidxlib.tables.scope import scope_of

#: Of these the driver holds the rows at a time.
_PARTITIONS_READ_AT_ONCE: Final = 2000
_WANTED: Final = pa.schema([*PARTITIONS.schema(PARTITIONS.key), ("topic_id", pa.string()), ("first", pa.int64())])


def partitions_to_finish(
    tables: Tables,
    engine: Engine,
    tasks: Mapping[PartitionKey, PartitionTask],
    first_present: Mapping[PartitionKey, FirstPresent],
    shares: int,
) -> Iterator[PartitionsToFinish]:
    """The partitions in as many shares or more, each with the rows that it is finished from. The rows of
    some partitions, neighbours in the tables, are read at a time.

    Args:
        engine: shares the rows.
        tasks, first_present: of the same partitions.
    """
    keys = sorted(tasks, key=itemgetter(1, 2, 0))  # as files are sorted
    read = _in_parts(keys, -(-len(keys) // _PARTITIONS_READ_AT_ONCE))
    for of_read in read:
        wanted = _wanted({key: first_present[key] for key in of_read})
        scope = scope_of({"wanted": wanted}, PARTITIONS.key)
        heads = _heads(tables, wanted, scope)
        events = _events(tables, heads, scope)
        for of_share in _in_parts(of_read, -(-shares // len(read))):
            rows = pa.concat_tables([_of(heads, of_share), _of(events, of_share)])
            rows = rows.sort_by([(name, "ascending") for name in (*SEGMENTS.key, "position")])
            yield PartitionsToFinish(engine.share(rows), rows.nbytes, {key: tasks[key] for key in of_share})


def _in_parts(keys: Sequence[PartitionKey], parts: int) -> list[Sequence[PartitionKey]]:
    """The keys in some parts of about the same length, none of them empty."""
    bounds = [len(keys) * number // parts for number in range(parts + 1)]
    return [keys[start:end] for start, end in itertools.pairwise(bounds) if start < end]


def _wanted(first_present: Mapping[PartitionKey, FirstPresent]) -> pa.Table:
    """The partitions, with the topic id and the base offset of the first segment that each has now."""
    rows = [(*key, first.topic_id, first.base_offset) for key, first in first_present.items()]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=_WANTED)


def _heads(tables: Tables, wanted: pa.Table, scope: Sequence[Condition]) -> pa.Table:
    """Rows of `TO_FINISH` that are of segments.

    Segments that are gone or deleted count as long as they lie before the first one that is present, and are of the
    same topic: retention took them, and what was seen in them still holds. After it, compaction may have merged them
    into others.
    """
    names = list(dict.fromkeys([*SEGMENTS.key, "status", "topic_id", *SegmentToFinish.names()]))
    rows = tables.read(SEGMENTS, names, scope)
    at = positions_in(rows, wanted, PARTITIONS.key)
    rows, at = rows.filter(at >= 0), at[at >= 0]
    now = wanted.take(at)
    is_absent: Values = pc.is_in(rows["status"], value_set=pa.array([status.value for status in ABSENT]))
    absent = _flags(is_absent)
    earlier = _flags(pc.less(rows["base_offset"], now["first"]))
    some, other = rows["topic_id"], now["topic_id"]
    are_equal: Values = pc.equal(some, other).fill_null(False)
    is_same: Values = pc.or_(are_equal, pc.and_(some.is_null(), other.is_null()))
    same_topic = _flags(is_same)
    usable: Values = pa.array(~absent | (earlier & same_topic))
    rows = rows.filter(usable)
    return segment_rows(rows, TO_FINISH)


def _events(tables: Tables, heads: pa.Table, scope: Sequence[Condition]) -> pa.Table:
    """Rows of `TO_FINISH` that are of events."""
    rows = tables.read(PRODUCER_EVENTS, None, scope)
    rows = rows.filter(positions_in(rows, heads, SEGMENTS.key) >= 0)
    return event_rows(rows, TO_FINISH)


def _of(rows: pa.Table, keys: Sequence[PartitionKey]) -> pa.Table:
    """The rows of some partitions."""
    columns = zip(*keys, strict=True)
    wanted = pa.table([list(column) for column in columns], schema=PARTITIONS.schema(PARTITIONS.key))
    return rows.filter(positions_in(rows, wanted, PARTITIONS.key) >= 0)


def _flags(column: Values) -> Flags:
    flags: Flags = column.to_numpy().astype(np.bool_)
    return flags
