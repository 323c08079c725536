"""Tables that are kept small: nothing that they say is lost, whoever commits meanwhile, and skipping works. Where some
files are merged, all other files stay as they were.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kidxlib.catalog import tables as catalog_tables
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import CatalogError
from kidxlib.tables import data_files, delta_maintenance
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import append_rows, filled_rows

_DAY: Final = 24 * 3600
_HISTORIES, _HISTORIES_EXHAUSTIVE = 6, 300
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path))


@pytest.fixture
def maintenance(tables: DeltaTables) -> DeltaMaintenance:
    return DeltaMaintenance(tables)


def segment(topic: str, partition: int, base_offset: int, **values: Any) -> dict[str, Any]:
    return {"source": "s", "topic": topic, "partition": partition, "base_offset": base_offset, **values}


def said(tables: DeltaTables) -> list[str]:
    """All rows of segments, in an order."""
    return sorted(map(str, tables.read(SEGMENTS).to_pylist()))


def _append(tables: DeltaTables, partitions: int) -> None:
    """A segment of each partition, in a file of its own."""
    for number in range(partitions):
        append_rows(Path(tables.path), SEGMENTS, segment("t", number, 0))


def small_files(monkeypatch: pytest.MonkeyPatch, file_bytes: int) -> None:
    monkeypatch.setattr(data_files, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(catalog_tables, "ROW_BYTES", 1)


def test_rows_end_up_in_files_that_queries_leave_out(
    tables: DeltaTables, maintenance: DeltaMaintenance, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of each partition came in each of several builds: then they are in a file or two, in the table's order."""
    keys = [(f"t{topic}", partition, offset) for topic in range(5) for partition in range(8) for offset in range(25)]
    rng.shuffle(keys)
    for number in range(5):
        append_rows(Path(tables.path), SEGMENTS, *(segment(*key) for key in keys[number::5]))
    before = said(tables)
    whole = sum(file["size_bytes"] for file in maintenance.files(SEGMENTS).to_pylist())
    small_files(monkeypatch, whole // 9)
    maintenance.rewrite(SEGMENTS)
    assert said(tables) == before
    files = maintenance.files(SEGMENTS)
    counts = [file["num_records"] for file in files.to_pylist()]
    assert files.num_rows in (9, 10) and sum(counts) == len(keys) and max(counts) - min(counts) <= 1
    parts = [pq.read_table(Path(tables.path, "segments", str(path))) for path in files["path"].to_pylist()]
    in_order = [[tuple(row[name] for name in SEGMENTS.order) for row in part.to_pylist()] for part in parts]
    assert [key for part in sorted(in_order) for key in part] == sorted(key for part in in_order for key in part)
    for topic, partition in {key[:2] for key in keys}:
        may_hold = [
            file
            for file in files.to_pylist()
            if file["min.topic"] <= topic <= file["max.topic"]
            and file["min.partition"] <= partition <= file["max.partition"]
        ]
        assert len(may_hold) <= 4
    of_one = tables.read(SEGMENTS, ["base_offset"], [Among("topic", ("t3",)), Among("partition", (7,))])
    assert sorted(row["base_offset"] for row in of_one.to_pylist()) == list(range(25))
    assert DeltaTable(f"{tables.path}/segments").protocol().min_writer_version == 2


def test_what_the_log_says_of_a_file_is_so(tables: DeltaTables, maintenance: DeltaMaintenance) -> None:
    """Of texts with quotes and of all ranges; a timestamp is not above what is said to be the greatest."""
    rows = [
        segment("o'clock", 3, 0, max_timestamp=NOW, max_timestamp_ms=-1, status="ok"),
        segment('"ä"', 2**31 - 1, 2**63 - 1, max_timestamp=None, max_timestamp_ms=None, status="gone"),
    ]
    append_rows(Path(tables.path), SEGMENTS, rows[0])
    append_rows(Path(tables.path), SEGMENTS, rows[1])
    before = said(tables)
    maintenance.rewrite(SEGMENTS)
    assert said(tables) == before
    [file] = maintenance.files(SEGMENTS).to_pylist()
    assert (file["min.topic"], file["max.topic"]) == ('"ä"', "o'clock")
    assert (file["min.base_offset"], file["max.base_offset"]) == (0, 2**63 - 1)
    assert file["min.max_timestamp_ms"] == file["max.max_timestamp_ms"] == -1
    assert file["min.max_timestamp"] <= NOW <= file["max.max_timestamp"]
    assert file["size_bytes"] == Path(tables.path, "segments", file["path"]).stat().st_size
    found = DeltaTable(f"{tables.path}/segments").to_pyarrow_table(filters=[("max_timestamp", ">=", NOW)])
    assert found.num_rows == 1


def _before_commit(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> list[int]:
    """Do something once rows are written into new files, and before these are committed; how often."""
    times: list[int] = []

    def then(*arguments: Any) -> list[Any]:
        written = list(data_files.write_sorted(*arguments))
        times.append(len(times))
        if len(times) == 1:
            what()
        return written

    monkeypatch.setattr(delta_maintenance, "write_sorted", then)
    return times


def test_rows_that_come_meanwhile_stay(
    tables: DeltaTables, maintenance: DeltaMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other rows are in other files: what was written is committed beside them."""
    _append(tables, 3)
    times = _before_commit(monkeypatch, lambda: append_rows(Path(tables.path), SEGMENTS, segment("new", 0, 0)))
    maintenance.rewrite(SEGMENTS)
    assert times == [0] and maintenance.files(SEGMENTS).num_rows == 2
    assert sorted(map(str, tables.read(SEGMENTS, ["topic"])["topic"].to_pylist())) == ["new", "t", "t", "t"]


def test_rows_that_change_meanwhile_are_those_that_stay(
    tables: DeltaTables, maintenance: DeltaMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were replaced meanwhile are read again; what was written of the old ones goes at once."""
    for number in range(3):
        append_rows(Path(tables.path), SEGMENTS, segment("t", number, 0, status="ok"))
    one = pa.table({"partition": pa.array([1], pa.int32())})
    times = _before_commit(monkeypatch, lambda: maintenance.expire(SEGMENTS, lambda: one))
    maintenance.rewrite(SEGMENTS)
    assert times == [0, 1]
    assert set(tables.read(SEGMENTS, ["partition"])["partition"].to_pylist()) == {0, 2}
    table = DeltaTable(f"{tables.path}/segments")
    known = {action["path"] for version in range(table.version() + 1) for action in _paths(tables, version)}
    assert {path.name for path in Path(tables.path, "segments").glob("*.parquet")} == known


def _paths(tables: DeltaTables, version: int) -> list[dict[str, str]]:
    actions = DeltaTable(f"{tables.path}/segments", version=version).get_add_actions()
    return pa.table(actions).select(["path"]).to_pylist()


@pytest.mark.parametrize("merges", [False, True], ids=["rewrite", "compact"])
def test_a_write_that_fails_is_one_line_and_leaves_nothing(
    merges: bool, tables: DeltaTables, maintenance: DeltaMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append(tables, 2)
    before = sorted(Path(tables.path).rglob("*"))

    def write_one(*arguments: Any) -> Any:
        yield from data_files.write_sorted(*arguments)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(delta_maintenance, "write_sorted", write_one)
    with pytest.raises(CatalogError, match=r"segments: cannot be written: .*No space left on device"):
        if merges:
            maintenance.compact(SEGMENTS, _file_names(tables))
        else:
            maintenance.rewrite(SEGMENTS)
    assert sorted(Path(tables.path).rglob("*")) == before


def test_rows_expire_by_some_columns_of_their_key(tables: DeltaTables, maintenance: DeltaMaintenance) -> None:
    for audit in ("a", "b", "c"):
        rows = ({"audit_id": audit, "base_offset": each, "file": ".log", "audited_at": NOW} for each in range(3))
        append_rows(Path(tables.path), FINDINGS, *rows)
    maintenance.expire(FINDINGS, lambda: pa.table({"audit_id": ["a", "c", "none"]}))
    assert tables.read(FINDINGS, ["audit_id"])["audit_id"].to_pylist() == ["b"] * 3
    version = tables.version(FINDINGS)
    maintenance.expire(FINDINGS, lambda: pa.table({"audit_id": pa.array([], pa.string())}))
    assert tables.version(FINDINGS) == version


def test_who_is_overtaken_asks_again_what_expires(tables: DeltaTables, maintenance: DeltaMaintenance) -> None:
    """A segment that was gone has come back, between the question and the commit."""
    append_rows(Path(tables.path), SEGMENTS, segment("t", 0, 0, status="gone"), segment("t", 0, 1, status="gone"))
    asked = []

    def gone() -> pa.Table:
        found = tables.read(SEGMENTS, SEGMENTS.key, [Among("status", ("gone",))])
        asked.append(found.num_rows)
        if len(asked) == 1:
            one = filled_rows(SEGMENTS, [segment("t", 0, 1, status="ok")])
            maintenance.expire(SEGMENTS, lambda: one.select(SEGMENTS.key))
            tables.append(SEGMENTS, one)
        return found

    maintenance.expire(SEGMENTS, gone)
    assert asked == [2, 1]
    assert tables.read(SEGMENTS, ["base_offset", "status"]).to_pylist() == [{"base_offset": 1, "status": "ok"}]


def test_a_vacuum_keeps_what_a_version_of_the_last_week_needs(
    tables: DeltaTables, maintenance: DeltaMaintenance
) -> None:
    """However old its files are; and what is young, though nobody knows it."""
    _append(tables, 3)
    directory = Path(tables.path, "segments")
    for path in directory.glob("*.parquet"):
        _age(path, 30 * _DAY)
    maintenance.rewrite(SEGMENTS)
    (young, six_days, eight_days) = (directory / f"stray-{name}.parquet" for name in ("young", "six", "eight"))
    for path, days in ((young, 0), (six_days, 6), (eight_days, 8)):
        path.write_bytes(b"never committed")
        _age(path, days * _DAY)
    version = tables.version(SEGMENTS)
    assert maintenance.vacuum(SEGMENTS, apply=False) == 1 and eight_days.exists()
    assert tables.version(SEGMENTS) == version
    assert maintenance.vacuum(SEGMENTS, apply=True) == 1
    assert (young.exists(), six_days.exists(), eight_days.exists()) == (True, True, False)
    assert DeltaTable(directory, version=3).to_pyarrow_table().num_rows == 3
    version = tables.version(SEGMENTS)
    assert maintenance.vacuum(SEGMENTS, apply=True) == 0 and tables.version(SEGMENTS) == version


@pytest.mark.parametrize(
    ("property_", "kept"), [("interval 1 days", [True, False]), ("interval 30 days", [True, True])]
)
def test_a_table_may_ask_for_more_than_a_week_and_not_for_less(
    property_: str, kept: list[bool], tables: DeltaTables, maintenance: DeltaMaintenance
) -> None:
    append_rows(Path(tables.path), SEGMENTS, segment("t", 0, 0))
    DeltaTable(f"{tables.path}/segments").alter.set_table_properties({"delta.deletedFileRetentionDuration": property_})
    strays = [Path(tables.path, "segments", f"stray-{days}.parquet") for days in (6, 8)]
    for path, days in zip(strays, (6, 8), strict=True):
        path.write_bytes(b"never committed")
        _age(path, days * _DAY)
    assert maintenance.vacuum(SEGMENTS, apply=True) == kept.count(False)
    assert [path.exists() for path in strays] == kept


def test_a_table_that_is_not_there_needs_nothing(tables: DeltaTables, maintenance: DeltaMaintenance) -> None:
    assert maintenance.files(SEGMENTS).num_rows == 0 and maintenance.vacuum(SEGMENTS, apply=True) == 0
    maintenance.rewrite(SEGMENTS)
    maintenance.expire(SEGMENTS, lambda: pa.table({"topic": ["t"]}))
    assert not list(Path(tables.path).glob("*"))


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def _file_names(tables: DeltaTables) -> list[str]:
    return [str(path) for path in DeltaMaintenance(tables).files(SEGMENTS)["path"].to_pylist()]


def _keys_in(tables: DeltaTables, path: str) -> list[tuple[Any, ...]]:
    file = pq.read_table(Path(tables.path, "segments", path), columns=list(SEGMENTS.order))
    return list(zip(*(file[name].to_pylist() for name in SEGMENTS.order), strict=True))


def test_random_files_that_are_merged_keep_their_rows(
    tmp_path: Path, rng: random.Random, exhaustive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever rows they have, and of however many of them keys are held; files that are not meant are not touched."""
    for number in range(_HISTORIES_EXHAUSTIVE if exhaustive else _HISTORIES):
        tables = DeltaTables(str(tmp_path / str(number)))
        offsets = rng.sample(range(10_000), rng.randrange(20, 400))
        keys = [(rng.choice(["a", "b", "it's", 'q"\xe4']), rng.randrange(4), offset) for offset in offsets]
        parts = rng.randrange(1, 8)
        for part in range(parts):
            rows = (segment(*key, log_path=rng.randbytes(40).hex()) for key in keys[part::parts])
            append_rows(Path(tables.path), SEGMENTS, *rows)
        before, paths = said(tables), _file_names(tables)
        merged = rng.sample(paths, rng.randrange(1, len(paths) + 1))
        size = sum(Path(tables.path, "segments", path).stat().st_size for path in merged)
        monkeypatch.setattr(data_files, "FILE_BYTES", size // rng.randrange(1, 6) + 1)
        monkeypatch.setattr(delta_maintenance, "_SAMPLED_KEYS", rng.choice([1, 7, 1000]))
        assert DeltaMaintenance(tables).compact(SEGMENTS, merged)
        assert said(tables) == before
        new = set(_file_names(tables)) - set(paths)
        assert set(_file_names(tables)) - new == set(paths) - set(merged)
        in_order = [key for part in sorted(_keys_in(tables, path) for path in new) for key in part]
        assert in_order == sorted(key for path in merged for key in _keys_in(tables, path))


def test_merging_changes_nothing_for_who_follows_changes_or_reads_amid(
    tables: DeltaTables, maintenance: DeltaMaintenance
) -> None:
    """The rows of both kinds of commit are the same; a reader that has opened the version before reads its files."""
    _append(tables, 3)
    reader = DeltaTable(f"{tables.path}/segments")
    assert maintenance.compact(SEGMENTS, _file_names(tables))
    history = DeltaTable(f"{tables.path}/segments").history(1)[0]
    assert history["kidx.operation"] == "compact in order"
    log = Path(tables.path, "segments", "_delta_log", f"{reader.version() + 1:020}.json").read_text()
    assert log.count('"dataChange":false') == 4 and '"dataChange":true' not in log
    assert reader.to_pyarrow_table().num_rows == 3 == tables.read(SEGMENTS).num_rows


def test_merging_stands_beside_files_that_come_meanwhile(
    tables: DeltaTables, maintenance: DeltaMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append(tables, 3)
    _before_commit(monkeypatch, lambda: append_rows(Path(tables.path), SEGMENTS, segment("new", 0, 0)))
    assert maintenance.compact(SEGMENTS, _file_names(tables))
    assert len(_file_names(tables)) == 2 and tables.read(SEGMENTS).num_rows == 4


def test_merging_gives_way_to_who_has_changed_a_file_meanwhile(
    tables: DeltaTables, maintenance: DeltaMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once; what was written goes."""
    _append(tables, 3)
    one = pa.table({"partition": pa.array([1], pa.int32())})
    times = _before_commit(monkeypatch, lambda: maintenance.expire(SEGMENTS, lambda: one))
    before = set(_file_names(tables))
    assert not maintenance.compact(SEGMENTS, before)
    assert times == [0] and tables.read(SEGMENTS).num_rows == 2
    assert {path.name for path in Path(tables.path, "segments").glob("*.parquet")} == before | set(_file_names(tables))
    assert not maintenance.compact(SEGMENTS, before), "one of these is not of the table any more"


def test_tables_that_ask_for_more_are_put_together_by_delta_rs(
    tables: DeltaTables, maintenance: DeltaMaintenance
) -> None:
    """As one whose changes somebody follows: what its files alone say may not be all of it. Nothing changes in it."""
    append_rows(Path(tables.path), SEGMENTS, segment("t", 0, 0))
    DeltaTable(f"{tables.path}/segments").alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    append_rows(Path(tables.path), SEGMENTS, segment("t", 1, 0))
    before, version = said(tables), tables.version(SEGMENTS)
    assert version is not None
    assert maintenance.compact(SEGMENTS, _file_names(tables))
    assert (len(_file_names(tables)), said(tables), tables.version(SEGMENTS)) == (1, before, version + 1)
    followed = pa.table(DeltaTable(f"{tables.path}/segments").load_cdf(starting_version=version + 1).read_all())
    assert followed.num_rows == 0
