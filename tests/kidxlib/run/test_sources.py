"""What is read where nobody says so: the sample for a first try, and never in place of something that was forgotten."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.build_index import build_index
from jobs.verify_index import verify_index
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.tables import BUILDS
from kidxlib.commands.build import build
from kidxlib.commands.compare import compare
from kidxlib.commands.report import report
from kidxlib.commands.retention import retention
from kidxlib.commands.verify import verify
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import Source
from kidxlib.run.settings import BuildSettings
from kidxlib.run.sources import (
    SAMPLE,
    chosen_sources,
    ensure_directories,
    ensure_sample_alone,
    list_sources,
    source_paths,
    sources_in_one_directory,
    sources_line,
    warn_of_other_names,
)
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.tables.delta_tables import DeltaTables
from tests.faults.trees import snapshot
from tests.jobs.archive import assert_refused
from tests.support.catalog import append_rows
from tests.support.logs.golden import SAMPLES
from tests.support.object_store import ObjectStore
from tests.support.spark.jobs import run_here

_ONE_LINE = "name the log dir to read with --source, or give --sample for the bundled one"


def test_the_sample_is_read_where_nothing_is_named_or_when_asked_for() -> None:
    assert chosen_sources((), sample=False, options={"--index-dir": None}, settings=BuildSettings()) == (SAMPLE,)
    own = BuildSettings(catalog="/mnt/catalog")
    assert chosen_sources((), sample=True, options={"--index-dir": "x"}, settings=own) == (SAMPLE,)
    assert sources_line((SAMPLE, Source("/x", Path("/x")))) == f"sample ({SAMPLE.path}), /x"


@pytest.mark.parametrize("asked_for", [True, False])
def test_where_the_sample_is_not_it_is_not_offered(
    asked_for: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a wheel, which has no `samples`."""
    monkeypatch.setattr("kidxlib.run.sources._SAMPLE_DIR", tmp_path / "samples")
    with pytest.raises(UsageError) as raised:
        chosen_sources((), sample=asked_for, options={}, settings=BuildSettings())
    assert str(raised.value) == (
        f"{'--sample' if asked_for else 'no --source'}: the sample comes with a checkout, and this kidx is not in one; "
        "name the log dir to read with --source"
    )
    with pytest.raises(UsageError, match=r"though --catalog is given: name the log dir to read with --source$"):
        chosen_sources((), sample=False, options={"--catalog": "c"}, settings=BuildSettings())


@pytest.mark.parametrize(
    "named",
    [("--index-dir", "index"), ("--catalog", "catalog"), ("--database", "kidx"), ("--settings", "kidx.toml")],
    ids=lambda named: named[0],
)
def test_who_names_a_place_and_no_source_is_asked_for_one(named: tuple[str, str], tmp_path: Path) -> None:
    """A build and an audit alike, in one line, before anything is made. Settings name places as options do."""
    option, name = named
    (tmp_path / "kidx.toml").write_text('[build]\ncatalog = "/mnt/catalog"\n')
    (tmp_path / "index").mkdir()
    (tmp_path / "catalog" / "segments" / "_delta_log").mkdir(parents=True)
    before = snapshot(tmp_path)
    value = name if option == "--database" else tmp_path / name
    given = "build.catalog in the settings" if option == "--settings" else option
    for job in (build_index, verify_index):
        assert_refused(run_here(job, option, value), f"no --source, though {given} is given: {_ONE_LINE}")
    assert snapshot(tmp_path) == before
    assert_refused(run_here(build_index, "--sample", "--source", tmp_path), "--sample and --source: give one of them")


def test_the_sample_does_not_come_among_other_sources_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where catalog and index dir are the defaults: somebody may work with them."""
    monkeypatch.chdir(tmp_path)
    catalog = tmp_path / "var" / "catalog"
    ensure_sample_alone(str(catalog))
    append_rows(catalog, PARTITIONS, {"source": "sample", "topic": "t"})
    ensure_sample_alone(str(catalog))
    append_rows(catalog, PARTITIONS, {"source": "orders", "topic": "t"})
    assert_refused(run_here(build_index), f"no --source, and the catalog {catalog} has orders: {_ONE_LINE}")


def test_a_broken_table_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "partitions" / "_delta_log").mkdir(parents=True)
    (tmp_path / "partitions" / "_delta_log" / f"{0:020d}.json").write_text("{")
    ensure_sample_alone(str(tmp_path))


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A catalog of two builds, the second of which found one source elsewhere."""
    place = tmp_path / "catalog"
    append_rows(
        place,
        BUILDS,
        _build(2, {"b1": str(tmp_path / "new"), "b2": str(tmp_path / "b2")}),
        _build(1, {"b1": str(tmp_path / "old")}),
    )
    return place


def _build(day: int, sources: dict[str, str]) -> dict[str, object]:
    started_at = datetime(2026, 11, day, tzinfo=UTC)
    return {"build_id": str(day), "started_at": started_at, "sources": list(sources.items())}


def test_the_last_build_says_where_a_source_is(catalog: Path, tmp_path: Path) -> None:
    paths = {"b1": str(tmp_path / "new"), "b2": str(tmp_path / "b2")}
    assert source_paths(DeltaTables(str(catalog))) == paths
    assert source_paths(DeltaTables(str(tmp_path / "nowhere"))) == {}


def test_a_name_alone_is_told_its_directory(catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = "no such directory; a source is given as DIR or NAME=DIR here"
    new = tmp_path / "new"
    assert _refused("b1", str(catalog)) == f"b1: {expected}, and the catalog has b1 in {new}: --source b1={new}"
    assert _refused("b3", str(catalog)) == f"b3: {expected}; the catalog has the sources b1, b2"
    assert _refused("b1", None) == _refused("b1", "nowhere") == _refused("b1", "hdfs://n/c") == f"b1: {expected}"
    (tmp_path / "b1").mkdir()
    ensure_directories(["b1", "b2=b2", "./b3", "s3://a/b"], str(catalog))


def _refused(text: str, catalog: str | None) -> str:
    with pytest.raises(UsageError) as raised:
        ensure_directories([text], catalog)
    return str(raised.value)


def test_a_second_name_of_a_directory_is_told(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    known = [Source("b1", new), Source("b2", new), Source("old", tmp_path / "old"), Source("x", tmp_path)]
    paths = source_paths(DeltaTables(str(catalog)))
    warn_of_other_names(known, paths)
    warn_of_other_names([Source("again", new)], {})
    assert capsys.readouterr().err == ""
    warn_of_other_names([Source("again", new)], paths)
    assert capsys.readouterr().err == (
        f"warning: {new}: the catalog has it as source b1, and this run records it as another one, again; "
        f"to go on with b1, give --source b1={new}\n"
    )


def test_commands_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build and an audit alike; a build of the same name says nothing."""
    monkeypatch.chdir(tmp_path)
    log_dir, places = SAMPLES / "plain-zstd-0", ("--index-dir", "index", "--catalog", "catalog")
    for _ in range(2):
        ended = run_here(build, "--source", f"b1={log_dir}", *places)
        assert ended.code == 0 and "warning:" not in ended.err, ended
    for command, options in ((verify, ("--catalog", "catalog")), (build, places)):
        ended = run_here(command, "--source", "b1", *options)
        assert ended.code == 2 and f"the catalog has b1 in {log_dir}: --source b1={log_dir}\n" in ended.err, ended
        assert "the catalog has it as source b1" in run_here(command, log_dir, *options).err


def test_one_directory_under_two_names_counts_once(tmp_path: Path) -> None:
    """Brokers of two machines may have the same path: only where both have the very same log it counts twice."""
    log_dir, catalog = tmp_path / "log-dir", tmp_path / "catalog"
    shutil.copytree(SAMPLES / "plain-zstd-0", log_dir / "plain-zstd-0")
    for name in ("a", "c"):
        assert run_here(build, "--source", f"{name}={log_dir}", *_places(tmp_path, name)).code == 0
    shutil.move(log_dir, tmp_path / "of-another-machine")
    shutil.copytree(SAMPLES / "plain-zstd-0", log_dir / "plain-zstd-0")
    assert run_here(build, "--source", f"other={log_dir}", *_places(tmp_path, "other")).code == 0
    (found,) = sources_in_one_directory(DeltaTables(str(catalog)), ["a", "c", "other"])
    assert str(found) == f"sources a and c are one directory, {log_dir}"

    planned = run_here(retention, "--catalog", catalog)
    assert planned.code == 2 and f"{found}: its segments would be planned twice; choose one of them" in planned.err
    assert run_here(retention, "--catalog", catalog, "--source", "c", "--source", "other").code == 0
    compared = run_here(compare, "a", "c", "--catalog", catalog, "--as", "replica")
    assert compared.code == 2 and f"{found}: it is on both sides" in compared.err
    reported = run_here(report, "--catalog", catalog, "--output", tmp_path / "page.html")
    assert reported.code == 3
    assert f"bad: 1 source there under another name: a and c are {log_dir}: this report counts it twice" in reported.out


def test_stores_are_listed_side_by_side(store: ObjectStore, tmp_path: Path) -> None:
    """A store that does not answer keeps each question waiting: none waits for another. Nobody mounts a bucket."""
    log_dir = ObjectPath.of(store.upload(SAMPLES / "plain-zstd-0", "log-dir/plain-zstd-0")).parent
    sources = [Source("here", log_dir), Source("nowhere", log_dir / "nothing"), Source("refused", log_dir / "refused")]
    store.gather(3, lambda method, key: method == "GET")
    whys = ["no object is there: is that its bucket and prefix?"] * 2
    assert _seen(sources) == ({"here": {TopicPartition("plain-zstd", 0)}}, whys)
    store.before = lambda method, key: 403
    refused = _seen(sources[:1])
    assert refused[0] == {} and re.fullmatch(r"cannot be listed here: .*ACCESS_DENIED.*\.", refused[1][0]), refused
    (tmp_path / "empty").mkdir()
    local = [Source("away", tmp_path / "away"), Source("empty", tmp_path / "empty")]
    why = "is the disk mounted?"
    assert _seen(local) == ({}, [f"cannot be listed here: {why}", f"nothing is in it: {why}"])


def _seen(sources: list[Source]) -> tuple[dict[str, set[TopicPartition]], list[str]]:
    seen = list_sources(sources)
    return {name: set(has) for name, has in seen.partitions.items()}, [each.why for each in seen.not_reached]


def _places(tmp_path: Path, name: str) -> tuple[str | Path, ...]:
    return "--index-dir", tmp_path / name, "--catalog", tmp_path / "catalog"
