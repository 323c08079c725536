"""`njit`: numba's compiler, with other places for compiled code and another rule for when it is out of date.

For a module in a directory, numba keeps compiled code in `__pycache__` beside it, or else in the user's home. A
service's user can often write to neither: for it there is a directory of its own among the temporary ones, where nobody
else may write.

For a module in a zip, as on Spark's executors, numba would take a directory of the user's named by the zip's path. The
path differs for each executor, so each would compile everything again and leave its own copy there. Here such a
directory is named by the zip's content.

Numba takes compiled code again as long as the function's own file is the same. But the constants and functions that the
file imports are compiled in, too: after a change of a layout, the old one would stay in use. Here the sources of all
modules of ours that a function's module imports, directly or not, must be the same.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numba
from numba.core import event
from numba.core.caching import (
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)

from kidxlib.jit import compiling

_log: Final = logging.getLogger(__name__)

_config: Any = numba.config

PACKAGE: Final = Path(__file__).parents[1]
ROOT: Final = PACKAGE.parent

#: An import of a module of ours, by its whole name: ruff refuses relative imports (`pyproject.toml`). Text that only
#: looks like an import does no harm: one more source counts.
_IMPORT: Final = re.compile(
    rf"^\s*(?:from\s+(?P<module>{PACKAGE.name}[\w.]*)\s+import\s+(?P<names>\((?:[^)#]|#.*)*\)|.*)"
    rf"|import\s+(?P<imported>{PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)

_ZIP: Final = ROOT if ROOT.is_file() else None

#: The directory for compiled code in a Python environment.
DIRECTORY: Final = "kidx-compiled"


@functools.cache
def _own_directory() -> Path | None:
    """This user's directory among the temporary ones: numba runs the code that it finds there, so nobody else may write
    to it.

    If somebody else has made a directory of that name, a new one serves this process and those that it starts. None if
    no directory can be made, or if somebody else could put another one in its place.
    """
    # Python would also look in the current directory, which may be a broker's log dir.
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    own = place / f"{DIRECTORY}-{os.geteuid()}"
    try:
        if not _keeps_ours(place):
            _log.warning(
                "%s: not sticky (chmod +t), and others can write there, or it is another user's; "
                "compiled code is not kept",
                place,
            )
            return None
        own.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_private(own):
            _log.warning("%s: somebody else can write there, so compiled code is kept for this run only", own)
            return _new_directory(place)
    except OSError:
        return None
    return own


def _keeps_ours(place: Path) -> bool:
    """Whether only we and root can rename our files in a directory."""
    status = place.stat()
    return status.st_uid in (0, os.geteuid()) and bool(status.st_mode & stat.S_ISVTX or not status.st_mode & 0o022)


def _is_private(directory: Path) -> bool:
    status = directory.lstat()  # a symlink does not count
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _new_directory(place: Path) -> Path | None:
    try:
        directory = tempfile.mkdtemp(prefix=f"{DIRECTORY}-", dir=place)
    except OSError:
        return None
    os.environ["NUMBA_CACHE_DIR"] = directory  # numba's first choice in the processes to come
    atexit.register(_remove, directory, os.getpid())
    return Path(directory)


def _remove(directory: str, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(directory, ignore_errors=True)


@functools.cache
def _stamp_of(source: Path) -> str:
    """A hash of the sources of a module and of all our modules that it imports, directly or not."""
    to_read, hashes = [source], dict[Path, bytes]()
    while to_read:
        path = to_read.pop()
        if path not in hashes:
            hashes[path], imported = _read(path)
            to_read.extend(imported)
    return hashlib.sha256(b"".join(hashes[path] for path in sorted(hashes))).hexdigest()


@functools.cache
def _read(source: Path) -> tuple[bytes, tuple[Path, ...]]:
    """A hash of a module, and the files of our modules that it imports and of their packages.

    Python's own parser would take a tenth of a second at each start.
    """
    content = source.read_bytes()
    files = []
    for match in _IMPORT.finditer(content.decode()):
        module = match["module"] or match["imported"]
        # In `from a import b`, b may be a module.
        for name in (module, *(f"{module}.{word}" for word in re.findall(r"\w+", match["names"] or ""))):
            path = ROOT.joinpath(*name.split("."))
            files += [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return hashlib.sha256(content).digest(), tuple(files)


class ZipLocator(_CacheLocator):
    """Finds the compiled code of a function in our zip; numba asks its locators in turn.

    The directory is named by the zip's content, in the first of these that can be written: the one that NUMBA_CACHE_DIR
    names, the Python environment (so that an environment can bring compiled code along), this user's directory among
    the temporary ones.
    """

    def __init__(self, directory: Path, line: int) -> None:
        self._directory, self._line = directory, line

    def get_cache_path(self) -> str:
        return str(self._directory)

    def get_source_stamp(self) -> str:
        return self._directory.name

    def get_disambiguator(self) -> str:
        """The mark that tells functions of one name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> ZipLocator | None:
        """The locator of a function; None if the function is not from our zip."""
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
    """The base of locators for our modules in a directory: the stamp covers all sources that are compiled in."""

    _py_file: str

    def get_source_stamp(self) -> str:
        return _stamp_of(Path(self._py_file))

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> _CacheLocator | None:
        """The locator of a function; None if it is not ours, or nothing can be kept in this place."""
        if not Path(py_file).is_relative_to(PACKAGE):
            return None
        locator: _CacheLocator | None = super().from_function(py_func, py_file)  # type: ignore[no-untyped-call]
        return locator


class _ProvidedLocator(_OfOurs, UserProvidedCacheLocator):
    """Compiled code in the directory that NUMBA_CACHE_DIR names."""


class _TreeLocator(_OfOurs, InTreeCacheLocator):
    """Compiled code in `__pycache__`, beside the module."""


class _HomeLocator(_OfOurs, UserWideCacheLocator):
    """Compiled code in the user's cache directory."""


class TemporaryLocator(_OfOurs, _CacheLocator):
    """Compiled code in this user's directory among the temporary ones, if no other place can be written."""

    def __init__(self, function: FunctionType, file: str) -> None:
        directory = _own_directory()
        if directory is None:
            raise FileNotFoundError
        # The mixin's own names.
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._directory = directory / self.get_suitable_cache_subpath(file)  # type: ignore[no-untyped-call]

    def get_cache_path(self) -> str:
        return str(self._directory)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> _CacheLocator | None:
        """The locator of a function; None if it is not ours, or there is no such directory."""
        try:
            return super().from_function(py_func, py_file)
        except FileNotFoundError:
            return None


def _directories() -> Iterator[Path]:
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR)
    yield Path(sys.prefix) / DIRECTORY
    own = _own_directory()
    if own is not None:
        yield own


def _register() -> None:
    """Let numba ask our locators before its own, unless its setting names others."""
    if not _config.CACHE_LOCATOR_CLASSES:
        # Code that is not ours goes to its usual place, by numba's own locators in their order.
        in_directories = (_ProvidedLocator, _TreeLocator, _HomeLocator, TemporaryLocator)
        ours = [f"{__name__}.{locator.__name__}" for locator in ([ZipLocator] if _ZIP is not None else in_directories)]
        numbas = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
        _config.CACHE_LOCATOR_CLASSES = ",".join([*ours, numbas])


_register()


class _Teller(event.Listener):
    """Tells when numba compiles, also a function inside another; not when it loads compiled code."""

    _depth = 0

    def on_start(self, event: event.Event) -> None:
        self._depth += 1
        compiling.set_compiling(True)

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        compiling.set_compiling(self._depth > 0)


event.register("numba:compile", _Teller())  # type: ignore[no-untyped-call]


def _njit(*arguments: Any, **options: Any) -> Any:
    """`numba.njit`; if no directory can be written, compiled code is not kept, where numba would fail."""
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


njit: Final[Any] = _njit  # compiled functions have no types for mypy
#: Of loops that Python calls: what is compiled is kept, callers check bounds, and other threads run meanwhile.
OPTIONS: Final = {"cache": True, "boundscheck": False, "nogil": True}


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)
