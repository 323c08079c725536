"""Groups of rows are those that Python makes. Of Spark's tables: tests/jobs/spark/test_spark_tables.py."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given

from kidxlib.catalog.conditions import rows_where, scope_of
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.memory_tables import MemoryTables
from tests.conftest import one_in
from tests.support.grouped import SEGMENTS_OF_GROUPS, Segments, assert_grouped, rows_of


@one_in(4)
@given(found=SEGMENTS_OF_GROUPS)
def test_of_tables_in_memory(found: Segments) -> None:
    tables = MemoryTables("-")
    assert_grouped(tables, rows_of({}))
    tables.append(SEGMENTS, rows_of(found))
    assert_grouped(tables, rows_of(found))


@one_in(10)  # each takes some ten milliseconds
@given(found=SEGMENTS_OF_GROUPS, later=SEGMENTS_OF_GROUPS)
def test_of_delta_tables(
    found: Segments,
    later: Segments,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tables = DeltaTables(str(tmp_path_factory.mktemp("catalog")))
    assert_grouped(tables, rows_of({}))
    tables.append(SEGMENTS, rows_of(found))
    assert_grouped(tables, rows_of(found))
    before = tables.version(SEGMENTS)
    other = {key: values for key, values in later.items() if key not in found}
    tables.append(SEGMENTS, rows_of(other))
    assert_grouped(tables, rows_of(found | other))
    counted = tables.counts(SEGMENTS, ["topic"], version=before).to_pylist()
    assert sum(row["rows"] for row in counted) == len(found), "of an earlier version"


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    assert_grouped(DeltaTables(str(tmp_path / "catalog")), rows_of({}))


def test_many_values_are_asked_for_by_their_bounds(tmp_path: Path) -> None:
    """delta-rs crashes where tens of thousands of topics are named."""
    count = 40_000
    one = rows_of({("t", 0, 0): (1, "ok")}).take([0] * count)
    names = pa.array([f"t-{number:05}" for number in range(count)])
    rows = one.set_column(one.column_names.index("topic"), one.schema.field("topic"), names)
    tables = DeltaTables(str(tmp_path / "catalog"))
    tables.append(SEGMENTS, rows)
    scope = scope_of({"some": rows.slice(100, count - 200)}, ["source", "topic"])
    assert tables.counts(SEGMENTS, ["topic"], scope).num_rows == rows_where(rows, scope).num_rows == count - 200
