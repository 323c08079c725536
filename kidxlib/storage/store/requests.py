"""How many requests of object stores this process has made, by kind: S3 is paid by the request."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Final

#: Keys of one page of a listing.
PAGE_KEYS: Final = 1_000


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
    return max(1, -(-entries // PAGE_KEYS))
