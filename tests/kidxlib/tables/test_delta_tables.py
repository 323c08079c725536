"""Commits of several writers at once: none is lost, no key comes twice, and nothing older replaces what is newer.
Changes of rows by their keys do what a MERGE would, and leave a table in the order that it had.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import signal
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog import tables as catalog_tables
from kidxlib.catalog import updates
from kidxlib.catalog.change import Found, TableChange
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS as TABLE
from kidxlib.catalog.partitions import PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.results import SCANNED, PublishedSegmentRow
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, FILE_BYTES, VERSION_PROPERTY
from kidxlib.errors import CatalogError
from kidxlib.tables import data_files, delta_commits, delta_tables
from kidxlib.tables.delta_commits import commit_once
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.memory_tables import HeldChanges
from kidxlib.tables.protocol import Tables
from tests.conftest import one_in
from tests.support.catalog import filled, filled_rows

WRITERS: Final = 3
ROUNDS, ROUNDS_EXHAUSTIVE = 6, 40

_spawn = multiprocessing.get_context("spawn")

#: Each example writes a table some times.
FEW: Final = one_in(20)
#: Of a file of some hundred rows; and with what is in each file besides.
_FILE_BYTES, _FULL_FILE_BYTES = 8_000, 16_000

#: A topic, a partition and a base offset.
_NAMES: Final = ("topic", "partition", "base_offset")
Key = tuple[str, int, int]
_KEY: Final = st.tuples(st.sampled_from(["", "a", "it's", 'q"ä']), st.integers(-1, 2), st.integers(-(2**63), 3))


def segment(partition: int, base_offset: int, **values: Any) -> dict[str, Any]:
    schema = pa.schema([column.field for column in PublishedSegmentRow.columns()])
    key = {"source": "s", "topic": "t", "partition": partition, "base_offset": base_offset, "status": "ok"}
    return filled(schema, {**key, **values})


def scanned(*segments: dict[str, Any]) -> Found:
    """As a scan gives them, without events."""
    return {
        "segment": pa.Table.from_pylist(list(segments), pa.schema(list(SCANNED.field("segment").type))),
        "event": PRODUCER_EVENTS.schema().empty_table(),
    }


def record(tables: Tables, found: Found, build_id: str, since: int | None = None) -> int:
    change = partial(updates.scanned, build_id=build_id)
    return tables.change_rows(SEGMENTS, found, change, by=SEGMENTS.key, since=since, build_id=build_id)


def recorded(tables: Tables) -> dict[tuple[int, int], dict[str, Any]]:
    rows = tables.read(SEGMENTS).to_pylist()
    found = {(row["partition"], row["base_offset"]): row for row in rows}
    assert len(found) == len(rows), "a key comes twice"
    return found


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path / "catalog"))


@pytest.fixture(scope="module")
def writers() -> Iterator[ProcessPoolExecutor]:
    """As many processes; each test's writers are given to them at once."""
    with ProcessPoolExecutor(WRITERS, _spawn) as pool:
        yield pool


def _write(path: str, rounds: int, writer: int) -> None:
    tables = DeltaTables(path)
    for number in range(rounds):
        own, shared = segment(writer, number), segment(99, number, batches=writer)
        record(tables, scanned(own, shared), f"{writer}-{number}")


def test_writers_at_once_lose_nothing(tables: DeltaTables, writers: ProcessPoolExecutor, exhaustive: bool) -> None:
    """Each adds segments of its own, and all of them replace the same ones, from the commit that makes the table on."""
    rounds = ROUNDS_EXHAUSTIVE if exhaustive else ROUNDS
    assert list(writers.map(partial(_write, tables.path, rounds), range(WRITERS))) == [None] * WRITERS
    expected = {(writer, number) for writer in (*range(WRITERS), 99) for number in range(rounds)}
    assert recorded(tables).keys() == expected
    assert DeltaTable(f"{tables.path}/segments").version() <= WRITERS * rounds


class _Stream:
    """The segments of a writer, a batch at a time."""

    def __init__(self, writer: int) -> None:
        self._writer = writer

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        schema = SEGMENTS.schema()
        rows = ([filled(schema, segment(self._writer, number))] for number in range(ROUNDS))
        batches = (pa.RecordBatch.from_pylist(batch, schema) for batch in rows)
        reader: Any = pa.RecordBatchReader.from_batches(schema, batches)
        return reader.__arrow_c_stream__(requested_schema)


def _append_stream(path: str, writer: int) -> None:
    DeltaTables(path).append(SEGMENTS, _Stream(writer))


def test_streams_of_writers_at_once_are_appended_once(tables: DeltaTables, writers: ProcessPoolExecutor) -> None:
    """Each in one commit; who is overtaken begins its own again."""
    tables.make(SEGMENTS)
    assert list(writers.map(partial(_append_stream, tables.path), range(WRITERS))) == [None] * WRITERS
    expected = {(writer, number) for writer in range(WRITERS) for number in range(ROUNDS)}
    assert recorded(tables).keys() == expected
    assert DeltaTable(f"{tables.path}/segments").version() == WRITERS


def test_who_is_overtaken_computes_its_change_again(tables: DeltaTables) -> None:
    """Between its read and its commit another writer commits; both find the segment missing."""
    record(tables, scanned(segment(1, 0)), "makes the table")
    asked = []

    def change(known: pa.Table, found: Found) -> TableChange:
        asked.append(known.num_rows)
        if len(asked) == 1:
            record(tables, scanned(segment(0, 0, batches=1)), "other")
        return updates.scanned(known, found, build_id="mine")

    assert tables.change_rows(SEGMENTS, scanned(segment(0, 0, batches=2)), change, by=SEGMENTS.key) == 1
    assert asked == [0, 1]
    assert recorded(tables)[0, 0]["batches"] == 2
    assert record(tables, scanned(segment(0, 0, batches=2)), "again") == 0


def test_a_later_state_of_a_log_stays(tables: DeltaTables) -> None:
    """A run stood still since its comparison; another one has read the log since it grew."""
    record(tables, scanned(segment(0, 0, log_mtime_ns=10)), "first")
    since = tables.version(SEGMENTS)
    record(tables, scanned(segment(0, 0, log_mtime_ns=30)), "other")
    found = scanned(segment(0, 0, log_mtime_ns=20), segment(0, 1, log_mtime_ns=20))
    assert record(tables, found, "mine", since) == 1
    rows = recorded(tables)
    assert [rows[0, offset]["build_id"] for offset in (0, 1)] == ["other", "mine"]
    # A run that compared after that knows better: the log may have come back from a backup.
    assert record(tables, scanned(segment(0, 0, log_mtime_ns=20)), "later", tables.version(SEGMENTS)) == 1


def test_a_commit_that_records_nothing_read_compares_with_no_version(tables: DeltaTables) -> None:
    """The second wave of a run finds what the table has; only what is deleted is committed then."""
    record(tables, scanned(segment(0, 0), segment(0, 1)), "first")
    held, since = HeldChanges(tables, SEGMENTS), tables.version(SEGMENTS)
    assert record(held, scanned(segment(0, 2)), "mine", since) == 1
    held.commit()
    assert record(held, scanned(segment(0, 1)), "mine", since) == 0
    gone = {"segment": scanned(segment(0, 0))["segment"].select(SEGMENTS.key)}
    held.change_rows(SEGMENTS, gone, partial(updates.deleted, now=datetime(2026, 1, 1, tzinfo=UTC)), by=SEGMENTS.key)
    held.commit()
    assert [row["status"] for row in recorded(tables).values()] == ["deleted", "ok", "ok"]


def _stand_still(path: str, ready: Any) -> None:
    def change(known: pa.Table, found: Found) -> TableChange:
        ready.set()
        signal.pause()
        return updates.scanned(known, found, build_id="killed")

    DeltaTables(path).change_rows(SEGMENTS, scanned(segment(0, 0)), change, by=SEGMENTS.key)


def test_a_writer_that_is_killed_leaves_nothing_in_the_way(tables: DeltaTables) -> None:
    ready = _spawn.Event()
    process = _spawn.Process(target=_stand_still, args=(tables.path, ready))
    process.start()
    assert ready.wait(60)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert record(tables, scanned(segment(0, 0)), "next") == 1


def test_files_without_the_key_are_not_rewritten(tables: DeltaTables) -> None:
    """What one partition's rows are in, when a row of another one changes, stays."""
    for partition in range(5):
        record(tables, scanned(*(segment(partition, number) for number in range(20))), str(partition))
    before = set(DeltaTable(f"{tables.path}/segments").file_uris())
    record(tables, scanned(segment(3, 7, batches=5)), "changes one")
    after = set(DeltaTable(f"{tables.path}/segments").file_uris())
    assert len(before) == 5 and len(before & after) == 4
    rows = tables.read(SEGMENTS, ["base_offset", "batches"], [Among("partition", (3,)), Among("base_offset", (7,))])
    assert rows.to_pylist() == [{"base_offset": 7, "batches": 5}]


def test_every_reader_of_delta_can_open_a_table(tables: DeltaTables) -> None:
    for table in (SEGMENTS, PARTITIONS, BUILDS):
        assert tables.version(table) is None and tables.read(table).num_rows == 0
        tables.append(table, pa.Table.from_pylist([], table.schema()))
        assert tables.version(table) == 0
        protocol = DeltaTable(f"{tables.path}/{table.name}").protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_what_is_no_table_of_ours_is_said_in_one_line(tables: DeltaTables) -> None:
    write_deltalake(f"{tables.path}/segments", pa.table({"source": ["s"]}))
    with pytest.raises(CatalogError, match="catalog/segments: a Delta table, but not one of this project's"):
        tables.read(SEGMENTS)
    _make(tables, "builds", 99)
    with pytest.raises(CatalogError, match="catalog/builds: written with catalog version 99"):
        tables.read(BUILDS)
    _make(tables, "partitions", 1)
    with pytest.raises(CatalogError, match=r"catalog/partitions: no column .*; an older release made it"):
        tables.read(PARTITIONS)
    (Path(tables.path) / "producer_events" / "_delta_log").mkdir(parents=True)
    (Path(tables.path) / "producer_events" / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(CatalogError, match=r"catalog/producer_events: cannot be read: [^\n]+$"):
        tables.read(PRODUCER_EVENTS)


def _make(tables: DeltaTables, name: str, version: int) -> None:
    DeltaTable.create(
        f"{tables.path}/{name}",
        pa.schema([("source", pa.string())]),
        configuration={VERSION_PROPERTY: str(version)},
        raise_if_key_not_exists=False,
    )


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "FILE_BYTES", _FILE_BYTES)
    monkeypatch.setattr(delta_tables, "FILE_BYTES", _FULL_FILE_BYTES)
    monkeypatch.setattr(delta_tables, "_BYTES_AT_ONCE", 4 * _FULL_FILE_BYTES)
    monkeypatch.setattr(catalog_tables, "ROW_BYTES", 1)


def whole(keys: Sequence[Key], number: int) -> pa.Table:
    """Rows that a commit has written, with something that files do not make small."""
    noise = random.Random(number)
    rows = (
        {**dict(zip(_NAMES, key, strict=True)), "source": "s", "producer_id": number, "first_offset": bits}
        for key, bits in ((key, noise.getrandbits(62)) for key in keys)
    )
    return filled_rows(TABLE, rows)


def commit(
    tables: DeltaTables,
    number: int,
    inserts: Sequence[Key] = (),
    updates: Sequence[Key] = (),
    deletes: Sequence[Key] = (),
) -> None:
    changed = TableChange(whole(inserts, number), whole(updates, number), whole(deletes, 0).select(TABLE.key), number)
    tables.change_rows(TABLE, {"row": whole([("", 0, 0)], 0)}, lambda _, __: changed, by=())


def rows_of(tables: DeltaTables) -> dict[Key, int]:
    rows = tables.read(TABLE, [*_NAMES, "producer_id"]).to_pylist()
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
        mock.patch.object(delta_tables, "_BYTES_AT_ONCE", at_once),
        mock.patch.object(delta_tables, "FILE_BYTES", 2_700),
        mock.patch.object(catalog_tables, "ROW_BYTES", 1),
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
    monkeypatch.setattr(catalog_tables, "ROW_BYTES", FILE_BYTES // 100)
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
        monkeypatch.setattr(delta_tables, "_BYTES_AT_ONCE", bound)
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
    assert last_commit(tables)["operation"] == "MERGE" and rows_of(tables) == {
        ("t", 0, 0): 1,
        ("t", 0, 1): 2,
    }


def test_a_write_that_fails_leaves_nothing(tables: DeltaTables, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tables, 0, inserts=[("t", 0, number) for number in range(5)])
    before = sorted(Path(tables.path).rglob("*"))

    def write_one(*arguments: Any) -> Any:
        yield from data_files.write_sorted(*arguments)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(delta_tables, "write_sorted", write_one)
    with pytest.raises(CatalogError, match=r"aborted_transactions: cannot be written: .*No space left on device"):
        commit(tables, 1, updates=[("t", 0, 0)])
    assert sorted(Path(tables.path).rglob("*")) == before


def test_what_is_appended_is_cut_where_a_file_is_full(tables: DeltaTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is in order; a stream of batches, small and large, is written as it comes."""
    monkeypatch.setattr(data_files, "FILE_BYTES", _FULL_FILE_BYTES)
    monkeypatch.setattr(data_files, "_ROWS_PER_GROUP", 50)
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

    monkeypatch.setattr(delta_commits, "commit_once", fail)
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
