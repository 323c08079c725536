"""Compiles all loops of this library ahead, so that no command has to."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Final

from kidxlib.jit.compiler import PACKAGE

#: How a module imports the compiler.
_COMPILES: Final = f"from {PACKAGE.name}.jit.compiler import njit"


def compile_all() -> dict[str, str]:
    """Compile what is not kept yet for this processor: loops are compiled when their module is imported.

    Returns:
        The modules of which nothing was compiled, and the package that each one lacks: of an extra, mostly.
    """
    lacking = {}
    for module in pkgutil.walk_packages([str(PACKAGE)], f"{PACKAGE.name}."):
        spec = None if module.ispkg else module.module_finder.find_spec(module.name, None)
        if spec is None or spec.origin is None or _COMPILES not in Path(spec.origin).read_text():
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacking[module.name] = str(error.name)
    return lacking
