"""Paths in the project's directory, for ./spark-submit.sh."""

from __future__ import annotations

import os
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: It has spark-submit.sh, and this file four levels below.
PROJECT: Final = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
#: What setup.sh makes.
PYTHON: Final = f"{PROJECT}/.venv/bin/python"
#: The project's modules, as they are sent to the nodes of a cluster.
MODULES: Final = f"{PROJECT}/.jars/kidx.zip"


def python_path(environ: Mapping[str, str]) -> str:
    """Where Python finds the project's modules, and whatever the caller has it find."""
    return ":".join(filter(None, [PROJECT, environ.get("PYTHONPATH")]))


def names_in(directory: str, start: str = "", end: str = "") -> list[str]:
    """The names in a directory that begin and end so, sorted, but for hidden ones; none where there is no such
    directory.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(start) and name.endswith(end) and name[0] != ".")
