"""Lists sources and makes a plan of what they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from kidxlib.catalog.matching import Flags
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format.segment_files import NotASegment
from kidxlib.indexing.listed import FoundSegment, ListedSegments
from kidxlib.indexing.listing import list_partitions, list_segments
from kidxlib.indexing.plan import ListedPartition, Plan
from kidxlib.indexing.skipped import Skipped, UnlistableDirectory, warnings_of_unlistable
from kidxlib.indexing.source import IndexPlace, PartitionDirectory, Source
from kidxlib.recovery.options import OptionsOfTopic
from kidxlib.storage.log_dir import read_topic_id, why_no_partitions
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.text.words import counted


def find_segments(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    index_place: IndexPlace,
    options_for: Callable[[PartitionDirectory], OptionsOfTopic],
    at_most: int | None = None,
    say_listed: Callable[[int], None] = lambda segments: None,
    may_be_empty: Callable[[Source], bool] = lambda source: False,
) -> Plan:
    """List the sources and plan the segments of topics whose full names match. Where there are more than `at_most`, the
    plan has partitions alone and is not `is_listed`. `say_listed` gets the number of segments that are listed so far;
    `may_be_empty` is asked about a source without a segment, and says whether nothing is missing there.
    """
    plan = find_partitions(sources, topics, index_place, options_for)
    if not add_segments(plan, at_most, say_listed):
        return find_partitions(sources, topics, index_place, options_for)
    judge_listing(plan, sources, topics, plan.have_segments(), may_be_empty)
    return plan


def find_partitions(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    index_place: IndexPlace,
    options_for: Callable[[PartitionDirectory], OptionsOfTopic],
) -> Plan:
    """List the sources, but not what is in their partitions: a plan that is not `is_listed`."""
    plan = Plan(is_listed=False)
    for source in sources:
        partitions = list_partitions(source, plan.skipped)
        wanted = [partition for partition in partitions if topics.fullmatch(partition.topic_partition.topic)]
        if all(partition.path != source.path for partition in partitions):
            plan.log_dirs.add(source.name)
        if wanted != partitions:
            plan.narrowed.add(source.name)
        for directory in wanted:
            choice = options_for(directory)
            plan.partitions.append(ListedPartition(directory, None, index_place.directory(directory), choice))
    plan.partitions.sort(key=lambda partition: partition.key)
    return plan


def add_segments(
    plan: Plan, at_most: int | None = None, say_listed: Callable[[int], None] = lambda segments: None
) -> bool:
    """List the partitions of a plan, those in object stores several at a time. One whose directory cannot be listed is
    noted, and the others are listed. Returns whether all were listed, as there are not more segments than `at_most`;
    else the plan is of no use any more.
    """
    listed, count = ListedSegments(), 0
    partitions = list(plan.partitions)
    is_in_store = any(isinstance(partition.directory.path, ObjectPath) for partition in partitions)
    listings = in_order(_listing_of, partitions) if is_in_store else map(_listing_of, partitions)
    for number, (partition, listing) in enumerate(zip(partitions, listings, strict=True)):
        if isinstance(listing, OSError):
            plan.unlistable[partition.key] = UnlistableDirectory.of(partition.directory.path, listing)
            plan.skipped.counts[NotASegment.UNLISTABLE_DIRECTORY] += 1
            continue
        plan.partitions[number] = replace(partition, topic_id=listing.topic_id)
        plan.skipped.merge(listing.skipped)
        plan.warnings += listing.warnings
        listed.add(number, listing.segments)
        count += len(listing.segments)
        say_listed(count)
        if at_most is not None and count > at_most:
            return False
    plan.segments = listed.table()
    plan.is_listed = True
    return True


@dataclass(frozen=True, slots=True)
class _Listing:
    segments: list[FoundSegment]
    skipped: Skipped
    topic_id: str | None
    warnings: list[str]


def _listing_of(partition: ListedPartition) -> _Listing | OSError:
    skipped, warnings = Skipped(), list[str]()
    try:
        segments = list_segments(partition.directory, skipped)
    except OSError as error:
        return error
    if partition.directory.remote is not None:
        warnings += partition.directory.remote.warnings()
    return _Listing(segments, skipped, _topic_id(partition, warnings), warnings)


def judge_listing(
    plan: Plan,
    sources: Iterable[Source],
    topics: re.Pattern[str],
    have_segments: Flags,
    may_be_empty: Callable[[Source], bool] = lambda source: False,
) -> None:
    """Say which sources have no segment, and warn of what was skipped. `have_segments` are flags of the partitions,
    `may_be_empty` is as in `find_segments`.
    """
    filled = {plan.partitions[number].key[0] for number in np.flatnonzero(have_segments).tolist()}
    if not filled and not plan.unlistable:
        raise UsageError(_nothing_found(sources, topics, plan))
    in_part = {*plan.narrowed, *(source for source, _, _ in plan.unlistable)}
    for source in sources:
        is_listed = source.name not in in_part
        if source.name in filled or (is_listed and may_be_empty(source)):
            continue
        plan.warnings.append(f"{source.path}: no segment found{why_no_partitions(source.path)}")
        if is_listed:
            plan.empty[source.name] = source.path
    plan.warnings[:0] = [
        *warnings_of_unlistable(plan.unlistable.values()),
        *(f"{path}: skipped: {reason.in_words}" for path, reason in plan.skipped.unexpected),
    ]


def _topic_id(partition: ListedPartition, warnings: list[str]) -> str | None:
    if partition.directory.remote is not None:
        return partition.directory.remote.topic_id
    try:
        return read_topic_id(partition.directory.path)
    except (CheckpointError, OSError) as error:
        warnings.append(f"{describe_error(error)}; its topic id is taken as unknown")
        return None


def _nothing_found(sources: Iterable[Source], topics: re.Pattern[str], plan: Plan) -> str:
    where = ", ".join(str(source.path) for source in sources)
    if plan.partitions:
        directories = counted(len(plan.partitions), "partition directory", "partition directories")
        return f"{where}: no segment in {directories}; expected files named <20 digits>.log"
    of_topics = "" if topics.pattern == ".*" else f" of a topic that matches {topics.pattern}"
    why = "".join(why_no_partitions(source.path) for source in sources)
    return f"{where}: no partition directory{of_topics}; expected directories named <topic>-<partition>{why}"
