"""Groups of rows are those that Python makes. Of Spark's tables: tests/jobs/catalog/test_spark_tables.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

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
