"""Compiles all loops of kidx ahead, so that commands need not."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Final

from kidxlib.jit.compiler import PACKAGE

#: The line by which a module imports the compiler.
_COMPILES: Final = f"from {PACKAGE.name}.jit.compiler import njit"


def compile_all() -> dict[str, str]:
    """Compile the loops that are not in the cache yet for this processor, by importing their modules. Returns the
    modules that could not be imported with the package that each lacks, mostly one of an extra.
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
