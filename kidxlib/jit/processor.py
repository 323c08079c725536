"""The cores that this process may use, and the instructions that compiled code may use on this processor. Numba's
cache is separate for each kind of processor, and for each setting of its features.
"""

from __future__ import annotations

import os
import platform

from llvmlite import binding
from numba import config


def cores() -> int:
    """How many cores this process may use; all that there are where the system does not tell (Linux alone does)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_instructions(*features: str) -> bool:
    """Whether this is an x86-64 processor with all of these features, by LLVM's names, and numba may use them.

    `NUMBA_CPU_FEATURES` hides the features that it does not name with a plus. `NUMBA_CPU_NAME` hides all: which
    features the named processor has is LLVM's to know.
    """
    if platform.machine() not in ("x86_64", "AMD64") or config.CPU_NAME:  # type: ignore[attr-defined]
        return False
    there = {feature for feature, is_there in binding.get_host_cpu_features().items() if is_there}
    asked_for = config.CPU_FEATURES  # type: ignore[attr-defined]
    if asked_for is not None:
        there &= {word.removeprefix("+") for word in asked_for.split(",") if word.startswith("+")}
    return there.issuperset(features)
