"""Numba's compiler, and where it keeps what it has compiled of this library.

Of a module in a folder numba keeps compiled code in `__pycache__` beside it, or else in the user's home. A service's
user can often write neither: for it there is a directory of its own among the temporary ones.

Of a module in a zip, as on Spark's executors, numba would take a folder of the user's named by the zip's path. That is
another path for each executor: each would compile everything again and leave its own copy behind. Here such a folder
is named by the zip's content.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numba
from numba.core.caching import _CacheLocator, _SourceFileBackedLocatorMixin

__all__ = ["TemporaryLocator", "ZipLocator", "njit"]

#: The folder for compiled code in a Python environment.
FOLDER: Final = "kidx-compiled"

_config: Any = numba.config
_ROOT: Final = Path(__file__).parents[1]
_ZIP: Final = _ROOT if _ROOT.is_file() else None
_log: Final = logging.getLogger(__name__)


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


class TemporaryLocator(_SourceFileBackedLocatorMixin, _CacheLocator):
    """Where the compiled code of a function of ours is if no other place can be written: a directory of this user's
    among the temporary ones. It is asked last.
    """

    def __init__(self, function: FunctionType, file: str) -> None:
        folder = _own_folder()
        if folder is None:
            raise FileNotFoundError
        # The mixin's own names: it says what the code was compiled from.
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._folder = folder / self.get_suitable_cache_subpath(file)  # type: ignore[no-untyped-call]

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> TemporaryLocator | None:
        """The locator of a function; None where it is not ours, or there is no such directory."""
        if not Path(py_file).is_relative_to(_ROOT):
            return None
        try:
            found: TemporaryLocator | None = super().from_function(py_func, py_file)  # type: ignore[no-untyped-call]
        except FileNotFoundError:
            return None
        return found


def _njit(*arguments: Any, **options: Any) -> Any:
    """`numba.njit`; where no directory can be written what it compiles is not kept, for which numba would fail."""
    if len(arguments) == 1 and isinstance(arguments[0], FunctionType):  # @njit alone, which keeps nothing
        return numba.njit(arguments[0])
    compile_ = numba.njit(*arguments, **options)

    def compiled(function: FunctionType) -> Any:
        try:
            return compile_(function)
        except RuntimeError as error:
            if not options.get("cache") or "no locator available" not in str(error):
                raise
        _warn_once("no directory to keep compiled code in, so that each start takes half a minute; set TMPDIR to one")
        return numba.njit(*arguments, **{**options, "cache": False})(function)

    return compiled


njit: Final[Any] = _njit  # of what it compiles nobody knows the types


def _folders() -> Iterator[Path]:
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR)
    yield Path(sys.prefix) / FOLDER
    own = _own_folder()
    if own is not None:
        yield own


@functools.cache
def _own_folder() -> Path | None:
    """This user's directory among the temporary ones: numba runs what it finds there, so nobody else may write to it.

    Where somebody else has made one of that name, it is one that is new, for this process and those that it starts.
    None where none can be made, or where somebody else could put another one in its place.
    """
    # Not where else Python would look: in the current folder, which may be a broker's log dir.
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    own = place / f"{FOLDER}-{os.geteuid()}"
    try:
        if not _keeps_ours(place):
            _log.warning("%s: not sticky (chmod +t), and others can write there, or it is another user's", place)
            return None
        own.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_private(own):
            _log.warning("%s: somebody else can write there, so compiled code is kept for this run only", own)
            return _new_folder(place)
    except OSError:
        return None
    return own


def _keeps_ours(place: Path) -> bool:
    """Whether nobody but us and root can rename what is ours in a folder."""
    status = place.stat()
    return status.st_uid in (0, os.geteuid()) and bool(status.st_mode & stat.S_ISVTX or not status.st_mode & 0o022)


def _is_private(folder: Path) -> bool:
    status = folder.lstat()  # a link is none
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _new_folder(place: Path) -> Path | None:
    try:
        folder = tempfile.mkdtemp(prefix=f"{FOLDER}-", dir=place)
    except OSError:
        return None
    os.environ["NUMBA_CACHE_DIR"] = folder  # numba's first choice in the processes to come
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)


if not _config.CACHE_LOCATOR_CLASSES:
    # Numba's own in their order: what is not ours goes where it always goes. A function in our zip has its place first.
    ours_first = f"{__name__}.{ZipLocator.__name__}," if _ZIP is not None else ""
    _config.CACHE_LOCATOR_CLASSES = (
        f"{ours_first}UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,"
        f"ZipCacheLocator,{__name__}.{TemporaryLocator.__name__}"
    )
