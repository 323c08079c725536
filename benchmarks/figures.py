"""What benchmarks found, and what was required: printed as tables, in JSON, and kept for the pages."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from kidxlib.terminal.console import print_line
from kidxlib.terminal.outcome import print_table

#: What pages show: of each benchmark its tables, its targets and the machine, as `keep` took them.
MEASURED: Final = Path(__file__).with_name("measured")
#: The table of all targets of a benchmark, with and without a requirement.
OF_TARGETS: Final = "all figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure of a benchmark, and what it has to be.

    Attributes:
        values: of each round; their median counts.
        at_least, at_most: what it has to be; neither where nothing is required, and the figure explains another.
    """

    name: str
    unit: str
    values: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def measured(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """None where nothing is required."""
        if self.at_least is not None:
            return self.measured >= self.at_least
        return None if self.at_most is None else self.measured <= self.at_most

    @property
    def required(self) -> str:
        if self.at_least is not None:
            return f"≥ {_number(self.at_least)} {self.unit}"
        return "" if self.at_most is None else f"≤ {_number(self.at_most)} {self.unit}"

    @property
    def shown(self) -> str:
        """The median."""
        return f"{_number(self.measured)} {self.unit}"

    @property
    def range(self) -> str:
        """The least and the most of several rounds."""
        return f"{_number(min(self.values))}–{_number(max(self.values))}" if len(self.values) > 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures beside each other, as a benchmark prints them and as a page shows them.

    Attributes:
        name: by which a page asks for it.
        columns: their headings.
        rows: a cell for each column.
        text_columns: how many of the first columns are words.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1


def beside(name: str, targets: Sequence[Target], *, across: bool = False) -> Table:
    """Medians of targets that are called `row: column`, or, with `across`, `column: row`, as one table."""
    firsts, seconds, cells = dict[str, None](), dict[str, None](), dict[tuple[str, str], str]()
    for target in targets:
        first, _, second = target.name.partition(": ")
        what = second if target.unit in ("", "×") else f"{second}, {target.unit}"
        firsts[first] = seconds[what] = None
        cells[first, what] = target.shown if target.unit == "×" else _number(target.measured)
    if across:
        rows = [(what, *(cells.get((first, what), "") for first in firsts)) for what in seconds]
        return Table(name=name, columns=("", *firsts), rows=rows)
    rows = [(first, *(cells.get((first, what), "") for what in seconds)) for first in firsts]
    return Table(name=name, columns=("", *seconds), rows=rows)


def record(
    directory: Path, benchmark: str, targets: Sequence[Target], tables: Sequence[Table] = (), **figures: Any
) -> None:
    """Print the tables and targets of a benchmark, and write `<benchmark>.json`: them, the machine, and all other
    figures.
    """
    for table in tables:
        print_table(f"{benchmark}: {table.name}", table.columns, table.rows, text_columns=table.text_columns)
    print_targets(benchmark, targets)
    result = directory / f"{benchmark}.json"
    written = {
        "machine": machine.describe(),
        "targets": [asdict(target) | {"measured": target.measured, "met": target.met} for target in targets],
        "tables": [asdict(table) for table in tables],
        **figures,
    }
    result.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n")
    print_line(f"all figures: {result}")


def recorded(directory: Path, benchmark: str) -> list[Target]:
    """The targets that a benchmark wrote down when it was last run; none where it never was."""
    result = directory / f"{benchmark}.json"
    if not result.exists():
        return []
    of_target = Target.__dataclass_fields__
    return [
        Target(**{name: value for name, value in target.items() if name in of_target})
        for target in json.loads(result.read_text()).get("targets", [])
    ]


def keep(directory: Path, benchmark: str) -> None:
    """Take what a benchmark wrote down last for the pages, and the machine that it ran on."""
    written = json.loads((directory / f"{benchmark}.json").read_text())
    taken = {part: written[part] for part in ("machine", "targets", "tables")}
    MEASURED.mkdir(exist_ok=True)
    (MEASURED / f"{benchmark}.json").write_text(json.dumps(taken, indent=2, ensure_ascii=False) + "\n")


def kept_table(benchmark: str, name: str) -> Table:
    """A table of what is kept of a benchmark.

    Raises:
        KeyError: the benchmark has no table of that name.
    """
    if name == OF_TARGETS:
        rows = [(target.name, target.shown, target.range) for target in recorded(MEASURED, benchmark)]
        return Table(name=name, columns=("", "median", "min–max"), rows=rows)
    written = json.loads((MEASURED / f"{benchmark}.json").read_text())
    return {table["name"]: Table(**table) for table in written["tables"]}[name]


def kept_figure(benchmark: str, words: Sequence[str]) -> str:
    """One figure of what is kept of a benchmark, as its table shows it.

    Args:
        words: a target's name, and its unit where two have that name; or a table's name, the words in front of a
            row, with commas between them, and a column's heading, all without backticks.

    Raises:
        KeyError: the benchmark has no such figure, or two of them.
    """
    if len(words) < 3:
        name, *unit = words
        targets = [each for each in recorded(MEASURED, benchmark) if each.name == name and unit in ([], [each.unit])]
        found = [target.shown for target in targets]
    else:
        table = kept_table(benchmark, words[0])
        cells = [(row, column) for row in table.rows for column in zip(table.columns, row, strict=True)]
        front = max(table.text_columns, 1)
        found = [
            cell
            for row, (heading, cell) in cells
            if [", ".join(row[:front]).replace("`", ""), heading.replace("`", "")] == list(words[1:])
        ]
    if len(found) != 1:
        raise KeyError(f"{benchmark}: {len(found)} kept figures are called {'; '.join(words)}")
    return found[0]


def kept_machine(benchmark: str) -> str:
    """When and on what the kept targets of a benchmark were measured, in words."""
    machine = json.loads((MEASURED / f"{benchmark}.json").read_text())["machine"]
    memory = f"{machine['memory_bytes'] / 1e9:.0f} GB of memory"
    versions = f"{machine['system']}, Python {machine['python']}"
    return f"{machine['date']}: {machine['cores']} cores, {machine['cpu']}; {memory}; {versions}"


def print_targets(title: str, targets: Sequence[Target]) -> None:
    rows = [
        (
            target.name,
            target.required,
            {True: "yes", False: "NO", None: ""}[target.met],
            target.shown,
            target.range,
        )
        for target in targets
    ]
    print_table(title, ("", "required", "met", "measured", "min–max"), rows, text_columns=3)


def _number(value: float) -> str:
    return f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
