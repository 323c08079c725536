"""Every command and program on the pages runs as it stands there, and prints what they say."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.conftest import Workspace
from tests.docs.pages import PAGES, Block, runnable

#: Pages that take minutes, and why another test says enough each time.
_SLOW: Final = {"docs/clusters.md": "starts Spark 19 times; tests/jobs runs each of these jobs"}
_BLOCKS: Final = [
    pytest.param(block, id=block.name, marks=[pytest.mark.exhaustive(_SLOW[block.page])] if block.page in _SLOW else [])
    for page in PAGES
    for block in runnable(page)
]


def test_no_block_starts_the_tests() -> None:
    """Whoever pastes block after block of the README would start more than half an hour of them."""
    assert [block.name for page in PAGES for block in runnable(page) if "test.sh" in block.text] == []


@pytest.mark.parametrize("block", _BLOCKS)
def test_block_runs_as_it_stands(block: Block, workspace: Workspace) -> None:
    """The exit code that the page promises, and each line of output that it shows."""
    ended = workspace.run(block.page).get(block.name)
    if ended is None:
        pytest.skip("needs versitygw, which ./setup.sh kafka builds where there is Go")
    assert ended.returncode == block.exit_code, ended.stdout + ended.stderr
    printed = (ended.stdout + ended.stderr).splitlines()
    for line in block.output:
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        assert any(re.fullmatch(pattern, each.rstrip()) for each in printed), f"not printed: {line}\n{ended.stdout}"
