"""The topics of sources, from their clusters' metadata: which copy of it a source uses, and how far that was read; and
whether a server.properties is that of the sources' broker.
"""

from __future__ import annotations

import base64
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import CheckpointError, ClusterMetadataError, KidxError, UsageError, describe_error
from kidxlib.indexing.source import Source
from kidxlib.java import parse_properties, parse_property_list
from kidxlib.log.metadata_image import (
    BrokerSettings,
    ClusterMetadata,
    ConfigValue,
    read_cluster_metadata,
    read_despite_damage,
    topic_config,
)
from kidxlib.log.metadata_replica import METADATA_DIRECTORY, Endpoint
from kidxlib.storage.location import Location, given_location
from kidxlib.storage.log_dir import (
    META_PROPERTIES,
    MetaProperties,
    node_id_of,
    read_meta_properties,
)
from kidxlib.storage.small_files import small_file
from kidxlib.terminal.options import MetadataOptions

_ROLES: Final = "process.roles"
_VOTERS: Final = "controller.quorum.voters"
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
_LISTENERS: Final = ("advertised.listeners", "listeners")
_RACK: Final = "broker.rack"
#: `SocketServerConfigs.LISTENERS_DEFAULT`.
_DEFAULT_LISTENERS: Final = "PLAINTEXT://:9092"
#: A listener as `EndPoint` parses it, and a voter's or bootstrap server's address.
_LISTENER: Final = re.compile(r"(?P<name>[^:]*)://\[?(?P<host>[0-9A-Za-z\-%._:]*?)\]?:(?P<port>\d+)")
_ADDRESS: Final = re.compile(r"(?:\d+@)?\[?(?P<host>[0-9A-Za-z\-%._:]*?)\]?:(?P<port>\d+)")
#: The machine itself, under whatever name others know it.
_OWN_HOST: Final = re.compile(r"|localhost|127\..*|::1|0\.0\.0\.0|::", re.IGNORECASE)
#: Ids below this number name no log dir (`DirectoryId.reserved`).
_RESERVED_IDS: Final = 100


@dataclass(frozen=True, slots=True)
class TopicsOfSource:
    """The metadata of a source's cluster, and the source's broker.

    Attributes:
        borrowed: the copy is in another log dir of the cluster.
    """

    metadata: ClusterMetadata
    broker: BrokerSettings
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topics of sources, from their clusters' metadata.

    Attributes:
        of_sources: by the source's name, without sources that have no metadata.
        warnings: why a source's own metadata was not read, and why a server.properties may be the wrong one.
        contradicted: how a server.properties contradicts the sources' `meta.properties` or metadata, so that the broker
            was not last started with it.
    """

    of_sources: Mapping[str, TopicsOfSource] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    contradicted: Sequence[str] = ()

    def topic_id(self, source: str, topic: str) -> str | None:
        """The id of a topic in its source's cluster; None if the cluster has no such topic or is not known."""
        of_source = self.of_sources.get(source)
        return None if of_source is None else of_source.metadata.topics.get(topic)

    def config(self, source: str, topic: str, name: str) -> ConfigValue | None:
        """The value of a setting, one of `TOPIC_CONFIGS`, of the cluster's topic with this name and the id `topic_id`;
        None: not known.
        """
        of_source = self.of_sources.get(source)
        if of_source is None or topic not in of_source.metadata.topics:
            return None
        return topic_config(of_source.metadata, of_source.broker, topic, name)

    def is_settled(self, source: str, topic: str, name: str) -> bool:
        """Whether a setting has the value of `config` even if the uncommitted end of the copy is committed later."""
        of_source = self.of_sources.get(source)
        if of_source is None or (at_end := of_source.metadata.at_end) is None:
            return True
        if of_source.metadata.topics.get(topic) != at_end.topics.get(topic):
            return False
        committed = topic_config(of_source.metadata, of_source.broker, topic, name)
        return committed == topic_config(at_end, of_source.broker, topic, name)

    @property
    def to_end(self) -> KnownTopics:
        """The topics, if all of each copy is committed."""
        return KnownTopics(
            {name: replace(topics, metadata=topics.metadata.to_end) for name, topics in self.of_sources.items()}
        )

    def policy_of(self, ids: Iterable[tuple[str, str, str | None]]) -> Callable[[str, str], ConfigValue | None]:
        """A function that gives the `cleanup.policy` of a source's topic; None: not known. It is not known if metadata
        has another id for the name; `ids` are sources, topics, and the topics' ids on disk (None: not known).
        """
        on_disk: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for source, topic, topic_id in ids:
            if topic_id is not None:
                on_disk[source, topic].add(topic_id)

        def policy(source: str, topic: str) -> ConfigValue | None:
            is_other = on_disk[source, topic] and on_disk[source, topic] != {self.topic_id(source, topic)}
            is_known = not is_other and self.is_settled(source, topic, "cleanup.policy")
            return self.config(source, topic, "cleanup.policy") if is_known else None

        return policy

    @property
    def by_source(self) -> dict[str, ClusterMetadata]:
        return {name: topics.metadata for name, topics in self.of_sources.items()}

    def read(self) -> list[ClusterMetadata]:
        """All copies of metadata that were read, without repeats."""
        return list({str(metadata.directory): metadata for metadata in self.by_source.values()}.values())

    @property
    def as_of(self) -> str | None:
        """Which copies of metadata were read and how far, in one line; None: none."""
        return "; ".join(map(self.described, self.read())) or None

    def described(self, metadata: ClusterMetadata) -> str:
        """A copy of metadata in words: how far it was read, and which sources without a copy of their own use it."""
        text = f"{metadata.directory} as of {metadata.as_of}"
        sources = [name for name, topics in self.of_sources.items() if topics.borrowed and topics.metadata is metadata]
        return f"{text} (of the same cluster: {', '.join(sorted(sources))})" if sources else text

    def other_log_dirs(self, node_id: int | None, known: Iterable[str | None]) -> list[str]:
        """The ids (`directory.id`) of the log dirs that a broker last registered, without the `known` ones, which are
        here.
        """
        if node_id is None:
            return []
        registered = {log_dir for metadata in self.read() for log_dir in metadata.to_end.log_dirs.get(node_id, ())}
        return sorted(registered.difference(known))


#: No option says where metadata is.
_NOT_GIVEN: Final = MetadataOptions()


def read_known_topics(
    sources: Iterable[Source],
    recorded: Callable[[], Iterable[Source]] = tuple,
    *,
    options: MetadataOptions = _NOT_GIVEN,
) -> KnownTopics:
    """Read the metadata of the clusters of some sources.

    One log dir of a broker holds the metadata for all of them (`metadata.log.dir`), and all nodes of a cluster have the
    same metadata. So a source without a copy uses that of another source in its cluster: the same node's copy, or else
    the copy that was read furthest. If a source has none, `recorded` gives more sources that may have one.
    """
    static = None if options.server_properties is None else _server_properties(options.server_properties)
    static_node = None if static is None else _node_id(static, str(options.server_properties))
    log_dirs = {source.name: source.log_dir for source in sources}
    reader = _KnownTopicsReader(options.metadata_high_watermark, list(log_dirs.values()), recorded)
    from_option = None if options.cluster_metadata is None else _metadata_directory(options.cluster_metadata)
    of_sources: dict[str, TopicsOfSource] = {}
    for source, log_dir in log_dirs.items():
        own = reader.properties(log_dir)
        if from_option is not None:
            metadata, borrowed = reader.required(from_option), False
            reader.ensure_of_cluster(from_option, log_dir, own)
        elif (of_log_dir := reader.optional(log_dir)) is not None:
            metadata, borrowed = of_log_dir, False
        elif (of_sibling := reader.of_sibling(own)) is not None:
            metadata, borrowed = of_sibling, True
        else:
            continue
        is_of_node = None in (static_node, own.node_id) or static_node == own.node_id
        broker = BrokerSettings(own.node_id, static if is_of_node else None)
        of_sources[source] = TopicsOfSource(metadata, broker, borrowed)
    known = KnownTopics(of_sources, [*reader.warnings, *reader.unread_copies(of_sources, log_dirs)])
    if not known.warnings:
        _ensure_of_use(options, known)
    if static is None:
        return known
    compared = _compared(static, of_sources, {name: reader.properties(log_dir) for name, log_dir in log_dirs.items()})
    doubts = _doubts(f"--server-properties {options.server_properties}", static, of_sources, log_dirs, compared)
    return replace(known, warnings=[*known.warnings, *doubts], contradicted=compared.contradicted)


def ensure_proven(
    options: MetadataOptions, known: KnownTopics, sources: Iterable[Source], *, same_broker: bool
) -> None:
    """Refuse a server.properties that may be another broker's, before a deletion rests on it. It must have the node id
    of the source's `meta.properties`, name the source's log dir, and contradict nothing that is known. With
    `same_broker` the user says whose it is, which holds unless something contradicts it.
    """
    file = f"--server-properties {options.server_properties}"
    if known.contradicted:
        raise UsageError(
            f"{file}: nothing is deleted by it, also with --same-broker: {'; '.join(known.contradicted)}; give the "
            "file that this broker was last started with, or start the broker with this one first"
        )
    if same_broker:
        return
    for source in sources:
        if (of_source := known.of_sources.get(source.name)) is None or of_source.broker.server_properties is None:
            continue
        if of_source.broker.node_id is None:
            raise UsageError(
                f"{file}: nothing is deleted by it, as {source.log_dir / META_PROPERTIES} names no node; if that is "
                "the log dir of this file's broker, give --same-broker"
            )
        if not _names(of_source.broker.server_properties, source.log_dir):
            raise UsageError(
                f"{file}: nothing is deleted by it, as {_log_dirs(of_source.broker.server_properties)} do not name "
                f"{source.log_dir}; if that is a log dir of this file's broker, mounted elsewhere, give --same-broker"
            )


def _doubts(
    file: str,
    static: Mapping[str, str],
    of_sources: Mapping[str, TopicsOfSource],
    log_dirs: Mapping[str, Location],
    compared: _Compared,
) -> list[str]:
    """A warning if `ensure_proven` would refuse a server.properties that is used nevertheless; else nothing."""
    by_file = [name for name, of_source in of_sources.items() if of_source.broker.server_properties is not None]
    nameless = [log_dirs[name] for name in by_file if of_sources[name].broker.node_id is None]
    unnamed = [log_dirs[name] for name in by_file if not _names(static, log_dirs[name])]
    why = [f"{log_dir / META_PROPERTIES} names no node" for log_dir in nameless]
    if unnamed:
        why.append(f"{_log_dirs(static)} do not name {', '.join(map(str, unnamed))}")
    why += compared.contradicted
    if not why:
        return []
    is_or_may_be = (
        "is another broker's, or not the one of its last start" if compared.contradicted else "may be another broker's"
    )
    voters = static.get(_VOTERS)
    whose = f"node.id={static.get('node.id', static.get('broker.id'))}{f', {_VOTERS}={voters}' if voters else ''}"
    return [
        f"{file} ({whose}): it {is_or_may_be}, as {', and '.join(why)}; {compared}; its values are used all the same"
    ]


@dataclass(slots=True)
class _Compared:
    """A server.properties compared with what the disk says about the sources' broker.

    Attributes:
        contradicted: what certainly differs, with both values.
        alike: the settings that agree with the disk.
        unknown: the settings that could not be compared.
        confirmed: a setting agrees that no two clusters have in common.
    """

    contradicted: list[str] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    confirmed: bool = False

    def add(self, what: str, differs: str | None, *, is_known: bool, confirms: bool = False) -> None:
        """Add the comparison of a setting. `differs` is the contradiction in words, or None. A setting that `confirms`
        shows by its agreement that the file is this cluster's.
        """
        if differs is not None:
            self.contradicted += [] if differs in self.contradicted else [differs]
            return
        names = self.alike if is_known else self.unknown
        names += [] if what in names else [what]
        self.confirmed |= is_known and confirms

    def __str__(self) -> str:
        alike = f"as the disk has them: {', '.join(self.alike) or 'none'}"
        unknown = f"not compared: {', '.join(self.unknown) or 'none'}"
        nothing = "" if self.confirmed or self.contradicted else "; nothing on the disk confirms whose it is"
        return f"{alike}; {unknown}{nothing}"


def _compared(
    static: Mapping[str, str], of_sources: Mapping[str, TopicsOfSource], own: Mapping[str, MetaProperties]
) -> _Compared:
    """Compare a server.properties with what is certain about the sources' broker; `own` has the sources'
    `meta.properties`.
    """
    compared = _Compared()
    for name, of_source in of_sources.items():
        if of_source.broker.server_properties is None:
            continue
        cluster_id, in_file = own[name].cluster_id, static.get("cluster.id")
        if None not in (cluster_id, in_file):
            differs = f"its cluster.id is {in_file}, and that of {META_PROPERTIES} is {cluster_id}"
            compared.add("cluster.id", differs if cluster_id != in_file else None, is_known=True, confirms=True)
        _compare_node(static, of_source, compared)
    return compared


def _compare_node(static: Mapping[str, str], of_source: TopicsOfSource, compared: _Compared) -> None:
    """Compare a server.properties with a node's registration (`BrokerServer`, `ControllerServer`) and the voters."""
    metadata, own_id = of_source.metadata.to_end, of_source.broker.node_id
    if (node_id := _node_id(static, "") if own_id is None else own_id) is None:
        return
    differs = None
    if own_id is None and metadata.brokers and node_id not in metadata.brokers:
        registered = ", ".join(map(str, sorted(metadata.brokers)))
        differs = f"its node.id is {node_id}, and by {metadata.directory} the brokers are {registered}"
    compared.add("node.id", differs, is_known=own_id is not None)
    has_log_dirs = own_id is not None and bool(metadata.log_dirs.get(own_id))
    compared.add("number of log.dirs", _other_log_dirs(static, of_source), is_known=has_log_dirs)
    has_rack = (broker := metadata.brokers.get(node_id)) is not None
    rack = static.get(_RACK) or None
    differs = None
    if broker is not None and rack != (broker.rack or None) and not _is_indirect(rack):
        differs = (
            f"its {_RACK} is {rack or 'not set'}, and by {metadata.directory} broker {node_id} has "
            f"{broker.rack or 'none'}"
        )
    compared.add(_RACK, differs, is_known=has_rack and not _is_indirect(rack))
    _compare_roles(static, node_id, metadata, compared)
    dynamic = metadata.broker_configs.get(str(node_id), {}).keys() | metadata.broker_configs.get("", {}).keys()
    is_dynamic = not dynamic.isdisjoint(_LISTENERS)  # these may have been registered instead
    for kind, endpoints in (
        ("broker", None if broker is None or is_dynamic else broker.endpoints),
        ("controller", None if is_dynamic else metadata.controllers.get(node_id)),
    ):
        if kind == "broker" or "controller" in parse_property_list(static[_ROLES]):
            _compare_listeners(static, kind, f"by {metadata.directory} {kind} {node_id}", endpoints, compared)
    compared.add(
        _VOTERS, _other_voters(static, metadata), is_known=None not in (metadata.static_voters, static.get(_VOTERS))
    )
    _compare_addresses(static, node_id, metadata, compared)


def _compare_roles(static: Mapping[str, str], node_id: int, metadata: ClusterMetadata, compared: _Compared) -> None:
    """Compare a node's roles: a voter is a controller, and a controller since Kafka 3.7 registers when it starts."""
    roles = static[_ROLES]
    is_controller = "controller" in parse_property_list(roles)
    voters = metadata.static_voters if metadata.dynamic_voters is None else metadata.dynamic_voters.keys()
    differs = None
    if voters and node_id in voters and not is_controller:
        differs = f"node {node_id} is a voter"
    elif is_controller and voters and node_id not in voters and metadata.controllers.keys() - {node_id}:
        differs = None if node_id in metadata.controllers else f"node {node_id} is no controller"
    if differs is not None:
        differs = f"its {_ROLES} is {roles}, and by {metadata.directory} {differs}"
    compared.add(_ROLES, differs, is_known=bool(voters))


def _compare_listeners(
    static: Mapping[str, str],
    kind: str,
    whose: str,
    registered: Sequence[Endpoint] | None,
    compared: _Compared,
) -> None:
    """Compare the listeners that a node would register as a broker or as a controller, by `kind`, with those that it
    has registered.
    """
    what = f"listeners of the {kind}"
    advertised = _advertised(static, of_controller=kind == "controller")
    if advertised is None or not registered:
        compared.add(what, None, is_known=False)
        return
    by_name = {endpoint.name.upper(): endpoint for endpoint in registered}
    is_alike = by_name.keys() == {endpoint.name for endpoint in advertised} and all(
        endpoint.port in (0, by_name[endpoint.name].port)
        and endpoint.host.lower() in ("", by_name[endpoint.name].host.lower())  # an empty host is the machine's name
        for endpoint in advertised
    )
    differs = f"its {what} are {_shown(advertised)}, and {whose} has registered {_shown(registered)}"
    is_own_name = all(_OWN_HOST.fullmatch(endpoint.host) for endpoint in advertised)
    compared.add(what, None if is_alike else differs, is_known=True, confirms=not is_own_name)


def _advertised(static: Mapping[str, str], *, of_controller: bool) -> list[Endpoint] | None:
    """The listeners that a node registers (`KafkaConfig.effectiveAdvertisedBrokerListeners`,
    `effectiveAdvertisedControllerListeners`), with names in capitals; None if the file does not contain them.
    """
    names = {name.upper() for name in parse_property_list(static.get("controller.listener.names", ""))}
    bound = _endpoints(static.get("listeners", _DEFAULT_LISTENERS))
    advertised = _endpoints(static["advertised.listeners"]) if "advertised.listeners" in static else bound
    if advertised is None or bound is None:
        return None
    if not of_controller:
        return [endpoint for endpoint in advertised if endpoint.name not in names]
    by_name = {endpoint.name: endpoint for endpoint in (*bound, *advertised)}
    return [by_name[name] for name in sorted(names & by_name.keys())]


def _endpoints(text: str) -> list[Endpoint] | None:
    """Parse a list of listeners; None if one cannot be parsed, such as a value from a config provider."""
    matches = [_LISTENER.fullmatch(listener) for listener in parse_property_list(text)]
    if not all(matches):
        return None
    return [
        Endpoint(match["name"].upper(), match["host"], int(match["port"])) for match in matches if match is not None
    ]


def _shown(endpoints: Iterable[Endpoint]) -> str:
    return ", ".join(sorted(map(str, endpoints))) or "none"


def _is_indirect(value: str | None) -> bool:
    """Whether a value comes from a config provider (`ConfigProvider`)."""
    return value is not None and "${" in value


def _compare_addresses(static: Mapping[str, str], node_id: int, metadata: ClusterMetadata, compared: _Compared) -> None:
    """Compare the quorum's addresses in the file with those in the metadata: one controller has to be in both. For a
    host that means the machine itself, only the port is compared; also for the node's own controller, which registers
    the machine's name if its listener has no host, once another setting has confirmed the file.
    """
    known = {**metadata.controllers, **(metadata.dynamic_voters or {})}
    own = _advertised(static, of_controller=True) or ()
    is_own_name = all(_OWN_HOST.fullmatch(endpoint.host) for endpoint in own)
    any_host = node_id if compared.confirmed and is_own_name else None
    for setting in filter(static.__contains__, (_BOOTSTRAP, _VOTERS)):
        matches = [_ADDRESS.fullmatch(address) for address in parse_property_list(static[setting])]
        if not matches or not all(matches) or not any(known.values()):
            compared.add(f"addresses in {setting}", None, is_known=False)
            continue
        by_port_alone = {
            bool(_OWN_HOST.fullmatch(match["host"]) or _OWN_HOST.fullmatch(endpoint.host) or node == any_host)
            for match in matches
            for node, endpoints in known.items()
            for endpoint in endpoints
            if match is not None and _is_at(match["host"], int(match["port"]), endpoint, any_host=node == any_host)
        }
        at = _shown({endpoint for endpoints in known.values() for endpoint in endpoints})
        differs = (
            f"its {setting} is {static[setting]}, and by {metadata.directory} the controllers are at {at} (where that "
            "is the same by another name, write one of these into a copy of the file)"
        )
        compared.add(
            f"addresses in {setting}",
            None if by_port_alone else differs,
            is_known=True,
            confirms=False in by_port_alone,
        )


def _is_at(host: str, port: int, endpoint: Endpoint, *, any_host: bool) -> bool:
    is_own = any_host or _OWN_HOST.fullmatch(host) or _OWN_HOST.fullmatch(endpoint.host)
    return port == endpoint.port and bool(is_own or host.lower() == endpoint.host.lower())


def _other_log_dirs(static: Mapping[str, str], of_source: TopicsOfSource) -> str | None:
    """How `log.dirs` contradicts the broker's log dirs in number; None: it does not. A broker registers the log dirs in
    use at its start (`BrokerServer`). A log dir that was not in use then is known from its partitions.
    """
    node_id, metadata = of_source.broker.node_id, of_source.metadata.to_end
    if node_id is None or not (registered := set(metadata.log_dirs.get(node_id, ()))):
        return None
    count = len(set(_named_log_dirs(static))) or 1  # Kafka's default is one log dir
    if count > len(registered):
        places = (place for assignment in metadata.assignments.values() for place in assignment.places)
        registered |= {directory for node, directory in places if node == node_id and not _is_reserved(directory)}
        if count <= len(registered):
            return None
    if count == len(registered):
        return None
    return (
        f"{_log_dirs(static)} are {count:,}, and by {metadata.directory} broker {node_id} has {len(registered):,} "
        f"(directory.id {', '.join(sorted(registered))})"
    )


def _is_reserved(directory_id: str) -> bool:
    """Whether an id means unassigned, lost or migrating, and no log dir (`DirectoryId.reserved`)."""
    return int.from_bytes(base64.urlsafe_b64decode(f"{directory_id}==")) < _RESERVED_IDS


def _other_voters(static: Mapping[str, str], metadata: ClusterMetadata) -> str | None:
    """How `controller.quorum.voters` contradicts the quorum's voters; None: it does not. A quorum whose voters are only
    in this setting has the same ones on each node (`QuorumConfig`).
    """
    in_file, voters = static.get(_VOTERS), metadata.to_end.static_voters
    if in_file is None or voters is None:
        return None
    ids = {int(node_id) for voter in parse_property_list(in_file) if (node_id := voter.partition("@")[0]).isdecimal()}
    if ids == voters:
        return None
    return f"{_VOTERS}={in_file}, and by {metadata.directory} the voters are {', '.join(map(str, sorted(voters)))}"


def _names(static: Mapping[str, str], log_dir: Location) -> bool:
    """Whether a server.properties names a log dir. The base of a relative path is not known here."""
    real = os.path.realpath(str(log_dir))
    return any(os.path.isabs(path) and os.path.realpath(path) == real for path in _named_log_dirs(static))


def _log_dirs(static: Mapping[str, str]) -> str:
    return f"its log.dirs ({', '.join(_named_log_dirs(static)) or 'not set'})"


def _named_log_dirs(static: Mapping[str, str]) -> list[str]:
    return parse_property_list(static.get("log.dirs", static.get("log.dir", "")))


def _ensure_of_use(options: MetadataOptions, known: KnownTopics) -> None:
    """Refuse options that have no effect on any source."""
    values = {
        "--server-properties": options.server_properties,
        "--metadata-high-watermark": options.metadata_high_watermark,
    }
    for option, value in values.items():
        if value is not None and not known.of_sources:
            raise UsageError(
                f"{option} {value}: no source has {METADATA_DIRECTORY} beside its partitions; name it with "
                "--cluster-metadata"
            )
    brokers = [of_source.broker for of_source in known.of_sources.values()]
    if options.server_properties is not None and all(broker.server_properties is None for broker in brokers):
        nodes = ", ".join(sorted({str(broker.node_id) for broker in brokers}))
        raise UsageError(
            f"--server-properties {options.server_properties}: its node.id is none of the sources' ({nodes}); "
            "give the file of a source's broker"
        )


@dataclass(slots=True)
class _KnownTopicsReader:
    """Reads a log dir once. The `recorded` sources are those of `read_known_topics`."""

    high_watermark: int | None
    log_dirs: Sequence[Location]
    recorded: Callable[[], Iterable[Source]]
    warnings: list[str] = field(default_factory=list)
    _unread: dict[Location, str] = field(default_factory=dict)
    _properties: dict[str, MetaProperties] = field(default_factory=dict)
    _metadata: dict[str, ClusterMetadata | None] = field(default_factory=dict)
    _recorded_log_dirs: list[Location] | None = None

    def properties(self, log_dir: Location) -> MetaProperties:
        """A log dir's `meta.properties`; empty, with a warning, if they cannot be read."""
        name = str(log_dir)
        if name not in self._properties:
            try:
                self._properties[name] = read_meta_properties(log_dir)
            except (CheckpointError, OSError) as error:
                self.warnings.append(f"{describe_error(error)}; it is not known whose log dir that is")
                self._properties[name] = MetaProperties()
        return self._properties[name]

    def optional(self, log_dir: Location) -> ClusterMetadata | None:
        """The metadata in a log dir; None if it cannot be read, which `unread_copies` tells."""
        directory = log_dir / METADATA_DIRECTORY
        name = str(directory)
        if name not in self._metadata:
            self._metadata[name] = self._read_metadata(directory)
        return self._metadata[name]

    def _read_metadata(self, directory: Location) -> ClusterMetadata | None:
        try:
            metadata = read_despite_damage(directory, self.high_watermark) if is_metadata_directory(directory) else None
        except (ClusterMetadataError, OSError) as error:
            self._unread[directory.parent] = describe_error(error)
            return None
        if metadata is not None and metadata.left_out is not None:
            self.warnings.append(
                f"{directory / metadata.left_out}: no whole snapshot; the one before it and the log were read, which "
                "lead to its end"
            )
        return metadata

    def unread_copies(
        self, of_sources: Mapping[str, TopicsOfSource], log_dirs: Mapping[str, Location]
    ) -> Iterator[str]:
        """A line on each copy that cannot be read: it may have been the newest, also where another one counts."""
        for log_dir, why in self._unread.items():
            cluster = self.properties(log_dir).cluster_id
            instead = [
                of_source.metadata
                for name, of_source in of_sources.items()
                if cluster is not None and self.properties(log_dirs[name]).cluster_id == cluster
            ]
            if instead:
                furthest = max(instead, key=lambda metadata: metadata.how_far)
                yield furthest.instead_of(why, has_settings=True)
            else:
                yield f"{why}; what it says of topics is not known"

    def of_sibling(self, own: MetaProperties) -> ClusterMetadata | None:
        """The metadata in another log dir of the cluster, as `read_known_topics` chooses it."""
        if own.cluster_id is None:
            return None
        copies = self._copies(own, self.log_dirs)
        if not any(is_of_node for is_of_node, _, _ in copies):
            if self._recorded_log_dirs is None:
                self._recorded_log_dirs = [source.log_dir for source in self.recorded()]
            copies += self._copies(own, self._recorded_log_dirs)
        return max(copies, key=lambda copy: copy[:2])[2] if copies else None

    def _copies(self, own: MetaProperties, log_dirs: Iterable[Location]) -> list[tuple[bool, int, ClusterMetadata]]:
        """The copies of a cluster's metadata, each after whether it is the same node's and how far it was read."""
        copies = []
        for log_dir in log_dirs:
            properties = self.properties(log_dir)
            if properties.cluster_id == own.cluster_id and (metadata := self.optional(log_dir)) is not None:
                copies.append((properties.node_id == own.node_id, metadata.as_of.offset, metadata))
        return copies

    def required(self, directory: Location) -> ClusterMetadata:
        name = str(directory)
        try:
            metadata = self._metadata.get(name) or read_cluster_metadata(directory, self.high_watermark)
        except (ClusterMetadataError, OSError) as error:
            raise _unreadable(directory, error) from error
        self._metadata[name] = metadata
        return metadata

    def ensure_of_cluster(self, directory: Location, log_dir: Location, own: MetaProperties) -> None:
        try:
            of_metadata = read_meta_properties(directory.parent)
        except (CheckpointError, OSError) as error:
            raise _unreadable(directory, error) from error
        if None not in (own.cluster_id, of_metadata.cluster_id) and own.cluster_id != of_metadata.cluster_id:
            raise UsageError(
                f"--cluster-metadata {directory}: of cluster {of_metadata.cluster_id}, and {log_dir} is of cluster "
                f"{own.cluster_id}; name the metadata of that one"
            )


def _metadata_directory(text: str) -> Location:
    """The directory of metadata that an option names, or whose log dir it names."""
    place = given_location("--cluster-metadata ", text) or Path(text)
    try:
        for directory in (place / METADATA_DIRECTORY, place):
            if is_metadata_directory(directory):
                return directory
    except OSError as error:
        raise _unreadable(place, error) from error
    raise UsageError(f"--cluster-metadata {text}: no such directory; expected a log dir, or its {METADATA_DIRECTORY}")


def _unreadable(directory: Location, error: KidxError | OSError) -> UsageError:
    return UsageError(f"--cluster-metadata {directory}: {describe_error(error)}")


def is_metadata_directory(place: Location) -> bool:
    """Whether a directory for metadata is there: on a disk, or, by the objects below it, in a store."""
    if isinstance(place, Path):
        return place.is_dir()
    return any(True for _ in place.glob("*"))


def _server_properties(file: Path) -> Mapping[str, str]:
    """Read the file that a broker was started with. Settings that it omits have Kafka's defaults, so another file, such
    as a client's, is refused (`KafkaConfig`: KRaft requires both `process.roles` and `node.id`).
    """
    try:
        properties = parse_properties(small_file(file))
    except OSError as error:
        raise UsageError(f"--server-properties {describe_error(error)}") from error
    spellings = {"node.id": {"node.id", "broker.id"}, _ROLES: {_ROLES}}
    lacking = [name for name, names in spellings.items() if names.isdisjoint(properties)]
    if lacking:
        raise UsageError(
            f"--server-properties {file}: no {' and no '.join(lacking)} in it, expected the file that a broker with "
            "KRaft is started with: what it does not set is then Kafka's default"
        )
    if "broker" not in parse_property_list(properties[_ROLES]):
        raise UsageError(
            f"--server-properties {file}: {_ROLES}={properties[_ROLES]}, expected broker among them: a controller has "
            "no topics; name the file of the source's broker"
        )
    return properties


def _node_id(static: Mapping[str, str], where: str) -> int | None:
    try:
        return node_id_of(static, where)
    except CheckpointError as error:
        raise UsageError(f"--server-properties {error}") from error


def counted_by_origin(origins: Mapping[str, int]) -> str:
    """The number of topics with a value from metadata, in all and by who set it."""
    by_origin = ", ".join(f"{origin} {count:,}" for origin, count in sorted(origins.items()))
    return f"{sum(origins.values()):,} ({by_origin})" if by_origin else "0"


def metadata_as_json(metadata: ClusterMetadata, topics: int, taken: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """A copy of metadata, how far it was read, for how many topics a run asked it, and for how many it gave each
    setting, by who set it.
    """
    return {
        "directory": str(metadata.directory),
        "offset": metadata.as_of.offset,
        "timestamp_ms": metadata.as_of.timestamp_ms,
        "end_offset": metadata.end_offset,
        "topics": topics,
        "taken": {name: dict(sorted(origins.items())) for name, origins in taken.items()},
    }
