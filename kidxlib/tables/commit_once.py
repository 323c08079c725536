"""A commit right after one version of a table, made once: also where an object store's answer to it is lost.

An object store takes a commit by a conditional PUT. Where the connection ends before there is an answer, delta-rs takes
the commit for failed; where the store fails after it has made it, delta-rs asks again, finds one there and takes it for
another writer's. To make either once more would add its rows a second time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from kidxlib.storage.store.s3 import ObjectPath, is_object
from kidxlib.tables.dropped import was_dropped

#: What tells a commit from those of others, in the table's history.
_MARK: Final = "kidx.commit"


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

    Raises:
        CommitFailedError: it was not made, and may be tried again: another writer was faster, or the connection ended.
        DeltaError, OSError, pa.ArrowException: it cannot be written.
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
