"""The table of files that a node reads: its test is there, and each trial that is recorded has a row."""

from __future__ import annotations

import json
import re

from tests.docs.pages import PROJECT, read

_PAGE = "docs/start-files.md"
_RECORDED = PROJECT / "tests/kafka/recorded/starts.json"
_TEST = "tests/kafka/test_starts.py::test_a_node_does_what_kidx_says"


def test_each_trial_has_a_row_and_each_row_a_trial() -> None:
    rows = [line.strip("| ").split(" | ") for line in read(_PAGE).splitlines() if line.startswith("| ")][1:]
    named = [re.findall("`([^`]+)`", row[-1]) for row in rows]
    assert all(named), [row for row, names in zip(rows, named, strict=True) if not names]
    files = {case.split(":")[0] for case in json.loads(_RECORDED.read_text())}
    assert {name for names in named for name in names} == files


def test_the_test_that_started_brokers_is_there() -> None:
    path, name = _TEST.split("::")
    assert _TEST in read(_PAGE)
    assert f"def {name}(" in (PROJECT / path).read_text()
