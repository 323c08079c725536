"""What ./spark-submit.sh would run: for every kind of cluster in docs/clusters.md, which has the lines; here, that they
are what runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from kidxlib.terminal.exit_codes import ExitCode
from tests.support.spark.jobs import PROJECT, clean_environment, printed, run_submit


def words_of(command: str) -> list[str]:
    """A printed command's words, as bash reads them."""
    script = f"words=({command})\nprintf '%s\\0' \"${{words[@]}}\""
    read = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return read.stdout.split("\0")[:-1]


def test_the_printed_command_does_what_the_script_does(tmp_path: Path) -> None:
    """Run by bash as it was printed, from another directory: the same answer and the same code."""
    arguments = ("build_index", "--dry-run", "--json", "--sample", "--catalog", tmp_path / "no catalog")
    command = printed(*arguments)
    by_hand = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=clean_environment()
    )
    by_script = run_submit(*arguments, cwd=tmp_path)
    assert by_script.code == ExitCode.OK and by_script.json["to_read"] == 12, by_script
    assert (by_hand.returncode, by_hand.stdout) == (by_script.code, by_script.out), by_hand.stderr


def test_nothing_is_started() -> None:
    """No Python of the job and no Java: both would fail here."""
    command = printed(
        "build_index",
        "--",
        "--conf",
        "spark.pyspark.driver.python=/no/such/python",
        variables={"SPARK_HOME": "/no/spark"},
    )
    assert words_of(command)[-3:] == ["/no/such/python", "-m", "jobs.build_index"]
    assert f"PYTHONPATH={PROJECT}" in words_of(command)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--in-image", "opt/kidx", "seek"], "--in-image: opt/kidx; expected the directory's path in the image"),
        (["--in-image", "/opt/kidx", "seek"], "--in-image: only with --master k8s://…, not local[*,4]"),
        (["--dry-run", "package"], "package has no such option"),
        (["--dry-run", "sekk"], "no such job: sekk; did you mean seek? there are: accept build_index "),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], says: str) -> None:
    ended = run_submit(*arguments)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    (line,) = ended.err.splitlines()
    assert says in line


def test_a_link_in_another_directory_does_what_the_script_does(tmp_path: Path) -> None:
    """Through two links, one of them relative, called by its name alone, from elsewhere."""
    place = tmp_path / "some bin"
    place.mkdir()
    (place / "first").symlink_to(PROJECT / "spark-submit.sh")
    (place / "kidx-spark").symlink_to("first")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "not_ours.py").touch()

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**clean_environment(), "PATH": f"{place}:{os.environ['PATH']}"}
        return subprocess.run(
            ["kidx-spark", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    helped = ask("--help")
    assert helped.returncode == 0 and "build_index" in helped.stdout and "not_ours" not in helped.stdout
    assert (ask("--version").stdout, ask("--version").returncode) == (f"kidx {metadata.version('kidx')}\n", 0)
    assert f"PYTHONPATH={PROJECT}" in words_of(ask("--dry-run", "build_index").stdout)


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("script", ["spark-submit.sh", "setup.sh", "test.sh"])
def test_help_is_shown_at_once(script: str, flag: str, tmp_path: Path) -> None:
    """Of a fresh clone, where nothing is set up: nothing is installed, and nothing is made."""
    for name in ("spark-submit.sh", "setup.sh", "test.sh"):
        shutil.copy2(PROJECT / name, tmp_path)
    for name in ("jobs", "kidxlib"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(tmp_path.rglob("*"))
    ended = subprocess.run([tmp_path / script, flag], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert script in ended.stdout and "Traceback" not in ended.stdout
    assert sorted(tmp_path.rglob("*")) == before
