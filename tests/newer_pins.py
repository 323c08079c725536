"""Pins that have newer releases, as far as the packages beside them accept these. uv decides that:

    .venv/bin/python -m tests.newer_pins

It resolves the requirements of `pyproject.toml` anew, once as they are, and once without what they exclude themselves.
`./setup.sh lock` takes the first; the second tells which of our own limits hold something back. Nothing is changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from typing import Final

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kidxlib.errors import UsageError
from kidxlib.terminal.outcome import print_table
from kidxlib.terminal.run_command import run
from tests.docs.pages import PROJECT

#: What `./setup.sh lock` makes of these, in the same words.
_RESOLVE: Final = (
    "pip",
    "compile",
    "--quiet",
    "--universal",
    "--python-version",
    "3.11",
    "--no-header",
    "--no-annotate",
)
_PIN: Final = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)


@click.command()
def newer_pins() -> None:
    """Print which pins have newer releases that the packages beside them accept."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    ours = [
        Requirement(line)
        for lines in (
            project["project"]["dependencies"],
            *project["project"]["optional-dependencies"].values(),
            *(group for name, group in project["dependency-groups"].items() if name != "airflow"),
        )
        for line in lines
        if isinstance(line, str) and not line.startswith("kidx[")
    ]
    locked = _pins((PROJECT / "requirements-dev.lock").read_text())
    within = _resolved(map(str, ours))
    beyond = _resolved(map(_without_limits, ours))
    named = {canonicalize_name(each.name) for each in ours}
    rows = [
        (
            "*" if name in named else "",
            name,
            *((", ".join(sorted(pins.get(name) or ())) or "gone") for pins in (locked, within, beyond)),
        )
        for name in sorted(locked)
        if {locked[name], within.get(name), beyond.get(name)} != {locked[name]}
    ]
    print_table("pins", ("ours", "package", "pinned", "within our limits", "without them"), rows, text_columns=5)


def _without_limits(requirement: Requirement) -> str:
    """What we ask for, from the lowest version on."""
    [least] = [each.version for each in requirement.specifier if each.operator in (">=", "==")]
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}>={least}{marker}"


def _resolved(requirements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    uv = shutil.which("uv")
    if uv is None:
        raise UsageError("uv: not on the PATH, and it resolves what is asked here; pip install uv")
    ended = subprocess.run(
        (uv, *_RESOLVE, "-"), input="\n".join(requirements), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise UsageError(f"uv: {ended.stderr.strip()}")
    return _pins(ended.stdout)


def _pins(lock: str) -> Mapping[str, frozenset[str]]:
    """The versions of each package; some have one for older Pythons."""
    pins: dict[str, set[str]] = {}
    for name, version in _PIN.findall(lock):
        pins.setdefault(name, set()).add(version)
    return {name: frozenset(versions) for name, versions in pins.items()}


if __name__ == "__main__":
    run(newer_pins, "newer_pins")
