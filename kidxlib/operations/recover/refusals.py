"""Why a plan cannot be applied, and what to do then."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.options import Level
from kidxlib.operations.recover.plan import RecoveryPlan
from kidxlib.operations.recover.producers import lacks_snapshot
from kidxlib.text.counted import counted


def refusals_of(plan: RecoveryPlan) -> Iterator[str]:
    """Why a plan cannot be applied, a line each; none where it can.

    Raises:
        OSError, LogChangedError: a partition without producer snapshots cannot be read.
    """
    if plan.level is Level.MARKER:
        yield from _of_markers(plan)
    for each in plan.forecasts:
        yield from each.refusals
        if not each.refusals and (why := _of_partition(plan, each)) is not None:
            yield why


def _of_markers(plan: RecoveryPlan) -> Iterator[str]:
    if plan.not_named:
        yield (
            f"broker {plan.broker.node_id} has {len(plan.not_named)} more log dirs (directory.id "
            f"{', '.join(plan.not_named)}), and a marker belongs into all of them or none: name them too. If one is "
            f"lost: --level {Level.CHECKPOINT}"
        )
    for log_dir in plan.log_dirs:
        if log_dir.log_dir.other_logs:
            other = log_dir.log_dir.path / log_dir.log_dir.other_logs[0]
            yield (
                f"{other}: a log that a broker loads, and that is no partition's: with --level {Level.CHECKPOINT} "
                "the broker recovers it itself"
            )


def _why_not_cut(each: Forecast) -> str | None:
    """Why the logs of a partition may not be cut, which can be."""
    for segment in each.simulation.segments:
        log = each.directory / segment_file(segment.base_offset, LOG_SUFFIX)
        if segment.lost_bytes and (names := os.stat(log).st_nlink) > 1:
            return (
                f"{log}: it has {names} names (hard links), as in a backup of links, and would be cut under all of "
                "them: put a copy in its place"
            )
    return None


def _of_partition(plan: RecoveryPlan, each: Forecast) -> str | None:
    if plan.cuts and each.can_be_cut:
        if each.loses_known and not plan.accepts_loss:
            return (
                f"{_what_is_lost(each)}; high watermark {each.stop.high_watermark}, recovery point "
                f"{each.stop.recovery_point}: consumers may have seen it, or it had been flushed. Look at the other "
                "replicas first; then --accept-loss goes on without"
            )
        if (why := _why_not_cut(each)) is not None:
            return why
    elif each.loses and not (plan.accepts_loss and plan.level is Level.CHECKPOINT):
        return f"{_what_is_lost(each)}: {_what_to_do(plan, each)}"
    elif each.dropped and plan.level is Level.MARKER and not each.loses:
        return (
            f"{each.directory}: an append was not finished: --truncate cuts it off, and --level {Level.CHECKPOINT} "
            "leaves that to the broker"
        )
    if plan.level is Level.MARKER and lacks_snapshot(each.directory, each.simulation, each.options):
        return (
            f"{each.directory}: no producer snapshot, and the segments do not tell all of its producers: a broker that "
            f"finds a marker would forget them; --level {Level.CHECKPOINT} leaves that to it"
        )
    return None


def _what_to_do(plan: RecoveryPlan, each: Forecast) -> str:
    if any(dropped.is_unseen for dropped in each.dropped):
        return (
            f"restore the partition from another replica; or --accept-loss without --level {Level.MARKER} leaves it as "
            "it is, and --truncate with --keep DIR and --accept-loss cuts it as a broker without recovery points would"
        )
    leave = f"--level {Level.CHECKPOINT} with --accept-loss" if plan.level is Level.MARKER else "--accept-loss"
    if not each.can_be_cut:
        return f"copy the partition first if this may be the only copy; then {leave} leaves it to the broker"
    return (
        f"copy the partition first if this may be the only copy; then {leave} leaves it to the broker, and --truncate "
        "with --keep DIR cuts it where the broker would"
    )


def _what_is_lost(each: Forecast) -> str:
    """What of a partition goes as its broker starts: most of all whole batches."""
    if (each.simulation.log_end_offset or 0) < each.stop.high_watermark and all(lost.is_torn for lost in each.dropped):
        return (
            f"{each.directory}: the log ends at offset {each.simulation.log_end_offset}, below the high watermark "
            f"{each.stop.high_watermark}: records are gone that consumers have seen"
        )
    dropped = min(each.dropped, key=lambda dropped: dropped.is_torn)
    segment = f"of segment {dropped.base_offset} ({dropped.why})"
    if dropped.is_unseen:
        return (
            f"{each.directory}: {dropped.amount} {segment} are damaged, below the recovery point "
            f"{each.stop.recovery_point}, so a broker does not look there, and serves what is before it"
        )
    more = [other for other in each.dropped if other is not dropped]
    others = (
        f", and {sum(other.bytes for other in more):,} bytes of {counted(len(more), 'more segment')}" if more else ""
    )
    return f"{each.directory}: a broker that starts drops {dropped.amount} {segment}{others}"
