"""What a figure was measured on: without it, it says nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from kidxlib.format import checksum_kernel

#: The packages that decide how fast the scan is.
_PACKAGES = ("numpy", "numba", "llvmlite", "isal", "google-crc32c")


def describe() -> dict[str, str | int]:
    """When and where this process runs, and on what versions."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "checksums": checksum_kernel.CHOSEN,
        "cores": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    pairs = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    # Hypervisors like to shorten the name; family and model tell the generation.
    name = fields.get("model name", platform.machine())
    vectors = "with" if "avx512f" in fields.get("flags", "").split() else "without"
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')}, {vectors} AVX-512)"
