"""What Linux says of a machine, read as it says it; what is missing is a problem only where something asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.format.checksum_kernel import CHOSEN, checksum_candidates
from kidxlib.operations import doctor
from kidxlib.operations.doctor import MachineFact, fact_of_java, facts_of_kidx, facts_of_packages, requirements_of_kidx

MEMINFO = "MemTotal:  {total} kB\nMemAvailable:  {available} kB\nCached:  1000000 kB\nHugePages_Total:       0\n"


def test_processors() -> None:
    cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: A CPU\ncpu family\t: 25\n\nprocessor\t: 1\nmodel\t\t: 18\n"
    kind, instructions, cores = doctor.facts_of_processor(cpuinfo)
    assert kind == MachineFact("processor", "kind", "A CPU (family 25, model 17)")
    assert (instructions.name, cores.name) == ("instructions", "cores")


@pytest.mark.parametrize(("available", "is_enough"), [(900_000, False), (2_000_000, True)])
def test_memory(tmp_path: Path, available: int, is_enough: bool) -> None:
    of_machine, cache = doctor.facts_of_memory(MEMINFO.format(total=4_000_000, available=available), tmp_path)
    assert of_machine.found.startswith("4.1 GB, ")
    assert (of_machine.problem is None) == is_enough
    assert cache.found.startswith("1.0 GB of files")


def test_limits_of_a_container(tmp_path: Path) -> None:
    group = doctor.control_group("0::/pod/one\n", tmp_path)
    group.mkdir(parents=True)
    (group / "memory.max").write_text("2147483648\n")
    (group / "cpu.max").write_text("150000 100000\n")
    *_, memory, cores = doctor.facts_of_memory(MEMINFO.format(total=1, available=2_000_000), group)
    assert (memory, cores) == (MachineFact("container", "memory", "2.1 GB"), MachineFact("container", "cores", "1.5"))
    (group / "cpu.max").write_text("max 100000\n")
    (group / "memory.max").write_text("max\n")
    assert len(list(doctor.facts_of_memory(MEMINFO.format(total=1, available=2_000_000), group))) == 2


def test_one_way_to_compute_checksums_is_taken() -> None:
    facts = list(doctor.facts_of_checksums())
    assert [fact.name for fact in facts] == list(checksum_candidates())
    assert [fact.name for fact in facts if "taken" in fact.found] == [CHOSEN]


def test_packages_by_extra() -> None:
    asked = [
        "click<9,>=8.2",
        "no-such-package>=1",
        'of-older-pythons>=1; python_version < "3.11"',
        'rich>=14; python_version >= "3.11"',
        'rich>=14; extra == "some"',
        'no-other-package; extra == "some"',
        'no-third-package>=2; python_version > "3" and extra == "none"',
        'kidx[some]; extra == "none"',
    ]
    needed, some, none = facts_of_packages(asked)
    assert (needed.name, needed.problem) == ("needed", "missing: no-such-package; install kidx again")
    assert (some.name, some.problem) == ("some", "missing: no-other-package; pip install 'WHEEL[some]'")
    assert some.found.startswith("rich ")
    assert none == MachineFact("packages", "none", "not installed; pip install 'WHEEL[none]' brings them")


def test_packages_of_this_environment_are_all_there() -> None:
    facts = list(facts_of_packages(requirements_of_kidx()))
    assert [fact.name for fact in facts] == ["needed", "catalog", "check", "copies", "spark"]
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
