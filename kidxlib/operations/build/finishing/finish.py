"""Partitions finished: transactions, producers and leader epochs from what the catalog keeps of their segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.changes import PartitionChange
from kidxlib.build.plan import ListedPartition
from kidxlib.build.summary import Counts
from kidxlib.build.tasks import PartitionTask
from kidxlib.catalog.results.build import FINISHED
from kidxlib.engine.work import Work
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.build_run import BuildRun, Scanned
from kidxlib.operations.build.counts import count_finished
from kidxlib.operations.build.recording.record_rows import record_finished, withdrawn
from kidxlib.terminal import interrupts

#: Segments of the partitions that are finished at a time; the driver holds rows of all of them, 0.5 kB each.
_SEGMENTS_AT_ONCE: Final = 200_000


def finish_partitions_of(run: BuildRun, partitions: Iterable[ListedPartition], scanned: Scanned) -> None:
    """Derive transactions, producers and leader epochs of partitions from what the catalog keeps of their segments.
    Where there are many, what is held is committed after each group of partitions but the last.

    Args:
        partitions: of the plan; those that are finished, or need not be, are left out.
        scanned: gets the counts.
    """
    auxiliary_files, unfinished = run.request.auxiliary_files, scanned.unfinished
    tasks = {each.key: each.partition_task(auxiliary_files) for each in partitions if each.key in unfinished}
    to_finish = {key: unfinished.pop(key) for key in tasks}
    for number, group in enumerate(_groups(to_finish)):
        if number:
            run.commit()
        scanned.finishing += 1
        name = f"{run.build_id}-finish-{scanned.finishing}"
        scanned.rows_changed += _finish(run, name, {key: tasks[key] for key in group}, to_finish, scanned.counts)


def _finish(
    run: BuildRun,
    name: str,
    tasks: Mapping[PartitionKey, PartitionTask],
    to_finish: Mapping[PartitionKey, PartitionChange],
    counts: Counts,
) -> int:
    """Finish some partitions; return how many rows of `segments` that changed.

    Args:
        name: of the work.
        to_finish: these partitions, and others.
    """
    from kidxlib.operations.build.finishing.finish_work import finish_partitions  # compiled loops, as in waves.py
    from kidxlib.operations.build.finishing.to_finish import partitions_to_finish

    engine, catalog = run.backend.engine, run.backend.catalog
    shares = min(len(tasks), engine.cores * BINS_PER_CORE)
    with engine.stopping():
        found = partitions_to_finish(catalog.tables, engine, tasks, to_finish, shares)
        row_bytes = sum(share.row_bytes for share in found.shares)
        units = [[share] for share in found.shares]
        staged = engine.run(Work(name, units, finish_partitions, FINISHED, bytes=row_bytes))
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        count_finished(staged, found.unfolded, withdrawn(catalog, staged), counts)
        return record_finished(catalog, staged, run.build_id)


def _groups(to_finish: Mapping[PartitionKey, PartitionChange]) -> Iterator[list[PartitionKey]]:
    """Partitions that are finished together, neighbours in the tables: of so many segments, but one at least."""
    group: list[PartitionKey] = []
    segments = 0
    for key in sorted(to_finish, key=itemgetter(1, 2, 0)):  # as files are sorted
        if group and segments + to_finish[key].segments > _SEGMENTS_AT_ONCE:
            yield group
            group, segments = [], 0
        group.append(key)
        segments += to_finish[key].segments
    if group:
        yield group
