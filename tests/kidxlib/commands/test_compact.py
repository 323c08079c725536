"""Compaction of a catalog: files and catalog agree, builds leave it, tables become smaller, and a kill is no harm."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from tests.faults import children
from tests.faults.processes import Child, run_child
from tests.jobs.archive import Archive, Copies, assert_refused
from tests.support.catalog import kept_catalog
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.spark.jobs import Ended, kidx_compact_here, kidx_tables_here, rows

_NOW: Final = datetime(2026, 12, 1, tzinfo=UTC)
_SPARSE: Final = 65536
#: Of the sample's 12 segments those that are not the last of their partition.
_INACTIVE: Final = 7
#: One of them has so few bytes that its indexes are the same at any interval.
_TINY: Final = 1


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The sample with an index directory; who compacts it takes a copy."""
    archive = Archive(tmp_path_factory.mktemp("compact") / "archive")
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    archive.build()
    return archive


@pytest.fixture(scope="module")
def copies(built: Archive) -> Copies:
    return Copies(built)


@pytest.fixture
def archive(copies: Copies) -> Archive:
    """As it was built."""
    copies.restore()
    return copies.archive


def _rows(archive: Archive) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["topic"], row["base_offset"]): row for row in rows(archive.catalog, "SELECT * FROM segments")}


def _intervals(archive: Archive) -> dict[tuple[str, int], tuple[int, str]]:
    return {key: (row["interval_bytes"], row["interval_source"]) for key, row in _rows(archive).items()}


def test_a_plan_writes_nothing_and_applying_it_does_what_it_says(archive: Archive) -> None:
    """Coarsened and back: the rows follow the files, the next build reads nothing, and 4096 brings every byte back."""
    before, rows_before = tree(archive.directory), _rows(archive)
    asked = ("--interval-bytes", str(_SPARSE), "--trim", "--orphans", "--now", _NOW.isoformat())
    plan = archive.compact(*asked)
    assert tree(archive.directory) == before
    assert (plan["applied"], plan["changed_count"], plan["kept_count"]) == (False, _INACTIVE - _TINY, 0)
    assert plan["unchanged_count"] == _TINY

    done = archive.compact(*asked, "--apply")
    assert {change["outcome"] for change in plan["changes"]} == {"planned", "unchanged"}
    as_planned = {"written": "planned", "unchanged": "unchanged"}
    assert [{**change, "outcome": as_planned[change["outcome"]]} for change in done["changes"]] == plan["changes"]
    for change in done["changes"]:
        row = _rows(archive)[change["topic"], change["base_offset"]]
        assert (row["interval_bytes"], row["interval_source"]) == (_SPARSE, "compaction")
        path = Path(change["path"])
        sizes = path.stat().st_size, path.with_suffix(TIME_INDEX_SUFFIX).stat().st_size
        assert sizes == (row["offset_index_bytes"], row["time_index_bytes"])
        assert sum(sizes) == change["bytes_after"]
        if change["outcome"] == "written":
            assert change["bytes_after"] < change["bytes_before"]
            assert change["mean_scan_bytes_before"] < change["mean_scan_bytes_after"] <= change["max_scan_bytes_after"]
        else:  # so small a segment that it has one entry in any case
            assert change["outcome"] == "unchanged" and change["bytes_after"] == change["bytes_before"]
    compacted = tree(archive.index_dir)
    assert archive.build().json["segments"] == 0
    assert archive.compact(*asked, "--apply")["changes"] == []
    assert tree(archive.index_dir) == compacted
    assert sum(change["outcome"] == "written" for change in done["changes"]) >= 4

    back = archive.compact("--interval-bytes", "4096", "--apply")
    assert {change["action"] for change in done["changes"]} == {"coarsen"}
    assert {change["action"] for change in back["changes"]} == {"densify"}
    index = {path: content for path, content in before.items() if path.startswith("index/")}
    assert {f"index/{path}": content for path, content in tree(archive.index_dir).items()} == index
    for key, row in _rows(archive).items():
        assert {name for name in row if row[name] != rows_before[key][name]} <= {"interval_source"}


def test_builds_and_compactions_in_turn_do_not_undo_each_other(archive: Archive, exhaustive: bool) -> None:
    """Once, ten times with --exhaustive, while a log grows by a segment each time: nothing is read but what is new,
    what was coarse stays coarse, and the segment before the new one, which is cold by now, becomes it.
    """
    directory = archive.log_dir / "txn-mixed-0"
    coarse: dict[tuple[str, int], tuple[int, str]] = {}
    last = max(int(path.stem) for path in directory.glob("*.log"))
    turns = 10 if exhaustive else 1
    for turn in range(turns):
        (directory / segment_file(last + 10**6 + turn, LOG_SUFFIX)).touch()
        built = archive.build().json
        assert built["segments"] == 1
        assert coarse.items() <= _intervals(archive).items()
        done = archive.compact("--interval-bytes", str(_SPARSE), "--apply")
        assert done["changed_count"] + done["unchanged_count"] == (_INACTIVE if turn == 0 else 0) + 1
        coarse = {key: found for key, found in _intervals(archive).items() if found == (_SPARSE, "compaction")}
        assert len(coarse) == _INACTIVE + turn + 1
    assert archive.build().json["segments"] == 0
    assert coarse.items() <= _intervals(archive).items()


def test_rules_by_topic_age_and_size(archive: Archive, tmp_path: Path) -> None:
    """The first rule that fits a segment decides."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        """
        [[rule]]
        match = "compacted"
        older.than = "100d"
        index.interval.bytes = 1048576

        [[rule]]
        larger.than = 500000
        index.interval.bytes = 32768
        """
    )
    plan = archive.compact("--policy", policy, "--now", _NOW.isoformat())
    found = {(change["topic"], change["base_offset"]): change["interval_bytes"] for change in plan["changes"]}
    logs = _rows(archive)
    age = timedelta(days=100) / timedelta(milliseconds=1)
    now_ms = _NOW.timestamp() * 1000
    expected = {
        (topic, base): 1048576 if topic == "compacted" and now_ms - row["max_timestamp_ms"] >= age else 32768
        for (topic, base), row in logs.items()
        if not row["active"]
        and (row["log_bytes"] > 500000 or (topic == "compacted" and now_ms - row["max_timestamp_ms"] >= age))
    }
    assert found == expected and len(set(expected.values())) == 2


def test_a_log_dir_that_is_in_use_is_left_alone(archive: Archive) -> None:
    """To trim a preallocated file there takes the lock that a broker holds; one in the index directory does not."""
    directory = archive.log_dir / "compacted-0"
    padded = directory / segment_file(0, OFFSET_INDEX_SUFFIX)
    padded.write_bytes((archive.index_dir / "compacted-0" / padded.name).read_bytes() + bytes(8000))
    left = archive.index_dir / "compacted-0" / segment_file(3, OFFSET_INDEX_SUFFIX)
    left.write_bytes(b"left")
    before = tree(archive.directory)
    with Child(children.hold_lock, archive.log_dir / ".lock") as holder:
        assert holder.received.recv() == "held"
        refused = kidx_compact_here("--catalog", archive.catalog, "--trim", "--apply", "--json")
        assert_refused(refused, f"{archive.log_dir}/.lock: held by another process")
        assert {path for path in tree(archive.directory).items() ^ before.items() if ".lock" not in path[0]} == set()
        archive.compact("--orphans", "--apply")
        assert not left.exists()
    (change,) = archive.compact("--trim", "--apply")["changes"]
    assert (change["action"], change["outcome"], change["bytes_after"]) == ("trim", "written", padded.stat().st_size)
    assert padded.read_bytes() == (archive.index_dir / "compacted-0" / padded.name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to do; give --trim, --orphans, --tables, --interval-bytes, or a --policy"),
        (("--older-than", "7d", "--trim"), "--older-than: give --interval-bytes too"),
        (("--interval-bytes", "65536", "--older-than", "7"), "'7' is not a duration"),
        (("--interval-bytes", "65536", "--policy", "x.toml"), "--policy and --interval-bytes"),
        (("--policy", "x.toml"), "x.toml: cannot read the policies"),
        (("--delete-delay", "1h", "--trim"), "--delete-delay: only --orphans uses it"),
        (("--trim", "--source", "nobody"), "--source nobody: no segment in the catalog; there are: it"),
        (("--trim", "--topics", "nothing"), "no segment of a topic that matches nothing"),
        (("--trim", "--catalog", "/nowhere/at/all"), "--catalog /nowhere/at/all: no catalog there"),
    ],
)
def test_wrong_options_are_one_line(arguments: tuple[str, ...], message: str, copies: Copies) -> None:
    catalog = () if "--catalog" in arguments else ("--catalog", copies.archive.catalog)
    assert_refused(kidx_compact_here(*catalog, *arguments, "--json"), message)


@pytest.mark.parametrize("run", [kidx_compact_here, kidx_tables_here])
def test_a_catalog_of_an_older_release_is_refused(run: Callable[..., Ended], tmp_path: Path) -> None:
    ended = run("--catalog", kept_catalog(6, tmp_path), *(["--trim"] if run is kidx_compact_here else []))
    assert (ended.code, ended.out) == (1, "")
    assert "made by an older release" in ended.err and "run ./spark-submit.sh build_index once" in ended.err


def test_tables_are_optimized_expired_and_vacuumed(archive: Archive, tmp_path: Path) -> None:
    """Builds have left many files: after, there are fewer; what is of a topic that is gone goes, and old builds but for
    those that something refers to; so do old files that no version needs. Who reads an earlier version still can.
    """
    directory = archive.log_dir / "txn-mixed-0"
    (directory / segment_file(10**6, LOG_SUFFIX)).touch()
    archive.build()
    for turn in range(2):  # rows that are added alone get files of their own
        shutil.copytree(archive.log_dir / "compacted-0", archive.log_dir / f"more.{turn}-0")
        archive.build()
    archive.build()  # finds nothing, so that nothing refers to it
    shutil.rmtree(archive.log_dir / "append-time-0")  # all of a topic is gone
    archive.build()
    table = DeltaTable(archive.catalog / "segments")
    reader, count = table.to_pyarrow_dataset(), len(_rows(archive))
    month_ago = (datetime.now(UTC) - timedelta(days=30)).timestamp()  # Delta goes by the files' times, and by the clock
    strays = [archive.catalog / "segments" / f"of-a-killed-commit-{age}.parquet" for age in ("old", "young")]
    for stray in strays:
        stray.write_bytes(b"never committed")
    os.utime(strays[0], (month_ago, month_ago))
    policy = tmp_path / "policy.toml"
    policy.write_text("[tables]\nbuilds.older.than = '1d'\ngone.segments.older.than = '1d'\n")
    in_future = archive.compact("--tables", "--policy", policy, "--now", "2099-01-01T00:00Z")
    assert {found["expired_rows"] for found in in_future["tables"]} == {0}, "rows expire by the clock"
    policy.write_text("[tables]\nbuilds.older.than = '1ms'\ngone.segments.older.than = '1ms'\n")
    asked = ("--tables", "--policy", policy)
    before = tree(archive.catalog)
    plan = {found["table"]: found for found in archive.compact(*asked)["tables"]}
    assert tree(archive.catalog) == before
    done = {found["table"]: found for found in archive.compact(*asked, "--apply")["tables"]}
    for name, found in plan.items():
        assert found["after"] is None
        assert (found["before"], found["expired_rows"]) == (done[name]["before"], done[name]["expired_rows"])
    segments = done["segments"]
    assert segments["before"]["files"] > segments["after"]["files"] >= 1
    assert segments["expired_rows"] == 1 and len(_rows(archive)) == count - 1
    assert ("append-time", 0) not in _rows(archive)
    assert {found["table"]: found["vacuumed_files"] for found in plan.values()} == {
        **dict.fromkeys(plan, 0),
        "segments": 1,
    }
    assert [stray.exists() for stray in strays] == [False, True]
    assert done["builds"]["expired_rows"] == 1
    kept = {row["build_id"] for row in rows(archive.catalog, "SELECT build_id FROM builds")}
    assert {row["build_id"] for row in _rows(archive).values()} <= kept
    assert reader.count_rows() == count
    again = {found["table"]: found for found in archive.compact(*asked, "--apply")["tables"]}
    assert all(found["expired_rows"] == 0 for found in again.values())
    assert again["segments"]["before"] == again["segments"]["after"] == segments["after"]
    assert archive.build().json["segments"] == 0


def test_a_run_that_is_killed_is_finished_by_the_next(
    archive: Archive, copies: Copies, rng: random.Random, exhaustive: bool
) -> None:
    """Kill -9 just before one of the steps that it does to files, twice, or thirty times with --exhaustive."""
    asked = ["compact", "--catalog", str(archive.catalog), "--interval-bytes", str(_SPARSE), "--orphans", "--apply"]
    before = tree(archive.index_dir)
    *_, steps = run_child(children.run_kidx_until_step, asked, None)
    after, rows_after = tree(archive.index_dir), _rows(archive)
    assert after != before
    for _ in range(30 if exhaustive else 2):
        copies.restore()
        with Child(children.run_kidx_until_step, asked, rng.randrange(steps)) as child:
            _, code = child.end()
        assert code == -signal.SIGKILL
        for path, content in tree(archive.index_dir).items():
            assert Path(path).name.startswith(".kidx-") or content in (before[path], after[path])
        archive.compact(*asked[3:])
        found = {path: content for path, content in tree(archive.index_dir).items() if ".kidx-" not in path}
        assert (found, _rows(archive)) == (after, rows_after)
