"""The facts that `kidx doctor` shows: what is installed (kidx, Python, packages, Java), and what this machine gives to
this process (processor, cores, memory, page cache, files). `examine` has their order.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pkgutil
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from rich.filesize import decimal

from kidxlib.format.checksum_kernel import BLOCK_BYTES, CHOSEN, FORCED_BY, checksum_candidates, folded_crc32c
from kidxlib.jit.compiler import PACKAGE
from kidxlib.jit.machine import cores, has_instructions
from kidxlib.storage.lock import MOUNTS

#: The line by which a module imports the compiler.
_COMPILES: Final = re.compile(rf"^from {PACKAGE.name}\.jit\.compiler import .*\bnjit\b", re.MULTILINE)


def compile_all() -> dict[str, str]:
    """Compile the loops that are not in the cache yet for this processor, by importing their modules. Returns the
    modules that could not be imported with the package that each lacks, mostly one of an extra.
    """
    lacking = {}
    for module in pkgutil.walk_packages([str(PACKAGE)], f"{PACKAGE.name}."):
        spec = None if module.ispkg else module.module_finder.find_spec(module.name, None)
        if spec is None or spec.origin is None or not _COMPILES.search(Path(spec.origin).read_text()):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacking[module.name] = str(error.name)
    return lacking


#: Instructions that decide how fast checksums are, by LLVM's names.
_INSTRUCTIONS: Final = ("sse4.2", "pclmul", "avx2", "vpclmulqdq", "avx512f", "avx512bw")
#: Each way to compute checksums is timed on so many bytes: they fit into the processor's cache.
_TRIED_BYTES: Final = 256 * 1024
_TRIES: Final = 5
#: With less memory, a container may kill a build's processes once the page cache fills up.
_MEMORY_BYTES_MIN: Final = 1 << 30
#: Tables and stores may hold so many files open at once.
_OPEN_FILES_MIN: Final = 1024

#: Parts of Linux that kidx uses, and what does not work without them.
_WITHOUT: Final = {
    "/proc": "nothing can be written into a log dir, --trust-page-cache is refused, and free memory is not known; "
    "mount it",
    "fcntl": "no lock can be taken, so what writes into a log dir, a catalog on this machine, or a file of an export "
    "is refused; run that on Linux",
    "posix_fadvise": "what kidx reads stays in memory, in the place of what a broker reads; read a copy elsewhere",
    "statx": "recover --trust-page-cache is refused; leave it out",
}

_DISTRIBUTION: Final = "kidx"
#: `kidx[catalog] ; extra == "catalog"` and the like: a package's name, and the extra that asks for it.
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(?P<of>\[[^]]*\])?(?P<range>[^;]*)(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?"
)
#: `; python_version >= "3.14"`: what one Python brings is a package for another.
_OF_PYTHON: Final = re.compile(r"python_version (?P<how><|>=) ['\"](?P<major>\d+)\.(?P<minor>\d+)['\"]")
#: Spark 4 runs on these Javas and on later ones.
_JAVA_MIN: Final = 17
_JAVA_SECONDS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class MachineFact:
    """A fact about this machine or installation.

    Attributes:
        subject: "kidx", "processor", ….
        name: unique within the subject.
        found: the value.
        problem: what does not work because of the fact, and what to do.
    """

    subject: str
    name: str
    found: str
    problem: str | None = None


def fact_of_system() -> MachineFact:
    """Which parts of Linux that kidx uses are there, and what does not work without the others."""
    missing = [name for name, is_there in _is_there().items() if not is_there]
    there = ", ".join(name for name in _WITHOUT if name not in missing)
    return MachineFact(
        "system",
        "parts of Linux",
        there or "none",
        "; ".join(f"no {name}: {_WITHOUT[name]}" for name in missing) or None,
    )


def _is_there() -> Mapping[str, bool]:
    return {
        "/proc": bool(_text_if_there(MOUNTS)),
        "fcntl": find_spec("fcntl") is not None,
        "posix_fadvise": hasattr(os, "posix_fadvise"),
        "statx": hasattr(ctypes.CDLL(None), "statx"),
    }


def facts_of_processor(cpuinfo: str) -> Iterator[MachineFact]:
    """What the doctor says of the processor, from the text of /proc/cpuinfo; an empty one where there is none."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    kind = fields.get("model name", platform.processor() or platform.machine())
    numbers = ", ".join(
        f"{name} {fields[of]}" for name, of in (("family", "cpu family"), ("model", "model")) if of in fields
    )
    yield MachineFact("processor", "kind", f"{kind} ({numbers})" if numbers else kind)
    instructions = [name for name in _INSTRUCTIONS if has_instructions(name)]
    yield MachineFact("processor", "instructions", ", ".join(instructions) or "none of those that kidx asks for")
    yield MachineFact("processor", "cores", f"{cores()} for this process, {os.cpu_count()} in all")


def facts_of_checksums() -> Iterator[MachineFact]:
    """How fast each way to compute checksums is here, and which one is used."""
    data = np.zeros(BLOCK_BYTES + _TRIED_BYTES, np.uint8)
    address = data.ctypes.data + BLOCK_BYTES
    forced = f" ({FORCED_BY} asks for it)" if os.environ.get(FORCED_BY) else ""
    for name, checksums in checksum_candidates().items():
        seconds = []
        for _ in range(_TRIES):
            start = time.perf_counter()
            checksums.crc32c(address, _TRIED_BYTES)
            seconds.append(time.perf_counter() - start)
        taken = f"; taken{forced}" if name == CHOSEN else ""
        yield MachineFact("checksums", name, f"CRC-32C {_TRIED_BYTES / min(seconds) / 1e9:.1f} GB/s{taken}")


def _facts_of_compiled_code() -> Iterator[MachineFact]:
    place = Path(folded_crc32c.stats.cache_path or "")
    if folded_crc32c.stats.cache_path and os.access(place, os.W_OK):
        yield MachineFact("compiled code", "kept in", str(place.parent))
    else:
        problem = "no directory can be written, so each start compiles for half a minute; set TMPDIR to one"
        yield MachineFact("compiled code", "kept in", str(place.parent) if place.name else "nowhere", problem)


def facts_of_memory(meminfo: str, limits: Path) -> Iterator[MachineFact]:
    """What the doctor says of memory, from the text of /proc/meminfo, an empty one where there is none, and the
    directory of this process's control group, which has a container's limits.
    """
    if meminfo:
        yield from _facts_of_free_memory(meminfo)
    else:
        yield MachineFact("memory", "of the machine", "not known")
    for name, file in (("limit", "memory.max"), ("cores", "cpu.max")):
        text = (limits / file).read_text().strip() if (limits / file).is_file() else "max"
        if text.split()[0] == "max":
            continue
        if name == "limit":
            yield MachineFact("container", "memory", decimal(int(text)))
        else:
            quota, period = map(int, text.split())
            yield MachineFact("container", "cores", f"{quota / period:g}")


def _facts_of_free_memory(meminfo: str) -> Iterator[MachineFact]:
    kib = {
        name: int(value.split()[0])
        for name, _, value in (line.partition(":") for line in meminfo.splitlines())
        if value
    }
    available = kib.get("MemAvailable", 0) * 1024
    yield MachineFact(
        "memory",
        "of the machine",
        f"{decimal(kib.get('MemTotal', 0) * 1024)}, {decimal(available)} available",
        f"less than {decimal(_MEMORY_BYTES_MIN)} is free: ask for fewer --processes"
        if available < _MEMORY_BYTES_MIN
        else None,
    )
    yield MachineFact(
        "memory", "page cache", f"{decimal(kib.get('Cached', 0) * 1024)} of files; logs in it are read from memory"
    )


def _facts_of_files() -> Iterator[MachineFact]:
    try:
        import resource  # here, as not each system has it that `kidx` is imported on
    except ImportError:
        yield MachineFact("files", "open at once", "not known")
    else:
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        problem = f"raise it to {_OPEN_FILES_MIN:,} or more: ulimit -n" if 0 <= open_files < _OPEN_FILES_MIN else None
        yield MachineFact("files", "open at once", f"{open_files:,}" if open_files >= 0 else "without limit", problem)
    place = tempfile.gettempdir()
    yield MachineFact("files", "temporary", f"{place}, {decimal(shutil.disk_usage(place).free)} free")


def control_group(proc_cgroup: str, root: Path = Path("/sys/fs/cgroup")) -> Path:
    """The directory of a process's control group (version 2), from the text of /proc/self/cgroup."""
    for line in proc_cgroup.splitlines():
        if line.startswith("0::"):
            return root / line[len("0::") :].lstrip("/")
    return root


def facts_of_kidx() -> Iterator[MachineFact]:
    package = Path(__file__).resolve().parents[2]
    yield MachineFact("kidx", "version", f"{metadata.version(_DISTRIBUTION)}, in {package}")
    yield MachineFact("kidx", "Python", f"{platform.python_version()}, {sys.executable}")
    yield MachineFact(
        "kidx",
        "system",
        f"{platform.system()} {platform.release()}, {platform.machine()}, {' '.join(platform.libc_ver())}",
    )


def facts_of_packages(requirements: Sequence[str]) -> Iterator[MachineFact]:
    """The packages that kidx itself needs, and those of its extras, from the requirements in the metadata of kidx."""
    extras: dict[str | None, dict[str, str | None]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None or match["name"] == _DISTRIBUTION or not _is_for_this_python(requirement):
            continue
        extras.setdefault(match["extra"], {})[match["name"]] = _version(match["name"])
    for extra, versions in extras.items():
        of_smaller = {name for other in extras.values() if len(other) < len(versions) for name in other}
        is_chosen = any(version for name, version in versions.items() if name not in of_smaller)
        yield _packages(extra, versions, is_chosen=is_chosen)


def _is_for_this_python(requirement: str) -> bool:
    match = _OF_PYTHON.search(requirement)
    if match is None:
        return True
    is_as_new = sys.version_info >= (int(match["major"]), int(match["minor"]))
    return is_as_new == (match["how"] == ">=")


def _packages(extra: str | None, versions: Mapping[str, str | None], *, is_chosen: bool) -> MachineFact:
    """The packages of an extra. `is_chosen`: a package is installed that this extra or a larger one brings, and no
    smaller one.
    """
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    missing = [name for name, version in versions.items() if version is None]
    if extra is None:
        return MachineFact(
            "packages", "needed", found, f"missing: {', '.join(missing)}; install kidx again" if missing else None
        )
    if not is_chosen:
        return MachineFact("packages", extra, f"not installed; pip install 'WHEEL[{extra}]' brings them")
    return MachineFact(
        "packages", extra, found, f"missing: {', '.join(missing)}; pip install 'WHEEL[{extra}]'" if missing else None
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def fact_of_java(environment: Mapping[str, str] = os.environ) -> MachineFact:
    """The Java that Spark would run on."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    needed = f"the jobs on Spark need Java {_JAVA_MIN} or later; nothing else does"
    if java is None or not os.access(java, os.X_OK):
        return MachineFact("Java", "version", f"none: {java or 'no java on the PATH'}; {needed}")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return MachineFact("Java", "version", java, f"does not run: {error}; {needed}")
    version = re.search(r'version "(?P<version>[^"]+)"', ran.stderr + ran.stdout)
    if version is None:
        return MachineFact("Java", "version", java, f"`{java} -version` did not say which one it is; {needed}")
    first = int(re.split(r"[._+-]", version["version"])[0])
    return MachineFact(
        "Java", "version", f"{version['version']}, {java}", None if first >= _JAVA_MIN else f"too old: {needed}"
    )


def requirements_of_kidx() -> Sequence[str]:
    return metadata.requires(_DISTRIBUTION) or ()


def _text_if_there(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):  # which `fact_of_system` says
        return path.read_text(errors="surrogateescape")
    return ""


def examine() -> list[MachineFact]:
    """All facts, in order. Nothing is changed, but that loops may be compiled and kept."""
    group = control_group(_text_if_there(Path("/proc/self/cgroup")))
    return [
        *facts_of_kidx(),
        fact_of_system(),
        *facts_of_packages(requirements_of_kidx()),
        fact_of_java(),
        *facts_of_processor(_text_if_there(Path("/proc/cpuinfo"))),
        *facts_of_checksums(),
        *_facts_of_compiled_code(),
        *facts_of_memory(_text_if_there(Path("/proc/meminfo")), group),
        *_facts_of_files(),
    ]
