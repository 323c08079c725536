"""Plans which parts of which segments are read for the options of a DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.directories import existing_index_dir
from kidxlib.indexing.source import parse_topics
from kidxlib.jit.processor import cores
from kidxlib.reading.absent import BrokersMetadata, absent_partitions
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import ISOLATIONS, OffsetRange, ReadRequest, Times, read_request
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.unread_offsets import LeftOut
from kidxlib.reading.walk import first_offset_at
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.run.context import existing_catalog_tables
from kidxlib.spark.limits import Limit
from kidxlib.spark.pushed import Pushed
from kidxlib.spark.source_options import SourceOptions, Topics
from kidxlib.spark.task_rows import PART_BYTES, damage_taker

_ANY_TOPIC: Final = parse_topics(".*", "topics")
_EVERYTHING: Final[OffsetRange] = (None, None)
_EVERY: Final = Wanted()


def plan_source(options: SourceOptions, pushed: Pushed) -> ReadPlan:
    """Plan the reads, narrowed by filters, as `plan_reads`. If options have times, logs are scanned for the offsets."""
    everything = source_request(options, None)
    there = everything.partitions()
    partitions = options.topics.among(there)
    for limit in (options.start, options.end):
        limit.ensure_names(partitions)
    partitions = [partition for partition in partitions if pushed.holds(partition)]
    starts = offsets_of(options, options.start, partitions)
    ends = offsets_of(options, options.end, partitions)
    offsets: dict[TopicPartition, OffsetRange] = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if options.start.is_time and start is None:
            ensure_may_be_skipped(options, partition)
            continue
        first = pushed.wanted.first_offset if start is None else max(start, pushed.wanted.first_offset)
        until = pushed.wanted.last_offset + 1 if end is None else min(end, pushed.wanted.last_offset + 1)
        if first < until:  # None where nobody asked for a limit: the plan tells what is missing up to a limit
            offsets[partition] = (
                None if first <= max(_EVERY.first_offset, 0) else first,
                None if until > _EVERY.last_offset else until,
            )
    times = (pushed.wanted.first_ms, pushed.wanted.last_ms + 1) if offsets else None
    plan = _plan(options, source_request(options, offsets, options.isolation, times))
    brokers = BrokersMetadata(everything.log_dirs)
    absent = absent_of(options, everything, brokers, {directory.topic_partition for directory in there})
    absent = [left for left in absent if pushed.holds(left.partition)]
    plan = replace(plan, left_out=(*plan.left_out, *absent))
    if options.fails_on_loss and not options.start.is_time:
        _ensure_not_gone(options, offsets, plan)
    return plan


def absent_of(
    options: SourceOptions, request: ReadRequest, brokers: BrokersMetadata, there: Collection[TopicPartition]
) -> list[LeftOut]:
    """The partitions that options mean and that have no directory. `request` asks for all partitions; those that have a
    directory are `there`.
    """
    whole = {source.path for source in request.sources if source.remote is None}
    by_name = options.topics != Topics()
    return absent_partitions(whole, options.topics.asks_for, brokers, there, by_name=by_name)


def source_request(
    options: SourceOptions,
    offsets: Mapping[TopicPartition, OffsetRange] | None,
    isolation: str = ISOLATIONS[0],
    times: Times | None = None,
) -> ReadRequest:
    index_dir = options.index_dir
    return read_request(
        options.paths,
        topics=_ANY_TOPIC,
        offsets=None if offsets is None else {partition.directory: limits for partition, limits in offsets.items()},
        times=times,
        isolation=isolation,
        index_dir=None if index_dir is None else existing_index_dir("indexDir", index_dir),
        to_log_end=options.to_log_end,
        remote=options.remote,
    )


def _plan(options: SourceOptions, request: ReadRequest) -> ReadPlan:
    tables = None if options.catalog is None else existing_catalog_tables("catalog", options.catalog)
    goes_on = not options.fails_on_loss
    return plan_reads(request, goes_on=goes_on, threads=threads(), part_bytes=PART_BYTES, catalog=tables)


def threads() -> int:
    return cores()


def offsets_of(
    options: SourceOptions, limit: Limit, partitions: list[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """The offset of a limit in each partition; None for no limit."""
    if not limit.is_time:
        return {partition: limit.of_partition(partition) for partition in partitions}
    times = [time for partition in partitions if (time := limit.of_partition(partition)) is not None]
    since = min(times, default=None), None  # a catalog tells which segments hold nothing as late
    everything = source_request(options, dict.fromkeys(partitions, _EVERYTHING), times=since)
    reads: dict[TopicPartition, list[SegmentRead]] = {partition: [] for partition in partitions}
    for read in _plan(options, everything).reads:
        reads[TopicPartition(read.topic, read.partition)].append(read)
    on_damage = damage_taker(fails=options.fails_on_loss)

    def first_offset(partition: TopicPartition) -> int | None:
        time = limit.of_partition(partition)
        assert time is not None
        return first_offset_at(reads[partition], time, on_damage, goes_on=not options.fails_on_loss)

    with ThreadPoolExecutor(threads()) as pool:
        return dict(zip(partitions, pool.map(first_offset, partitions), strict=True))


def ensure_may_be_skipped(options: SourceOptions, partition: TopicPartition) -> None:
    if not options.skips_unmatched:
        start = options.start.of_partition(partition)
        raise UsageError(
            f"{options.start.option} {start}: {partition.directory} has no record that is as "
            "late; startingOffsetsByTimestampStrategy=latest reads nothing of it"
        )


def _ensure_not_gone(options: SourceOptions, offsets: Mapping[TopicPartition, OffsetRange], plan: ReadPlan) -> None:
    """Raise if a start that options name is gone, and later offsets are there."""
    for partition, first in plan.first_offsets.items():
        start = options.start.of_partition(partition)
        if start is not None and first > (offsets[partition][0] or 0):
            raise UsageError(
                f"{options.start.option} of {partition.directory}: {start}, but the first offset "
                f"that is left is {first}; failOnDataLoss=false begins there"
            )
