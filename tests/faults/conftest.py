"""What tests of faults share: lines for the end of the run, random numbers, and logs that nobody may change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.faults.trees import LogStates

Say: TypeAlias = Callable[[str], None]
Guard: TypeAlias = Callable[[Path], None]

_LINES: Final = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(_LINES, []):
        terminalreporter.section("injected faults")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Prints a line at the end of the test run, whether tests pass or not."""
    lines = request.config.stash.setdefault(_LINES, [])
    return lambda line: lines.append(f"{request.node.name}: {line}")


@pytest.fixture
def rng(say: Say) -> random.Random:
    """Random numbers. pytest-randomly seeds `random` before each test, so its --randomly-seed gives the same ones."""
    seed = random.getrandbits(32)
    say(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether to take minutes in place of seconds."""
    return bool(request.config.getoption("--exhaustive", default=False))


@pytest.fixture
def guard() -> Iterator[Guard]:
    """Call it with a folder: at the end of the test the logs in it must be as they were at the call."""
    states: list[LogStates] = []
    yield lambda folder: states.append(LogStates.of(folder))
    for state in states:
        state.assert_unchanged()
