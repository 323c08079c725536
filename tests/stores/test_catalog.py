"""A catalog in a real S3 store: the same rows as on a disk, and no commit lost of two writers at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.tables.delta_tables import DeltaTables
from tests.faults.processes import kidx
from tests.kidxlib.tables.test_delta_tables import record, recorded, scanned, segment
from tests.support.logs import golden
from tests.support.object_store import BUCKET, ObjectStore

_OF_THE_RUN: Final = ("build_id", "seconds", "scan_seconds", "started_at", "index_directory", "options")
_WRITERS: Final = 3
_ROUNDS: Final = 5

_spawn: Any = multiprocessing.get_context("spawn")


@pytest.fixture
def url(store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    prefix = f"catalogs/{tmp_path.name}"
    yield f"s3://{BUCKET}/{prefix}"
    for name in list(store.contents(prefix)):
        store.delete(f"{prefix}/{name}")


def test_it_has_the_rows_of_one_on_a_disk(url: str, tmp_path: Path) -> None:
    for number, catalog in enumerate((url, str(tmp_path / "catalog"))):
        index_dir = tmp_path / f"index-{number}"
        for unchanged in (0, 12):
            built = kidx("build", golden.SAMPLES, "--index-dir", index_dir, "--catalog", catalog, "--json")
            assert built.code == 0 and f'"unchanged": {unchanged},' in built.out, built
    for table in TABLES:
        names = [name for name in table.column_names if name not in _OF_THE_RUN]
        found, expected = (
            sorted(map(str, DeltaTables(path).read(table, names).to_pylist()))
            for path in (url, str(tmp_path / "catalog"))
        )
        assert found == expected, table.name


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
    names = [name for name in SEGMENTS.column_names if name not in _OF_THE_RUN]
    found, expected = (
        sorted(map(str, DeltaTables(path).read(SEGMENTS, names).to_pylist()))
        for path in (url, str(tmp_path / "catalog"))
    )
    assert found == expected and "'interval_bytes': 65536" in str(found)


def _write(url: str, variables: dict[str, str], writer: int) -> None:
    os.environ.update(variables)
    for number in range(_ROUNDS):
        own, shared = segment(writer, number), segment(99, number, batches=writer)
        record(DeltaTables(url), scanned(own, shared), f"{writer}-{number}")


def test_writers_at_once_lose_nothing(url: str) -> None:
    """Each adds segments of its own, and all replace the same ones, from the commit that makes the table on."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    processes = [_spawn.Process(target=_write, args=(url, variables, writer)) for writer in range(_WRITERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    expected = {(writer, number) for writer in (*range(_WRITERS), 99) for number in range(_ROUNDS)}
    assert recorded(DeltaTables(url)).keys() == expected


def test_what_is_there_already_is_not_built_over(store: ObjectStore, url: str, tmp_path: Path) -> None:
    store.put(f"{url.removeprefix(f's3://{BUCKET}/')}/other.txt", b"somebody's")
    ended = kidx("build", golden.SAMPLES, "--index-dir", tmp_path / "index", "--catalog", url)
    assert ended.code == 2 and f"--catalog {url}: no catalog there, and it is not empty" in ended.err, ended
    assert DeltaTables(url).version(SEGMENTS) is None
