"""The two sides of a comparison before a log is read. A `ComparedPlace` is one side: its log dirs, their brokers,
checkpoints and directories. Of both sides together it is known what the cluster's metadata says, which partitions'
directories both have, and what differs in the log dirs' own files and checkpoints. Nothing is read but small files.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_DIR_CHECKPOINTS,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, LOG_SUFFIX
from kidxlib.format.topic_partition import (
    REMOTE_INDEX_CACHE,
    TopicPartition,
    is_moved,
    loaded_as,
    parse_partition_directory,
)
from kidxlib.indexing.source import Source
from kidxlib.log.metadata_image import ConfigValue
from kidxlib.operations.compare.comparison import ComparisonFinding, FindingKind, PartitionComparison
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.storage.location import Location, given_location, identity_of, names_in
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    ensure_one_broker,
    read_meta_properties,
    read_offset_checkpoint,
    read_topic_id,
    why_no_partitions,
)
from kidxlib.storage.small_files import small_file
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.terminal.console import warn_of_first
from kidxlib.text.words import counted

#: What a running broker alone has, or makes anew by itself, and says nothing of any record.
_PASSING: Final = (LOCK_FILE, CLEAN_SHUTDOWN_FILE, REMOTE_INDEX_CACHE)

#: Checkpoints whose offsets are compared as a whole; `log_start_findings` compares log starts for each partition.
_OFFSETS: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
#: Files of a log dir that a copy has to have if the original has them.
_FILES: Final = (META_PROPERTIES, *LOG_DIR_CHECKPOINTS, BOOTSTRAP_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """
    Attributes:
        size: in bytes; None if it is no regular file, or cannot be looked at.
        identity: the device and inode of a file of this machine: two names with the same are one file.
    """

    size: int | None
    identity: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDirectory:
    """A partition's directory, or one that a broker deletes, moves or has set aside.

    Attributes:
        topic_partition: None where a broker deletes, moves or has set it aside.
        topic_id: from `partition.metadata`.
        link: the target, if the directory is a symlink.
        problem: why it could not be listed.
    """

    name: str
    path: Location
    topic_partition: TopicPartition | None
    files: Mapping[str, ListedFile] = field(default_factory=dict)
    topic_id: str | None = None
    link: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPlace:
    """
    Attributes:
        name: as the user gave it.
        log_dirs: real paths or URLs.
        is_partition: the user named a partition's directory; `log_dirs` has the log dir above.
        directories: of partitions, by name; the first of two with one name.
        duplicates: the paths of both directories of partitions that two log dirs have, by name.
        other_directories: the paths of directories that are no partition's.
        files: the log dirs' own files, by name.
        checkpoints: offsets by partition, by the name of the checkpoint.
        owners: what each `meta.properties` says.
        problems: why files could not be read, by name.
    """

    name: str
    log_dirs: Sequence[Location]
    is_partition: bool
    directories: Mapping[str, ListedDirectory]
    duplicates: Mapping[str, tuple[str, str]]
    other_directories: Sequence[str]
    files: Mapping[str, Sequence[Location]]
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]
    owners: Sequence[MetaProperties]
    problems: Mapping[str, str]

    @property
    def clusters(self) -> set[str]:
        return {owner.cluster_id for owner in self.owners if owner.cluster_id is not None}

    @property
    def nodes(self) -> set[str]:
        return {str(owner.node_id) for owner in self.owners if owner.node_id is not None}

    @property
    def directory_ids(self) -> set[str]:
        return {owner.directory_id for owner in self.owners if owner.directory_id is not None}

    def only(self, directory: str) -> ComparedPlace:
        """One of its partitions alone, as if the user had named the partition's directory."""
        listed = self.directories.get(directory)
        return replace(
            self,
            is_partition=True,
            directories={} if listed is None else {directory: listed},
            duplicates={name: paths for name, paths in self.duplicates.items() if name == directory},
            other_directories=(),
            files={},
        )


def list_place(text: str, *, is_copy: bool = False, is_of_no_use: str = "nothing was compared") -> ComparedPlace:
    """List a log dir, all log dirs of a broker with commas between them as in `log.dirs`, or a partition's directory.

    One of several log dirs may hold no partition, as a disk that was added lately. In an original such a log dir must
    have a `meta.properties`, else it is a disk that is not mounted; in a copy, all that is missing is a finding.

    Args:
        is_of_no_use: what is said of a log dir without a partition.
    """
    roots = _roots(text)
    if len(roots) == 1 and (partition := _as_partition(roots[0])) is not None:
        return _place(text, [roots[0].parent], {partition.name: partition}, {}, [], is_partition=True)
    directories: dict[str, ListedDirectory] = {}
    duplicates: dict[str, tuple[str, str]] = {}
    other_directories: list[str] = []
    without: list[Location] = []
    for root in roots:
        entries = list(_entries(root, other_directories))
        for entry in entries:
            if (known := directories.setdefault(entry.name, entry)) is not entry:
                duplicates[entry.name] = (str(known.path), str(entry.path))
        if not entries:
            without.append(root)
    for root in without:
        if not directories or not (is_copy or (root / META_PROPERTIES).exists()):
            raise UsageError(
                f"{root}: no partition directory, and {is_of_no_use}; expected a Kafka log dir, or a partition's "
                f"directory that holds segments{why_no_partitions(root)}"
            )
    return _place(text, roots, directories, duplicates, other_directories, is_partition=False)


def ensure_two_places(one: ComparedPlace, other: ComparedPlace) -> None:
    """Refuse a directory on both sides: it is always the same as itself."""
    of_one = {identity_of(path) for path in _directories(one)}
    on_both = sorted(str(path) for path in _directories(other) if identity_of(path) in of_one)
    if on_both:
        raise UsageError(f"{on_both[0]}: it is on both sides, and is the same as itself; name two places")


def _directories(place: ComparedPlace) -> Iterator[Location]:
    if place.is_partition:
        yield from (directory.path for directory in place.directories.values())
    else:
        yield from place.log_dirs


def _roots(text: str) -> list[Location]:
    parts = [text] if os.path.lexists(text) else text.split(",")
    roots: list[Location] = []
    for part in parts:
        try:
            root: Location = given_location("", part) or Path(os.path.realpath(part))
            if not part:
                raise UsageError(f"{text}: an empty name instead of a directory; expected a Kafka log dir")
            if isinstance(root, Path):
                names_in(root)
            elif not root.exists():
                raise UsageError(f"{part}: no object with this prefix; expected a Kafka log dir")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            expected = "expected a Kafka log dir or a partition's directory"
            if isinstance(error, PermissionError):
                expected = "this user may not look into it; run this as its owner, or as root"
            raise UsageError(f"{part}: {why}; {expected}") from error
        if (twin := next((other for other in roots if identity_of(other) == identity_of(root)), None)) is not None:
            also = "" if twin == root else f", also as {twin}"
            raise UsageError(f"{text}: {root} is in it twice{also}; name each log dir once")
        roots.append(root)
    return roots


def _place(
    text: str,
    roots: list[Location],
    directories: dict[str, ListedDirectory],
    duplicates: dict[str, tuple[str, str]],
    other_directories: list[str],
    *,
    is_partition: bool,
) -> ComparedPlace:
    problems: dict[str, str] = {}
    files: dict[str, list[Location]] = defaultdict(list)
    checkpoints: dict[str, dict[TopicPartition, int]] = {name: {} for name in LOG_DIR_CHECKPOINTS}
    owners: list[tuple[Location, MetaProperties]] = []
    for root in roots:
        for path in _files_of(root):
            files[path.name].append(path)
            try:
                if path.name == META_PROPERTIES:
                    owners.append((root, read_meta_properties(root)))
                elif path.name in LOG_DIR_CHECKPOINTS:
                    checkpoints[path.name].update(read_offset_checkpoint(path) or {})
            except (CheckpointError, OSError) as error:
                problems[path.name] = describe_error(error)
    if owners:
        ensure_one_broker(owners)
    return ComparedPlace(
        name=text,
        log_dirs=roots,
        is_partition=is_partition,
        directories=directories,
        duplicates=duplicates,
        other_directories=other_directories,
        files={} if is_partition else files,
        checkpoints=checkpoints,
        owners=[properties for _, properties in owners],
        problems={} if is_partition else problems,
    )


def _files_of(root: Location) -> list[Location]:
    """A log dir's own files; none where it is above a partition's directory and may not be read."""
    try:
        if isinstance(root, ObjectPath):
            return [path for path in root.iterdir() if path.listed is not None]
        with os.scandir(root) as entries:
            return [Path(entry.path) for entry in entries if not entry.is_dir(follow_symlinks=True)]
    except OSError:
        return []


def _as_partition(root: Location) -> ListedDirectory | None:
    """The directory as a partition's, if it has the name of one and holds no directory of another."""
    partition = parse_partition_directory(root.name)
    if partition is None:
        return None
    try:
        names = [path.name for path in root.iterdir() if not (isinstance(path, Path) and path.is_file())]
    except OSError:
        names = []
    if any(parse_partition_directory(name) is not None for name in names):
        return None
    return _listed(root, partition)


def _entries(root: Location, other_directories: list[str]) -> Iterator[ListedDirectory]:
    """The directories of partitions, and those that a broker deletes, moves or has set aside; the paths of all others
    go to `other_directories`.
    """
    entries: list[Location] = [*root.iterdir()]
    for path in sorted(entries, key=lambda path: path.name):
        partition = parse_partition_directory(path.name)
        is_directory = path.listed is None if isinstance(path, ObjectPath) else path.is_dir()
        if partition is not None or (is_moved(path.name) and is_directory):
            yield _listed(path, partition)
        elif is_directory and path.name not in _PASSING:
            other_directories.append(str(path))


def _listed(path: Location, partition: TopicPartition | None) -> ListedDirectory:
    link = os.readlink(path) if isinstance(path, Path) and path.is_symlink() else None
    is_directory = path.listed is None if isinstance(path, ObjectPath) else path.is_dir() or not path.exists()
    problem = None if is_directory else f"{path}: it is no directory"
    files: dict[str, ListedFile] = {}
    topic_id = None
    if problem is None:
        try:
            files = dict(_listed_files(path))
            topic_id = read_topic_id(path) if PARTITION_METADATA in files else None
        except CheckpointError:
            topic_id = None  # the file itself is compared
        except OSError as error:
            problem = describe_error(error)
    return ListedDirectory(
        name=path.name,
        path=path,
        topic_partition=partition,
        files=files,
        topic_id=topic_id,
        link=link,
        problem=problem,
    )


def _listed_files(directory: Location) -> Iterator[tuple[str, ListedFile]]:
    if isinstance(directory, ObjectPath):
        for path in directory.iterdir():
            yield path.name, ListedFile(None if path.listed is None else path.listed.st_size)
        return
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status, is_file = entry.stat(), entry.is_file()
            except OSError as error:
                if isinstance(error, PermissionError) and not entry.is_symlink():
                    raise  # the directory may be listed, and nothing in it looked at
                yield entry.name, ListedFile(None)
            else:
                yield entry.name, ListedFile(status.st_size if is_file else None, (status.st_dev, status.st_ino))


_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class MetadataOfPlaces:
    """The cluster's metadata in A or B.

    Attributes:
        names: the log dirs, which stand for sources in `topics`; those of A first.
    """

    topics: KnownTopics
    names: Sequence[str]

    @classmethod
    def of(cls, one: ComparedPlace, other: ComparedPlace) -> MetadataOfPlaces:
        """Read the metadata of the places that have it. Warns of metadata that cannot be read."""
        sources = [Source(str(log_dir), log_dir) for place in (one, other) for log_dir in place.log_dirs]
        topics = read_known_topics(sources)
        warn_of_first(topics.warnings)
        return cls(topics, [source.name for source in sources])

    def policy(self, topic: str) -> ConfigValue | None:
        """The `cleanup.policy` of a topic; None where nobody knows it."""
        values = (self.topics.config(name, topic, _POLICY) for name in self.names)
        return next((value for value in values if value is not None), None)

    def nodes(self, partition: TopicPartition) -> frozenset[str]:
        """The ids of the nodes that a partition is assigned to; none where nobody knows them."""
        assignments = (metadata.to_end.assignments.get(partition) for metadata in self.topics.read())
        assignment = next((assignment for assignment in assignments if assignment is not None), None)
        return frozenset() if assignment is None else frozenset(map(str, assignment.replicas))


@dataclass(frozen=True, slots=True)
class DirectoryPair:
    """A directory that both sides have."""

    one: ListedDirectory
    other: ListedDirectory

    @property
    def other_topic(self) -> str | None:
        """What says that B's topic is another one of the same name; None if both have the same id, or one has none."""
        one, other = self.one.topic_id, self.other.topic_id
        if one is None or other is None or one == other:
            return None
        return f"topic id {other}, in A {one}: another topic of the same name"


def pair_directories(
    one: ComparedPlace, other: ComparedPlace, topics: re.Pattern[str]
) -> tuple[list[DirectoryPair], list[PartitionComparison], list[ComparisonFinding]]:
    """The directories of both sides that can be compared, and the results and findings on all others."""
    findings: list[ComparisonFinding] = []
    results: list[PartitionComparison] = []
    pairs = []
    wanted = {name for place in (one, other) for name in place.directories if _is_wanted(name, place, topics)}
    for name in sorted(wanted):
        finding = _finding_on_directory(name, one.directories.get(name), other.directories.get(name))
        for side, place in (("A", one), ("B", other)):
            if name in place.duplicates:
                first, second = place.duplicates[name]
                detail = (
                    f"{side} has it twice, in {first} and {second}, and the first was compared; a broker does not start"
                )
                findings.append(ComparisonFinding(kind=FindingKind.NOT_COMPARABLE, directory=name, detail=detail))
        if finding is None:
            pairs.append(DirectoryPair(one.directories[name], other.directories[name]))
        else:
            findings.append(finding)
            results.append(PartitionComparison(directory=name, verdict=finding.kind.value))
    for side, place in (("A", one), ("B", other)):
        for path in place.other_directories:
            detail = f"{path}, in {side}: it is no partition's"
            findings.append(ComparisonFinding(kind=FindingKind.NOT_COMPARED, detail=detail))
    return pairs, results, findings


def _is_wanted(name: str, place: ComparedPlace, topics: re.Pattern[str]) -> bool:
    """Whether a directory is to be compared; one that a broker moves or has set aside always is."""
    partition = place.directories[name].topic_partition
    return partition is None or topics.fullmatch(partition.topic) is not None


def _finding_on_directory(
    name: str, one: ListedDirectory | None, other: ListedDirectory | None
) -> ComparisonFinding | None:
    """The finding on a directory that is not compared; None where it can be."""
    if name.endswith("-delete"):
        side = "A and B" if one and other else "A" if one else "B"
        return ComparisonFinding(
            kind=FindingKind.NOT_COMPARED, directory=name, detail=f"in {side}: a broker was deleting it"
        )
    for side, directory in (("A", one), ("B", other)):
        if directory is not None and directory.problem is not None:
            return ComparisonFinding(
                kind=FindingKind.NOT_COMPARABLE, directory=name, detail=f"in {side}: {directory.problem}"
            )
    if one is None or other is None:
        directory = one or other
        assert directory is not None
        logs = {file: listed.size or 0 for file, listed in directory.files.items() if file.endswith(LOG_SUFFIX)}
        amount = f"{counted(len(logs), 'segment')}, {sum(logs.values()):,} bytes"
        kind, where = (FindingKind.ONLY_IN_B, "A") if one is None else (FindingKind.MISSING, "B")
        return ComparisonFinding(
            kind=kind, directory=name, bytes=sum(logs.values()), detail=f"{where} has no such directory; {amount}"
        )
    if other.link is not None and os.path.realpath(other.path) == os.path.realpath(one.path):
        detail = f"{other.path} leads to {one.path}: it is the same directory, and no copy"
        return ComparisonFinding(kind=FindingKind.NO_COPY, directory=name, detail=detail)
    return None


def other_origin_findings(one: ComparedPlace, other: ComparedPlace, *, as_copy: bool) -> Iterator[ComparisonFinding]:
    """The finding that B is of another cluster; if B is a copy, also of another broker or log dir."""
    compared = [("another cluster", "cluster.id", one.clusters, other.clusters)]
    if as_copy:
        compared.append(("another broker", "node.id", one.nodes, other.nodes))
        compared.append(("another log dir", "directory.id", one.directory_ids, other.directory_ids))
    for what, key, ours, theirs in compared:
        if ours and theirs and not theirs <= ours:
            detail = f"B is of {what}: {META_PROPERTIES} has {key} {_some(theirs)}, in A {_some(ours)}"
            yield ComparisonFinding(kind=FindingKind.OTHER_ORIGIN, detail=detail)
            return  # the broker of another cluster is another one, and so are its log dirs


def log_dir_file_findings(
    one: ComparedPlace, other: ComparedPlace, topics: re.Pattern[str]
) -> Iterator[ComparisonFinding]:
    """Findings on how the checkpoints and other small files of both sides' log dirs compare."""
    for side, place in (("A", one), ("B", other)):
        for problem in place.problems.values():
            yield ComparisonFinding(kind=FindingKind.NOT_COMPARABLE, detail=f"{side}: {problem}")
    for name in _FILES:
        has, copied = one.files.get(name, ()), other.files.get(name, ())
        if len(has) > len(copied):
            of = f" in {len(has) - len(copied)} of {counted(len(has), 'log dir')}" if len(has) > 1 else ""
            yield ComparisonFinding(kind=FindingKind.FILE_MISSING, file=name, detail=f"B has none{of}")
        elif name in _OFFSETS and name not in {*one.problems, *other.problems}:
            yield from _checkpoint_findings(name, one.checkpoints[name], other, topics)
        elif name == BOOTSTRAP_SNAPSHOT and len(has) == len(copied) == 1:
            yield from _content_findings(name, has[0], copied[0])
    yield from _clean_shutdown(one, other)


def _clean_shutdown(one: ComparedPlace, other: ComparedPlace) -> Iterator[ComparisonFinding]:
    """The finding that B has the file of a clean shutdown in more or fewer log dirs than A. A broker that starts
    recovers no log of a log dir that has the file, and removes it (`LogManager.loadLogs`).
    """
    has, copied = (len(place.files.get(CLEAN_SHUTDOWN_FILE, ())) for place in (one, other))
    many = max(len(one.log_dirs), len(other.log_dirs)) > 1
    if copied > has:
        whose = f"B has it in {counted(copied, 'log dir')}, A in {has}" if many else "B has it, and A has not"
        detail = (
            f"{whose}: a broker that starts on B skips recovery; remove it, unless the broker of B had stopped cleanly "
            "when it was copied"
        )
        yield ComparisonFinding(kind=FindingKind.FILE_DIFFERS, file=CLEAN_SHUTDOWN_FILE, detail=detail)
    elif has > copied:
        whose = f"A has it in {counted(has, 'log dir')}, B in {copied}" if many else "A has it, and B has not"
        detail = f"{whose}: a broker that starts on B recovers the logs, and loses no whole batch by that"
        yield ComparisonFinding(kind=FindingKind.FILE_MISSING, file=CLEAN_SHUTDOWN_FILE, detail=detail)


def _content_findings(name: str, ours: Location, theirs: Location) -> Iterator[ComparisonFinding]:
    try:
        if small_file(ours) != small_file(theirs):
            yield ComparisonFinding(kind=FindingKind.FILE_DIFFERS, file=name, detail="other bytes than in A")
    except OSError as error:
        yield ComparisonFinding(kind=FindingKind.NOT_COMPARABLE, file=name, detail=describe_error(error))


def _checkpoint_findings(
    name: str, ours: Mapping[TopicPartition, int], other: ComparedPlace, topics: re.Pattern[str]
) -> Iterator[ComparisonFinding]:
    theirs = other.checkpoints[name]
    wanted = {partition: offset for partition, offset in ours.items() if topics.fullmatch(partition.topic)}
    lower = {partition: offset for partition, offset in wanted.items() if theirs.get(partition, -1) < offset}
    if lower:
        first = min(lower)
        said = f"of {first.directory} {theirs.get(first, 'nothing')}, in A {lower[first]}"
        detail = f"{counted(len(lower), 'partition')} of {len(wanted):,} with less than in A: {said}"
        yield ComparisonFinding(kind=FindingKind.FILE_BEHIND, file=name, detail=detail)
    higher = [
        partition
        for partition, offset in theirs.items()
        if topics.fullmatch(partition.topic)
        and partition.directory in other.directories
        and offset > ours.get(partition, -1)
    ]
    if higher:
        first = min(higher)
        said = f"of {first.directory} {theirs[first]}, in A {ours.get(first, 'nothing')}"
        detail = f"{counted(len(higher), 'partition')} with more than in A: {said}"
        yield ComparisonFinding(kind=FindingKind.ONLY_IN_B, file=name, detail=detail)


def log_start_findings(
    partition: TopicPartition | None, one: ComparedPlace, other: ComparedPlace
) -> Iterator[ComparisonFinding]:
    """The finding, by the checkpoint of log starts, that a broker with B would serve less or more from the start of a
    partition on.
    """
    name = LOG_START_OFFSET_CHECKPOINT
    if partition is None or name in {*one.problems, *other.problems}:
        return
    ours, theirs = one.checkpoints[name].get(partition), other.checkpoints[name].get(partition)
    if (theirs or 0) > (ours or 0):
        said = "nothing" if ours is None else ours
        detail = f"{name} says {theirs}, in A {said}: a broker with B serves nothing below it"
        yield ComparisonFinding(
            kind=FindingKind.LACKS,
            directory=partition.directory,
            first_offset=ours or 0,
            last_offset=(theirs or 0) - 1,
            detail=detail,
        )
    elif (ours or 0) > (theirs or 0):
        said = "nothing" if theirs is None else theirs
        detail = f"{name} says {said}, in A {ours}: with B a broker serves again what was deleted"
        yield ComparisonFinding(kind=FindingKind.FILE_BEHIND, directory=partition.directory, detail=detail)


def checkpoint_only_findings(
    one: ComparedPlace, other: ComparedPlace, topics: re.Pattern[str]
) -> Iterator[ComparisonFinding]:
    """Findings on partitions that checkpoints name and of which neither side has a directory. A log dir to which a
    broker moves a partition names it, too, and has it as `-future` (`LogManager.logsByDir`).
    """
    named: dict[TopicPartition, str] = {}
    for side, place in (("A", one), ("B", other)):
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            for partition, offset in place.checkpoints[name].items():
                named.setdefault(partition, f"{name} of {side} says {offset}")
    have_directory = {loaded_as(name) for place in (one, other) for name in place.directories}
    for partition, said in sorted(named.items()):
        if topics.fullmatch(partition.topic) and partition not in have_directory:
            detail = f"neither side has its directory, and {said}; look for it in other log dirs and replicas"
            yield ComparisonFinding(kind=FindingKind.NEITHER, directory=partition.directory, detail=detail)


def early_end_findings(
    partition: TopicPartition | None, end: int | None, other: ComparedPlace
) -> Iterator[ComparisonFinding]:
    """The finding, by the checkpoint of high watermarks, that both logs end at `end`, below B's high watermark. `end`
    is None where nobody could tell.
    """
    name = HIGH_WATERMARK_CHECKPOINT
    if partition is None or end is None or (offset := other.checkpoints[name].get(partition, -1)) <= end:
        return
    detail = (
        f"both sides end at {end}, below the high watermark {offset} in {name} of B; look for a replica that has it"
    )
    yield ComparisonFinding(
        kind=FindingKind.NEITHER, directory=partition.directory, first_offset=end, last_offset=offset - 1, detail=detail
    )


def _some(values: set[str]) -> str:
    return ", ".join(sorted(values)[:3])
