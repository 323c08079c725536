"""What retention reads of a catalog's tables, and what it writes into them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import PRESENT, Among, Condition
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.tables.protocol import Tables

_KEY: Final = SEGMENTS.schema(SEGMENTS.key)


def present_topics(tables: Tables) -> dict[str, set[str]]:
    """The topics that have segments in a source, by source."""
    found: dict[str, set[str]] = defaultdict(set)
    names = ["source", "topic"]
    for row in tables.read(SEGMENTS, names, [PRESENT]).group_by(names).aggregate([]).to_pylist():
        found[row["source"]].add(row["topic"])
    return dict(found)


@dataclass(frozen=True, slots=True)
class PresentSegments:
    """The segments of some sources and topics that are in their source, as one version of the table has them."""

    tables: Tables
    version: int | None
    sources: Sequence[str]
    topics: Sequence[str]

    def read(self, names: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """The key of each one's partition, and some other columns; in any order.

        Args:
            where: what else is to be true of them.
        """
        wanted = [Among("source", self.sources), PRESENT, *where]
        rows = self.tables.read(SEGMENTS, [*PARTITIONS.key, *names], wanted, self.version)
        is_wanted: Values = pc.is_in(rows["topic"], value_set=pa.array(self.topics, pa.string()))
        return rows.filter(is_wanted)


@dataclass(frozen=True, slots=True)
class RowsOfPlan:
    """The rows of a plan as they are recorded, a batch at a time: all of a large plan would be too many at once.

    Attributes:
        staged: rows of `PLANNED`.
        of_plan: the columns that all of them have alike.
    """

    staged: Staged
    of_plan: Mapping[str, Any]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader: Any = pa.RecordBatchReader.from_batches(RETENTION_PLANS.schema(), self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = RETENTION_PLANS.schema()
        alike: dict[str, Any] = {
            name: pa.scalar(value, schema.field(name).type) for name, value in self.of_plan.items()
        }
        for batch in self.staged.batches("segment"):
            columns = [
                pa.repeat(alike[name], batch.num_rows) if name in alike else batch[name] for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def mark_deleted(tables: Tables, segments: Sequence[tuple[str, str, int, int]], now: datetime) -> None:
    """Record which segments were deleted, and when; those that are marked already stay as they are.

    Args:
        segments: keys, one at least.
    """
    keys = pa.table([list(column) for column in zip(*segments, strict=True)], schema=_KEY)
    tables.change(SEGMENTS, {"segment": keys}, partial(updates.deleted, now=now), by=SEGMENTS.key)
