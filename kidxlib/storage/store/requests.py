"""Requests of object stores: counted by kind, as S3 is paid by the request; a bounded number at the same time; and made
again where the store is asked for too much, fails for a moment, or a connection ends.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from enum import Enum, StrEnum
from typing import Final, TypeVar

from kidxlib.errors import StoreBusyError

#: Keys of one page of a listing.
_PAGE_KEYS: Final = 1_000

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Of one process. S3 takes 3,500 writing and 5,500 reading requests a second of one prefix: 64 processes whose requests
#: take 50 ms come to 20,000, and are throttled where all of them ask one prefix.
AT_ONCE: Final = 16

_T = TypeVar("_T")

#: Tries of one request, with 23 to 46 seconds between the first and the last: S3 answers 503 for as long as it takes
#: to spread a prefix that is asked for much over more of its machines.
TRIES: Final = 10
#: Tries to reach a store that a user has just named: it may be the wrong name.
TRIES_TO_REACH: Final = 3
_PAUSE_FIRST_SECONDS: Final = 0.1
_PAUSE_MAX_SECONDS: Final = 20.0

#: As Arrow says what the store has answered, or why it has not.
_ANSWER: Final = re.compile(
    r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))? during \w+ operation:(?: curlCode: (?P<curl>\d+),)?"
)


#: A store that asks to have so many requests made again for each that it answers is no use; a run gives it so long.
_AGAIN_FOR_ONE: Final = 4
_PATIENCE_SECONDS: Final = 120.0
#: Where no request was made again for so long, none was waiting: what the store did before says nothing about now.
_QUIET_SECONDS: Final = 60.0


class Kind(StrEnum):
    """Kinds of requests. The parts of a large object are PUT, and so are the requests that begin and end them."""

    LIST = "list"
    HEAD = "head"
    GET = "get"
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Requests:
    """Numbers of requests.

    Attributes:
        tried_again: how many of them were made because the store had not answered one. Those that Arrow's client makes
            again itself, of pages of a listing and of parts of an object, are not counted at all.
    """

    list: int = 0
    head: int = 0
    get: int = 0
    put: int = 0
    delete: int = 0
    tried_again: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def __bool__(self) -> bool:
        return self != Requests()

    def __str__(self) -> str:
        parts = [f"{number:,} {kind.name}" for kind in Kind if (number := getattr(self, kind))]
        return ", ".join([*parts, *([f"{self.tried_again:,} tried again"] if self.tried_again else [])])

    def as_json(self) -> dict[str, int]:
        """The numbers by kind, and `tried_again`; zeros too."""
        return asdict(self)


_lock: Final = threading.Lock()
_made: Final[Counter[str]] = Counter()


def count(kind: Kind, number: int = 1) -> None:
    """Requests are made."""
    with _lock:
        _made[kind] += number


def count_again() -> None:
    """A request that will be made, and counted, was made before."""
    with _lock:
        _made["tried_again"] += 1


def requests_made() -> Requests:
    """What this process has made so far."""
    with _lock:
        return Requests(**_made)


def pages_of(entries: int) -> int:
    """How many requests list so many keys and prefixes."""
    return max(1, -(-entries // _PAGE_KEYS))


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


class NotNow(Enum):
    """Why there is no answer now, and what to do where there is none for long."""

    THROTTLED = "the store is asked for too much: run the same command again later, or with fewer processes"
    FAILED = "the store fails: run the same command again when it is well"
    DROPPED = "the connection ended each time: run the same command again when the network is well"
    UNREACHED = "is AWS_ENDPOINT_URL right, and can this machine reach it? Then run the same command again"


_CODES: Final = {
    "SLOW_DOWN": NotNow.THROTTLED,
    "SERVICE_UNAVAILABLE": NotNow.THROTTLED,
    "THROTTLING": NotNow.THROTTLED,
    "INTERNAL_FAILURE": NotNow.FAILED,
    "REQUEST_TIMEOUT": NotNow.DROPPED,
    "NETWORK_CONNECTION": NotNow.DROPPED,
}
#: By the status of an answer: of those without a body, as to HEAD, no client knows more.
STATUSES: Final = {
    "429": NotNow.THROTTLED,
    "500": NotNow.FAILED,
    "502": NotNow.FAILED,
    "503": NotNow.THROTTLED,
    "504": NotNow.FAILED,
}
#: No name server knows the host, or nothing listens there.
_UNREACHED: Final = ("6", "7")


class _Patience:
    """How the store answers this process: whether to go on asking, whatever is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since, self._again, self._answered, self._last = 0.0, 0, 0, 0.0

    def answered(self) -> None:
        with self._lock:
            self._answered += 1

    def made_again(self, why: NotNow) -> None:
        """A request is about to be made again."""
        with self._lock:
            now = time.monotonic()
            has_answered_well = self._again <= self._answered * _AGAIN_FOR_ONE
            if has_answered_well or now - self._last > _QUIET_SECONDS:
                self._since, self._again, self._answered = now, 0, 0
            self._again += 1
            self._last = now
            seconds = now - self._since
            if seconds > _PATIENCE_SECONDS:
                raise StoreBusyError(
                    f"the store has answered {self._answered:,} requests in {seconds:.0f} s, and {self._again:,} were "
                    f"made again: {why.value}"
                )


_patience: Final = _Patience()


def answer_of(
    request: Callable[[], _T],
    *,
    tries_to_reach: int = TRIES,
    why_not_now: Callable[[OSError], NotNow | None] | None = None,
) -> _T:
    """What a store answers to a request, which is made again until it is answered, with pauses that grow.

    Args:
        request: may be made twice: what it did before its answer was lost, it does once more.
        tries_to_reach: as often it is made where the store is not reached at all.
        why_not_now: says of an error why there is no answer now; None where the answer would be the same the next time.
            By default as Arrow's client says it.
    """
    tries = 1
    while True:
        try:
            answer = request()
        except OSError as error:
            why = (why_not_now or _why_not_now)(error)
            if why is None or tries >= (tries_to_reach if why is NotNow.UNREACHED else TRIES):
                raise _given_up(error, why, tries) from error
        else:
            _patience.answered()
            return answer
        _patience.made_again(why)
        time.sleep(_pause_seconds(tries))
        count_again()
        tries += 1


def answer_in_parts(request: Callable[[], _T]) -> _T:
    """What a store answers to a call of a client that makes many requests, and each of them `TRIES` times itself."""
    try:
        return request()
    except OSError as error:
        raise _given_up(error, _why_not_now(error), TRIES) from error


def is_momentary(error: OSError) -> bool:
    """Whether another answer is to be expected the next time."""
    return _why_not_now(error) is not None


def _why_not_now(error: OSError) -> NotNow | None:
    if (found := _ANSWER.search(str(error))) is None:
        return None
    if found["curl"] in _UNREACHED:
        return NotNow.UNREACHED
    return _CODES.get(found["code"]) or STATUSES.get(found["status"])


def _given_up(error: OSError, why: NotNow | None, tries: int) -> OSError:
    return error if why is None else OSError(f"{str(error).strip()}; asked {tries} times: {why.value}")


def _pause_seconds(tries: int) -> float:
    """How long to wait after so many tries. Who was refused at the same moment does not come back at the same one."""
    longest = min(_PAUSE_MAX_SECONDS, _PAUSE_FIRST_SECONDS * 2 ** (tries - 1))
    return random.uniform(longest / 2, longest)
