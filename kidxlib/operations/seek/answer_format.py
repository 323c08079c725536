"""The kinds of files that answers are written to; the end of a name says which."""

from __future__ import annotations

import enum
from pathlib import PurePosixPath

from kidxlib.errors import UsageError


class Format(enum.Enum):
    """What a name says: one file of text, a directory of Parquet files, or a Delta table."""

    CSV = ".csv"
    JSON = ".json"
    PARQUET = ".parquet"
    DELTA = ""

    @classmethod
    def of(cls, path: str) -> Format:
        """The format that the end of a name says.

        Raises:
            UsageError: it says something else.
        """
        try:
            return cls(PurePosixPath(path).suffix)
        except ValueError as error:
            raise UsageError(
                f"--output {path}: expected a name that ends in .csv, .json or .parquet, or without a dot for a Delta "
                "table"
            ) from error
