"""Spark that does not start says why in one line: no stack trace, no list of options, no word on stdout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from jobs.common.spark.java_output import JavaOutput, _reason
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.spark.jobs import PROJECT, clean_environment, run_submit

#: spark-submit's own options, and what is said of them.
_REFUSED: Final = {
    "misspelt": (("--conff", "a=b"), "error: Spark did not start: Unrecognized option: --conff"),
    "a missing class": (
        ("--conf", "spark.serializer=no.such.Serializer"),
        "error: Spark did not start: no.such.Serializer: no such class",
    ),
    "no directory for scratch files": (
        ("--conf", "spark.local.dir=/proc/x"),
        "error: Spark did not start: Failed to create directory /proc/x/",
    ),
    "a cluster without its configuration": (
        ("--master", "yarn"),
        "error: Spark did not start: When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be",
    ),
    "nobody at the master": (("--master", "spark://127.0.0.1:1"), "error: --master spark://127.0.0.1:1: no connection"),
    "a question to spark-submit": (("--help",), "spark-submit.sh: --help after -- is spark-submit's"),
}


@pytest.mark.parametrize("options, line", _REFUSED.values(), ids=_REFUSED)
def test_it_is_one_line(options: tuple[str, ...], line: str) -> None:
    ended = run_submit("verify_index", "--sample", "--json", "--", *options)
    assert (ended.code, ended.out) == (ExitCode.USAGE, ""), ended
    *before, last = ended.err.splitlines()
    assert last.startswith(line), ended
    assert before in ([], ["12 segments, 4.6 MB, in 5 partitions"]), ended


def test_without_delta() -> None:
    """Spark leaves out what it cannot load, and would fail later."""
    ended = subprocess.run(
        [sys.executable, "-m", "jobs.verify_index", "--sample"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
        env={
            **clean_environment(),
            "PYSPARK_SUBMIT_ARGS": "--master local pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert (ended.returncode, ended.stdout) == (ExitCode.USAGE, ""), ended
    assert ended.stderr.splitlines()[-1].startswith("error: Spark found no Delta: its jars are not on the class path")
    assert "Traceback" not in ended.stderr and "\tat " not in ended.stderr, ended


def test_of_what_java_prints_the_reason_is_taken() -> None:
    usage = ["Error: Unrecognized option: --x", "", "Usage: spark-submit [options]", "Options:"]
    assert _reason(usage) == "Unrecognized option: --x"
    thrown = [
        'Exception in thread "main" org.apache.spark.SparkException: no master',
        "\tat a.b.C(D.scala:1)",
        "\t... 3",
    ]
    assert _reason(thrown) == "no master"
    assert _reason(
        ["[0.3s][warning][cds] x", "Error occurred during initialization of VM", "Too small maximum heap"]
    ) == ("Error occurred during initialization of VM; Too small maximum heap")
    assert _reason(["10:11:12 WARN Utils: hm", "10:11:12 ERROR Disk: full", "10:11:13 ERROR Disk: full"]) == "full"
    assert "java -version" in _reason([])


def test_what_java_has_printed_is_forgotten_though_nobody_has_read_it_yet(capfd: pytest.CaptureFixture[str]) -> None:
    """Spark logs an error just before it throws it."""
    for _ in range(100):
        reader, writer = os.pipe()
        printed = JavaOutput(reader)
        printed.start()
        with open(writer, "wb", buffering=0) as java:
            java.write(b"10:11:12 ERROR SparkContext: Error initializing SparkContext.\n")
            printed.forget()
            printed.pass_on()
            java.write(b"10:11:13 WARN later\nthe last")
        printed.join()
    assert capfd.readouterr() == ("", "10:11:13 WARN later\nthe last" * 100)


#: Ends, as Spark's JVM does, when its standard input is closed; what it writes then takes a moment.
_ENDING: Final = "import pathlib, sys, time; sys.stdin.read(); {}; pathlib.Path(sys.argv[1]).touch()"


@pytest.mark.parametrize(
    ("amid_that", "seconds", "code"),
    [("time.sleep(0.5)", 30, ExitCode.OK), ("time.sleep(60)", 0.5, ExitCode.FAILED), ("sys.exit(1)", 30, 1)],
    ids=["slow", "too slow", "fails"],
)
def test_who_wants_the_class_archive_waits_for_java(amid_that: str, seconds: float, code: int, tmp_path: Path) -> None:
    """Goal: the file is there when the job has ended, or the job says that something is wrong.

    Method: a process in place of Java. The one that waits has said its last word: what it then calls is called at exit.
    """
    archive = tmp_path / "archive"
    waiting = (
        "import subprocess, sys; from jobs.common.spark.java import _end_after\n"
        "java = subprocess.Popen([sys.executable, '-c', *sys.argv[2:]], stdin=subprocess.PIPE)\n"
        "_end_after(java, float(sys.argv[1]))"
    )
    command = [sys.executable, "-c", waiting, str(seconds), _ENDING.format(amid_that), str(archive)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (ended.returncode, archive.exists()) == (code, code == ExitCode.OK), ended
    assert ended.stderr.startswith("error: Spark's JVM did not end well within ") == (code != ExitCode.OK), ended
