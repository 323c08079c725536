"""Lists sources and makes a plan of what they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kidxlib.build.directories import Target
from kidxlib.build.listed import ListedSegments
from kidxlib.build.listing import list_partitions, list_segments
from kidxlib.build.plan import ListedPartition, Plan
from kidxlib.build.source import PartitionDirectory, Source
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.log_dir import read_topic_id


def find_segments(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    target: Target,
    options_for: Callable[[str], RecoverOptions],
) -> Plan:
    """List the sources and plan their segments.

    Args:
        topics: matches the full names of the topics wanted.
        options_for: what a topic's indexes are built with, or should be like, by its name.

    Raises:
        UsageError: there is nothing to index in any source.
    """
    plan, listed = Plan(), ListedSegments()
    for source in sources:
        partitions = list_partitions(source, plan.skipped)
        wanted = [partition for partition in partitions if topics.fullmatch(partition.topic_partition.topic)]
        if all(partition.path != source.path for partition in partitions):
            plan.log_dirs.add(source.name)
        unlistable_before = len(plan.unlistable)
        found = [
            _add_partition(plan, listed, partition, target, options_for(partition.topic_partition.topic))
            for partition in wanted
        ]
        if not any(found):
            plan.warnings.append(f"{source.path}: no segment found")
            if wanted == partitions and len(plan.unlistable) == unlistable_before:
                plan.empty[source.name] = source.path
    _sort(plan, listed)
    if not plan.segments.num_rows and not plan.unlistable:
        raise UsageError(_nothing_found(sources, topics, plan))
    plan.warnings[:0] = [f"{path}: skipped: {reason}" for path, reason in plan.skipped.unexpected]
    return plan


def _add_partition(
    plan: Plan, listed: ListedSegments, directory: PartitionDirectory, target: Target, options: RecoverOptions
) -> int:
    """List one partition; return how many segments it has."""
    try:
        topic_id = read_topic_id(directory.path)
    except (CheckpointError, OSError) as error:
        topic_id = None
        plan.warnings.append(f"{describe_error(error)}; its topic id is taken as unknown")
    partition = ListedPartition(directory, topic_id, target.directory(directory), options)
    plan.partitions.append(partition)
    found = list_segments(directory, plan.skipped)
    if found is None:
        plan.unlistable.add(partition.key)
        return 0
    listed.add(len(plan.partitions) - 1, found)
    return len(found)


def _sort(plan: Plan, listed: ListedSegments) -> None:
    """Bring partitions into the order of their keys, and their segments with them."""
    order = sorted(range(len(plan.partitions)), key=lambda number: plan.partitions[number].key)
    places = [0] * len(order)
    for place, number in enumerate(order):
        places[number] = place
    plan.partitions = [plan.partitions[number] for number in order]
    plan.segments = listed.table(places)


def _nothing_found(sources: Iterable[Source], topics: re.Pattern[str], plan: Plan) -> str:
    where = ", ".join(str(source.path) for source in sources)
    if plan.partitions:
        return (
            f"{where}: no segment in {len(plan.partitions)} partition directories; expected files named <20 digits>.log"
        )
    of_topics = "" if topics.pattern == ".*" else f" of a topic that matches {topics.pattern}"
    return f"{where}: no partition directory{of_topics}; expected directories named <topic>-<partition>"
