"""What tests beside Kafka's own classes share: a JVM that has them, and a directory in memory."""

from __future__ import annotations

import functools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import py4j.java_gateway
import py4j.protocol
import pytest
from py4j.java_gateway import JavaPackage

from tests.conftest import LINES
from tests.kafka.recordings import Recordings
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump
from tests.support.kafka.jars import BESIDE, compared_with
from tests.support.kafka.moved import not_there

_MEMORY: Final = Path("/dev/shm")
_HERE: Final = Path(__file__).parent
#: The fixtures of a test that compares with the Kafka of `--kafka-version`.
_OF_A_KAFKA: Final = {"kafka_version", "recordings"}


@pytest.fixture(autouse=True)
def exceptions_as_py4j_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a test has used Spark, pyspark translates the exceptions of every JVM, and fails on those of Kafka's."""
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)


@pytest.fixture(autouse=True)
def missing_classes_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JavaPackage, "__call__", not_there, raising=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What compares with Kafka's classes does it with each version. What takes long, as brokers do, and what hardly
    differs from version to version does it with one version alone.
    """
    if "kafka_version" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("kafka_version")
        versions: list[Any] = [*compared_with(chosen)]
        if chosen is None and (reason := _why_promised_alone(metafunc)) is not None:
            versions[-1] = pytest.param(BESIDE, marks=pytest.mark.exhaustive(reason))
        metafunc.parametrize("kafka_version", versions, indirect=True, scope="session")


def _why_promised_alone(metafunc: pytest.Metafunc) -> str | None:
    if "broker_version" in metafunc.fixturenames:
        return f"brokers of Kafka {BESIDE}"
    marker = metafunc.definition.get_closest_marker("promised_alone")
    return None if marker is None else str(marker.args[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--kafka-version`, what compares with no Kafka, or always with the same ones, says nothing of that one."""
    if config.getoption("kafka_version") is None:
        return
    left_out = [item for item in items if item.path.is_relative_to(_HERE) and not _OF_A_KAFKA & {*_fixtures(item)}]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


@pytest.fixture(scope="session")
def kafka_version(request: pytest.FixtureRequest) -> str:
    """The Kafka that a test compares with."""
    return str(request.param)


@pytest.fixture(scope="session")
def broker_version(kafka_version: str) -> str:
    """The Kafka whose brokers a test starts."""
    return kafka_version


@pytest.fixture(scope="session")
def _started() -> Iterator[Callable[[str], Kafka]]:
    """Starts the classes of each version once."""
    with ExitStack() as stack:
        yield functools.cache(lambda version: stack.enter_context(Kafka(version=version)))


@pytest.fixture(scope="session")
def kafka(kafka_version: str, _started: Callable[[str], Kafka]) -> Kafka:
    """Kafka's classes."""
    return _started(kafka_version)


@pytest.fixture
def kafka_dump(kafka: Kafka, tmp_path: Path) -> KafkaDump:
    return KafkaDump(kafka, tmp_path)


@pytest.fixture
def random_cases(request: pytest.FixtureRequest, kafka_version: str, exhaustive: bool) -> Callable[[int, int], int]:
    """How many random cases a test tries, of the numbers for each run and for `--exhaustive`: a fourth with the Kafka
    beside the promised one, as what both read is nearly the same code.
    """
    is_beside = kafka_version == BESIDE and request.config.getoption("--kafka-version") is None
    return lambda each_run, many: many if exhaustive else each_run // 4 if is_beside else each_run


@pytest.fixture(scope="session")
def recordings(request: pytest.FixtureRequest) -> Recordings:
    """What brokers did; they are started with --exhaustive alone."""
    exhaustive, record = (bool(request.config.getoption(option)) for option in ("--exhaustive", "--record"))
    chosen = request.config.getoption("--kafka-version")
    return Recordings(starts_brokers=exhaustive or record, writes=record, chosen=chosen)


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
