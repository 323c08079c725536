"""Side files of unflushed segments, made as the broker would make them: indexes, producer snapshots, leader epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kidxlib.build.directories import Target
from kidxlib.build.plan import AuxiliaryFiles, Plan
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.build.without_catalog import read_and_finish
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.plan import PlannedLogDir, source_of
from kidxlib.recovery.options import OptionsOfTopic
from kidxlib.run.context import RunContext
from kidxlib.storage.checkpoints import read_leader_epochs
from kidxlib.storage.directory import Directory
from kidxlib.storage.publisher import Owner, Publisher
from kidxlib.terminal.options.sources import parse_topics


def rebuild(planned: PlannedLogDir, forecasts: Sequence[Forecast], backend: Backend) -> None:
    """Read the unflushed segments of some partitions, and write their side files beside them. The caller holds the log
    dir's lock. What is there and right is not touched.

    Args:
        forecasts: of the partitions.

    Raises:
        KidxError: a file cannot be written.
    """
    read_and_finish(_request(planned), _plan(planned.listed, forecasts), backend)
    _publish_epochs(forecasts, _epochs_of_logs(planned, backend))


def _plan(listed: Plan, forecasts: Sequence[Forecast]) -> Plan:
    """What is read: of each partition the segments from one on."""
    by_partition = {each.topic_partition: each for each in forecasts}
    kept: list[int] = []
    first: list[int] = []
    to_read: list[Forecast] = []
    for number, partition in enumerate(listed.partitions):
        each = by_partition.get(partition.directory.topic_partition)
        if each is not None and each.scan_from is not None:
            kept.append(number)
            first.append(each.scan_from)
            to_read.append(each)
    part = listed.part(kept, first)
    part.partitions = [
        replace(
            partition,
            recovered=each.recovered,
            kept_scans=each.kept_scans,
            choice=partition.choice if each.headers is None else _without_checksums(partition.choice),
        )
        for partition, each in zip(part.partitions, to_read, strict=True)
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
    choices = {each.directory.topic_partition: each.choice for each in planned.listed.partitions}
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
    found: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["source"] == str(planned.log_dir.path):
            epochs = ((each["epoch"], each["start_offset"]) for each in row["leader_epochs"] or ())
            found[TopicPartition(row["topic"], row["partition"])] += epochs
    return found


def _publish_epochs(forecasts: Sequence[Forecast], of_logs: Mapping[TopicPartition, list[tuple[int, int]]]) -> None:
    """Add the epochs of logs to those that are known, as recovery does (`LogSegment.recover`)."""
    with Publisher() as publisher:
        for each in forecasts:
            known = read_leader_epochs(each.directory) or LeaderEpochs()
            before = known.entries
            for epoch, start_offset in of_logs.get(each.topic_partition, ()):
                if known.is_new_epoch(epoch):
                    known.assign(epoch, start_offset)
            if known.entries != before:
                log_dir, name = str(each.directory.parent), each.directory.name
                owner = replace(Owner.of(each.directory.stat()), mode=0o644)
                publisher.stage(Directory(log_dir, name), LEADER_EPOCH_CHECKPOINT, known.checkpoint(), owner)
        publisher.commit()
