"""What compiled code finds on this machine: cores, instructions of the processor, and C functions in wheels."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from importlib import metadata

from kidxlib.errors import MissingLibraryError


def cores() -> int:
    """How many cores this process may use; all that there are where the system does not tell (Linux alone does)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_instructions(*features: str) -> bool:
    """Whether this is an x86-64 processor with all of these features, by LLVM's names, and numba may use them.

    `NUMBA_CPU_FEATURES` hides the features that it does not name with a plus. `NUMBA_CPU_NAME` hides all: which
    features the named processor has is LLVM's to know. Numba's cache is separate for each kind of processor, and for
    each setting of its features.
    """
    from llvmlite import binding  # here, as these take long to import, and checksums in Python need neither
    from numba import config

    if platform.machine() not in ("x86_64", "AMD64") or config.CPU_NAME:  # type: ignore[attr-defined]
        return False
    there = {feature for feature, is_there in binding.get_host_cpu_features().items() if is_there}
    asked_for = config.CPU_FEATURES  # type: ignore[attr-defined]
    if asked_for is not None:
        there &= {word.removeprefix("+") for word in asked_for.split(",") if word.startswith("+")}
    return there.issuperset(features)


def c_library(distribution: str, module: str, function: str) -> ctypes.CDLL:
    """An extension module of a wheel that contains a C function. `distribution` is the wheel's name for pip, `module`
    the first part of the file's name. Compiled loops call such functions: a Python call for each batch would be slower.
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
