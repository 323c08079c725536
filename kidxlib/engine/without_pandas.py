"""A process that does not import pandas, which nothing here uses.

pyarrow imports it where it is installed, as pyspark has it installed: only to ask whether a list that becomes an array
is a Series. That takes a quarter of a second of a core, as much as to read gigabytes of a log.
"""

from __future__ import annotations

import sys


class _WithoutPandas:
    """Finds no pandas, even where it is installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def import_no_pandas() -> None:
    """From now on this process takes pandas for not installed: a command, a worker of its own, a task of a job."""
    if _WithoutPandas not in sys.meta_path:
        sys.meta_path.insert(0, _WithoutPandas)
