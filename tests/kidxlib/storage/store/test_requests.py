"""As many requests are made at a time as were meant, their answers come in order, and a store that answers hardly any
is given up.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import types
from collections.abc import Callable, Iterator

import pytest

from kidxlib.errors import StoreBusyError
from kidxlib.storage.store import requests
from kidxlib.storage.store.requests import AT_ONCE, in_order
from kidxlib.terminal.console import slow_store_message

_SECONDS = 60.0

_SLOW_DOWN = "AWS Error SLOW_DOWN (HTTP status 503) during GetObject operation: reduce your request rate"


def test_so_many_are_done_at_once_and_come_in_order() -> None:
    """Each waits for as many others; of those to come only so many are asked for ahead."""
    together, taken, asked = threading.Barrier(AT_ONCE), 0, 0

    def items() -> Iterator[int]:
        nonlocal asked
        for item in range(4 * AT_ONCE):
            asked += 1
            assert asked - taken <= 2 * AT_ONCE + 1
            yield item

    def do(item: int) -> int:
        together.wait(_SECONDS)
        return -item

    for result in in_order(do, items()):
        assert result == -taken
        taken += 1
    assert taken == 4 * AT_ONCE


def test_what_is_heavy_is_not_done_beside_others() -> None:
    """What is begun and not taken weighs at most so much, or is one alone; light items are done together."""
    weights = [3, 3, 3, 9, 20, 1, 1, 8, 10, 10, 0, 0]
    lock, held, seen = threading.Lock(), dict[int, int](), list[int]()
    light = threading.Barrier(3)

    def do(item: int) -> int:
        with lock:
            held[item] = weights[item]
            seen.append(sum(held.values()))
            assert seen[-1] <= 10 or len(held) == 1
        if item < 3:
            light.wait(_SECONDS)
        return item

    for expected, item in enumerate(in_order(do, range(len(weights)), weights.__getitem__, 10)):
        assert item == expected
        with lock:
            del held[item]
    assert max(seen) == 20


def test_what_fails_is_raised_when_its_turn_comes_and_no_more_is_begun() -> None:
    begun: list[int] = []

    def do(item: int) -> int:
        begun.append(item)
        if item == 3:
            raise OSError("refused")
        return item

    results = in_order(do, iter(range(10 * AT_ONCE)))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="refused"):
        next(results)
    assert len(begun) <= 2 * AT_ONCE + 4
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("store")] == []


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """A clock that only pauses move, and a process that has asked for nothing yet."""
    now = [0.0]

    def sleep(pause: float) -> None:
        now[0] += pause

    clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(requests, "time", clock)
    monkeypatch.setattr(requests, "_patience", requests._Patience())
    return lambda: now[0]


def _asked(answers: Iterator[bool], times: int) -> None:
    def request() -> None:
        if not next(answers):
            raise OSError(_SLOW_DOWN)

    for _ in range(times):
        with contextlib.suppress(OSError):  # as who takes it for an object that cannot be read
            requests.answer_with_retries(request)


def test_a_run_gives_up_a_store_that_answers_one_request_in_ten(seconds: Callable[[], float]) -> None:
    """And says meanwhile that the store is slow."""
    with pytest.raises(StoreBusyError, match=r"has answered \d+ requests in 1\d\d s.*run the same command again later"):
        _asked(itertools.cycle([False] * 9 + [True]), 10_000)
    assert seconds() < 180
    assert slow_store_message().startswith("the store is slow: ")


def test_a_store_that_answers_every_other_request_is_asked_on(seconds: Callable[[], float]) -> None:
    _asked(itertools.cycle([False, True]), 10_000)
    assert seconds() > 500


def test_what_a_store_did_before_a_quiet_time_does_not_count(seconds: Callable[[], float]) -> None:
    """A process that asked in vain, then for nothing, gives the store its two minutes again."""
    _asked(itertools.repeat(False), 1)
    before = seconds()
    requests.time.sleep(600)  # type: ignore[attr-defined]  # the clock above
    _asked(itertools.chain([False], itertools.repeat(True)), 1)
    assert seconds() - before < 601
