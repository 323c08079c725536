"""What is to be audited, as the catalog knows it: where index files are, and which interval they were built with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.build.comparison.known_segments import NOWHERE, Matched, match, rows_by_partition
from kidxlib.build.plan import ListedPartition, Plan
from kidxlib.build.tasks import ScanTask
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.directory import Directory
from kidxlib.storage.location import location
from kidxlib.terminal.audit import BESIDE_LOGS

#: The columns that say how a segment's indexes were built, and where they are.
_OPTIONS: Final = ("interval_bytes", "max_index_bytes", "crc_checked")
_INDEX_DIRECTORY: Final = "index_directory"


def as_cataloged(
    plan: Plan, known: pa.Table, *, find_indexes: bool, find_interval: bool
) -> tuple[Plan, list[ScanTask], dict[PartitionKey, int]]:
    """The plan, and its segments with what the catalog says of them, where it knows them.

    Args:
        known: rows of `KNOWN`.
        find_indexes: look for index files where builds have put them.
        find_interval: the interval is the one that a segment's indexes were built with.

    Returns:
        It; the tasks to read its segments; and how many segments the catalog has of partitions that were not listed
        with any.
    """
    matched = match(plan, known)
    matched = matched.where(matched.present)
    listed = np.append(plan.have_segments(), False)[matched.partitions]  # the last is for `NOWHERE`
    there = matched.where(listed)
    if find_indexes:
        plan = replace(plan, partitions=_where_built(plan, there))
    tasks = plan.scan_tasks()
    both = there.where(there.listed != NOWHERE)
    rows = both.known.select([*_OPTIONS, _INDEX_DIRECTORY]).to_pylist()
    for number, row in zip(both.listed.tolist(), rows, strict=True):
        task = tasks[number]
        options = _options(row) if find_interval else task.options
        directory = _index_directory(row[_INDEX_DIRECTORY]) if find_indexes else task.index_directory
        tasks[number] = replace(task, options=options, index_directory=directory)
    return plan, tasks, rows_by_partition(matched.where(~listed).known)


def looked_in(partitions: Sequence[ListedPartition]) -> list[str]:
    """Where index files of partitions are looked for, for people."""
    roots = {
        BESIDE_LOGS if str(each.index_directory) == str(each.directory.path) else each.index_directory.root
        for each in partitions
    }
    return sorted(roots)


def beside_logs(plan: Plan) -> dict[str, int]:
    """How many index files lie beside logs and are not looked at, as those elsewhere are, by suffix. A broker that
    starts takes the ones beside the logs.

    Args:
        plan: with the directories in which index files are looked for.
    """
    found: Counter[str] = Counter()
    elsewhere = {str(each.directory.path) for each in plan.partitions if not each.in_place}
    for (directory, suffix), count in plan.skipped.indexes.items():
        if directory in elsewhere:
            found[suffix] += count
    return dict(sorted(found.items()))


def _where_built(plan: Plan, there: Matched) -> list[ListedPartition]:
    """The partitions, each with the directory of its last known segment's indexes. One that was written since the last
    build would be indexed there.
    """
    order = np.lexsort((there.known["base_offset"].to_numpy(), there.partitions))
    last = order[np.flatnonzero(np.diff(there.partitions[order], append=NOWHERE))]
    recorded: list[Any] = there.known[_INDEX_DIRECTORY].take(last).to_pylist()
    directories = dict(zip(there.partitions[last].tolist(), map(_index_directory, recorded), strict=True))
    return [
        replace(partition, index_directory=directories.get(number, partition.index_directory))
        for number, partition in enumerate(plan.partitions)
    ]


def _options(row: Mapping[str, int]) -> RecoverOptions:
    return RecoverOptions(
        interval_bytes=row["interval_bytes"],
        max_index_bytes=row["max_index_bytes"],
        verify_crc=bool(row["crc_checked"]),
    )


def _index_directory(path: str) -> Directory:
    directory = location(path)
    return Directory(str(directory.parent), directory.name)
