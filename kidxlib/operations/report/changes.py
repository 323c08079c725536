"""What the last build changed: segments that are new, that have grown or were read anew, and that are gone."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import CatalogError
from kidxlib.recovery.outcome import Status
from kidxlib.tables.protocol import TablesToRead
from kidxlib.tables.scope import scope_of

#: A build makes a few commits; so many versions are looked through for the state before it.
_VERSIONS: Final = 12


def changes_section(tables: TablesToRead) -> dict[str, Any] | None:
    """What the last build changed; None where no build is recorded, or the state before it is not to be had.

    Bytes are those by which logs have grown, and those of logs that are new or gone.
    """
    builds = tables.read(BUILDS, ["build_id", "started_at"]).sort_by("started_at")
    if not builds.num_rows:
        return None
    build_id = builds["build_id"][-1].as_py()
    is_of_build = Among("build_id", (build_id,))
    now = tables.read(SEGMENTS, [*SEGMENTS.key, "log_bytes", "status"], [is_of_build])
    before = _before(tables, is_of_build, now)
    if before is None:
        return None
    at = positions_in(now, before, SEGMENTS.key)
    sizes, is_gone = _longs(now["log_bytes"]), _is(now["status"], Status.GONE)
    places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
    was_there = (at >= 0) & ~_is(before["status"].take(places), Status.GONE)
    old = np.where(was_there, _longs(before["log_bytes"].take(places)), 0)
    return {
        "build_id": build_id,
        "is_first": builds.num_rows == 1,
        "new_segments": int((~was_there & ~is_gone).sum()),
        "new_bytes": int(sizes[~was_there & ~is_gone].sum()),
        "grown_segments": int((was_there & ~is_gone & (sizes != old)).sum()),
        "grown_bytes": int((sizes - old)[was_there & ~is_gone].sum()),
        "gone_segments": int(is_gone.sum()),
        "gone_bytes": int(sizes[is_gone].sum()),
    }


def _before(tables: TablesToRead, is_of_build: Among, now: pa.Table) -> pa.Table | None:
    """The rows of the same partitions in the last version of the table that has none of the build; None where there is
    no such version any more.
    """
    version = tables.version(SEGMENTS)
    if version is None:
        return None
    names = [*SEGMENTS.key, "log_bytes", "status"]
    try:
        for earlier in range(version, max(version - _VERSIONS, -1), -1):
            if not tables.counts(SEGMENTS, ["source"], [is_of_build], earlier).num_rows:
                return tables.read(SEGMENTS, names, scope_of({"now": now}, SEGMENTS.key[:3]), earlier)
    except CatalogError:  # the files of that version were removed
        return None
    return None


def _longs(column: Values) -> Any:
    return column.fill_null(pa.scalar(0, pa.int64())).to_numpy()


def _is(column: Values, status: Status) -> Any:
    found: Values = pc.equal(column, pa.scalar(status.value))
    return found.fill_null(False).to_numpy().astype(np.bool_)
