"""The build job or a part of it is killed, or two run at the same time: the end is as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kidxlib.run.context import STAGING
from kidxlib.storage.scratch import DEAD_AFTER, HEARTBEAT
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.disks import mounted, remount
from tests.faults.processes import (
    Running,
    TooLateError,
    again_if_too_late,
    kidx,
    kill_session,
    wait_for_end,
    while_it_runs,
)
from tests.faults.trees import (
    in_memory,
    indexes,
    link_samples,
    settings_of_waves,
    slow_log,
    small_log,
    staging_files,
    write_log,
)
from tests.support.leftovers import age
from tests.support.opened_files import OpenedFiles
from tests.support.spark.cluster import processes_of, without_tracebacks_of_daemons, worker
from tests.support.spark.jobs import Place, build, start
from tests.support.terminal import without_progress

COPIES = 3
#: Checking a log of this size takes some tenths of a second, and so time enough to do something meanwhile.
SLOW = 1 << 30
PAGE = 4096
#: No step of a job on Spark takes as long; what does, hangs.
DEADLINE_SECONDS = 300.0


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's partitions several times over, so that a build has many segments in several waves."""
    return link_samples(tmp_path_factory.mktemp("faults") / "kafka-logs", COPIES)


@pytest.fixture(scope="module")
def settings(log_dir: Path) -> Path:
    return settings_of_waves(log_dir)


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, log_dir: Path, settings: Path
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """What a build leaves when nothing happens to it."""
    place = Place(tmp_path_factory.mktemp("undisturbed"), log_dir, settings)
    ended = build(*place.arguments)
    assert ended.code == 0, ended.err
    assert ended.json["waves"] >= 3
    return place.state()


def driver(job: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, _, command in processes_of(job) if "-m jobs.build_index" in command]


def jvm(job: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, _, command in processes_of(job) if "org.apache.spark.deploy.SparkSubmit" in command]


def seconds_of_a_build(place: Place) -> float:
    """How long it takes when nothing happens to it."""
    start_at = time.monotonic()
    assert build(*place.arguments).code == ExitCode.OK
    return time.monotonic() - start_at


def kill_one(job: subprocess.Popen[str], find: Callable[[subprocess.Popen[str]], list[int]]) -> bool:
    """Kill the first such process as soon as there is one; False where the job ends without."""
    while job.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            for pid in find(job):
                os.kill(pid, signal.SIGKILL)
                return True
        wait_for_end(job.pid, 0.01)
    return False


_COVERED = pytest.mark.exhaustive("takes two minutes; a driver is killed in any case")


@pytest.mark.parametrize(
    "victim",
    [driver, pytest.param(jvm, marks=_COVERED), pytest.param(worker, marks=_COVERED)],
    ids=lambda victim: str(victim.__name__),
)
def test_a_build_killed_after_some_waves_is_finished_by_the_next_one(
    victim: Callable[[subprocess.Popen[str]], list[int]],
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]],
) -> None:
    """Kill -9 once a wave is recorded: what is under a final name is whole, finished waves are not read again. What the
    run has staged stays for an hour, as it may live.
    """
    files, expected_rows = undisturbed
    place = Place(tmp_path, log_dir, settings)
    job = start(*place.arguments)
    segments = place.catalog / "segments"
    while job.poll() is None and not (DeltaTable.is_deltatable(str(segments)) and DeltaTable(segments).version() >= 1):
        wait_for_end(job.pid, 0.01)
    assert kill_one(job, victim), job.communicate()
    _, messages = job.communicate()
    # A lost worker costs one attempt of one task; a lost driver or JVM is the end of this run.
    assert (job.returncode == 0) == (victim is worker), messages
    assert ("error: Spark's JVM has ended during the job." in messages) == (victim is jvm), messages

    found = {str(path.relative_to(place.index_dir)): path for path in place.index_dir.rglob("*.*index")}
    assert {name: path.read_bytes() for name, path in found.items() if not path.name.startswith(".")} == {
        name: files[name] for name, path in found.items() if not path.name.startswith(".")
    }
    recorded = place.recorded()
    with OpenedFiles(log_dir.iterdir()) as opened:
        again = build(*place.arguments)
    assert again.code == 0, again.err
    assert recorded and not recorded & {str(path) for path in opened.logs()}
    assert place.state() == (files, expected_rows)

    left = list((place.catalog / STAGING).iterdir())
    assert [path / HEARTBEAT for path in left if (path / HEARTBEAT).is_file()] == [path / HEARTBEAT for path in left]
    assert len(left) == (victim is driver)
    for path in left:
        age(path / HEARTBEAT, DEAD_AFTER + timedelta(minutes=1))
    assert kidx("build", *place.arguments).code == ExitCode.OK
    assert list((place.catalog / STAGING).iterdir()) == []


def test_workers_that_end_at_each_attempt_are_one_line(tmp_path: Path, log_dir: Path, settings: Path) -> None:
    """Kill -9 of each Python worker there is, until the job gives up."""
    place = Place(tmp_path, log_dir, settings)
    job = start(*place.arguments)
    while kill_one(job, worker):
        pass
    out, messages = job.communicate()
    assert (job.returncode, out) == (ExitCode.FAILED, ""), messages
    assert messages.splitlines()[-1].startswith("error: a Python worker has ended at each attempt at a task"), messages
    assert "Traceback" not in without_tracebacks_of_daemons(messages), messages


@pytest.mark.exhaustive("takes a minute; tests/faults/test_catalog_kills.py kills kidx that makes tables")
@again_if_too_late
def test_a_build_killed_while_it_makes_its_tables_is_finished_by_the_next_one(
    tmp_path: Path, log_dir: Path, undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]]
) -> None:
    """Kill -9 of the JVM once a table has a log directory, and before all have a commit: Delta makes no table there."""
    directory = Path(tempfile.mkdtemp(dir=tmp_path))
    place = Place(directory, log_dir)
    mounted = f"spark.hadoop.fs.viewfs.mounttable.nodes.link./data=file://{directory}"
    by_spark = [
        *(f"viewfs://nodes/data/{place.catalog.name}" if each == place.catalog else each for each in place.arguments),
        *("--", "--conf", mounted),
    ]
    job = start(*by_spark)
    begun = place.catalog / "builds" / "_delta_log"
    java = while_it_runs(job, lambda: next(iter(jvm(job)), None), DEADLINE_SECONDS)  # to look for it takes a while
    while job.poll() is None and not begun.is_dir():
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.001)
    assert job.returncode is None, job.communicate()
    os.kill(java, signal.SIGKILL)
    _, messages = job.communicate()
    assert messages.splitlines()[-1].startswith("error: Spark's JVM has ended during the job."), messages
    if all(any(log.glob("*.json")) for log in place.catalog.glob("*/_delta_log")):
        raise TooLateError(messages)

    again = build(*by_spark)
    assert again.code == 0 and "removed, left by a run that ended while it made this table" in again.err, again
    assert place.state() == undisturbed


@pytest.mark.exhaustive("takes a quarter of an hour")
def test_a_build_killed_at_any_moment_is_finished_by_the_next_one(
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]],
    rng: random.Random,
    say: Say,
) -> None:
    """Kill -9 of the JVM, 20 times, from when the job has planned to when it would have ended."""
    seconds = seconds_of_a_build(Place(tmp_path / "whole", log_dir, settings))
    left: Counter[str] = Counter()
    for number in range(20):
        place = Place(tmp_path / str(number), log_dir, settings)
        job = start(*place.arguments)
        wait_for_end(job.pid, rng.uniform(2, seconds))
        killed = kill_one(job, jvm)
        _, messages = job.communicate()
        logs = [any(log.glob("*.json")) for log in place.catalog.glob("*/_delta_log")]
        left[f"{'killed' if killed else 'ended'}, {sum(logs)} tables, {len(logs) - sum(logs)} begun"] += 1

        again = build(*place.arguments)
        assert again.code == ExitCode.OK, (messages, again)
        assert place.state() == undisturbed, messages
    say("; ".join(f"{what}: {times}" for what, times in left.most_common()))


@pytest.mark.exhaustive("takes a quarter of an hour")
def test_a_build_interrupted_at_any_moment_says_so_in_one_line(
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]],
    rng: random.Random,
    say: Say,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGINT to all processes or SIGTERM to the job, 20 times, from its start to when it would have ended; some get a
    second signal. No trace of a stack, no temporary file, and the same command again ends as if nothing had happened.
    """
    seconds = seconds_of_a_build(Place(tmp_path / "whole", log_dir, settings))
    seen: Counter[str] = Counter()
    for number in range(20):
        place = Place(tmp_path / str(number), log_dir, settings)
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        monkeypatch.setenv("TMPDIR", str(scratch))
        job = start(*place.arguments)
        wait_for_end(job.pid, rng.uniform(0, seconds))
        by_terminal, twice = rng.random() < 0.5, rng.random() < 0.2
        recorded = place.recorded()
        with contextlib.suppress(ProcessLookupError):  # the job has ended
            if by_terminal:
                os.killpg(job.pid, signal.SIGINT)
            else:
                job.terminate()
            if twice:
                wait_for_end(job.pid, 1.0)
                job.send_signal(signal.SIGINT if by_terminal else signal.SIGTERM)
        out, messages = job.communicate(timeout=DEADLINE_SECONDS)
        monkeypatch.delenv("TMPDIR")
        ended = "in time" if job.returncode == ExitCode.OK else without_progress(messages).splitlines()[-1]
        if job.returncode != ExitCode.OK:
            # Before Python has begun it is the shell that a signal ends.
            codes = (ExitCode.INTERRUPTED, -signal.SIGINT) if by_terminal else (ExitCode.TERMINATED, -signal.SIGTERM)
            assert (job.returncode in codes, out) == (True, ""), messages
            assert job.returncode < 0 or ended.startswith("error: interrupted"), messages
            assert "Traceback" not in without_tracebacks_of_daemons(messages) and "\tat " not in messages, messages
            assert recorded <= place.recorded()
        assert list(processes_of(job)) == [], messages
        assert twice or list(scratch.iterdir()) == [], messages
        assert twice or staging_files(place.index_dir) == [], messages
        seen[re.sub("[0-9]+", "N", ended)] += 1

        again = build(*place.arguments)
        assert again.code == ExitCode.OK, (messages, again)
        assert place.state() == undisturbed, messages
    say("; ".join(f"{what}: {times}" for what, times in seen.most_common()))


@pytest.mark.exhaustive(
    "takes a minute; tests/faults/test_catalog_kills.py gives kidx no room, and a job commits alike"
)
def test_a_catalog_whose_disk_is_full_is_finished_once_it_has_room(
    tmp_path: Path, log_dir: Path, settings: Path, undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]]
) -> None:
    place = Place(tmp_path, log_dir, settings)
    with mounted(place.catalog, "tmpfs", "tmpfs", "size=64k"):
        for size in ("64k", "200k"):
            remount(place.catalog, f"size={size}")
            ended = build(*place.arguments)
            assert (ended.code, ended.out) == (ExitCode.FAILED, ""), ended
            assert re.fullmatch("error: .*No space left on device.*", ended.err.splitlines()[-1]), ended
            assert "Traceback" not in without_tracebacks_of_daemons(ended.err), ended
        remount(place.catalog, "size=64m")
        ended = build(*place.arguments)
        assert ended.code == ExitCode.OK, ended
        assert place.state() == undisturbed


def test_a_catalog_that_cannot_be_made_is_one_line(tmp_path: Path, log_dir: Path) -> None:
    ended = build("--source", log_dir, "--index-dir", tmp_path / "index", "--catalog", "/proc/kidx")
    assert (ended.code, ended.out) == (ExitCode.FAILED, ""), ended
    assert ended.err.splitlines()[-1].startswith(
        "error: /proc/kidx: cannot be made or opened: No such file or directory;"
    )
    assert "Traceback" not in without_tracebacks_of_daemons(ended.err) and not (tmp_path / "index").exists(), ended


@pytest.mark.exhaustive("takes minutes; tests/jobs/build/test_engines.py has a job and kidx write at once")
def test_two_builds_at_once_on_one_catalog_lose_and_double_nothing(
    tmp_path: Path, log_dir: Path, settings: Path, undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]]
) -> None:
    for number in range(10):
        place = Place(tmp_path / str(number), log_dir, settings)
        jobs = [start(*place.arguments) for _ in range(2)]
        ended = [(*job.communicate(), job.returncode) for job in jobs]
        assert [code for _, _, code in ended] == [0, 0], ended
        assert place.state() == undisturbed


def slow_place(tmp_path: Path) -> tuple[Place, Path]:
    """Four segments, and the log of the first: one long sound batch, which takes a moment to be checked."""
    directory = Path(tempfile.mkdtemp(dir=tmp_path))
    log_dir, place = directory / "kafka-logs", Place(directory, directory / "kafka-logs")
    log = slow_log(log_dir / "topic-0", 0, SLOW, small_log(100))
    for name, base_offset in (("topic-0", 100), ("fine-0", 0), ("fine-1", 0)):
        write_log(log_dir / name, base_offset, small_log(base_offset=base_offset))
    return place, log


@contextlib.contextmanager
def disturbed(log: Path, *arguments: str | Path) -> Iterator[Running]:
    with in_memory(log), start(*arguments) as job:
        try:
            yield Running(job, worker, DEADLINE_SECONDS)
        finally:
            kill_session(job)


def failed_attempts(event_logs: Path) -> list[tuple[int, str]]:
    """The attempts at a task that Spark's own log says have failed: the attempt's number, and why."""
    events = [json.loads(line) for path in event_logs.iterdir() for line in path.read_text().splitlines()]
    return [
        (event["Task Info"]["Attempt"], event["Task End Reason"]["Description"])
        for event in events
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] != "Success"
    ]


@pytest.mark.exhaustive("takes a driver of its own; tests/faults does the same to kidx, and below workers end, too")
@again_if_too_late
def test_a_mapped_log_that_shrinks_costs_one_attempt_which_is_made_again_without_mapping(tmp_path: Path) -> None:
    """A worker dies of SIGBUS: the task's next attempt reads in chunks, and the log is indexed as it is by then.

    The log is one long sound batch and a page of zeros after it, which goes while the worker that has mapped the log
    is stopped and has not come that far.
    """
    place, log = slow_place(tmp_path)
    event_logs = place.catalog.with_name("events")
    event_logs.mkdir()
    os.truncate(log, SLOW + PAGE)
    options = {"enabled": "true", "dir": event_logs.as_uri(), "compress": "false", "rolling.enabled": "false"}
    confs = [word for name, value in options.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]

    with disturbed(log, *place.arguments, "--", *confs) as running:
        with running.stopped_within(log) as victim:
            os.truncate(log, SLOW)
        running.killed(victim)
        assert running.reading(log) != victim
        out, messages = running.process.communicate(timeout=DEADLINE_SECONDS)

    found = {(row["topic"], row["partition"], row["base_offset"]): row for row in place.state()[1]}
    truncated = found["topic", 0, 0]
    if truncated["status"] != "ok":
        raise TooLateError(truncated)
    ((attempt, why),) = failed_attempts(event_logs)
    assert (attempt, "Python worker exited unexpectedly" in why) == (0, True), why
    assert running.process.returncode == 0 and "Traceback" not in without_tracebacks_of_daemons(messages), messages
    assert (truncated["log_bytes"], truncated["valid_bytes"], truncated["batches"]) == (SLOW, SLOW, 101)
    assert json.loads(out)["by_status"] == {"ok": len(found)} == {"ok": 4}
    again = place.catalog.with_name("again")
    assert kidx("build", log.parent.parent, "--index-dir", again).code == 0
    assert indexes(place.index_dir) == indexes(again) and len(indexes(place.index_dir)) == 8


@again_if_too_late
def test_an_interrupted_build_records_what_was_read_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """SIGINT to all processes, as a terminal sends it, while the only worker stands amid the first segment."""
    place, log = slow_place(tmp_path)
    metrics, log_dir = place.catalog.with_name("kidx.prom"), log.parent.parent
    told = ("--json-line", "-", "--metrics-file", metrics)
    with disturbed(log, *place.arguments, *told, "--", "--master", "local[1,4]") as running:
        with running.stopped_within(log):
            os.killpg(running.process.pid, signal.SIGINT)
        out, messages = running.process.communicate(timeout=DEADLINE_SECONDS)
    if running.process.returncode == ExitCode.OK:
        raise TooLateError(messages)
    assert (running.process.returncode, out) == (ExitCode.INTERRUPTED, ""), messages
    assert "Traceback" not in without_tracebacks_of_daemons(messages) and "Exception" not in messages, messages
    *_, line, error = messages.splitlines()
    read = "1 of 4 segments read and recorded in the catalog; run the same command again to go on"
    assert error == f"error: interrupted: {read}", messages
    found = json.loads(line)
    assert (found["status"], found["exit_code"], found["error"]) == ("interrupted", 130, f"interrupted: {read}")
    assert 'kidx_run_exit_code{job="build_index"} 130.0' in metrics.read_text()
    assert staging_files(place.index_dir) == [] and place.recorded() == {str(log)}

    with OpenedFiles(log_dir.iterdir()) as opened:
        again = build(*place.arguments)
    assert again.code == ExitCode.OK and again.json["by_status"] == {"ok": 3}, again
    assert str(log) not in {str(path) for path in opened.logs()}
    assert len(place.state()[1]) == 4
