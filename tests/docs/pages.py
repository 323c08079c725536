"""The project's pages, and the blocks in them that tests run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
CATALOG_PAGE: Final = "docs/catalog.md"
SQL_PAGE: Final = "docs/sql.md"
#: What its commands make is there for those of the other pages.
README: Final = "README.md"
PAGES: Final = (README, *sorted(f"docs/{path.name}" for path in (PROJECT / "docs").glob("*.md")))

_BLOCK: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_VIEW: Final = re.compile(r"CREATE (?:TEMPORARY )?VIEW \w+ AS SELECT [^`\";\n]+")
_QUESTION: Final = re.compile(r"^\*\*(?P<question>[^\n]+)\*\*", re.MULTILINE)
#: What a block has that starts Spark.
_SPARK: Final = "SparkSession.builder"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: the first word after the fence; `sh` and `python` are run, `sql` is asked, others are for reading.
        exit_code: what a command that is run must end with: `exit=3` after the language, else 0.
        output: lines that it must print, from a block `text output` right below it; `…` stands for anything.
        goes_on: it has the names of the `python` block before it: `goes-on` after the language.
        is_slow: with `--exhaustive` alone: `slow` after the language.
    """

    page: str
    line: int
    language: str
    text: str
    exit_code: int = 0
    output: tuple[str, ...] = ()
    goes_on: bool = False
    is_slow: bool = False

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    return (PROJECT / page).read_text()


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    text = read(page)
    found: list[Block] = []
    end_of_last = -1
    for match in _BLOCK.finditer(text):
        language, *words = match["info"].split() or [""]
        options = dict(word.partition("=")[::2] for word in words)
        line = text.count("\n", 0, match.start()) + 1
        if "output" in options:
            assert not text[end_of_last : match.start()].strip(), f"{page}:{line}: the output of which block?"
            last = found.pop()
            found.append(replace(last, output=tuple(match["text"].splitlines())))
        else:
            exit_code, goes_on, is_slow = int(options.get("exit", 0)), "goes-on" in options, "slow" in options
            found.append(Block(page, line, language, match["text"], exit_code, goes_on=goes_on, is_slow=is_slow))
        end_of_last = match.end()
    return found


def runnable(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("sh", "python")]


def processes(page: str) -> list[list[Block]]:
    """The blocks of a page that are run, those together that are run in one process: `python` blocks that follow each
    other. To import the library takes most of what each takes. One that starts Spark begins a process.
    """
    found: list[list[Block]] = []
    for block in runnable(page):
        follows = bool(found) and found[-1][-1].language == block.language == "python"
        assert follows or not block.goes_on, f"{block.name}: it goes on with what?"
        if block.goes_on or (follows and _SPARK not in block.text and not found[-1][-1].is_slow):
            assert block.is_slow == found[-1][-1].is_slow, f"{block.name}: slow as the one that it goes on with"
            found[-1].append(block)
        else:
            found.append([block])
    return found


def program(blocks: Sequence[Block], between: str) -> str:
    """What is run in one process: each block as if alone, but for those that go on with the one before.

    Args:
        between: printed between two of them.
    """
    lines = []
    for number, block in enumerate(blocks):
        if number:
            lines.append(f"print({between!r})")
        if not block.goes_on:
            lines.append('names = {"__name__": "__main__"}')
        lines.append(f"exec(compile({block.text!r}, {block.name!r}, 'exec'), names)")
    return "\n".join(lines)


def queries() -> Iterator[tuple[str, str]]:
    """The questions of the page on SQL, each with its SQL."""
    text = read(SQL_PAGE)
    questions = list(_QUESTION.finditer(text))
    for block in blocks(SQL_PAGE):
        if block.language == "sql":
            above = [match for match in questions if text.count("\n", 0, match.start()) + 1 < block.line]
            yield above[-1]["question"], block.text


def views() -> list[str]:
    """The statements with which that page has views made, for both engines: Spark alone knows `explode` and versions,
    DataFusion alone `unnest`.
    """
    return _VIEW.findall(read(SQL_PAGE))
