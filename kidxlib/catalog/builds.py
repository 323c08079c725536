"""The table `builds`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kidxlib.catalog.columns import Formerly, Int32, column
from kidxlib.catalog.rows import Row, Table, row


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
