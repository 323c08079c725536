"""What tests of faults share: logs that nobody may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.faults.trees import LogStates

Guard: TypeAlias = Callable[[Path], None]


@pytest.fixture
def guard() -> Iterator[Guard]:
    """Call it with a folder: at the end of the test the logs in it must be as they were at the call."""
    states: list[LogStates] = []
    yield lambda folder: states.append(LogStates.of(folder))
    for state in states:
        state.assert_unchanged()
