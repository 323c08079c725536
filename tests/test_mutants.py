"""The mutants still stand in their modules: one whose line has changed would make none, and be called well."""

from __future__ import annotations

import pytest

from tests.docs.pages import PROJECT
from tests.mutants import PARTS, Part


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_each_mutant_changes_its_module_in_one_place(part: Part) -> None:
    text = (PROJECT / part.module).read_text()
    assert {mutant.name: text.count(mutant.was) for mutant in part.mutants} == dict.fromkeys(
        (mutant.name for mutant in part.mutants), 1
    )
    assert all(mutant.was != mutant.becomes for mutant in part.mutants)
    assert [path for path in part.tests if not (PROJECT / path).exists()] == []
