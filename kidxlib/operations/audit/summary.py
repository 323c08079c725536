"""What an audit comes to, from a few columns of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import WORST_FIRST
from kidxlib.audit.rows import Kind
from kidxlib.audit.summary import COUNTED, NOTHING_LOST, AuditSummary
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.matching import Values
from kidxlib.catalog.results.audit import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.rows import Row
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.audit.found import ORDERS, Found
from kidxlib.terminal.audit import SHOWN

_R = TypeVar("_R", bound=Row)

#: The verdicts that are reported, and the conditions on rows of what is reported one by one.
_REPORTED: Final = tuple(verdict.value for verdict in WORST_FIRST)
LOST: Final = Among("action", tuple(action.value for action in NOTHING_LOST), negated=True)


def summarise(found: Found, *, tiering: bool) -> AuditSummary:
    """Sum an audit up.

    Args:
        tiering: also say which segments are not ready for tiered storage.
    """
    summary = AuditSummary()
    kinds = ["file", "verdict"]
    files = found.rows(Kind.FILE, kinds).group_by(kinds).aggregate([([], "count_all")])
    for row in files.to_pylist():
        summary.files[row["file"], row["verdict"]] = row["count_all"]
    summary.reported = _reported(found)
    startup = found.rows(Kind.SEGMENT, ["action", *COUNTED])
    sums = startup.group_by("action").aggregate([([], "count_all"), *((name, "sum") for name in COUNTED)])
    for row in sums.to_pylist():
        counts = {name: row[f"{name}_sum"] or 0 for name in COUNTED}
        summary.add_action(row["action"], row["count_all"], **counts)
    summary.lost = _first(StartupRow, found.rows(Kind.SEGMENT, None, [LOST]), ORDERS[Kind.SEGMENT])
    partitions = found.rows(Kind.PARTITION)
    for start in _first(StartupPartitionRow, partitions, ORDERS[Kind.PARTITION], partitions.num_rows):
        summary.add_start(start)
    if tiering:
        not_ready = found.rows(Kind.NOT_READY)
        summary.not_ready = _first(NotReadyRow, not_ready, ORDERS[Kind.NOT_READY])
        summary.not_ready_count = not_ready.num_rows
    return summary


def _reported(found: Found) -> list[FileFinding]:
    """The first files that are reported, the worst first, and logs before index and auxiliary files."""
    rows = found.rows(Kind.FILE, None, [Among("verdict", _REPORTED)])
    rank: Values = pc.index_in(rows["verdict"], value_set=pa.array(_REPORTED))
    is_no_log: Values = pc.not_equal(rows["file"], pa.scalar(LOG_SUFFIX)).cast(pa.int8())
    rows = rows.append_column("rank", rank).append_column("is_no_log", is_no_log)
    return _first(FileFinding, rows, ["rank", "is_no_log", *ORDERS[Kind.FILE]])


def _first(row_type: type[_R], rows: pa.Table, order: Sequence[str], count: int = SHOWN) -> list[_R]:
    return row_type.of_arrow(rows.sort_by([(name, "ascending") for name in order]).slice(0, count))
