"""What is shown of a recovery: what the broker would do by itself, what was done for it, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.operations.recover.broker import StoppedBroker
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.obstacle import Obstacle
from kidxlib.operations.recover.options import Level
from kidxlib.operations.recover.plan import PlannedLogDir, RecoveryPlan
from kidxlib.terminal.audit import start_takes
from kidxlib.terminal.console import first_of_each_kind, print_line, print_more
from kidxlib.terminal.gaps import print_gaps
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted

#: Of a kind, what is shown one by one.
_SHOWN: Final = 20
_NOT_AFTER_CLEAN_STOP: Final = "after a clean stop no log is cut"


def show_plan(
    plan: RecoveryPlan,
    refusals: Sequence[Obstacle],
    mended: Sequence[str],
    *,
    applies: bool,
    has_mended: bool = False,
) -> None:
    """A row per log dir, what the broker drops in any case, and what is refused.

    Args:
        mended: what is put in place, and what is not.
        applies: it is carried out where it is not refused.
        has_mended: files were put in place before.
    """
    node = "a broker" if plan.broker.node_id is None else f"broker {plan.broker.node_id}"
    print_table(
        f"{node}, {_how_stopped(plan.broker)}: recovery at level {plan.level}",
        ("log dir", "partitions", "to rebuild", "left to the broker", "the broker reads", "kidx reads"),
        [_row(plan, log_dir) for log_dir in plan.log_dirs],
        text_columns=1,
    )
    dropped = plan.dropped
    for each, of_segment in dropped[:_SHOWN]:
        who = "damaged, where the broker does not look" if of_segment.is_unseen else "the broker drops"
        who = "cut off" if plan.is_cut(each) else who
        kept = "; not cut, but a copy goes to --keep" if plan.cuts and plan.is_left(each) else ""
        print_line(f"{who}: {each.directory.name} {of_segment.base_offset}: {of_segment.amount}{kept}")
    print_more(len(dropped) - _SHOWN, "; --json has them all")
    print_gaps(plan.gaps, many_sources=False)
    for each, of_epochs in plan.lost_epochs[:_SHOWN]:
        print_line(f"broken: {each.directory.name} {of_epochs.file}: {of_epochs.reason}: {of_epochs.detail}")
        print_line(f"  {of_epochs.consequence}")
    print_more(len(plan.lost_epochs) - _SHOWN, "; --json has them all")
    for line in plan.lost_checkpoints:
        print_line(f"broken: {line}")
    _print_kinds("loses", _accepted(plan, refusals))
    _print_kinds("noted", plan.noted)
    for each_mended in mended:
        print_line(f"mend: {each_mended}")
    _print_kinds("refused", [each.text for each in refusals])
    for log_dir, why in (plan.untrusted or {}).items():
        print_line(f"{log_dir}: not trusted: {why}; so all is read from the recovery points on")
    if plan.cuts and not any(map(plan.is_cut, plan.forecasts)):
        why = "no log ends with what the broker would drop" if plan.broker.unclean else _NOT_AFTER_CLEAN_STOP
        kept = "" if any(plan.is_left(each) for each, _ in dropped) else ", and nothing goes to --keep"
        print_line(f"--truncate: nothing is cut off{kept}: {why}")
    reads = plan.start_bytes
    if plan.broker.unclean:
        print_line(f"by itself the broker would read {decimal(reads)}: {start_takes(reads)}")
    for line in plan.not_compared:
        print_line(f"not compared: {line}")
    for line in _verdict(plan, refusals, applies=applies, has_mended=has_mended):
        print_line(line)


def _print_kinds(what: str, lines: Sequence[str]) -> None:
    for line in first_of_each_kind(lines, _SHOWN, "; --json has them all"):
        print_line(f"{what}: {line}")


def _accepted(plan: RecoveryPlan, refusals: Sequence[Obstacle]) -> list[str]:
    """What is gone, and is gone without: no refused line names it."""
    refused = [each.text for each in refusals]
    losses = [each for each in plan.losses if not any(f"{each.directory}:" in text for text in refused)]
    return [*(each.text for each in losses), *plan.accepted] if plan.accepts_loss else []


def _verdict(plan: RecoveryPlan, refusals: Sequence[Obstacle], *, applies: bool, has_mended: bool) -> Iterator[str]:
    """What comes of it, in the last lines."""
    what = "nothing but what was mended was changed" if has_mended else "nothing was changed"
    if not refusals and not plan.drops:
        looked_at = f"{counted(len(plan.forecasts), 'partition')} looked at"
        how = "" if plan.everything else f", {_how_far(plan.broker)}; --all reads all of them"
        yield f"the broker drops nothing of what is there: {looked_at}{how}"
        if plan.lacks:
            yield "it starts without what is missing, which is named above"
        else:
            yield f"run kidx verify, too: it finds what is missing within logs{_but_not(plan)}"
    if refusals and all(each.recovers for each in refusals):
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
    """After a clean stop (`LogSegment.sanityCheck`)."""
    count = sum(len(each.recovered) for each in plan.forecasts)
    if not count:
        return "recovers nothing as it starts"
    return f"recovers {counted(count, 'segment')} as it starts, whose .index is missing or damaged, and nothing else"


def _but_not(plan: RecoveryPlan) -> str:
    return ", and not what the missing checkpoints would tell" if plan.not_compared else ""


def _how_stopped(broker: StoppedBroker) -> str:
    if not broker.clean:
        return "stopped uncleanly"
    if not broker.unclean:
        return "stopped cleanly"
    return f"with a marker of a clean stop in {len(broker.clean)} of {counted(len(broker.log_dirs), 'log dir')}"


def _how_far(broker: StoppedBroker) -> str:
    """What was read of logs without --all."""
    if not broker.clean:
        return "from their recovery points on"
    if not broker.unclean:
        return "the ends of their logs alone, as a broker that stopped cleanly reads no log that has an .index"
    return "from their recovery points on, and where a marker is the ends of their logs alone"


def show_applied(plan: RecoveryPlan, read_then: int, seconds: float) -> None:
    """What was done, and what is left to the broker."""
    print_line(f"rebuilt: {counted(plan.rebuilt, 'partition')}, in {seconds:,.1f} s")
    if plan.level is Level.MARKER:
        print_line("the broker finds a marker of a clean stop, and reads no log")
        return
    print_line(f"the broker reads {decimal(read_then)} again, the last segment of each partition")


def as_json(
    plan: RecoveryPlan,
    refusals: Sequence[Obstacle],
    mended: Sequence[str],
    unmended: Sequence[str],
    *,
    applied: bool,
    read_then: int | None,
) -> dict[str, Any]:
    """All of it as one object.

    Args:
        mended: what is put in place.
        unmended: what is not.
        read_then: bytes that the broker reads at its start now; None where nothing was applied.
    """
    return {
        "node_id": plan.broker.node_id,
        "level": plan.level.value,
        "applied": applied,
        "stopped_cleanly": not plan.broker.unclean,
        "refused": [each.text for each in refusals],
        "recovers_by_itself": all(each.recovers for each in refusals),
        "loses": [
            {
                "directory": str(each.directory),
                "from_offset": each.offsets.start,
                "to_offset": each.offsets.stop - 1,
                "why": each.why,
            }
            for each in plan.losses
        ],
        "accepted": plan.accepted,
        "not_compared": plan.not_compared,
        "lost_checkpoints": plan.lost_checkpoints,
        "noted": [*plan.noted, *plan.without_metadata],
        **plan.gaps.as_json(),
        "leader_epochs": [
            {"directory": str(each.directory), "reason": of.reason, "detail": of.detail, "consequence": of.consequence}
            for each, of in plan.lost_epochs
        ],
        "mended": list(mended),
        "not_mended": list(unmended),
        "plan_only": list(plan.broker.reads_alone),
        "unknown": list(plan.unknown),
        "log_dirs": [str(log_dir.log_dir.path) for log_dir in plan.log_dirs],
        "plan_seconds": plan.seconds,
        "untrusted": None if plan.untrusted is None else {str(path): why for path, why in plan.untrusted.items()},
        "start_bytes": plan.start_bytes,
        "kidx_bytes": sum(map(plan.scan_bytes, plan.log_dirs)),
        "start_bytes_now": read_then,
        "partitions": [_as_json(plan, each) for each in plan.forecasts],
    }


def _row(plan: RecoveryPlan, log_dir: PlannedLogDir) -> list[str | int]:
    left = [each for each in log_dir.forecasts if plan.is_left(each)]
    to_rebuild = plan.to_rebuild(log_dir)
    return [
        str(log_dir.log_dir.path),
        len(log_dir.forecasts),
        len(to_rebuild),
        len(left),
        sum(each.alone.read_bytes for each in log_dir.forecasts),
        plan.scan_bytes(log_dir),
    ]


def _as_json(plan: RecoveryPlan, each: Forecast) -> dict[str, Any]:
    return {
        "directory": str(each.directory),
        "recovery_point": each.stop.recovery_point,
        "log_end_offset": each.simulation.log_end_offset,
        "whole_end": each.whole_end,
        "start_bytes": each.alone.read_bytes,
        "rebuilt_from": None if plan.is_left(each) else each.scan_from,
        "left_to_the_broker": plan.is_left(each),
        "cut": plan.is_cut(each),
        "dropped": [
            {
                "base_offset": dropped.base_offset,
                "bytes": dropped.bytes,
                "records": dropped.records,
                "unfinished": dropped.is_torn,
                "unseen": dropped.is_unseen,
                "why": dropped.why,
            }
            for dropped in each.dropped
        ],
    }
