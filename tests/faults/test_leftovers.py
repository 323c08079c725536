"""What killed runs leave: it goes an hour later, an export is taken up, and who lives keeps what it has staged."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.catalog.tables import COMMIT_LOCK_FILE
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.records.reader import Record
from kidxlib.storage.scratch import DEAD_AFTER, HEARTBEAT
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import (
    KIDX,
    again_if_too_late,
    end,
    kidx,
    kill_session,
    running_kidx,
    start_kidx,
    while_it_runs,
)
from tests.faults.trees import indexes, small_log, write_log
from tests.support.leftovers import age
from tests.support.logs import encoded

_BEATING_FAST: Final = f"""
from datetime import timedelta
from kidxlib.storage import scratch
scratch.PERIOD = timedelta(milliseconds=10)
{KIDX}
"""


@contextlib.contextmanager
def _held(catalog: Path) -> Iterator[None]:
    """Nobody commits to the catalog while the context lasts: runs wait, with all that they have staged."""
    catalog.mkdir(exist_ok=True)
    descriptor = os.open(catalog / COMMIT_LOCK_FILE, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _made(process: subprocess.Popen[str], place: Path, but: Path | None = None) -> Path:
    """The folder of a run, as soon as it has a heartbeat."""
    return while_it_runs(
        process, lambda: next((each.parent for each in place.glob(f"kidx-*/{HEARTBEAT}") if each.parent != but), None)
    )


def _make_old(folder: Path) -> int:
    """Make all of it look as if it was left twelve days ago; the heartbeat as it is then, in ns since the epoch."""
    for path in (*folder.rglob("*"), folder):
        with contextlib.suppress(FileNotFoundError):
            age(path, timedelta(days=12))
    age(folder / HEARTBEAT, timedelta(days=12))
    return (folder / HEARTBEAT).stat().st_mtime_ns


def test_a_run_of_twelve_days_keeps_its_folder_and_a_killed_one_loses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds that wait for a catalog whose lock the test holds; one is killed (-9), and everything that both have
    staged is made twelve days old, before another command sweeps.
    """
    log_dir, place, catalog = (tmp_path / name for name in ("kafka-logs", "temporary", "catalog"))
    write_log(log_dir / "topic-0", 0, small_log())
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    build = ("build", log_dir, "--index-dir", tmp_path / "index", "--catalog", catalog)
    sweeping = ("verify", log_dir, "--index-dir", tmp_path / "index", "--shutdown", "clean")
    with _held(catalog):
        killed = start_kidx(*build)
        folder_of_killed = _made(killed, place)
        kill_session(killed)
        killed.communicate()
        age(folder_of_killed / HEARTBEAT, DEAD_AFTER - timedelta(minutes=1))
        alive = start_kidx(*build, program=_BEATING_FAST)
        try:
            folder_of_alive = _made(alive, place, folder_of_killed)
            assert folder_of_killed.is_dir(), "it may live: its heartbeat is less than an hour old"
            _make_old(folder_of_killed)
            aged = _make_old(folder_of_alive)
            while_it_runs(alive, lambda: (folder_of_alive / HEARTBEAT).stat().st_mtime_ns > aged or None)
            (tmp_path / "index").mkdir(exist_ok=True)
            assert kidx(*sweeping).code == ExitCode.PROBLEMS_FOUND, "it has no index files as yet"
            assert folder_of_alive.is_dir() and not folder_of_killed.exists()
        except BaseException:
            kill_session(alive)
            raise
    ended = end(alive)
    assert ended.code == ExitCode.OK, ended
    assert len(indexes(tmp_path / "index")) == 2 and not list(place.glob(f"*/{HEARTBEAT}"))


_PARTITIONS = 6


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of 130 MiB, each a part of its own; the same file."""
    directory = tmp_path_factory.mktemp("kafka-logs")
    batch = encoded.batch_v2([Record(each, 1_700_000_000_000, b"key", bytes(20_000)) for each in range(50)])
    log = directory / "first"
    with log.open("wb") as file:
        for number in range(130 * 1024 * 1024 // len(batch)):
            file.write((50 * number).to_bytes(8) + batch[8:])
    for partition in range(_PARTITIONS):
        (directory / f"topic-{partition}").mkdir()
        os.link(log, directory / f"topic-{partition}" / segment_file(0, LOG_SUFFIX))
    log.unlink()
    return directory


@again_if_too_late
def test_a_killed_export_is_taken_up(log_dir: Path, tmp_path: Path) -> None:
    output = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    staging = output.with_name(f"{output.name}.kidx-export")
    arguments = ("export", log_dir, "--output", output, "--threads", "2")
    with running_kidx(*arguments) as running:
        first = while_it_runs(running.process, lambda: next(staging.glob("part-*.parquet"), None))
        kill_session(running.process)
    assert not output.exists()
    version = first.stat()
    ended = kidx(*arguments, "--json")
    assert ended.code == ExitCode.OK and ended.json["rows"] == read(log_dir, columns=["offset"]).read_all().num_rows
    kept = (output / first.name).stat()
    assert (kept.st_ino, kept.st_mtime_ns) == (version.st_ino, version.st_mtime_ns)
    parts = sorted(output.iterdir())
    assert [path.name for path in parts] == [f"part-{number:05}.parquet" for number in range(_PARTITIONS)]
    offsets = [pq.read_table(path, columns=["partition", "offset"]) for path in parts]
    expected = read(log_dir, columns=["partition", "offset"]).read_all()
    assert pa.concat_tables(offsets).equals(expected) and not staging.exists()
