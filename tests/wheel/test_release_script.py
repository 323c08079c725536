"""./release.sh: what it makes, and what it refuses."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PROJECT

_SCRIPT: Final = "release.sh"


def _run(*arguments: str | Path, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    words = [str(cwd / _SCRIPT), *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive("makes all that is published; tests/wheel and tests/jobs/test_packages.py make its parts")
def test_a_rehearsal_makes_all_that_is_published(tmp_path: Path) -> None:
    made = tmp_path / "release"
    ended = _run("--rehearse", made)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in (made / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.glob("kidx-*")}
    assert [name.partition("-0")[0] for name in sorted(sums)] == ["kidx", "kidx", "kidx-spark"]
    (wheel,) = made.glob("*.whl")
    of_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("kidxlib/")}
    (sources,) = (path for path in made.glob("*.tar.gz") if "spark" not in path.name)
    with tarfile.open(sources) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert of_wheel <= names and {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upload"], "no such option: --upload; --help says what there is"),
        (["--rehearse", "a", "b"], "b: one directory at most"),
        (["--rehearse", str(PROJECT / "docs")], f"{PROJECT / 'docs'} holds other files than a release; name a new"),
    ],
)
def test_wrong_words_are_refused(arguments: list[str], message: str) -> None:
    ended = _run(*arguments)
    assert ended.returncode == 2 and f"release.sh: {message}" in ended.stderr


def test_what_is_not_ready_is_refused(tmp_path: Path) -> None:
    """A copy of what it looks at, in a repository of its own."""
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")

    def commit() -> None:
        for words in (("add", "-A"), ("commit", "-qm", "state", "--allow-empty")):
            subprocess.run([*git, *words], cwd=tmp_path, check=True)

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in (_SCRIPT, "pyproject.toml"):
        shutil.copy2(PROJECT / name, tmp_path / name)
    (tmp_path / "setup.sh").write_text("#!/bin/sh\n")
    (tmp_path / "setup.sh").chmod(0o755)
    (tmp_path / ".venv").symlink_to(PROJECT / ".venv")
    (tmp_path / ".gitignore").write_text(".venv\n")
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## Unreleased\n\n- one\n")
    told = []
    for content in (None, changes.read_text(), "# Changelog\n\n## Unreleased\n\n- one\n\n## 0.1.0\n\n- two\n"):
        if content is not None:
            changes.write_text(content)
            commit()
        ended = _run(cwd=tmp_path)
        assert ended.returncode == 2
        told.append(ended.stderr.partition(": ")[2].strip())
    subprocess.run(["git", "tag", "v0.1.0"], cwd=tmp_path, check=True)
    told.append(_run(cwd=tmp_path).stderr.partition(": ")[2].strip())
    assert told == [
        "there are changes that are not committed; commit or remove them",
        "CHANGELOG.md has no heading '## 0.1.0'",
        "CHANGELOG.md has entries under 'Unreleased'; put them below '## 0.1.0'",
        "v0.1.0 is tagged already; raise the version in pyproject.toml",
    ]
