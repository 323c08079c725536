"""The session of one job, which starts once it is needed: a run that has no work for Spark starts no JVM."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self, TypeVar

from pyspark.sql import SparkSession

from jobs.common.spark.session import session

_Entered = TypeVar("_Entered")


class JobSession:
    """A context: the session that was started within is stopped at its end.

    Args:
        job, event_log_dir, changes: as `jobs.common.spark.session.session` takes them.
    """

    def __init__(self, job: str, event_log_dir: str | None, *, changes: bool = True) -> None:
        self._job, self._event_log_dir, self._changes = job, event_log_dir, changes
        self._stack = contextlib.ExitStack()
        self._spark: SparkSession | None = None

    @property
    def is_started(self) -> bool:
        """Whether it was needed so far."""
        return self._spark is not None

    def get(self) -> SparkSession:
        """The session. Its first call is the main thread's, which signals come to.

        Raises:
            KidxError: as `session`.
        """
        if self._spark is None:
            self._spark = self._stack.enter_context(session(self._job, self._event_log_dir, changes=self._changes))
        return self._spark

    def enter(self, context: contextlib.AbstractContextManager[_Entered]) -> _Entered:
        """Enter a context that is left before the session is stopped."""
        return self._stack.enter_context(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, traceback)
