"""Sources, the directories of their partitions, the logs in these, and where their index files are: what the options
that name these directories mean, and which places they may not name.

A bucket of tiered storage is a source, too (`SourceBucket`): the objects in it are the segments of its partitions.
Without metadata all logs there count. With metadata those count that brokers read, with the offsets that consumers get.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from kidxlib.errors import CheckpointError, RemoteLogMetadataError, UsageError, describe_error
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import (
    INTERNAL_TOPICS,
    TOPIC_LENGTH_MAX,
    TopicPartition,
    is_topic_name,
    parse_partition_directory,
)
from kidxlib.log.remote.layout import (
    AIVEN,
    LOCAL,
    MANIFEST_SUFFIX,
    STORAGE_DIRECTORY,
    ObjectLayout,
    ensure_manifest_of_partition,
    ensure_manifest_of_segment,
    find_bucket,
    list_objects,
    object_name,
    parse_topic_id_partition,
    read_manifest,
)
from kidxlib.log.remote.metadata_topic import metadata_partitions
from kidxlib.log.remote.segments import VisibleOffsets, epochs_read, visible_offsets
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.storage.location import (
    Directory,
    FileVersion,
    Location,
    as_text,
    given_indexes,
    given_location,
    identity_of,
    is_inside,
    location,
)
from kidxlib.storage.log_dir import (
    META_PROPERTIES,
    ensure_no_copies,
    is_broker_log_dir,
    is_partition_directory,
    read_meta_properties,
)
from kidxlib.storage.packed import PackedPath, is_packed
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import SCHEME, is_object
from kidxlib.text.times import NS_PER_MS

#: A segment as a listing finds it: base offset, and the log's bytes, modification time in ns and inode.
FoundSegment: TypeAlias = tuple[int, int, int, int]
#: The bytes of a log that could not be looked at, and the inode of an object.
NOT_SEEN: Final = -1
NO_INODE: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """A caller's options for a source that is a bucket of tiered storage.

    Attributes:
        layout: its name; None to find a bucket of `LocalTieredStorage` by the names of its directories.
        metadata: log dirs or exports with `__remote_log_metadata`.
    """

    layout: str | None = None
    metadata: tuple[str, ...] = ()


NOT_SAID: Final = RemoteOptions()

#: How many directories, and entries of each, are looked at for a log.
_LOOKED_AT_MAX: Final = 50
_ENTRIES_MAX: Final = 200
ANY_TOPIC: Final = re.compile(".*")


@dataclass(frozen=True, slots=True)
class Source:
    """A Kafka log dir or partition directory, and its name in the catalog.

    Attributes:
        remote: of a bucket of tiered storage, how its objects are named; None of any other.
    """

    name: str
    path: Location
    remote: SourceBucket | None = field(default=None, compare=False)

    @property
    def log_dir(self) -> Location:
        """The source, or the log dir around it where it is a partition's directory."""
        return self.path.parent if is_partition_directory(self.path) else self.path


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A partition's directory in a source.

    Attributes:
        remote: in a bucket of tiered storage, its logs; None in any other.
    """

    source: Source
    topic_partition: TopicPartition
    path: Location
    remote: SourceBucketLogs | None = field(default=None, compare=False)

    def file(self, base_offset: int, suffix: str) -> Location:
        if self.remote is not None:
            return self.remote.path(base_offset, suffix)
        return self.path / segment_file(base_offset, suffix)

    @property
    def log_dir(self) -> Location:
        """The parent directory, where a broker keeps its lock and checkpoint files."""
        return self.path.parent

    @property
    def is_meant_by_name_only(self) -> bool:
        """Whether no pattern means the topic, as brokers keep it for themselves. If the source is this very directory,
        the topic is meant anyway.
        """
        return self.topic_partition.topic in INTERNAL_TOPICS and self.path != self.source.path


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLog:
    """A segment's log as it was listed.

    Attributes:
        source: name of the source.
        version: None where the file could not be looked at.
        active: it has the highest base offset of its partition in this source, so a broker may still be writing to it.
    """

    source: str
    topic_partition: TopicPartition
    base_offset: int
    path: str
    version: FileVersion | None
    active: bool

    @property
    def partition_key(self) -> tuple[str, str, int]:
        return self.source, self.topic_partition.topic, self.topic_partition.partition


def parse_source(text: str, name_required: bool, remote: RemoteOptions = NOT_SAID) -> Source:
    """The source that `[NAME=]DIR` means."""
    name, path = split_name(text)
    if name_required and not name:
        raise UsageError(f"{text}: with several sources each needs a name, as in --source broker1={text}")
    return source_at(path, name, remote)


def split_name(text: str) -> tuple[str, str]:
    """The name, or "", and the place that `[NAME=]PLACE` means."""
    name, equals, path = text.partition("=")
    if equals and is_topic_name(name):
        return name, path
    if equals and not is_object(text) and not os.path.exists(text):
        raise UsageError(
            f"{text}: the name {name!r} may hold only letters, digits, '.', '_' and '-', "
            f"{TOPIC_LENGTH_MAX} of them at most, and not be '.' or '..'"
        )
    return "", text


def source_at(path: str, name: str = "", remote: RemoteOptions = NOT_SAID) -> Source:
    """The source in a directory. Its name is the given one, else its real path or its URL."""
    if not path:
        raise UsageError("an empty name instead of a directory; expected a Kafka log dir or a partition's directory")
    try:
        directory: Location = given_location("", path) or Path(os.path.realpath(path))
        if isinstance(directory, Path):
            os.scandir(directory).close()
        elif not directory.exists():
            raise FileNotFoundError(errno.ENOENT, "no object with this prefix")
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {why}; expected a Kafka log dir or a partition's directory") from error
    return Source(name or as_text(directory), directory, remote_bucket(directory, remote))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlace:
    """Where index files go, or are: in a directory for each partition of an index directory, below their source's name
    if `by_source`; without an index directory, beside the segments. An index directory may be the place in a catalog
    that packs the files (`PackedPath`).
    """

    index_dir: Location | None
    by_source: bool

    def directory(self, partition: PartitionDirectory) -> Directory:
        name = partition.topic_partition.directory
        if self.index_dir is None:
            return Directory(str(partition.log_dir), partition.path.name)
        if isinstance(self.index_dir, PackedPath) and self.by_source:
            return Directory(str(self.index_dir.of_source(self.index_dir.catalog, partition.source.name)), name)
        return Directory(str(self.index_dir), f"{partition.source.name}/{name}" if self.by_source else name)


def segments_directory(source: Location, topic_partition: TopicPartition, logs: Mapping[int, str]) -> Directory | None:
    """The directory of a partition's logs, below their source; None if a log's path in a table (`logs`, by base offset)
    is elsewhere.
    """
    name = topic_partition.directory
    for log_dir in (source, source.parent):  # the source may be a log dir, or this very partition's directory
        paths = (str(log_dir / name / segment_file(base_offset, LOG_SUFFIX)) for base_offset in logs)
        if all(path == recorded for path, recorded in zip(paths, logs.values(), strict=True)):
            return Directory(str(log_dir), name)
    return None


def index_directory(topic_partition: TopicPartition, recorded: Collection[str]) -> Directory | None:
    """The directory of a partition's index files; None if a table names several directories, or one of another
    partition.
    """
    path = location(min(recorded))
    if len(set(recorded)) > 1 or path.name != topic_partition.directory:
        return None
    return Directory(str(path.parent), path.name)


def ensure_distinct_directories(sources: Sequence[Source]) -> None:
    """Refuse sources whose segments would count twice: one directory under two names, as through a symlink or a bind
    mount, and a partition's directory together with its log dir.
    """
    by_directory: dict[object, Source] = {}
    for source in sources:
        other = by_directory.setdefault(identity_of(source.path), source)
        if other is source:
            continue
        if other.path != source.path:
            raise UsageError(f"{source.path}: the same directory as {other.path}; name each log dir once")
        names = "" if other.name == source.name else f", as source {other.name} and as source {source.name}"
        raise UsageError(f"{source.path}: given twice{names}; name each log dir once")
    for source in sources:
        is_partition_by_name = parse_partition_directory(source.path.name) is not None
        if is_partition_by_name and (log_dir := by_directory.get(identity_of(source.path.parent))) is not None:
            raise UsageError(f"{source.path}: it is in {log_dir.path}, which is given, too; leave out one of the two")


def parse_sources(given: Iterable[str], remote: RemoteOptions = NOT_SAID) -> tuple[Source, ...]:
    texts = tuple(given)
    sources = tuple(parse_source(text, name_required=len(texts) > 1, remote=remote) for text in texts)
    for name, count in Counter(source.name for source in sources).items():
        if count > 1:
            raise UsageError(f"--source: the name {name} is given {count} times; each source needs its own")
    ensure_distinct_directories(sources)
    return sources


def parse_topics(pattern: str, option: str = "--topics") -> re.Pattern[str]:
    """The pattern that says which topics of a source are meant; `option` is named in the error."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{option} {pattern}: not a regular expression: {error}") from error


def source_directories(names: Collection[str], sources: Sequence[Source]) -> list[Location]:
    """The directories of the sources with these names."""
    return [source.path for source in sources if source.name in names]


def index_dir_to_write(option: str, path: str) -> Location:
    """The absolute path of an index directory, which need not exist: on this machine, on a file system that every
    executor mounts, or in an object store.
    """
    if not path:
        raise UsageError(f"{option} '': expected the path of a directory")
    if is_packed(path):
        raise UsageError(
            f"{option} {path}: packed index files are in a catalog; give --pack, and the catalog with --catalog"
        )
    if (place := given_location(f"{option} ", path)) is not None:
        return place
    try:
        directory = Path(os.path.realpath(path))
    except ValueError as error:  # of a NUL
        raise UsageError(f"{option} {path}: {error}") from error
    # Not pathlib's own, which raise where a directory may not be entered.
    nearest = next(above for above in (directory, *directory.parents) if os.path.exists(above))
    if not os.path.isdir(nearest):
        raise UsageError(
            f"{option} {path}: {nearest} is a file; expected a directory, or a place where one can be made"
        )
    for above in (directory, *directory.parents):
        if is_broker_log_dir(above):
            raise UsageError(
                f"{option} {path}: {above} is a broker's log dir (it holds {META_PROPERTIES}), and a broker does not "
                "start beside directories that are no partitions; expected a place of its own"
            )
    if (log := _log_in(directory)) is not None:
        raise UsageError(
            f"{option} {path}: it is a log dir, {log} is there, and its index files would be replaced; expected a "
            f"place of its own{_hint(option)}"
        )
    return directory


def existing_index_dir(option: str, path: str) -> Location:
    """The absolute path of an index directory that a build has made, or its place in an object store. With
    `packed:<catalog>!/<source>`, the index files of a source that a build has packed in a catalog.
    """
    place = given_indexes(f"{option} ", path)
    try:
        if place is not None and place.exists():
            return place
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
    if isinstance(place, PackedPath):
        raise UsageError(
            f"{option} {path}: no catalog with packed index files is there; expected one that was built with --pack"
        )
    if not os.path.isdir(path):
        raise UsageError(f"{option} {path}: no such directory; expected an index directory that a build has made")
    return Path(os.path.realpath(path))


def ensure_no_overlap(
    index_dir: Location | None, catalog: str | None, sources: Iterable[Source], *, option: str = "--index-dir"
) -> None:
    """Refuse an index directory or a catalog (a path or URL) inside or around a source; and index files among tables,
    as VACUUM would delete them.
    """
    directories = [(f"source {source.path}", str(source.path)) for source in sources]
    written = []
    if index_dir is not None:
        written.append((f"{option} {index_dir}", str(index_dir)))
    if catalog is not None:
        written.append((f"--catalog {catalog}", re.sub("^s3[an]://", SCHEME, catalog)))  # Hadoop's names of the same
    for number, (what, path) in enumerate(written):
        for other_what, other in directories + written[:number]:
            if is_inside(path, other) or is_inside(other, path):
                raise UsageError(f"{what} and {other_what}: one is inside the other; keep them apart{_hint(what)}")


def _hint(option: str) -> str:
    """The library has no option that writes beside logs."""
    return " (--in-place writes beside the segments)" if option.startswith("--index-dir") else ""


def _log_in(directory: Path) -> str | None:
    """The path of a log in a directory, in one of its first partitions, or in one of the partitions of its first
    sources. An index directory has none. None also where directories may not be listed.
    """
    places, looked_at = [directory], 0
    while places and looked_at < _LOOKED_AT_MAX:
        place, looked_at = places.pop(0), looked_at + 1
        try:
            with os.scandir(place) as entries:
                inside = list(itertools.islice(entries, _ENTRIES_MAX))
        except OSError:
            continue
        for entry in inside:
            if entry.name.endswith(LOG_SUFFIX):
                return entry.path
            is_source = place == directory and parse_partition_directory(entry.name) is None
            if entry.is_dir(follow_symlinks=False) and (is_source or parse_partition_directory(entry.name) is not None):
                places.append(Path(entry.path))
    return None


LAYOUTS: Final = {layout.name: layout for layout in (LOCAL, AIVEN)}

#: By segment id.
Visible = Mapping[str, VisibleOffsets]


@dataclass(frozen=True, slots=True)
class SourceLocalLogs:
    """The logs of a partition in a log dir, at least one. Its leader answers from them wherever they begin; what is
    before that comes from the bucket (`ReplicaManager.readFromLog`).
    """

    directory: Path
    segments: Sequence[FoundSegment]

    @property
    def start_offset(self) -> int:
        return min(base_offset for base_offset, *_ in self.segments)


@dataclass(frozen=True, slots=True)
class SourceBucket:
    """A bucket of remote segments that is a source.

    Attributes:
        place: the directory of the partitions' directories.
        visible: the segments of each partition that count; None where all do.
        directories: those of partitions; None: all that are listed in `place`.
        local: the logs with which partitions go on in a log dir. Such a partition needs `visible`.
    """

    layout: ObjectLayout
    place: Location
    visible: Mapping[TopicIdPartition, Visible] | None = None
    directories: Mapping[TopicIdPartition, Location] | None = None
    local: Mapping[TopicIdPartition, SourceLocalLogs] = field(default_factory=dict)

    def logs(self) -> dict[TopicPartition, SourceBucketLogs]:
        """The logs of each partition in the bucket, in order. Two topics of one name cannot be read."""
        own = parse_topic_id_partition(self.place.name) if self.layout is LOCAL else None
        directories = self.directories
        if directories is None:
            directories = self.layout.list_partitions(self.place) if own is None else {own: self.place}
        logs: dict[TopicPartition, SourceBucketLogs] = {}
        for partition, place in directories.items():
            if self.visible is not None and not self.visible.get(partition):
                continue
            name = TopicPartition(partition.topic, partition.partition)
            other_id = None if name not in logs else logs[name].topic_id
            logs[name] = SourceBucketLogs(self, partition, place, of_same_name=other_id)
        return dict(sorted(logs.items()))


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """What lies in a partition's directory of a bucket.

    Attributes:
        ids: of the segments, by base offset.
        visible: the offsets that consumers get, by base offset; empty where no metadata tells.
    """

    segments: Sequence[FoundSegment]
    ids: Mapping[int, str]
    visible: Mapping[int, VisibleOffsets] = field(default_factory=dict)


class SourceBucketLogs:
    """The logs of one partition in a bucket, listed when they are first asked for. `of_same_name` is the id of another
    topic of the same name. Errors are those of `files`.
    """

    def __init__(
        self, bucket: SourceBucket, partition: TopicIdPartition, directory: Location, of_same_name: str | None = None
    ) -> None:
        self.topic_id, self._of_same_name = partition.topic_id, of_same_name
        self._partition = partition
        self._layout, self.directory = bucket.layout, directory
        self._visible = None if bucket.visible is None else bucket.visible.get(partition, {})
        self._local = bucket.local.get(partition)
        if self._local is not None:
            self._visible = _visible_before(self._local.start_offset, self._visible or {})
        self._files: RemoteFiles | None = None

    def files(self) -> RemoteFiles:
        if self._of_same_name is not None:
            raise UsageError(
                f"{self.directory}: the bucket has two topics of this name, with the ids {self._of_same_name} and "
                f"{self.topic_id}: one was deleted, and made again; name the log dir with __remote_log_metadata, which "
                "says what is left, with --tiered-metadata"
            )
        if self._files is None:
            listed = self._listed()
            local = () if self._local is None else self._local.segments
            self._files = replace(listed, segments=[*listed.segments, *sorted(local)])
        return self._files

    def path(self, base_offset: int, suffix: str) -> Location:
        """The object that is called `<base offset><suffix>` in a log dir."""
        ids = self.files().ids
        if self._local is not None and base_offset not in ids:
            return self._local.directory / segment_file(base_offset, suffix)
        return self.directory / object_name(base_offset, ids[base_offset], suffix)

    def warnings(self) -> list[str]:
        """A line for each segment that holds offsets of other segments."""
        return [
            f"{self.path(base_offset, LOG_SUFFIX)}: consumers get offsets {visible.first_offset} to "
            f"{visible.last_offset} of it; its others were copied by a later leader again, or never committed"
            for base_offset, visible in self.files().visible.items()
            if not visible.is_whole
        ]

    def _listed(self) -> RemoteFiles:
        segments: dict[int, FoundSegment] = {}
        ids: dict[int, str] = {}
        for row in list_objects(self.directory, self._layout.suffixes).objects.to_pylist():
            start_offset, segment_id = row["start_offset"], row["segment_id"]
            if row["suffix"] != LOG_SUFFIX or (self._visible is not None and segment_id not in self._visible):
                continue
            if start_offset in ids:
                raise UsageError(
                    f"{self.directory}: offset {start_offset} begins two segments, {ids[start_offset]} and "
                    f"{segment_id}: two leaders have copied it, or an upload was not finished; name the log dir with "
                    "__remote_log_metadata, which says what counts, with --tiered-metadata"
                )
            segments[start_offset] = (start_offset, row["bytes"], row["written_ms"] * NS_PER_MS, NO_INODE)
            ids[start_offset] = segment_id
        if not self._layout.has_single_files:
            self._ensure_plain(ids)
        visible = {} if self._visible is None else {start: self._visible[name] for start, name in ids.items()}
        if isinstance(self.directory, Path):
            segments = {start: self._of_file(self.directory, start, ids[start]) for start in segments}
        return RemoteFiles([segments[start] for start in sorted(segments)], ids, visible)

    @staticmethod
    def _of_file(directory: Path, start_offset: int, segment_id: str) -> FoundSegment:
        status = (directory / object_name(start_offset, segment_id, LOG_SUFFIX)).stat()
        return start_offset, status.st_size, status.st_mtime_ns, status.st_ino

    def _ensure_plain(self, ids: Mapping[int, str]) -> None:
        places = [(name, self.directory / object_name(start, name, MANIFEST_SUFFIX)) for start, name in ids.items()]
        for segment_id, place, content in in_order(lambda item: (*item, item[1].read_bytes()), places):
            try:
                manifest = read_manifest(content)
                ensure_manifest_of_segment(manifest, segment_id)
            except RemoteLogMetadataError as error:
                raise UsageError(
                    f"{place}: {error}; expected a manifest that says whether its log is as the broker had it"
                ) from error
            ensure_manifest_of_partition(manifest, self._partition, place)
            if not manifest.is_plain:
                how = " and ".join(
                    word
                    for word, is_so in (("compressed", manifest.is_compressed), ("encrypted", manifest.is_encrypted))
                    if is_so
                )
                raise UsageError(
                    f"{place}: its log is {how}, expected one as the broker had it; kidx cannot read others"
                )


def _visible_before(offset: int, visible: Visible) -> Visible:
    """What consumers get of remote segments where a log dir has the partition from an offset on."""
    return {
        segment_id: each if each.last_offset < offset else replace(each, last_offset=offset - 1, is_whole=False)
        for segment_id, each in visible.items()
        if each.first_offset < offset
    }


def remote_bucket(place: Location, said: RemoteOptions) -> SourceBucket | None:
    """The bucket at a place; None where there is none."""
    if said.layout is not None and said.layout not in LAYOUTS:
        raise UsageError(f"layout {said.layout!r}: expected {' or '.join(LAYOUTS)}")
    try:
        if said.layout is None:
            bucket = _local_bucket(place)
        else:
            bucket = find_bucket(place) if said.layout == LOCAL.name else place
        if bucket is not None:
            visible = _visible(said.metadata) if said.metadata else None
            return SourceBucket(LAYOUTS[said.layout or LOCAL.name], bucket, visible)
    except OSError as error:
        raise UsageError(f"{place}: {describe_error(error)}") from error
    if said.metadata:
        raise UsageError(
            f"{place}: no bucket of remote segments, for which --tiered-metadata is; name its layout with --layout"
        )
    return None


def _local_bucket(place: Location) -> Location | None:
    if place.name == STORAGE_DIRECTORY:
        return place
    if place.parent.name == STORAGE_DIRECTORY and parse_topic_id_partition(place.name) is not None:
        return place
    # In a store this would be a request for each source.
    below = place / STORAGE_DIRECTORY
    return below if isinstance(below, Path) and below.is_dir() else None


def _visible(metadata: Sequence[str]) -> Mapping[TopicIdPartition, Visible]:
    partitions = metadata_partitions([given_location("--tiered-metadata ", path) or Path(path) for path in metadata])
    if not partitions:
        raise UsageError(
            f"--tiered-metadata {', '.join(map(str, metadata))}: no partition of the metadata is there; "
            "name a log dir or an export that has it"
        )
    visible: dict[TopicIdPartition, Visible] = {}
    for partition in partitions.values():
        for of_partition, reads in epochs_read(partition.records()).items():
            visible[of_partition] = visible_offsets(reads)
    return visible


def ensure_distinct(sources: Sequence[Source]) -> None:
    """Refuse sources that are the same directory, or copies of one log dir."""
    ensure_distinct_directories(sources)
    properties = []
    for source in sources:
        with contextlib.suppress(CheckpointError, OSError):
            properties.append((source.log_dir, read_meta_properties(source.log_dir)))
    ensure_no_copies(properties)
