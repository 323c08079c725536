"""`kidx doctor` ends well where all is well, and says where something is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kidxlib.operations.doctor import examine

KIDX = Path(sys.executable).with_name("kidx")


def test_what_it_says_here() -> None:
    ran = subprocess.run([KIDX, "doctor", "--json"], capture_output=True, text=True, check=True)
    said = json.loads(ran.stdout)
    assert said["problems"] == 0
    subjects = [fact["subject"] for fact in said["facts"]]
    assert set(subjects) >= {"kidx", "packages", "Java", "processor", "checksums", "compiled code", "memory", "files"}
    names = [(fact["subject"], fact["name"]) for fact in said["facts"]]
    assert len(set(names)) == len(names)
    assert names == [(fact.subject, fact.name) for fact in examine()]


def test_what_does_not_work_is_named_last(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    ran = subprocess.run([KIDX, "doctor"], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 3, ran.stderr
    assert "Java, version: " in ran.stdout and "│" not in ran.stdout
    assert all(line.partition(": ")[2] for line in ran.stdout.splitlines())
    assert ran.stderr.splitlines() == [
        "Java, version: too old: the jobs on Spark need Java 17 or later; nothing else does"
    ]
