"""What compiled code may use of the processor that it runs on. Numba keeps what it compiles for each kind apart."""

from __future__ import annotations

import platform

from llvmlite import binding
from numba import config


def has_instructions(*features: str) -> bool:
    """Whether this is an x86-64 processor that has all of these, by LLVM's names; never, where numba is told to compile
    for another one.
    """
    if platform.machine() not in ("x86_64", "AMD64") or config.CPU_NAME or config.CPU_FEATURES:  # type: ignore[attr-defined]
        return False
    there = binding.get_host_cpu_features()
    return all(there.get(feature) for feature in features)
