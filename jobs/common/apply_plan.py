"""A recorded plan of `retention`, and what carrying it out comes to."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F

from jobs.common.catalog import Catalog
from jobs.common.retention_request import ApplyRequest
from jobs.common.tables import SEGMENTS
from kidxlib.console import note, print_line
from kidxlib.errors import UsageError
from kidxlib.log_dir import locked
from kidxlib.names import TopicPartition
from kidxlib.objects import Location, is_object, location
from kidxlib.plan import PartitionKey, index_folder, segments_folder
from kidxlib.retention import Decision
from kidxlib.retire import NOT_WELL, Outcome, PlannedSegment, Retired, Retirement, carry_out
from kidxlib.summary import NOT_WELL_KEPT, NOT_WELL_SHOWN
from kidxlib.times import to_ms

_WHAT: Final = {
    Outcome.DELETED: "deleted",
    Outcome.LAST: "kept, as the last of its partition",
    Outcome.CHANGED: "kept, as it is not what was planned",
    Outcome.BEHIND: "kept, behind one that is kept",
    Outcome.GONE: "gone already",
}


def apply_plan(catalog: Catalog, request: ApplyRequest) -> list[Retired]:
    """Carry a plan out, and write into the catalog what was deleted.

    Raises:
        UsageError: there is no such plan, it is too old or compares policies, or a log dir is not where it was or held
            by another process; nothing is done.
        PublishError: a file cannot be renamed or removed.
    """
    retirements = _retirements(catalog, request)

    def record(retired: Sequence[Retired]) -> None:
        deleted = [(*found.key, found.segment.base_offset) for found in retired if found.outcome is Outcome.DELETED]
        if deleted:
            catalog.mark_deleted(deleted, request.where.now)

    def wait() -> None:
        if request.delete_delay:
            note(f"renamed; the files are removed in {request.delete_delay}")
        time.sleep(request.delete_delay.total_seconds())

    with contextlib.ExitStack() as stack:
        for log_dir in sorted({retirement.segments_folder.root for retirement in retirements}):
            stack.enter_context(locked(Path(log_dir)))
        return carry_out(retirements, record, wait)


def _retirements(catalog: Catalog, request: ApplyRequest) -> list[Retirement]:
    plan = catalog.plan(request.plan_id)
    head = plan.agg(
        F.unix_millis(F.min("planned_at")).alias("planned_ms"), F.array_sort(F.collect_set("policy")).alias("policies")
    ).head()
    if head is None or head["planned_ms"] is None:
        raise UsageError(
            f"--plan {request.plan_id}: no such plan in {catalog.path}; retention without --apply makes one"
        )
    if len(head["policies"]) > 1:
        raise UsageError(
            f"--plan {request.plan_id}: compares the policies {', '.join(head['policies'])}; plan again with one"
        )
    age = timedelta(milliseconds=to_ms(request.where.now) - head["planned_ms"])
    if age > request.max_plan_age:
        raise UsageError(
            f"--plan {request.plan_id}: made {age} ago, expected {request.max_plan_age} at most; plan again, or give a "
            "longer --max-plan-age"
        )
    columns = (*SEGMENTS.key, "bytes", "log_mtime_ns", "log_path", "index_folder")
    rows = plan.where(F.col("decision") == Decision.DELETE.value).select(*columns).orderBy(*SEGMENTS.key).collect()
    for row in rows:
        if is_object(row["log_path"]) or is_object(row["index_folder"]):
            raise UsageError(
                f"--apply: {row['log_path']}, with its index files in {row['index_folder']}: nothing is deleted in an "
                "object store, where a file cannot be renamed first; delete there what the plan names by the store's "
                "own means"
            )
    paths = catalog.source_paths()
    return [
        _retirement(key, list(segments), location(paths.get(key[0], "/")))
        for key, segments in groupby(rows, key=lambda row: (row["source"], row["topic"], row["partition"]))
    ]


def _retirement(key: PartitionKey, rows: Sequence[Any], source: Location) -> Retirement:
    """What is to go of a partition. Its place follows from its source's, and is to be what it was in the plan.

    Raises:
        UsageError: it is not.
    """
    partition = TopicPartition(key[1], key[2])
    log_folder = segments_folder(source, partition, {row["base_offset"]: row["log_path"] for row in rows})
    if log_folder is None:
        raise UsageError(
            f"{rows[0]['log_path']}: not where source {key[0]} is by its last build ({source}); build and plan again"
        )
    side_files = index_folder(partition, [row["index_folder"] for row in rows])
    if side_files is None:
        raise UsageError(
            f"{rows[0]['index_folder']}: not the one index folder of {partition.folder}; build and plan again"
        )
    return Retirement(
        key=key,
        segments_folder=log_folder,
        index_folder=side_files,
        segments=tuple(PlannedSegment(row["base_offset"], row["bytes"], row["log_mtime_ns"]) for row in rows),
    )


@dataclass(frozen=True, slots=True)
class Applied:
    """What carrying a plan out came to."""

    plan_id: str
    retired: Sequence[Retired]

    @property
    def all_well(self) -> bool:
        return not any(found.outcome in NOT_WELL for found in self.retired)

    @property
    def by_outcome(self) -> Counter[str]:
        return Counter(found.outcome.value for found in self.retired)

    @property
    def deleted_bytes(self) -> int:
        return _bytes(self.retired, Outcome.DELETED)

    def as_json(self) -> dict[str, Any]:
        not_well = [found for found in self.retired if found.outcome in NOT_WELL]
        return {
            "plan_id": self.plan_id,
            "by_outcome": self.by_outcome,
            "deleted_bytes": self.deleted_bytes,
            "not_well_count": len(not_well),
            "not_well": [
                {
                    **dict(zip(SEGMENTS.key, (*found.key, found.segment.base_offset), strict=True)),
                    "outcome": found.outcome.value,
                    "detail": found.detail,
                }
                for found in not_well[:NOT_WELL_KEPT]
            ],
        }

    def show(self) -> None:
        counts = Counter(found.outcome for found in self.retired)
        for outcome, what in _WHAT.items():
            if counts[outcome]:
                print_line(f"{counts[outcome]:,} segments, {_bytes(self.retired, outcome):,} bytes: {what}")
        if not counts:
            print_line("the plan names no segment to delete")
        changed = [found for found in self.retired if found.outcome is Outcome.CHANGED]
        for found in changed[:NOT_WELL_SHOWN]:
            print_line(f"changed: {found.detail}")
        if len(changed) > NOT_WELL_SHOWN:
            print_line(f"… and {len(changed) - NOT_WELL_SHOWN:,} more")


def _bytes(retired: Iterable[Retired], outcome: Outcome) -> int:
    return sum(found.segment.log_bytes for found in retired if found.outcome is outcome)
