"""How a session starts and ends: a master that does not answer, a JVM that does not start or has gone, or goes
meanwhile, with stand-ins for both; and a session that somebody else has started.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from jobs.common.spark import session as session_module
from jobs.common.spark.session import JavaOutput, _reason, ensure_reachable_master, session
from kidxlib.errors import SparkEndedError, UsageError
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.interrupts import Interrupted, handled
from tests.support.spark.jobs import PROJECT, clean_environment, run_submit
from tests.support.spark.sessions import use_shared_session

_GONE: Final = Py4JError("py4j does not exist in the JVM")

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

_PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@dataclass
class _Spark:
    """What `session` asks of one.

    Attributes:
        answers: how often its JVM does, before it has gone.
        stop_fails: with what.
    """

    answers: int = 1_000
    stop_fails: Exception | None = None
    stopped: int = 0
    sparkContext: Any = field(init=False)  # noqa: N815 - as Spark has it

    def __post_init__(self) -> None:
        system = SimpleNamespace(nanoTime=self._answer)
        jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        self.sparkContext = SimpleNamespace(_jvm=jvm, cancelAllJobs=lambda: None)

    def stop(self) -> None:
        self.stopped += 1
        if self.stop_fails is not None:
            warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)
            raise self.stop_fails

    def _answer(self) -> int:
        self.answers -= 1
        if self.answers < 0:
            raise Py4JNetworkError
        return 0


@contextlib.contextmanager
def _session(spark: _Spark, monkeypatch: pytest.MonkeyPatch, *, changes: bool = True) -> Iterator[None]:
    monkeypatch.setattr(session_module, "ensure_reachable_master", lambda: None)
    monkeypatch.setattr(session_module, "_is_there", lambda: False)
    monkeypatch.setattr(session_module, "start", lambda *_: cast(SparkSession, spark))
    with handled(for_good=False), session("test", changes=changes):
        yield


@pytest.mark.parametrize("error", [_GONE, Py4JNetworkError(), ConnectionResetError()])
def test_a_jvm_that_has_ended_is_one_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = _Spark(answers=0)
    with pytest.raises(SparkEndedError, match="Spark's JVM has ended during the job"), _session(spark, monkeypatch):
        raise error
    assert spark.stopped == 0


def test_an_error_of_a_jvm_that_answers_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = _Spark()
    with pytest.raises(Py4JError) as raised, _session(spark, monkeypatch):
        raise _GONE
    assert raised.value is _GONE and spark.stopped == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (True, "interrupted: what is recorded stays, the rest is not done; run the same command again"),
        (False, "interrupted: nothing was changed or recorded; run the same command again"),
    ],
)
@pytest.mark.parametrize("answers", [0, 1])
def test_a_signal_that_ends_the_jvm_too(
    answers: int, changes: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service manager sends it: whatever py4j says then, and where the JVM goes while the session is stopped."""
    spark = _Spark(answers=answers, stop_fails=Py4JNetworkError())
    with pytest.raises(Interrupted) as raised, _session(spark, monkeypatch, changes=changes):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Interrupted:
            raise _GONE from None
    assert str(raised.value) == says


def test_a_jvm_that_goes_at_the_end_fails_no_job(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    spark = _Spark(answers=1, stop_fails=_GONE)
    with _session(spark, monkeypatch):
        pass
    assert spark.stopped == 1 and not recwarn.list


def test_a_session_that_cannot_be_stopped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Py4JError), _session(_Spark(stop_fails=_GONE), monkeypatch):
        pass


def test_a_session_that_was_there_stays() -> None:
    use_shared_session()
    there = SparkSession.getActiveSession()
    assert there is not None
    with session("test") as spark:
        assert spark.sparkContext is there.sparkContext
    assert there.range(3).count() == 3


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
    """The file is there when the job has ended, or the job says that something is wrong. A process in place of Java.
    The one that waits has said its last word: what it then calls is called at exit.
    """
    archive = tmp_path / "archive"
    waiting = (
        "import subprocess, sys; from jobs.common.spark.session import _end_after\n"
        "java = subprocess.Popen([sys.executable, '-c', *sys.argv[2:]], stdin=subprocess.PIPE)\n"
        "_end_after(java, float(sys.argv[1]))"
    )
    command = [sys.executable, "-c", waiting, str(seconds), _ENDING.format(amid_that), str(archive)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (ended.returncode, archive.exists()) == (code, code == ExitCode.OK), ended
    assert ended.stderr.startswith("error: Spark's JVM did not end well within ") == (code != ExitCode.OK), ended


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("options", [None, "", "pyspark-shell", "--master local[*,4] pyspark-shell", "--master yarn"])
def test_a_master_without_an_address_is_sparks_to_look_for(
    options: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under spark-submit itself, as Airflow starts jobs, there are no such options at all."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    if options is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", options)
    ensure_reachable_master()


@pytest.mark.parametrize("form", ["--master spark://{}", "--master=spark://{}", "--master k8s://https://{}"])
def test_a_master_that_nobody_answers_at_is_refused(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*shlex.split(form.format(address)), "pyspark-shell"]))
        ensure_reachable_master()
    with pytest.raises(UsageError, match=f"{address}: Connection refused"):
        ensure_reachable_master()


@pytest.mark.parametrize("proxy", _PROXIES)
def test_behind_a_proxy_kubernetes_is_sparks_to_look_for(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's client goes through it; to a master of Spark's own nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master k8s://https://{address} pyspark-shell")
    ensure_reachable_master()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master spark://{address} pyspark-shell")
    with pytest.raises(UsageError, match=f"{address}: Connection refused"):
        ensure_reachable_master()
