"""The columns of the source as Spark has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StringType, StructField, StructType

from kidxlib.errors import UsageError
from kidxlib.reading.request import MODES, read_schema

#: Those that Spark has no type for, and what its Kafka source has for headers: all of it may be null.
_TYPES: Final[dict[str, DataType]] = {
    "crc": LongType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Columns as they are read, in the types that Spark has for them. As in Spark's Kafka source, none is declared to
    be without nulls.
    """
    return StructType(
        [StructField(field.name, _TYPES.get(field.name) or from_arrow_type(field.type)) for field in schema]
    )


def source_schema(mode: str, *, include_headers: bool) -> StructType:
    """All columns of the source."""
    return spark_schema(read_schema(mode, None, include_headers=include_headers))


def ensure_columns(mode: str, schema: StructType) -> None:
    """See whether a schema that a user gives has columns of the source, in their types; in whatever order."""
    names = schema.fieldNames()
    known = spark_schema(read_schema(mode, names, include_headers=True))
    for field, ours in zip(schema, known, strict=True):
        if field.dataType.simpleString() != ours.dataType.simpleString():
            raise UsageError(
                f"schema: column {field.name} is of type {field.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}; cast it after reading"
            )


def columns_read(mode: str, names: Sequence[str]) -> pa.Schema:
    """The columns of these names as they are read."""
    return pa.schema([MODES[mode].field(name) for name in names])


def as_spark_has_them(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types that Spark has for them.

    Args:
        schema: what Spark expects, with the same columns.
    """
    try:
        return rows.cast(schema)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"a timestamp beyond those that Spark has, which are 292,000 years at most ({error}); read without the "
            "column timestamp: .schema('…') names the columns to read"
        ) from error
