"""Columns that docstrings promise, for comparison with schemas."""

from __future__ import annotations

import re

import pyarrow as pa


def columns_in(docstring: str | None) -> dict[str, str]:
    """The columns in a docstring's list such as "`a`, `b`: int64; …", with their types."""
    assert docstring
    lists = re.findall(r"((?:`\w+`(?:, )?)+): (\w+)", docstring)
    return {name: kind for names, kind in lists for name in re.findall(r"\w+", names)}


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """The columns of a schema, with their types without parameters or fields."""
    return {field.name: re.split(r"[<\[]", str(field.type))[0] for field in schema}
