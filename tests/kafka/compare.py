"""Runs what compares kidx with Kafka against another Kafka beside the promised one, and prints what differs.

    .venv/bin/python -m tests.kafka.compare 4.4.1                           what each run of the tests compares
    .venv/bin/python -m tests.kafka.compare 4.4.1 --exhaustive -k startup   options after the version go to pytest

Its jars are fetched first. It ends with 0 where each test that passes with the promised Kafka passes with that one,
too, and none fails. CONTRIBUTING.md says what is next.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias
from xml.etree import ElementTree

import click
import pytest

from kidxlib.terminal.console import note
from kidxlib.terminal.outcome import print_table
from tests.support.kafka.jars import PROJECT, PROMISED, jars_of

#: What is said of a class or a method that is not where it was: by the harness, by py4j, by Java.
_MOVED: Final = re.compile(
    r"MovedError: (?:this Kafka has no )?(?P<harness>[^;\n]+)"
    r"|Py4JException: (?P<py4j>(?:Method|Constructor) .+ does not exist)"
    r"|(?P<static>\S+) does not exist in the JVM"
    r"|(?:NoSuch(?:Method|Field)(?:Exception|Error)|NoClassDefFoundError|ClassNotFoundException): (?P<java>.+)"
    r"|(?P<main>Could not find or load main class \S+)"
)
_REASON_MOST: Final = 160
_NOT_COLLECTED: Final = "there is no such test with this Kafka"


@dataclass(frozen=True, slots=True)
class Result:
    """How a test ended.

    Attributes:
        outcome: `passed`, `skipped`, `failed` or `error`.
        text: of a failure, or why it was skipped.
    """

    outcome: str
    text: str = ""

    @property
    def fails(self) -> bool:
        return self.outcome in ("failed", "error")

    @property
    def moved(self) -> set[str]:
        """The classes and methods that were not found."""
        return {next(filter(None, match.groups())).strip() for match in _MOVED.finditer(self.text)}

    @property
    def reason(self) -> str:
        """The first line that says why it failed: of an error in Java that of Java, not that of py4j."""
        lines = (line.removeprefix("E  ").strip() for line in self.text.splitlines() if line.startswith("E  "))
        of_java = (line.removeprefix(": ") for line in lines if "Py4JJavaError" not in line)
        return next(of_java, self.text.partition("\n")[0])[:_REASON_MOST]


#: How tests ended, by their names, in which no version stands.
Results: TypeAlias = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Differences:
    """What another Kafka's results say of it, beside those of the promised Kafka: tests by their names.

    Attributes:
        failing: fail with it alone.
        not_run: passed with the promised Kafka, and did not run with it: what they compare is not known of it.
        unknown: fail with the promised Kafka, which leaves open what is the other's.
        compared: how many passed with both.
    """

    failing: Results
    not_run: Results
    unknown: Results
    compared: int

    @classmethod
    def of(cls, theirs: Results, promised: Results) -> Self:
        not_collected = Result("skipped", _NOT_COLLECTED)
        passed = {name: theirs.get(name, not_collected) for name, each in promised.items() if each.outcome == "passed"}
        unknown = {name: each for name, each in promised.items() if each.fails}
        return cls(
            failing={name: each for name, each in theirs.items() if each.fails and name not in unknown},
            not_run={name: each for name, each in passed.items() if each.outcome == "skipped"},
            unknown=unknown,
            compared=sum(each.outcome == "passed" for each in passed.values()),
        )

    @property
    def is_alike(self) -> bool:
        return not (self.failing or self.not_run or self.unknown)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("version")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def compare(version: str, options: Sequence[str]) -> None:
    """Compare with a VERSION of Kafka; OPTIONS are pytest's."""
    if version == PROMISED:
        raise click.UsageError(f"{version} is the Kafka that is promised; expected another one")
    jars_of(version)
    seed = random.SystemRandom().randrange(2**32)
    note(f"tests with Kafka {version} and {PROMISED}, seed {seed}")
    with tempfile.TemporaryDirectory() as directory:
        theirs, promised = (_results(Path(directory), each, version, seed, options) for each in (version, PROMISED))
    found = Differences.of(theirs, promised)
    for title, results in (
        (f"what fails with Kafka {version}, and not with {PROMISED}", found.failing),
        (f"what passes with Kafka {PROMISED}, and did not run with {version}", found.not_run),
        (f"what fails with Kafka {PROMISED}, so that nothing is known of {version}", found.unknown),
    ):
        if results:
            print_table(title, ("test", "why", "tests alike"), list(_alike(results)), text_columns=2)
    if moved := sorted(set().union(*(result.moved for result in found.failing.values()))):
        print_table("what moved", ("class or method",), [(name,) for name in moved], text_columns=1)
    note(
        f"tests with Kafka {version} and {PROMISED}: {found.compared} pass with both; with {version} alone "
        f"{len(found.failing)} fail, and {len(found.not_run)} did not run; {len(found.unknown)} fail with {PROMISED}"
    )
    if not found.compared:
        raise click.ClickException("no test passed with both, so nothing was compared")
    sys.exit(not found.is_alike)


def _alike(results: Results) -> Iterator[tuple[str, str, int]]:
    """Tests of one function that ended for one reason: the name of the first, the reason, and how many they are."""
    names = dict[tuple[str, str], list[str]]()
    for name, result in results.items():
        names.setdefault((name.partition("[")[0], result.reason), []).append(name)
    for (_, reason), alike in names.items():
        yield alike[0], reason, len(alike)


def _results(directory: Path, of: str, version: str, seed: int, options: Sequence[str]) -> Results:
    """How the tests end with one of the two Kafkas that are compared, the promised one and `version`."""
    report = directory / f"{of}.xml"
    seeds = [f"--randomly-seed={seed}"]
    if "--exhaustive" in options:  # else examples are the same each time
        seeds.append(f"--hypothesis-seed={seed}")
    of_run = ["--kafka-version", of, *seeds, f"--junitxml={report}", "--quiet", "--tb=short"]
    command = [sys.executable, "-m", "pytest", "tests/kafka", *of_run, *options]
    ended = subprocess.run(command, cwd=PROJECT, stdout=sys.stderr, check=False).returncode
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise click.ClickException(f"the tests with Kafka {of} did not run to their end; above is why")
    return {
        f"{case.get('classname')}::{case.get('name')}".replace(version, "VERSION").replace(PROMISED, "VERSION"): (
            _result(case)
        )
        for case in ElementTree.parse(report).iter("testcase")
    }


def _result(case: ElementTree.Element) -> Result:
    for tag, outcome in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        if (found := case.find(tag)) is not None:
            return Result(outcome, f"{found.get('message')}\n{found.text}")
    return Result("passed")


if __name__ == "__main__":
    compare()
