"""What tests beside Kafka's own classes share: a JVM that has them, and a directory in memory."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import py4j.java_gateway
import py4j.protocol
import pytest

from tests.conftest import LINES
from tests.kafka.recordings import Recordings
from tests.support.kafka.classes import Kafka

_MEMORY: Final = Path("/dev/shm")


@pytest.fixture(autouse=True)
def exceptions_as_py4j_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a test has used Spark, pyspark translates the exceptions of every JVM, and fails on those of Kafka's."""
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka's classes; started once."""
    with Kafka() as running:
        yield running


@pytest.fixture(scope="session")
def recordings(request: pytest.FixtureRequest) -> Recordings:
    """What brokers did; they are started with --exhaustive alone."""
    exhaustive, record = (bool(request.config.getoption(option)) for option in ("--exhaustive", "--record"))
    return Recordings(starts_brokers=exhaustive or record, writes=record)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory where the machine has such: Kafka flushes each file that it writes."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="kidx-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@dataclass(slots=True)
class Tally:
    """Generated segments: how many were compared in full, and how all of them ended."""

    in_full: int = 0
    ends: Counter[str] = field(default_factory=Counter)


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """What all tests of generated partitions tried; printed at the end of the run."""
    tried = Tally()
    yield tried
    ends = ", ".join(f"{end} {count}" for end, count in tried.ends.most_common())
    seed = request.config.getoption("hypothesis_seed")
    lines = request.config.stash.setdefault(LINES, [])
    lines.append(
        f"generated partitions, seed {seed}: {tried.ends.total()} segments as Kafka's, {tried.in_full} of them in "
        f"full, the others after a failure or not read by us; how they ended: {ends}"
    )
