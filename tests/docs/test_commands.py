"""Every command and program on the pages runs as it stands there, and prints what they say."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.conftest import Workspace
from tests.docs.pages import PAGES, Block, runnable

#: Why the blocks that are `slow` are for `--exhaustive`: what says as much each time.
_SLOW: Final = {
    "docs/object-stores.md": "starts Spark; tests/jobs/test_object_stores.py runs each job on objects",
    "docs/spark.md": "starts Spark twice; tests/kidxlib/spark and tests/kafka/test_spark_*.py read and stream by it",
    "docs/sql.md": "starts Spark's shell; tests/docs/test_sql_questions.py asks Spark each question of the page",
    "docs/start.md": "starts Spark for the README's job once more",
}
_BLOCKS: Final = [
    pytest.param(block, id=block.name, marks=[pytest.mark.exhaustive(_SLOW[page])] if block.is_slow else [])
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
