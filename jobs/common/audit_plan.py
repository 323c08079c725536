"""What is to be audited, as the catalog knows it: where index files are, and which interval they were built with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kidxlib.build import BuildTask
from kidxlib.objects import location
from kidxlib.plan import Known, KnownSegment, ListedPartition, PartitionKey, Plan
from kidxlib.publish import Folder
from kidxlib.recover import ABSENT
from kidxlib.show_audit import BESIDE_LOGS


def as_cataloged(plan: Plan, known: Known, *, find_indexes: bool, find_interval: bool) -> Plan:
    """The plan, its segments with what the catalog says of them, where it knows them.

    Args:
        find_indexes: look for index files where builds have put them.
        find_interval: the interval is the one that a segment's indexes were built with.
    """
    tasks: list[BuildTask] = []
    folders: dict[PartitionKey, Folder] = {}
    for key, of_partition in plan.by_partition():
        rows = {offset: row for offset, row in known.get(key, {}).items() if row.status not in ABSENT}
        if rows and find_indexes:
            folders[key] = _index_folder(rows[max(rows)])
        for task in of_partition:
            row = rows.get(task.segment.base_offset)
            if row is not None and find_interval:
                task = replace(task, options=row.options)
            if key in folders:
                # One that was written since the last build would be indexed where its partition is.
                task = replace(task, index_folder=folders[key] if row is None else _index_folder(row))
            tasks.append(task)
    partitions = [replace(each, index_folder=folders.get(each.key, each.index_folder)) for each in plan.partitions]
    return replace(plan, tasks=tasks, partitions=partitions)


def looked_in(partitions: Sequence[ListedPartition]) -> list[str]:
    """Where index files of partitions are looked for, for people."""
    roots = {
        BESIDE_LOGS if str(each.index_folder) == str(each.folder.path) else each.index_folder.root
        for each in partitions
    }
    return sorted(roots)


def _index_folder(row: KnownSegment) -> Folder:
    path = location(row.index_folder)
    return Folder(str(path.parent), path.name)
