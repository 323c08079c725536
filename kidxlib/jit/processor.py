"""The instructions that compiled code may use on this processor. Numba's cache is separate for each kind of
processor.
"""

from __future__ import annotations

import platform

from llvmlite import binding
from numba import config


def has_instructions(*features: str) -> bool:
    """Whether this is an x86-64 processor with all of these features, by LLVM's names; never if numba is set to compile
    for another processor.
    """
    if platform.machine() not in ("x86_64", "AMD64") or config.CPU_NAME or config.CPU_FEATURES:  # type: ignore[attr-defined]
        return False
    there = binding.get_host_cpu_features()
    return all(there.get(feature) for feature in features)
