"""What this machine gives to this process: processor, cores, memory, page cache, temporary files."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from rich.filesize import decimal

from kidxlib.format.checksums.choice import CHOSEN, FORCED_BY, candidates
from kidxlib.format.checksums.folded_kernel import folded_crc32c
from kidxlib.format.checksums.folding import BLOCK_BYTES
from kidxlib.jit.processor import has_instructions
from kidxlib.operations.doctor.fact import Fact

#: Instructions that decide how fast checksums are, by LLVM's names.
_INSTRUCTIONS: Final = ("sse4.2", "pclmul", "avx2", "vpclmulqdq", "avx512f", "avx512bw")
#: Bytes of which each way to compute checksums is tried: they stay in the processor's cache.
_TRIED_BYTES: Final = 256 * 1024
_TRIES: Final = 5
#: With less, a build's processes may end where the page cache and the limits of a container meet.
_MEMORY_BYTES_MIN: Final = 1 << 30
#: Files that many tables and stores hold open at once.
_OPEN_FILES_MIN: Final = 1024


def facts_of_processor(cpuinfo: str) -> Iterator[Fact]:
    """The processor, by what Linux says of it.

    Args:
        cpuinfo: the text of /proc/cpuinfo; empty where there is none.
    """
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    kind = fields.get("model name", platform.processor() or platform.machine())
    numbers = ", ".join(
        f"{name} {fields[of]}" for name, of in (("family", "cpu family"), ("model", "model")) if of in fields
    )
    yield Fact("processor", "kind", f"{kind} ({numbers})" if numbers else kind)
    there = [name for name in _INSTRUCTIONS if has_instructions(name)]
    yield Fact("processor", "instructions", ", ".join(there) or "none of those that kidx asks for")
    given = len(os.sched_getaffinity(0))
    yield Fact("processor", "cores", f"{given} for this process, {os.cpu_count()} in all")


def facts_of_checksums() -> Iterator[Fact]:
    """Which way to compute checksums is taken, and how fast each one is here."""
    data = np.zeros(BLOCK_BYTES + _TRIED_BYTES, np.uint8)
    address = data.ctypes.data + BLOCK_BYTES
    forced = f" ({FORCED_BY} asks for it)" if os.environ.get(FORCED_BY) else ""
    for name, checksums in candidates().items():
        seconds = []
        for _ in range(_TRIES):
            start = time.perf_counter()
            checksums.crc32c(address, _TRIED_BYTES)
            seconds.append(time.perf_counter() - start)
        taken = f"; taken{forced}" if name == CHOSEN else ""
        yield Fact("checksums", name, f"CRC-32C {_TRIED_BYTES / min(seconds) / 1e9:.1f} GB/s{taken}")


def facts_of_compiled_code() -> Iterator[Fact]:
    """Where compiled loops are kept."""
    place = Path(folded_crc32c.stats.cache_path or "")
    if folded_crc32c.stats.cache_path and os.access(place, os.W_OK):
        yield Fact("compiled code", "kept in", str(place.parent))
    else:
        problem = "no directory can be written, so each start compiles for half a minute; set TMPDIR to one"
        yield Fact("compiled code", "kept in", str(place.parent) if place.name else "nowhere", problem)


def facts_of_memory(meminfo: str, limits: Path) -> Iterator[Fact]:
    """Memory, the page cache, and what a container allows.

    Args:
        meminfo: the text of /proc/meminfo.
        limits: the directory of this process's control group.
    """
    kib = {
        name: int(value.split()[0])
        for name, _, value in (line.partition(":") for line in meminfo.splitlines())
        if value
    }
    available = kib.get("MemAvailable", 0) * 1024
    yield Fact(
        "memory",
        "of the machine",
        f"{decimal(kib.get('MemTotal', 0) * 1024)}, {decimal(available)} available",
        f"less than {decimal(_MEMORY_BYTES_MIN)} is free: ask for fewer --processes"
        if available < _MEMORY_BYTES_MIN
        else None,
    )
    yield Fact(
        "memory", "page cache", f"{decimal(kib.get('Cached', 0) * 1024)} of files; logs in it are read from memory"
    )
    for name, file in (("limit", "memory.max"), ("cores", "cpu.max")):
        text = (limits / file).read_text().strip() if (limits / file).is_file() else "max"
        if text.split()[0] == "max":
            continue
        if name == "limit":
            yield Fact("container", "memory", decimal(int(text)))
        else:
            quota, period = map(int, text.split())
            yield Fact("container", "cores", f"{quota / period:g}")


def facts_of_files() -> Iterator[Fact]:
    """What files this process may open, and where temporary ones go."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    problem = f"raise it to {_OPEN_FILES_MIN:,} or more: ulimit -n" if 0 <= open_files < _OPEN_FILES_MIN else None
    yield Fact("files", "open at once", f"{open_files:,}" if open_files >= 0 else "without limit", problem)
    place = tempfile.gettempdir()
    yield Fact("files", "temporary", f"{place}, {decimal(shutil.disk_usage(place).free)} free")


def control_group(proc_cgroup: str, root: Path = Path("/sys/fs/cgroup")) -> Path:
    """The directory of a process's control group (version 2).

    Args:
        proc_cgroup: the text of /proc/self/cgroup.
    """
    for line in proc_cgroup.splitlines():
        if line.startswith("0::"):
            return root / line[len("0::") :].lstrip("/")
    return root
