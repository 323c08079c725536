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
    """Call it with a directory: at the end of the test the logs in it must be as they were at the call."""
    states: list[LogStates] = []
    yield lambda directory: states.append(LogStates.of(directory))
    for state in states:
        state.assert_unchanged()
