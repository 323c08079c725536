"""Runs what compares kidx with Kafka against another Kafka beside the promised one, and prints what differs.

    .venv/bin/python -m tests.kafka.compare 4.4.1                           what each run of the tests compares
    .venv/bin/python -m tests.kafka.compare 4.4.1 --exhaustive -k startup   options after the version go to pytest

Its jars are fetched first. It ends with 1 where a test fails with that Kafka alone. CONTRIBUTING.md says what is next.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import click

from kidxlib.terminal.console import note
from kidxlib.terminal.tables import print_table
from tests.support.kafka.jars import PROJECT, PROMISED, jars_of

#: What is said of a class or a method that is not where it was: by the harness, by py4j, by Java.
_MOVED: Final = re.compile(
    r"MovedError: (?P<harness>.+)"
    r"|Py4JException: (?P<py4j>(?:Method|Constructor) .+ does not exist)"
    r"|(?P<static>\S+) does not exist in the JVM"
    r"|(?:NoSuch(?:Method|Field)(?:Exception|Error)|NoClassDefFoundError|ClassNotFoundException): (?P<java>.+)"
    r"|(?P<main>Could not find or load main class \S+)"
)
_REASON_MOST: Final = 160
_FAILED: Final = ("failed", "error")


@dataclass(frozen=True, slots=True)
class Result:
    """How a test ended.

    Attributes:
        outcome: `passed`, `skipped`, `failed` or `error`.
        text: of a failure.
    """

    outcome: str
    text: str = ""

    @property
    def moved(self) -> set[str]:
        """The classes and methods that were not found."""
        return {next(filter(None, match.groups())).strip() for match in _MOVED.finditer(self.text)}

    @property
    def reason(self) -> str:
        """The first line that says why it failed."""
        lines = (line.removeprefix("E  ").strip() for line in self.text.splitlines() if line.startswith("E  "))
        return next(lines, self.text.partition("\n")[0])[:_REASON_MOST]


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
        theirs, promised = (_results(Path(directory), each, seed, options) for each in (version, PROMISED))
    differing = {name: result for name, result in theirs.items() if _fails_alone(result, promised.get(name))}
    rows = [(name, result.reason) for name, result in differing.items()]
    print_table(f"what fails with Kafka {version}, and not with {PROMISED}", ("test", "why"), rows, text_columns=2)
    moved = sorted(set().union(*(result.moved for result in differing.values())))
    if moved:
        print_table("what moved", ("class or method",), [(name,) for name in moved], text_columns=1)
    outcomes = Counter(result.outcome for result in theirs.values())
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    note(f"tests with Kafka {version}: {counts}; {len(differing)} of them fail with it alone")
    sys.exit(bool(differing))


def _fails_alone(result: Result, promised: Result | None) -> bool:
    return result.outcome in _FAILED and (promised is None or promised.outcome not in _FAILED)


def _results(directory: Path, version: str, seed: int, options: Sequence[str]) -> Mapping[str, Result]:
    """How the tests end with a Kafka, by their names, in which no version stands."""
    report = directory / f"{version}.xml"
    of_run = ["--kafka-version", version, f"--randomly-seed={seed}", f"--junitxml={report}", "--quiet", "--tb=short"]
    command = [sys.executable, "-m", "pytest", "tests/kafka", *of_run, *options]
    subprocess.run(command, cwd=PROJECT, stdout=sys.stderr, check=False)
    if not report.exists():
        raise click.ClickException(f"the tests with Kafka {version} did not run; above is why")
    return {
        f"{case.get('classname')}::{case.get('name')}".replace(version, "VERSION"): _result(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def _result(case: ElementTree.Element) -> Result:
    for tag, outcome in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        if (found := case.find(tag)) is not None:
            return Result(outcome, f"{found.get('message')}\n{found.text}")
    return Result("passed")


if __name__ == "__main__":
    compare()
