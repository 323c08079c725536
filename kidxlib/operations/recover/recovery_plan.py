"""The plan of a recovery: what the broker would do by itself, what is done in its place, and what is refused. It is
made of the forecasts of all partitions (`forecast.forecasts_of`).
"""

from __future__ import annotations

import enum
import itertools
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.gaps import FACTS, FoundGaps, GapEvidence, PolicyOf, explains_gaps, gaps_in
from kidxlib.audit.startup.absent import AbsentPartition, ListedLogDir, absent_partitions
from kidxlib.audit.startup.directories import DirectoryAside, directories_aside, lines_of_directories_aside
from kidxlib.audit.startup.last_stop import PartitionStop, checkpoints_not_compared, lost_checkpoints
from kidxlib.audit.startup.meta_properties import directory_ids_of
from kidxlib.audit.startup.metadata_log import ONLY_VOTER_WITHOUT_METADATA, STARTS_WITHOUT_METADATA
from kidxlib.catalog.matching import numbers_in
from kidxlib.catalog.partitions import named_key
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.errors import KidxError
from kidxlib.format.topic_partition import METADATA_TOPIC, PartitionKey, TopicPartition
from kidxlib.indexing.plan import Plan, add_segments, find_partitions
from kidxlib.indexing.source import ANY_TOPIC, IndexPlace
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.recover.forecast import Forecast, ForecastDrop, ForecastTask, forecasts_of
from kidxlib.operations.recover.read_logs import EarlierRead, FoundBefore, log_path
from kidxlib.operations.recover.stopped_broker import Refusal, StoppedBroker, StoppedLogDir, log_dir_as_source
from kidxlib.recovery.options import RecoverOptions
from kidxlib.run.index_options import options_of_topic
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.log_dirs_at_hand import without_metadata_log
from kidxlib.storage.location import Location, location
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.opened_log import SMALL_BYTES
from kidxlib.terminal.console import begin_phase


class RecoverLevel(enum.StrEnum):
    """How much of its recovery a broker is spared."""

    CHECKPOINT = "checkpoint"  # recovery points are advanced: it reads the last segment of each partition again
    MARKER = "marker"  # it finds a clean shutdown, and reads nothing again


@dataclass(frozen=True, slots=True)
class PlannedAbsentPartition:
    """A partition that a log dir had, and whose directory is in none.

    Attributes:
        stop: what the log dir's checkpoints say of it.
        is_only_copy: neither has another node one, nor does a checkpoint say that the partition was empty.
    """

    found: AbsentPartition
    stop: PartitionStop
    is_only_copy: bool

    @property
    def directory(self) -> Path:
        """Where the partition would be."""
        return Path(str(self.found.directory))

    @property
    def is_lost(self) -> bool:
        """Whether records are gone with the partition, as far as anybody knows."""
        return not self.found.aside and (self.stop.known_end > 0 or self.is_only_copy)

    @property
    def why(self) -> str:
        had = f", and had offsets up to {self.stop.known_end - 1}" if self.stop.known_end else ""
        only = "; no other node has a replica, and no checkpoint tells how far it went" if self.is_only_copy else ""
        return f"no such directory; {self.found.known_to} names it{had}{only}; a broker that starts makes an empty log"

    @property
    def text(self) -> str:
        """The line of a recovery plan on the absent partition."""
        return f"{self.directory}: {self.why}"


@dataclass(frozen=True, slots=True)
class LossInPlan:
    """Offsets of a partition that are gone before the broker starts."""

    directory: Path
    offsets: range
    why: str

    @property
    def text(self) -> str:
        """The line of a recovery plan that says what is gone."""
        return f"{self.directory}: offsets {self.offsets.start} to {self.offsets.stop - 1}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What a recovery would do; by default of log dirs in which all is whole, and without options.

    Attributes:
        by_log_dir: a forecast for each partition that has a segment, by the path of its log dir. Log dirs with a marker
            are looked at and left as they are.
        refusals: why the plan cannot be applied, by the log dirs as a whole; `refusals_to_apply` has all reasons.
        unknown: what is not known of the broker, so that the plan may not tell all.
        not_named: ids of log dirs that the broker had, and that nobody has named.
        without_metadata: what becomes of a node that has lost its copy of the cluster's metadata, where nobody refuses.
        is_only_voter: such a node is the quorum's only voter, so that nobody else has a copy.
        absent: partitions whose directories are not there.
        aside: directories that a broker has set aside, deletes or moves: kidx looks at nothing in them.
        gaps: offsets between logs that are in none.
        cuts: logs are cut where the broker would cut them; else the broker does that.
        accepts_loss: partitions of which the broker drops records are left to it.
        alone: somebody says that the broker's other log dirs are lost.
        everything: all segments are looked at as if nothing had been flushed.
        untrusted: why more than headers is read, by log dir; None where nobody wants to trust any log dir. Else a note
            says at the end that all is right, so all is read that the broker would read, also what it reads again.
        seconds: how long the plan took.
    """

    broker: StoppedBroker
    level: RecoverLevel
    by_log_dir: Mapping[Path, Sequence[Forecast]]
    cuts: bool = False
    accepts_loss: bool = False
    alone: bool = False
    everything: bool = False
    untrusted: Mapping[Path, str] | None = None
    refusals: Sequence[Refusal] = ()
    unknown: Sequence[str] = ()
    not_named: Sequence[str] = ()
    without_metadata: Sequence[str] = ()
    is_only_voter: bool = False
    absent: Sequence[PlannedAbsentPartition] = ()
    aside: Sequence[DirectoryAside] = ()
    gaps: FoundGaps = field(default_factory=FoundGaps)
    seconds: float = 0.0

    @property
    def forecasts(self) -> list[Forecast]:
        return list(itertools.chain.from_iterable(self.by_log_dir.values()))

    @property
    def dropped(self) -> list[tuple[Forecast, ForecastDrop]]:
        return [(forecast, dropped) for forecast in self.forecasts for dropped in forecast.dropped]

    @property
    def drops(self) -> bool:
        """Whether something goes as the broker starts, or is missing."""
        return bool(self.dropped or self.absent) or any(
            forecast.is_empty or forecast.ends_early or self.is_left(forecast) for forecast in self.forecasts
        )

    @property
    def lost_epochs(self) -> list[tuple[Forecast, Finding]]:
        """What is wrong with leader epochs once the broker has started."""
        return [
            (forecast, forecast.seen.epochs_finding)
            for forecast in self.forecasts
            if forecast.seen.epochs_finding is not None
        ]

    @property
    def first_logs_not_known(self) -> list[tuple[Forecast, range]]:
        """The offsets before the first logs of partitions, that are in a bucket or were lost. Partitions of log dirs
        that write down log starts are left out: where one is written down, it may be in a bucket.
        """
        return [
            (forecast, forecast.seen.perhaps_lost_first)
            for log_dir in self.broker.log_dirs
            if not log_dir.stop.knows_log_starts
            for forecast in self.by_log_dir[log_dir.path]
            if forecast.seen.perhaps_lost_first
        ]

    @property
    def lacks(self) -> bool:
        """Whether something is missing that no start brings back, and that keeps no broker from starting."""
        return bool(self.gaps.lost or self.lost_epochs or self.lost_checkpoints or self.shorter_logs)

    @property
    def shorter_logs(self) -> list[tuple[Forecast, Finding]]:
        """Last logs that lack what their indexes had, where no other node has a replica and no checkpoint tells."""
        return [
            (forecast, finding)
            for forecast, finding in self._logs_shorter_than_index
            if finding.verdict is Verdict.BROKEN
        ]

    @property
    def _logs_shorter_than_index(self) -> list[tuple[Forecast, Finding]]:
        findings = (
            (forecast, forecast.seen.shorter_than_index) for forecast in self.forecasts if not forecast.ends_early
        )
        return [(forecast, finding) for forecast, finding in findings if finding is not None]

    @property
    def false_markers(self) -> list[str]:
        """Why markers of a clean stop are not to be believed."""
        stops = (log_dir.stop for log_dir in self.broker.log_dirs)
        return [str(stop.marker_is_false) for stop in stops if stop.marker_is_false is not None]

    @property
    def not_compared(self) -> list[str]:
        """What could not be compared with checkpoints."""
        return list(checkpoints_not_compared(self._partition_stops))

    @property
    def lost_checkpoints(self) -> list[str]:
        """Which checkpoints are lost, or lines of them."""
        return list(lost_checkpoints(self._partition_stops))

    @property
    def _partition_stops(self) -> Iterator[tuple[Path, TopicPartition, PartitionStop]]:
        for log_dir, forecasts in self.by_log_dir.items():
            yield from ((log_dir, forecast.topic_partition, forecast.stop) for forecast in forecasts)

    @property
    def doubts(self) -> bool:
        """Whether a warning says what may be lost as the broker starts."""
        return bool(
            self.false_markers
            or self.is_only_voter
            or any(log_dir.stop.lost_metadata for log_dir in self.broker.log_dirs)
        )

    @property
    def accepted(self) -> list[str]:
        """What is lost and accepted (--accept-loss), where no offsets are known."""
        lost = [partition.text for partition in self.absent if partition.is_lost and not partition.stop.known_end]
        return [*(refusal.text for refusal in self.refusals if refusal.is_loss), *lost] if self.accepts_loss else []

    @property
    def noted(self) -> list[str]:
        """What becomes of partitions of which nothing is known to be lost, and of directories set aside."""
        empty = [forecast for forecast in self.forecasts if forecast.is_empty and not forecast.stop.known_end]
        return [
            *(f"{forecast.directory}: {forecast.stop.why_empty}" for forecast in empty),
            *(partition.text for partition in self.absent if not partition.is_lost and not partition.found.aside),
            *(
                f"{forecast.directory}: {finding.detail}: {finding.consequence}"
                for forecast, finding in self._logs_shorter_than_index
                if finding.verdict is not Verdict.BROKEN
            ),
            *lines_of_directories_aside(self.aside),
        ]

    @property
    def losses(self) -> list[LossInPlan]:
        """Offsets that the broker had by its checkpoints, and that are gone, whether or not somebody accepts that."""
        ended = [
            LossInPlan(
                forecast.directory, forecast.gone, forecast.stop.why_empty if forecast.is_empty else forecast.lost_end
            )
            for forecast in self.forecasts
            if forecast.gone and not forecast.refusals
        ]
        absent = [
            LossInPlan(
                partition.directory, range(partition.stop.log_start_offset, partition.stop.known_end), partition.why
            )
            for partition in self.absent
            if partition.stop.known_end and not partition.found.aside
        ]
        return [*ended, *absent]

    @property
    def start_bytes(self) -> int:
        """The bytes of logs that the broker reads by itself."""
        return sum(forecast.broker_start.read_bytes for forecast in self.forecasts)

    @property
    def rebuilt(self) -> int:
        """How many partitions are to be rebuilt."""
        return sum(len(self.to_rebuild(log_dir)) for log_dir in self.by_log_dir)

    @property
    def leaves_losses(self) -> bool:
        """Whether partitions of which records go may be left to the broker."""
        return self.accepts_loss and self.level is RecoverLevel.CHECKPOINT

    def is_left(self, forecast: Forecast) -> bool:
        """Whether the broker is left with a partition of which it drops records."""
        return self.accepts_loss and forecast.loses and not (self.cuts and forecast.can_be_cut)

    def is_cut(self, forecast: Forecast) -> bool:
        return self.cuts and forecast.can_be_cut and bool(forecast.dropped)

    def to_rebuild(self, log_dir: Path) -> list[Forecast]:
        """The partitions of which something is to be read. At the level of checkpoints a broker reads the last segment
        again, whatever was done before: kidx does not read that segment alone, unless all is to be known to be right.
        """
        return [
            forecast
            for forecast in self.by_log_dir[log_dir]
            if forecast.scan_from is not None
            and not self.is_left(forecast)
            and not (self.untrusted is None and self.level is RecoverLevel.CHECKPOINT and forecast.reads_only_last)
        ]

    def scan_bytes(self, log_dir: Path) -> int:
        """The bytes of logs that kidx reads."""
        return sum(forecast.scan_bytes for forecast in self.to_rebuild(log_dir))


def recovery_plan(
    broker: StoppedBroker,
    known: KnownTopics,
    level: RecoverLevel,
    *,
    cuts: bool,
    accepts_loss: bool,
    alone: bool,
    everything: bool,
    untrusted: Mapping[Path, str] | None,
    engine: Engine,
    scans: Path | None,
    name: str = "forecasts",
    topics: re.Pattern[str] = ANY_TOPIC,
    found_before: FoundBefore | None = None,
) -> RecoveryPlan:
    """Look at all partitions as the broker would at its next start. Nothing is written.

    Log dirs are sources of `known` by their paths. Of topics that do not match `topics` no log is read. `scans` is a
    directory for the scans of logs; None where nobody reads them again. An engine does work of each `name` once. What
    was found before of a log is believed.
    """
    start = time.monotonic()
    goes_alone = alone and level is RecoverLevel.CHECKPOINT  # a marker belongs into all log dirs or none
    begin_phase("listing")
    listed = {log_dir.path: list_planned_partitions(log_dir, known, topics) for log_dir in broker.log_dirs}
    policy_of = known.policy_of(
        (*partition.key[:2], partition.topic_id) for plan in listed.values() for partition in plan.partitions
    )
    tasks = _forecast_tasks(
        broker, listed, policy_of, found_before, everything=everything, untrusted=untrusted, scans=scans
    )
    by_log_dir = _forecasts_by_log_dir(listed, tasks, engine, name)
    refused = [] if goes_alone else [*_missing_metadata_refusal(broker, known)]
    is_only_voter = any(metadata.only_voter == broker.node_id for metadata in known.read())
    without = [] if refused else _starts_without_metadata(broker, known, is_only_voter=is_only_voter)
    return RecoveryPlan(
        broker=broker,
        level=level,
        cuts=cuts,
        accepts_loss=accepts_loss,
        alone=alone,
        everything=everything,
        untrusted=untrusted,
        by_log_dir=by_log_dir,
        refusals=[*broker.refusals, *refused],
        unknown=_why_log_dirs_uncertain(broker, known),
        not_named=known.other_log_dirs(broker.node_id, _known_directory_ids(broker, known)),
        without_metadata=without,
        is_only_voter=bool(without) and is_only_voter,
        absent=list(_absent_partitions(broker, known)),
        aside=directories_aside(location(str(log_dir.path)) for log_dir in broker.log_dirs),
        gaps=_gaps_of_log_dirs(by_log_dir, listed, policy_of),
        seconds=time.monotonic() - start,
    )


def log_dirs_with_forecasts(
    broker: StoppedBroker, known: KnownTopics, forecasts: Mapping[Path, Forecast]
) -> dict[Path, list[Forecast]]:
    """The log dirs of a broker, with forecasts that were made before, by directory. It is an error if a partition has
    no forecast, or is gone.
    """
    by_log_dir: dict[Path, list[Forecast]] = {}
    for log_dir in broker.log_dirs:
        listed = list_planned_partitions(log_dir, known)
        directories = [log_dir.path / partition.directory.path.name for partition in listed.partitions]
        expected = {directory for directory in forecasts if directory.parent == log_dir.path}
        if gone := expected.difference(directories):
            raise KidxError(f"{min(gone)}: it is gone; expected that nobody else writes to {log_dir.path}")
        if added := {*directories} - expected:
            raise KidxError(f"{min(added)}: it was not there; expected that nobody else writes to {log_dir.path}")
        by_log_dir[log_dir.path] = [forecasts[directory] for directory in directories]
    return by_log_dir


def _forecasts_by_log_dir(
    listed: Mapping[Path, Plan], tasks: Sequence[ForecastTask], engine: Engine, name: str
) -> dict[Path, list[Forecast]]:
    log_bytes, before = sum(task.log_bytes for task in tasks), engine.done()
    begin_phase(
        "reading what a broker would",
        done=lambda: engine.done() - before,
        segments=sum(task.segments for task in tasks),
        log_bytes=log_bytes,
    )
    forecasts = iter(forecasts_of(tasks, engine, name))
    return {log_dir: list(itertools.islice(forecasts, len(plan.partitions))) for log_dir, plan in listed.items()}


def _forecast_tasks(
    broker: StoppedBroker,
    listed: Mapping[Path, Plan],
    policy_of: PolicyOf,
    found_before: FoundBefore | None,
    *,
    everything: bool,
    untrusted: Mapping[Path, str] | None,
    scans: Path | None,
) -> list[ForecastTask]:
    """A task for each partition, in the order of log dirs and of their plans."""
    tasks: list[ForecastTask] = []
    for log_dir in broker.log_dirs:
        plan = listed[log_dir.path]
        base_offsets, log_bytes = (numbers_in(plan.segments[name])[0] for name in ("base_offset", "log_bytes"))
        for partition, (first, end) in zip(plan.partitions, itertools.pairwise(plan.bounds().tolist()), strict=True):
            stop = log_dir.stop.of(partition.directory.topic_partition)
            offset = 0 if everything else stop.recovery_point
            unflushed = max(first + int(np.searchsorted(base_offsets[first:end], offset, side="right")) - 1, first)
            if stop.clean_shutdown and not everything:
                unflushed = end
            trusts = untrusted is not None and log_dir.path not in untrusted
            directory = log_dir.path / partition.directory.path.name
            logs = dict(zip(base_offsets[unflushed:end].tolist(), log_bytes[unflushed:end].tolist(), strict=True))
            known = _logs_read_before(directory, logs, partition.options, found_before)
            unread = {base_offset: size for base_offset, size in logs.items() if base_offset not in known}
            tasks.append(
                ForecastTask(
                    number=len(tasks),
                    topic_partition=partition.directory.topic_partition,
                    directory=directory,
                    options=partition.options,
                    stop=stop,
                    everything=everything,
                    trusts=trusts,
                    segments=len(unread),
                    log_bytes=sum(unread.values()),
                    scans=scans,
                    is_compacted=explains_gaps(partition.key[1], policy_of(*partition.key[:2])),
                    small=() if trusts else tuple(base for base, size in unread.items() if size <= SMALL_BYTES),
                    known={log_path(directory, base_offset): read for base_offset, read in known.items()},
                )
            )
    return tasks


def _logs_read_before(
    directory: Path, base_offsets: Iterable[int], options: RecoverOptions, found_before: FoundBefore | None
) -> dict[int, EarlierRead]:
    """What an earlier run has found in logs of a partition, by base offset."""
    if found_before is None:
        return {}
    found = {base_offset: found_before(log_path(directory, base_offset), options) for base_offset in base_offsets}
    return {base_offset: read for base_offset, read in found.items() if read is not None}


def _gaps_of_log_dirs(
    by_log_dir: Mapping[Path, Sequence[Forecast]], listed: Mapping[Path, Plan], policy_of: PolicyOf
) -> FoundGaps:
    rows: list[dict[str, Any]] = []
    places: dict[PartitionKey, Location] = {}
    for log_dir, forecasts in by_log_dir.items():
        for partition, forecast in zip(listed[log_dir].partitions, forecasts, strict=True):
            places[partition.key] = partition.directory.path
            of_partition = {**named_key(partition.key), "topic_id": partition.topic_id}
            rows += [{**of_partition, **log.facts} for log in forecast.seen.logs]
    facts = pa.Table.from_pylist(rows, SEGMENTS.schema(FACTS))
    return gaps_in(facts, policy_of, GapEvidence(places)).with_known(facts)


def _missing_metadata_refusal(broker: StoppedBroker, known: KnownTopics) -> Iterator[Refusal]:
    """The refusal for log dirs without the cluster's metadata, or with metadata that cannot be read where a node does
    not end over that. Each node has a copy in one of its log dirs.
    """
    ids = [log_dir.meta.directory_id for log_dir in broker.log_dirs]
    is_refused = any(f"/{METADATA_DIRECTORY}" in refusal.text for refusal in broker.refusals)
    if None not in ids and not known.of_sources and not is_refused:
        why = "; ".join(known.warnings) or (
            f"none of the log dirs has {METADATA_DIRECTORY}, which stands in one of each broker's (metadata.log.dir)"
        )
        yield Refusal(
            f"{why}: it is not known which others the broker has, and what it drops there. Name all of log.dirs; or "
            "--cluster-metadata, or --this-dir-alone if they are lost"
        )


def _starts_without_metadata(broker: StoppedBroker, known: KnownTopics, *, is_only_voter: bool) -> list[str]:
    """What becomes of a node without its copy of the cluster's metadata."""
    sources = list(map(log_dir_as_source, broker.log_dirs))
    does = ONLY_VOTER_WITHOUT_METADATA if is_only_voter else STARTS_WITHOUT_METADATA
    return [
        f"node {node_id} has {METADATA_DIRECTORY} in none of these log dirs; it has to be in metadata.log.dir, or in "
        f"the first of log.dirs, when the node starts: {does}"
        for node_id, _ in without_metadata_log(sources, sources, known)
    ]


def _known_directory_ids(broker: StoppedBroker, known: KnownTopics) -> list[str | None]:
    """The ids of the log dirs at hand, by their `meta.properties` and by the cluster's metadata."""
    ids = [log_dir.meta.directory_id for log_dir in broker.log_dirs]
    log_dirs = [location(str(log_dir.path)) for log_dir in broker.log_dirs]
    for metadata in known.read():
        ids += directory_ids_of(log_dirs, metadata.to_end).values()
    return ids


def _why_log_dirs_uncertain(broker: StoppedBroker, known: KnownTopics) -> list[str]:
    """Why it is not known whether all log dirs of the broker are named."""
    if any(log_dir.meta.directory_id is None and log_dir.is_known for log_dir in broker.log_dirs):
        return [
            f"{META_PROPERTIES} has no directory.id, as before Kafka 3.7, so nobody can tell whether all log dirs of "
            "the broker are named: see that they are"
        ]
    if known.of_sources and not any(broker.node_id in metadata.to_end.log_dirs for metadata in known.read()):
        return ["the cluster's metadata does not say which log dirs the broker has: see that all are named"]
    return []


def _absent_partitions(broker: StoppedBroker, known: KnownTopics) -> Iterator[PlannedAbsentPartition]:
    """The partitions that checkpoints or the cluster's metadata have in a log dir, and that no log dir has. A topic
    that the metadata does not know was deleted.
    """
    log_dirs = [
        ListedLogDir(log_dir.path, log_dir.directories, log_dir.stop, log_dir.meta) for log_dir in broker.log_dirs
    ]
    stops = {str(log_dir.path): log_dir.stop for log_dir in broker.log_dirs}
    for absent in absent_partitions(log_dirs, known.read()):
        stop = stops[str(absent.log_dir)]
        is_only_copy = absent.is_only_replica and absent.partition not in stop.high_watermarks
        yield PlannedAbsentPartition(absent, stop.of(absent.partition), is_only_copy)


def list_planned_partitions(log_dir: StoppedLogDir, known: KnownTopics, topics: re.Pattern[str] = ANY_TOPIC) -> Plan:
    """The partitions that a recovery plan has of a log dir, with their segments; without the cluster's metadata, which
    a broker always recovers.
    """
    source = log_dir_as_source(log_dir)
    plan = find_partitions(
        (source,),
        topics,
        IndexPlace(index_dir=None, by_source=False),
        lambda partition: options_of_topic(known, partition, interval_bytes=None, max_index_bytes=None),
    )
    add_segments(plan)
    kept = [
        number
        for number, partition in enumerate(plan.partitions)
        if partition.directory.topic_partition.topic != METADATA_TOPIC
    ]
    return plan.part(kept)
