"""Each guard and each gate on the page of safety has a test, and that test is there."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import Final

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


#: The how-to of the commands that a section's guards are for.
_HOW_TO: Final = {
    "Recover": "docs/recover.md",
    "Restore": "docs/restore.md",
    "What retention decides": "docs/retention.md",
    "Retention that deletes": "docs/retention.md",
    "Runs and tables": "docs/operations.md",
    "Files and directories": "docs/compaction.md",
    "Tiered storage": "docs/tiered.md",
    "Without a guard": "docs/retention.md",
}


def test_every_section_of_guards_is_linked_from_its_how_to() -> None:
    hazards = read(_PAGE).partition("\n## Hazards\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.+)$", hazards, re.MULTILINE) == list(_HOW_TO)
    for heading, page in _HOW_TO.items():
        link = f"(safety.md#{heading.lower().replace(' ', '-')})"
        assert link in read(page), f"{page} does not lead to {_PAGE}: {heading}"
