"""The first command of a new checkout, which sets up what it needs: here with a uv on PATH that fails."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.spark.jobs import PROJECT, clean_environment


@pytest.mark.exhaustive("sets up all anew; continuous integration begins with that, in a new checkout")
def test_a_new_checkout_answers_with_its_first_command(tmp_path: Path) -> None:
    """In a clone of this repository: what is not committed is not tested."""
    checkout, uv = tmp_path / "checkout", tmp_path / "bin/uv"
    subprocess.run(("git", "clone", "--quiet", PROJECT, checkout), check=True)
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\necho no index\nexit 2\n")
    uv.chmod(0o755)
    environment = clean_environment()
    environment["PATH"] = f"{uv.parent}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        (checkout / "spark-submit.sh", "build_index"), capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended
    set_up = [line for line in ended.stderr.splitlines() if line.startswith("setup.sh: ")]
    failed = "setup.sh: uv failed, so pip installs; what uv said is in .venv/setup.log"
    assert [line for line in set_up if line == failed] == [failed] * 2, ended  # of the packages and of the project
    assert "setup.sh: compiling the library's loops for this processor …" in set_up, ended
    assert "12 segments, 4.6 MB" in ended.stderr and "(12 rows of segments added or changed)" in ended.stdout, ended

    # What still compiles packages has the lock.
    with (checkout / ".jars/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert list(checkout.glob("kidxlib/recovery/scan/__pycache__/*.nbi"))
    assert list(checkout.glob(".venv/lib/python3.*/site-packages/pandas/__pycache__/*.pyc"))
    assert not (checkout / ".jars/loops.made").exists()
    again = subprocess.run((checkout / "setup.sh", "venv"), capture_output=True, text=True, check=True, env=environment)
    assert (again.stdout, again.stderr) == ("", "")
    shutil.rmtree(checkout)  # more than a gigabyte
