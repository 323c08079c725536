"""Rows that executors have staged, as the driver reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.common.spark.conditions import as_column
from jobs.common.spark.hadoop import hadoop_path
from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import Condition
from kidxlib.engine.staged import batch_of_kind


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

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """See `Staged.batches`. Rows on executors' disks come task by task, in order; files are read one by one, as
        Spark takes them by their sizes.
        """
        for data in [self.data] if self.path is None else self._files(self.path):
            rows = data.where(f"{kind} IS NOT NULL").select(kind).mapInArrow(_as_bytes, "batch binary")
            for row in rows.toLocalIterator():
                for batch in pa.ipc.open_stream(row["batch"]):
                    yield batch_of_kind(batch.column(kind))

    def found(self, *kinds: str) -> Found:
        """See `Staged.found`."""
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        """See `Staged.remove`."""
        self.data.unpersist()
        if self.path is not None:
            directory, file_system = hadoop_path(self.data.sparkSession, self.path)
            file_system.delete(directory, True)

    def _files(self, path: str) -> Iterator[DataFrame]:
        spark = self.data.sparkSession
        parts, file_system = hadoop_path(spark, f"{path}/part-*")
        files = sorted(str(part.getPath()) for part in file_system.globStatus(parts))
        return (spark.read.schema(self.data.schema).parquet(file).coalesce(1) for file in files)


def _as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one row, in Arrow's format of streams."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})
