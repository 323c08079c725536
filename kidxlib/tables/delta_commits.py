"""Commits by delta-rs: a commit lands right after one version of a table, exactly once, even if an object store's
answer is lost.

An object store takes a commit by a conditional PUT. If the connection ends before the answer, delta-rs takes the commit
for failed. If the store fails after making it, delta-rs tries again, and takes its own commit for another writer's. In
both cases a second commit would add the rows twice.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from kidxlib.storage.store.s3 import ObjectPath, is_object

#: The key in the table's history by which a writer knows its own commit.
_MARK: Final = "kidx.commit"

_T = TypeVar("_T")

#: Tries of one commit or read, and the pauses between them in seconds.
ATTEMPTS: Final = 20
_PAUSE_MAX: Final = 5.0
_PAUSE_FIRST: Final = 0.05

#: Parts of delta-rs' messages. delta-rs retries all requests by itself but a conditional PUT, unless in mid-answer.
_BEFORE_THE_ANSWER: Final = "error sending request"
_AMID_THE_ANSWER: Final = "request or response body error"


def attempts() -> Iterator[None]:
    """Attempts, with random pauses between them."""
    for number in range(ATTEMPTS):
        if number:
            time.sleep(random.uniform(0, min(_PAUSE_MAX, _PAUSE_FIRST * 2 ** (number - 1))))
        yield


def was_dropped(error: Exception) -> bool:
    """Whether the connection ended before the whole answer came. The store may have carried out the request."""
    return _BEFORE_THE_ANSWER in str(error) or _AMID_THE_ANSWER in str(error)


def whole_answer(read: Callable[[], _T]) -> _T:
    """Read, again each time that a connection ends in mid-answer. `read` has no effects."""
    for _ in attempts():
        try:
            return read()
        except (DeltaError, OSError, pa.ArrowException) as error:
            if _AMID_THE_ANSWER not in str(error):
                raise
            failed = error
    raise failed


def commit_once(
    place: str,
    version: int,
    write: Callable[[CommitProperties], object],
    history: Mapping[str, Any] | None = None,
) -> None:
    """Commit a version of the table at a directory or URL, unless another writer does. `history` is the commit's
    metadata in the table's history.
    """
    mark = {_MARK: uuid.uuid4().hex} if is_object(place) else {}
    try:
        write(CommitProperties(max_commit_retries=0, custom_metadata={**(history or {}), **mark}))
    except (DeltaError, OSError) as error:
        if mark and _holds(place, version, mark[_MARK]):
            return
        if was_dropped(error):
            raise CommitFailedError(str(error)) from error
        raise


def _holds(place: str, version: int, mark: str) -> bool:
    try:
        commit = (ObjectPath.of(place) / "_delta_log" / f"{version:020}.json").read_bytes()
    except FileNotFoundError:
        return False
    return mark.encode() in commit
