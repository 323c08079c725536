"""Where numba keeps what it has compiled of this library.

Of a module in a directory numba keeps compiled code in `__pycache__` beside it, or else in the user's home. A service's
user can often write neither: for it there is a directory of its own among the temporary ones.

Of a module in a zip, as on Spark's executors, numba would take a directory of the user's named by the zip's path. That
is another path for each executor: each would compile everything again and leave its own copy there. Here such a
directory is named by the zip's content.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numba
from numba.core.caching import (
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)

from kidxlib.jit.private_directory import DIRECTORY, own_directory
from kidxlib.jit.stamp import PACKAGE, ROOT, stamp_of

_config: Any = numba.config
_ZIP: Final = ROOT if ROOT.is_file() else None


class ZipLocator(_CacheLocator):
    """Where the compiled code of a function in our zip is: numba asks its locators in turn.

    It is a directory named by the zip's content, in the first of these that can be written: the one that
    NUMBA_CACHE_DIR names, the Python environment (so that an environment can bring compiled code along), a directory
    of this user's among the temporary ones.
    """

    def __init__(self, directory: Path, line: int) -> None:
        self._directory, self._line = directory, line

    def get_cache_path(self) -> str:
        """The directory."""
        return str(self._directory)

    def get_source_stamp(self) -> str:
        """What the code was compiled from."""
        return self._directory.name

    def get_disambiguator(self) -> str:
        """What tells functions of one name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> ZipLocator | None:
        """The locator of a function; None where the function is not from our zip."""
        if _ZIP is None or not Path(py_file).is_relative_to(_ZIP):
            return None
        version = hashlib.sha256(_ZIP.read_bytes()).hexdigest()
        for directory in _directories():
            locator = cls(directory / version, py_func.__code__.co_firstlineno)
            try:
                locator.ensure_cache_path()  # type: ignore[no-untyped-call]
            except OSError:
                continue  # cannot be written
            return locator
        return None


class _OfOurs(_SourceFileBackedLocatorMixin):
    """What the locators for our modules in a directory have in common: their stamp covers whatever is compiled in."""

    _py_file: str

    def get_source_stamp(self) -> str:
        """What the code was compiled from."""
        return stamp_of(Path(self._py_file))

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> _CacheLocator | None:
        """The locator of a function; None where it is not ours, or nothing can be kept in this place."""
        if not Path(py_file).is_relative_to(PACKAGE):
            return None
        found: _CacheLocator | None = super().from_function(py_func, py_file)  # type: ignore[no-untyped-call]
        return found


class ProvidedLocator(_OfOurs, UserProvidedCacheLocator):
    """Compiled code in the directory that NUMBA_CACHE_DIR names."""


class TreeLocator(_OfOurs, InTreeCacheLocator):
    """Compiled code in `__pycache__`, beside the module."""


class HomeLocator(_OfOurs, UserWideCacheLocator):
    """Compiled code in the user's cache directory."""


class TemporaryLocator(_OfOurs, _CacheLocator):
    """Compiled code in a directory of this user's among the temporary ones, if no other place can be written."""

    def __init__(self, function: FunctionType, file: str) -> None:
        directory = own_directory()
        if directory is None:
            raise FileNotFoundError
        # The mixin's own names.
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._directory = directory / self.get_suitable_cache_subpath(file)  # type: ignore[no-untyped-call]

    def get_cache_path(self) -> str:
        """The directory."""
        return str(self._directory)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> _CacheLocator | None:
        """The locator of a function; None where it is not ours, or there is no such directory."""
        try:
            return super().from_function(py_func, py_file)
        except FileNotFoundError:
            return None


def _directories() -> Iterator[Path]:
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR)
    yield Path(sys.prefix) / DIRECTORY
    own = own_directory()
    if own is not None:
        yield own


def register() -> None:
    """Let numba ask these before its own, unless its setting names others."""
    if not _config.CACHE_LOCATOR_CLASSES:
        # Ours first. What is not ours goes where it always goes: numba's own locators, in their order.
        in_directories = (ProvidedLocator, TreeLocator, HomeLocator, TemporaryLocator)
        ours = [f"{__name__}.{locator.__name__}" for locator in ([ZipLocator] if _ZIP is not None else in_directories)]
        numbas = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
        _config.CACHE_LOCATOR_CLASSES = ",".join([*ours, numbas])
