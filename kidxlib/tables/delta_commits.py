"""Where a catalog is, as delta-rs is told, and commits to it: a commit lands right after one version of a table, once,
also where an object store's answer to it is lost.

An object store takes a commit by a conditional PUT. Where the connection ends before there is an answer, delta-rs takes
the commit for failed; where the store fails after it has made it, delta-rs asks again, finds one there and takes it for
another writer's. To make either once more would add its rows a second time.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from kidxlib.storage.store.s3 import ObjectPath, endpoint, is_object

#: What tells a commit from those of others, in the table's history.
_MARK: Final = "kidx.commit"

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
    """
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
    said: Mapping[str, Any] | None = None,
) -> None:
    """Make a version of a table, if no other writer does.

    Args:
        place: the table's directory or URL.
        version: the one to be made.
        write: commits it, with these properties.
        said: what the history says of it.
    """
    mark = {_MARK: uuid.uuid4().hex} if is_object(place) else {}
    try:
        write(CommitProperties(max_commit_retries=0, custom_metadata={**(said or {}), **mark}))
    except (DeltaError, OSError) as error:
        if mark and _holds(place, version, mark[_MARK]):
            return
        if was_dropped(error):
            raise CommitFailedError(str(error)) from error
        raise


def _holds(place: str, version: int, mark: str) -> bool:
    """Whether the commit of a version has a mark."""
    try:
        commit = (ObjectPath.of(place) / "_delta_log" / f"{version:020}.json").read_bytes()
    except FileNotFoundError:
        return False
    return mark.encode() in commit


def storage_options(path: str) -> dict[str, str]:
    """What delta-rs needs besides a catalog's path. It finds credentials and the region as AWS' own tools do, and as
    kidx does for sources; what it does not find by itself is where another store is.

    Args:
        path: of a directory, or `s3://<bucket>/<prefix>`.
    """
    if not is_object(path) or (other := endpoint()) is None:
        return {}
    options = {"AWS_ENDPOINT_URL": other}
    if urlsplit(other).scheme == "http":  # else it takes TLS for granted
        options["AWS_ALLOW_HTTP"] = "true"
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        options["AWS_REGION"] = region
    return options
