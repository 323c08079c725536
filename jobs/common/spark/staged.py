"""Rows that executors have staged, as the driver reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.common.spark.hadoop import hadoop_path
from kidxlib.catalog.change import Found


@dataclass(frozen=True, slots=True)
class StagedBySpark:
    """Rows that Spark reads for the driver, where that has no reader of its own for their place. See
    `kidxlib.engine.staged.Staged`.

    Attributes:
        data: of `schema`, computed.
        path: a directory that goes with them; None where they are on executors' disks.
    """

    data: DataFrame
    schema: pa.Schema
    path: str | None

    def rows(self, kind: str, names: Sequence[str] | None = None) -> pa.Table:
        """See `Staged.rows`."""
        schema = pa.schema([each for each in self.schema.field(kind).type if names is None or each.name in names])
        of_kind = self.data.where(f"{kind} IS NOT NULL").select(*(f"{kind}.{name}" for name in schema.names))
        return of_kind.toArrow().cast(schema)

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """See `Staged.batches`. Spark gives all of them at once."""
        yield from self.rows(kind).to_batches()

    def found(self, *kinds: str) -> Found:
        """See `Staged.found`."""
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        """See `Staged.remove`."""
        self.data.unpersist()
        if self.path is not None:
            directory, file_system = hadoop_path(self.data.sparkSession, self.path)
            file_system.delete(directory, True)
