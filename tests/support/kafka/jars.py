"""Kafka's jars: of the Kafka that is promised, of the one beside it, and of others."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import KidxError
from kidxlib.format.kafka_release import KafkaRelease

PROJECT: Final = Path(__file__).resolve().parents[3]
_JARS: Final = PROJECT / ".jars"
JARS: Final = _JARS / "kafka"

#: The Kafka that kidx promises to be like, of `conf/jars/kafka.xml`, and the one beside it.
PROMISED: Final = "4.4.0"
BESIDE: Final = "4.3.1"
#: Older Kafkas that the start-up simulation is also checked against, by `./setup.sh kafka-versions`.
OLDER: Final = ("3.9.2", "4.0.2", "4.1.2", "4.2.1")
#: Marks a test that runs with each of them.
with_older_kafkas: Final = pytest.mark.exhaustive("its jars are fetched for this alone")


def release_of(version: str) -> KafkaRelease:
    """The release that a version is a patch of: 4.4 of 4.4.0."""
    release = KafkaRelease.parse(version)
    if release is None:
        raise KidxError(f"Kafka {version}: expected a version such as {PROMISED}")
    return release


def compared_with(chosen: str | None) -> list[str]:
    """The versions that a comparison is made with: the one of `--kafka-version`, or both."""
    return [PROMISED, BESIDE] if chosen is None else [chosen]


def jars_of(version: str) -> Path:
    """The directory of a Kafka's jars, which are fetched if they are missing."""
    directory = JARS if version == PROMISED else _JARS / f"kafka-{version}"
    if not directory.is_dir():
        command = ["kafka"] if version in (PROMISED, BESIDE) else ["kafka-version", version]
        if subprocess.run([PROJECT / "setup.sh", *command], check=False).returncode != 0:
            raise KidxError(f"no Kafka {version}: `./setup.sh {' '.join(command)}` could not put its jars there")
    return directory


def class_path(version: str) -> list[str]:
    """The class path of a Kafka. One of `OLDER` takes the jars of other projects from `BESIDE`."""
    directory = jars_of(version)
    others = jars_of(BESIDE).glob("*.jar") if version in OLDER else ()
    return [f"{directory}/*", *(str(path) for path in sorted(others) if not path.name.startswith(("kafka-", "kafka_")))]
