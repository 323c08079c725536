"""Cuts logs where the broker would: keeps a copy of all that goes, drops later segments, then cuts the log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_segment_log,
    parse_snapshot,
    segment_file,
)
from kidxlib.operations.recover.forecast import Forecast, forecast_partition
from kidxlib.operations.recover.keep import KeptCopies
from kidxlib.operations.recover.log_cutter import cut_log
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.operations.recover.recovery_plan import PlannedLogDir, RecoveryPlan, listed_partitions
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.remover import Remover
from kidxlib.terminal.console import begin_phase

#: A log goes before its side files, which are orphans then. A broker would read a log without an index.
_FILES_OF_SEGMENT: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def cut(plan: RecoveryPlan, known: KnownTopics, copies: KeptCopies) -> RecoveryPlan:
    """Cut what a plan says, and keep a copy of all that goes, here or as the broker starts. The caller holds the log
    dirs' locks. Return the plan of what is there now, of which nothing is to be cut.
    """
    begin_phase("cutting")
    for forecast in plan.forecasts:
        if plan.is_cut(forecast) or plan.is_left(forecast):
            _keep_what_is_cut(forecast, copies)
    to_cut = [forecast for log_dir in plan.log_dirs for forecast in plan.to_cut(log_dir)]
    if not to_cut:
        return plan
    _cut_logs(to_cut)
    return replace(plan, log_dirs=[_forecast_cut_partitions(plan, log_dir, known) for log_dir in plan.log_dirs])


def _forecast_cut_partitions(plan: RecoveryPlan, planned: PlannedLogDir, known: KnownTopics) -> PlannedLogDir:
    cut_here = {forecast.topic_partition for forecast in plan.to_cut(planned)}
    forecasts: list[Forecast] = []
    for forecast in planned.forecasts:
        if forecast.topic_partition in cut_here:
            now = forecast_partition(
                forecast.topic_partition,
                forecast.directory,
                forecast.options,
                forecast.stop,
                LogReader(),
                everything=forecast.everything,
                trusts=forecast.headers is not None,
            )
            _ensure_cut(forecast, now)
            forecasts.append(now)
        else:
            forecasts.append(forecast)
    return replace(planned, listed=listed_partitions(planned.log_dir, known), forecasts=forecasts)


def _keep_what_is_cut(forecast: Forecast, copies: KeptCopies) -> None:
    for name in _dropped_files(forecast):
        copies.keep(forecast.directory / name, f"{forecast.directory.name}/{name}")
    for name, _, to in _logs_to_cut(forecast):
        copies.keep(forecast.directory / name, f"{forecast.directory.name}/{name}.from-{to}", to)


def _cut_logs(forecasts: Sequence[Forecast]) -> None:
    """Cut the logs of some partitions where the broker would.

    A log is cut last, after all segments behind it have gone for good: until then a broker, or another run, finds the
    same place to cut and drops the rest. Cut first, the segments behind it would look whole.
    """
    with Remover() as remover:
        for forecast in forecasts:
            for name in _dropped_files(forecast):
                remover.remove(forecast.files, name)
        remover.flush()
    for forecast in forecasts:
        for name, size, to in _logs_to_cut(forecast):
            cut_log(forecast.files, name, size=size, to=to)


def _ensure_cut(before: Forecast, after: Forecast) -> None:
    """See that a partition is now what the broker would have made of it."""
    then, now = before.simulation, after.simulation
    kept = [
        (segment.base_offset, segment.kept_bytes)
        for segment in then.segments
        if segment.action is not StartupAction.DELETE
    ]
    made = [(segment.base_offset, segment.kept_bytes) for segment in now.segments]
    if after.dropped or after.refusals or made != kept or now.log_end_offset != then.log_end_offset:
        raise KidxError(
            f"{before.directory}: cut as the broker would cut it, it is to end at offset {then.log_end_offset} with "
            f"{kept}, and a broker would make {made} of it, up to offset {now.log_end_offset}; what was cut is in the "
            "directory of --keep. Start the broker by itself, and report this"
        )


def _logs_to_cut(forecast: Forecast) -> Iterator[tuple[str, int, int]]:
    """The logs to cut: name, bytes before and after."""
    for segment in forecast.simulation.segments:
        if segment.lost_bytes and segment.action is not StartupAction.DELETE:
            yield segment_file(segment.base_offset, LOG_SUFFIX), segment.log_bytes, segment.kept_bytes


def _dropped_files(forecast: Forecast) -> list[str]:
    """The files to remove, in this order: logs that the broker drops, side files without a log (an earlier run may have
    removed it), producer snapshots above the end.
    """
    names = sorted(os.listdir(forecast.directory))
    deleted = {
        segment.base_offset for segment in forecast.simulation.segments if segment.action is StartupAction.DELETE
    }
    there = {offset for name in names if (offset := parse_segment_log(name)) is not None} - deleted
    logs = {segment_file(offset, LOG_SUFFIX) for offset in deleted}
    kept = {segment_file(offset, suffix) for offset in there for suffix in _FILES_OF_SEGMENT}
    end = forecast.simulation.log_end_offset or 0
    snapshots = [name for name in names if (offset := parse_snapshot(name)) is not None and offset > end]
    side_files = [
        name
        for name in names
        if (parsed := parse_segment_file(name)) is not None and parsed[1] in _FILES_OF_SEGMENT[1:] and name not in kept
    ]
    return [*(name for name in names if name in logs), *side_files, *snapshots]
