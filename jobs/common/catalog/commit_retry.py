"""Commits to one table by several jobs at the same time: a job that was overtaken tries again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from delta import exceptions

from kidxlib.errors import CatalogError
from kidxlib.tables.commit_lock import committing_threads

#: Tries of one commit while other jobs commit to the same table, and the longest pause between two, in seconds.
ATTEMPTS: Final = 10
_PAUSE_MAX: Final = 10.0

_R = TypeVar("_R")
_log = logging.getLogger(__name__)


class TableInTheMakingError(Exception):
    """Another job is making this table: its log directory is there, its first commit is not."""


class TableChangedError(Exception):
    """Another job has committed to this table since it was read."""


#: The errors of an overtaken commit, which have no common base in Python.
CONFLICTS: Final = (
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
    exceptions.DeltaConcurrentModificationException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
    TableChangedError,
    TableInTheMakingError,
)


def while_others_commit(location: str, lock_place: str, commit: Callable[[], _R]) -> _R:
    """Run `commit` to the table at a location under the catalog's lock; again, after a random pause without the lock,
    as long as another job changed the same table at the same moment.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with committing_threads(lock_place):
                return commit()
        except CONFLICTS as error:
            _log.info("%s: another job committed at the same moment, attempt %d: %s", location, attempt, error)
        time.sleep(random.uniform(0, min(_PAUSE_MAX, 2.0**attempt)))
    raise CatalogError(
        f"{location}: other jobs changed the table at each of {ATTEMPTS} attempts to commit; "
        "the index files are in place: run the same command again to record them"
    )
