"""Which batches of a topic are read: runs of consecutive ones, spread over all of its bytes."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.run_lengths import runs
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import INTERNAL_TOPICS
from kidxlib.tables.protocol import TablesToRead
from kidxlib.tables.scope import scope_of

_COUNTS: Final = ("valid_bytes", "batches", "control_batches")
_PLACES: Final = ("log_path", "index_directory", "log_bytes")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive batches of a segment.

    Attributes:
        segment: its number among those of the topic.
        position: a byte of its log; the first batch that begins there or after is the first one.
        batches: how many, markers of transactions not counted.
    """

    segment: int
    position: int
    batches: int


@dataclass(frozen=True, slots=True)
class TopicSample:
    """What is read of a topic.

    Attributes:
        segments, batches, log_bytes: of all of it; batches without those of markers.
        runs: in the order of partitions and offsets.
        rows: the segments, of which `Run.segment` is a number: columns of the key and `valid_bytes`.
    """

    topic: str
    segments: int
    batches: int
    log_bytes: int
    runs: Sequence[Run]
    rows: pa.Table


def samples_of(
    tables: TablesToRead, sample: int, seed: int, topics: Collection[str] | None, sources: Collection[str] | None
) -> list[TopicSample]:
    """What is read of each topic, in the order of their names. Topics that brokers write themselves are left out.

    Args:
        sample: how many batches of each.
        seed: which ones; the same of the same catalog each time.
        topics, sources: these alone; None for all.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    asked = [("topic", topics), ("source", sources)]
    where = [Among(name, sorted(values)) for name, values in asked if values is not None]
    left_out = Among("topic", sorted(INTERNAL_TOPICS), negated=True)
    rows = tables.read(SEGMENTS, (*SEGMENTS.key, *_COUNTS), [PRESENT, left_out, *where])
    has_data: Values = pc.greater(rows["batches"], pc.coalesce(rows["control_batches"], pa.scalar(0, pa.int64())))
    rows = rows.filter(has_data.fill_null(False))
    if not rows.num_rows:
        return []
    order = ("topic", "source", "partition", "base_offset")
    rows = rows.sort_by([(name, "ascending") for name in order]).combine_chunks()
    topic_column: Any = rows["topic"].combine_chunks()
    return [_sample_of(rows.slice(start, end - start), sample, seed) for start, end in runs([topic_column])]


def _sample_of(rows: pa.Table, sample: int, seed: int) -> TopicSample:
    """What is read of one topic."""
    topic = str(rows["topic"][0].as_py())
    zero = pa.scalar(0, pa.int64())
    columns: list[Any] = [pc.coalesce(rows[name], zero) for name in _COUNTS]
    log_bytes, of_all, of_markers = (column.to_numpy() for column in columns)
    batches = of_all - of_markers
    total = int(batches.sum())
    if total <= sample:
        chosen = [Run(number, 0, int(count)) for number, count in enumerate(batches)]
    else:
        chosen = list(_runs(log_bytes, batches, sample, random.Random(f"{seed} {topic}")))
    return TopicSample(topic, rows.num_rows, total, int(log_bytes.sum()), chosen, rows)


def _runs(log_bytes: Any, batches: Any, sample: int, rng: random.Random) -> Iterator[Run]:
    """Runs at random places, one in each of as many equal parts of the bytes. There are as many runs as each has
    batches, about: many see more of the topic, and long ones fill large batches.
    """
    count = max(math.isqrt(sample), 1)
    ends = np.cumsum(log_bytes)
    for number in range(count):
        wanted = sample // count + (number < sample % count)
        place = int((number + rng.random()) * int(ends[-1]) / count)
        segment = min(int(np.searchsorted(ends, place, "right")), len(ends) - 1)
        size, holds = int(log_bytes[segment]), int(batches[segment])
        latest = size - (wanted + 1) * -(-size // holds)  # the first one begins after it, on average by half
        within = place - (int(ends[segment]) - size)
        yield Run(segment, max(min(within, latest), 0), wanted)


def places_of(tables: TablesToRead, samples: Sequence[TopicSample]) -> Mapping[tuple[Any, ...], Mapping[str, Any]]:
    """The paths of the segments that are read, by their keys.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    chosen = [
        each.rows.select(SEGMENTS.key).take(pa.array(sorted({run.segment for run in each.runs}))) for each in samples
    ]
    if not chosen:
        return {}
    keys = pa.concat_tables(chosen)
    rows = tables.read(SEGMENTS, (*SEGMENTS.key, *_PLACES), scope_of({"chosen": keys}, SEGMENTS.key))
    rows = rows.filter(positions_in(rows, keys, SEGMENTS.key) >= 0)
    return {tuple(row[name] for name in SEGMENTS.key): row for row in rows.to_pylist()}
