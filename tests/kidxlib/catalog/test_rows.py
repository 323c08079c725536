"""Tables as they are declared: what Arrow makes of the columns, and rows on their way through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pytest

from kidxlib.catalog.rows import Int32, Row, Table, column, columns_of, kinds_of, row, rows_of_columns, view_of
from kidxlib.catalog.tables import TABLES


class Kind(StrEnum):
    HOT = "hot"
    COLD = "cold"


class Part(TypedDict):
    number: Int32
    name: str | None


@row
class Whole(Row):
    """One row per thing."""

    name: str = column("its name")
    small: Int32 | None = column("a small number")
    kind: Kind = column("hot or cold")
    at: datetime | None = column("when")
    parts: Sequence[Part] | None = column("its parts")
    options: Mapping[str, str] = column("its options")


ONE = Whole(
    name="one",
    small=7,
    kind=Kind.COLD,
    at=datetime(2024, 1, 1, tzinfo=UTC),
    parts=[{"number": 1, "name": None}],
    options={"a": "b"},
)


def test_schema_follows_from_the_annotations() -> None:
    part = pa.struct([pa.field("number", pa.int32()), pa.field("name", pa.string())])
    assert [column.field for column in Whole.columns()] == [
        pa.field("name", pa.string(), nullable=False),
        pa.field("small", pa.int32()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("parts", pa.list_(pa.field("element", part))),
        pa.field("options", pa.map_(pa.string(), pa.string()), nullable=False),
    ]


def test_rows_come_back_from_arrow() -> None:
    schema = pa.schema([column.field for column in Whole.columns() if column.name != "options"])
    values = {name: value for name, value in ONE.values().items() if name != "options"}
    rows = pa.Table.from_pylist([values, {**values, "parts": None}], schema)

    @view_of(Whole)
    class Seen(Row):
        kind: Kind
        parts: Sequence[Part] | None

    assert Seen.of_arrow(rows) == [Seen(kind=Kind.COLD, parts=ONE.parts), Seen(kind=Kind.COLD, parts=None)]
    assert Seen.of_arrow(rows)[0].kind is Kind.COLD


def test_what_is_not_said_is_null() -> None:
    assert Whole.of({"name": "two", "kind": Kind.HOT, "options": {}}).small is None
    with pytest.raises(TypeError, match="kind"):
        Whole.of({"name": "two", "options": {}})
    with pytest.raises(TypeError, match="colour"):
        Whole.of({"name": "two", "kind": Kind.HOT, "options": {}, "colour": "red"})


def test_a_view_has_the_columns_of_its_table() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.small: Whole has .*int32.*, not .*int64"):

        @view_of(Whole)
        class Wrong(Row):
            small: int | None

    with pytest.raises(TypeError, match=r"Unknown\.colour: Whole has None"):

        @view_of(Whole)
        class Unknown(Row):
            colour: str


def test_every_column_says_what_it_means() -> None:
    with pytest.raises(TypeError, match=r"Silent\.name: no column"):

        @row
        class Silent(Row):
            name: str


def test_a_kind_may_be_null_in_each_of_its_fields() -> None:
    schema = kinds_of(whole=Whole.columns()[:2])
    assert pa.Table.from_pylist([{"whole": {"name": None, "small": None}}], schema).num_rows == 1


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_have_their_keys(table: Table) -> None:
    nullable = {column.name for column in table.columns if column.nullable}
    assert set(table.key) <= set(table.column_names) - nullable
    assert set(table.statistics) <= set(table.column_names)
    assert table.comment.endswith(".")


def test_rows_of_columns() -> None:
    """Of Arrow or NumPy; what is left out is null, where it may be."""
    schema = pa.schema([each.field for each in columns_of(Whole, ("name", "small", "at"))])
    columns = {"small": np.array([1, 2]), "name": pa.array(["a", "b"])}
    made = rows_of_columns(columns, 2, schema)
    assert made.schema == schema
    assert made.to_pylist() == [{"name": "a", "small": 1, "at": None}, {"name": "b", "small": 2, "at": None}]
    with pytest.raises(TypeError, match=r"no such column: \['smal'\]; never null, and left out: \['name'\]"):
        rows_of_columns({"smal": columns["small"]}, 2, schema)
