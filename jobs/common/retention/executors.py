"""A plan on executors: each partition is planned by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.common.retention.options import Configs, PlanOptions
from jobs.common.retention.partition import Partition
from jobs.common.retention.planned import planned_rows
from jobs.common.spark.schema import spark_schema
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import PLANNED
from kidxlib.retention.policy import TopicConfig


def plan_on_executors(rows: DataFrame, configs: Configs, options: PlanOptions) -> DataFrame:
    """Rows of `PLANNED`, a row for each segment and policy.

    Args:
        rows: of `Catalog.to_plan`.
    """
    known_configs = rows.sparkSession.sparkContext.broadcast(configs)

    def plan_all(key: tuple[Any, ...], segments: pa.Table) -> pa.Table:
        named = known_configs.value[key[1].as_py()]
        return pa.concat_tables(plan_partition(segments.sort_by("base_offset"), named, options))

    return rows.groupBy(*PARTITIONS.key).applyInArrow(plan_all, spark_schema(PLANNED))


def plan_partition(table: pa.Table, configs: Mapping[str, TopicConfig], options: PlanOptions) -> Iterable[pa.Table]:
    """The rows of one partition, for one policy after the other.

    Args:
        table: its segments, by base offset.
    """
    partition = Partition.of(table)
    on_disk = partition.on_disk() if options.from_files else None
    for name, config in configs.items():
        yield planned_rows(partition, name, config, options, on_disk)
