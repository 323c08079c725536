"""What docstrings promise, to be compared with the code."""

from __future__ import annotations

import re

import pyarrow as pa


def columns_in(docstring: str | None) -> dict[str, str]:
    """The columns that a docstring lists, and the type that it says of each: "`a`, `b`: int64; …"."""
    assert docstring
    lists = re.findall(r"((?:`\w+`(?:, )?)+): (\w+)", docstring)
    return {name: kind for names, kind in lists for name in re.findall(r"\w+", names)}


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """The columns of a schema, and the type of each without what is in it."""
    return {field.name: re.split(r"[<\[]", str(field.type))[0] for field in schema}
