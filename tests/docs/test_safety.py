"""Each guard and gate on the page of safety has a test that is there, and each file that a node reads its trials."""

from __future__ import annotations

import ast
import json
import re
from itertools import chain, pairwise
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


_START_FILES = "docs/start-files.md"
_RECORDED = PROJECT / "tests/kafka/recorded"
_STARTED = "tests/kafka/test_starts.py::test_a_node_does_what_kidx_says"
_OFFSETS: Final = ("recovery-point", "log-start", "replication", "cleaner")
#: By the first column: the files of the trials that its rows tell of.
_TRIALS: Final = {
    "`meta.properties`": (
        "meta.properties",
        "meta.properties of the other log dir",
        "meta.properties of both log dirs",
    ),
    "a log dir": ("log dir", "the metadata's directory"),
    "`bootstrap.checkpoint`": ("bootstrap.checkpoint", "the .checkpoint of offset 0"),
    "`quorum-state`": ("quorum-state",),
    "metadata snapshot (`.checkpoint`)": (
        *("the latest .checkpoint", "all .checkpoint", "a .checkpoint", "a renamed .checkpoint"),
        *("an older .checkpoint", "a .checkpoint.part", "a .checkpoint.deleted"),
    ),
    "the metadata's log": ("the metadata's .log",),
    "its `leader-epoch-checkpoint`, `partition.metadata`": (
        "the metadata's leader-epoch-checkpoint",
        "the metadata's partition.metadata",
    ),
    **{f"`{name}-offset-checkpoint`": (f"{name}-offset-checkpoint",) for name in _OFFSETS},
    "`partition.metadata`": ("partition.metadata",),
    "a partition's directory": ("partition", "topic"),
    "`leader-epoch-checkpoint`": ("leader-epoch-checkpoint",),
    "producer snapshots (`.snapshot`)": ("producer snapshots",),
    **{f"`…{suffix}`": (suffix,) for suffix in ("-future", "-delete", "-stray")},
}
#: Files of trials after which a node starts, and serves all: no row tells of them.
_HARMLESS: Final = (".kafka_cleanshutdown", "nothing")


def test_each_trial_has_a_file_and_each_file_a_trial() -> None:
    rows = [line.strip("| ").split(" | ") for line in read(_START_FILES).splitlines() if line.startswith("| ")][1:]
    # A row that goes on with the file of the one above has three cells.
    named = [row[0] for row in rows if len(row) == 4]
    assert named == list(_TRIALS)
    recorded = list(_RECORDED.glob("starts-*.json"))
    for path in recorded:
        files = {case.split(":")[0] for case in json.loads(path.read_text())}
        assert {*chain.from_iterable(_TRIALS.values()), *_HARMLESS} == files, path
    assert recorded


def test_the_test_that_started_brokers_is_there() -> None:
    path, name = _STARTED.split("::")
    assert _STARTED in read(_START_FILES)
    assert f"def {name}(" in (PROJECT / path).read_text()
