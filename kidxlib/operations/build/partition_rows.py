"""What log dirs and listings say of partitions, as rows of the table `partitions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kidxlib.build.plan import Plan
from kidxlib.catalog.partitions import PartitionRow
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.storage.checkpoints import NO_CHECKPOINTS, Checkpoints
from kidxlib.storage.location import Location


def record_partitions(catalog: TablesCatalog, plan: Plan, build_id: str, *, all_topics: bool) -> list[str]:
    """Bring `partitions` up to date with a listing and with the checkpoints of its log dirs. Of a partition that could
    not be listed the row stays as it is.

    Args:
        all_topics: the listing left no topic out, so what it does not have is gone.

    Returns:
        What a person should know: files that are missing, and what is taken instead, or that cannot be read.
    """
    notes: list[str] = []
    log_dirs = sorted({partition.directory.log_dir for partition in plan.partitions}, key=str)
    checkpoints = {log_dir: plan.checkpoints.get(log_dir, NO_CHECKPOINTS) for log_dir in log_dirs}
    for log_dir, of_log_dir in checkpoints.items():
        notes += _notes(log_dir, of_log_dir)
    sources = sorted({partition.directory.source.name for partition in plan.partitions})
    offsets = catalog.offsets(sources)
    known = {(row.source, row.topic, row.partition): row for row in catalog.known_partitions(sources)}

    rows: dict[PartitionKey, PartitionRow] = {}
    for partition in plan.partitions:
        if partition.key in plan.unlistable:
            continue
        of_log_dir, topic_partition = checkpoints[partition.directory.log_dir], partition.directory.topic_partition
        first_base_offset, log_end_offset = offsets.get(partition.key, (None, None))
        rows[partition.key] = PartitionRow(
            source=partition.directory.source.name,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            topic_id=partition.topic_id,
            first_base_offset=first_base_offset,
            log_end_offset=log_end_offset,
            log_start_offset=_of(of_log_dir.log_start_offsets, topic_partition),
            high_watermark=_of(of_log_dir.high_watermarks, topic_partition),
            recovery_point=_of(of_log_dir.recovery_points, topic_partition),
            cleaner_offset=_of(of_log_dir.cleaner_offsets, topic_partition),
            clean_shutdown=of_log_dir.clean_shutdown,
            present=True,
            directory=str(partition.directory.path),
            build_id=build_id,
        )
    if all_topics:
        for key, row in known.items():
            of_listed_source = key[0] in plan.log_dirs and key[0] not in plan.empty
            if key not in rows and key not in plan.unlistable and of_listed_source:
                rows[key] = replace(row, present=False, build_id=build_id)
    changed = [
        row for key, row in rows.items() if key not in known or replace(row, build_id=known[key].build_id) != known[key]
    ]
    if changed:
        catalog.merge_partitions(changed)
    return notes


def _of(offsets: dict[TopicPartition, int] | None, topic_partition: TopicPartition) -> int | None:
    return None if offsets is None else offsets.get(topic_partition)


def _notes(log_dir: Location, checkpoints: Checkpoints) -> Iterator[str]:
    if checkpoints.error is not None:
        yield checkpoints.error
        return
    missing = []
    if checkpoints.log_start_offsets is None:
        missing.append("no log-start-offset-checkpoint, log start taken as the first base offset")
    if checkpoints.high_watermarks is None:
        missing.append("no replication-offset-checkpoint, high watermark taken as the log end")
    if missing:
        yield f"{log_dir}: {'; '.join(missing)}"
