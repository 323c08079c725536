"""Finds what log dirs had by their checkpoints and the cluster's metadata, and have lost: partitions, starts and ends
of logs. Call `ExpectedInLogDirs.of` right after a listing, whose plan has the checkpoints from before it, and its
`lost` once the logs were read. A run that lists nothing and has a catalog begins with `ExpectedInLogDirs.recorded`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import Verdict
from kidxlib.audit.gaps import with_logs_aside
from kidxlib.audit.index_files.leader_epochs import FIRST_LOGS_MISSING, finding_on_lost_logs, lost_or_in_bucket
from kidxlib.audit.startup.absent import AbsentPartition, absent_partitions_of_nodes
from kidxlib.audit.startup.last_stop import LastStop, PartitionStop
from kidxlib.audit.startup.meta_properties import log_dirs_by_node
from kidxlib.catalog.conditions import PRESENT, Among, rows_where
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.errors import CheckpointError, ClusterMetadataError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_MAX, parse_segment_log
from kidxlib.format.topic_partition import METADATA_TOPIC, PartitionKey, TopicPartition, may_be_renamed
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import Source
from kidxlib.log.metadata_image import ClusterMetadata, read_despite_damage
from kidxlib.operations.damage.acceptances import (
    MATCHED_COLUMNS,
    VERSION_NAMES,
    file_version_now,
    findings_of_rows,
    match_acceptances,
    split_acceptances,
)
from kidxlib.reading.brokers_metadata import BrokersMetadata, other_topic_id
from kidxlib.reading.left_out import WhyLeftOut
from kidxlib.recovery.outcome import USABLE
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.sources import ListedSources, SourceNotReached
from kidxlib.storage.location import Location, as_text, files_in, location, version_at
from kidxlib.storage.log_dir import (
    PARTITION_METADATA,
    Checkpoints,
    before_first_log,
    topic_id_or_none,
    usable_checkpoints,
)
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.tables.protocol import TablesToRead
from kidxlib.terminal.run_summary import first_logs_not_known, lost_lines
from kidxlib.text.words import counted

#: What comes of a missing partition.
EMPTY_LOG: Final = "a broker that starts makes an empty log; look for the directory on other disks and copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class _InPartition:
    source: str
    topic: str
    partition: int

    @property
    def brief(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPartition(_InPartition):
    """A partition that a log dir had, and that has no segment there now.

    Attributes:
        known_end: the largest end of the log by checkpoints; 0 if they do not have the partition.
        has_directory: the directory exists, without a segment.
        detail: what is missing, and which file says so.
    """

    reason: ClassVar[str] = "partition-missing"
    directory: str
    known_end: int
    has_directory: bool
    detail: str

    @property
    def consequence(self) -> str:
        had = f"offsets up to {self.known_end - 1} are lost here, and " if self.known_end else ""
        return f"{had}{EMPTY_LOG}"

    @property
    def brief(self) -> str:
        said = [f"offsets up to {self.known_end - 1}"] if self.known_end else []
        said += ["its directory is empty"] if self.has_directory else []
        return f"{self.topic}-{self.partition}" + (f" ({', '.join(said)})" if said else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInTwoLogDirs(_InPartition):
    """A partition that two log dirs of one broker have.

    Attributes:
        source, directory: the second one's source and directory.
        other: the first one's directory.
    """

    reason: ClassVar[str] = "in-two-log-dirs"
    directory: str
    other: str

    @property
    def detail(self) -> str:
        return f"{self.directory} is there, and {self.other}, in log dirs of one broker"

    @property
    def consequence(self) -> str:
        return (
            "a broker does not start with both, and what is counted or planned here counts both: look which of them is "
            "whole, and move the other one away"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MisnamedPartition(_InPartition):
    """A partition's directory that has another partition's name. Its segments are counted under that name.

    Attributes:
        reason: `other-topic-id`: its `partition.metadata` and the cluster's metadata differ; `renamed`: its name shows
            it.
        detail: what shows it.
    """

    directory: str
    reason: str
    detail: str

    @property
    def consequence(self) -> str:
        return (
            "a broker that starts serves nothing of it, and it is counted or planned here as what it is called: kidx "
            "verify says what to do"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderLogDir:
    """A log dir that is older than another one of its broker: it lacks what was written since.

    Attributes:
        detail: what shows it, what a starting broker does with it, and what to do.
    """

    source: str
    log_dir: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEnd(_InPartition):
    """A log that ends below what its log dir's checkpoints say.

    Attributes:
        base_offset, path: of the last log.
        reason, detail, consequence: as in an audit's finding.
    """

    base_offset: int
    path: str
    log_end_offset: int
    known_end: int
    reason: str
    detail: str
    consequence: str
    accepted_by: str | None = None
    accepted_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStart(_InPartition):
    """The first logs of a partition are missing: its leader epochs begin before its first log.

    Attributes:
        path: the file of the leader epochs.
        first_offset: where the leader epochs begin.
        log_start: where the first log begins.
        reason, detail, consequence: as in an audit's finding.
    """

    path: str
    first_offset: int
    log_start: int
    reason: str
    detail: str
    consequence: str
    accepted_by: str | None = None
    accepted_reason: str | None = None

    @property
    def brief(self) -> str:
        return f"{self.topic}-{self.partition} (offsets {self.first_offset} to {self.log_start - 1})"


_LossInPartition: TypeAlias = LostPartition | PartitionInTwoLogDirs | MisnamedPartition | LostStart | LostEnd


def _losses_as_json(losses: Iterable[_LossInPartition]) -> list[dict[str, Any]]:
    return [
        {**asdict(loss), "reason": loss.reason, "detail": loss.detail, "consequence": loss.consequence}
        for loss in losses
    ]


_StartOrEnd = TypeVar("_StartOrEnd", LostStart, LostEnd)


@dataclass(frozen=True, slots=True)
class Lost:
    """What log dirs have lost, or have twice.

    Attributes:
        partitions: in the order of source, topic and partition.
        ends: lost ends that nobody has accepted.
        accepted: lost ends that somebody has accepted.
        starts: lost starts, accepted or not, in the order of source, topic and partition.
        starts_not_known: starts that were lost, or are in a bucket, in that order.
        twice: partitions that two log dirs have, in the order of topic and partition.
        older: log dirs that are older than others of their broker.
        maybe_older: further signs that log dirs are not of one time, a line each; they may mean no loss.
        misnamed: directories with another partition's name, in the order of source, topic and partition.
    """

    partitions: tuple[LostPartition, ...] = ()
    ends: tuple[LostEnd, ...] = ()
    accepted: tuple[LostEnd, ...] = ()
    starts: tuple[LostStart, ...] = ()
    starts_not_known: tuple[LostStart, ...] = ()
    twice: tuple[PartitionInTwoLogDirs, ...] = ()
    older: tuple[OlderLogDir, ...] = ()
    maybe_older: tuple[str, ...] = ()
    misnamed: tuple[MisnamedPartition, ...] = ()

    @property
    def lost_starts(self) -> list[LostStart]:
        """The starts that nobody has accepted."""
        return [start for start in self.starts if start.accepted_by is None]

    @property
    def is_loss(self) -> bool:
        """Whether something is lost that nobody has accepted."""
        return any((self.partitions, self.ends, self.lost_starts, self.twice, self.older, self.misnamed))

    @property
    def counts(self) -> dict[str, int]:
        return {
            "partitions_missing": len(self.partitions),
            "partitions_twice": len(self.twice),
            "first_logs_missing": len(self.lost_starts),
            "first_logs_not_known": len(self.starts_not_known),
            "ends_below": len(self.ends),
            "ends_below_accepted": len(self.accepted),
            "log_dirs_older": len(self.older),
            "partitions_misnamed": len(self.misnamed),
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "partitions_missing": _losses_as_json(self.partitions),
            "partitions_twice": _losses_as_json(self.twice),
            "partitions_misnamed": _losses_as_json(self.misnamed),
            "first_logs_missing": _losses_as_json(self.starts),
            "first_logs_not_known": _losses_as_json(self.starts_not_known),
            "ends_below": _losses_as_json(self.ends),
            "ends_below_accepted": _losses_as_json(self.accepted),
            "log_dirs_older": [{**asdict(log_dir), "reason": "older-log-dir"} for log_dir in self.older],
            "log_dirs_maybe_older": list(self.maybe_older),
        }

    def lines(self, *, many_sources: bool) -> Iterator[str]:
        """A line for each topic and reason of losses that nobody has accepted, and one on accepted losses."""
        yield from (f"{Verdict.BROKEN}: {log_dir.detail}" for log_dir in self.older)
        yield from (f"warning: {line}" for line in self.maybe_older)
        lost: list[_LossInPartition] = [*self.misnamed, *self.twice, *self.partitions, *self.lost_starts, *self.ends]
        yield from lost_lines(lost, "partition", many_sources=many_sources)
        yield from first_logs_not_known([start.brief for start in self.starts_not_known])
        accepted: list[LostStart | LostEnd] = [
            *(start for start in self.starts if start.accepted_by is not None),
            *self.accepted,
        ]
        if accepted:
            first = accepted[0]
            more = f"; {len(accepted) - 1:,} more" if len(accepted) > 1 else ""
            yield (
                f"accepted: {first.topic}-{first.partition}: {first.detail} (by {first.accepted_by}: "
                f"{first.accepted_reason}){more}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBuilt:
    """A log dir with partitions that no build has read: builds left them out, or they are newer than the last build.

    Attributes:
        partitions: the number of these.
        of: the number of all partitions in the log dir.
    """

    source: str
    path: str
    partitions: int
    of: int

    def __str__(self) -> str:
        return (
            f"{counted(self.partitions, 'partition')} of {self.of:,} in {self.path} (source {self.source}), which no "
            "build has read: left out by --topics, or newer than the last one"
        )


@dataclass(frozen=True, slots=True)
class ExpectedInLogDirs:
    """What log dirs should have, to compare with what they have.

    Attributes:
        log_dirs: where each listed partition is.
        stops: how each log dir's broker stopped, by checkpoints that were read before the listing.
        listed: what is lost, or there twice, by the listing alone, before logs are read.
        not_reached: recorded sources that cannot be listed here, or that are empty though the catalog has partitions
            there.
        not_built: recorded log dirs with partitions that no build has read.
        is_recorded: whether the catalog's rows stand for a listing. A log that has changed since is not judged then: it
            may have grown.
    """

    log_dirs: Mapping[PartitionKey, Location] = field(default_factory=dict)
    stops: Mapping[Location, LastStop] = field(default_factory=dict)
    listed: Lost = field(default_factory=Lost)
    not_reached: tuple[SourceNotReached, ...] = ()
    not_built: tuple[NotBuilt, ...] = ()
    is_recorded: bool = False

    @classmethod
    def of(
        cls,
        plan: Plan,
        sources: Sequence[Source],
        topics: re.Pattern[str],
        metadata: Mapping[str, ClusterMetadata],
    ) -> ExpectedInLogDirs:
        """What the log dirs of a plan should have, by its checkpoints, which were read before the listing. `metadata`
        is of the sources' clusters, by the sources' names.
        """
        stops = {log_dir: _stop(checkpoints) for log_dir, checkpoints in plan.checkpoints.items()}
        partitions = [
            partition
            for partition in plan.partitions
            if partition.directory.remote is None and partition.directory.log_dir in stops
        ]
        log_dirs = {partition.key: partition.directory.log_dir for partition in partitions}
        listed = {partition.key: (partition.directory.path, partition.topic_id) for partition in partitions}
        of_plan = [source for source in sources if source.name in plan.log_dirs]
        whole = {source.path: source.name for source in of_plan if source.path in stops}
        lost = _lost_by_listing(_lost_partitions(whole, stops, metadata, topics), log_dirs, of_plan, listed, metadata)
        return cls(log_dirs, stops, lost)

    @classmethod
    def recorded(
        cls,
        tables: TablesToRead,
        sources: Sequence[Source],
        topics: re.Pattern[str],
        known: KnownTopics,
        seen: ListedSources,
    ) -> ExpectedInLogDirs:
        """What the log dirs of a catalog should have now, as far as they can be listed here. `seen` is how the sources
        were listed before.
        """
        unlisted = {place.source.name for place in seen.not_reached if not place.is_empty}
        reached = [source for source in sources if source.name not in unlisted]
        stops = _stops_now(source.log_dir for source in reached)
        whole = {source.path: source.name for source in reached if source.path == source.log_dir}
        of_source = {source.name: source.log_dir for source in reached}
        names = [*PARTITION_KEY, "directory", "present", "topic_id"]
        rows = tables.read(PARTITIONS, names, [Among("source", tuple(of_source))]).to_pylist()
        listed = {
            (row["source"], row["topic"], row["partition"]): (location(row["directory"]), row["topic_id"])
            for row in rows
            if row["present"]
            and topics.fullmatch(row["topic"])
            and location(row["directory"]).parent == of_source[row["source"]]
        }
        log_dirs = {key: of_source[key[0]] for key in listed}
        with_partitions = {name for name, _, _ in log_dirs}
        keys = {(row["source"], row["topic"], row["partition"]) for row in rows}
        partitions = _lost_partitions(whole, stops, known.by_source, topics)
        return cls(
            log_dirs,
            stops,
            _lost_by_listing(partitions, log_dirs, reached, listed, known.by_source),
            not_reached=tuple(
                place for place in seen.not_reached if not place.is_empty or place.source.name in with_partitions
            ),
            not_built=tuple(not_built(reached, seen, keys, topics)),
            is_recorded=True,
        )

    def lost(self, tables: TablesToRead, logs: pa.Table, not_known: Collection[PartitionKey] = ()) -> Lost:
        """What is lost, once the logs were read.

        `logs` are the catalog's rows of the listed partitions' segments, with at least the key, `status` and
        `next_offset`; the rows of the partitions in `not_known` are out of date.
        """
        logs = rows_where(logs, [PRESENT])
        grouped = logs.group_by(list(PARTITION_KEY), use_threads=False)
        ends = grouped.aggregate([("next_offset", "max"), ("base_offset", "min")]).to_pylist()
        keys = [(row["source"], row["topic"], row["partition"]) for row in ends]
        end_of = {key: row["next_offset_max"] for key, row in zip(keys, ends, strict=True)}
        begin_of = {key: row["base_offset_min"] for key, row in zip(keys, ends, strict=True)}
        lost = self._ending_below(end_of, not_known, self.stops)
        if lost:  # a topic that was made anew in between has other checkpoints now
            stops = {**self.stops, **_stops_now({self.log_dirs[key] for key in lost})}
            lost &= self._ending_below(end_of, not_known, stops)
        if self.is_recorded:
            lost = self._unchanged(tables, logs, lost)
        empty = [self._empty(key) for key in sorted(lost) if key not in end_of]
        aside = LogsAside(self.stops)
        emptied, starts = self._emptied_and_starts(begin_of, lost, not_known, aside)
        certain = [(start, finding) for start, finding in starts if start.reason == FIRST_LOGS_MISSING]
        lost_ends = list(_ends(tables, logs, {key: self._stop_of(key) for key in lost if key in end_of}, aside))
        return replace(
            self.listed,
            partitions=tuple(sorted([*self.listed.partitions, *empty, *emptied], key=_partition_of)),
            ends=tuple(end for end in lost_ends if end.accepted_by is None),
            accepted=tuple(end for end in lost_ends if end.accepted_by is not None),
            starts=tuple(_with_accepted(tables, certain, LEADER_EPOCH_CHECKPOINT)),
            starts_not_known=tuple(start for start, _ in starts if start.reason != FIRST_LOGS_MISSING),
        )

    def _emptied_and_starts(
        self,
        begins: Mapping[PartitionKey, int],
        lost: Collection[PartitionKey],
        not_known: Collection[PartitionKey],
        aside: LogsAside,
    ) -> tuple[list[LostPartition], list[tuple[LostStart, dict[str, Any]]]]:
        """The partitions that were emptied since they were recorded, without those in `lost`; and the lost starts, each
        as a finding. The directory of a recorded partition is listed once.
        """
        emptied, starts = list[LostPartition](), list[tuple[LostStart, dict[str, Any]]]()
        for key, begin in sorted(begins.items()):
            names = self._names_now(key)
            if key not in lost and names is not None and all(parse_segment_log(name) is None for name in names):
                emptied.append(self._empty(key, "the catalog has some"))
            if begin != 0 and key in self.log_dirs and key not in not_known:
                starts += self._start(key, begin, names, aside)
        return emptied, starts

    def _start(
        self, key: PartitionKey, begin: int, names: Collection[str] | None, aside: LogsAside
    ) -> Iterator[tuple[LostStart, dict[str, Any]]]:
        """The lost start, as an audit finds it, of a partition whose first log begins at `begin`, above 0. `names` are
        those of the files in its directory, if it was listed. A log start that is written down may be in a bucket, as
        those of tiered topics are, and is none. Without the checkpoint, a bucket is not asked for each partition's
        epochs.
        """
        log_dir, is_certain = self.log_dirs[key], self._stop_of(key).begins_with_first_log
        if not is_certain and (self.stops[log_dir].knows_log_starts or not isinstance(log_dir, Path)):
            return
        directory = self._directory(key)
        try:
            lost = before_first_log(directory, None if self.is_recorded else begin, names)  # a build has just listed it
        except (CheckpointError, OSError):
            return  # another finding says that they cannot be read
        if lost is None or (finding := finding_on_lost_logs(*lost)) is None:
            return
        first_epoch, log_start = lost
        finding = finding if is_certain else lost_or_in_bucket(finding)
        finding = with_logs_aside(finding, aside, directory, first_epoch.start_offset, log_start)
        assert finding.reason is not None and finding.detail is not None and finding.consequence is not None
        path = directory / LEADER_EPOCH_CHECKPOINT
        start = LostStart(
            source=key[0],
            topic=key[1],
            partition=key[2],
            path=as_text(path),
            first_offset=first_epoch.start_offset,
            log_start=log_start,
            reason=finding.reason,
            detail=finding.detail,
            consequence=finding.consequence,
        )
        yield start, _as_finding(start, log_start, LEADER_EPOCH_CHECKPOINT, None, file_version_now(str(path)))

    def _names_now(self, key: PartitionKey) -> Collection[str] | None:
        """The files in a recorded partition's directory. None if it is not listed: a build has just listed it, or it is
        in an object store, where each listing is a request.
        """
        log_dir = self.log_dirs.get(key)
        if not self.is_recorded or not isinstance(log_dir, Path):
            return None
        try:
            return files_in(self._directory(key)).keys()
        except OSError:  # as in `_unchanged`
            return None

    def _directory(self, key: PartitionKey) -> Location:
        return self.log_dirs[key] / TopicPartition(key[1], key[2]).directory

    def _stop_of(self, key: PartitionKey) -> PartitionStop:
        return self.stops[self.log_dirs[key]].of(TopicPartition(key[1], key[2]))

    def _ending_below(
        self,
        ends: Mapping[PartitionKey, int | None],
        not_known: Collection[PartitionKey],
        stops: Mapping[Location, LastStop],
    ) -> set[PartitionKey]:
        """The partitions whose logs end below their checkpoints; a partition without a log ends below any offset."""
        below = set()
        for key, log_dir in self.log_dirs.items():
            end, stop = ends.get(key, 0), stops[log_dir].of(TopicPartition(key[1], key[2]))
            if end is not None and key not in not_known and end < _known_end(stop):
                below.add(key)
        return below

    def _unchanged(self, tables: TablesToRead, logs: pa.Table, lost: Collection[PartitionKey]) -> set[PartitionKey]:
        """The partitions whose last log is still the last, and unchanged since the catalog recorded it. Checkpoints
        were read before this, so the log ended there when a broker wrote them.
        """
        last = _last_logs(logs, lost)
        files = _files(tables, {(*key, row["base_offset"]) for key, row in last.items()})
        unchanged = set()
        for key in lost:
            base_offset = last[key]["base_offset"] if key in last else None
            try:
                names = files_in(self._directory(key))
            except OSError:  # gone, which another finding says, or not listable
                continue
            offsets = [offset for name in names if (offset := parse_segment_log(name)) is not None]
            if max(offsets, default=None) != base_offset:
                continue
            if base_offset is not None:
                path, _, version = files[*key, base_offset]
                seen = version_at(location(path))
                if seen is None or version != (seen.size, seen.mtime_ns, seen.inode):
                    continue
            unchanged.add(key)
        return unchanged

    def _empty(
        self, key: PartitionKey, known_by: str = "the log dir's checkpoints say that it had some"
    ) -> LostPartition:
        directory, said = self._directory(key), f"no segment is in its directory, and {known_by}"
        return LostPartition(
            source=key[0],
            topic=key[1],
            partition=key[2],
            directory=as_text(directory),
            known_end=_known_end(self._stop_of(key)),
            has_directory=True,
            detail="; ".join(filter(None, (said, LogsAside().remedy_of_empty(directory)))),
        )


def _lost_by_listing(
    partitions: tuple[LostPartition, ...],
    log_dirs: Mapping[PartitionKey, Location],
    sources: Sequence[Source],
    listed: Mapping[PartitionKey, tuple[Location, str | None]],
    metadata: Mapping[str, ClusterMetadata],
) -> Lost:
    older, maybe_older = _older_log_dirs(sources, metadata)
    return Lost(
        partitions=partitions,
        twice=_twice(log_dirs, metadata),
        older=older,
        maybe_older=maybe_older,
        misnamed=_misnamed(listed, metadata),
    )


def _lost_partitions(
    whole: Mapping[Location, str],
    stops: Mapping[Location, LastStop],
    metadata: Mapping[str, ClusterMetadata],
    topics: re.Pattern[str],
) -> tuple[LostPartition, ...]:
    """The partitions of some topics that no log dir has. `whole` has the names of the sources that are log dirs."""
    known = {log_dir: metadata.get(name) for log_dir, name in whole.items()}
    lost = [
        LostPartition(
            source=whole[absent.log_dir],
            topic=absent.partition.topic,
            partition=absent.partition.partition,
            directory=as_text(absent.directory),
            known_end=_known_end(stops[absent.log_dir].of(absent.partition)),
            has_directory=False,
            detail=f"no such directory, and {absent.known_to} names it{f'; {absent.remedy}' if absent.aside else ''}",
        )
        for absent in _absent({log_dir: stops[log_dir] for log_dir in whole}, known)
        if topics.fullmatch(absent.partition.topic)
    ]
    return tuple(sorted(lost, key=_partition_of))


def _absent(
    stops: Mapping[Location, LastStop], metadata: Mapping[Location, ClusterMetadata | None]
) -> Sequence[AbsentPartition]:
    """The partitions that log dirs lack. A running broker may delete or move one while its log dir is listed. So if one
    is missing, checkpoints and metadata are read again.
    """
    absent = list(absent_partitions_of_nodes(stops, metadata))
    if not absent:
        return absent
    read = {id(cluster): _read_again(cluster) for cluster in metadata.values() if cluster is not None}
    metadata_now = {log_dir: None if cluster is None else read[id(cluster)] for log_dir, cluster in metadata.items()}
    still = {
        (partition.log_dir, partition.partition)
        for partition in absent_partitions_of_nodes(_stops_now(stops), metadata_now)
    }
    return [partition for partition in absent if (partition.log_dir, partition.partition) in still]


def _read_again(metadata: ClusterMetadata) -> ClusterMetadata:
    try:
        return read_despite_damage(metadata.directory)
    except (ClusterMetadataError, OSError):
        return metadata


def _twice(
    log_dirs: Mapping[PartitionKey, Location], metadata: Mapping[str, ClusterMetadata]
) -> tuple[PartitionInTwoLogDirs, ...]:
    """The partitions that two log dirs of one broker have. A broker has each once. The metadata's log does not count:
    it is no partition of the broker.
    """
    groups = log_dirs_by_node(
        sorted(set(log_dirs.values()), key=str), list({id(cluster): cluster for cluster in metadata.values()}.values())
    )
    node_of = {log_dir: number for number, of_node in enumerate(groups) for log_dir in of_node}
    first: dict[tuple[int, TopicPartition], Location] = {}
    twice = []
    for (source, topic, number), log_dir in sorted(log_dirs.items(), key=lambda item: (item[0][1:], str(item[1]))):
        partition = TopicPartition(topic, number)
        other = first.setdefault((node_of[log_dir], partition), log_dir)
        if other != log_dir and topic != METADATA_TOPIC:
            directory, of_first = as_text(log_dir / partition.directory), as_text(other / partition.directory)
            twice.append(
                PartitionInTwoLogDirs(source=source, topic=topic, partition=number, directory=directory, other=of_first)
            )
    return tuple(twice)


def _older_log_dirs(
    sources: Sequence[Source], metadata: Mapping[str, ClusterMetadata]
) -> tuple[tuple[OlderLogDir, ...], tuple[str, ...]]:
    """The log dirs on this machine that are older than others of their broker, and further signs of this as lines on
    screen.
    """
    names: dict[Location, str] = {source.log_dir: source.name for source in sources if isinstance(source.log_dir, Path)}
    known: dict[Location, ClusterMetadata] = {
        log_dir: metadata[name] for log_dir, name in names.items() if name in metadata
    }
    details, maybe_older = BrokersMetadata(names, known).older_log_dirs()
    older = (
        OlderLogDir(source=names[log_dir], log_dir=as_text(log_dir), detail=detail)
        for log_dir, detail in details.items()
    )
    return tuple(older), tuple(maybe_older)


def _misnamed(
    listed: Mapping[PartitionKey, tuple[Location, str | None]], metadata: Mapping[str, ClusterMetadata]
) -> tuple[MisnamedPartition, ...]:
    """The directories with another partition's name. A running broker may delete a topic and make it anew while log
    dirs are listed. So if ids differ, the files are read again. `listed` has the directory of each partition, and the
    topic id in its `partition.metadata`.
    """
    # Directories in a bucket of tiered storage have other names.
    listed = {
        key: (directory, topic_id)
        for key, (directory, topic_id) in listed.items()
        if directory.name == TopicPartition(key[1], key[2]).directory
    }
    misnamed = _misnamed_by_id(listed, metadata)
    if misnamed:
        read = {name: _read_again(metadata[name]) for name in {source for source, _, _ in misnamed}}
        misnamed = _misnamed_by_id({key: (listed[key][0], topic_id_or_none(listed[key][0])) for key in misnamed}, read)
    ids = {(topic, number): topic_id for (_, topic, number), (_, topic_id) in listed.items()}
    for key, (directory, topic_id) in listed.items():
        _, topic, number = key
        meant = TopicPartition(topic.lstrip("."), number)
        if key in misnamed or (meant.topic, number) not in ids or not may_be_renamed(directory.name, meant):
            continue
        if None in (topic_id, ids[meant.topic, number]) or topic_id == ids[meant.topic, number]:
            detail = f"it looks like {meant.directory}, which is there, too, and that somebody has copied or renamed"
            misnamed[key] = "renamed", detail
    return tuple(
        MisnamedPartition(
            source=source,
            topic=topic,
            partition=number,
            directory=as_text(listed[source, topic, number][0]),
            reason=reason,
            detail=detail,
        )
        for (source, topic, number), (reason, detail) in sorted(misnamed.items())
    )


def _misnamed_by_id(
    listed: Mapping[PartitionKey, tuple[Location, str | None]], metadata: Mapping[str, ClusterMetadata]
) -> dict[PartitionKey, tuple[str, str]]:
    """The reason and detail of each partition's directory whose topic id is not that of its topic."""
    names = {id(cluster): cluster.to_end.topic_names for cluster in metadata.values()}
    misnamed: dict[PartitionKey, tuple[str, str]] = {}
    for key, (directory, topic_id) in listed.items():
        known = metadata.get(key[0])
        if known is None or topic_id is None or key[1] == METADATA_TOPIC:
            continue
        detail = other_topic_id(topic_id, key[1], known.to_end, names[id(known)])
        if detail is not None:
            misnamed[key] = WhyLeftOut.OTHER_TOPIC_ID.value, f"{directory / PARTITION_METADATA}: {detail}"
    return misnamed


def not_built(
    sources: Iterable[Source], seen: ListedSources, keys: Collection[PartitionKey], topics: re.Pattern[str]
) -> Iterator[NotBuilt]:
    """The log dirs that have partitions which no build has read; `keys` has those that builds have read."""
    for source in sources:
        wanted = [partition for partition in seen.partitions.get(source.name, ()) if topics.fullmatch(partition.topic)]
        not_read = sum((source.name, partition.topic, partition.partition) not in keys for partition in wanted)
        if not_read and source.path == source.log_dir:
            yield NotBuilt(source=source.name, path=as_text(source.path), partitions=not_read, of=len(wanted))


def _partition_of(lost: LostPartition) -> PartitionKey:
    return lost.source, lost.topic, lost.partition


def _stops_now(log_dirs: Iterable[Location]) -> dict[Location, LastStop]:
    return {log_dir: _stop(usable_checkpoints(log_dir)) for log_dir in log_dirs}


def _stop(checkpoints: Checkpoints) -> LastStop:
    """How a broker stopped, by the checkpoints alone: other files of the log dir are not read."""
    return LastStop(
        checkpoints.clean_shutdown,
        checkpoints.recovery_points or {},
        checkpoints.log_start_offsets or {},
        checkpoints.high_watermarks or {},
        cleaner_offsets=checkpoints.cleaner_offsets or {},
        knows_log_starts=checkpoints.log_start_offsets is not None,
    )


def _known_end(stop: PartitionStop) -> int:
    return max(stop.known_end, stop.log_start_offset)


def _ends(
    tables: TablesToRead, logs: pa.Table, stops: Mapping[PartitionKey, PartitionStop], aside: LogsAside
) -> Iterator[LostEnd]:
    """The lost ends of the partitions in `stops`, by the last log of each. The former end of a damaged log is not
    known.
    """
    if not stops:
        return
    last = _last_logs(logs, stops)
    files = _files(tables, {(*key, last[key]["base_offset"]) for key in stops})
    ends = list[tuple[LostEnd, dict[str, Any]]]()
    for key, stop in sorted(stops.items()):
        row = last[key]
        if row["status"] not in USABLE or row["next_offset"] is None:
            continue
        path, position, version = files[*key, row["base_offset"]]
        finding = stop.finding_below_checkpoints(row["next_offset"], position)
        if finding is None or finding.reason is None or finding.detail is None:
            continue
        with_aside = with_logs_aside(finding, aside, location(path).parent, row["next_offset"], OFFSET_MAX)
        end = LostEnd(
            source=key[0],
            topic=key[1],
            partition=key[2],
            base_offset=row["base_offset"],
            path=path,
            log_end_offset=row["next_offset"],
            known_end=_known_end(stop),
            reason=finding.reason,
            detail=finding.detail,
            consequence=with_aside.consequence or "",
        )
        ends.append((end, _as_finding(end, end.base_offset, LOG_SUFFIX, position, version)))
    yield from _with_accepted(tables, ends, LOG_SUFFIX)


def _as_finding(
    lost: LostStart | LostEnd, base_offset: int, file: str, position: int | None, version: tuple[Any, ...]
) -> dict[str, Any]:
    """The columns of a finding that `match_acceptances` reads."""
    of_file = {"base_offset": base_offset, "file": file, "position": position, "found": Verdict.BROKEN.value}
    return {**asdict(lost), **of_file, **dict(zip(VERSION_NAMES, version, strict=True))}


def _last_logs(logs: pa.Table, partitions: Collection[PartitionKey]) -> dict[PartitionKey, dict[str, Any]]:
    """The row of each partition's last log, for partitions that have one."""
    of_topics = pc.is_in(logs["topic"], value_set=pa.array(sorted({key[1] for key in partitions}), pa.string()))
    last: dict[PartitionKey, dict[str, Any]] = {}
    for row in logs.filter(of_topics).sort_by("base_offset").to_pylist():
        last[row["source"], row["topic"], row["partition"]] = row
    return {key: row for key, row in last.items() if key in partitions}


def _files(
    tables: TablesToRead, wanted: Collection[tuple[Any, ...]]
) -> dict[tuple[Any, ...], tuple[str, int | None, tuple[Any, ...]]]:
    """The path, the valid bytes and the recorded state of some logs, by the key of the segment."""
    names = (*SEGMENTS.key, "log_path", "valid_bytes", *LogVersion.names())
    topics = tuple(sorted({key[1] for key in wanted}))
    rows = tables.read(SEGMENTS, names, [Among("topic", topics), Among("base_offset", {key[3] for key in wanted})])
    return {
        key: (row["log_path"], row["valid_bytes"], tuple(row[name] for name in LogVersion.names()))
        for row in rows.to_pylist()
        if (key := tuple(row[name] for name in SEGMENTS.key)) in wanted
    }


def _with_accepted(
    tables: TablesToRead, lost: Sequence[tuple[_StartOrEnd, dict[str, Any]]], file: str
) -> list[_StartOrEnd]:
    """Lost starts or ends, each given with its finding in files of one suffix, with who has accepted each: by itself,
    or together with an audit's finding on the same file.
    """
    if not lost:
        return []
    names: tuple[str, ...] = ("accepted_by", "accepted_reason")
    findings = findings_of_rows(row for _, row in lost)
    accepted = tables.read(ACCEPTED, [*MATCHED_COLUMNS, *names], [Among("file", (file,))])
    by: dict[int, dict[str, Any]] = {}
    for some in (split_acceptances(accepted), accepted):
        acceptances, matched = some.select(names).to_pylist(), match_acceptances(findings, some)
        by |= {number: acceptances[at] for number, at in enumerate(matched.at) if at >= 0}
    return [replace(start_or_end, **by.get(number, {})) for number, (start_or_end, _) in enumerate(lost)]
