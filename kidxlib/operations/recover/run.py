"""Plans a recovery, and carries it out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kidxlib.errors import LockHeldError, UntrustedError, UsageError
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.operations.compare.place import Place
from kidxlib.operations.recover.broker import StoppedBroker, stopped_broker
from kidxlib.operations.recover.confirm import Replicas, places_of_replicas
from kidxlib.operations.recover.cut import cut
from kidxlib.operations.recover.keep import KeptCopies
from kidxlib.operations.recover.mend import Mending, MendRequest, Unmended, mend, mendings_of
from kidxlib.operations.recover.obstacle import Obstacle
from kidxlib.operations.recover.options import Level
from kidxlib.operations.recover.page_cache.broker_log import ensure_no_errors_in
from kidxlib.operations.recover.page_cache.note import ensure_noted, note_down
from kidxlib.operations.recover.plan import RecoveryPlan, recovery_plan, source_of
from kidxlib.operations.recover.publish import (
    advance_recovery_points,
    flush,
    sweep_leftovers,
    write_markers,
)
from kidxlib.operations.recover.rebuild import rebuild
from kidxlib.operations.recover.refusals import refusals_of
from kidxlib.operations.recover.report import as_json as plan_as_json
from kidxlib.operations.recover.report import show_applied, show_plan
from kidxlib.operations.recover.same_start import ensure_same_starts
from kidxlib.run.known_topics import KnownTopics, MetadataOptions, read_known_topics
from kidxlib.run.result import RunResult
from kidxlib.run.scratch import scratch_directory
from kidxlib.storage.lock import locked, locked_to_read
from kidxlib.terminal.console import print_json, print_line, warn, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverRequest:
    """What is to be recovered.

    Attributes:
        log_dirs: all of one broker.
        everything: read all segments as if nothing had been flushed.
        truncate: logs are cut where the broker would cut them.
        keep: where is kept what is cut off or replaced; None where nothing is.
        mends: small files are put in place, of which `mend` says which.
        accepted_topics, sets_snapshot_aside: as in `MendRequest`.
        replicas: log dirs that have replicas of the broker's partitions.
        alone: the broker's other log dirs are lost.
        trusts: go by headers where the kernel has all that the broker had written, and note for the next time that all
            is right.
        broker_logs: what the broker has said since it was started last.
        or_leave: neither a refusal nor what is dropped is a failure.
    """

    log_dirs: Sequence[str]
    apply: bool
    level: Level
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
    metadata: MetadataOptions


def run_recover(request: RecoverRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Look at a broker's log dirs as its next start would, and make them ready for it.

    Args:
        open_backend: called where something is to be read.

    Raises:
        UsageError: the log dirs are not those of one broker that has stopped.
        KidxError: a file cannot be written, or what was written does not lead to the same logs.
    """
    copies = None if request.keep is None else KeptCopies(request.keep)
    with contextlib.ExitStack() as stack:
        try:
            broker = _held(request, stack)
            replicas = places_of_replicas(request.replicas, [each.path for each in broker.log_dirs])
        except UsageError as error:
            if not request.or_leave:
                raise
            return _left(request, str(error), as_json)
        backend = stack.enter_context(open_backend())
        seen = first = _look(request, broker, replicas, backend, stack, "forecasts")
        if not as_json:
            show_plan(seen.plan, seen.refusals, [each.text for each in seen.to_show], applies=request.apply)
        if mends := request.apply and not seen.refusals and copies is not None and bool(seen.mendings):
            mend(seen.mendings, copies)
            if not as_json:
                print_line(f"mended: {counted(len(seen.mendings), 'file')}; what was there is in {copies.directory}")
            seen = _look(
                request, _broker(request, broker.not_locked), replicas, backend, stack, "forecasts-after-mending"
            )
            if not as_json:
                to_show = [each.text for each in seen.to_show]
                show_plan(seen.plan, seen.refusals, to_show, applies=request.apply, has_mended=True)
        applies, read_then = request.apply and not seen.refusals, None
        if applies:
            read_then = _carry_out(request, seen, copies, backend, as_json=as_json)
    if as_json:
        mended, unmended = ([each.text for each in found] for found in (first.mendings, seen.unmended))
        print_json(plan_as_json(seen.plan, seen.refusals, mended, unmended, applied=applies, read_then=read_then))
    return RunResult(
        code=_exit_code(request, seen, has_mended=mends),
        run_id=None,
        counts={
            "partitions": len(seen.plan.forecasts),
            "rebuilt": seen.plan.rebuilt if applies else 0,
            "refused": len(seen.refusals),
            "dropped": len(seen.plan.dropped),
        },
        bytes=seen.plan.start_bytes,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look at the log dirs has found.

    Attributes:
        refusals: why the plan cannot be applied, without those that mending answers.
        mendings, unmended: small files that are put in place, and those that are not.
    """

    plan: RecoveryPlan
    known: KnownTopics
    refusals: Sequence[Obstacle]
    mendings: Sequence[Mending]
    unmended: Sequence[Unmended]

    @property
    def to_show(self) -> list[Mending | Unmended]:
        return [*self.mendings, *self.unmended]


def _look(
    request: RecoverRequest,
    broker: StoppedBroker,
    replicas: Sequence[Place],
    backend: Backend,
    stack: contextlib.ExitStack,
    name: str,
) -> _Seen:
    """Look at log dirs as they are now, and warn of what is not known."""
    known = read_known_topics(request.metadata, map(source_of, broker.log_dirs))
    plan = recovery_plan(
        broker,
        known,
        request.level,
        cuts=request.truncate,
        accepts_loss=request.accept_loss,
        alone=request.alone,
        everything=request.everything,
        untrusted=_untrusted(request, broker),
        engine=backend.engine,
        scans=stack.enter_context(scratch_directory()) if request.apply else None,
        name=name,
    )
    warn_of_first(_warnings(request, plan, known))
    mendings: list[Mending] = []
    unmended: list[Unmended] = []
    if request.mends:
        said = MendRequest(
            request.accepted_topics,
            request.sets_snapshot_aside,
            bool(plan.not_named),
            Replicas(replicas, known, backend.engine),
        )
        mendings, unmended = mendings_of(broker, known, said)
    refusals = [
        each
        for each in refusals_of(plan, applies=request.apply)
        if not any(mending.answers(each) for mending in mendings)
    ]
    return _Seen(plan, known, refusals, mendings, unmended)


def _warnings(request: RecoverRequest, plan: RecoveryPlan, known: KnownTopics) -> Iterator[str]:
    """What is to be said of what is not known, and of what can only be planned."""
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


def _carry_out(
    request: RecoverRequest,
    seen: _Seen,
    copies: KeptCopies | None,
    backend: Backend,
    *,
    as_json: bool,
) -> int:
    """Apply a plan that nothing refuses, and say so.

    Returns:
        How many bytes of logs the broker reads as it starts now.
    """
    start, plan = time.monotonic(), seen.plan
    if not plan.broker.unclean:  # there is nothing to be made ready
        if request.trusts:
            _note_down(plan.broker)
        return plan.start_bytes
    done = cut(plan, seen.known, copies) if request.truncate and copies is not None else plan
    read_then = _apply(done, backend)
    if request.trusts and not any(map(done.is_left, done.forecasts)) and not done.dropped:
        _note_down(plan.broker)
    if not as_json:
        show_applied(done, read_then, time.monotonic() - start)
    return read_then


def _held(request: RecoverRequest, stack: contextlib.ExitStack) -> StoppedBroker:
    """Read whose log dirs they are, and hold their locks from now on. A plan writes nothing, so it does without a lock
    where none can be taken.
    """
    not_locked: list[str] = []
    for log_dir in _broker(request, ()).log_dirs:
        lock = locked if request.apply else locked_to_read
        try:
            why = stack.enter_context(lock(log_dir.path))
        except LockHeldError:
            raise
        except UsageError as error:  # the other log dirs are looked at all the same, and nothing is written in any
            why = str(error)
        if why is not None:
            not_locked.append(why)
    return _broker(request, not_locked)  # while nobody else writes


def _broker(request: RecoverRequest, not_locked: Sequence[str]) -> StoppedBroker:
    broker = stopped_broker(request.log_dirs, request.metadata.cluster_metadata)
    return replace(broker, not_locked=tuple(not_locked))


def _apply(plan: RecoveryPlan, backend: Backend) -> int:
    """Carry a plan out, under the locks of the log dirs.

    Returns:
        How many bytes of logs the broker reads as it starts now.
    """
    for log_dir in plan.log_dirs:
        sweep_leftovers(log_dir.log_dir.path, log_dir.forecasts)
    to_rebuild = {log_dir.log_dir.path: plan.to_rebuild(log_dir) for log_dir in plan.log_dirs}
    for log_dir in plan.log_dirs:
        if of_log_dir := to_rebuild[log_dir.log_dir.path]:
            rebuild(log_dir, of_log_dir, backend)
    begin_phase("flushing")
    for log_dir in plan.log_dirs:
        flush(log_dir.log_dir.path, to_rebuild[log_dir.log_dir.path])
    begin_phase("looking at it as the broker will")
    left = [each for each in plan.forecasts if plan.is_left(each)]
    others = [each for each in plan.forecasts if not plan.is_left(each) and not each.stop.clean_shutdown]
    read_then = sum(each.alone.read_bytes for each in left) + ensure_same_starts(others, plan.level, backend.engine)
    for log_dir in plan.log_dirs:
        path, points = log_dir.log_dir.path, log_dir.log_dir.stop.recovery_points
        if of_log_dir := to_rebuild[path]:
            advance_recovery_points(path, points, of_log_dir)
    if plan.level is Level.MARKER:
        write_markers([log_dir.path for log_dir in (*plan.broker.clean, *plan.broker.unclean)])
    return read_then


def _untrusted(request: RecoverRequest, broker: StoppedBroker) -> dict[Path, str] | None:
    """Why more than headers is to be read, by log dir; None where nobody wants any to be trusted."""
    if not request.trusts:
        return None
    found: dict[Path, str] = {}
    for log_dir in broker.unclean:
        try:
            ensure_noted(log_dir.path)
            for broker_log in request.broker_logs:
                ensure_no_errors_in(broker_log)
        except UntrustedError as error:
            found[log_dir.path] = str(error)
    return found


def _note_down(broker: StoppedBroker) -> None:
    """Note that all is right. Where that is of no use, the next time reads more; nothing else depends on it."""
    try:
        note_down([log_dir.path for log_dir in broker.log_dirs])
    except UntrustedError as error:
        warn(f"the page cache cannot be trusted the next time: {error}")


def _left(request: RecoverRequest, refusal: str, as_json: bool) -> RunResult:
    """What comes of log dirs that are not those of one broker that has stopped, as before its first start."""
    if as_json:
        print_json({"level": request.level.value, "applied": False, "refused": [refusal]})
    else:
        print_line(f"refused: {refusal}")
        print_line("nothing was changed, and what the broker does as it starts is not known")
    return RunResult(code=ExitCode.OK, run_id=None, counts={"refused": 1}, bytes=0)


def _exit_code(request: RecoverRequest, seen: _Seen, *, has_mended: bool) -> ExitCode:
    if request.or_leave:  # whatever is left to the broker, it may start
        return ExitCode.OK
    if seen.refusals:
        return ExitCode.PROBLEMS_FOUND if has_mended else ExitCode.USAGE
    plan = seen.plan
    has_problems = plan.drops or plan.lacks or bool(seen.to_show or plan.doubts or plan.accepted)
    return ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK
