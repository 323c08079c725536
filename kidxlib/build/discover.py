"""Lists sources and makes a plan of what they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from kidxlib.build.directories import Target
from kidxlib.build.listed import ListedSegments
from kidxlib.build.listing import list_partitions, list_segments
from kidxlib.build.plan import ListedPartition, Plan
from kidxlib.build.source import Source
from kidxlib.catalog.matching import Flags
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.log_dir import read_topic_id


def find_segments(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    target: Target,
    options_for: Callable[[str], RecoverOptions],
    at_most: int | None = None,
) -> Plan:
    """List the sources and plan their segments.

    Args:
        topics: matches the full names of the topics wanted.
        options_for: what a topic's indexes are built with, or should be like, by its name.
        at_most: of so many segments; where there are more, the plan has partitions alone and is not `is_listed`. None
            for any number.

    Raises:
        UsageError: there is nothing to index in any source.
    """
    plan = find_partitions(sources, topics, target, options_for)
    if not add_segments(plan, at_most):
        return find_partitions(sources, topics, target, options_for)
    judge_listing(plan, sources, topics, plan.have_segments())
    return plan


def find_partitions(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    target: Target,
    options_for: Callable[[str], RecoverOptions],
) -> Plan:
    """List the sources, but not what is in their partitions: a plan that is not `is_listed`. Arguments are those of
    `find_segments`.

    Raises:
        UsageError: a source holds segments, and is no partition.
    """
    plan = Plan(is_listed=False)
    for source in sources:
        partitions = list_partitions(source, plan.skipped)
        wanted = [partition for partition in partitions if topics.fullmatch(partition.topic_partition.topic)]
        if all(partition.path != source.path for partition in partitions):
            plan.log_dirs.add(source.name)
        if wanted != partitions:
            plan.narrowed.add(source.name)
        for directory in wanted:
            options = options_for(directory.topic_partition.topic)
            plan.partitions.append(ListedPartition(directory, None, target.directory(directory), options))
    plan.partitions.sort(key=lambda partition: partition.key)
    return plan


def add_segments(plan: Plan, at_most: int | None = None) -> bool:
    """List the partitions of a plan.

    Args:
        at_most: as in `find_segments`.

    Returns:
        Whether all were listed. Else the plan is of no use any more.
    """
    listed, count = ListedSegments(), 0
    for number, partition in enumerate(plan.partitions):
        plan.partitions[number] = replace(partition, topic_id=_topic_id(partition, plan.warnings))
        found = list_segments(partition.directory, plan.skipped)
        if found is None:
            plan.unlistable.add(partition.key)
            continue
        listed.add(number, found)
        count += len(found)
        if at_most is not None and count > at_most:
            return False
    plan.segments = listed.table(range(len(plan.partitions)))
    plan.is_listed = True
    return True


def judge_listing(plan: Plan, sources: Iterable[Source], topics: re.Pattern[str], have_segments: Flags) -> None:
    """Say which sources have no segment, and warn of what was skipped.

    Args:
        have_segments: flags of the plan's partitions.

    Raises:
        UsageError: there is nothing to index in any source.
    """
    filled = {plan.partitions[number].key[0] for number in np.flatnonzero(have_segments).tolist()}
    not_seen = {source for source, _, _ in plan.unlistable}
    for source in sources:
        if source.name not in filled:
            plan.warnings.append(f"{source.path}: no segment found")
            if source.name not in plan.narrowed | not_seen:
                plan.empty[source.name] = source.path
    if not filled and not plan.unlistable:
        raise UsageError(_nothing_found(sources, topics, plan))
    plan.warnings[:0] = [f"{path}: skipped: {reason}" for path, reason in plan.skipped.unexpected]


def _topic_id(partition: ListedPartition, warnings: list[str]) -> str | None:
    try:
        return read_topic_id(partition.directory.path)
    except (CheckpointError, OSError) as error:
        warnings.append(f"{describe_error(error)}; its topic id is taken as unknown")
        return None


def _nothing_found(sources: Iterable[Source], topics: re.Pattern[str], plan: Plan) -> str:
    where = ", ".join(str(source.path) for source in sources)
    if plan.partitions:
        return (
            f"{where}: no segment in {len(plan.partitions)} partition directories; expected files named <20 digits>.log"
        )
    of_topics = "" if topics.pattern == ".*" else f" of a topic that matches {topics.pattern}"
    return f"{where}: no partition directory{of_topics}; expected directories named <topic>-<partition>"
