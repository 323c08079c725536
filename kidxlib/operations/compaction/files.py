"""Compaction of index files: what would change, or under the log dirs' locks what does."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among, rows_where
from kidxlib.catalog.results.build import COMPACTED
from kidxlib.catalog.segments import SEGMENTS, IndexFacts, LogVersion
from kidxlib.compaction.change import ChangeAction, ChangeOutcome
from kidxlib.compaction.task import CompactionOptions, Mode
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.operations.compaction.compact_work import PartitionsToCompact, compact_partitions
from kidxlib.operations.compaction.request import CompactionRequest
from kidxlib.operations.compaction.to_compact import partitions_to_compact
from kidxlib.operations.pieces import pieces
from kidxlib.run.recorded_sources import source_paths
from kidxlib.storage.lock import locked
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.progress import begin_phase

_OF_INDEXES: Final = Among("action", (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value))
_IN_PLACE: Final = Among("outcome", (ChangeOutcome.WRITTEN.value, ChangeOutcome.UNCHANGED.value))


def compact_files(
    backend: Backend, request: CompactionRequest, options: CompactionOptions, stack: contextlib.ExitStack
) -> Staged:
    """What changes, as rows of `COMPACTED`; with `--apply` it is done, and recorded.

    Args:
        stack: gets the locks of the log dirs that are written to, to release them.

    Raises:
        UsageError: as `partitions_to_compact`; or a log dir is in use, or workers are on other machines.
    """
    begin_phase("looking at index files")
    engine, tables = backend.engine, backend.catalog.tables
    shares = list(partitions_to_compact(tables, engine, request))
    sources = source_paths(tables)
    engine.start()
    if not request.apply:
        return engine.run(_work(shares, sources, options, Mode.PLAN))
    log_dirs = _lock(engine.run(_work(shares, sources, options, Mode.LOOK)), engine, stack)
    begin_phase("writing index files")
    with engine.stopping():
        changes = engine.run(_work(shares, sources, replace(options, locked=log_dirs), Mode.APPLY))
        begin_phase("recording in the catalog")
        _record(tables, changes)
    return changes


def _work(
    shares: Sequence[PartitionsToCompact], sources: Mapping[str, str], options: CompactionOptions, mode: Mode
) -> Work[PartitionsToCompact]:
    return Work(
        f"compact-{mode.name.lower()}",
        [[share] for share in shares],
        partial(compact_partitions, sources=sources, options=options, mode=mode),
        COMPACTED,
        bytes=sum(share.log_bytes for share in shares),
    )


def _record(tables: Tables, changes: Staged) -> None:
    """Write into `segments` which indexes were replaced, so many at a time that their rows have room in memory."""
    names = [*SEGMENTS.key, "action", "outcome", *IndexFacts.names(), *LogVersion.names()]
    rows = rows_where(changes.rows("compacted", names), [_OF_INDEXES, _IN_PLACE])
    for piece in pieces(rows.select(["topic", "partition"])):
        tables.change(SEGMENTS, {"compacted": rows_where(rows, piece)}, updates.coarsened, by=SEGMENTS.key)


def _lock(changes: Staged, engine: Engine, stack: contextlib.ExitStack) -> frozenset[str]:
    """Hold the log dirs in which something would be written, and name them.

    Raises:
        UsageError: one is held by another process, or the work is on several machines.
    """
    rows = changes.rows("compacted", ["outcome", "log_dir"])
    rows = rows_where(rows, [Among("outcome", (ChangeOutcome.KEPT.value,), negated=True)])
    log_dirs = sorted(str(log_dir) for log_dir in pc.unique(rows["log_dir"].drop_null()).to_pylist())
    if log_dirs and not engine.is_on_this_machine:
        raise UsageError(
            f"--apply: files in {log_dirs[0]} are to change; only with a local master, so that the log dir's lock "
            "covers every writer; give -- --master 'local[*]', or use kidx"
        )
    for log_dir in log_dirs:
        stack.enter_context(locked(Path(log_dir)))
    return frozenset(log_dirs)
