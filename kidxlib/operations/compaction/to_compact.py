"""What partitions are compacted by: rows of the catalog, shared with workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.catalog.conditions import PRESENT, Among, rows_where
from kidxlib.catalog.matching import Flags, Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.errors import UsageError
from kidxlib.operations.compaction.compact_work import PartitionsToCompact
from kidxlib.operations.compaction.request import CompactionRequest
from kidxlib.operations.pieces import pieces
from kidxlib.run.sources import sources_in_catalog
from kidxlib.storage.store.s3 import SCHEME
from kidxlib.tables.protocol import Tables

_NAMES: Final = tuple(dict.fromkeys([*SEGMENTS.key, *SegmentToCompact.names()]))


def partitions_to_compact(tables: Tables, engine: Engine, request: CompactionRequest) -> Iterator[PartitionsToCompact]:
    """The partitions that are asked for, segments that are gone among them, in shares of about as many segments.

    Args:
        engine: shares the rows.

    Raises:
        UsageError: nothing is known of what was asked for; or files are to be trimmed or removed in an object store.
    """
    known = tables.read(SEGMENTS, PARTITIONS.key)
    topics: dict[str, set[str]] = {}
    for row in known.group_by(["source", "topic"]).aggregate([]).to_pylist():
        topics.setdefault(row["source"], set()).add(row["topic"])
    sources = sources_in_catalog(request.sources, topics)
    asked = {topic for source in sources for topic in topics[source] if request.topics.fullmatch(topic)}
    if not asked:
        raise UsageError(
            f"{tables.path}: no segment of a topic that matches {request.topics.pattern}; give another --topics"
        )
    of_sources = Among("source", sources)
    wanted = rows_where(known, [of_sources, Among("topic", asked)])
    shares = engine.cores * BINS_PER_CORE
    for piece in pieces(wanted):
        rows = tables.read(SEGMENTS, _NAMES, [of_sources, *piece])
        if request.files is not None and (request.files.trim or request.files.orphans):
            _ensure_no_objects(rows)
        rows = rows.sort_by([(name, "ascending") for name in SEGMENTS.key])
        for share in _cut(rows, max(1, shares * rows.num_rows // wanted.num_rows)):
            log_bytes = pc.sum(rows_where(share, [PRESENT])["log_bytes"]).as_py()
            yield PartitionsToCompact(engine.share(share), int(log_bytes or 0))


def _cut(rows: pa.Table, shares: int) -> Iterator[pa.Table]:
    """About as many rows each, cut between partitions.

    Args:
        rows: in the order of their keys.
    """
    if not rows.num_rows:
        return
    begins: Flags = np.ones(rows.num_rows, np.bool_)
    begins[1:] = False
    for name in PARTITIONS.key:
        column = rows[name]
        differs: Values = pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1))
        begins[1:] |= differs.to_numpy()
    partitions = np.append(np.flatnonzero(begins), rows.num_rows)
    wanted = np.arange(shares + 1) * rows.num_rows // shares
    cuts = np.unique(partitions[np.searchsorted(partitions, wanted)]).tolist()
    for start, end in pairwise(cuts):
        yield rows.slice(start, end - start)


def _ensure_no_objects(rows: pa.Table) -> None:
    """Before files are trimmed or removed.

    Raises:
        UsageError: some are in an object store.
    """
    in_store: Values = pc.or_(pc.starts_with(rows["log_path"], SCHEME), pc.starts_with(rows["index_directory"], SCHEME))
    for row in rows.select(["source", "log_path", "index_directory"]).filter(in_store).slice(0, 1).to_pylist():
        raise UsageError(
            f"source {row['source']}: {row['log_path']}, with its index files in {row['index_directory']}: --trim and "
            "--orphans change nothing in an object store; name the others with --source, or leave both out"
        )
