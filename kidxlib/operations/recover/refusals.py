"""Why a recovery cannot be applied, and what to do then: by what is missing, and by what the broker would drop or write
over as it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kidxlib.audit.startup.loader import RECOVERED_AS
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import is_moved
from kidxlib.operations.recover.forecast import Forecast, lacks_snapshot
from kidxlib.operations.recover.recovery_plan import RecoverLevel, RecoveryPlan
from kidxlib.operations.recover.stopped_broker import Refusal
from kidxlib.operations.tiered.local_partitions import lost_epochs_of_local_partitions
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.text.words import counted


def refusals_to_apply(plan: RecoveryPlan, *, applies: bool) -> Iterator[Refusal]:
    """Why a plan cannot be applied; none where it can. Where nothing can be written a plan serves all the same, unless
    somebody `applies` it.
    """
    yield from (refusal for refusal in plan.refusals if not (refusal.is_loss and plan.accepts_loss))
    log_dirs = [log_dir.path for log_dir in plan.broker.log_dirs]
    made_anew = [absent.directory for absent in plan.absent]
    yield from map(Refusal, lost_epochs_of_local_partitions(log_dirs, made_anew))
    if applies:
        yield from (Refusal(f"--apply: {why}", recovers=True) for why in plan.broker.reads_alone)
    yield from _log_dir_refusals(plan)
    yield from _absent_partition_refusals(plan)
    yield from _gap_refusals(plan)
    aside = LogsAside(log_dirs)
    yield from _first_log_refusals(plan, aside)
    for forecast in plan.forecasts:
        yield from forecast.refusals
        on_lost_end = _lost_end_refusals(forecast, aside)
        yield from on_lost_end
        is_told = bool(on_lost_end) and not (forecast.dropped or forecast.hidden)
        if not forecast.refusals and not is_told and (why := _why_partition_is_refused(plan, forecast)) is not None:
            yield Refusal(why, recovers=not forecast.stop.clean_shutdown and forecast.wrong_log_start is None)
        if forecast.forgotten is not None:
            yield Refusal(f"{forecast.directory}: {forecast.forgotten}")


def _log_dir_refusals(plan: RecoveryPlan) -> Iterator[Refusal]:
    if plan.not_named and not (plan.alone and plan.level is RecoverLevel.CHECKPOINT):
        yield Refusal(
            f"broker {plan.broker.node_id} has {counted(len(plan.not_named), 'more log dir')} (directory.id "
            f"{', '.join(plan.not_named)}), and what it drops there is not known; a marker belongs into all of them or "
            f"none: name all of log.dirs. If one is lost: --this-dir-alone, at --level {RecoverLevel.CHECKPOINT}"
        )
    if plan.level is RecoverLevel.MARKER:
        for log_dir in plan.broker.log_dirs:
            if log_dir.other_logs:
                other = log_dir.path / log_dir.other_logs[0]
                yield Refusal(
                    f"{other}: a log that a broker loads, and that is no partition's: with --level "
                    f"{RecoverLevel.CHECKPOINT} the broker recovers it itself",
                    recovers=True,
                )


def _absent_partition_refusals(plan: RecoveryPlan) -> Iterator[Refusal]:
    """Refusals for partitions that are not there. No option accepts one that is there under another name: the broker
    may delete the only copy.
    """
    for absent in plan.absent:
        if absent.found.aside:
            folder = absent.found.aside[0]
            told = [refusal for refusal in plan.refusals if refusal.text.startswith(f"{folder}: ")]
            if not (told and is_moved(folder.name)):  # a copy on its way is told there
                yield Refusal(f"{absent.text}; {absent.found.remedy}")
        elif absent.is_lost and not plan.leaves_losses:
            elsewhere = "" if absent.found.is_only_replica else ", and a leader elsewhere has the records"
            yield Refusal(
                f"{absent.text}: look for the directory on other disks and copies, and put it back; else "
                f"{_accepting_options(plan)} goes on without it{elsewhere}"
            )


def _gap_refusals(plan: RecoveryPlan) -> Iterator[Refusal]:
    """Refusals for gaps whose logs are there under other names or elsewhere. No option accepts that."""
    for gap in plan.gaps.lost:
        if gap.remedy is not None:
            yield Refusal(f"{gap.aside[0].target.parent}: {gap.detail}; {gap.remedy}")


def _first_log_refusals(plan: RecoveryPlan, aside: LogsAside) -> Iterator[Refusal]:
    """Refusals for first logs that are lost, and are there under other names or elsewhere. No option accepts that."""
    for forecast, finding in plan.lost_epochs:
        lost = forecast.seen.lost_first
        remedy = aside.remedy(forecast.directory, lost.start, lost.stop) if lost else None
        if remedy is not None:
            yield Refusal(f"{forecast.directory}: {finding.detail}; {remedy}")


def _lost_end_refusals(forecast: Forecast, aside: LogsAside) -> list[Refusal]:
    """Refusals for a lost end, or an empty partition, whose logs are there under other names or elsewhere."""
    gone = forecast.gone
    if forecast.is_empty:
        remedy = aside.remedy_of_empty(forecast.directory)
    else:
        remedy = aside.remedy(forecast.directory, gone.start, gone.stop) if gone else None
    return [] if remedy is None else [Refusal(f"{_what_is_lost(forecast)}; {remedy}")]


def _why_not_cut(forecast: Forecast) -> str | None:
    """Why a partition that can be cut is not to be cut."""
    for segment in forecast.simulation.segments:
        log = forecast.directory / segment_file(segment.base_offset, LOG_SUFFIX)
        if segment.lost_bytes and (names := os.stat(log).st_nlink) > 1:
            return (
                f"{log}: it has {names} names (hard links), as in a backup of links, and would be cut under all of "
                "them: put a copy in its place"
            )
    return None


def _why_partition_is_refused(plan: RecoveryPlan, forecast: Forecast) -> str | None:
    """Why the broker is not to start with this partition, and what to do; None if it may."""
    if forecast.dropped and forecast.wrong_log_start is not None:  # accepted by nothing: the logs are whole
        return f"{_what_is_lost(forecast)}: {forecast.wrong_log_start}; then run this again"
    if forecast.stop.clean_shutdown:
        return _why_refused_after_clean_stop(plan, forecast)
    if plan.cuts and forecast.can_be_cut:
        if forecast.loses_known and not plan.accepts_loss:
            return (
                f"{_what_is_lost(forecast)}; high watermark {forecast.stop.high_watermark}, recovery point "
                f"{forecast.stop.recovery_point}: consumers may have seen it, or it had been flushed. Look at the "
                "other replicas first; then --accept-loss goes on without"
            )
        if (why := _why_not_cut(forecast)) is not None:
            return why
    elif forecast.loses and not plan.leaves_losses:
        return f"{_what_is_lost(forecast)}: {_what_to_do_about_loss(plan, forecast)}"
    elif forecast.dropped and plan.level is RecoverLevel.MARKER and not forecast.loses:
        return (
            f"{forecast.directory}: an append was not finished: --truncate cuts it off, and --level "
            f"{RecoverLevel.CHECKPOINT} leaves that to the broker"
        )
    if plan.level is RecoverLevel.MARKER and lacks_snapshot(forecast.directory, forecast.simulation, forecast.options):
        return (
            f"{forecast.directory}: no producer snapshot, and the segments do not tell all of its producers: a broker "
            f"that finds a marker would forget them; --level {RecoverLevel.CHECKPOINT} leaves that to it"
        )
    return None


def _why_refused_after_clean_stop(plan: RecoveryPlan, forecast: Forecast) -> str | None:
    """Why the broker is not to start though its marker says that all is well. No option accepts that it writes over
    batches, or behind damage: without the marker the broker recovers them.
    """
    marker = forecast.directory.parent / CLEAN_SHUTDOWN_FILE
    if forecast.dropped and forecast.broker_start.ends_below_start is not None:  # with a marker and without
        what = "restore the partition from another replica, or --accept-loss goes on without it"
        return None if plan.leaves_losses else f"{_what_is_lost(forecast)}: {what}"
    if not forecast.dropped and not forecast.hidden:
        if not forecast.ends_early or plan.accepts_loss:  # nothing is written then, at no level
            return None
        return (
            f"{_what_is_lost(forecast)}; {marker} says that the broker stopped cleanly, so it looks for nothing: "
            "restore the partition from another replica, or --accept-loss goes on without, again if an earlier run did"
        )
    reasons: list[str] = []
    if forecast.dropped:
        lost = forecast.dropped[0]
        what, *_ = lost.why.partition(RECOVERED_AS)  # the broker does not recover it, with its marker
        reasons = [f"{lost.amount} of segment {lost.base_offset} are damaged ({what})"]
    if forecast.hidden:
        reasons.append(
            f"whole batches end at offset {forecast.whole_end}, and the broker takes "
            f"{forecast.broker_start.log_end_offset} for the log end offset, so it "
            f"would write offsets {_offset_range_in_words(forecast.hidden)} anew"
        )
    saves = f", and keeps offsets {_offset_range_in_words(forecast.hidden)}" if forecast.hidden else ""
    gone = (
        f". Offsets {_offset_range_in_words(forecast.gone)} are gone all the same: {forecast.lost_end}; restore the "
        "partition from another replica, or --accept-loss goes on without them, once the marker is removed"
    )
    does = "so it looks for nothing there, and appends after it"
    if forecast.dropped and _is_cut_all_the_same(forecast, forecast.dropped[0].base_offset):
        does = "which leaves no such end; it cuts that off all the same"
    return (
        f"{forecast.directory}: {'; '.join(reasons)}; {marker} says that the broker stopped cleanly, {does}: remove "
        f"that file in all log dirs of the broker, which then recovers as after a crash{saves}, and run this again"
        f"{gone if forecast.gone else ''}"
    )


def _is_cut_all_the_same(forecast: Forecast, base_offset: int) -> bool:
    """Whether a broker recovers a segment after a clean stop, too, as its `.index` is missing
    (`LogLoader.loadSegmentFiles`).
    """
    return any(segment.base_offset == base_offset and segment.lost_bytes for segment in forecast.broker_start.segments)


def _offset_range_in_words(offsets: range) -> str:
    return f"{offsets.start} to {offsets.stop - 1}"


def _accepting_options(plan: RecoveryPlan) -> str:
    """The options that go on without what is lost; a marker never does."""
    return (
        f"--level {RecoverLevel.CHECKPOINT} with --accept-loss"
        if plan.level is RecoverLevel.MARKER
        else "--accept-loss"
    )


def _what_to_do_about_loss(plan: RecoveryPlan, forecast: Forecast) -> str:
    leave = _accepting_options(plan)
    if forecast.is_empty:
        return f"look for its logs on other disks and copies, and put them back; else {leave} goes on without them"
    if any(dropped.is_unseen for dropped in forecast.dropped):
        return (
            "restore the partition from another replica; or --accept-loss without "
            f"--level {RecoverLevel.MARKER} leaves it as it is, and --truncate with --keep DIR and --accept-loss cuts "
            "it as a broker without recovery points would"
        )
    if not forecast.dropped and forecast.can_be_cut:
        cuts = " with --truncate and --keep DIR" if plan.level is RecoverLevel.MARKER else ""
        return (
            "nothing is left to be cut off, as after a run that has cut it: --accept-loss"
            f"{cuts} goes on without these records; or restore the partition from another replica first"
        )
    or_cut = ", and --truncate with --keep DIR cuts it where the broker would" if forecast.can_be_cut else ""
    return f"copy the partition first if this may be the only copy; then {leave} leaves it to the broker{or_cut}"


def _what_is_lost(forecast: Forecast) -> str:
    """What of a partition goes as its broker starts; whole batches before torn ones."""
    if forecast.is_empty:
        return f"{forecast.directory}: {forecast.stop.why_empty}"
    if forecast.ends_early and all(lost.is_torn for lost in forecast.dropped):
        return f"{forecast.directory}: {forecast.lost_end}"
    dropped = min(forecast.dropped, key=lambda dropped: dropped.is_torn)
    segment = f"of segment {dropped.base_offset} ({dropped.why})"
    if dropped.is_unseen:
        return (
            f"{forecast.directory}: {dropped.amount} {segment} are damaged, below the recovery point "
            f"{forecast.stop.recovery_point}, so a broker does not look there, and serves what is before it"
        )
    more = [other for other in forecast.dropped if other is not dropped]
    others = (
        f", and {sum(other.bytes for other in more):,} bytes of {counted(len(more), 'more segment')}" if more else ""
    )
    return f"{forecast.directory}: a broker that starts drops {dropped.amount} {segment}{others}"
