"""What ./spark-submit.sh would run: for every kind of cluster in docs/clusters.md, which has the lines; here, that they
are what runs.
"""

from __future__ import annotations

import shutil
import subprocess
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
