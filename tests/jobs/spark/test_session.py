"""How a session ends: where Spark's JVM has gone, or goes meanwhile, with stand-ins for both; and where somebody else
has started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from jobs.common.spark import session as session_module
from jobs.common.spark.session import session
from kidxlib.errors import SparkEndedError
from kidxlib.terminal.interrupts import handled
from kidxlib.terminal.signals import Interrupted
from tests.support.spark.sessions import use_shared_session

_GONE: Final = Py4JError("py4j does not exist in the JVM")


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
