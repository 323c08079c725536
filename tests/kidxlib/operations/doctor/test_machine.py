"""What Linux says of a machine, read as it says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.format.checksums.choice import CHOSEN, candidates
from kidxlib.operations.doctor import machine
from kidxlib.operations.doctor.fact import Fact

MEMINFO = "MemTotal:  {total} kB\nMemAvailable:  {available} kB\nCached:  1000000 kB\nHugePages_Total:       0\n"


def test_processors() -> None:
    cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: A CPU\ncpu family\t: 25\n\nprocessor\t: 1\nmodel\t\t: 18\n"
    kind, instructions, cores = machine.facts_of_processor(cpuinfo)
    assert kind == Fact("processor", "kind", "A CPU (family 25, model 17)")
    assert (instructions.name, cores.name) == ("instructions", "cores")


@pytest.mark.parametrize(("available", "is_enough"), [(900_000, False), (2_000_000, True)])
def test_memory(tmp_path: Path, available: int, is_enough: bool) -> None:
    of_machine, cache = machine.facts_of_memory(MEMINFO.format(total=4_000_000, available=available), tmp_path)
    assert of_machine.found.startswith("4.1 GB, ")
    assert (of_machine.problem is None) == is_enough
    assert cache.found.startswith("1.0 GB of files")


def test_limits_of_a_container(tmp_path: Path) -> None:
    group = machine.control_group("0::/pod/one\n", tmp_path)
    group.mkdir(parents=True)
    (group / "memory.max").write_text("2147483648\n")
    (group / "cpu.max").write_text("150000 100000\n")
    *_, memory, cores = machine.facts_of_memory(MEMINFO.format(total=1, available=2_000_000), group)
    assert (memory, cores) == (Fact("container", "memory", "2.1 GB"), Fact("container", "cores", "1.5"))
    (group / "cpu.max").write_text("max 100000\n")
    (group / "memory.max").write_text("max\n")
    assert len(list(machine.facts_of_memory(MEMINFO.format(total=1, available=2_000_000), group))) == 2


def test_one_way_to_compute_checksums_is_taken() -> None:
    facts = list(machine.facts_of_checksums())
    assert [fact.name for fact in facts] == list(candidates())
    assert [fact.name for fact in facts if "taken" in fact.found] == [CHOSEN]
