"""Declares tables of the catalog as frozen dataclasses. The fields are the columns, with their meanings, and of types
that Arrow and Spark have too. Arrow's schema, Spark's, the Delta tables and `docs/catalog.md` follow from them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import pyarrow as pa

from kidxlib.format.topic_partition import PartitionKey

_R = TypeVar("_R", bound="Row")

#: A number of 32 bits.
Int32 = Annotated[int, pa.int32()]

_MEANING: Final = "meaning"
_FORMERLY: Final = "formerly"
_ARROW_TYPES: Final[Mapping[Any, pa.DataType]] = {
    str: pa.string(),
    bytes: pa.binary(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
    datetime: pa.timestamp("us", tz="UTC"),
}

#: The meanings of key columns, for rows that do not begin with these columns.
SOURCE: Final = "name of the log dir, backup or volume that holds the segment"
TOPIC: Final = "topic"
PARTITION: Final = "partition number"
BASE_OFFSET: Final = "the segment's base offset, from its file name"


@dataclass(frozen=True, slots=True)
class Formerly:
    """The former name of a column, in catalogs before a version."""

    name: str
    before: int


def column(meaning: str, formerly: Formerly | None = None) -> Any:
    return field(metadata={_MEANING: meaning, _FORMERLY: formerly})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        comment: the column's meaning.
        words: the possible values, for an enum; else None.
        formerly: the last former name; None: there is none.
    """

    name: str
    arrow_type: pa.DataType
    comment: str
    nullable: bool
    words: type[StrEnum] | None = None
    formerly: Formerly | None = None

    @property
    def field(self) -> pa.Field[Any]:
        return pa.field(self.name, self.arrow_type, self.nullable)


def _declared_columns(cls: type[Any]) -> tuple[Column, ...]:
    hints = get_type_hints(cls, include_extras=True)
    columns = []
    for declared in fields(cls):
        hint, nullable = _without_none(hints[declared.name])
        assert declared.default is MISSING
        words = hint if isinstance(hint, type) and issubclass(hint, StrEnum) else None
        kind = pa.string() if words else _arrow_type(hint)
        comment, formerly = declared.metadata.get(_MEANING, ""), declared.metadata.get(_FORMERLY)
        columns.append(Column(declared.name, kind, comment, nullable, words, formerly))
    return tuple(columns)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (part for part in get_args(hint) if part is not type(None))
        return inner, True
    return hint, False


def _arrow_type(hint: Any) -> pa.DataType:
    """Arrow's type for an annotation: a number, a text, a time, a list or map of these, or a TypedDict."""
    if hint in _ARROW_TYPES:
        return _ARROW_TYPES[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        declared: pa.DataType = arguments[1]
        return declared
    if origin is Sequence:
        return pa.list_(pa.field("element", _arrow_type(arguments[0])))
    if origin is Mapping:
        return pa.map_(_arrow_type(arguments[0]), _arrow_type(arguments[1]))
    if hasattr(hint, "__required_keys__"):
        inner = {name: _without_none(value) for name, value in get_type_hints(hint, include_extras=True).items()}
        return pa.struct([pa.field(name, _arrow_type(value)) for name, (value, _) in inner.items()])
    raise TypeError(f"{hint}: not the type of a column")


class Row:
    """A row of a table, or some of its columns: a frozen dataclass made by `row` or `view_of`."""

    __slots__ = ()
    _columns: ClassVar[tuple[Column, ...]] = ()
    _names: ClassVar[tuple[str, ...]] = ()
    #: The columns with an enum, whose values become its members.
    _words: ClassVar[tuple[tuple[str, type[StrEnum]], ...]] = ()

    @classmethod
    def columns(cls) -> tuple[Column, ...]:
        return cls._columns

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return cls._names

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A row with some values; other columns are null."""
        return cls(**{**{column.name: None for column in cls._columns if column.nullable}, **values})

    @classmethod
    def of_arrow(cls, rows: pa.Table | pa.RecordBatch) -> list[Self]:
        """The rows of an Arrow table with these columns, and perhaps others."""
        return [cls.of_dict(values) for values in rows.select(list(cls.names())).to_pylist()]

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Self:
        """A row from a mapping with exactly these columns, as Arrow and Spark return it."""
        words = {name: kind(values[name]) for name, kind in cls._words if values[name] is not None}
        return cls(**{**values, **words})

    def values(self) -> dict[str, Any]:
        """The columns' values by name, as `pyarrow.Table.from_pylist` takes them."""
        return {name: getattr(self, name) for name in self._names}


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(column,))
def row(cls: type[_R]) -> type[_R]:
    """Make a class the row of a table: every field is a `column`."""
    made = _made(cls)
    for column_ in made._columns:
        if not column_.comment:
            raise TypeError(f"{cls.__name__}.{column_.name}: no column(…) with what it means")
    return made


@dataclass_transform(kw_only_default=True, frozen_default=True)
def view_of(whole: type[Row]) -> Callable[[type[_R]], type[_R]]:
    """Make a class a view: some columns of a row, by name and type."""
    known = {column.name: column for column in whole.columns()}

    def view(cls: type[_R]) -> type[_R]:
        made = _made(cls)
        for seen in made._columns:
            column = known.get(seen.name)
            if column is None or (seen.arrow_type, seen.nullable) != (column.arrow_type, column.nullable):
                raise TypeError(f"{cls.__name__}.{seen.name}: {whole.__name__} has {column}, not {seen}")
        return made

    return view


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the catalog, described by the docstring of its rows.

    Attributes:
        key: rows are unique by these columns.
        sort_by: files are sorted by these columns, so that queries by their values skip files.
        asked_by: further columns by which queries skip files.
        group_bytes: the most bytes in memory of a Parquet row group, in a table whose rows are read one by one and may
            be large; None: any number of bytes.
    """

    name: str
    row: type[Row]
    key: tuple[str, ...]
    sort_by: tuple[str, ...]
    asked_by: tuple[str, ...] = ()
    group_bytes: int | None = None

    @property
    def comment(self) -> str:
        """The table's description in one line."""
        return " ".join((self.row.__doc__ or "").split())

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.row.columns()

    @property
    def column_names(self) -> list[str]:
        return list(self.row.names())

    @property
    def renamed(self) -> dict[str, str]:
        """The present names of columns, by their names in older catalog versions."""
        return {column.formerly.name: column.name for column in self.columns if column.formerly is not None}

    @property
    def order(self) -> tuple[str, ...]:
        """The order of rows in a file."""
        return tuple(dict.fromkeys((*self.sort_by, *self.key)))

    @property
    def statistics(self) -> tuple[str, ...]:
        """The columns whose least and greatest value in each file are in Delta's log."""
        return tuple(dict.fromkeys((*self.key, *self.sort_by, *self.asked_by)))

    def schema(self, names: Collection[str] | None = None) -> pa.Schema:
        """Arrow's schema of some columns, in the given order; None: all."""
        return pa.schema([column.field for column in self.columns if names is None or column.name in names])


def columns_of(whole: type[Row], names: Collection[str]) -> tuple[Column, ...]:
    return tuple(column for column in whole.columns() if column.name in names)


def kinds_of(**kinds: Sequence[Column]) -> pa.Schema:
    """The schema of rows of several kinds from one pass over the data. Each row has a value in one column only, that of
    its kind. All fields are nullable, as the columns of other kinds are null.
    """
    return pa.schema(
        [
            pa.field(kind, pa.struct([pa.field(column.name, column.arrow_type) for column in columns]))
            for kind, columns in kinds.items()
        ]
    )


def rows_of_kind(kind: str, columns: Mapping[str, Any], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of one kind (`kinds_of`) from Arrow columns by name; a missing column is null."""
    of_kind = schema.field(kind).type
    struct = pa.StructArray.from_arrays(
        [
            _as_column(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in of_kind
        ],
        fields=list(of_kind),
    )
    return pa.RecordBatch.from_arrays(
        [struct if field.name == kind else pa.nulls(count, field.type) for field in schema], schema=schema
    )


def rows_of_columns(columns: Mapping[str, Any], count: int, schema: pa.Schema) -> pa.Table:
    """A table from Arrow or NumPy columns by name; a missing column is null."""
    unknown = columns.keys() - set(schema.names)
    missing = {field.name for field in schema if not field.nullable} - columns.keys()
    if unknown or missing:
        raise TypeError(f"no such column: {sorted(unknown)}; never null, and left out: {sorted(missing)}")
    nothing = pa.nulls(count)
    return pa.table([_as_column(columns.get(field.name, nothing), field.type) for field in schema], schema=schema)


def _as_column(values: Any, kind: pa.DataType) -> Any:
    if isinstance(values, np.ndarray):
        return pa.array(values, kind)
    return values if values.type == kind else values.cast(kind)


def _made(cls: type[_R]) -> type[_R]:
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made._columns = _declared_columns(made)
    made._names = tuple(column.name for column in made._columns)
    made._words = tuple((column.name, column.words) for column in made._columns if column.words is not None)
    return made


@row
class PartitionOfSource(Row):
    """One partition of a source."""

    source: str = column(SOURCE)
    topic: str = column(TOPIC)
    partition: Int32 = column(PARTITION)

    @property
    def partition_key(self) -> PartitionKey:
        """The partition that the row is about."""
        return self.source, self.topic, self.partition


@row
class SegmentKey(PartitionOfSource):
    """One segment of a source."""

    base_offset: int = column(BASE_OFFSET)


#: The names of the columns that identify a segment.
SEGMENT_KEY: Final = SegmentKey.names()
PARTITION_KEY: Final = PartitionOfSource.names()
