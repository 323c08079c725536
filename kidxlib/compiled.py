"""Numba's compiler, and where it keeps what it has compiled of this library.

Of a module in a folder numba keeps compiled code in `__pycache__` beside it. Of one in a zip, as on Spark's executors,
it would take a folder of the user's named by the zip's path. That is another path for each executor: each would compile
everything again and leave its own copy behind. Here such a folder is named by the zip's content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numba
from numba import njit
from numba.core.caching import _CacheLocator

__all__ = ["ZipLocator", "njit"]

#: The folder for compiled code in a Python environment.
FOLDER: Final = "kidx-compiled"

_config: Any = numba.config
_ROOT: Final = Path(__file__).parents[1]
_ZIP: Final = _ROOT if _ROOT.is_file() else None


class ZipLocator(_CacheLocator):
    """Where the compiled code of a function in our zip is: numba asks its locators in turn.

    It is a folder named by the zip's content, in the first of these that can be written: the one that NUMBA_CACHE_DIR
    names, the Python environment (so that an environment can bring compiled code along), a folder of this user's among
    the temporary ones.
    """

    def __init__(self, folder: Path, line: int) -> None:
        self._folder, self._line = folder, line

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """What the code was compiled from."""
        return self._folder.name

    def get_disambiguator(self) -> str:
        """What tells functions of one name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> ZipLocator | None:
        """The locator of a function; None where the function is not from our zip."""
        if _ZIP is None or not Path(py_file).is_relative_to(_ZIP):
            return None
        version = hashlib.sha256(_ZIP.read_bytes()).hexdigest()
        for folder in _folders():
            locator = cls(folder / version, py_func.__code__.co_firstlineno)
            try:
                locator.ensure_cache_path()  # type: ignore[no-untyped-call]
            except OSError:
                continue  # cannot be written
            return locator
        return None


def _folders() -> Iterator[Path]:
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR)
    yield Path(sys.prefix) / FOLDER
    own = Path(tempfile.gettempdir()) / f"{FOLDER}-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        own.mkdir(mode=0o700)
    # Numba runs what it finds there: it must not be somebody else's.
    status = own.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        yield own


if _ZIP is not None and not _config.CACHE_LOCATOR_CLASSES:
    # Ours first, then numba's own in their order: what is not from our zip goes where it always goes.
    _config.CACHE_LOCATOR_CLASSES = (
        f"{__name__}.{ZipLocator.__name__},"
        "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
    )
