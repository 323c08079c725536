"""`kidx build`: index a log dir or one partition with all cores of this machine, for someone with one broken disk."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from kidxlib import interrupts
from kidxlib.build import BuildTask, remove_held
from kidxlib.build import build as build_segments
from kidxlib.cli import shared_options
from kidxlib.cli.scratch import Spool, Spooled, scratch_folder
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.cli.workers import Workers, until_stopped
from kidxlib.command import ExitCode
from kidxlib.console import print_json, print_line, warn
from kidxlib.discover import SegmentFile, source_at
from kidxlib.errors import UsageError
from kidxlib.finish import PartitionTask, SegmentTask, finish, segment_task
from kidxlib.interrupts import Interrupted
from kidxlib.log_dir import locked
from kidxlib.names import NotASegment
from kidxlib.pack import BINS_PER_CORE, pack
from kidxlib.plan import (
    REPAIRED_SIDE_FILES,
    PartitionKey,
    Plan,
    SideFiles,
    Target,
    find_segments,
    log_dirs_to_lock,
    mirror_to_write,
    parse_topics,
    refuse_overlap,
    repairs,
)
from kidxlib.progress import Done, Span, begin_phase
from kidxlib.publish import sweep
from kidxlib.recover import MAX_INDEX_BYTES_DEFAULT, RecoverOptions, Status
from kidxlib.summary import Counts, print_counts, print_rate, print_skipped

#: No run takes longer; staging files of killed runs are swept when they are older.
LONGEST_RUN: Final = timedelta(hours=24)


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--index-dir", metavar="DIR", help="Write a mirror tree there.")
@click.option("--in-place", is_flag=True, help="Write beside the segments, under the log dir's lock.")
@click.option("--accept-truncated", is_flag=True, help="In place, write the index of a corrupt log's valid prefix too.")
@shared_options.topics
@shared_options.interval_bytes
@click.option(
    "--max-index-bytes",
    type=WholeNumber(12, 2**31 - 1),
    default=MAX_INDEX_BYTES_DEFAULT,
    show_default=True,
    help="Kafka's segment.index.bytes.",
)
@click.option("--verify-crc/--no-verify-crc", default=True, help="Check every batch's checksum, or read headers only.")
@click.option("--snapshots", is_flag=True, help="Write producer snapshots too, as recovery does.")
@click.option("--epochs", is_flag=True, help="Write leader-epoch-checkpoint files too, as recovery does.")
@click.option("--repair", is_flag=True, help="Audit first, as kidx verify does; write what is broken and nothing else.")
@shared_options.processes
@shared_options.as_json
@shared_options.verbose
def build(
    folder: str,
    index_dir: str | None,
    in_place: bool,
    accept_truncated: bool,
    topics: str,
    interval_bytes: int,
    max_index_bytes: int,
    verify_crc: bool,
    snapshots: bool,
    epochs: bool,
    repair: bool,
    processes: int | None,
    as_json: bool,
) -> ExitCode:
    """Index the segments in DIR, a Kafka log dir or one partition's folder.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 3 done, but some segments are not well; 1 failed.
    """
    start = time.monotonic()
    if in_place == (index_dir is not None):
        raise UsageError("give --index-dir DIR for a mirror tree, or --in-place to write beside the segments")
    sources = (source_at(folder),)
    mirror = None if index_dir is None else mirror_to_write("--index-dir", index_dir)
    refuse_overlap(mirror, None, sources)
    target = Target(index_dir=mirror, by_source=False, publish_truncated=accept_truncated or not in_place)
    options = RecoverOptions(interval_bytes=interval_bytes, max_index_bytes=max_index_bytes, verify_crc=verify_crc)
    begin_phase("listing")
    plan = find_segments(sources, parse_topics(topics), target, lambda topic: options)
    for warning in plan.warnings:
        warn(warning)
    with contextlib.ExitStack() as stack:
        if in_place:
            for log_dir in log_dirs_to_lock(plan):
                stack.enter_context(locked(log_dir))
        older_than_ns = int((datetime.now(UTC) - LONGEST_RUN).timestamp()) * 1_000_000_000
        for partition in plan.partitions:
            sweep(partition.index_folder, older_than_ns)
        scratch = stack.enter_context(scratch_folder())
        workers = stack.enter_context(Workers(processes or os.cpu_count() or 1))
        side_files, broken, broken_logs = SideFiles(snapshots, epochs), dict[PartitionKey, frozenset[str]](), 0
        if repair:
            # Whoever repairs nothing does not wait for what an audit imports.
            from kidxlib.cli.auditing import broken_now

            side_files = REPAIRED_SIDE_FILES
            broken, broken_logs = broken_now(plan, options, workers)
            plan = repairs(plan, broken)
        counts = Counts()
        with interrupts.telling(lambda: _done_so_far(counts, plan, in_place)), _removing_held(plan):
            spooled, scan_seconds = _scan(plan, workers, scratch, counts)
            what = [
                (listed.partition_task(side_files), segments)
                for listed in plan.partitions
                if (segments := spooled[listed.key])
            ]
            begin_phase("finishing partitions")
            counts.merge(_finish(what, workers))
    seconds = time.monotonic()
    if as_json:
        shown: dict[str, Any] = {
            "source": str(sources[0].path),
            "index_dir": str(mirror) if mirror else None,
            "seconds": round(seconds - start, 3),
            "partitions": len(plan.partitions),
            "left_alone": {reason.value: count for reason, count in sorted(plan.left_alone.counts.items())},
        }
        if repair:
            shown["broken"] = sorted(
                f"{topic}-{partition}/{name}" for (_, topic, partition), files in broken.items() for name in files
            )
            shown["broken_logs"] = broken_logs
        print_json({**shown, **counts.as_json()})
    else:
        print_counts(str(sources[0].path), counts)
        print_skipped((reason.value, count) for reason, count in plan.left_alone.counts.items())
        print_rate(counts.log_bytes, scan_seconds, seconds - start)
        print_line(f"index files: {mirror or 'beside the segments'}")
    all_well = (
        counts.not_well_count == 0 and not broken_logs and not plan.left_alone.counts[NotASegment.UNLISTABLE_FOLDER]
    )
    return ExitCode.OK if all_well else ExitCode.NOT_WELL


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """Where a worker has put the `SegmentTask` of a segment that it read, and what was counted of it."""

    segment: SegmentFile
    status: Status
    task: Spooled


def _done_so_far(counts: Counts, plan: Plan, in_place: bool) -> str:
    # In place an offset index may wait for the end of its partition, and goes again.
    of_all = f"{counts.segments:,} of {len(plan.tasks):,} segments {'read' if in_place else 'indexed'}"
    return f"{of_all}; run the same command again, which reads all of them, as there is no catalog"


@contextlib.contextmanager
def _removing_held(plan: Plan) -> Iterator[None]:
    """Where a run is interrupted, no offset index waits any longer for the end of its partition."""
    try:
        yield
    except Interrupted:
        for partition in plan.partitions:
            if str(partition.index_folder) == str(partition.folder.path):  # under the lock: they are this run's
                remove_held(partition.index_folder)
        raise


def _scan(
    plan: Plan, workers: Workers, scratch: Path, counts: Counts
) -> tuple[dict[PartitionKey, list[_ReadSegment]], float]:
    """Index every segment of a plan, and count; what the partitions are finished with lies in the scratch folder.

    Returns:
        What was read, and in how many seconds.
    """
    span = Span()
    spooled: dict[PartitionKey, list[_ReadSegment]] = defaultdict(list)

    def take(result: tuple[Counts, list[_ReadSegment], Span]) -> None:
        nonlocal span
        counts.merge(result[0])
        span |= result[2]
        for segment in result[1]:
            spooled[segment.segment.partition_key].append(segment)

    bins = pack(plan.tasks, workers.processes)
    work = [_Bin(tasks, scratch / f"{number}.events") for number, tasks in enumerate(bins)]
    begin_phase(
        "reading",
        done=lambda: Done(counts.segments, counts.log_bytes, span.seconds),
        segments=len(plan.tasks),
        log_bytes=plan.log_bytes,
    )
    workers.run(_scan_bin, work, take)
    return spooled, span.seconds


def _finish(partitions: Sequence[tuple[PartitionTask, list[_ReadSegment]]], workers: Workers) -> Counts:
    """Finish partitions, whose segments were all read."""
    counts = Counts()
    if partitions:
        shares = workers.processes * BINS_PER_CORE
        work = [share for number in range(shares) if (share := partitions[number::shares])]
        workers.run(_finish_share, work, counts.merge)
    return counts


@dataclass(frozen=True, slots=True)
class _Bin:
    """Segments that one worker reads one after the other, and where it puts what is left to do."""

    tasks: Sequence[BuildTask]
    spool: Path


def _scan_bin(work: _Bin, may_map: bool) -> tuple[Counts, list[_ReadSegment], Span]:
    counts, begin = Counts(), time.time()
    spooled = []
    with Spool(work.spool) as spool:
        for built in build_segments(until_stopped(work.tasks), may_map):
            counts.add(built)
            spooled.append(_ReadSegment(built.task.segment, built.end.status, spool.append(segment_task(built))))
    return counts, spooled, Span(begin, time.time())


def _finish_share(partitions: Sequence[tuple[PartitionTask, list[_ReadSegment]]], may_map: bool) -> Counts:
    counts, spooled_of = Counts(), dict(partitions)
    for finished in finish((task, _unspool(segments)) for task, segments in until_stopped(partitions)):
        by_offset = {spooled.segment.base_offset: spooled for spooled in spooled_of[finished.task]}
        counts.kept += [f"{finished.task.index_folder}/{name}" for name in finished.kept]
        for segment in finished.segments:
            spooled = by_offset[segment.base_offset]
            topic = counts.topic(spooled.segment.topic_partition.topic)
            topic.aborted_transactions += len(segment.aborted)
            topic.by_transaction_index[segment.published] += 1
            if segment.failure is not None:
                topic.withdraw(spooled.status)
                counts.add_not_well(spooled.segment, segment.failure)
    return counts


def _unspool(segments: Sequence[_ReadSegment]) -> Iterator[SegmentTask]:
    for segment in sorted(segments, key=lambda spooled: spooled.segment.base_offset):
        task: SegmentTask = segment.task.read()
        yield task
