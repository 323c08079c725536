"""Paths in the project's directory, for ./spark-submit.sh."""

from __future__ import annotations

import os
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: The directory with spark-submit.sh; this file is four levels below.
PROJECT: Final = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
#: setup.sh makes this environment.
PYTHON: Final = f"{PROJECT}/.venv/bin/python"
#: The project's modules, as they are sent to the nodes of a cluster.
MODULES: Final = f"{PROJECT}/.jars/kidx.zip"


def python_path(environ: Mapping[str, str]) -> str:
    """The search path of the project's modules, and then the caller's."""
    return ":".join(filter(None, [PROJECT, environ.get("PYTHONPATH")]))


def names_in(directory: str, start: str = "", end: str = "") -> list[str]:
    """The names in a directory with this beginning and end, sorted, without hidden ones; none if there is no such
    directory.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(start) and name.endswith(end) and name[0] != ".")
