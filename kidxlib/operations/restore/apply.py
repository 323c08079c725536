"""Carries a restore out: copies logs, makes the log dirs ready for their brokers' first start, and then writes the
metadata. What consumers will get is read of each log once it is there, or once all is ready.

The metadata comes last: until then the new directories are those of an empty cluster, and a node that starts on them
sets the copies aside, and removes none.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.audit.gaps import FoundGaps
from kidxlib.errors import KidxError, WorkersDiedError, describe_error
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import BrokerSettings
from kidxlib.operations.backend import Backend
from kidxlib.operations.recover.broker import StoppedBroker, stopped_broker
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.publish import make_ready
from kidxlib.operations.recover.recovery_plan import Level, RecoveryPlan, log_dirs_with
from kidxlib.operations.restore.contents import Contents, RecordReader, read_contents
from kidxlib.operations.restore.copies import Copies, copy_logs
from kidxlib.operations.restore.formatted import write_metadata
from kidxlib.operations.restore.records import records_of
from kidxlib.operations.restore.restore_plan import PlannedReplica, RestorePlan
from kidxlib.operations.restore.targets import UNFINISHED
from kidxlib.run.known_topics import KnownTopics, TopicsOfSource
from kidxlib.storage.file_copy import Copied
from kidxlib.storage.location import Directory
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.publisher import Owner, Publisher
from kidxlib.storage.scratch import scratch_directory
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase

#: What an end before the metadata leaves.
_LEFT_BEFORE_METADATA: Final = (
    "the sources are as they were, and no metadata was written: empty the new log dirs, format them, and plan again"
)
#: What an interruption leaves amid the metadata, and after it.
_LEFT_AMID_METADATA: Final = (
    "the sources are as they were, and some controllers may have the metadata: empty the new log dirs and the "
    "controllers', format them, and plan again"
)
RESTORED: Final = (
    "all is restored, and what restore-check needs was not printed: go on with the plan's steps, without the check; or "
    "empty the new log dirs, format them, and plan again"
)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has copied, and what consumers will get of it."""

    copied: Copied
    contents: Contents


def apply_restore(plan: RestorePlan, backend: Backend) -> Restored:
    """Carry a plan out that nothing refuses. The caller holds the locks of all log dirs.

    Raises:
        KidxError: it cannot be done to its end, and no metadata was written. Of a controller's disk that fails as it is
            written, the error says which file it is.
    """
    log_dirs = [path for broker in plan.brokers for path in broker.log_dirs]
    with _telling_what_is_left():
        reader = RecordReader(backend.engine)
        copies = _copy_logs(plan, log_dirs, backend, reader)
        contents = read_contents(plan, reader, copies.contents)
        begin_phase("writing the cluster's metadata")
    is_done = False
    with interrupts.telling(lambda: RESTORED if is_done else _LEFT_AMID_METADATA), interrupts.stopping(lambda: None):
        write_metadata(plan.controllers, records_of(plan.cluster, plan.controllers[0].records))
        with Publisher() as publisher:
            for path in log_dirs:
                publisher.remove(Directory(str(path), ""), UNFINISHED)
        is_done = True
    return Restored(copies.copied, contents)


@contextlib.contextmanager
def _telling_what_is_left() -> Iterator[None]:
    """Say of each end before the metadata what the new log dirs are by then."""
    try:
        with interrupts.telling(lambda: _LEFT_BEFORE_METADATA):
            yield
    except WorkersDiedError as error:
        raise KidxError(
            "worker processes die again and again: they crash, or are killed, as happens where memory runs out (see "
            f"dmesg); {_LEFT_BEFORE_METADATA}, with fewer --processes"
        ) from error
    except (KidxError, OSError) as error:
        text = describe_error(error)
        raise KidxError(text if text.endswith(_LEFT_BEFORE_METADATA) else f"{text}; {_LEFT_BEFORE_METADATA}") from error


def _copy_logs(plan: RestorePlan, log_dirs: Sequence[Path], backend: Backend, reader: RecordReader) -> Copies:
    """Copy the logs, and make the new log dirs ready for the first start."""
    by_log_dir: dict[Path, list[PlannedReplica]] = defaultdict(list)
    for replica in plan.copied:
        assert replica.log_dir is not None
        by_log_dir[replica.log_dir].append(replica)
    _publish_log_dir_files({path: {UNFINISHED: f"{plan.id}\n".encode()} for path in log_dirs})
    _publish_log_dir_files({path: _checkpoint_contents(by_log_dir[path]) for path in log_dirs})
    known = _known_topics(plan)
    with scratch_directory() as scans:
        copies = copy_logs(plan, known, backend.engine, reader, scans)
        _make_ready(plan, known, copies.forecasts, backend)
    return copies


def _checkpoint_contents(replicas: Sequence[PlannedReplica]) -> dict[str, bytes]:
    """The checkpoints of a log dir. Recovery points come once all is made ready.

    Log starts and what cleaners have done are as the sources say. The high watermark is the end of each copy: those in
    sync have all that the leader has, and others agree with it as far as they go. A lower one would rise once followers
    fetch, and a group coordinator that loads its log meanwhile misses that: its groups have no offsets until the next
    one commits (`CoordinatorLoaderImpl.load`, `CoordinatorRuntime.CoordinatorContext.transitionTo`; Kafka 4.3 and 4.4).
    """
    offsets: dict[str, dict[TopicPartition, int]] = {
        name: {} for name in (HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, CLEANER_CHECKPOINT)
    }
    for replica in replicas:
        source, partition = replica.source, replica.topic_partition
        assert source is not None
        stop = source.last_stop
        offsets[HIGH_WATERMARK_CHECKPOINT][partition] = source.end_offset
        for name, of_stop in (
            (LOG_START_OFFSET_CHECKPOINT, stop.log_start_offsets),
            (CLEANER_CHECKPOINT, stop.cleaner_offsets),
        ):
            if (offset := of_stop.get(partition)) is not None:
                offsets[name][partition] = min(offset, source.end_offset)
    return {name: offset_checkpoint(of_name) for name, of_name in offsets.items()}


def _make_ready(plan: RestorePlan, known: KnownTopics, forecasts: Mapping[Path, Forecast], backend: Backend) -> None:
    """Make the new log dirs ready for the first start, as `recover --level marker` does."""
    brokers = [stopped_broker(map(str, broker.log_dirs)) for broker in plan.brokers]
    planned = [log_dir for broker in brokers for log_dir in log_dirs_with(broker, known, forecasts)]
    ready = RecoveryPlan(
        broker=StoppedBroker(None, tuple(log_dir.log_dir for log_dir in planned), ()),
        level=Level.MARKER,
        cuts=False,
        accepts_loss=False,
        alone=False,
        everything=False,
        untrusted=None,
        log_dirs=planned,
        refusals=(),
        unknown=(),
        not_named=(),
        without_metadata=(),
        is_only_voter=False,
        absent=(),
        aside=(),
        gaps=FoundGaps(),
        seconds=0.0,
    )
    make_ready(ready, backend)


def _known_topics(plan: RestorePlan) -> KnownTopics:
    """The topics' settings, for the intervals of their indexes: those of surviving metadata."""
    if plan.surviving is None:
        return KnownTopics()
    of_source = TopicsOfSource(plan.surviving.metadata, BrokerSettings(None, None))
    return KnownTopics({str(path): of_source for broker in plan.brokers for path in broker.log_dirs})


def _log_dir_owner(log_dir: Path) -> Owner:
    return Owner.of((log_dir / META_PROPERTIES).stat())


def _publish_log_dir_files(files: Mapping[Path, Mapping[str, bytes]]) -> None:
    with Publisher() as publisher:
        for log_dir, contents in files.items():
            owner = replace(_log_dir_owner(log_dir), mode=0o644)
            for name, content in contents.items():
                publisher.stage(Directory(str(log_dir), ""), name, content, owner)
        publisher.commit()
