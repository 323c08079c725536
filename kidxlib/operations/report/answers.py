"""The answers to the report's questions, asked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kidxlib.operations.report.listed import COUNTED, Listed
from kidxlib.operations.report.questions import QUESTIONS, future
from kidxlib.tables.protocol import Question, TablesToAsk

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the catalog answers.

    Attributes:
        rows: of each question, by its name; of one that is `Listed` the first.
        counts: of each question that is `Listed`, by its name.
        questions: all that were asked.
    """

    rows: Mapping[str, Rows]
    counts: Mapping[str, Rows]
    questions: Sequence[Question]

    @classmethod
    def ask(cls, tables: TablesToAsk, now_ms: int) -> Self:
        """Ask all questions.

        Args:
            now_ms: the report's time, ms since the epoch.

        Raises:
            CatalogError: a table cannot be read.
        """
        questions = (*QUESTIONS, future(now_ms))
        asked = {each.name: each.first_rows if isinstance(each, Listed) else each for each in questions}
        counts = {each.name: each.counts for each in questions if isinstance(each, Listed)}
        rows, counted = (
            {name: tables.ask(question).to_pylist() for name, question in named.items()} for named in (asked, counts)
        )
        return cls(rows, counted, questions)

    def __getitem__(self, question: Question) -> Rows:
        return self.rows[question.name]

    def count(self, question: Listed, **values: str | bool) -> int:
        """How many rows a question has, those that are not listed too.

        Args:
            values: of the columns that it is counted by; of any where a column is not named.
        """
        return sum(row[COUNTED] for row in self.counts[question.name] if row.items() >= values.items())

    @property
    def cut(self) -> dict[str, dict[str, int]]:
        """How many rows are listed and how many there are, by the name of the question, where not all are listed."""
        listed = [each for each in self.questions if isinstance(each, Listed)]
        return {
            each.name: {"shown": each.limit, "found": self.count(each)}
            for each in listed
            if self.count(each) > each.limit
        }

    @property
    def sql(self) -> dict[str, str]:
        """The SQL of each question, by its name."""
        return {question.name: question.sql for question in self.questions}
