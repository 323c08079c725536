"""Makes log dirs ready for their broker's next start.

The last steps of a recovery (`make_ready`), in this order: side files of unflushed segments (indexes, producer
snapshots, leader epochs) are made as the broker would make them; all that was written becomes durable; the start is
simulated again on what is there now; recovery points are written, then the marker. Each worker does the first three,
some partitions at a time; recovery points wait for all workers.

Before that, with `--truncate`, logs are cut where the broker would cut them (`cut_planned_logs`): a copy is kept of
all that goes (`KeptCopies`), later segments are dropped, then the log is cut.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import StartupAction, StartupSimulation
from kidxlib.catalog.segments import IntervalSource
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, Work, reads_little
from kidxlib.errors import KidxError, PublishError, UsageError
from kidxlib.format.checkpoint_files import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
    LeaderEpochs,
    clean_shutdown,
    offset_checkpoint,
)
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
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.bins import into_bins
from kidxlib.indexing.finish_partition import UnfinishedSegment, fold_and_publish
from kidxlib.indexing.plan import BuildTask, PartitionTask
from kidxlib.indexing.segments import build_in_passes
from kidxlib.indexing.source import SourceLog
from kidxlib.operations.backend import Backend
from kidxlib.operations.recover.forecast import Forecast, forecast_partition
from kidxlib.operations.recover.log_cutter import cut_log
from kidxlib.operations.recover.read_logs import LogReader, log_path
from kidxlib.operations.recover.recovery_plan import RecoverLevel, RecoveryPlan
from kidxlib.storage.location import Directory, flush_file_system_of
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, is_broker_log_dir, read_leader_epochs
from kidxlib.storage.publisher import FileOwner, Publisher, publish_log_dir_files, sweep_staging_files
from kidxlib.storage.remover import Remover
from kidxlib.terminal.console import begin_phase

#: A log goes before its side files, which are orphans then. A broker would read a log without an index.
_FILES_OF_SEGMENT: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_PIECE_BYTES: Final = 1024 * 1024
#: The suffix of a copy that is not whole yet.
_PART_SUFFIX: Final = ".part"
#: The epoch that the broker had is not written: with it the controller would take the stop for a clean one, and count
#: on records that may be gone (`ClusterControlManager.registerBroker`, KIP-966).
_UNKNOWN_EPOCH: Final = -1
_ALL_AGES_NS: Final = 2**63
_START_RESULTS: Final = pa.schema([pa.field("start", pa.struct([pa.field("read_bytes", pa.int64())]))])


def make_ready(plan: RecoveryPlan, backend: Backend) -> int:
    """Carry a plan out under the log dirs' locks. Return how many bytes of logs the broker reads as it starts now."""
    to_rebuild = {log_dir: plan.to_rebuild(log_dir) for log_dir in plan.by_log_dir}
    rebuilt = list(itertools.chain.from_iterable(to_rebuild.values()))
    names, left = {forecast.directory for forecast in rebuilt}, list(filter(plan.is_left, plan.forecasts))
    others = [
        forecast
        for forecast in plan.forecasts
        if forecast.directory not in names and not plan.is_left(forecast) and not forecast.stop.clean_shutdown
    ]
    in_workers = {*names, *(forecast.directory for forecast in others)}
    for log_dir, forecasts in plan.by_log_dir.items():
        rest = [forecast for forecast in forecasts if forecast.directory not in in_workers]
        _sweep_leftovers(log_dir, ["", *(forecast.directory.name for forecast in rest)])
    begin_phase("rebuilding, and looking at it as the broker will")
    try:
        read_then = rebuild_and_look(rebuilt, others, plan.level, backend.engine)
    except BaseException:  # interrupted, or the disk is full: no offset index waits in a broker's directory
        for log_dir, forecasts in plan.by_log_dir.items():
            _sweep_leftovers(log_dir, ["", *(forecast.directory.name for forecast in forecasts)])
        raise
    read_then += sum(forecast.broker_start.read_bytes for forecast in left)
    for stopped in plan.broker.log_dirs:
        if forecasts := to_rebuild[stopped.path]:
            _advance_recovery_points(stopped.path, stopped.stop.recovery_points, forecasts)
    if plan.level is RecoverLevel.MARKER:
        _write_markers([log_dir.path for log_dir in (*plan.broker.clean, *plan.broker.unclean)])
    return read_then


def _sweep_leftovers(log_dir: Path, names: Iterable[str]) -> None:
    """Remove what killed runs have staged in directories of a log dir, of these names (empty: itself). Only who holds
    the lock of the log dir stages there.
    """
    for name in names:
        sweep_staging_files(Directory(str(log_dir), name), _ALL_AGES_NS)


def _flush(log_dir: Path, forecasts: Sequence[Forecast]) -> None:
    """Make durable the logs from the first segment on that was read, and all files beside them. A broker takes that for
    granted where it has a recovery point behind them, or a marker.
    """
    for forecast in forecasts:
        for segment in forecast.to_scan:
            _flush_file(log_path(forecast.directory, segment.base_offset))
    flush_file_system_of(log_dir)


def _flush_file(path: str) -> None:
    try:
        _fsync(path, os.O_NOFOLLOW)
    except OSError as error:
        raise PublishError(f"{path}: cannot be flushed: {error.strerror}; check this disk") from error


def _advance_recovery_points(
    log_dir: Path, points: Mapping[TopicPartition, int], forecasts: Sequence[Forecast]
) -> None:
    """Write that partitions are flushed to the ends of their logs. All other partitions keep their `points`, which the
    checkpoint has now.
    """
    ends = {forecast.topic_partition: forecast.simulation.log_end_offset or 0 for forecast in forecasts}
    publish_log_dir_files({log_dir: {RECOVERY_POINT_CHECKPOINT: offset_checkpoint({**points, **ends})}})


def _write_markers(log_dirs: Sequence[Path]) -> None:
    """Tell the broker that it stopped cleanly, in all log dirs. A log dir in which the broker has left a marker of its
    own comes first: beside markers of the epoch -1 the broker would go by the epoch in its own
    (`LogManager.readBrokerEpochFromCleanShutdownFiles`).
    """
    written: list[Path] = []
    try:
        for log_dir in log_dirs:
            written.append(log_dir)
            publish_log_dir_files({log_dir: {CLEAN_SHUTDOWN_FILE: clean_shutdown(_UNKNOWN_EPOCH)}})
    except PublishError:
        with Publisher() as publisher:
            for log_dir in written:
                publisher.remove(Directory(str(log_dir), ""), CLEAN_SHUTDOWN_FILE)
        raise


def rebuild_and_look(
    rebuilt: Sequence[Forecast], others: Sequence[Forecast], level: RecoverLevel, engine: Engine
) -> int:
    """Rebuild partitions, make them durable, and see that the broker comes to the same logs, also of `others`. Return
    how many bytes of logs it reads of all. The caller holds the log dirs' locks.
    """
    scanned_together = sorted(rebuilt, key=lambda each: ("", 0) if each.kept_scans is None else each.kept_scans.begin)
    tasks = [
        *(_ReadyTask(forecast, level, is_rebuilt=True) for forecast in scanned_together),
        *(_ReadyTask(forecast, level, is_rebuilt=False) for forecast in others),
    ]
    with engine.stopping():
        units, is_small = into_bins(tasks, engine.cores), reads_little(0, len(tasks))
        staged = engine.run(Work("starts", units, make_partitions_ready, _START_RESULTS, is_small=is_small, maps=True))
    read_bytes: int = pc.sum(staged.rows("start")["read_bytes"]).as_py() or 0
    staged.remove()
    return read_bytes


@dataclass(frozen=True, slots=True)
class _ReadyTask:
    """A partition to rebuild, or to look at again only."""

    forecast: Forecast
    level: RecoverLevel
    is_rebuilt: bool

    @property
    def log_bytes(self) -> int:
        """0: all was read for the forecast, and the scans are kept."""
        return 0

    def with_threads(self, threads: int) -> Self:
        return replace(self)


def make_partitions_ready(tasks: Iterable[_ReadyTask], use_mmap: bool) -> Iterator[ItemRows]:
    """In a worker: what the broker reads of some partitions, once these are rebuilt and durable."""
    begun = list(tasks)
    for task in begun:
        _sweep_leftovers(task.forecast.directory.parent, [task.forecast.directory.name])
    _rebuild([task.forecast for task in begun if task.is_rebuilt], use_mmap)
    by_log_dir: dict[Path, list[Forecast]] = defaultdict(list)
    for task in begun:
        by_log_dir[task.forecast.directory.parent] += [task.forecast] if task.is_rebuilt else []
    for log_dir, forecasts in by_log_dir.items():
        _flush(log_dir, forecasts)
    read_bytes = sum(_ensure_same_start(task.forecast, task.level).read_bytes for task in begun)
    yield ItemRows(rows=[{"start": {"read_bytes": read_bytes}}])


def _rebuild(forecasts: Sequence[Forecast], use_mmap: bool) -> None:
    """Write the side files of unflushed segments beside them, by the scans of the forecasts. A log whose scan was not
    kept, or that has changed since, is read again. A file that is right is not touched.
    """
    # By directory: of a restore, the log dirs of several brokers may have replicas of one partition.
    epochs: dict[Directory, list[tuple[int, int]]] = defaultdict(list)

    def scanned(built: Iterable[tuple[Directory, UnfinishedSegment]]) -> Iterator[UnfinishedSegment]:
        for directory, segment in built:
            epochs[directory] += segment.scanned.leader_epochs[["epoch", "start_offset"]].tolist()
            yield segment

    to_read = [forecast for forecast in forecasts if forecast.scan_from is not None]
    tasks = {forecast.files: _partition_task(forecast) for forecast in to_read}
    built = (
        (task.index_directory, segment)
        for together in build_in_passes(itertools.chain.from_iterable(map(_build_tasks, to_read)), use_mmap)
        for task, segment in zip(together.tasks, UnfinishedSegment.of_each(together), strict=True)
    )
    by_partition = itertools.groupby(built, lambda segment: segment[0])
    for _ in fold_and_publish((tasks[directory], scanned(of_partition)) for directory, of_partition in by_partition):
        pass
    _publish_epochs(to_read, epochs)


def _build_tasks(forecast: Forecast) -> Iterator[BuildTask]:
    for segment in forecast.to_scan:
        yield BuildTask(
            segment=SourceLog(
                source="",
                topic_partition=forecast.topic_partition,
                base_offset=segment.base_offset,
                path=log_path(forecast.directory, segment.base_offset),
                version=None,
                active=segment is forecast.simulation.segments[-1],
            ),
            options=forecast.options,
            index_directory=forecast.files,
            topic_id=None,
            interval_source=IntervalSource.SETTINGS,
            in_place=True,
            publish_truncated=False,  # the broker reads a torn segment again
            kept_scans=forecast.kept_scans,
        )


def _partition_task(forecast: Forecast) -> PartitionTask:
    return PartitionTask(
        key=("", forecast.topic_partition.topic, forecast.topic_partition.partition),
        segments_directory=forecast.files,
        index_directory=forecast.files,
        in_place=True,
        snapshots=True,
        epochs=False,  # they are merged with those that are there: most of them began before what is read
        recovered=forecast.recovered,
    )


def _publish_epochs(forecasts: Sequence[Forecast], of_logs: Mapping[Directory, list[tuple[int, int]]]) -> None:
    """Add the epochs of logs to those that are known, as recovery does (`LogSegment.recover`)."""
    with Publisher() as publisher:
        for forecast in forecasts:
            known = read_leader_epochs(forecast.directory) or LeaderEpochs()
            before = known.entries
            known.assign_new(EpochEntry(*entry) for entry in of_logs.get(forecast.files, ()))
            if known.entries != before:
                owner = replace(FileOwner.of(forecast.directory.stat()), mode=0o644)
                publisher.stage(forecast.files, LEADER_EPOCH_CHECKPOINT, known.checkpoint(), owner)
        publisher.commit()


def _ensure_same_start(forecast: Forecast, level: RecoverLevel) -> StartupSimulation:
    """What the broker does with a partition as it is now, once recovery points or a marker are written: a `KidxError`
    where it would come to another log, or forget producers.
    """
    end = forecast.simulation.log_end_offset
    then = simulate_startup(
        forecast.directory,
        forecast.options,
        clean_shutdown=level is RecoverLevel.MARKER,
        recovery_point=forecast.stop.recovery_point if end is None else end,
        log_start_offset=forecast.stop.log_start_offset,
        kafka=forecast.stop.kafka,
        recoveries=forecast.recoveries,
    )
    for what, before, now in (
        ("would start at offset", forecast.simulation.log_start_offset, then.log_start_offset),
        ("would end at offset", forecast.simulation.log_end_offset, then.log_end_offset),
        ("would keep bytes", _kept_bytes_by_segment(forecast.simulation), _kept_bytes_by_segment(then)),
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
            f"marker a broker would forget them. Give --level {RecoverLevel.CHECKPOINT}, which leaves that to it"
        )
    return then


def _kept_bytes_by_segment(simulation: StartupSimulation) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.kept_bytes) for segment in simulation.segments]


def cut_planned_logs(plan: RecoveryPlan, copies: KeptCopies) -> RecoveryPlan:
    """Begin to make log dirs ready: cut the logs that a plan cuts, and keep a copy of all that goes, here or as the
    broker starts. The caller holds the log dirs' locks. Return the plan of what is there now, of which nothing is to be
    cut.
    """
    begin_phase("cutting")
    for forecast in plan.forecasts:
        if plan.is_cut(forecast) or plan.is_left(forecast):
            _keep_what_is_cut(forecast, copies)
    to_cut = list(filter(plan.is_cut, plan.forecasts))
    _truncate_logs(to_cut)
    now = {forecast.directory: _forecast_once_cut(forecast) for forecast in to_cut}
    by_log_dir = {
        log_dir: [now.get(forecast.directory, forecast) for forecast in forecasts]
        for log_dir, forecasts in plan.by_log_dir.items()
    }
    return replace(plan, by_log_dir=by_log_dir)


def _forecast_once_cut(forecast: Forecast) -> Forecast:
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
    return now


def _keep_what_is_cut(forecast: Forecast, copies: KeptCopies) -> None:
    for name in _dropped_files(forecast):
        copies.keep(forecast.directory / name, f"{forecast.directory.name}/{name}")
    for name, _, to in _logs_to_cut(forecast):
        copies.keep(forecast.directory / name, f"{forecast.directory.name}/{name}.from-{to}", to)


def _truncate_logs(forecasts: Sequence[Forecast]) -> None:
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
    kept = [(segment.base_offset, segment.kept_bytes) for segment in then.left]
    made = _kept_bytes_by_segment(now)
    if after.dropped or after.refusals or made != kept or now.log_end_offset != then.log_end_offset:
        raise KidxError(
            f"{before.directory}: cut as the broker would cut it, it is to end at offset {then.log_end_offset} with "
            f"{kept}, and a broker would make {made} of it, up to offset {now.log_end_offset}; what was cut is in the "
            "directory of --keep. Start the broker by itself, and report this"
        )


def _logs_to_cut(forecast: Forecast) -> Iterator[tuple[str, int, int]]:
    """The logs to cut: name, bytes before and after."""
    for segment in forecast.simulation.left:
        if segment.lost_bytes:
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


class KeptCopies:
    """A directory for copies, made with the first one. A file in it is never overwritten."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(os.path.realpath(directory))
        for above in (self.directory, *self.directory.parents):
            if is_broker_log_dir(above):
                raise UsageError(f"--keep {directory}: in {above}, a broker's log dir; name a directory outside of it")

    def keep(self, file: Path, name: str, start: int = 0) -> None:
        """Before a log dir is made ready, copy what goes: a file from the byte `start` on, durably, unless such a copy
        is there. Holes stay holes.

        The copy's name is a path below the directory. Where other bytes have that name, a number follows.
        """
        copy, others = self.directory / name, 0
        try:
            with file.open("rb") as source:
                while copy.exists() and not _is_copy_of_end(copy, source, start):
                    others += 1
                    copy = self.directory / f"{name}.{others}"
                if not copy.exists():
                    _write_copy(copy, source, start)
                _fsync(copy, 0)
            self._flush_directories(copy.parent)
        except OSError as error:
            raise PublishError(
                f"{copy}: cannot keep what would be cut off of {file}: {error.strerror}; nothing was cut"
            ) from error

    def _flush_directories(self, innermost: Path) -> None:
        directory = innermost
        while directory != self.directory.parent:
            _fsync(directory, os.O_DIRECTORY)
            directory = directory.parent
        _fsync(directory, os.O_DIRECTORY)


def _write_copy(copy: Path, source: BinaryIO, start: int) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(f"{copy.name}{_PART_SUFFIX}")
    part.unlink(missing_ok=True)
    owner = FileOwner.of(os.fstat(source.fileno()))
    with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "r+b") as file:
        os.fchmod(file.fileno(), owner.mode)
        with contextlib.suppress(PermissionError):  # only root gives files away; the copy is the caller's own then
            os.fchown(file.fileno(), owner.user, owner.group)
        for piece in _read_pieces(source, start):
            if any(piece):
                file.write(piece)
            else:
                file.seek(len(piece), os.SEEK_CUR)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    if not _is_copy_of_end(part, source, start):
        raise PublishError(f"{part}: does not read back as it was written: check this disk; nothing was cut")
    os.replace(part, copy)


def _is_copy_of_end(copy: Path, source: BinaryIO, start: int) -> bool:
    if copy.stat().st_size != os.fstat(source.fileno()).st_size - start:
        return False
    with copy.open("rb") as file:
        return all(
            ours == theirs for ours, theirs in zip(_read_pieces(file, 0), _read_pieces(source, start), strict=True)
        )


def _read_pieces(file: BinaryIO, start: int) -> Iterator[bytes]:
    file.seek(start)
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _fsync(path: str | Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
