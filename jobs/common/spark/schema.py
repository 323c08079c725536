"""What Spark calls the types of the catalog's columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StructType

from kidxlib.catalog.columns import Column


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's schema of the columns of Arrow's."""
    return from_arrow_schema(schema)


def spark_type(column: Column) -> DataType:
    """Spark's type of a column; its `simpleString` is what SQL calls it."""
    return from_arrow_type(column.arrow_type)
