"""All tables of a catalog, the table `builds`, the version of the columns, and the properties that Delta tables have.

These are the same by Spark and by delta-rs, so that each can write the other's tables; the version is one of them.
delta-rs writes tables up to writer version 2, and none with liquid clustering, so the tables have neither clustering
nor deletion vectors nor column mapping. Rows are written in order, so that queries skip files by their statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kidxlib.catalog.findings import ACCEPTED, FINDINGS, REMOTE_SEGMENTS
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Formerly, Int32, Row, Table, column, row
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import CatalogError

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


#: The protocol of each table, which every Delta reader and writer supports.
READER_VERSION: Final = 1
WRITER_VERSION: Final = 2

#: Files of this size hold some 100,000 segments. An update rewrites whole files, and a query reads them.
FILE_BYTES: Final = 16 * 1024 * 1024
#: The least number of bytes that a row counts for. Similar rows take ten bytes each: a million of them would fit into
#: 16 MiB, and rewriting them takes seconds and a gigabyte of memory.
ROW_BYTES: Final = 128
#: Smaller files are joined with others. Rows that are written in order fill at least half a file.
SMALL_FILE_BYTES: Final = FILE_BYTES // 2

VERSION_PROPERTY: Final = "kidx.catalogVersion"

#: Every commit to a catalog on a local disk locks this file in its directory (`kidxlib.tables.delta_commits`).
COMMIT_LOCK_FILE: Final = "_commit.lock"


def counted_bytes(size_bytes: int, rows: int | None) -> int:
    """The size that a file of a catalog's table counts for when files are cut, held or joined. `rows` is None if the
    table's log does not have it.
    """
    return max(size_bytes, ROW_BYTES * (rows or 0))


def delta_properties(table: Table) -> dict[str, str]:
    """The properties that each writer gives a catalog's table in Delta, the catalog's version among them."""
    return {
        VERSION_PROPERTY: str(CATALOG_VERSION),
        # Every Delta reader can open a table without deletion vectors.
        "delta.enableDeletionVectors": "false",
        # A commit fails if rows were added since the version that it was computed from. With Delta's default, a MERGE
        # that has not seen rows appended meanwhile succeeds: their keys would occur twice.
        "delta.isolationLevel": "Serializable",
        # By default the first 32 columns have statistics, which take 2 kB of the log for each file.
        "delta.dataSkippingStatsColumns": ",".join(table.statistics),
    }


def made_by_an_older_release(place: str, version: int) -> CatalogError:
    """The error about tables with an older version of the catalog's layout."""
    return CatalogError(
        f"{place}: made by an older release, with catalog version {version}; this one has {CATALOG_VERSION}: "
        "run ./spark-submit.sh build_index once, which brings the catalog up to date"
    )


def catalog_version_of(place: str, properties: Mapping[str, str]) -> int:
    """The version of a catalog's table by its Delta properties, which this release must know."""
    version = properties.get(VERSION_PROPERTY)
    if version is None:
        raise CatalogError(f"{place}: a Delta table, but not one of this project's; give --catalog another directory")
    if int(version) > CATALOG_VERSION:
        raise CatalogError(
            f"{place}: written with catalog version {version}, this code has {CATALOG_VERSION}; use a newer release"
        )
    return int(version)
