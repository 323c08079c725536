"""The library is imported where systems lack what Linux has. What needs such a thing fails when it is used."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.docs.pages import PROJECT

#: Hides modules, functions of `os` and of the C library, and /proc from a process, as if there were none.
HIDDEN: Final = """
import os, sys

for name in ("fcntl", "grp", "pwd", "resource"):
    sys.modules[name] = None
for name in ("O_PATH", "O_TMPFILE", "listxattr", "memfd_create", "posix_fadvise", "posix_fallocate"):
    delattr(os, name)
del os.sched_getaffinity

def hide(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])
    if event == "ctypes.dlsym" and arguments[1] in ("statx", "syncfs"):
        raise AttributeError(arguments[1])

sys.addaudithook(hide)
"""
USES: Final = {
    "the library": """
import kidxlib
print(len([getattr(kidxlib, name) for name in kidxlib.__all__]), kidxlib.__version__)
""",
    "all modules": """
import importlib, pkgutil
import kidxlib
for module in pkgutil.walk_packages(kidxlib.__path__, "kidxlib."):
    importlib.import_module(module.name)
""",
    "kidx --help": """
sys.argv = ["kidx", "--help"]
from kidxlib.cli.main import main
main()
""",
}


@pytest.mark.parametrize("use", USES)
def test_nothing_that_linux_alone_has_is_needed_to_import(use: str) -> None:
    ended = subprocess.run(
        (sys.executable, "-c", HIDDEN + USES[use]), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
