"""What a query costs by the statistics of files, and when that is a reason to write them anew."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.maintenance import table_state as state_module
from kidxlib.operations.maintenance.table_state import TableState, table_state
from kidxlib.tables import layout, sorted_files
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import append_rows


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return tmp_path


def _state(catalog: Path) -> TableState:
    tables = DeltaTables(str(catalog))
    return table_state(DeltaMaintenance(tables), SEGMENTS)


def _file_bytes(monkeypatch: pytest.MonkeyPatch, file_bytes: int, row_bytes: int = 1) -> None:
    """Make so many bytes what a file should have, and what a row counts for at least."""
    monkeypatch.setattr(sorted_files, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(state_module, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(state_module, "_LARGE_BYTES", file_bytes * 3 // 2)
    monkeypatch.setattr(layout, "ROW_BYTES", row_bytes)


def test_a_query_reads_the_files_that_may_have_its_row(catalog: Path) -> None:
    """Two partitions apart, and one whose rows are in both files of another topic."""
    append_rows(catalog, SEGMENTS, *({"topic": "a", "partition": 0, "base_offset": each} for each in (0, 1)))
    append_rows(catalog, SEGMENTS, *({"topic": "b", "partition": 0, "base_offset": each} for each in (0, 9)))
    append_rows(catalog, SEGMENTS, *({"topic": "b", "partition": 0, "base_offset": each} for each in (4, 5, 6)))
    state = _state(catalog)
    assert (state.files, state.rows) == (3, 7)
    # Of a: one file. Of b: the rows at 0 and 9 are in one file's range, the three others in both.
    assert state.point_query_rows == round((2 * 2 + 2 * 2 + 3 * 5) / 7)
    assert state.point_query_files == round((2 + 2 + 3 * 2) / 7, 2)
    assert state.needs_rewrite, "three files, and the rows need one"


@pytest.mark.parametrize("shape", ["many", "large", "alike"])
def test_what_was_written_anew_is_not_again(
    shape: str, catalog: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files too many, too large, or of too many rows: then none of it, whatever the rows are."""
    keys = [(topic, partition, offset) for topic in "ab" for partition in range(30) for offset in range(20)]
    rng.shuffle(keys)
    parts = 12 if shape == "many" else 1
    for number in range(parts):
        rows = ({"topic": key[0], "partition": key[1], "base_offset": key[2]} for key in keys[number::parts])
        # Else a file would be hardly larger than what each file has at its end.
        noise = 0 if shape == "alike" else 200
        append_rows(catalog, SEGMENTS, *({**row, "log_path": rng.randbytes(noise).hex()} for row in rows))
    before = _state(catalog)
    file_bytes = before.bytes if shape == "alike" else before.bytes // 5
    _file_bytes(monkeypatch, file_bytes, 5 * file_bytes // before.rows if shape == "alike" else 1)
    assert _state(catalog).needs_rewrite
    tables = DeltaTables(str(catalog))
    DeltaMaintenance(tables).rewrite(SEGMENTS)
    after = _state(catalog)
    assert not after.needs_rewrite and after.files in (5, 6) and after.rows == before.rows
    assert after.point_query_rows is not None and before.point_query_rows is not None
    assert after.point_query_rows < before.point_query_rows


def test_what_is_sorted_for_no_query_has_no_cost_of_one(catalog: Path) -> None:
    tables = DeltaTables(str(catalog))
    append_rows(catalog, BUILDS, {"build_id": "x"})
    found = table_state(DeltaMaintenance(tables), BUILDS)
    assert (found.files, found.rows, found.point_query_rows, found.point_query_files) == (1, 1, None, None)
    assert _state(catalog) == TableState(
        files=0, bytes=0, rows=0, point_query_rows=None, point_query_files=None, needs_rewrite=False
    )
