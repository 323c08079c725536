"""Index files that a catalog keeps in its table `index_bytes`: recorded as workers hand them out, and removed once
nobody needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.work import Staged
from kidxlib.storage.packed import SCHEME
from kidxlib.tables.protocol import Tables, scope_of

#: The most bytes, and rows, that one commit takes; as many are held.
_BYTES_AT_ONCE: Final = 64 * 1024 * 1024
_ROWS_AT_ONCE: Final = 400_000


def record_packed(tables: Tables, staged: Staged) -> None:
    """Commit the packed files of a run's rows (`packed`), in parts that fit into memory. It comes before the commit of
    their segments: a row of `segments` always has its files.
    """
    for part in _parts(staged.batches("packed")):
        tables.change_rows(INDEX_BYTES, {"packed": part}, updates.packed, by=SEGMENTS.key)


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and (
            sum(part.nbytes for part in held) + batch.nbytes > _BYTES_AT_ONCE
            or sum(part.num_rows for part in held) + batch.num_rows > _ROWS_AT_ONCE
        ):
            yield pa.Table.from_batches(held)
            held.clear()
        held.append(batch)
    if held:
        yield pa.Table.from_batches(held)


def remove_packed(tables: Tables, keys: pa.Table) -> None:
    """Remove the packed files of segments, by their keys."""
    if not keys.num_rows or not tables.version(INDEX_BYTES):  # version 0 has no rows
        return
    rows = tables.read(INDEX_BYTES, INDEX_BYTES.key, scope_of({"segment": keys}, SEGMENTS.key))
    _remove(tables, rows.filter(pa.array(positions_in(rows, keys, SEGMENTS.key) >= 0)))


def remove_left(tables: Tables, sources: list[str]) -> None:
    """Remove the packed files of partitions all of whose segments have their index files elsewhere now."""
    if not tables.version(INDEX_BYTES):
        return
    of_sources = Among("source", tuple(sources))
    rows = tables.read(INDEX_BYTES, INDEX_BYTES.key, [of_sources])
    if not rows.num_rows:
        return
    directories = tables.counts(SEGMENTS, [*PARTITIONS.key, "index_directory"], [of_sources, PRESENT])
    is_inside: Values = pc.starts_with(directories["index_directory"], SCHEME)
    is_elsewhere: Values = pc.invert(is_inside)
    elsewhere = directories.filter(is_elsewhere).select(PARTITIONS.key)
    inside = directories.filter(is_inside).select(PARTITIONS.key)
    is_left = (positions_in(rows, elsewhere, PARTITIONS.key) >= 0) & (positions_in(rows, inside, PARTITIONS.key) < 0)
    _remove(tables, rows.filter(pa.array(is_left)))


def _remove(tables: Tables, keys: pa.Table) -> None:
    keys = keys.sort_by([(name, "ascending") for name in INDEX_BYTES.order])
    for start in range(0, keys.num_rows, _ROWS_AT_ONCE):
        found = {"key": keys.slice(start, _ROWS_AT_ONCE)}
        tables.change_rows(INDEX_BYTES, found, partial(updates.removed, table=INDEX_BYTES), by=INDEX_BYTES.key)
