"""Compaction of index files: what would change, or under the log dirs' locks what does."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.compaction.executors import compact_on_executors
from jobs.common.compaction.request import CompactionRequest
from jobs.common.spark.masters import is_local
from kidxlib.compaction.change import ChangeAction, ChangeOutcome
from kidxlib.compaction.task import CompactionOptions, Mode
from kidxlib.errors import UsageError
from kidxlib.run.sources import sources_in_catalog
from kidxlib.storage.lock import locked
from kidxlib.storage.s3 import SCHEME
from kidxlib.terminal.progress import begin_phase


def compact_files(
    catalog: Catalog, request: CompactionRequest, options: CompactionOptions, stack: contextlib.ExitStack
) -> DataFrame:
    """What changes, as rows of `COMPACTED`; with `--apply` it is done, and recorded.

    Args:
        stack: gets the locks of the log dirs that are written to, and the cached rows, to release them.
    """
    begin_phase("looking at index files")
    rows = _to_compact(catalog, request)
    sources = catalog.source_paths()
    if options.trim or options.orphans:
        _ensure_no_objects(rows)
    if not request.apply:
        planned = compact_on_executors(rows, sources, options, Mode.PLAN).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(planned.unpersist)
        return planned
    log_dirs = _lock(compact_on_executors(rows, sources, options, Mode.LOOK), stack)
    options = replace(options, locked=log_dirs)
    materialise = stack.enter_context(catalog.staging(f"compact-{uuid.uuid4().hex}"))
    begin_phase("writing index files")
    changes = materialise(compact_on_executors(rows, sources, options, Mode.APPLY))
    in_place = F.col("outcome").isin(ChangeOutcome.WRITTEN.value, ChangeOutcome.UNCHANGED.value)
    begin_phase("recording in the catalog")
    of_indexes = F.col("action").isin(ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value)
    catalog.record_coarsened(changes.where(of_indexes & in_place))
    return changes


def _to_compact(catalog: Catalog, request: CompactionRequest) -> DataFrame:
    known = catalog.topics(gone_too=True)
    sources = sources_in_catalog(request.sources, known)
    topics = {topic for source in sources for topic in known[source] if request.topics.fullmatch(topic)}
    if not topics:
        raise UsageError(f"{catalog.path}: no segment of a topic that matches {request.topics.pattern}")
    return catalog.to_compact(sources, topics)


def _ensure_no_objects(rows: DataFrame) -> None:
    """Before files are trimmed or removed.

    Raises:
        UsageError: some are in an object store.
    """
    in_store = F.col("log_path").startswith(SCHEME) | F.col("index_directory").startswith(SCHEME)
    for row in rows.where(in_store).select("source", "log_path", "index_directory").limit(1).collect():
        raise UsageError(
            f"source {row['source']}: {row['log_path']}, with its index files in {row['index_directory']}: --trim and "
            "--orphans change nothing in an object store; name the others with --source, or leave both out"
        )


def _lock(changes: DataFrame, stack: contextlib.ExitStack) -> frozenset[str]:
    """Hold the log dirs in which something would be written, and name them.

    Raises:
        UsageError: one is held by another process, or the work is on several machines.
    """
    to_write = changes.where((F.col("outcome") != ChangeOutcome.KEPT.value) & F.col("log_dir").isNotNull())
    log_dirs = sorted(row["log_dir"] for row in to_write.select("log_dir").distinct().collect())
    if log_dirs and not is_local(changes.sparkSession):
        raise UsageError(
            f"--apply: files in {log_dirs[0]} are to change; only with a local master, so that the log dir's lock "
            "covers every writer"
        )
    for log_dir in log_dirs:
        stack.enter_context(locked(Path(log_dir)))
    return frozenset(log_dirs)
