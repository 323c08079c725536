"""Connections to an object store that end before an answer is whole, where delta-rs does not ask again by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

_T = TypeVar("_T")

#: Tries of one commit or read, and the pauses between them in seconds.
ATTEMPTS: Final = 20
_PAUSE_MAX: Final = 5.0
_PAUSE_FIRST: Final = 0.05

#: As delta-rs says it. All but a conditional PUT it has then asked again by itself, if not amid an answer.
_BEFORE_THE_ANSWER: Final = "error sending request"
_AMID_THE_ANSWER: Final = "request or response body error"


def attempts() -> Iterator[None]:
    """So many attempts, with pauses between them that differ from those of other processes."""
    for number in range(ATTEMPTS):
        if number:
            time.sleep(random.uniform(0, min(_PAUSE_MAX, _PAUSE_FIRST * 2 ** (number - 1))))
        yield


def was_dropped(error: Exception) -> bool:
    """Whether a connection ended before an answer was whole: what was asked may have been done."""
    return _BEFORE_THE_ANSWER in str(error) or _AMID_THE_ANSWER in str(error)


def whole_answer(read: Callable[[], _T]) -> _T:
    """What is read, once no connection ends amid an answer.

    Args:
        read: changes nothing.

    Raises:
        DeltaError, OSError, pa.ArrowException: it cannot be read.
    """
    for _ in attempts():
        try:
            return read()
        except (DeltaError, OSError, pa.ArrowException) as error:
            if _AMID_THE_ANSWER not in str(error):
                raise
            failed = error
    raise failed
