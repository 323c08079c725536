"""How long a store is asked that answers hardly any request."""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Iterator

import pytest

from kidxlib.errors import StoreBusyError
from kidxlib.storage.store import retries
from kidxlib.terminal.phase import of_store

_SLOW_DOWN = "AWS Error SLOW_DOWN (HTTP status 503) during GetObject operation: reduce your request rate"


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """A clock that only pauses move, and a process that has asked for nothing yet."""
    now = [0.0]

    def sleep(pause: float) -> None:
        now[0] += pause

    clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(retries, "time", clock)
    monkeypatch.setattr(retries, "_patience", retries._Patience())
    return lambda: now[0]


def _asked(answers: Iterator[bool], times: int) -> None:
    def request() -> None:
        if not next(answers):
            raise OSError(_SLOW_DOWN)

    for _ in range(times):
        with contextlib.suppress(OSError):  # as who takes it for an object that cannot be read
            retries.answer_of(request)


def test_a_run_gives_up_a_store_that_answers_one_request_in_ten(seconds: Callable[[], float]) -> None:
    """And says meanwhile that the store is slow."""
    with pytest.raises(StoreBusyError, match=r"has answered \d+ requests in 1\d\d s.*run the same command again later"):
        _asked(itertools.cycle([False] * 9 + [True]), 10_000)
    assert seconds() < 180
    assert of_store().startswith("the store is slow: ")


def test_a_store_that_answers_every_other_request_is_asked_on(seconds: Callable[[], float]) -> None:
    _asked(itertools.cycle([False, True]), 10_000)
    assert seconds() > 500


def test_what_a_store_did_before_a_quiet_time_does_not_count(seconds: Callable[[], float]) -> None:
    """A process that asked in vain, then for nothing, gives the store its two minutes again."""
    _asked(itertools.repeat(False), 1)
    before = seconds()
    retries.time.sleep(600)  # type: ignore[attr-defined]  # the clock above
    _asked(itertools.chain([False], itertools.repeat(True)), 1)
    assert seconds() - before < 601
