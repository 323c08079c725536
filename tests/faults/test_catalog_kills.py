"""`kidx build --catalog` is killed, or finds no room, or two run at once: the end is as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from kidxlib.catalog.tables import COMMIT_LOCK_FILE
from kidxlib.storage.packed import name_of
from tests.conftest import Say
from tests.faults.disks import mounted, remount
from tests.faults.processes import end, kidx, start_kidx, wait_for_end
from tests.faults.trees import link_samples, settings_of_waves
from tests.support.spark.jobs import Place, rows

#: Index files by name, and rows of `segments`.
State: TypeAlias = tuple[dict[str, bytes], list[dict[str, Any]]]
_COPIES: Final = 3
_KILLS, _KILLS_EXHAUSTIVE = 3, 50


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's partitions several times over, so that a build has many segments in several waves."""
    return link_samples(tmp_path_factory.mktemp("faults") / "kafka-logs", _COPIES)


@pytest.fixture(scope="module")
def settings(log_dir: Path) -> Path:
    return settings_of_waves(log_dir)


def _start(place: Place) -> subprocess.Popen[str]:
    return start_kidx("build", *place.arguments)


def _build(place: Place) -> None:
    ended = kidx("build", *place.arguments)
    assert ended.code == 0, ended


class PackedPlace(Place):
    """The place of a build that keeps its index files in the catalog."""

    def __init__(self, directory: Path, log_dir: Path, settings: Path) -> None:
        super().__init__(directory, log_dir, settings)
        self.arguments = (
            *("--source", f"broker={log_dir}", "--settings", settings),
            *("--pack", "--catalog", self.catalog, "--json"),
        )

    def state(self) -> State:
        """The rows of index files by their names, each once, and those of `segments`."""
        segments = rows(self.catalog, "SELECT * FROM segments ORDER BY topic, partition, base_offset")
        for row in segments:
            row["index_directory"] = row["index_directory"].partition("!/")[2]
            del row["build_id"]
        packed = rows(self.catalog, "SELECT * FROM index_bytes")
        files = {
            f"{row['topic']}-{row['partition']}/{name_of(row['base_offset'], row['kind'])}": row["content"]
            for row in packed
        }
        assert len(files) == len(packed)
        return files, segments


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, log_dir: Path, settings: Path) -> tuple[State, float]:
    """What a build leaves when nothing happens to it, and how long it takes."""
    place = Place(tmp_path_factory.mktemp("undisturbed"), log_dir, settings)
    begin = time.monotonic()
    assert end(_start(place)).code == 0
    return place.state(), time.monotonic() - begin


def test_a_build_killed_at_any_moment_is_finished_by_the_next_one(
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[State, float],
    rng: random.Random,
    say: Say,
    exhaustive: bool,
) -> None:
    """Kill -9 of the command and its processes, from its start to when it would have ended."""
    expected, seconds = undisturbed
    left: Counter[str] = Counter()
    for number in range(_KILLS_EXHAUSTIVE if exhaustive else _KILLS):
        place = Place(tmp_path / str(number), log_dir, settings)
        job = _start(place)
        wait_for_end(job.pid, rng.uniform(0.2, seconds))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        tables = sum(any(log.glob("*.json")) for log in place.catalog.glob("*/_delta_log"))
        left[f"{'killed' if job.returncode else 'ended'}, {tables} tables"] += 1
        _build(place)
        assert place.state() == expected
    say("; ".join(f"{what}: {times}" for what, times in left.most_common()))


def test_a_build_killed_as_it_packs_is_finished_by_the_next_one(
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[State, float],
    rng: random.Random,
    say: Say,
    exhaustive: bool,
) -> None:
    """Kill -9 at any moment, and right after each of the first commits of `index_bytes`, before their segments have
    rows. The next build leaves the bytes that one without --pack writes as files, each once.
    """
    (files, segments), seconds = undisturbed
    left: Counter[str] = Counter()
    for number in range(_KILLS_EXHAUSTIVE if exhaustive else _KILLS):
        place = PackedPlace(tmp_path / str(number), log_dir, settings)
        log = place.catalog / "index_bytes" / "_delta_log"
        job = _start(place)
        if number % 3 == 0:
            wait_for_end(job.pid, rng.uniform(0.2, seconds))
        else:
            while job.poll() is None and not (log / f"{number % 3:020}.json").exists():
                time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        packed = sum(1 for _ in log.glob("*.json")) - 1
        left[f"{'killed' if job.returncode else 'ended'}, {max(packed, 0)} commits of index files"] += 1
        _build(place)
        found, of_segments = place.state()
        assert found == files
        places = [row.pop("index_directory") for row in of_segments]
        assert of_segments == [{k: v for k, v in row.items() if k != "index_directory"} for row in segments]
        assert len(places) == len(segments) and all(place.startswith("broker/") for place in places)
    say("; ".join(f"{what}: {times}" for what, times in left.most_common()))


def test_two_builds_at_once_lose_and_double_nothing(
    tmp_path: Path, log_dir: Path, settings: Path, undisturbed: tuple[State, float]
) -> None:
    """Into one index directory and one new catalog."""
    place = Place(tmp_path, log_dir, settings)
    both = [_start(place) for _ in range(2)]
    for process in both:
        out, err = process.communicate()
        assert process.returncode == 0, (out, err)
    assert place.state() == undisturbed[0]


def test_a_catalog_whose_disk_is_full_is_finished_once_it_has_room(
    tmp_path: Path, log_dir: Path, settings: Path, undisturbed: tuple[State, float]
) -> None:
    place = Place(tmp_path, log_dir, settings)
    with mounted(place.catalog, "tmpfs", "tmpfs", "size=64k"):
        for size in ("64k", "160k", "200k"):
            remount(place.catalog, f"size={size}")
            ended = kidx("build", *place.arguments)
            assert (ended.code, ended.out) == (1, ""), ended
            assert "No space left on device" in ended.err.splitlines()[-1] and "Traceback" not in ended.err, ended
            assert "panicked" not in ended.err, ended
        remount(place.catalog, "size=64m")
        _build(place)
        assert place.state() == undisturbed[0]


def test_a_catalog_that_cannot_be_written_is_read(tmp_path: Path, log_dir: Path, settings: Path) -> None:
    """By commands that record nothing: they take no lock for their look at its version."""
    place = Place(tmp_path, log_dir, settings)
    questions = tmp_path / "questions.csv"
    questions.write_text("topic,partition,offset\ntxn-mixed,0,5\n")
    with mounted(place.catalog, "tmpfs", "tmpfs", "size=64m"):
        _build(place)
        (place.catalog / COMMIT_LOCK_FILE).unlink()
        remount(place.catalog, "ro")
        of_catalog = ("--catalog", place.catalog)
        sought = kidx("seek", *of_catalog, "--queries", questions, "--output", tmp_path / "answers.csv")
        assert sought.code == 0 and "1 answers, 1 found" in sought.out, sought
        planned = kidx("compact", *of_catalog, "--interval-bytes", "65536")
        assert planned.code == 0 and "coarsen" in planned.out, planned
