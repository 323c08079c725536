"""The columns of the source in Spark's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StringType, StructField, StructType

from kidxlib.errors import UsageError
from kidxlib.reading.request import MODES, read_schema

#: The types of columns that Spark has no type for, and of headers as in its Kafka source, where all may be null.
_TYPES: Final[dict[str, DataType]] = {
    "crc": LongType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Columns in Spark's types. All are declared nullable, as in Spark's Kafka source."""
    return StructType(
        [StructField(field.name, _TYPES.get(field.name) or from_arrow_type(field.type)) for field in schema]
    )


def source_schema(mode: str, *, include_headers: bool) -> StructType:
    return spark_schema(read_schema(mode, None, include_headers=include_headers))


def ensure_columns(mode: str, schema: StructType) -> None:
    """Check that a user's schema has columns of the source, with their types, in any order."""
    names = schema.fieldNames()
    known = spark_schema(read_schema(mode, names, include_headers=True))
    for field, ours in zip(schema, known, strict=True):
        if field.dataType.simpleString() != ours.dataType.simpleString():
            raise UsageError(
                f"schema: column {field.name} is of type {field.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}; cast it after reading"
            )


def columns_read(mode: str, names: Sequence[str]) -> pa.Schema:
    return pa.schema([MODES[mode].field(name) for name in names])


def in_spark_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types of Spark's schema, which has the same columns."""
    try:
        return rows.cast(schema)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"a timestamp beyond those that Spark has, which are 292,000 years at most ({error}); read without the "
            "column timestamp: .schema('…') names the columns to read"
        ) from error
