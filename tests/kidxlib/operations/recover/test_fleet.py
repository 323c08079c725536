"""What a catalog says of the next starts of its sources is what `kidx recover` says beside their disks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT, clean_shutdown, offset_checkpoint
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.cluster_metadata import write_checkpoints
from tests.support.logs import golden
from tests.support.report_fleet import run_kidx
from tests.support.spark.jobs import kidx_here

_RATES: Final = ("--broker-rate", "100kB", "--kidx-rate", "1MB", "--recovery-threads", "3")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log dirs of three brokers, and a catalog of them: of one nothing is flushed, of one something, and one has
    stopped cleanly.
    """
    site = tmp_path_factory.mktemp("fleet")
    for number, name in enumerate(("new", "old", "clean")):
        log_dir = site / name
        shutil.copytree(golden.SAMPLES, log_dir)
        (log_dir / META_PROPERTIES).write_text(f"version=1\nnode.id={number}\ncluster.id=c\n")
        write_checkpoints(log_dir)
        run_kidx("build", str(log_dir), "--in-place", codes=(0, 3))
    points = {
        partition: int(max(directory.glob("*.log")).stem) // 2
        for directory in sorted((site / "old").iterdir())
        if (partition := parse_partition_directory(directory.name)) is not None
    }
    (site / "old" / RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(points))
    (site / "clean" / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    sources = [part for name in ("new", "old", "clean") for part in ("--source", f"{name}={site / name}")]
    index = ("--index-dir", str(site / "index"), "--catalog", str(site / "catalog"))
    run_kidx("build", *sources, *index, codes=(0, 3))
    return site


def _forecast(site: Path, *options: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(
        run_kidx("fleet", "--catalog", str(site / "catalog"), "--json", *_RATES, *options)
    )
    return said


def test_each_source_is_told_as_beside_its_disks(fleet: Path) -> None:
    said = _forecast(fleet)
    assert said["stopped_cleanly"] == ["clean"]
    assert {each["source"] for each in said["sources"]} == {"new", "old"}
    for each in said["sources"]:
        log_dir = fleet / each["source"]
        plan = kidx_here("recover", log_dir, "--json").json
        assert each["log_bytes"] == plan["start_bytes"] > each["last_bytes"]
        assert each["partitions"] == len(plan["partitions"])
        last_logs = [max(Path(of["directory"]).glob("*.log")) for of in plan["partitions"]]
        assert each["last_bytes"] == sum(log.stat().st_size for log in last_logs)


def test_seconds_follow_from_the_rates(fleet: Path) -> None:
    """The largest partition is one thread's, so a broker takes as long as that at least."""
    said = _forecast(fleet)
    [new] = [each for each in said["sources"] if each["source"] == "new"]
    bytes_of = {
        directory: sum(log.stat().st_size for log in directory.glob("*.log"))
        for directory in (fleet / "new").iterdir()
        if directory.is_dir() and not directory.name.startswith("__cluster_metadata")
    }
    last = {directory: max(directory.glob("*.log")).stat().st_size for directory in bytes_of}
    alone = max(sum(bytes_of.values()) / 3, max(bytes_of.values())) / 100_000
    again = max(sum(last.values()) / 3, max(last.values())) / 100_000
    marker = sum(bytes_of.values()) / 1_000_000
    assert new["seconds_alone"] == pytest.approx(alone)
    assert new["seconds_checkpoint"] == pytest.approx(marker + again)
    assert new["seconds_marker"] == pytest.approx(marker)
    alone_of = [each["seconds_alone"] for each in said["sources"]]
    assert alone_of == sorted(alone_of, reverse=True)


def test_the_table_names_all_sources(fleet: Path) -> None:
    said = run_kidx("fleet", "--catalog", str(fleet / "catalog"), *_RATES)
    assert "stopped cleanly, so nothing is recovered: clean" in said
    assert all(f"│ {name} " in said for name in ("new", "old"))


@pytest.mark.parametrize(("is_empty", "why"), [(False, "cannot be listed here"), (True, "nothing is in it")])
def test_a_source_that_nobody_can_look_at(fleet: Path, why: str, *, is_empty: bool) -> None:
    """What the catalog has of it is said, and that it may be long past."""
    away = (fleet / "clean").rename(fleet / "away")
    if is_empty:
        (fleet / "clean").mkdir()
    try:
        ended = kidx_here("fleet", "--catalog", fleet / "catalog", *_RATES)
        told = f"source clean ({fleet}/clean): {why}: is the disk mounted?"
        assert ended.code == ExitCode.PROBLEMS_FOUND and told in ended.out, ended
        assert "so nothing is recovered" not in ended.out and "nobody has looked since: clean" in ended.out
    finally:
        if is_empty:
            (fleet / "clean").rmdir()
        away.rename(fleet / "clean")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("fleet", "--catalog", "catalog", "--kidx-rate", "0"), "--kidx-rate 0: expected a byte"),
        (("recover", "logs", "--kidx-rate", "1MB"), "No such option '--kidx-rate'"),
        (("recover", "logs", "--catalog", "catalog"), "unexpected extra argument (logs)"),
        (("recover",), "LOG_DIR"),
    ],
)
def test_what_does_not_go_together(arguments: tuple[str, ...], line: str) -> None:
    ended = kidx_here(*arguments)
    errors = [each for each in ended.err.splitlines() if not each.startswith("warning: recover --catalog is now ")]
    assert ended.code == ExitCode.USAGE and len(errors) == 1 and line in errors[0], ended
