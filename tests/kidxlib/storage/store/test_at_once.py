"""Many requests at a time are as many as were meant, and their answers come in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kidxlib.storage.store.at_once import AT_ONCE, in_order

_SECONDS = 60.0


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
