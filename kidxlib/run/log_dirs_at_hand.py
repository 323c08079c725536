"""Whether a run has all log dirs of its brokers at hand: the log dirs that metadata knows and nobody has given, and the
nodes whose log of the cluster's metadata is not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kidxlib.indexing.source import Source
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.run.known_topics import KnownTopics, is_metadata_directory
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES, MetaProperties, usable_meta_properties
from kidxlib.text.words import counted


def log_dirs_not_at_hand(known: KnownTopics, sources: Iterable[Source], at_hand: Iterable[Source]) -> list[str]:
    """The log dirs that brokers of a run's sources have and nobody has given, a line for each broker. All given ones
    are `at_hand`.
    """
    at_hand = list(at_hand)
    unmarked = [
        source
        for source in at_hand
        if isinstance(source.path, Path) and not (source.log_dir / META_PROPERTIES).exists()
    ]
    which = "no source of the catalog: nothing is planned or deleted there"
    if unmarked:
        names = ", ".join(f"{source.name} ({source.path})" for source in unmarked)
        which = f"no source that says so; source {names} has no {META_PROPERTIES} here: is the disk mounted?"
    return [
        f"broker {node_id} has {counted(len(others), 'more log dir')} (directory.id {', '.join(others)}), {which}"
        for node_id, others in unnamed_log_dirs(known, sources, at_hand)
    ]


def unnamed_log_dirs(
    known: KnownTopics, sources: Iterable[Source], at_hand: Iterable[Source]
) -> list[tuple[int, tuple[str, ...]]]:
    """The brokers of a run's sources, each with the ids of its log dirs that nobody has given, from the metadata. All
    given ones are `at_hand`.
    """
    ids = {usable_meta_properties(source.log_dir).directory_id for source in at_hand}
    unnamed: dict[tuple[int, tuple[str, ...]], None] = {}
    for source in sources:
        of_source = known.of_sources.get(source.name)
        if of_source is None or (node_id := of_source.broker.node_id) is None:
            continue
        others = sorted(set(of_source.metadata.to_end.log_dirs.get(node_id, ())) - ids)
        if others:
            unnamed[node_id, tuple(others)] = None
    return list(unnamed)


def without_metadata_log(
    sources: Iterable[Source], at_hand: Iterable[Source], known: KnownTopics
) -> list[tuple[int | None, list[Location]]]:
    """The KRaft nodes of sources without a log of the cluster's metadata, each with its log dirs among the sources. A
    node keeps that log in one of its log dirs, or in `metadata.log.dir`. All given log dirs are `at_hand`; the metadata
    also says which log dirs belong to the node whose copy it is.
    """
    # A backup of a log dir may have the metadata log that the log dir itself has lost: the node does not have that log.
    of_kraft = list(_of_kraft(at_hand))
    lost = {own.directory_id for log_dir, own in of_kraft if not is_metadata_directory(log_dir / METADATA_DIRECTORY)}
    nodes_with_log = {_node(own) for log_dir, own in of_kraft if is_metadata_directory(log_dir / METADATA_DIRECTORY)}
    copies = known.read()
    # A `metadata.log.dir` that is none of `log.dirs` is not registered with the cluster (`LogManager.directoryIds`).
    owners = _of_kraft(Source("", metadata.directory.parent) for metadata in copies)
    nodes_with_log |= {_node(own) for _, own in owners if own.directory_id not in lost}
    ids_with_log = {directory_id for metadata in copies for directory_id in _log_dirs_of_node(metadata, lost)}
    lacking: defaultdict[tuple[str | None, int | None], list[Location]] = defaultdict(list)
    for log_dir, own in _of_kraft(sources):
        if _node(own) not in nodes_with_log and own.directory_id not in ids_with_log:
            lacking[_node(own)].append(log_dir)
    return [(node_id, log_dirs) for (_, node_id), log_dirs in lacking.items()]


def _log_dirs_of_node(metadata: ClusterMetadata, lost: Collection[str | None]) -> Collection[str]:
    """The ids of the log dirs of the node that has this copy of the metadata; none if its log dir has lost the copy."""
    own = usable_meta_properties(metadata.directory.parent).directory_id
    if own in lost:
        return ()
    return next((ids for ids in metadata.to_end.log_dirs.values() if own in ids), ())


def _node(properties: MetaProperties) -> tuple[str | None, int | None]:
    return properties.cluster_id, properties.node_id


def _of_kraft(sources: Iterable[Source]) -> Iterator[tuple[Location, MetaProperties]]:
    """The log dirs of KRaft nodes, each with its `meta.properties`."""
    for source in sources:
        properties = usable_meta_properties(source.log_dir)
        if properties.is_kraft:
            yield source.log_dir, properties
