"""Tables that go with a run hold what Delta tables would."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.memory_tables import MemoryTables
from kidxlib.tables.protocol import Tables
from tests.kidxlib.tables.test_delta_tables import record, scanned, segment


@pytest.mark.parametrize("in_files", [False, True])
def test_they_hold_what_delta_tables_hold(in_files: bool, tmp_path: Path, rng: random.Random) -> None:
    """After each of some commits that add, replace and leave rows as they are."""
    memory = MemoryTables("here", tmp_path if in_files else None)
    delta = DeltaTables(str(tmp_path / "catalog"))
    for number in range(6):
        found = [segment(rng.randrange(3), offset, batches=rng.randrange(2)) for offset in rng.sample(range(8), 4)]
        assert len({record(tables, scanned(*found), f"build {number}") for tables in (memory, delta)}) == 1
        gone = pa.Table.from_pylist([{name: found[0][name] for name in SEGMENTS.key}], SEGMENTS.schema(SEGMENTS.key))
        change = partial(updates.deleted, now=datetime(2026, 11, 24, number, tzinfo=UTC))
        assert len({t.change_rows(SEGMENTS, {"segment": gone}, change, by=SEGMENTS.key) for t in (memory, delta)}) == 1
        assert _rows(memory) == _rows(delta)
        where = [Among("partition", (1,)), Among("status", ("deleted",), negated=True)]
        names = ["base_offset", "batches"]
        assert sorted(map(str, memory.read(SEGMENTS, names, where).to_pylist())) == sorted(
            map(str, delta.read(SEGMENTS, names, where).to_pylist())
        )


def test_a_table_is_there_once_it_is_made() -> None:
    tables = MemoryTables("here")
    assert tables.version(BUILDS) is None and tables.catalog_version(BUILDS) is None
    assert tables.read(BUILDS).num_rows == 0
    tables.make(BUILDS)
    assert tables.version(BUILDS) == 0
    tables.append(BUILDS, BUILDS.schema().empty_table())
    assert tables.version(BUILDS) == 1


def _rows(tables: Tables) -> list[str]:
    return sorted(map(str, tables.read(SEGMENTS).to_pylist()))
