"""Requests to object stores: counted by kind, as S3 bills requests; a bounded number at a time; and retried if the
store throttles, fails for a moment, or a connection ends.
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

#: Requests of one process at a time. S3 accepts 3,500 writes and 5,500 reads a second below one prefix: 64 processes
#: whose requests take 50 ms send 20,000, and are throttled if all use one prefix.
AT_ONCE: Final = 16

_T = TypeVar("_T")

#: Tries of one request, with 23 to 46 seconds between the first and the last: S3 answers 503 until it has spread a busy
#: prefix over more of its machines.
TRIES: Final = 10
#: Tries to reach a store that a user has just named, as the name may be wrong.
TRIES_TO_REACH: Final = 3
_PAUSE_FIRST_SECONDS: Final = 0.1
_PAUSE_MAX_SECONDS: Final = 20.0

#: The store's answer in Arrow's errors, or why there is none.
_ANSWER: Final = re.compile(
    r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))? during \w+ operation:(?: curlCode: (?P<curl>\d+),)?"
)


#: A run gives up if a store has this many retries for each answer, for this long.
_AGAIN_FOR_ONE: Final = 4
_PATIENCE_SECONDS: Final = 120.0
#: After this time without a retry, no request was waiting: earlier retries no longer count.
_QUIET_SECONDS: Final = 60.0


class RequestKind(StrEnum):
    """Kinds of requests. The parts of a large object are PUTs, as are the requests that begin and end them."""

    LIST = "list"
    HEAD = "head"
    GET = "get"
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Requests:
    """Numbers of requests to an object store.

    Attributes:
        tried_again: how many of them were retries. Retries by Arrow's client itself, for pages of a listing and parts
            of an object, are not counted at all.
    """

    list: int = 0
    head: int = 0
    get: int = 0
    put: int = 0
    delete: int = 0
    tried_again: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, kind.name) + getattr(other, kind.name) for kind in fields(self)))

    def __sub__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, kind.name) - getattr(other, kind.name) for kind in fields(self)))

    def __bool__(self) -> bool:
        return self != Requests()

    def __str__(self) -> str:
        parts = [f"{number:,} {kind.name}" for kind in RequestKind if (number := getattr(self, kind))]
        return ", ".join([*parts, *([f"{self.tried_again:,} tried again"] if self.tried_again else [])])

    def as_json(self) -> dict[str, int]:
        """The numbers by kind, and `tried_again`; zeros too."""
        return asdict(self)


_lock: Final = threading.Lock()
_made: Final[Counter[str]] = Counter()


def count_requests(kind: RequestKind, number: int = 1) -> None:
    with _lock:
        _made[kind] += number


def count_again() -> None:
    """Count a retry; the request itself is counted by `count_requests`."""
    with _lock:
        _made["tried_again"] += 1


def requests_made() -> Requests:
    with _lock:
        return Requests(**_made)


def pages_of(entries: int) -> int:
    """How many requests list this number of keys and prefixes."""
    return max(1, -(-entries // _PAGE_KEYS))


def in_order(
    do: Callable[[_Item], _Result],
    items: Iterable[_Item],
    weigh: Callable[[_Item], int] = lambda item: 0,
    weight_max: int = 0,
) -> Generator[_Result]:
    """The results of items that each ask an object store, in their order. Threads process `AT_ONCE` items at
    a time; twice as many are begun or wait to be taken. `weigh` gives an item's share of `weight_max` until its result
    is taken; one item is always processed, whatever its weight.
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
    """Why there is no answer now, and what to do if that lasts."""

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
#: By the HTTP status: the answer to a HEAD has no body, and so nothing else.
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
    """How the store answers this process, and whether to go on at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since, self._again, self._answered, self._last = 0.0, 0, 0, 0.0

    def answered(self) -> None:
        with self._lock:
            self._answered += 1

    def made_again(self, why: NotNow) -> None:
        """Count a retry; raise if there were too many."""
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


def answer_with_retries(
    request: Callable[[], _T],
    *,
    tries_to_reach: int = TRIES,
    why_not_now: Callable[[OSError], NotNow | None] | None = None,
) -> _T:
    """A store's answer to a request, which is tried again with growing pauses: `TRIES` times in all, or
    `tries_to_reach` if the store is not reached. The request may take effect twice, if the first answer is lost.
    `why_not_now` says why an error may be momentary, by default for errors of Arrow's client; None: it is not.
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
    """A store's answer to a call of a client that makes many requests, and retries each of them itself."""
    try:
        return request()
    except OSError as error:
        raise _given_up(error, _why_not_now(error), TRIES) from error


def is_momentary(error: OSError) -> bool:
    return _why_not_now(error) is not None


def _why_not_now(error: OSError) -> NotNow | None:
    if (match := _ANSWER.search(str(error))) is None:
        return None
    if match["curl"] in _UNREACHED:
        return NotNow.UNREACHED
    return _CODES.get(match["code"]) or STATUSES.get(match["status"])


def _given_up(error: OSError, why: NotNow | None, tries: int) -> OSError:
    return error if why is None else OSError(f"{str(error).strip()}; asked {tries} times: {why.value}")


def _pause_seconds(tries: int) -> float:
    """How long to wait after this number of tries, at random, so that processes refused together do not return
    together.
    """
    longest = min(_PAUSE_MAX_SECONDS, _PAUSE_FIRST_SECONDS * 2 ** (tries - 1))
    return random.uniform(longest / 2, longest)
