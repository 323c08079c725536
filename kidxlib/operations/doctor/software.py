"""What is installed: kidx, Python, packages by what they are for, and Java."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from kidxlib.operations.doctor.fact import Fact

_DISTRIBUTION: Final = "kidx"
#: `kidx[catalog] ; extra == "catalog"` and the like: a package's name, and the extra that asks for it.
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(?P<of>\[[^]]*\])?(?P<range>[^;]*)(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?"
)
#: Spark 4 runs on these Javas and on later ones.
_JAVA_MIN: Final = 17
_JAVA_SECONDS_MAX: Final = 30


def facts_of_kidx() -> Iterator[Fact]:
    """Which kidx this is, and which Python runs it."""
    package = Path(__file__).resolve().parents[2]
    yield Fact("kidx", "version", f"{metadata.version(_DISTRIBUTION)}, in {package}")
    yield Fact("kidx", "Python", f"{platform.python_version()}, {sys.executable}")
    yield Fact(
        "kidx",
        "system",
        f"{platform.system()} {platform.release()}, {platform.machine()}, {' '.join(platform.libc_ver())}",
    )


def facts_of_packages(requirements: Sequence[str]) -> Iterator[Fact]:
    """Packages that kidx itself needs, and those of its extras.

    Args:
        requirements: as the metadata of kidx has them.
    """
    extras: dict[str | None, dict[str, str | None]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None or match["name"] == _DISTRIBUTION:
            continue
        extras.setdefault(match["extra"], {})[match["name"]] = _version(match["name"])
    for extra, versions in extras.items():
        of_smaller = {name for other in extras.values() if len(other) < len(versions) for name in other}
        is_chosen = any(version for name, version in versions.items() if name not in of_smaller)
        yield _packages(extra, versions, is_chosen=is_chosen)


def _packages(extra: str | None, versions: Mapping[str, str | None], *, is_chosen: bool) -> Fact:
    """
    Args:
        is_chosen: something is installed that only this extra brings, or a larger one.
    """
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    missing = [name for name, version in versions.items() if version is None]
    if extra is None:
        return Fact(
            "packages", "needed", found, f"missing: {', '.join(missing)}; install kidx again" if missing else None
        )
    if not is_chosen:
        return Fact("packages", extra, f"not installed; pip install 'WHEEL[{extra}]' brings them")
    return Fact(
        "packages", extra, found, f"missing: {', '.join(missing)}; pip install 'WHEEL[{extra}]'" if missing else None
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def fact_of_java(environment: Mapping[str, str] = os.environ) -> Fact:
    """The Java that Spark would run on. Only the jobs on Spark need one."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    needed = f"the jobs on Spark need Java {_JAVA_MIN} or later; nothing else does"
    if java is None or not os.access(java, os.X_OK):
        return Fact("Java", "version", f"none: {java or 'no java on the PATH'}; {needed}")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Fact("Java", "version", java, f"does not run: {error}; {needed}")
    version = re.search(r'version "(?P<version>[^"]+)"', ran.stderr + ran.stdout)
    if version is None:
        return Fact("Java", "version", java, f"`{java} -version` did not say which one it is; {needed}")
    first = int(re.split(r"[._+-]", version["version"])[0])
    return Fact(
        "Java", "version", f"{version['version']}, {java}", None if first >= _JAVA_MIN else f"too old: {needed}"
    )


def requirements_of_kidx() -> Sequence[str]:
    """The packages that the metadata of kidx asks for."""
    return metadata.requires(_DISTRIBUTION) or ()
