"""Rows that executors have staged, as the driver reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.common.spark.conditions import as_column
from jobs.common.spark.hadoop import hadoop_path
from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import Condition


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

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """See `Staged.rows`."""
        schema = pa.schema([each for each in self.schema.field(kind).type if names is None or each.name in names])
        of_kind = self.data.where(f"{kind} IS NOT NULL").select(f"{kind}.*")
        for condition in where:
            of_kind = of_kind.where(as_column(condition))
        return of_kind.select(*schema.names).toArrow().cast(schema)

    def found(self, *kinds: str) -> Found:
        """See `Staged.found`."""
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        """See `Staged.remove`."""
        self.data.unpersist()
        if self.path is not None:
            directory, file_system = hadoop_path(self.data.sparkSession, self.path)
            file_system.delete(directory, True)
