"""The answers to the report's questions, asked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kidxlib.operations.report.questions import QUESTIONS, future
from kidxlib.tables.protocol import Question, TablesToAsk

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the catalog answers.

    Attributes:
        rows: of each question, by its name.
        questions: all that were asked.
    """

    rows: Mapping[str, Rows]
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
        return cls({question.name: tables.ask(question).to_pylist() for question in questions}, questions)

    def __getitem__(self, question: Question) -> Rows:
        return self.rows[question.name]

    @property
    def sql(self) -> dict[str, str]:
        """The SQL of each question, by its name."""
        return {question.name: question.sql for question in self.questions}
