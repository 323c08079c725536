"""Plans a recovery, and carries it out where nothing refuses that. Shows what the broker would do by itself, what was
done for it, and why not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.finding import Finding
from kidxlib.errors import LockHeldError, UntrustedError, UsageError
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.backend import Backend
from kidxlib.operations.compare.place import ComparedPlace
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.make_ready import KeptCopies, cut_planned_logs, make_ready
from kidxlib.operations.recover.mend import Mending, MendRequest, UnmendedFile, mend, mendings_of, replicas_to_mend_by
from kidxlib.operations.recover.page_cache import ensure_no_errors_in, ensure_page_cache_kept, note_page_cache
from kidxlib.operations.recover.recovery_plan import RecoverLevel, RecoveryPlan, recovery_plan
from kidxlib.operations.recover.refusals import refusals_to_apply
from kidxlib.operations.recover.stopped_broker import (
    Refusal,
    StoppedBroker,
    log_dir_as_source,
    log_dirs_at,
    stopped_broker,
)
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.storage.lock import locked, locked_to_read
from kidxlib.storage.scratch import scratch_directory
from kidxlib.terminal.audit import start_takes
from kidxlib.terminal.console import MORE_IN_JSON, warn, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import MetadataOptions
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.terminal.run_summary import first_logs_not_known, gap_lines
from kidxlib.text.words import counted

_NOT_AFTER_CLEAN_STOP: Final = "after a clean stop no log is cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverRequest:
    """What is to be recovered.

    Attributes:
        log_dirs: all log dirs of one broker.
        everything: read all segments as if nothing had been flushed.
        truncate: cut logs where the broker would cut them.
        keep: a directory for copies of what is cut off or replaced; None where nothing is.
        mends: put small files in place (`mend`).
        accepted_topics, sets_snapshot_aside: as in `MendRequest`.
        replicas: log dirs that have replicas of the broker's partitions.
        alone: the broker's other log dirs are lost.
        trusts: go by headers where the kernel has all that the broker had written, and note for the next time that all
            is right.
        broker_logs: the broker's own logs since its last start.
        or_leave: neither a refusal nor a dropped record is a failure.
        kafka_version: the broker's Kafka; None for what it has registered.
    """

    log_dirs: Sequence[str]
    apply: bool
    level: RecoverLevel
    everything: bool
    truncate: bool
    keep: Path | None
    mends: bool
    accepted_topics: Sequence[str]
    replicas: Sequence[str]
    sets_snapshot_aside: bool
    accept_loss: bool
    alone: bool
    trusts: bool
    broker_logs: Sequence[Path]
    or_leave: bool
    kafka_version: KafkaRelease | None
    metadata: MetadataOptions


def _tell_plan(
    outcome: Outcome,
    plan: RecoveryPlan,
    refusals: Sequence[Refusal],
    mended: Sequence[str],
    *,
    applies: bool,
    has_mended: bool = False,
) -> None:
    """Tell a row per log dir, what the broker drops, what is missing, and what is refused. `mended` has the lines on
    files that are put in place, and on those that are not.
    """
    node = "a broker" if plan.broker.node_id is None else f"broker {plan.broker.node_id}"
    outcome.table(
        f"{node}, {_how_stopped(plan.broker)}: recovery at level {plan.level}",
        ("log dir", "partitions", "to rebuild", "left to the broker", "the broker reads", "kidx reads"),
        [_log_dir_row(plan, log_dir) for log_dir in plan.by_log_dir],
        text_columns=1,
    )
    dropped = plan.dropped
    for forecast, segment in dropped[:LINES_SHOWN]:
        who = "damaged, where the broker does not look" if segment.is_unseen else "the broker drops"
        if plan.is_cut(forecast):
            who = "cut off" if applies and not refusals else "would cut off"
        kept = "; not cut, but a copy goes to --keep" if plan.cuts and plan.is_left(forecast) else ""
        outcome.line(f"{who}: {forecast.directory.name} {segment.base_offset}: {segment.amount}{kept}")
    outcome.add_more_line(len(dropped) - LINES_SHOWN, MORE_IN_JSON)
    outcome.line(*gap_lines(plan.gaps, many_sources=False))
    _tell_findings(outcome, plan.lost_epochs)
    _tell_findings(outcome, plan.shorter_logs)
    for line in plan.lost_checkpoints:
        outcome.line(f"broken: {line}")
    not_known = [(forecast.directory.name, offsets) for forecast, offsets in plan.first_logs_not_known]
    names = [f"{name} (offsets {offsets.start} to {offsets.stop - 1})" for name, offsets in not_known]
    outcome.line(*first_logs_not_known(names))
    outcome.first_lines("loses", _accepted_losses(plan, refusals))
    outcome.first_lines("noted", plan.noted)
    for text in mended:
        outcome.line(f"mend: {text}")
    outcome.first_lines("refused", [refusal.text for refusal in refusals])
    for log_dir, why in (plan.untrusted or {}).items():
        outcome.line(f"{log_dir}: not trusted: {why}; so all is read from the recovery points on")
    if plan.cuts and not any(map(plan.is_cut, plan.forecasts)):
        why = "no log ends with what the broker would drop" if plan.broker.unclean else _NOT_AFTER_CLEAN_STOP
        kept = "" if any(plan.is_left(forecast) for forecast, _ in dropped) else ", and nothing goes to --keep"
        outcome.line(f"--truncate: nothing is cut off{kept}: {why}")
    reads = plan.start_bytes
    if plan.broker.unclean:
        outcome.line(f"by itself the broker would read {decimal(reads)}: {start_takes(reads)}")
    for line in plan.not_compared:
        outcome.line(f"not compared: {line}")
    for line in _last_lines(plan, refusals, applies=applies, has_mended=has_mended):
        outcome.line(line)


def _tell_findings(outcome: Outcome, findings: Sequence[tuple[Forecast, Finding]]) -> None:
    for forecast, finding in findings[:LINES_SHOWN]:
        outcome.line(f"broken: {forecast.directory.name} {finding.file}: {finding.reason}: {finding.detail}")
        outcome.line(f"  {finding.consequence}")
    outcome.add_more_line(len(findings) - LINES_SHOWN, MORE_IN_JSON)


def _accepted_losses(plan: RecoveryPlan, refusals: Sequence[Refusal]) -> list[str]:
    """The losses that are accepted, and that no refused line names."""
    refused = [refusal.text for refusal in refusals]
    losses = [loss for loss in plan.losses if not any(f"{loss.directory}:" in text for text in refused)]
    return [*(loss.text for loss in losses), *plan.accepted] if plan.accepts_loss else []


def _last_lines(plan: RecoveryPlan, refusals: Sequence[Refusal], *, applies: bool, has_mended: bool) -> Iterator[str]:
    """The last lines: what comes of the plan."""
    what = "nothing but what was mended was changed" if has_mended else "nothing was changed"
    if not refusals and not plan.drops:
        looked_at = f"{counted(len(plan.forecasts), 'partition')} looked at"
        how = "" if plan.everything else f", {_how_far_logs_are_read(plan.broker)}; --all reads all of them"
        yield f"the broker drops nothing of what is there: {looked_at}{how}"
        if plan.lacks:
            yield "it starts without what is missing, of which this plan has seen what is named above"
    if plan.lacks or (not refusals and not plan.drops):
        what_else = "what else" if plan.lacks else "what"
        but = ", and not what the missing checkpoints would tell" if plan.not_compared else ""
        yield f"run kidx verify, too: it finds {what_else} is missing within logs{but}"
    if refusals and all(refusal.recovers for refusal in refusals):
        yield f"{what}: the broker recovers by itself as it starts"
    elif refusals:
        yield f"{what}: the refused lines say what the broker does as it starts"
    elif plan.false_markers and not plan.broker.unclean:
        yield f"the broker believes the marker, and {_recovers_as_it_starts(plan)}: remove it, and run this again"
    elif not plan.broker.unclean:
        yield f"the broker stopped cleanly: it {_recovers_as_it_starts(plan)}"
    elif not applies:
        yield "nothing was written; --apply does it"


def _recovers_as_it_starts(plan: RecoveryPlan) -> str:
    """What the broker recovers after a clean stop (`LogSegment.sanityCheck`)."""
    count = sum(len(forecast.recovered) for forecast in plan.forecasts)
    if not count:
        return "recovers nothing as it starts"
    return f"recovers {counted(count, 'segment')} as it starts, whose .index is missing or damaged, and nothing else"


def _how_stopped(broker: StoppedBroker) -> str:
    if not broker.clean:
        return "stopped uncleanly"
    if not broker.unclean:
        return "stopped cleanly"
    return f"with a marker of a clean stop in {len(broker.clean)} of {counted(len(broker.log_dirs), 'log dir')}"


def _how_far_logs_are_read(broker: StoppedBroker) -> str:
    if not broker.clean:
        return "from their recovery points on"
    if not broker.unclean:
        return "the ends of their logs alone, as a broker that stopped cleanly reads no log that has an .index"
    return "from their recovery points on, and where a marker is the ends of their logs alone"


def _tell_applied(outcome: Outcome, plan: RecoveryPlan, read_then: int, seconds: float) -> None:
    outcome.line(f"rebuilt: {counted(plan.rebuilt, 'partition')}, in {seconds:,.1f} s")
    if plan.level is RecoverLevel.MARKER:
        outcome.line("the broker finds a marker of a clean stop, and reads no log")
        return
    outcome.line(f"the broker reads {decimal(read_then)} again, the last segment of each partition")


def _plan_as_json(
    plan: RecoveryPlan,
    refusals: Sequence[Refusal],
    mended: Sequence[str],
    unmended: Sequence[str],
    *,
    applied: bool,
    read_then: int | None,
) -> dict[str, Any]:
    """The plan as one object. `read_then`: bytes that the broker reads as it starts now; None where nothing is done."""
    return {
        "node_id": plan.broker.node_id,
        "level": plan.level.value,
        "applied": applied,
        "stopped_cleanly": not plan.broker.unclean,
        "refused": [refusal.text for refusal in refusals],
        "recovers_by_itself": all(refusal.recovers for refusal in refusals),
        "loses": [
            {
                "directory": str(loss.directory),
                "from_offset": loss.offsets.start,
                "to_offset": loss.offsets.stop - 1,
                "why": loss.why,
            }
            for loss in plan.losses
        ],
        "accepted": plan.accepted,
        "not_compared": plan.not_compared,
        "lost_checkpoints": plan.lost_checkpoints,
        "noted": [*plan.noted, *plan.without_metadata],
        **plan.gaps.as_json(),
        "leader_epochs": _findings_as_json(plan.lost_epochs),
        "first_logs_not_known": [
            {"directory": str(forecast.directory), "from_offset": offsets.start, "to_offset": offsets.stop - 1}
            for forecast, offsets in plan.first_logs_not_known
        ],
        "shorter_logs": _findings_as_json(plan.shorter_logs),
        "mended": list(mended),
        "not_mended": list(unmended),
        "plan_only": list(plan.broker.reads_alone),
        "unknown": list(plan.unknown),
        "log_dirs": list(map(str, plan.by_log_dir)),
        "plan_seconds": plan.seconds,
        "untrusted": None if plan.untrusted is None else {str(path): why for path, why in plan.untrusted.items()},
        "start_bytes": plan.start_bytes,
        "kidx_bytes": sum(map(plan.scan_bytes, plan.by_log_dir)),
        "start_bytes_now": read_then,
        "partitions": [_forecast_as_json(plan, forecast) for forecast in plan.forecasts],
    }


def _findings_as_json(findings: Sequence[tuple[Forecast, Finding]]) -> list[dict[str, Any]]:
    return [
        {
            "directory": str(forecast.directory),
            "reason": finding.reason,
            "detail": finding.detail,
            "consequence": finding.consequence,
        }
        for forecast, finding in findings
    ]


def _log_dir_row(plan: RecoveryPlan, log_dir: Path) -> list[str | int]:
    forecasts = plan.by_log_dir[log_dir]
    return [
        str(log_dir),
        len(forecasts),
        len(plan.to_rebuild(log_dir)),
        sum(map(plan.is_left, forecasts)),
        sum(forecast.broker_start.read_bytes for forecast in forecasts),
        plan.scan_bytes(log_dir),
    ]


def _forecast_as_json(plan: RecoveryPlan, forecast: Forecast) -> dict[str, Any]:
    return {
        "directory": str(forecast.directory),
        "recovery_point": forecast.stop.recovery_point,
        "log_end_offset": forecast.simulation.log_end_offset,
        "whole_end": forecast.whole_end,
        "start_bytes": forecast.broker_start.read_bytes,
        "rebuilt_from": None if plan.is_left(forecast) else forecast.scan_from,
        "left_to_the_broker": plan.is_left(forecast),
        "cut": plan.is_cut(forecast),
        "dropped": [
            {
                "base_offset": dropped.base_offset,
                "bytes": dropped.bytes,
                "records": dropped.records,
                "unfinished": dropped.is_torn,
                "unseen": dropped.is_unseen,
                "why": dropped.why,
            }
            for dropped in forecast.dropped
        ],
    }


def recover_log_dirs(request: RecoverRequest, backend: Backend, *, as_it_comes: bool) -> Outcome:
    """Look at a broker's log dirs as its next start would, and make them ready for it. `as_it_comes`: print each line
    before the steps that take their time, or may fail.
    """
    outcome, copies = Outcome(), None if request.keep is None else KeptCopies(request.keep)

    def tell(seen: _Inspection, *, has_mended: bool = False) -> None:
        to_show = [file.text for file in seen.to_show]
        _tell_plan(outcome, seen.plan, seen.refusals, to_show, applies=request.apply, has_mended=has_mended)
        if as_it_comes:
            outcome.show_so_far()

    with contextlib.ExitStack() as stack:
        try:
            broker = _lock_and_read_broker(request, stack)
            replicas = replicas_to_mend_by(request.replicas, [log_dir.path for log_dir in broker.log_dirs])
        except UsageError as error:
            if not request.or_leave:
                raise
            return _refused_outcome(request, str(error))
        seen = first = _inspect_log_dirs(request, broker, replicas, backend, stack, "forecasts")
        tell(seen)
        if mends := request.apply and not seen.refusals and copies is not None and bool(seen.mendings):
            mend(seen.mendings, copies)
            outcome.line(f"mended: {counted(len(seen.mendings), 'file')}; what was there is in {copies.directory}")
            broker = _read_broker(request)  # all log dirs are locked: else nothing would have been mended
            seen = _inspect_log_dirs(request, broker, replicas, backend, stack, "forecasts-after-mending")
            tell(seen, has_mended=True)
        applies, read_then = request.apply and not seen.refusals, None
        if applies:
            read_then = _apply_plan(outcome, request, seen, copies, backend)
    mended, unmended = ([file.text for file in files] for files in (first.mendings, seen.unmended))
    outcome.values.update(
        _plan_as_json(seen.plan, seen.refusals, mended, unmended, applied=applies, read_then=read_then)
    )
    return replace(
        outcome,
        code=_exit_code(request, seen, has_mended=mends),
        counts={
            "partitions": len(seen.plan.forecasts),
            "rebuilt": seen.plan.rebuilt if applies else 0,
            "refused": len(seen.refusals),
            "dropped": len(seen.plan.dropped),
        },
        bytes=seen.plan.start_bytes,
    )


@dataclass(frozen=True, slots=True)
class _Inspection:
    """A look at the log dirs.

    Attributes:
        refusals: why the plan cannot be applied, besides the refusals that mending answers.
        mendings, unmended: small files that are put in place, and those that are not.
    """

    plan: RecoveryPlan
    refusals: Sequence[Refusal]
    mendings: Sequence[Mending]
    unmended: Sequence[UnmendedFile]

    @property
    def to_show(self) -> list[Mending | UnmendedFile]:
        return [*self.mendings, *self.unmended]


def _inspect_log_dirs(
    request: RecoverRequest,
    broker: StoppedBroker,
    replicas: Sequence[ComparedPlace],
    backend: Backend,
    stack: contextlib.ExitStack,
    name: str,
) -> _Inspection:
    known = read_known_topics(map(log_dir_as_source, broker.log_dirs), options=request.metadata)
    plan = recovery_plan(
        broker,
        known,
        request.level,
        cuts=request.truncate,
        accepts_loss=request.accept_loss,
        alone=request.alone,
        everything=request.everything,
        untrusted=_why_page_cache_untrusted(request, broker),
        engine=backend.engine,
        scans=stack.enter_context(scratch_directory()) if request.apply else None,
        name=name,
    )
    warn_of_first(_warnings(request, plan, known))
    mendings: list[Mending] = []
    unmended: list[UnmendedFile] = []
    if request.mends:
        mend_request = MendRequest(
            request.accepted_topics,
            request.sets_snapshot_aside,
            bool(plan.not_named),
            replicas,
            known,
            backend.engine,
        )
        mendings, unmended = mendings_of(broker, mend_request)
    refusals = [
        refusal
        for refusal in refusals_to_apply(plan, applies=request.apply)
        if not any(mending.answers(refusal) for mending in mendings)
    ]
    return _Inspection(plan, refusals, mendings, unmended)


def _warnings(request: RecoverRequest, plan: RecoveryPlan, known: KnownTopics) -> Iterator[str]:
    if not known.of_sources and not known.warnings:
        yield (
            f"no {METADATA_DIRECTORY} in the log dirs (metadata.log.dir names another directory, or it is lost): "
            "indexes get Kafka's default intervals, whatever topics are configured to; name it with --cluster-metadata"
        )
    yield from known.warnings
    yield from plan.unknown
    yield from plan.without_metadata
    yield from plan.false_markers
    for log_dir in plan.broker.log_dirs:
        yield from log_dir.stop.notes
    if not request.apply:
        yield from (f"only a plan is made here: {why}" for why in plan.broker.reads_alone)


def _apply_plan(
    outcome: Outcome, request: RecoverRequest, seen: _Inspection, copies: KeptCopies | None, backend: Backend
) -> int:
    """Apply a plan that nothing refuses. Return how many bytes of logs the broker reads as it starts now."""
    start, plan = time.monotonic(), seen.plan
    if not plan.broker.unclean:  # there is nothing to be made ready
        if request.trusts:
            _note_page_cache(plan.broker)
        return plan.start_bytes
    done = cut_planned_logs(plan, copies) if request.truncate and copies is not None else plan
    read_then = make_ready(done, backend)
    if request.trusts and not any(map(done.is_left, done.forecasts)) and not done.dropped:
        _note_page_cache(plan.broker)
    _tell_applied(outcome, done, read_then, time.monotonic() - start)
    return read_then


def _lock_and_read_broker(request: RecoverRequest, stack: contextlib.ExitStack) -> StoppedBroker:
    """The broker of the log dirs, which are locked from now on. A plan writes nothing, so it does without a lock where
    none can be taken.
    """
    not_locked: list[str] = []
    for log_dir in log_dirs_at(request.log_dirs):
        lock = locked if request.apply else locked_to_read
        try:
            why = stack.enter_context(lock(log_dir))
        except LockHeldError:
            raise
        except UsageError as error:  # the other log dirs are looked at all the same, and nothing is written in any
            why = str(error)
        if why is not None:
            not_locked.append(why)
    broker = _read_broker(request)  # while nobody else writes
    return replace(broker, reads_alone=(*broker.reads_alone, *not_locked))


def _read_broker(request: RecoverRequest) -> StoppedBroker:
    return stopped_broker(request.log_dirs, request.metadata.cluster_metadata, request.kafka_version)


def _why_page_cache_untrusted(request: RecoverRequest, broker: StoppedBroker) -> dict[Path, str] | None:
    """Why more than headers is to be read, by log dir; None where nobody wants any to be trusted."""
    if not request.trusts:
        return None
    reasons: dict[Path, str] = {}
    for log_dir in broker.unclean:
        try:
            ensure_page_cache_kept(log_dir.path)
            for broker_log in request.broker_logs:
                ensure_no_errors_in(broker_log)
        except UntrustedError as error:
            reasons[log_dir.path] = str(error)
    return reasons


def _note_page_cache(broker: StoppedBroker) -> None:
    """Note that all is right. Without a note the next run reads more; nothing else depends on it."""
    try:
        note_page_cache([log_dir.path for log_dir in broker.log_dirs])
    except UntrustedError as error:
        warn(f"the page cache cannot be trusted the next time: {error}")


def _refused_outcome(request: RecoverRequest, refusal: str) -> Outcome:
    """The outcome for log dirs that are not those of one broker that has stopped, as before its first start."""
    outcome = Outcome(counts={"refused": 1})
    outcome.values.update(level=request.level.value, applied=False, refused=[refusal])
    outcome.line(f"refused: {refusal}", "nothing was changed, and what the broker does as it starts is not known")
    return outcome


def _exit_code(request: RecoverRequest, seen: _Inspection, *, has_mended: bool) -> ExitCode:
    if request.or_leave:  # whatever is left to the broker, it may start
        return ExitCode.OK
    if seen.refusals:
        return ExitCode.PROBLEMS_FOUND if has_mended else ExitCode.USAGE
    plan = seen.plan
    has_problems = plan.drops or plan.lacks or bool(seen.to_show or plan.doubts or plan.accepted)
    return ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK
