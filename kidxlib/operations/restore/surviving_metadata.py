"""The metadata that survives: of all copies of `__cluster_metadata` that the sources have, a broker's as much as a
controller's, the newest; and what of it a restored cluster takes over.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple

from kidxlib.errors import CheckpointError, ClusterMetadataError, UsageError, describe_error
from kidxlib.format.segment_files import OFFSET_MAX, parse_segment_log
from kidxlib.log.metadata_image import ClusterMetadata, changes_in, read_despite_damage
from kidxlib.log.metadata_replica import METADATA_DIRECTORY, MetadataReplica, read_replica
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage
from kidxlib.records.reader import Record
from kidxlib.recovery.past_end import next_whole_batch
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import MetaProperties, read_meta_properties
from kidxlib.storage.opened_log import LogFile

#: `ConfigResource.Type`. Topics' settings are the image's.
_BROKER_RESOURCE: Final = 4
TOPIC_RESOURCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSource:
    """The copy of `__cluster_metadata` that the restored metadata comes from.

    Attributes:
        node_id: the node whose copy it is; None: no `meta.properties` says.
        epoch: the epoch of the last record (the leader epoch of its batch).
        end_offset: the offset after the last record.
        timestamp_ms: the time of the last record, in ms since the epoch; None: there is none.
        is_committed: whether all its records are known to be committed. With several voters the last ones may not be.
        older: the copies that were not taken, as they end before this one.
    """

    directory: Location
    node_id: int | None
    epoch: int
    end_offset: int
    timestamp_ms: int | None
    is_committed: bool
    older: tuple[MetadataSource, ...] = ()


@dataclass(frozen=True, slots=True)
class CannotComeBack:
    """Something that the old cluster may have had, and that the restored one lacks.

    Attributes:
        kind: such as `ACLs`.
        count: how many; None: not known.
    """

    kind: str
    count: int | None
    why: str

    @property
    def text(self) -> str:
        """The line on what cannot come back, how much of it, and why."""
        return f"{self.kind}, {'how many is not known' if self.count is None else self.count}: {self.why}"


class _RecordKey(NamedTuple):
    """What a record sets, and the record that removes it again.

    Attributes:
        fields: the fields of the record that say which one it is.
        removed_by: the name of the record that removes it; None: a value of the record itself does.
    """

    fields: tuple[str, ...]
    removed_by: str | None = None


#: The records that are taken over as they are.
_KEYS_OF_CARRIED: Final[Mapping[str, _RecordKey]] = {
    "ConfigRecord": _RecordKey(("resourceType", "resourceName", "name")),
    "ClientQuotaRecord": _RecordKey(("entity", "key")),
    "AccessControlEntryRecord": _RecordKey(("id",), "RemoveAccessControlEntryRecord"),
    "UserScramCredentialRecord": _RecordKey(("name", "mechanism"), "RemoveUserScramCredentialRecord"),
    "DelegationTokenRecord": _RecordKey(("tokenId",), "RemoveDelegationTokenRecord"),
}
_REMOVED_RECORDS: Final = {key.removed_by: name for name, key in _KEYS_OF_CARRIED.items() if key.removed_by is not None}
_RECORDS_READ: Final = (
    *_KEYS_OF_CARRIED,
    *_REMOVED_RECORDS,
    *("FeatureLevelRecord", "ProducerIdsRecord"),
    *("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivingMetadata:
    """
    Attributes:
        source: the newest copy, and the older ones.
        metadata: its topics, assignments and configs, to the end of the copy.
        features: levels by name.
        next_producer_id: the first producer id that the controllers had not handed out.
        carried: the records that are taken over as they are.
        left_out: what it has and the restored cluster lacks.
        unreadable: copies that cannot be read, each with why. One of them may have been the newest.
        behind_damage: a line on the whole batches of each copy that stand behind damage, and are not taken.
    """

    source: MetadataSource
    metadata: ClusterMetadata
    features: Mapping[str, int]
    next_producer_id: int
    carried: tuple[FramedMessage, ...]
    left_out: tuple[CannotComeBack, ...]
    unreadable: Mapping[Location, str] = field(default_factory=dict)
    behind_damage: Sequence[str] = ()

    @property
    def unread_copies(self) -> Iterator[str]:
        """A line on each copy that cannot be read, and on the one that counts in its place."""
        for directory, why in self.unreadable.items():
            yield self.metadata.instead_of(why if str(directory) in why else f"{directory}: {why}")


def only_topics(surviving: SurvivingMetadata | None, topics: re.Pattern[str]) -> SurvivingMetadata | None:
    """Surviving metadata without the topics whose full names do not match."""
    if surviving is None:
        return None
    metadata = surviving.metadata
    return replace(
        surviving,
        metadata=replace(
            metadata,
            topics={name: id_ for name, id_ in metadata.topics.items() if topics.fullmatch(name)},
            assignments={each: of for each, of in metadata.assignments.items() if topics.fullmatch(each.topic)},
            topic_configs={name: of for name, of in metadata.topic_configs.items() if topics.fullmatch(name)},
        ),
    )


@dataclass(frozen=True, slots=True)
class _MetadataCopy:
    metadata: ClusterMetadata
    replica: MetadataReplica
    properties: MetaProperties

    @property
    def source(self) -> MetadataSource:
        return MetadataSource(
            directory=self.metadata.directory,
            node_id=self.properties.node_id,
            epoch=self.replica.last_epoch,
            end_offset=self.replica.end_offset,
            timestamp_ms=self.metadata.to_end.as_of.timestamp_ms,
            is_committed=self.metadata.at_end is None,
        )


def surviving_metadata(log_dirs: Iterable[Location]) -> SurvivingMetadata | None:
    """The newest metadata that any log dir has; None: none has any.

    The newest is the copy with the largest epoch and then the largest end, as an election would choose among these
    nodes (`ReplicaState`, `KafkaRaftClient.handleVoteRequest`): where a majority of the controllers is among them, it
    has all that was committed. It is an error if the copies are of several clusters, or if none can be
    read.
    """
    copies: list[_MetadataCopy] = []
    unreadable: dict[Location, str] = {}
    for log_dir in log_dirs:
        directory = log_dir / METADATA_DIRECTORY
        if not directory.exists():
            continue
        try:
            copy = _read_copy(log_dir, directory)
        except (ClusterMetadataError, CheckpointError, OSError) as error:
            unreadable[directory] = describe_error(error)
        else:
            if copy.replica.end_offset > 0:  # a node that has only been formatted has none
                copies.append(copy)
            elif copy.replica.torn_at is not None:
                path, position = copy.replica.torn_at
                unreadable[directory] = f"{path}: damaged at byte {position}, and nothing before that"
    if not copies:
        if unreadable:
            raise ClusterMetadataError(f"no copy of the metadata can be read: {next(iter(unreadable.values()))}")
        return None
    clusters = {copy.properties.cluster_id: copy.metadata.directory for copy in copies}
    clusters.pop(None, None)
    if len(clusters) > 1:
        raise ClusterMetadataError(
            f"{' and '.join(map(str, clusters.values()))}: metadata of several clusters "
            f"({', '.join(sorted(map(str, clusters)))}); restore one cluster at a time"
        )
    newest, *older = sorted(copies, key=lambda copy: (copy.replica.last_epoch, copy.replica.end_offset), reverse=True)
    taken = _carried_records(newest.replica)
    return SurvivingMetadata(
        source=replace(newest.source, older=tuple(copy.source for copy in older)),
        metadata=newest.metadata.to_end,
        features=taken.features,
        next_producer_id=taken.next_producer_id,
        carried=tuple(taken.records.values()),
        left_out=tuple(taken.left_out()),
        unreadable=unreadable,
        behind_damage=tuple(filter(None, map(_line_on_batches_behind_damage, (copy.replica for copy in copies)))),
    )


def surviving_or_refused(log_dirs: Iterable[Location]) -> SurvivingMetadata | None:
    """The newest metadata that any log dir has. It refuses, in one line, if copies are there and none can be taken."""
    try:
        return surviving_metadata(log_dirs)
    except ClusterMetadataError as error:
        raise UsageError(f"{error}; leave this copy out only if you know that another or none is better") from error


def _read_copy(log_dir: Location, directory: Location) -> _MetadataCopy:
    metadata = read_despite_damage(directory)
    replica = read_replica(directory, _is_record_read, left_out=metadata.left_out)
    return _MetadataCopy(metadata, replica, read_meta_properties(log_dir))


def _is_record_read(record: Record) -> bool:
    return record.value is not None and record.value[1:2] in _types_of_records_read()


@functools.cache
def _types_of_records_read() -> frozenset[bytes]:
    """The types of the records, as varints of one byte."""
    messages = messages_of(CLUSTER_METADATA)
    return frozenset(bytes((messages[name].api_key or 0,)) for name in _RECORDS_READ)


@dataclass(slots=True)
class _CarriedRecords:
    """What the records so far leave.

    Attributes:
        records: the records to be taken over, by what they set.
        broker_configs: settings of single brokers, by broker.
    """

    records: dict[tuple[Any, ...], FramedMessage] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0

    def apply(self, change: FramedMessage) -> None:
        name, values = change.message.name, change.values
        if name == "FeatureLevelRecord":
            self.features[values["name"]] = values["featureLevel"]
        elif name == "ProducerIdsRecord":
            self.next_producer_id = values["nextProducerId"]
        elif name in _REMOVED_RECORDS:
            self.records.pop(_record_key(_REMOVED_RECORDS[name], values), None)
        elif name == "ConfigRecord" and values["resourceType"] == TOPIC_RESOURCE:
            pass  # the image has them
        elif name == "ConfigRecord" and values["resourceType"] == _BROKER_RESOURCE and values["resourceName"]:
            configs = self.broker_configs.setdefault(values["resourceName"], {})
            if values["value"] is None:
                configs.pop(values["name"], None)
            else:
                configs[values["name"]] = values["value"]
        elif values.get("remove") or (name == "ConfigRecord" and values["value"] is None):
            self.records.pop(_record_key(name, values), None)
        else:
            self.records[_record_key(name, values)] = change

    def left_out(self) -> Iterable[CannotComeBack]:
        """Settings of one broker name its machine, such as `advertised.listeners`: a restored broker that took them
        over would send its clients to the old one.
        """
        count = sum(map(len, self.broker_configs.values()))
        if count:
            named = [f"broker {node}: {', '.join(sorted(set_))}" for node, set_ in sorted(self.broker_configs.items())]
            yield CannotComeBack(
                "settings of single brokers",
                count,
                f"they belong to the old machines ({'; '.join(named)}); set with kafka-configs what still holds",
            )


def _record_key(name: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    return name, *(_as_hashable(values[field]) for field in _KEYS_OF_CARRIED[name].fields)


def _as_hashable(value: Any) -> Any:
    """A quota's entity is a list of types and names."""
    return tuple(sorted((str(part) for part in value), key=str)) if isinstance(value, list) else value


def _line_on_batches_behind_damage(replica: MetadataReplica) -> str | None:
    """A line on whole batches behind the place where a log is torn. A node cuts its log there as it starts
    (`LogSegment.recover`), and its quorum gives it again what it lacks: here nobody does.
    """
    if replica.torn_at is None:
        return None
    path, position = replica.torn_at
    with contextlib.closing(LogFile(str(path))) as log:
        whole = next_whole_batch(log, position + 1, replica.end_offset, OFFSET_MAX)
        size = log.size
    names = filter(parse_segment_log, files_in(path.parent))  # the first log is not a later one
    later = sorted(name for name in names if name > path.name)
    if whole is None and not later:
        return None
    follows = f"a whole batch begins at byte {whole} of {size}" if whole is not None else f"{later[0]} follows"
    return (
        f"{path}: damaged at byte {position}, and {follows}: what this copy of the cluster's metadata says from offset "
        f"{replica.end_offset} on is not taken; look for another copy of it"
    )


def _carried_records(replica: MetadataReplica) -> _CarriedRecords:
    taken = _CarriedRecords()
    for change in changes_in(chain(replica.snapshot, replica.log)):
        if change.message.name in _RECORDS_READ:
            taken.apply(change)
    return taken


def lost_without_metadata() -> Sequence[CannotComeBack]:
    """What is lost where no metadata survives: it comes back by surviving metadata alone."""
    why = "only the cluster's metadata has them, and no copy survives"
    kinds = (
        *("ACLs", "SCRAM users", "quotas", "delegation tokens", "client metrics subscriptions"),
        *("settings of groups", "settings of all brokers"),
    )
    return [CannotComeBack(kind, None, why) for kind in kinds]
