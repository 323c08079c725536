"""The last steps of a recovery, in this order: side files of unflushed segments (indexes, producer snapshots, leader
epochs) are made as the broker would make them; all that was written becomes durable; all workers see that the broker
would come to the same logs; recovery points are written, then the marker.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import StartupSimulation
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, Work, reads_little
from kidxlib.errors import KidxError, PublishError
from kidxlib.format.checkpoint_files import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LeaderEpochs,
    clean_shutdown,
    offset_checkpoint,
)
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.bins import pack
from kidxlib.indexing.plan import AuxiliaryFiles, Plan
from kidxlib.indexing.source import Target, parse_topics
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.without_catalog import read_and_finish
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.recovery_plan import Level, PlannedLogDir, RecoveryPlan, source_of
from kidxlib.recovery.options import OptionsOfTopic
from kidxlib.run.context import RunContext
from kidxlib.storage.directory import DIRECTORY, Directory, flush_file_systems
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.publisher import Owner, Publisher, sweep
from kidxlib.storage.small_files import CLEAN_SHUTDOWN_FILE, read_leader_epochs
from kidxlib.terminal.progress import begin_phase

#: The epoch that the broker had is not written: with it the controller would take the stop for a clean one, and count
#: on records that may be gone (`ClusterControlManager.registerBroker`, KIP-966).
_UNKNOWN_EPOCH: Final = -1
_ALL_AGES_NS: Final = 2**63

_STARTS: Final = pa.schema([pa.field("start", pa.struct([pa.field("read_bytes", pa.int64())]))])


def make_ready(plan: RecoveryPlan, backend: Backend) -> int:
    """Carry a plan out under the log dirs' locks. Return how many bytes of logs the broker reads as it starts now."""
    for log_dir in plan.log_dirs:
        sweep_leftovers(log_dir.log_dir.path, log_dir.forecasts)
    to_rebuild = {log_dir.log_dir.path: plan.to_rebuild(log_dir) for log_dir in plan.log_dirs}
    for log_dir in plan.log_dirs:
        if forecasts := to_rebuild[log_dir.log_dir.path]:
            rebuild(log_dir, forecasts, backend)
    begin_phase("flushing")
    for log_dir in plan.log_dirs:
        flush(log_dir.log_dir.path, to_rebuild[log_dir.log_dir.path])
    begin_phase("looking at it as the broker will")
    left = [forecast for forecast in plan.forecasts if plan.is_left(forecast)]
    others = [
        forecast for forecast in plan.forecasts if not plan.is_left(forecast) and not forecast.stop.clean_shutdown
    ]
    read_then = sum(forecast.alone.read_bytes for forecast in left) + ensure_same_starts(
        others, plan.level, backend.engine
    )
    for log_dir in plan.log_dirs:
        path, points = log_dir.log_dir.path, log_dir.log_dir.stop.recovery_points
        if forecasts := to_rebuild[path]:
            advance_recovery_points(path, points, forecasts)
    if plan.level is Level.MARKER:
        write_markers([log_dir.path for log_dir in (*plan.broker.clean, *plan.broker.unclean)])
    return read_then


def sweep_leftovers(log_dir: Path, forecasts: Sequence[Forecast]) -> None:
    """Remove what killed runs have staged. Only who holds the lock of the log dir stages there."""
    for name in ("", *(forecast.directory.name for forecast in forecasts)):
        sweep(Directory(str(log_dir), name), _ALL_AGES_NS)


def flush(log_dir: Path, forecasts: Sequence[Forecast]) -> None:
    """Make durable the logs from the first segment on that was read, and all files beside them. A broker takes that for
    granted where it has a recovery point behind them, or a marker.
    """
    for forecast in forecasts:
        for segment in forecast.simulation.segments:
            if forecast.scan_from is not None and segment.base_offset >= forecast.scan_from:
                _flush_file(forecast.directory / segment_file(segment.base_offset, LOG_SUFFIX))
    descriptor = os.open(log_dir, DIRECTORY)
    try:
        flush_file_systems([descriptor])
    except OSError as error:
        raise PublishError(f"{log_dir}: cannot be flushed: {error.strerror}; check this disk") from error
    finally:
        os.close(descriptor)


def _flush_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PublishError(f"{path}: cannot be flushed: {error.strerror}; check this disk") from error


def advance_recovery_points(log_dir: Path, points: Mapping[TopicPartition, int], forecasts: Sequence[Forecast]) -> None:
    """Write that partitions are flushed to the ends of their logs. All other partitions keep their `points`, which the
    checkpoint has now.
    """
    ends = {forecast.topic_partition: forecast.simulation.log_end_offset or 0 for forecast in forecasts}
    _publish(log_dir, RECOVERY_POINT_CHECKPOINT, offset_checkpoint({**points, **ends}))


def write_markers(log_dirs: Sequence[Path]) -> None:
    """Tell the broker that it stopped cleanly, in all log dirs. A log dir in which the broker has left a marker of its
    own comes first: beside markers of the epoch -1 the broker would go by the epoch in its own
    (`LogManager.readBrokerEpochFromCleanShutdownFiles`).
    """
    written: list[Path] = []
    try:
        for log_dir in log_dirs:
            written.append(log_dir)
            _publish(log_dir, CLEAN_SHUTDOWN_FILE, clean_shutdown(_UNKNOWN_EPOCH))
    except PublishError:
        with Publisher() as publisher:
            for log_dir in written:
                publisher.remove(Directory(str(log_dir), ""), CLEAN_SHUTDOWN_FILE)
        raise


def _publish(log_dir: Path, name: str, content: bytes) -> None:
    owner = replace(Owner.of((log_dir / META_PROPERTIES).stat()), mode=0o644)
    with Publisher() as publisher:
        publisher.stage(Directory(str(log_dir), ""), name, content, owner)
        publisher.commit()


def rebuild(planned: PlannedLogDir, forecasts: Sequence[Forecast], backend: Backend) -> None:
    """Read the unflushed segments of some partitions, and write their side files beside them. The caller holds the log
    dir's lock. A file that is right is not touched.
    """
    read_and_finish(_request(planned), _plan(planned.listed, forecasts), backend)
    _publish_epochs(forecasts, _epochs_of_logs(planned, backend))


def _plan(listed: Plan, forecasts: Sequence[Forecast]) -> Plan:
    """The segments to read: each partition's from `scan_from` on."""
    by_partition = {forecast.topic_partition: forecast for forecast in forecasts}
    kept: list[int] = []
    first: list[int] = []
    to_read: list[Forecast] = []
    for number, partition in enumerate(listed.partitions):
        forecast = by_partition.get(partition.directory.topic_partition)
        if forecast is not None and forecast.scan_from is not None:
            kept.append(number)
            first.append(forecast.scan_from)
            to_read.append(forecast)
    part = listed.part(kept, first)
    part.partitions = [
        replace(
            partition,
            recovered=forecast.recovered,
            kept_scans=forecast.kept_scans,
            choice=partition.choice if forecast.headers is None else _without_checksums(partition.choice),
        )
        for partition, forecast in zip(part.partitions, to_read, strict=True)
    ]
    return part


def _without_checksums(choice: OptionsOfTopic) -> OptionsOfTopic:
    of_topic = choice.of_topic
    return replace(
        choice,
        otherwise=replace(choice.otherwise, verify_crc=False),
        of_topic=None if of_topic is None else replace(of_topic, verify_crc=False),
    )


def _request(planned: PlannedLogDir) -> BuildRequest:
    choices = {partition.directory.topic_partition: partition.choice for partition in planned.listed.partitions}
    return BuildRequest(
        context=RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None),
        sources=(source_of(planned.log_dir),),
        target=Target(index_dir=None, by_source=False),
        publish_truncated=False,  # the broker reads a torn segment again
        topics=parse_topics(".*"),
        interval_bytes=None,
        max_index_bytes=None,
        verify_crc=True,
        # Epochs are merged with those that are there: most of them began before what is read.
        auxiliary_files=AuxiliaryFiles(snapshots=True, epochs=False),
        rebuild=False,
        repair=False,
        options_for=lambda partition: choices[partition.topic_partition],
    )


def _epochs_of_logs(planned: PlannedLogDir, backend: Backend) -> Mapping[TopicPartition, list[tuple[int, int]]]:
    """The epochs that begin in what was read, with their offsets, in order."""
    names = ["topic", "partition", "base_offset", "leader_epochs"]
    rows = backend.catalog.tables.read(SEGMENTS, ["source", *names]).sort_by(
        [(name, "ascending") for name in names[:3]]
    )
    by_partition: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["source"] == str(planned.log_dir.path):
            epochs = ((entry["epoch"], entry["start_offset"]) for entry in row["leader_epochs"] or ())
            by_partition[TopicPartition(row["topic"], row["partition"])] += epochs
    return by_partition


def _publish_epochs(forecasts: Sequence[Forecast], of_logs: Mapping[TopicPartition, list[tuple[int, int]]]) -> None:
    """Add the epochs of logs to those that are known, as recovery does (`LogSegment.recover`)."""
    with Publisher() as publisher:
        for forecast in forecasts:
            known = read_leader_epochs(forecast.directory) or LeaderEpochs()
            before = known.entries
            for epoch, start_offset in of_logs.get(forecast.topic_partition, ()):
                if known.is_new_epoch(epoch):
                    known.assign(epoch, start_offset)
            if known.entries != before:
                log_dir, name = str(forecast.directory.parent), forecast.directory.name
                owner = replace(Owner.of(forecast.directory.stat()), mode=0o644)
                publisher.stage(Directory(log_dir, name), LEADER_EPOCH_CHECKPOINT, known.checkpoint(), owner)
        publisher.commit()


@dataclass(frozen=True, slots=True)
class _StartTask:
    """A partition to look at again."""

    forecast: Forecast
    level: Level

    @property
    def log_bytes(self) -> int:
        """0: the start is simulated by what was read of the logs before, so no log is read."""
        return 0

    def with_threads(self, threads: int) -> Self:
        return replace(self)


def ensure_same_starts(forecasts: Sequence[Forecast], level: Level, engine: Engine) -> int:
    """See that the broker comes to the same logs, as partitions are now. Return how many bytes of logs it reads."""
    tasks = [_StartTask(forecast, level) for forecast in forecasts]
    with engine.stopping():
        units, is_small = pack(tasks, engine.cores), reads_little(0, len(tasks))
        staged = engine.run(Work("starts", units, look_at_starts, _STARTS, is_small=is_small))
    read_bytes: int = pc.sum(staged.rows("start")["read_bytes"]).as_py() or 0
    staged.remove()
    return read_bytes


def look_at_starts(tasks: Iterable[_StartTask]) -> Iterator[ItemRows]:
    """In a worker: what the broker reads of some partitions."""
    for task in tasks:
        yield ItemRows(rows=[{"start": {"read_bytes": ensure_same_start(task.forecast, task.level).read_bytes}}])


def ensure_same_start(forecast: Forecast, level: Level) -> StartupSimulation:
    """What the broker does with a partition as it is now, once recovery points or a marker are written: a `KidxError`
    where it would come to another log, or forget producers.
    """
    end = forecast.simulation.log_end_offset
    then = simulate_startup(
        forecast.directory,
        forecast.options,
        clean_shutdown=level is Level.MARKER,
        recovery_point=forecast.stop.recovery_point if end is None else end,
        log_start_offset=forecast.stop.log_start_offset,
        kafka=forecast.stop.kafka,
        recoveries=forecast.recoveries,
    )
    for what, before, now in (
        ("would start at offset", forecast.simulation.log_start_offset, then.log_start_offset),
        ("would end at offset", forecast.simulation.log_end_offset, then.log_end_offset),
        ("would keep bytes", _kept(forecast.simulation), _kept(then)),
        ("would fail of", forecast.simulation.failures, then.failures),
    ):
        if before != now:
            raise KidxError(
                f"{forecast.directory}: by itself the log {what} {before}, and with level {level} {now}; nothing was "
                "written that spares the broker its recovery. Start it by itself, and report this"
            )
    if then.forgets_producers:
        raise KidxError(
            f"{forecast.directory}: no producer snapshot, and the segments do not tell all of its producers; with a "
            f"marker a broker would forget them. Give --level {Level.CHECKPOINT}, which leaves that to it"
        )
    return then


def _kept(simulation: StartupSimulation) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.kept_bytes) for segment in simulation.segments]
