"""A question to a catalog's tables, as SQL that delta-rs (DataFusion) and Spark both understand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.tables.protocol import TablesToRead


@dataclass(frozen=True, slots=True)
class Question:
    """SQL as Spark reads it, in words that DataFusion has, too, but for `explode`.

    Attributes:
        name: what messages call it.
        sql: of the tables by their names.
        tables: those that it names.
        schema: of the answer.
    """

    name: str
    sql: str
    tables: tuple[Table, ...]
    schema: pa.Schema

    @property
    def for_datafusion(self) -> str:
        """The same in DataFusion's words: there `explode` is called `unnest`."""
        return self.sql.replace("explode(", "unnest(")


@runtime_checkable
class TablesToAsk(TablesToRead, Protocol):
    """Tables that answer SQL."""

    def ask(self, question: Question) -> pa.Table:
        """The answer, in the question's own schema; no row where one of its tables is not there.

        Raises:
            CatalogError: a table cannot be read, or lacks a column, as an older release made it.
        """
