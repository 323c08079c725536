"""Changes of rows by their keys: they do what a MERGE would, and leave a table in the order that it had."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.change import TableChange
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS as TABLE
from kidxlib.errors import CatalogError
from kidxlib.tables import data_files, layout, sorted_files, sorted_merge
from kidxlib.tables.commit_once import commit_once
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.layout import FILE_BYTES
from tests.conftest import one_in
from tests.support.catalog import filled

#: Each example writes a table some times.
FEW: Final = one_in(20)
#: Of a file of some hundred rows; and with what is in each file besides.
_FILE_BYTES, _FULL_FILE_BYTES = 8_000, 16_000

#: A topic, a partition and a base offset.
Key = tuple[str, int, int]
_KEY: Final = st.tuples(st.sampled_from(["", "a", "it's", 'q"ä']), st.integers(-1, 2), st.integers(-(2**63), 3))


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path))


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_files, "FILE_BYTES", _FILE_BYTES)
    monkeypatch.setattr(sorted_merge, "FILE_BYTES", _FULL_FILE_BYTES)
    monkeypatch.setattr(sorted_merge, "BYTES_AT_ONCE", 4 * _FULL_FILE_BYTES)
    monkeypatch.setattr(layout, "ROW_BYTES", 1)


def whole(keys: Sequence[Key], number: int) -> pa.Table:
    """Rows that a commit has written, with something that files do not make small."""
    names, schema = ("topic", "partition", "base_offset"), TABLE.schema()
    noise = random.Random(number)
    rows = [
        {
            **dict(zip(names, key, strict=True)),
            "source": "s",
            "producer_id": number,
            "first_offset": noise.getrandbits(62),
        }
        for key in keys
    ]
    return pa.Table.from_pylist([filled(schema, row) for row in rows], schema)


def commit(
    tables: DeltaTables,
    number: int,
    inserts: Sequence[Key] = (),
    updates: Sequence[Key] = (),
    deletes: Sequence[Key] = (),
) -> None:
    changed = TableChange(whole(inserts, number), whole(updates, number), whole(deletes, 0).select(TABLE.key), number)
    tables.change(TABLE, {"row": whole([("", 0, 0)], 0)}, lambda _, __: changed, by=())


def rows_of(tables: DeltaTables) -> dict[Key, int]:
    rows = tables.read(TABLE, ["topic", "partition", "base_offset", "producer_id"]).to_pylist()
    found = {(row["topic"], row["partition"], row["base_offset"]): row["producer_id"] for row in rows}
    assert len(found) == len(rows), "a key comes twice"
    return found


def last_commit(tables: DeltaTables) -> dict[str, Any]:
    return DeltaTable(f"{tables.path}/{TABLE.name}").history(1)[0]


def files_in_order(tables: DeltaTables) -> list[list[Key]]:
    """The keys of each file as they stand in it; the files by their first ones."""
    found = []
    for path in DeltaMaintenance(tables).files(TABLE)["path"].to_pylist():
        rows = pq.read_table(Path(tables.path, TABLE.name, str(path))).to_pylist()
        found.append([(row["topic"], row["partition"], row["base_offset"]) for row in rows])
    return sorted(found)


def paths(tables: DeltaTables) -> set[str]:
    return set(DeltaTable(f"{tables.path}/{TABLE.name}").file_uris())


@FEW
@given(
    steps=st.lists(
        st.tuples(st.lists(_KEY, max_size=12, unique=True), st.lists(st.integers(0, 2), min_size=12, max_size=12)),
        min_size=2,
        max_size=4,
    ),
    at_once=st.sampled_from([3_000, 10**9]),
)
def test_it_does_what_a_merge_does(steps: list[tuple[list[Key], list[int]]], at_once: int) -> None:
    """Some rows come, change and go in each commit, whatever files they are in; delta-rs does it to large files."""
    expected: dict[Key, int] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(sorted_merge, "BYTES_AT_ONCE", at_once),
        mock.patch.object(sorted_merge, "FILE_BYTES", 2_700),
        mock.patch.object(layout, "ROW_BYTES", 1),
    ):
        tables = DeltaTables(directory)
        commit(tables, -1, inserts=[("made", 0, 0)])
        expected["made", 0, 0] = -1
        for number, (keys, kinds) in enumerate(steps):
            known = [key for key in expected if kinds[_bucket(key)] == 1]
            gone = [key for key in expected if kinds[_bucket(key)] == 2]
            new = [key for key in keys if key not in expected]
            commit(tables, number, inserts=new, updates=known, deletes=gone)
            expected |= dict.fromkeys([*new, *known], number)
            for key in gone:
                del expected[key]
            assert rows_of(tables) == expected


def _bucket(key: Key) -> int:
    return zlib.crc32(repr(key).encode()) % 12


@pytest.fixture
def in_order(tables: DeltaTables, small_files: None, rng: random.Random) -> Iterator[list[Key]]:
    """A table of a dozen files in order, of ten topics of twenty partitions."""
    keys = [(f"t{topic}", partition, offset) for topic in range(10) for partition in range(20) for offset in range(30)]
    rng.shuffle(keys)
    tables.append(TABLE, whole(keys, 0))
    DeltaMaintenance(tables).rewrite(TABLE)
    yield sorted(keys)


def test_a_change_of_one_partition_leaves_all_other_files(tables: DeltaTables, in_order: list[Key]) -> None:
    """What changes, comes and goes in it is in the file that it was in; that is in order."""
    before, of_before = paths(tables), files_in_order(tables)
    assert len(of_before) >= 8
    commit(tables, 7, inserts=[("t4", 9, 30)], updates=[("t4", 9, 29)], deletes=[("t4", 9, 0)])
    after, of_after = paths(tables), files_in_order(tables)
    assert len(before - after) <= 2 and len(after - before) <= 2 and len(of_after) == len(of_before)
    assert [key for file in of_after for key in file] == sorted({*in_order, ("t4", 9, 30)} - {("t4", 9, 0)})
    assert rows_of(tables)["t4", 9, 29] == rows_of(tables)["t4", 9, 30] == 7


def test_a_change_all_over_leaves_a_table_in_order(tables: DeltaTables, in_order: list[Key]) -> None:
    """In files of the same size, as often as it happens; none is held for longer than it takes to write it anew."""
    counts = {len(file) for file in files_in_order(tables)}
    for number in range(1, 4):
        commit(tables, number, updates=in_order[number::7])
        files = files_in_order(tables)
        assert [key for file in files for key in file] == in_order
        assert min(counts) / 2 < min(map(len, files)) and max(map(len, files)) < max(counts) * 2
    read = DeltaMaintenance(tables).files(TABLE).to_pylist()
    of_one = [file for file in read if file["min.topic"] <= "t4" <= file["max.topic"]]
    assert len(of_one) <= len(read) // 10 + 2


def test_new_rows_far_from_what_changes_are_in_files_of_their_own(tables: DeltaTables, in_order: list[Key]) -> None:
    """So a file that is written anew has the keys that it had, and a query leaves it out as before."""
    commit(tables, 1, updates=[in_order[0]], inserts=[("t7", 5, 100), ("t7", 5, 101)])
    found = [file for file in files_in_order(tables) if ("t7", 5, 100) in file]
    assert found == [[("t7", 5, 100), ("t7", 5, 101)]]
    # Behind the last of all, they go on where it ends.
    commit(tables, 2, updates=[in_order[-1]], inserts=[("z", 0, 0)])
    assert files_in_order(tables)[-1][-2:] == [in_order[-1], ("z", 0, 0)]


def test_small_files_that_change_become_one(tables: DeltaTables, small_files: None) -> None:
    """What several builds have added to the same partitions ends up side by side."""
    for number in range(5):
        commit(tables, 0, inserts=[("t", partition, number) for partition in range(4)])
    assert len(paths(tables)) == 5
    commit(tables, 1, updates=[("t", 0, number) for number in range(5)], inserts=[("t", 0, 5)])
    assert files_in_order(tables) == [sorted(rows_of(tables))]


def test_rows_that_take_few_bytes_fill_files_by_their_number(
    tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has too many becomes several once one of its rows changes; later changes touch one of these."""
    monkeypatch.setattr(layout, "ROW_BYTES", FILE_BYTES // 100)
    keys = [("t", 0, number) for number in range(1_000)]
    commit(tables, 0, inserts=keys)
    assert len(paths(tables)) == 1
    commit(tables, 1, updates=keys[:1])
    before = paths(tables)
    assert {len(file) for file in files_in_order(tables)} == {100} and len(before) == 10
    commit(tables, 2, updates=keys[500:600])
    assert len(before - paths(tables)) == 1 and len(paths(tables)) == 10


def test_what_the_history_says(tables: DeltaTables) -> None:
    """The counts that a MERGE of delta-rs has there; and no reader of Delta's takes it for a mere addition."""
    commit(tables, 0, inserts=[("t", 0, number) for number in range(5)])
    commit(tables, 1, inserts=[("t", 1, 0)], updates=[("t", 0, 0), ("t", 0, 1)], deletes=[("t", 0, 2)])
    said = last_commit(tables)
    assert (said["operation"], said["kidx.operation"], said["isBlindAppend"]) == ("WRITE", "merge", False)
    assert said["operationMetrics"] == {
        "num_target_rows_inserted": 1,
        "num_target_rows_updated": 2,
        "num_target_rows_deleted": 1,
        "num_target_files_added": 1,
        "num_target_files_removed": 1,
    }
    log = Path(tables.path, TABLE.name, "_delta_log", f"{2:020}.json").read_text()
    actions = [action for line in log.splitlines() for action in json.loads(line).items()]
    assert {kind: values["dataChange"] for kind, values in actions if kind in ("add", "remove")} == {
        "add": True,
        "remove": True,
    }


def test_a_file_that_is_too_large_to_be_held_is_merged_by_delta_rs(
    tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tables, 0, inserts=[("t", 0, 0), ("t", 0, 1)])
    [size] = DeltaMaintenance(tables).files(TABLE)["size_bytes"].to_pylist()
    for bound, kind in ((size, "WRITE"), (1, "MERGE")):
        monkeypatch.setattr(sorted_merge, "BYTES_AT_ONCE", bound)
        commit(tables, bound or 0, updates=[("t", 0, 1)])
        assert last_commit(tables)["operation"] == kind
        assert rows_of(tables) == {("t", 0, 0): 0, ("t", 0, 1): bound}


def test_a_table_that_asks_for_more_of_its_writers_is_merged_by_delta_rs(tables: DeltaTables) -> None:
    """As one whose owner wants its changes recorded: these are files of their own."""
    commit(tables, 0, inserts=[("t", 0, 0)])
    DeltaTable(f"{tables.path}/{TABLE.name}").alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    commit(tables, 1, updates=[("t", 0, 0)])
    assert last_commit(tables)["operation"] == "MERGE" and rows_of(tables) == {("t", 0, 0): 1}
    assert list(Path(tables.path, TABLE.name).glob("_change_data/*.parquet"))
    tables.append(TABLE, whole([("t", 0, 1)], 2))
    assert last_commit(tables)["operation"] == "MERGE" and rows_of(tables) == {("t", 0, 0): 1, ("t", 0, 1): 2}


def test_a_write_that_fails_leaves_nothing(tables: DeltaTables, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tables, 0, inserts=[("t", 0, number) for number in range(5)])
    before = sorted(Path(tables.path).rglob("*"))

    def write_one(*arguments: Any) -> Any:
        yield from sorted_files.write_sorted(*arguments)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sorted_merge, "write_sorted", write_one)
    with pytest.raises(CatalogError, match=r"aborted_transactions: cannot be written: .*No space left on device"):
        commit(tables, 1, updates=[("t", 0, 0)])
    assert sorted(Path(tables.path).rglob("*")) == before


def test_what_is_appended_is_cut_where_a_file_is_full(tables: DeltaTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is in order; a stream of batches, small and large, is written as it comes."""
    monkeypatch.setattr(sorted_files, "FILE_BYTES", _FULL_FILE_BYTES)
    monkeypatch.setattr(sorted_files, "_ROWS_PER_GROUP", 50)
    keys = [("t", number % 7, number) for number in range(1000)]
    rows = whole(keys, 1)
    tables.append(TABLE, rows)
    of_table, cut = paths(tables), files_in_order(tables)
    assert [key for file in cut for key in file] == sorted(keys)
    starts = [0, *itertools.accumulate(itertools.islice(itertools.cycle([1, 7, 300]), 8)), 1000]
    batches = (rows.slice(start, end - start) for start, end in itertools.pairwise(starts))
    tables.append(TABLE, pa.RecordBatchReader.from_batches(rows.schema, (b for t in batches for b in t.to_batches())))
    files = DeltaMaintenance(tables).files(TABLE).to_pylist()
    assert len(of_table) > 5 and len(files) == 2 * len(of_table)
    assert all(file["size_bytes"] == Path(tables.path, TABLE.name, file["path"]).stat().st_size for file in files)
    assert max(file["size_bytes"] for file in files) <= _FULL_FILE_BYTES
    said = last_commit(tables)["operationMetrics"]
    assert said == {"num_added_files": len(of_table), "num_added_rows": 1000}
    as_they_came = {Path(path).name for path in paths(tables) - of_table}
    read = [pq.read_table(Path(tables.path, TABLE.name, name))["base_offset"].to_numpy() for name in as_they_came]
    assert np.concatenate(sorted(read, key=lambda offsets: offsets[0])).tolist() == list(range(1000))
    assert sum(file["num_records"] for file in files) == tables.read(TABLE).num_rows == 2000


@pytest.mark.parametrize("made", [False, True])
def test_a_commit_that_fails_leaves_no_file_that_is_not_of_the_table(
    made: bool, tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs may also fail after it has made one, as where it cannot write a checkpoint."""
    commit(tables, 0, inserts=[("t", 0, 0)])
    before = sorted(Path(tables.path).rglob("*"))

    def fail(*arguments: Any) -> None:
        if made:
            commit_once(*arguments)
        raise DeltaError("No space left on device")

    monkeypatch.setattr(data_files, "commit_once", fail)
    with pytest.raises(CatalogError, match=r"aborted_transactions: cannot be written: No space left on device"):
        tables.append(TABLE, whole([("t", 0, 1)], 1))
    assert rows_of(tables) == {("t", 0, 0): 0, **({("t", 0, 1): 1} if made else {})}
    assert (sorted(Path(tables.path).rglob("*")) == before) is not made


def test_rows_of_one_partition_are_asked_of_few_files(tables: DeltaTables, in_order: list[Key]) -> None:
    """By delta-rs' own reader, from the statistics that are written here."""
    commit(tables, 5, updates=in_order[::3])
    rows = tables.read(TABLE, ["base_offset", "producer_id"], [Among("topic", ("t3",)), Among("partition", (7,))])
    changed = {offset for topic, partition, offset in in_order[::3] if (topic, partition) == ("t3", 7)}
    assert {row["base_offset"] for row in rows.to_pylist() if row["producer_id"] == 5} == changed
    assert rows.num_rows == 30
