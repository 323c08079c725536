"""All that `kidx doctor` says, in its order."""

from __future__ import annotations

from pathlib import Path

from kidxlib.operations.doctor import machine, software
from kidxlib.operations.doctor.fact import Fact


def examine() -> list[Fact]:
    """What is installed and what this machine has. Nothing is changed, but that loops may be compiled and kept."""
    proc = Path("/proc")
    group = machine.control_group((proc / "self/cgroup").read_text())
    return [
        *software.facts_of_kidx(),
        *software.facts_of_packages(software.requirements_of_kidx()),
        software.fact_of_java(),
        *machine.facts_of_processor((proc / "cpuinfo").read_text()),
        *machine.facts_of_checksums(),
        *machine.facts_of_compiled_code(),
        *machine.facts_of_memory((proc / "meminfo").read_text(), group),
        *machine.facts_of_files(),
    ]
