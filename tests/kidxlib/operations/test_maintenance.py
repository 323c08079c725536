"""What a query costs by the statistics of files, when that is a reason to write them anew, and which rows are old
enough to go.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.catalog import tables as catalog_tables
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.compaction.policy import Expiry
from kidxlib.operations import maintenance as state_module
from kidxlib.operations.maintenance import TableState, expired, table_state
from kidxlib.tables import data_files
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.memory_tables import MemoryTables
from tests.support.catalog import append_rows, filled_rows

NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
_OLD, _YOUNG = NOW - timedelta(days=9), NOW - timedelta(days=1)
_WEEK: Final = timedelta(days=7)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return tmp_path


def _state(catalog: Path) -> TableState:
    tables = DeltaTables(str(catalog))
    return table_state(DeltaMaintenance(tables), SEGMENTS)


def _file_bytes(monkeypatch: pytest.MonkeyPatch, file_bytes: int, row_bytes: int = 1) -> None:
    """Make so many bytes what a file should have, and what a row counts for at least."""
    monkeypatch.setattr(data_files, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(state_module, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(state_module, "_LARGE_BYTES", file_bytes * 3 // 2)
    monkeypatch.setattr(catalog_tables, "ROW_BYTES", row_bytes)


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


@pytest.fixture
def tables() -> MemoryTables:
    return MemoryTables("memory")


def _add(tables: MemoryTables, table: Table, *rows: Mapping[str, Any]) -> None:
    tables.append(table, filled_rows(table, rows))


def _build(name: str, started_at: datetime, **values: Any) -> dict[str, Any]:
    return {"build_id": name, "started_at": started_at, "sources": [], **values}


def _segment(base_offset: int, status: str, build: str = "old", **values: Any) -> dict[str, Any]:
    key = {"source": "s", "topic": "t", "partition": 0, "base_offset": base_offset}
    return {**key, "status": status, "build_id": build, "topic_id": "id", **values}


def _base_offsets(tables: MemoryTables, table: Table = SEGMENTS) -> list[int]:
    found = expired(tables, table, Expiry(gone_segments=_WEEK), NOW)
    return sorted(row["base_offset"] for row in found.keys.to_pylist())


@pytest.mark.parametrize("table", [SEGMENTS, PRODUCER_EVENTS, BUILDS, FINDINGS, RETENTION_PLANS, PARTITIONS])
def test_without_an_age_all_rows_stay(table: Table, tables: MemoryTables) -> None:
    _add(tables, BUILDS, _build("old", _OLD))
    found = expired(tables, table, Expiry(), NOW)
    assert (found.rows, found.keys.num_rows) == (0, 0)


def test_segments_are_as_old_as_their_deletion_or_the_build_that_missed_them(tables: MemoryTables) -> None:
    _add(tables, BUILDS, _build("old", _OLD), _build("young", _YOUNG))
    _add(
        tables,
        SEGMENTS,
        _segment(0, "ok"),
        _segment(1, "gone"),
        _segment(2, "gone", "young"),
        _segment(3, "deleted", deleted_at=_YOUNG),
        _segment(4, "deleted", "young", deleted_at=_OLD),
        _segment(5, "gone", "of a build that expired"),
    )
    assert _base_offsets(tables) == [1, 4]


def test_what_transactions_are_derived_from_stays(tables: MemoryTables) -> None:
    """Before the first segment of the partition as it is, of the same topic id, though no id is one, too."""
    _add(tables, BUILDS, _build("old", _OLD))
    _add(
        tables,
        SEGMENTS,
        _segment(0, "deleted", deleted_at=_OLD),
        _segment(1, "deleted", deleted_at=_OLD, topic_id="of a topic that was deleted"),
        _segment(2, "deleted", deleted_at=_OLD, topic_id=None),
        _segment(5, "ok"),
        _segment(6, "gone"),
        _segment(0, "gone", partition=1, topic_id=None),
        _segment(1, "ok", partition=1, topic_id=None),
        _segment(2, "ok", partition=1),
        _segment(7, "gone", partition=2),
    )
    found = expired(tables, SEGMENTS, Expiry(gone_segments=_WEEK), NOW)
    assert found.rows == 4
    keys = {(row["partition"], row["base_offset"]) for row in found.keys.to_pylist()}
    assert keys == {(0, 1), (0, 2), (0, 6), (2, 7)}


@pytest.mark.parametrize("table", [PRODUCER_EVENTS, ABORTED_TRANSACTIONS], ids=lambda table: table.name)
def test_with_segments_go_their_events_and_those_of_none(table: Table, tables: MemoryTables) -> None:
    _add(tables, BUILDS, _build("old", _OLD))
    _add(tables, SEGMENTS, _segment(0, "ok"), _segment(1, "gone"))
    rest = [name for name in table.key if name not in SEGMENTS.key]
    rows = [{**_segment(base, "-"), rest[0]: each} for base in (0, 1, 8) for each in range(3)]
    _add(tables, table, *({name: row[name] for name in table.key} for row in rows))
    found = expired(tables, table, Expiry(gone_segments=_WEEK), NOW)
    assert found.rows == 6
    assert _base_offsets(tables, table) == [1, 8]


def test_builds_that_something_refers_to_stay(tables: MemoryTables) -> None:
    """A row of segments, one of partitions; the last build of each source; and the last that read anything."""
    _add(
        tables,
        BUILDS,
        _build("of nothing", _OLD - timedelta(days=5), sources=[("a", "/a")]),
        _build("of a segment", _OLD),
        _build("of a partition", _OLD),
        _build("read", _OLD - timedelta(days=2), log_bytes=5, scan_seconds=1.0),
        _build("read before", _OLD - timedelta(days=3), log_bytes=5, scan_seconds=1.0),
        _build("last of a", _OLD - timedelta(days=4), sources=[("a", "/new"), ("b", "/b")]),
        _build("young", _YOUNG, sources=[("b", "/b")]),
    )
    _add(tables, SEGMENTS, _segment(0, "ok", "of a segment"))
    _add(tables, PARTITIONS, {"source": "s", "topic": "t", "build_id": "of a partition"})
    found = expired(tables, BUILDS, Expiry(builds=_WEEK), NOW)
    assert sorted(map(str, found.keys["build_id"].to_pylist())) == ["of nothing", "read before"]


def test_audits_and_plans_go_whole(tables: MemoryTables) -> None:
    for table, run, recorded_at in ((FINDINGS, "audit_id", "audited_at"), (RETENTION_PLANS, "plan_id", "planned_at")):
        rows = [
            {run: name, recorded_at: at, "base_offset": each, "policy_origins": [], "warnings": []}
            for name, at in (("old", _OLD), ("young", _YOUNG))
            for each in range(3)
        ]
        _add(tables, table, *rows)
        found = expired(tables, table, Expiry(findings=_WEEK, retention_plans=_WEEK), NOW)
        assert found.rows == 3 and found.keys.to_pylist() == [{run: "old"}]
