"""Why a plan cannot be applied, and what to do then."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.operations.audit.tiered.local_partitions import refusals_on_epochs
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.obstacle import Obstacle
from kidxlib.operations.recover.options import Level
from kidxlib.operations.recover.plan import RecoveryPlan
from kidxlib.operations.recover.producers import lacks_snapshot
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.text.counted import counted


def refusals_of(plan: RecoveryPlan, *, applies: bool) -> Iterator[Obstacle]:
    """Why a plan cannot be applied; none where it can.

    Args:
        applies: somebody wants it applied. Where nothing can be written a plan serves all the same.

    Raises:
        OSError, LogChangedError: a partition without producer snapshots cannot be read.
    """
    yield from (each for each in plan.obstacles if not (each.is_loss and plan.accepts_loss))
    log_dirs, made_anew = [each.path for each in plan.broker.log_dirs], [each.directory for each in plan.absent]
    yield from map(Obstacle, refusals_on_epochs(log_dirs, made_anew))
    if applies:
        yield from (Obstacle(f"--apply: {why}", recovers=True) for why in plan.broker.reads_alone)
    yield from _of_log_dirs(plan)
    yield from _of_absent(plan)
    for each in plan.forecasts:
        yield from each.obstacles
        if not each.obstacles and (why := _of_partition(plan, each)) is not None:
            yield Obstacle(why, recovers=not each.stop.clean_shutdown)
        if each.forgotten is not None:
            yield Obstacle(f"{each.directory}: {each.forgotten}")


def _of_log_dirs(plan: RecoveryPlan) -> Iterator[Obstacle]:
    if plan.not_named and not (plan.alone and plan.level is Level.CHECKPOINT):
        yield Obstacle(
            f"broker {plan.broker.node_id} has {counted(len(plan.not_named), 'more log dir')} (directory.id "
            f"{', '.join(plan.not_named)}), and what it drops there is not known; a marker belongs into all of them or "
            f"none: name all of log.dirs. If one is lost: --this-dir-alone, at --level {Level.CHECKPOINT}"
        )
    if plan.level is Level.MARKER:
        for log_dir in plan.log_dirs:
            if log_dir.log_dir.other_logs:
                other = log_dir.log_dir.path / log_dir.log_dir.other_logs[0]
                yield Obstacle(
                    f"{other}: a log that a broker loads, and that is no partition's: with --level {Level.CHECKPOINT} "
                    "the broker recovers it itself",
                    recovers=True,
                )


def _of_absent(plan: RecoveryPlan) -> Iterator[Obstacle]:
    """The partitions that are not there. What is there under another name is accepted by nothing: the broker may delete
    the only copy.
    """
    for absent in plan.absent:
        if absent.aside:
            folder = f"{absent.aside[0]}: "
            if not any(each.text.startswith(folder) for each in plan.obstacles):  # a copy on its way is told there
                yield Obstacle(f"{absent.text}; {absent.remedy}")
        elif absent.stop.known_end and not plan.leaves_losses:
            yield Obstacle(
                f"{absent.text}: look for the directory on other disks and copies, and put it back; else "
                f"{_accepting(plan)} goes on without it, and a leader elsewhere has the records"
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
    if each.stop.clean_shutdown:
        return _after_clean_stop(plan, each)
    if plan.cuts and each.can_be_cut:
        if each.loses_known and not plan.accepts_loss:
            return (
                f"{_what_is_lost(each)}; high watermark {each.stop.high_watermark}, recovery point "
                f"{each.stop.recovery_point}: consumers may have seen it, or it had been flushed. Look at the other "
                "replicas first; then --accept-loss goes on without"
            )
        if (why := _why_not_cut(each)) is not None:
            return why
    elif each.loses and not plan.leaves_losses:
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


def _after_clean_stop(plan: RecoveryPlan, each: Forecast) -> str | None:
    """Why the broker is not to start with what its marker says is well. What it would write over, or behind, is
    accepted by nothing: without the marker the broker comes over it.
    """
    marker = each.directory.parent / CLEAN_SHUTDOWN_FILE
    if not each.dropped and not each.hidden:
        if not each.ends_early or plan.accepts_loss:  # nothing is written then, at no level
            return None
        return (
            f"{_what_is_lost(each)}; {marker} says that the broker stopped cleanly, so it looks for nothing: restore "
            "the partition from another replica, or --accept-loss goes on without, again if an earlier run did"
        )
    found: list[str] = []
    if each.dropped:
        lost = each.dropped[0]
        found = [f"{lost.amount} of segment {lost.base_offset} are damaged ({lost.why})"]
    if each.hidden:
        found.append(
            f"whole batches end at offset {each.whole_end}, and the broker takes {each.alone.log_end_offset} for the "
            f"log end offset, so it would write offsets {_from_to(each.hidden)} anew"
        )
    saves = f", and keeps offsets {_from_to(each.hidden)}" if each.hidden else ""
    gone = (
        f". Offsets {_from_to(each.gone)} are gone all the same: {each.lost_end}; restore the partition from another "
        "replica, or --accept-loss goes on without them, once the marker is removed"
    )
    does = "so it looks for nothing there, and appends behind it"
    if each.dropped and _is_cut_all_the_same(each, each.dropped[0].base_offset):
        does = "which leaves no such end; it cuts that off all the same"
    return (
        f"{each.directory}: {'; '.join(found)}; {marker} says that the broker stopped cleanly, {does}: remove that "
        f"file in all log dirs of the broker, which then recovers as after a crash{saves}, and run this again"
        f"{gone if each.gone else ''}"
    )


def _is_cut_all_the_same(each: Forecast, base_offset: int) -> bool:
    """Whether a broker recovers a segment after a clean stop, too, as its `.index` is missing
    (`LogLoader.loadSegmentFiles`).
    """
    return any(of.base_offset == base_offset and of.lost_bytes for of in each.alone.segments)


def _from_to(offsets: range) -> str:
    return f"{offsets.start} to {offsets.stop - 1}"


def _accepting(plan: RecoveryPlan) -> str:
    """The options that leave what is lost to the broker, which a marker does not."""
    return f"--level {Level.CHECKPOINT} with --accept-loss" if plan.level is Level.MARKER else "--accept-loss"


def _what_to_do(plan: RecoveryPlan, each: Forecast) -> str:
    leave = _accepting(plan)
    if each.is_empty:
        return f"look for its logs on other disks and copies, and put them back; else {leave} goes on without them"
    if any(dropped.is_unseen for dropped in each.dropped):
        return (
            f"restore the partition from another replica; or --accept-loss without --level {Level.MARKER} leaves it as "
            "it is, and --truncate with --keep DIR and --accept-loss cuts it as a broker without recovery points would"
        )
    if not each.dropped and each.can_be_cut:
        cuts = " with --truncate and --keep DIR" if plan.level is Level.MARKER else ""
        return (
            "nothing is left to be cut off, as after a run that has cut it: --accept-loss"
            f"{cuts} goes on without these records; or restore the partition from another replica first"
        )
    if not each.can_be_cut:
        return f"copy the partition first if this may be the only copy; then {leave} leaves it to the broker"
    return (
        f"copy the partition first if this may be the only copy; then {leave} leaves it to the broker, and --truncate "
        "with --keep DIR cuts it where the broker would"
    )


def _what_is_lost(each: Forecast) -> str:
    """What of a partition goes as its broker starts: most of all whole batches."""
    if each.is_empty:
        return f"{each.directory}: {each.stop.why_empty}"
    if each.ends_early and all(lost.is_torn for lost in each.dropped):
        return f"{each.directory}: {each.lost_end}"
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
