"""Kafka's jars: of the Kafka that all tests compare with, and of older ones."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import KidxError

PROJECT: Final = Path(__file__).resolve().parents[3]
JARS: Final = PROJECT / ".jars" / "kafka"

#: Older Kafkas that the start-up simulation is also checked against, by `./setup.sh kafka-versions`.
OLDER: Final = ("3.9.2", "4.0.2", "4.1.2", "4.2.1")
#: Marks a test that runs with each of them.
with_older_kafkas: Final = pytest.mark.exhaustive("its jars are fetched for this alone")


def class_path(older: str | None) -> list[str]:
    """The class path of a Kafka, one of `OLDER` or the newest; missing jars are fetched. An older Kafka takes the jars
    of other projects from the newest one.
    """
    if not JARS.is_dir() and subprocess.run([PROJECT / "setup.sh", "kafka"], check=False).returncode != 0:
        raise KidxError(f"no Kafka to compare with: `./setup.sh kafka` could not put its jars into {JARS}")
    if older is None:
        return [f"{JARS}/*"]
    directory = PROJECT / ".jars" / f"kafka-{older}"
    if not directory.is_dir() and subprocess.run([PROJECT / "setup.sh", "kafka-versions"], check=False).returncode != 0:
        raise KidxError(f"no Kafka {older}: `./setup.sh kafka-versions` could not put its jars into {directory}")
    others = sorted(path for path in JARS.glob("*.jar") if not path.name.startswith(("kafka-", "kafka_")))
    return [f"{directory}/*", *map(str, others)]
