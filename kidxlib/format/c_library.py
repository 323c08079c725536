"""C functions out of wheels, for compiled loops to call: faster than a call of Python's for each batch would be."""

from __future__ import annotations

import ctypes
from importlib import metadata

from kidxlib.errors import MissingLibraryError


def c_library(distribution: str, module: str, function: str) -> ctypes.CDLL:
    """An extension module that a wheel brings along and that has a C function of that name in it.

    Args:
        distribution: what pip calls the wheel.
        module: the first part of the module's file name.
    """
    for file in _files_of(distribution):
        if file.suffix == ".so" and file.name.startswith(f"{module}."):
            library = ctypes.CDLL(str(file.locate()))
            if hasattr(library, function):
                return library
    raise MissingLibraryError(
        f"no {function} in the files of {distribution}; expected its binary wheel (Linux glibc or macOS): reinstall it "
        "with pip, without --no-binary"
    )


def _files_of(distribution: str) -> list[metadata.PackagePath]:
    try:
        return metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []
