"""What a build has found, written into the tables: first what lies on disk of segments, then of partitions."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from kidxlib.catalog import updates
from kidxlib.catalog.change import Found
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import PARTITION_STATES, PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS
from kidxlib.engine.staged import Staged
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.scope import scope_of


def record_scanned(catalog: TablesCatalog, staged: Staged, build_id: str) -> int:
    """Record segments that were read. The events first: a segment that is recorded is not read again.

    Args:
        staged: rows of `SCANNED`.

    Returns:
        How many rows of `segments` were added or changed.
    """
    tables, since = catalog.tables, catalog.compared_with
    found = _not_overtaken(catalog, staged.found("segment", "event"), build_id)
    tables.change(PRODUCER_EVENTS, found, updates.events, by=SEGMENTS.key)
    change = partial(updates.scanned, build_id=build_id)
    return tables.change(SEGMENTS, found, change, by=SEGMENTS.key, since=since, build_id=build_id)


def record_finished(catalog: TablesCatalog, staged: Staged, build_id: str) -> int:
    """Record partitions that were finished.

    Args:
        staged: rows of `FINISHED`.

    Returns:
        How many rows of `segments` changed that this build had not changed before.
    """
    tables = catalog.tables
    tables.change(ABORTED_TRANSACTIONS, staged.found("partition", "aborted"), updates.aborted, by=PARTITIONS.key)
    tables.change(PARTITION_STATES, staged.found("partition", "state"), updates.states, by=PARTITIONS.key)
    change = partial(updates.finished, build_id=build_id)
    return tables.change(SEGMENTS, staged.found("segment"), change, by=SEGMENTS.key)


def withdrawn(catalog: TablesCatalog, staged: Staged) -> pa.Table:
    """The segments that finishing found to be quarantined, with their logs, and `status_before`. To be asked before
    they are recorded.

    Args:
        staged: rows of `FINISHED`.
    """
    names = [*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail"]
    rows = staged.rows("segment", names)
    rows = rows.filter(rows["status"].is_valid())
    known_names = [*SEGMENTS.key, "status", "log_path"]
    if rows.num_rows:
        known = catalog.tables.read(SEGMENTS, known_names, scope_of({"segment": rows}, SEGMENTS.key))
    else:
        known = SEGMENTS.schema(known_names).empty_table()
    known = known.take(positions_in(rows, known, SEGMENTS.key))
    return rows.append_column("status_before", known["status"]).append_column("log_path", known["log_path"])


def _not_overtaken(catalog: TablesCatalog, found: Found, build_id: str) -> Found:
    """Without segments of which another run has recorded a later state since this one compared."""
    tables, since = catalog.tables, catalog.compared_with
    if since is None or tables.version(SEGMENTS) == since:
        return found
    scope, names = scope_of({"segment": found["segment"]}, SEGMENTS.key), [*SEGMENTS.key, "build_id"]
    before = tables.read(SEGMENTS, names, scope, since)
    now = tables.read(SEGMENTS, [*names, "log_mtime_ns"], scope)
    return updates.not_overtaken(found, before, now, build_id)
