"""Segments as DataFrames of Spark: `spark.read.format("kafka_segment")`, once `register(spark)` has made that known
(`source`, which also has its schema), and `read` for all at once (`bulk`). In the driver, `source_options` parses the
options of the source, and `planning` turns them, and filters that Spark pushes down (`pushed_filters`), into reads,
divided among tasks; also for each micro-batch of a stream, whose ends are `stream_offsets` in Spark's checkpoint.
`task_rows` reads in a task.

A name is imported at its first use: the processes that Spark starts to get a schema need few of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kidxlib.spark.bulk import read
    from kidxlib.spark.source import register

__all__ = ["read", "register"]

if not TYPE_CHECKING:  # else any name would do

    def __getattr__(name: str) -> object:
        """A name of `__all__`, from its module (PEP 562)."""
        from importlib import import_module

        homes = {"read": "bulk", "register": "source"}
        if name not in homes:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{homes[name]}"), name)
