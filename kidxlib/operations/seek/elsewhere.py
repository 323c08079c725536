"""Questions and answers in places that only an engine's own means reach, as a store that Spark has jars for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.storage.store.s3 import is_object


class Elsewhere(Protocol):
    """Reads and writes there."""

    def read(self, backend: Backend, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file or a table of questions, with all its columns, in any order; one batch at least.

        Raises:
            UsageError: it cannot be read.
        """

    def ensure_new(self, backend: Backend, path: str) -> None:
        """Answers never replace what is there.

        Raises:
            UsageError: something is.
        """

    def write(self, backend: Backend, answers: Iterator[pa.RecordBatch], path: str) -> None:
        """Write the columns of a result as what the name says.

        Args:
            answers: rows of `RESULT`, in order.
        """


def is_elsewhere(path: str) -> bool:
    """Whether a path is neither of this machine nor of an S3 store."""
    return "://" in path and not is_object(path)


def not_reached(option: str, path: str) -> UsageError:
    """What a command says that has no such means."""
    return UsageError(
        f"{option} {path}: kidx reaches files of this machine and s3://<bucket>/<key>; "
        "use ./spark-submit.sh seek for what Spark reaches"
    )
