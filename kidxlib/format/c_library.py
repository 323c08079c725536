"""C functions from wheels, for compiled loops to call. A Python call for each batch would be slower."""

from __future__ import annotations

import contextlib
import ctypes
from importlib import metadata

from kidxlib.errors import MissingLibraryError


def c_library(distribution: str, module: str, function: str) -> ctypes.CDLL:
    """An extension module of a wheel that contains a C function. `distribution` is the wheel's name for pip, `module`
    the first part of the file's name.
    """
    files: list[metadata.PackagePath] | None = None
    with contextlib.suppress(metadata.PackageNotFoundError):
        files = metadata.files(distribution)
    for file in files or ():
        if file.suffix == ".so" and file.name.startswith(f"{module}."):
            library = ctypes.CDLL(str(file.locate()))
            if hasattr(library, function):
                return library
    raise MissingLibraryError(
        f"no {function} in the files of {distribution}; expected its binary wheel (Linux glibc or macOS): reinstall it "
        "with pip, without --no-binary"
    )
