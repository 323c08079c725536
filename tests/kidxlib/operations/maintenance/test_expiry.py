"""Rows that are old enough to go, and those that something needs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS
from kidxlib.compaction.policy import Expiry
from kidxlib.operations.maintenance.expiry import expired
from kidxlib.tables.memory_tables import MemoryTables
from tests.support.catalog import filled

NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
_OLD, _YOUNG = NOW - timedelta(days=9), NOW - timedelta(days=1)
_WEEK: Final = timedelta(days=7)


@pytest.fixture
def tables() -> MemoryTables:
    return MemoryTables("memory")


def _add(tables: MemoryTables, table: Table, *rows: Mapping[str, Any]) -> None:
    whole = [filled(table.schema(), row) for row in rows]
    tables.append(table, pa.Table.from_pylist(whole, table.schema()))


def _build(name: str, started_at: datetime, **values: Any) -> dict[str, Any]:
    return {"build_id": name, "started_at": started_at, "sources": [], **values}


def _segment(base_offset: int, status: str, build: str = "old", **values: Any) -> dict[str, Any]:
    key = {"source": "s", "topic": "t", "partition": 0, "base_offset": base_offset}
    return {**key, "status": status, "build_id": build, "topic_id": "id", **values}


def _base_offsets(tables: MemoryTables, table: Table = SEGMENTS) -> list[int]:
    found = expired(tables, table, Expiry(gone_segments=_WEEK), NOW)
    assert found is not None
    return sorted(row["base_offset"] for row in found.keys.to_pylist())


@pytest.mark.parametrize("table", [SEGMENTS, PRODUCER_EVENTS, BUILDS, FINDINGS, RETENTION_PLANS, PARTITIONS])
def test_without_an_age_all_rows_stay(table: Table, tables: MemoryTables) -> None:
    _add(tables, BUILDS, _build("old", _OLD))
    assert expired(tables, table, Expiry(), NOW) is None


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
    assert found is not None and found.rows == 4
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
    assert found is not None and found.rows == 6
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
    assert found is not None and sorted(map(str, found.keys["build_id"].to_pylist())) == ["of nothing", "read before"]


def test_audits_and_plans_go_whole(tables: MemoryTables) -> None:
    for table, run, recorded_at in ((FINDINGS, "audit_id", "audited_at"), (RETENTION_PLANS, "plan_id", "planned_at")):
        rows = [
            {run: name, recorded_at: at, "base_offset": each, "policy_origins": [], "warnings": []}
            for name, at in (("old", _OLD), ("young", _YOUNG))
            for each in range(3)
        ]
        names = set(table.column_names)
        _add(tables, table, *({name: value for name, value in row.items() if name in names} for row in rows))
        found = expired(tables, table, Expiry(findings=_WEEK, retention_plans=_WEEK), NOW)
        assert found is not None and found.rows == 3 and found.keys.to_pylist() == [{run: "old"}]
