"""A catalog in a real S3 store: the same rows as on a disk, and no commit lost of two writers at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, TABLES
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables, read_delta, write_delta
from tests.faults.processes import kidx
from tests.kidxlib.tables.test_delta_tables import record, recorded, scanned, segment
from tests.support.catalog import filled
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.object_store import BUCKET, Fault, ObjectStore

_OF_THE_RUN: Final = ("build_id", "seconds", "scan_seconds", "started_at", "index_directory", "options")
_BUCKET: Final = f"s3://{BUCKET}/"
_WRITERS: Final = 3
_ROUNDS, _ROUNDS_EXHAUSTIVE = 3, 10

#: Its server has what `kidx` imports: see `tests/faults/preloaded.py`.
_forkserver: Any = multiprocessing.get_context("forkserver")


@pytest.fixture
def url(store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    prefix = f"catalogs/{tmp_path.name}"
    yield f"s3://{BUCKET}/{prefix}"
    store.before = None
    for name in list(store.contents(prefix)):
        store.delete(f"{prefix}/{name}")


def _assert_same_rows(url: str, catalog: Path, tables: Iterable[Table]) -> None:
    for table in tables:
        names = [name for name in table.column_names if name not in _OF_THE_RUN]
        found, expected = (
            sorted(map(str, DeltaTables(path).read(table, names).to_pylist())) for path in (url, str(catalog))
        )
        assert found == expected, table.name


def test_it_has_the_rows_of_one_on_a_disk(url: str, tmp_path: Path) -> None:
    for number, catalog in enumerate((url, str(tmp_path / "catalog"))):
        index_dir = tmp_path / f"index-{number}"
        for unchanged in (0, 12):
            built = kidx("build", golden.SAMPLES, "--index-dir", index_dir, "--catalog", catalog, "--json")
            assert built.code == 0 and f'"unchanged": {unchanged},' in built.out, built
    _assert_same_rows(url, tmp_path / "catalog", TABLES)


@pytest.mark.exhaustive("takes half a minute; tests/kidxlib/operations/maintenance does it on a disk")
def test_a_build_puts_its_tables_in_order(url: str, tmp_path: Path) -> None:
    settings = tmp_path / "kidx.toml"
    settings.write_text("[tables]\nsmall_files_max = 1\n")
    places = ("--index-dir", tmp_path / "index", "--catalog", url, "--settings", settings)
    for topics in ("plain-.*", ".*"):
        ended = kidx("build", golden.SAMPLES, *places, "--topics", topics, "--json")
        assert ended.code == 0, ended
    optimized = {table["table"]: table["files_after"] for table in ended.json["optimized"]}
    assert {"segments": 1, "builds": 1}.items() <= optimized.items()
    assert (DeltaTables(url).read(SEGMENTS).num_rows, DeltaTables(url).read(BUILDS).num_rows) == (12, 2)


@pytest.mark.exhaustive("takes half a minute; tests/jobs/test_object_stores.py compacts index files in a store")
def test_it_is_compacted_as_one_on_a_disk(url: str, tmp_path: Path) -> None:
    """Index files sparser, and tables written anew: the same rows, in as few files."""
    for number, catalog in enumerate((url, str(tmp_path / "catalog"))):
        source, index_dir = f"s={golden.SAMPLES}", tmp_path / f"index-{number}"
        for topics in ("plain-.*", ".*"):
            places = ("--source", source, "--index-dir", index_dir, "--catalog", catalog)
            assert kidx("build", *places, "--topics", topics).code == 0
        for command in (["compact", "--interval-bytes", "65536"], ["tables"]):
            ended = kidx(*command, "--catalog", catalog, "--apply", "--json")
            assert ended.code == 0, ended
        files = {table["table"]: table["after"]["files"] for table in ended.json["tables"]}
        assert (files["segments"], files["partitions"]) == (1, 1)
        assert max(table["before"]["files"] for table in ended.json["tables"]) > 1  # of `builds`, each run's row is one
    _assert_same_rows(url, tmp_path / "catalog", [SEGMENTS])
    assert 65536 in DeltaTables(url).read(SEGMENTS, ["interval_bytes"])["interval_bytes"].to_pylist()


def _write(variables: dict[str, str], url: str, writer: int, rounds: int) -> None:
    os.environ.update(variables)
    for number in range(rounds):
        own, shared = segment(writer, number), segment(99, number, batches=writer)
        record(DeltaTables(url), scanned(own, shared), f"{writer}-{number}")


def _in_processes(do: Callable[..., None], *arguments: tuple[Any, ...]) -> None:
    """Let processes write: delta-rs keeps Python from the gate's threads while it waits for an answer."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    processes = [_forkserver.Process(target=do, args=(variables, *each)) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


def test_writers_at_once_lose_nothing(url: str, exhaustive: bool) -> None:
    """Each adds segments of its own, and all replace the same ones, from the commit that makes the table on."""
    rounds = _ROUNDS_EXHAUSTIVE if exhaustive else _ROUNDS
    _in_processes(_write, *((url, writer, rounds) for writer in range(_WRITERS)))
    expected = {(writer, number) for writer in (*range(_WRITERS), 99) for number in range(rounds)}
    assert recorded(DeltaTables(url)).keys() == expected


_NUMBERS: Final = range(4)


def _build_row(build_id: str) -> pa.Table:
    return pa.Table.from_pylist([filled(BUILDS.schema(), {"build_id": build_id})], BUILDS.schema())


def _commit_some(variables: dict[str, str], url: str) -> None:
    os.environ.update(variables)
    tables = DeltaTables(url)
    for number in _NUMBERS:
        tables.append(BUILDS, _build_row(f"{number}"))
        record(tables, scanned(segment(0, number), segment(1, 0, batches=number)), f"{number}")
    maintenance = DeltaMaintenance(tables)
    maintenance.rewrite(BUILDS)
    maintenance.expire(BUILDS, lambda: _build_row("0").select(["build_id"]))
    write_delta(f"{url}/answers", _build_row("a").to_batches(), BUILDS.schema())


@pytest.mark.parametrize(
    ("key", "faults"),
    [
        ("/_delta_log/0", [Fault.LOST, Fault.DONE_AND_FAILED, Fault.SLOW_DOWN]),
        # Not of answers: they come from a stream, and are not written again where their commit was not made.
        ("/segments/_delta_log/0", [Fault.RESET, Fault.LOST]),
    ],
    ids=["made", "not made"],
)
def test_a_commit_that_is_disturbed_is_made_once(key: str, faults: list[Fault], store: ObjectStore, url: str) -> None:
    store.disturb(2, *faults, method="PUT", key=key)
    _in_processes(_commit_some, (url,))
    tables = DeltaTables(url)
    assert (
        sorted(map(str, tables.read(BUILDS, ["build_id"])["build_id"].to_pylist()))
        == [str(number) for number in _NUMBERS][1:]
    )
    rows = recorded(tables)
    assert rows.keys() == {(1, 0), *((0, number) for number in _NUMBERS)}
    assert rows[1, 0]["batches"] == _NUMBERS[-1]
    # One version makes a table, and each commit one more.
    assert (tables.version(BUILDS), tables.version(SEGMENTS)) == (len(_NUMBERS) + 2, len(_NUMBERS))
    assert [row["build_id"] for batch in read_delta(f"{url}/answers") for row in batch.to_pylist()] == ["a"]


def test_a_build_through_a_store_that_is_disturbed_is_another_one(store: ObjectStore, url: str, tmp_path: Path) -> None:
    """Each fifth request of all is refused, or its connection ends: the files and rows of an undisturbed build."""
    source = f"s={store.upload(golden.SAMPLES, f'{url.removeprefix(_BUCKET)}/logs')}"
    for catalog, index_dir in ((f"{url}/catalog", f"{url}/index"), (tmp_path / "catalog", tmp_path / "index")):
        if index_dir != tmp_path / "index":
            store.disturb(5, Fault.SLOW_DOWN, Fault.RESET, Fault.CUT)
        built = kidx("build", "--source", source, "--index-dir", index_dir, "--catalog", catalog, "--snapshots")
        assert built.code == 0, built.err
        store.before = None
    assert store.contents(f"{url.removeprefix(_BUCKET)}/index") == tree(tmp_path / "index")
    _assert_same_rows(f"{url}/catalog", tmp_path / "catalog", TABLES)


def test_what_is_there_already_is_not_built_over(store: ObjectStore, url: str, tmp_path: Path) -> None:
    store.put(f"{url.removeprefix(f's3://{BUCKET}/')}/other.txt", b"somebody's")
    ended = kidx("build", golden.SAMPLES, "--index-dir", tmp_path / "index", "--catalog", url)
    assert ended.code == 2 and f"--catalog {url}: no catalog there, and it is not empty" in ended.err, ended
    assert DeltaTables(url).version(SEGMENTS) is None
