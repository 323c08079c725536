"""Commits of several writers at once: none is lost, no key comes twice, and nothing older replaces what is newer."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kidxlib.catalog import updates
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.change import Found, TableChange
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results.build import SCANNED, PublishedSegmentRow
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import PRODUCER_EVENTS
from kidxlib.errors import CatalogError
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.held_changes import HeldChanges
from kidxlib.tables.protocol import Tables
from kidxlib.tables.version import VERSION_PROPERTY
from tests.support.catalog import filled

WRITERS: Final = 3
ROUNDS, ROUNDS_EXHAUSTIVE = 6, 40

_spawn = multiprocessing.get_context("spawn")


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
    return tables.change(SEGMENTS, found, change, by=SEGMENTS.key, since=since, build_id=build_id)


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

    assert tables.change(SEGMENTS, scanned(segment(0, 0, batches=2)), change, by=SEGMENTS.key) == 1
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
    held.change(SEGMENTS, gone, partial(updates.deleted, now=datetime(2026, 1, 1, tzinfo=UTC)), by=SEGMENTS.key)
    held.commit()
    assert [row["status"] for row in recorded(tables).values()] == ["deleted", "ok", "ok"]


def _stand_still(path: str, ready: Any) -> None:
    def change(known: pa.Table, found: Found) -> TableChange:
        ready.set()
        signal.pause()
        return updates.scanned(known, found, build_id="killed")

    DeltaTables(path).change(SEGMENTS, scanned(segment(0, 0)), change, by=SEGMENTS.key)


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
