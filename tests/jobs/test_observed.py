"""What a run tells who watches from outside: its JSON line, its metrics, and Spark's own event log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobs.common.observed import Ended, observed
from kidxlib.command import ExitCode
from kidxlib.errors import KidxError
from kidxlib.names import LOG_SUFFIX, segment_file
from tests.docs.log_dirs import put
from tests.kidxlib.segments import Batch
from tests.support.build_job import build_here, run_here


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


def test_a_build_logs_a_line_and_writes_metrics_and_an_event_log(tmp_path: Path) -> None:
    """A later run that is refused says so in the metrics, which keep when a run last did its work."""
    put(tmp_path / "log-dir" / "topic-0", 0, [Batch()])
    (tmp_path / "kidx.toml").write_text(f'[spark]\nevent_log_dir = "{tmp_path}/event logs"\n')
    (tmp_path / "collected").mkdir()
    file = tmp_path / "collected" / "kidx.prom"
    options = ("--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog", "--metrics-file", file, "--json")
    built = build_here("--source", tmp_path / "log-dir", *options, "--settings", tmp_path / "kidx.toml")
    assert built.code == 0, built.err
    line = last_line(built.err)
    assert line.pop("seconds") > 0 and line.pop("began_at") < built.json["started_at"][:11] + "24"
    counts = {"partitions": 1, "segments": 1, "unchanged": 0, "gone": 0, "rows_changed": 1, "not_well": 0}
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
    assert any((tmp_path / "event logs").iterdir())

    refused = build_here("--source", tmp_path / "nowhere", *options)
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    after_refusal = metrics(file)
    assert after_refusal["kidx_run_exit_code",] == 2
    kept = after_refusal["kidx_run_last_done_timestamp_seconds",]
    assert kept == after_build["kidx_run_timestamp_seconds",] < after_refusal["kidx_run_timestamp_seconds",]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_run_that_fails_says_so(tmp_path: Path) -> None:
    @click.command
    @observed
    def a_job() -> Ended:
        raise KidxError("the disk is full")

    ended = run_here(a_job, "--metrics-file", tmp_path / "a.prom")
    line, error = ended.err.splitlines()
    assert (ended.code, error) == (ExitCode.FAILED, "error: the disk is full")
    assert (json.loads(line)["status"], json.loads(line)["error"]) == ("failed", "the disk is full")
    assert metrics(tmp_path / "a.prom")["kidx_run_exit_code",] == 1
    assert ("kidx_run_last_done_timestamp_seconds",) not in metrics(tmp_path / "a.prom")


@pytest.mark.parametrize("name", ["no/such/folder/a.prom", "folder"])
def test_a_metrics_file_that_cannot_be_written_is_refused_at_once(name: str, tmp_path: Path) -> None:
    @click.command
    @observed
    def a_job() -> Ended:
        raise AssertionError("it ran")

    (tmp_path / "folder").mkdir()
    ended = run_here(a_job, "--metrics-file", tmp_path / name)
    assert ended.code == ExitCode.USAGE
    [error] = ended.err.splitlines()
    assert str(tmp_path / name) in error
