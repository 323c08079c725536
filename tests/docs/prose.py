"""The sentences of the project's pages: without code, addresses of links, and what is made from the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.docs.pages import read
from tests.docs.render import BEGIN, END

#: Stands for a piece of code: a word of no language.
CODE: Final = "§"

_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MADE: Final = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
#: What a reader does not see: the markers of what is kept of benchmarks.
_COMMENT: Final = re.compile(r"<!-- .*? -->")
_CODE: Final = re.compile(r"(`+)(?!`).+?\1", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
#: Where a piece of text ends whatever its last sign: at an empty line, an item, a heading, a row or a cell.
_PIECE: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*#>|]|\d+\.)\s)|\n(?=\|)|(?<=\S)\s*\|\s*")
_SENTENCE: Final = re.compile(r"(?<=[.!?])[)*_\"”]*\s+(?=[A-Z0-9§*\"“(]|kidx\b|delta-rs\b)|(?<=[:;])\s+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, a heading, or what else stands by itself.

    Attributes:
        line: of the page, on which it begins.
        text: in one line; `CODE` in the place of code.
    """

    page: str
    line: int
    text: str

    @property
    def words(self) -> int:
        return len(re.findall(r"[\w§][\w§'’.,/=-]*", self.text))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def sentences(page: str) -> Iterator[Sentence]:
    """All sentences of a page, in order."""
    return sentences_of(read(page), page)


def sentences_of(text: str, page: str = "") -> Iterator[Sentence]:
    """All sentences of a text in Markdown, in order."""
    for left_out in (_MADE, _FENCE):
        text = left_out.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = _COMMENT.sub("", text)
    text = _CODE.sub(lambda match: "\n" * match[0].count("\n") + CODE, text)
    text = _LINK.sub(lambda match: match[1], text)
    at = 0
    for end in (*(match.start() for match in _PIECE.finditer(text)), len(text)):
        yield from _of_piece(page, text, at, end)
        at = end


def _of_piece(page: str, text: str, start: int, end: int) -> Iterator[Sentence]:
    at = start
    for stop in (*(match.end() for match in _SENTENCE.finditer(text, start, end)), end):
        part = text[at:stop]
        shown = " ".join(part.strip(" \n|-#>*").split())
        if re.search("[A-Za-z]", shown):
            line = text.count("\n", 0, at + len(part) - len(part.lstrip())) + 1
            yield Sentence(page, line, shown)
        at = stop
