"""How a column of the catalog is declared: a field with what it means, of a type that Arrow and Spark have too."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

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


@dataclass(frozen=True, slots=True)
class Formerly:
    """What a column was called in catalogs before a version."""

    name: str
    before: int


def column(meaning: str, formerly: Formerly | None = None) -> Any:
    """A field of a row, with what the column means."""
    return field(metadata={_MEANING: meaning, _FORMERLY: formerly})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        comment: what it means.
        words: what it may say, where these are the words of an enum; None of any other.
        formerly: its last name before this one; None where it had no other.
    """

    name: str
    arrow_type: pa.DataType
    comment: str
    nullable: bool
    words: type[StrEnum] | None = None
    formerly: Formerly | None = None

    @property
    def field(self) -> pa.Field[Any]:
        """The column in an Arrow schema."""
        return pa.field(self.name, self.arrow_type, self.nullable)


def declared_columns(cls: type[Any]) -> tuple[Column, ...]:
    """The fields of a dataclass as columns, in order.

    Raises:
        TypeError: the type of one is none of a column.
    """
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for declared in fields(cls):
        hint, nullable = _without_none(hints[declared.name])
        assert declared.default is MISSING
        words = hint if isinstance(hint, type) and issubclass(hint, StrEnum) else None
        kind = pa.string() if words else _arrow_type(hint)
        comment, formerly = declared.metadata.get(_MEANING, ""), declared.metadata.get(_FORMERLY)
        found.append(Column(declared.name, kind, comment, nullable, words, formerly))
    return tuple(found)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (part for part in get_args(hint) if part is not type(None))
        return inner, True
    return hint, False


def _arrow_type(hint: Any) -> pa.DataType:
    """Arrow's type of an annotation: of a number, a text, a time, a list or a map of these, or of a TypedDict."""
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
