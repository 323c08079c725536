"""All tables of a catalog, the table `builds`, and the version of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Formerly, Int32, Row, Table, column, row
from kidxlib.catalog.segments import SEGMENTS

#: Raised by one with every column that a release adds, and with each change of the layout. It is a property of tables.
CATALOG_VERSION: Final = 10
#: Since this version tables have the present layout: any writer brings them up to date, and later columns read as null.
#: Only Spark writes earlier tables.
LAYOUT_VERSION: Final = 7
#: The last version that added columns which a scan fills: segments with rows of an earlier version are read again.
FACTS_VERSION: Final = 2


@row
class BuildRow(Row):
    """One row per run of build_index."""

    build_id: str = column("id of the run")
    started_at: datetime = column("when it started (its --now)")
    seconds: float = column("how long it took, listing to catalog")
    scan_seconds: float = column("of these, reading logs and publishing indexes")
    waves: Int32 = column("commits of results to the catalog")
    sources: Mapping[str, str] = column("sources by name, with their paths")
    options: Mapping[str, str] = column("options of the run")
    versions: Mapping[str, str] = column("versions of the code and of what it ran on")
    partitions: int = column("partitions listed")
    segments: int = column("segments read")
    log_bytes: int = column("bytes of their logs")
    batches: int = column("batches in them")
    unchanged: int = column("segments that were not read, because nothing about them had changed")
    gone: int = column("segments newly marked as gone")
    by_status: Mapping[str, int] = column("segments read, by status")
    by_published: Mapping[str, int] = column("segments read, by what publishing did")
    finished: int | None = column("partitions whose transactions were derived again")
    aborted_transactions: int | None = column("aborted transactions in them")
    by_transaction_index: Mapping[str, int] | None = column("their segments, by what publishing did with .txnindex")
    skipped: Mapping[str, int] = column(
        "files and directories that are no segments, by reason", Formerly("left_alone", before=7)
    )
    rows_changed: int = column("rows of segments that this run added or changed")


BUILDS: Final = Table(
    name="builds",
    row=BuildRow,
    key=("build_id",),
    sort_by=(),
    asked_by=("started_at",),
)

TABLES: Final = (
    *(SEGMENTS, PARTITIONS, PRODUCER_EVENTS, ABORTED_TRANSACTIONS, PARTITION_STATES),
    *(BUILDS, RETENTION_PLANS, FINDINGS, ACCEPTED, REMOTE_SEGMENTS, INDEX_BYTES),
)

#: The order in which tables are brought to a new version. Older releases check only the first table's version, so they
#: refuse the catalog from then on. Every catalog has the last table, so if both have a version, all tables have it.
UPGRADE_ORDER: Final = (SEGMENTS, *(table for table in TABLES if table not in (SEGMENTS, BUILDS)), BUILDS)
