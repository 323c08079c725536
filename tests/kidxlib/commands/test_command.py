"""What a run tells who watches from outside: its JSON line, and its metrics."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Final

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kidxlib.commands.command import reports_run
from kidxlib.errors import KidxError, UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.terminal.console import begin_phase
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.terminal.run_summary import tell_skipped
from tests.docs.log_dirs import put
from tests.support.alerts import by_promtool, damage_told
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended as RunEnded
from tests.support.spark.jobs import kidx_build_here, run_here


@click.command
@reports_run("a_job")
def _quiet_job() -> Outcome:
    return Outcome()


@click.command
@reports_run("a_job")
def _job_that_must_not_run() -> Outcome:
    raise AssertionError("it ran")


def metrics(path: Path) -> dict[tuple[str, ...], float]:
    """The figures of a file, by their names and the values of their labels but the job's."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            assert sample.labels["job"] in ("build_index", "a_job")
            found[(sample.name, *(value for name, value in sample.labels.items() if name != "job"))] = sample.value
    return found


def last_line(err: str) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(err.splitlines()[-1])
    return line


def test_a_build_logs_a_line_and_writes_metrics(tmp_path: Path) -> None:
    """A later run that is refused says so in the metrics, which keep when a run last did its work."""
    put(tmp_path / "log-dir" / "topic-0", 0, [Batch()])
    (tmp_path / "collected").mkdir()
    file = tmp_path / "collected" / "kidx.prom"
    options = ("--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog", "--metrics-file", file, "--json")
    built = kidx_build_here("--source", tmp_path / "log-dir", *options, "--json-line")
    assert built.code == 0, built.err
    line = last_line(built.err)
    assert line.pop("seconds") > 0 and line.pop("began_at") < built.json["started_at"][:11] + "24"
    nothing = (
        *("unchanged", "gone", "partitions_gone", "partitions_cut_off", "unlistable", "not_well", "damaged"),
        *("accepted", "gaps", "gaps_accepted", "partitions_missing", "partitions_twice", "first_logs_missing"),
        *("first_logs_not_known", "ends_below", "ends_below_accepted", "log_dirs_older", "partitions_misnamed"),
        *("broken_by_audits", "sources_emptied"),
    )
    counts = {**dict.fromkeys(nothing, 0), "partitions": 1, "segments": 1, "rows_changed": 1}
    size = (tmp_path / "log-dir" / "topic-0" / segment_file(0, LOG_SUFFIX)).stat().st_size
    assert line == {
        "job": "build_index",
        "run_id": built.json["build_id"],
        "status": "ok",
        "exit_code": 0,
        "bytes": size,
        "counts": counts,
    }
    after_build = metrics(file)
    assert {what[1]: value for what, value in after_build.items() if what[0] == "kidx_run_count"} == counts
    assert (after_build["kidx_run_exit_code",], after_build["kidx_run_bytes",]) == (0, size)
    assert after_build["kidx_run_last_done_timestamp_seconds",] == after_build["kidx_run_timestamp_seconds",]

    refused = kidx_build_here("--source", tmp_path / "nowhere", *options)
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    after_refusal = metrics(file)
    assert after_refusal["kidx_run_exit_code",] == 2
    kept = after_refusal["kidx_run_last_done_timestamp_seconds",]
    assert kept == after_build["kidx_run_timestamp_seconds",] < after_refusal["kidx_run_timestamp_seconds",]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_run_that_fails_says_so(tmp_path: Path) -> None:
    @click.command
    @reports_run("a_job")
    def a_job() -> Outcome:
        raise KidxError("the disk is full")

    ended = run_here(a_job, "--metrics-file", tmp_path / "a.prom", "--json-line")
    line, error = ended.err.splitlines()
    assert (ended.code, error) == (ExitCode.FAILED, "error: the disk is full")
    assert (json.loads(line)["status"], json.loads(line)["error"]) == ("failed", "the disk is full")
    assert metrics(tmp_path / "a.prom")["kidx_run_exit_code",] == 1
    assert ("kidx_run_last_done_timestamp_seconds",) not in metrics(tmp_path / "a.prom")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What node exporter finds after each of these runs of one job: it finds damage; nothing new; it fails; it is
    refused; one of the two logs was accepted, and the other mended.
    """
    directory, segments = tmp_path_factory.mktemp("exported"), {("a", "ok"): 10, ("b", "ok"): 5, ("b", "gone"): 1}
    damaged = {**segments, ("a", "truncated"): 1, ("b", "quarantined"): 1}
    ends: list[Outcome | KidxError] = [
        Outcome(code=ExitCode.PROBLEMS_FOUND, counts={"not_well": 2}, bytes=0, catalog_segments=damaged),
        Outcome(code=ExitCode.PROBLEMS_FOUND, counts={"not_well": 0}, bytes=0, catalog_segments=damaged),
        KidxError("the disk is full"),
        UsageError("no such source"),
        Outcome(code=ExitCode.OK, counts={"not_well": 0}, bytes=0, catalog_segments={**segments, ("a", "accepted"): 1}),
    ]

    @click.command
    @reports_run("a_job")
    def a_job() -> Outcome:
        end = ends.pop(0)
        if isinstance(end, KidxError):
            raise end
        return end

    files: list[Path] = []
    while ends:
        run_here(a_job, "--metrics-file", directory / "a.prom")
        files.append(directory / f"{len(files)}.txt")
        files[-1].write_bytes((directory / "a.prom").read_bytes())
    return files


#: For which sources and statuses the alert of the page fires after each of these runs.
FIRING: Final = [{("a", "truncated"), ("b", "quarantined")}] * 4 + [set()]


def test_the_alert_fires_until_damage_is_mended_or_accepted(exported: list[Path]) -> None:
    """The page's expression, on what each run has exported."""
    assert [damage_told(file) for file in exported] == FIRING
    assert metrics(exported[-1])["kidx_catalog_segments", "a", "accepted"] == 1


def test_prometheus_own_rule_test_says_the_same(exported: list[Path], tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on the path (Debian has it in `prometheus`); the test above evaluates the rule itself")
    by_promtool(promtool, tmp_path, exported, FIRING)
    with pytest.raises(AssertionError, match="KidxDamaged"):
        by_promtool(promtool, tmp_path, exported, [set()] * len(exported))


def test_a_file_that_is_no_metrics_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.prom"
    for content in (b"not { metrics", b"\xff\xfe"):
        file.write_bytes(content)
        ended = run_here(_quiet_job, "--metrics-file", file)
        assert ended.code == 0 and "nothing can be kept of it" in ended.err
        assert metrics(file)["kidx_run_exit_code",] == 0


@pytest.mark.parametrize("name", ["no/such/directory/a.prom", "directory.prom", "a.txt", "a", ".prom", "a.prom.txt"])
def test_a_metrics_file_that_cannot_be_written_or_is_never_read_is_refused_at_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "directory.prom").mkdir()
    ended = run_here(_job_that_must_not_run, "--metrics-file", tmp_path / name)
    assert ended.code == ExitCode.USAGE
    [error] = ended.err.splitlines()
    assert str(tmp_path / name) in error


def test_a_line_of_json_comes_when_it_is_asked_for(tmp_path: Path) -> None:
    """At the end of a file as well, line by line; a run without the option, or that is refused, adds none."""

    @click.command
    @click.option("--code", type=int)
    @reports_run("a_job")
    def a_job(code: int) -> Outcome:
        if code == ExitCode.USAGE:
            raise UsageError("no such thing")
        return Outcome(code=ExitCode(code), run_id="this", counts={"segments": 1}, bytes=2)

    file = tmp_path / "runs.jsonl"
    assert run_here(a_job, "--code", "0") == RunEnded(0, "", "")
    for code in (0, 2, 3):
        ended = run_here(a_job, "--code", str(code), "--json-line", file)
        assert (ended.code, ended.err) == (code, "error: no such thing\n" if code == 2 else "")
    assert [json.loads(line)["status"] for line in file.read_text().splitlines()] == ["ok", "not_well"]
    ended = run_here(a_job, "--json-line", "--code", "3")
    assert (ended.out, last_line(ended.err)["exit_code"]) == ("", 3)


@pytest.mark.parametrize("name", ["no/such/directory/runs.jsonl", "."])
def test_a_file_for_lines_of_json_that_cannot_be_written_is_refused_at_once(name: str, tmp_path: Path) -> None:
    ended = run_here(_job_that_must_not_run, "--json-line", tmp_path / name)
    assert ended.code == ExitCode.USAGE
    [error] = ended.err.splitlines()
    assert f"--json-line {tmp_path / name}" in error


def test_a_pipe_that_nobody_reads_does_not_keep_a_run_from_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ended = run_here(_quiet_job, "--json-line", tmp_path / "fifo")
    assert ended.code == ExitCode.OK
    assert f"--json-line {tmp_path / 'fifo'}: not written: No such device or address" in ended.err
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with open(reader, "rb") as file:
        assert run_here(_quiet_job, "--json-line", tmp_path / "fifo").code == ExitCode.OK
        assert json.loads(file.read())["exit_code"] == 0


def test_a_word_after_json_line_that_is_no_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was meant for the command, which would say only that its argument is missing."""

    @click.command
    @click.argument("source")
    @reports_run("a_job")
    def a_job(source: str) -> Outcome:
        return Outcome(code=ExitCode.OK, run_id=source, counts={}, bytes=0)

    monkeypatch.chdir(tmp_path)
    for word in ("west", "eu.west"):
        ended = run_here(a_job, "--json-line", word)
        assert ended.code == ExitCode.USAGE and ended.err.startswith(f"error: --json-line {word}: taken for the file")
        assert f"Is {word} meant for the command? Then put it first, or say --json-line -" in ended.err
    for words in (("west", "--json-line"), ("--json-line", "-", "west")):
        assert last_line(run_here(a_job, *words).err)["run_id"] == "west"
    for name in ("runs.jsonl", "./runs", tmp_path / "runs"):
        assert run_here(a_job, "--json-line", name, "west") == RunEnded(0, "", "")
    assert len(Path("runs").read_text().splitlines()) == 2 and Path("runs.jsonl").exists()


def test_details_are_for_those_who_ask(tmp_path: Path) -> None:
    """-v: what was skipped, and how long each phase took. The next run says neither."""

    @click.command
    @reports_run("a_job")
    def a_job() -> Outcome:
        begin_phase("looking")
        begin_phase("finding")
        outcome = Outcome()
        tell_skipped(outcome, [("broker file", 2)])
        outcome.show(as_json=False)
        return outcome

    verbose = run_here(a_job, "-v")
    assert verbose.out == "skipped: 2 × broker file\n"
    assert re.fullmatch(r"took: looking \d+\.\d s, finding \d+\.\d s\n", verbose.err)
    assert run_here(a_job) == RunEnded(0, "", "")
