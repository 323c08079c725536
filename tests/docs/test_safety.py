"""Each guard and each gate on the page of safety has a test, and that test is there."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

import pytest

from tests.docs.pages import PROJECT, read

_TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
_PAGE = "docs/safety.md"


def _rows(heading: str) -> list[str]:
    """The rows of the tables below a heading, without their heads."""
    page = read(_PAGE)
    section = page[page.index(f"\n## {heading}\n") + 1 :]
    section = section[: section.index("\n## ")] if "\n## " in section else section
    lines = section.splitlines()
    return [line for line, below in pairwise([*lines, ""]) if line.startswith("| ") and not below.startswith("|---")]


@pytest.mark.parametrize("heading", ["Hazards", "Gates: what each was tried against"])
def test_every_row_names_tests_that_are_there(heading: str) -> None:
    rows = _rows(heading)
    assert rows
    for row in rows:
        named = _TEST.findall(row.rstrip(" |").rpartition("| ")[2])
        assert named, f"{_PAGE}: no test in: {row}"
        for path, name in named:
            assert name in _functions((PROJECT / path).read_text()), f"{_PAGE}: {path} has no {name}"


def _functions(source: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
