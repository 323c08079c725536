"""What is missing is a problem only where something asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.operations.doctor.fact import Fact
from kidxlib.operations.doctor.software import fact_of_java, facts_of_kidx, facts_of_packages, requirements_of_kidx


def test_packages_by_extra() -> None:
    asked = [
        "click<9,>=8.2",
        "no-such-package>=1",
        'rich>=14; extra == "some"',
        'no-other-package; extra == "some"',
        'no-third-package>=2; python_version > "3" and extra == "none"',
        'kidx[some]; extra == "none"',
    ]
    needed, some, none = facts_of_packages(asked)
    assert (needed.name, needed.problem) == ("needed", "missing: no-such-package; install kidx again")
    assert (some.name, some.problem) == ("some", "missing: no-other-package; pip install 'WHEEL[some]'")
    assert some.found.startswith("rich ")
    assert none == Fact("packages", "none", "not installed; pip install 'WHEEL[none]' brings them")


def test_packages_of_this_environment_are_all_there() -> None:
    facts = list(facts_of_packages(requirements_of_kidx()))
    assert [fact.name for fact in facts] == ["needed", "catalog", "copies", "spark"]
    assert [fact.problem for fact in facts] == [None] * len(facts)
    assert "numba" in facts[0].found
    assert {fact.name for fact in facts_of_kidx()} == {"version", "Python", "system"}


@pytest.mark.parametrize(
    ("says", "found", "problem"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "17.0.15, ", None),
        ("echo 'java version \"1.8.0_202\"' >&2", "1.8.0_202, ", "too old: the jobs on Spark need Java 17 or later"),
        ("exit 1", "", "did not say which one it is"),
    ],
)
def test_javas(tmp_path: Path, says: str, found: str, problem: str | None) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{says}\n")
    java.chmod(0o755)
    fact = fact_of_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert fact.found == f"{found}{java}"
    assert fact.problem is None if problem is None else problem in str(fact.problem)


def test_no_java_is_no_problem(tmp_path: Path) -> None:
    fact = fact_of_java({"PATH": str(tmp_path)})
    assert fact.problem is None
    assert fact.found == "none: no java on the PATH; the jobs on Spark need Java 17 or later; nothing else does"
