"""Some files of a table are written anew: the same rows in the table's order, and all other files as they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import CatalogError
from kidxlib.tables import data_files, delta_maintenance
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import append_rows

_HISTORIES, _HISTORIES_EXHAUSTIVE = 6, 300


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path))


def _segment(topic: str, partition: int, base_offset: int, **values: Any) -> dict[str, Any]:
    return {"source": "s", "topic": topic, "partition": partition, "base_offset": base_offset, **values}


def _paths(tables: DeltaTables) -> list[str]:
    return [str(path) for path in DeltaMaintenance(tables).files(SEGMENTS)["path"].to_pylist()]


def _said(tables: DeltaTables) -> list[str]:
    return sorted(map(str, tables.read(SEGMENTS).to_pylist()))


def _keys_in(tables: DeltaTables, path: str) -> list[tuple[Any, ...]]:
    file = pq.read_table(Path(tables.path, "segments", path), columns=list(SEGMENTS.order))
    return list(zip(*(file[name].to_pylist() for name in SEGMENTS.order), strict=True))


def test_random_files_keep_their_rows(
    tmp_path: Path, rng: random.Random, exhaustive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever rows they have, and of however many of them keys are held; files that are not meant are not touched."""
    for number in range(_HISTORIES_EXHAUSTIVE if exhaustive else _HISTORIES):
        tables = DeltaTables(str(tmp_path / str(number)))
        offsets = rng.sample(range(10_000), rng.randrange(20, 400))
        keys = [(rng.choice(["a", "b", "it's", 'q"\xe4']), rng.randrange(4), offset) for offset in offsets]
        parts = rng.randrange(1, 8)
        for part in range(parts):
            rows = (_segment(*key, log_path=rng.randbytes(40).hex()) for key in keys[part::parts])
            append_rows(Path(tables.path), SEGMENTS, *rows)
        before, paths = _said(tables), _paths(tables)
        merged = rng.sample(paths, rng.randrange(1, len(paths) + 1))
        size = sum(Path(tables.path, "segments", path).stat().st_size for path in merged)
        monkeypatch.setattr(data_files, "FILE_BYTES", size // rng.randrange(1, 6) + 1)
        monkeypatch.setattr(delta_maintenance, "_SAMPLED", rng.choice([1, 7, 1000]))
        assert DeltaMaintenance(tables).compact(SEGMENTS, merged)
        assert _said(tables) == before
        new = set(_paths(tables)) - set(paths)
        assert set(_paths(tables)) - new == set(paths) - set(merged)
        in_order = [key for part in sorted(_keys_in(tables, path) for path in new) for key in part]
        assert in_order == sorted(key for path in merged for key in _keys_in(tables, path))


def test_it_changes_nothing_for_who_follows_changes_or_reads_amid(tables: DeltaTables) -> None:
    """The rows of both kinds of commit are the same; a reader that has opened the version before reads its files."""
    for number in range(3):
        append_rows(Path(tables.path), SEGMENTS, _segment("t", number, 0))
    reader = DeltaTable(f"{tables.path}/segments")
    assert DeltaMaintenance(tables).compact(SEGMENTS, _paths(tables))
    history = DeltaTable(f"{tables.path}/segments").history(1)[0]
    assert history["kidx.operation"] == "compact in order"
    log = Path(tables.path, "segments", "_delta_log", f"{reader.version() + 1:020}.json").read_text()
    assert log.count('"dataChange":false') == 4 and '"dataChange":true' not in log
    assert reader.to_pyarrow_table().num_rows == 3 == tables.read(SEGMENTS).num_rows


def _before_commit(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> None:
    """Do something once rows are written into new files, and before these are committed."""

    def then(*arguments: Any) -> list[Any]:
        written = list(data_files.write_sorted(*arguments))
        what()
        return written

    monkeypatch.setattr(delta_maintenance, "write_sorted", then)


def test_it_stands_beside_files_that_come_meanwhile(tables: DeltaTables, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        append_rows(Path(tables.path), SEGMENTS, _segment("t", number, 0))
    _before_commit(monkeypatch, lambda: append_rows(Path(tables.path), SEGMENTS, _segment("new", 0, 0)))
    assert DeltaMaintenance(tables).compact(SEGMENTS, _paths(tables))
    assert len(_paths(tables)) == 2 and tables.read(SEGMENTS).num_rows == 4


def test_it_gives_way_to_who_has_changed_a_file_meanwhile(tables: DeltaTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once; what was written goes."""
    for number in range(3):
        append_rows(Path(tables.path), SEGMENTS, _segment("t", number, 0))
    one = pa.table({"partition": pa.array([1], pa.int32())})
    times: list[int] = []

    def overtake() -> None:
        times.append(1)
        DeltaMaintenance(tables).expire(SEGMENTS, lambda: one)

    _before_commit(monkeypatch, overtake)
    before = set(_paths(tables))
    assert not DeltaMaintenance(tables).compact(SEGMENTS, before)
    assert times == [1] and tables.read(SEGMENTS).num_rows == 2
    assert {path.name for path in Path(tables.path, "segments").glob("*.parquet")} == before | set(_paths(tables))
    assert not DeltaMaintenance(tables).compact(SEGMENTS, before), "one of these is not of the table any more"


def test_tables_that_ask_for_more_are_put_together_by_delta_rs(tables: DeltaTables) -> None:
    """As one whose changes somebody follows: what its files alone say may not be all of it. Nothing changes in it."""
    append_rows(Path(tables.path), SEGMENTS, _segment("t", 0, 0))
    DeltaTable(f"{tables.path}/segments").alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    append_rows(Path(tables.path), SEGMENTS, _segment("t", 1, 0))
    before, version = _said(tables), tables.version(SEGMENTS)
    assert version is not None
    assert DeltaMaintenance(tables).compact(SEGMENTS, _paths(tables))
    assert (len(_paths(tables)), _said(tables), tables.version(SEGMENTS)) == (1, before, version + 1)
    followed = pa.table(DeltaTable(f"{tables.path}/segments").load_cdf(starting_version=version + 1).read_all())
    assert followed.num_rows == 0


def test_a_write_that_fails_is_one_line_and_leaves_nothing(
    tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        append_rows(Path(tables.path), SEGMENTS, _segment("t", number, 0))
    before = sorted(Path(tables.path).rglob("*"))

    def fail() -> None:
        raise OSError(28, "No space left on device")

    def write_one(*arguments: Any) -> Any:
        yield from data_files.write_sorted(*arguments)
        fail()

    monkeypatch.setattr(delta_maintenance, "write_sorted", write_one)
    with pytest.raises(CatalogError, match=r"segments: cannot be written: .*No space left on device"):
        DeltaMaintenance(tables).compact(SEGMENTS, _paths(tables))
    assert sorted(Path(tables.path).rglob("*")) == before
