"""Copies logs into the new log dirs, some partitions at a time. While the next ones are copied, those that are there
are looked at from memory: what a broker would make of them, and which records consumers get.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from kidxlib.audit.gaps import explains_gaps
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import reads_little
from kidxlib.errors import KidxError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from kidxlib.format.segment_files import LOG_SUFFIX, parse_snapshot, segment_file
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.operations.recover.broker import stopped_broker
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.read_logs import log_path
from kidxlib.operations.recover.recovery_plan import ForecastTask, forecasts_of
from kidxlib.operations.restore.contents import PartitionContents, RecordReader, is_read_alone, restored_logs
from kidxlib.operations.restore.inventory import OldReplica
from kidxlib.operations.restore.restore_plan import PlannedReplica, RestorePlan
from kidxlib.run.index_options import options_of_topic
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.file_copy import Copied, FileCopy, copy_files, make_directory
from kidxlib.storage.location import Directory, location
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_leader_epochs
from kidxlib.storage.opened_log import SMALL_BYTES
from kidxlib.storage.publisher import Owner, Publisher
from kidxlib.terminal.console import begin_phase

#: Files of a partition that are copied besides its logs, and its producer snapshots up to the end of the log. All
#: others are made anew of the logs.
_FILES_COPIED_BESIDE_LOGS: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
#: A group of partitions is copied, and then looked at, once it has so many files or bytes.
_GROUP_FILES: Final = 512
_GROUP_BYTES_A_CORE: Final = 128 * 1024 * 1024
#: Facts of `Recovery` that are in no part of a log larger than in the log.
_GROWING: Final = ("batches", "max_timestamp_ms", "highest_producer_id", "transactional_batches")


@dataclass(frozen=True, slots=True)
class Copies:
    """
    Attributes:
        forecasts: what a broker would make of each copy, by its directory.
        contents: what consumers will get of partitions, as far as the logs in the log dirs alone tell it.
    """

    copied: Copied
    forecasts: Mapping[Path, Forecast]
    contents: Sequence[PartitionContents]


def copy_logs(plan: RestorePlan, known: KnownTopics, engine: Engine, reader: RecordReader, scans: Path) -> Copies:
    """Copy all logs of a plan into log dirs whose checkpoints are written, and look at the copies.

    Args:
        known: the settings of topics; the new log dirs are its sources.
        scans: an empty directory for the scans of logs.

    Raises:
        KidxError: a file cannot be copied, or a copy is not what was planned.
    """
    tasks = _ForecastTasks(plan, known, scans)
    alone = [replica for replica in plan.copied if is_read_alone(replica)]
    read_bytes = sum(_source(replica).kept_bytes for replica in alone)
    before = engine.done()
    begin_phase(
        "copying, and reading the copies",
        done=lambda: engine.done() - before,
        segments=sum(len(_logs(replica)) for replica in plan.copied) + len(alone),
        log_bytes=plan.copied_bytes + read_bytes,
    )
    is_small, group_bytes = reads_little(read_bytes, len(alone)), _GROUP_BYTES_A_CORE * engine.cores
    total, forecasts, contents = Copied(), dict[Path, Forecast](), list[PartitionContents]()
    with contextlib.closing(copy_files(_groups(plan.copied, group_bytes), engine.cores)) as groups:
        for number, (replicas, copied) in enumerate(groups):
            total += copied
            _cut_epochs(replicas)
            of_group = forecasts_of([tasks.of(replica) for replica in replicas], engine, f"copies-{number}")
            for replica, forecast in zip(replicas, of_group, strict=True):
                _ensure_as_planned(forecast, replica)
                forecasts[forecast.directory] = forecast
            logs = restored_logs(filter(is_read_alone, replicas), engine.cores)
            contents += reader.read(logs, f"contents-{number}", is_small=is_small)
    return Copies(total, forecasts, contents)


class _ForecastTasks:
    """Makes the tasks to see what brokers would make of copies."""

    def __init__(self, plan: RestorePlan, known: KnownTopics, scans: Path) -> None:
        self._known, self._scans = known, scans
        self._numbers = itertools.count()
        self._policy_of = known.policy_of(
            (str(replica.log_dir), replica.topic_partition.topic, _source(replica).topic_id) for replica in plan.copied
        )
        brokers = (stopped_broker(map(str, broker.log_dirs)) for broker in plan.brokers)
        self._stops = {log_dir.path: log_dir.stop for broker in brokers for log_dir in broker.log_dirs}

    def of(self, replica: PlannedReplica) -> ForecastTask:
        log_dir, partition, logs = replica.log_dir, replica.topic_partition, _logs(replica)
        assert log_dir is not None
        source = Source(str(log_dir), location(str(log_dir)))
        directory = PartitionDirectory(source, partition, source.path / partition.directory)
        choice = options_of_topic(self._known, directory, interval_bytes=None, max_index_bytes=None)
        return ForecastTask(
            number=next(self._numbers),
            topic_partition=partition,
            directory=_directory(replica),
            options=choice.of_id(_source(replica).topic_id),
            stop=self._stops[log_dir].of(partition),
            everything=False,
            trusts=False,
            segments=len(logs),
            log_bytes=sum(logs.values()),
            scans=self._scans,
            is_compacted=explains_gaps(partition.topic, self._policy_of(source.name, partition.topic)),
            small=tuple(base_offset for base_offset, size in logs.items() if size <= SMALL_BYTES),
        )


def _source(replica: PlannedReplica) -> OldReplica:
    assert replica.source is not None
    return replica.source


def _directory(replica: PlannedReplica) -> Path:
    assert replica.log_dir is not None
    return replica.log_dir / replica.topic_partition.directory


def _logs(replica: PlannedReplica) -> dict[int, int]:
    """The bytes that are copied of each log, up to its last whole batch, by base offset."""
    segments = _source(replica).forecast.simulation.segments
    return {each.base_offset: each.kept_bytes for each in segments if each.action is not StartupAction.DELETE}


def _groups(
    replicas: Iterable[PlannedReplica], group_bytes: int
) -> Iterator[tuple[list[PlannedReplica], list[FileCopy]]]:
    """Replicas that are copied together, and their files."""
    group, files = list[PlannedReplica](), list[FileCopy]()
    for replica in replicas:
        group.append(replica)
        files += _file_copies(replica)
        if len(files) >= _GROUP_FILES or sum(file.size for file in files) >= group_bytes:
            yield group, files
            group, files = [], []
    if group:
        yield group, files


def _file_copies(replica: PlannedReplica) -> Iterator[FileCopy]:
    """The files to copy; their directory is made first."""
    source, directory = _source(replica), _directory(replica)
    owner = Owner.of((directory.parent / META_PROPERTIES).stat())
    make_directory(directory, source.directory, owner)
    for base_offset, size in _logs(replica).items():
        name = segment_file(base_offset, LOG_SUFFIX)
        yield FileCopy(source.directory / name, directory / name, size, owner)
    with os.scandir(source.directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            offset = parse_snapshot(entry.name)
            if entry.name in _FILES_COPIED_BESIDE_LOGS or (offset is not None and offset <= source.end_offset):
                yield FileCopy(source.directory / entry.name, directory / entry.name, entry.stat().st_size, owner)


def _cut_epochs(replicas: Iterable[PlannedReplica]) -> None:
    """Take leader epochs away that begin behind the ends of the copies, as a start does
    (`LeaderEpochFileCache.truncateFromEndAsyncFlush`).
    """
    with Publisher() as publisher:
        for replica in replicas:
            path = _directory(replica)
            epochs = read_leader_epochs(path)
            entries = () if epochs is None else epochs.entries
            kept = [entry for entry in entries if entry.start_offset < _source(replica).end_offset]
            if len(kept) < len(entries):
                directory, owner = Directory(str(path.parent), path.name), replace(Owner.of(path.stat()), mode=0o644)
                publisher.stage(directory, LEADER_EPOCH_CHECKPOINT, LeaderEpochs(kept).checkpoint(), owner)
        publisher.commit()


def _ensure_as_planned(forecast: Forecast, replica: PlannedReplica) -> None:
    """See that a copy is what its source is by the plan, which may have that from a file (`ScanCache`)."""
    source, simulation = _source(replica), forecast.simulation
    expected = (source.start_offset, source.end_offset, source.kept_bytes)
    kept = sum(segment.kept_bytes for segment in simulation.segments)
    now = (simulation.log_start_offset or 0, simulation.log_end_offset or 0, kept)
    if now != expected or forecast.dropped or forecast.refusals:
        raise KidxError(
            f"{forecast.directory}: expected a copy with (start, end, bytes) {expected}, and a broker would make {now} "
            "of it"
        )
    read, planned = _logs_found(forecast), _logs_found(source.forecast)
    for base_offset in sorted(read.keys() & planned.keys()):
        found, of_source = read[base_offset], planned[base_offset]
        if (name := _first_difference(found, of_source)) is not None:
            raise KidxError(
                f"{log_path(forecast.directory, base_offset)}: {name} is {found[name]}, expected "
                f"{of_source[name]}, as the plan has it of the source; plan again, and if a --scan-cache was given, "
                "without it"
            )


def _first_difference(copy: Mapping[str, Any], of_source: Mapping[str, Any]) -> str | None:
    """The first fact of a copied log that the plan rules out; None: there is none. Of a copy that ends earlier than its
    source, the plan knows the epochs, and the most that it may have.
    """
    if copy["log_bytes"] == of_source["log_bytes"]:
        return next((name for name in copy if copy[name] != of_source[name]), None)
    if copy["epochs"] != of_source["epochs"]:
        return "epochs"
    known = (name for name in _GROWING if copy[name] is not None and of_source[name] is not None)
    return next((name for name in known if copy[name] > of_source[name]), None)


def _logs_found(forecast: Forecast) -> dict[int, dict[str, Any]]:
    """What was found in logs that were read as a whole, by base offset."""
    return {
        log.base_offset: {**asdict(forecast.recoveries[log.base_offset]), "epochs": log.epochs}
        for log in forecast.seen.logs
        if log.is_read and log.base_offset in forecast.recoveries
    }
