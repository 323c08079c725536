"""Keeps a process from importing pandas, which kidx does not use.

pyarrow imports pandas if it is installed, as with pyspark, only to check whether a list is a Series. That takes a
quarter of a second of a core, as much as reading gigabytes of a log.
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
    """Make this process (a command, its worker, or a job's task) take pandas for not installed."""
    if _WithoutPandas not in sys.meta_path:
        sys.meta_path.insert(0, _WithoutPandas)
