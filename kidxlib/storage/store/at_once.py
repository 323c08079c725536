"""Requests of object stores that are on their way at the same time, a bounded number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Of one process. S3 takes 3,500 writing and 5,500 reading requests a second of one prefix: 64 processes whose requests
#: take 50 ms come to 20,000, and are throttled where all of them ask one prefix.
AT_ONCE: Final = 16


def in_order(
    do: Callable[[_Item], _Result],
    items: Iterable[_Item],
    weigh: Callable[[_Item], int] = lambda item: 0,
    weight_max: int = 0,
) -> Generator[_Result]:
    """What is done with items, in their order; `AT_ONCE` of them at a time, and twice as many begun or waiting to be
    taken.

    Args:
        do: called from threads.
        weigh: what an item takes of `weight_max` until its result is taken. One is done at least, whatever it takes.

    Raises:
        BaseException: what `do` has raised, once all items before have been taken; what is begun then ends first.
    """
    coming: deque[tuple[Future[_Result], int]] = deque()
    held = 0
    with ThreadPoolExecutor(AT_ONCE, "store") as threads:
        try:
            for item in items:
                weight = weigh(item)
                while coming and (len(coming) == 2 * AT_ONCE or held + weight > weight_max):
                    future, taken = coming.popleft()
                    yield future.result()
                    held -= taken
                coming.append((threads.submit(do, item), weight))
                held += weight
            while coming:
                yield coming.popleft()[0].result()
        finally:
            for future, _ in coming:
                future.cancel()
