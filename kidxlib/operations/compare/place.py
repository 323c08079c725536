"""One side of a comparison: the log dirs that were named, whose they are, their checkpoints, and what stands in them.
Nothing is read but small files.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_DIR_CHECKPOINTS,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.topic_partition import (
    REMOTE_INDEX_CACHE,
    TopicPartition,
    is_moved,
    loaded_as,
    parse_partition_directory,
)
from kidxlib.operations.compare.finding import Finding, Kind
from kidxlib.storage.location import Location, given_location, identity_of
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import (
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    ensure_one_broker,
    read_meta_properties,
    read_topic_id,
)
from kidxlib.storage.small_files import CLEAN_SHUTDOWN_FILE, read_offset_checkpoint, small_file
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.text.words import counted

#: What a running broker alone has, or makes anew by itself, and says nothing of any record.
_PASSING: Final = (LOCK_FILE, CLEAN_SHUTDOWN_FILE, REMOTE_INDEX_CACHE)

#: Of these B may have more or less; the log starts are looked at with their partitions.
_OFFSETS: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
#: Files of a log dir that a copy has to have if the original has them.
_FILES: Final = (META_PROPERTIES, *LOG_DIR_CHECKPOINTS, segment_files.BOOTSTRAP_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was listed.

    Attributes:
        size: in bytes; None of what is no regular file, or cannot be looked at.
        identity: the device and inode of a file of this machine: two names with the same are one file.
        is_link: it is a symlink.
    """

    size: int | None
    identity: tuple[int, int] | None = None
    is_link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDirectory:
    """A partition's directory, or one that a broker deletes, moves or has set aside.

    Attributes:
        name: of the directory, by which it is looked for on the other side.
        topic_partition: None where a broker deletes, moves or has set it aside.
        files: by name.
        topic_id: what `partition.metadata` says; None where it says none.
        link: where it leads, if it is a symlink.
        problem: why it was not listed; None where it was.
    """

    name: str
    path: Location
    topic_partition: TopicPartition | None
    files: Mapping[str, ListedFile] = field(default_factory=dict)
    topic_id: str | None = None
    link: str | None = None
    problem: str | None = None

    def as_named(self, name: str) -> str:
        """The path of a file in it."""
        return str(self.path / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One side.

    Attributes:
        name: as the user gave it.
        log_dirs: real paths or URLs.
        is_partition: it is one partition's directory, and `log_dirs` has the log dir above.
        directories: by name. Of two with one name, the first.
        twice: names of partitions that stand in two log dirs, with both.
        others: what is neither a partition's nor a file, by path.
        files: files of the log dirs, by name.
        checkpoints: offsets by partition, by the name of the checkpoint; what cannot be read is in `problems`.
        owners: what each `meta.properties` says.
        problems: files that say nothing by their names, with the reason.
    """

    name: str
    log_dirs: Sequence[Location]
    is_partition: bool
    directories: Mapping[str, ListedDirectory]
    twice: Mapping[str, tuple[str, str]]
    others: Sequence[str]
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

    def only(self, directory: str) -> Place:
        """One of its partitions alone, as if its directory had been named."""
        found = self.directories.get(directory)
        return Place(
            name=self.name,
            log_dirs=self.log_dirs,
            is_partition=True,
            directories={} if found is None else {directory: found},
            twice={name: both for name, both in self.twice.items() if name == directory},
            others=(),
            files={},
            checkpoints=self.checkpoints,
            owners=self.owners,
            problems=self.problems,
        )


def list_place(text: str, *, is_copy: bool = False) -> Place:
    """List a log dir, all log dirs of a broker with commas between them as in `log.dirs`, or a partition's directory.

    Of several log dirs, one may hold no partition, as a disk that a broker has got lately does.

    Args:
        is_copy: what it lacks is a finding: such a log dir need not even have a `meta.properties`. Of an original it
            must: an empty directory is a disk that is not mounted.
    """
    roots = _roots(text)
    if len(roots) == 1 and (partition := _as_partition(roots[0])) is not None:
        return _place(text, [roots[0].parent], {partition.name: partition}, {}, [], is_partition=True)
    directories: dict[str, ListedDirectory] = {}
    twice: dict[str, tuple[str, str]] = {}
    others: list[str] = []
    without: list[Location] = []
    for root in roots:
        entries = list(_entries(root, others))
        for entry in entries:
            if (known := directories.setdefault(entry.name, entry)) is not entry:
                twice[entry.name] = (str(known.path), str(entry.path))
        if not entries:
            without.append(root)
    for root in without:
        if not directories or not (is_copy or (root / META_PROPERTIES).exists()):
            raise UsageError(
                f"{root}: no partition directory, and nothing was compared; expected a Kafka log dir, or a partition's "
                "directory that holds segments"
            )
    return _place(text, roots, directories, twice, others, is_partition=False)


def ensure_two_places(one: Place, other: Place) -> None:
    """A directory compared with itself is always the same."""
    of_one = {identity_of(path) for path in _directories(one)}
    both = sorted(str(path) for path in _directories(other) if identity_of(path) in of_one)
    if both:
        raise UsageError(f"{both[0]}: it is on both sides, and is the same as itself; name two places")


def _directories(place: Place) -> Iterator[Location]:
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
                os.scandir(root).close()
            elif not root.exists():
                raise UsageError(f"{part}: no object with this prefix; expected a Kafka log dir")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{part}: {why}; expected a Kafka log dir or a partition's directory") from error
        if root in roots:
            raise UsageError(f"{text}: {root} is in it twice; name each log dir once")
        roots.append(root)
    return roots


def _place(
    text: str,
    roots: list[Location],
    directories: dict[str, ListedDirectory],
    twice: dict[str, tuple[str, str]],
    others: list[str],
    *,
    is_partition: bool,
) -> Place:
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
    return Place(
        name=text,
        log_dirs=roots,
        is_partition=is_partition,
        directories=directories,
        twice=twice,
        others=others,
        files={} if is_partition else files,
        checkpoints=checkpoints,
        owners=[of_root for _, of_root in owners],
        problems={} if is_partition else problems,
    )


def _files_of(root: Location) -> list[Location]:
    """The files right in a log dir; none where a partition's directory was named and the one above may not be seen."""
    try:
        if isinstance(root, ObjectPath):
            return [path for path in root.iterdir() if path.listed is not None]
        with os.scandir(root) as entries:
            return [Path(entry.path) for entry in entries if not entry.is_dir(follow_symlinks=True)]
    except OSError:
        return []


def _as_partition(root: Location) -> ListedDirectory | None:
    """The directory as that of a partition, if it has the name of one and holds no directory of another."""
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


def _entries(root: Location, others: list[str]) -> Iterator[ListedDirectory]:
    """The directories of partitions, and those that a broker deletes, moves or has set aside."""
    entries: list[Location] = [*root.iterdir()]
    for path in sorted(entries, key=lambda path: path.name):
        partition = parse_partition_directory(path.name)
        is_directory = path.listed is None if isinstance(path, ObjectPath) else path.is_dir()
        if partition is not None or (is_moved(path.name) and is_directory):
            yield _listed(path, partition)
        elif is_directory and path.name not in _PASSING:
            others.append(str(path))


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
            is_link = entry.is_symlink()
            try:
                status, is_file = entry.stat(), entry.is_file()
            except PermissionError:
                if not is_link:
                    raise  # the directory may be listed, and nothing in it looked at
                yield entry.name, ListedFile(None, None, is_link)
            except OSError:
                yield entry.name, ListedFile(None, None, is_link)
            else:
                identity = (status.st_dev, status.st_ino)
                yield entry.name, ListedFile(status.st_size if is_file else None, identity, is_link)


def origin(one: Place, other: Place, *, as_copy: bool) -> Iterator[Finding]:
    """Where B is of another cluster; as a copy, also where it is of another broker or log dir."""
    compared = [("another cluster", "cluster.id", one.clusters, other.clusters)]
    if as_copy:
        compared.append(("another broker", "node.id", one.nodes, other.nodes))
        compared.append(("another log dir", "directory.id", one.directory_ids, other.directory_ids))
    for what, key, ours, theirs in compared:
        if ours and theirs and not theirs <= ours:
            detail = f"B is of {what}: {META_PROPERTIES} has {key} {_some(theirs)}, in A {_some(ours)}"
            yield Finding(kind=Kind.OTHER_ORIGIN, detail=detail)
            return  # the broker of another cluster is another one, and so are its log dirs


def log_dir_files(one: Place, other: Place, topics: re.Pattern[str]) -> Iterator[Finding]:
    """Files that B lacks or has otherwise, and checkpoints that say less there."""
    for side, place in (("A", one), ("B", other)):
        for problem in place.problems.values():
            yield Finding(kind=Kind.NOT_COMPARABLE, detail=f"{side}: {problem}")
    for name in _FILES:
        has, copied = one.files.get(name, ()), other.files.get(name, ())
        if len(has) > len(copied):
            of = f" in {len(has) - len(copied)} of {counted(len(has), 'log dir')}" if len(has) > 1 else ""
            yield Finding(kind=Kind.FILE_MISSING, file=name, detail=f"B has none{of}")
        elif name in _OFFSETS and name not in {*one.problems, *other.problems}:
            yield from _of_checkpoint(name, one.checkpoints[name], other, topics)
        elif name == segment_files.BOOTSTRAP_SNAPSHOT and len(has) == len(copied) == 1:
            yield from _of_content(name, has[0], copied[0])
    yield from _clean_shutdown(one, other)


def _clean_shutdown(one: Place, other: Place) -> Iterator[Finding]:
    """Where B says of more or of fewer log dirs than A that their broker was stopped cleanly. A broker that starts
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
        yield Finding(kind=Kind.FILE_DIFFERS, file=CLEAN_SHUTDOWN_FILE, detail=detail)
    elif has > copied:
        whose = f"A has it in {counted(has, 'log dir')}, B in {copied}" if many else "A has it, and B has not"
        detail = f"{whose}: a broker that starts on B recovers the logs, and loses no whole batch by that"
        yield Finding(kind=Kind.FILE_MISSING, file=CLEAN_SHUTDOWN_FILE, detail=detail)


def _of_content(name: str, ours: Location, theirs: Location) -> Iterator[Finding]:
    try:
        if small_file(ours) != small_file(theirs):
            yield Finding(kind=Kind.FILE_DIFFERS, file=name, detail="other bytes than in A")
    except OSError as error:
        yield Finding(kind=Kind.NOT_COMPARABLE, file=name, detail=describe_error(error))


def _of_checkpoint(
    name: str, ours: Mapping[TopicPartition, int], other: Place, topics: re.Pattern[str]
) -> Iterator[Finding]:
    theirs = other.checkpoints[name]
    wanted = {each: offset for each, offset in ours.items() if topics.fullmatch(each.topic)}
    lower = {each: offset for each, offset in wanted.items() if theirs.get(each, -1) < offset}
    if lower:
        first = min(lower)
        said = f"of {first.directory} {theirs.get(first, 'nothing')}, in A {lower[first]}"
        detail = f"{counted(len(lower), 'partition')} of {len(wanted):,} with less than in A: {said}"
        yield Finding(kind=Kind.FILE_BEHIND, file=name, detail=detail)
    higher = [
        each
        for each, offset in theirs.items()
        if topics.fullmatch(each.topic) and each.directory in other.directories and offset > ours.get(each, -1)
    ]
    if higher:
        first = min(higher)
        said = f"of {first.directory} {theirs[first]}, in A {ours.get(first, 'nothing')}"
        detail = f"{counted(len(higher), 'partition')} with more than in A: {said}"
        yield Finding(kind=Kind.ONLY_IN_B, file=name, detail=detail)


def log_start(partition: TopicPartition | None, one: Place, other: Place) -> Iterator[Finding]:
    """Where a broker with B serves less of a partition from its start on, by the checkpoint of log starts."""
    name = LOG_START_OFFSET_CHECKPOINT
    if partition is None or name in {*one.problems, *other.problems}:
        return
    ours, theirs = one.checkpoints[name].get(partition), other.checkpoints[name].get(partition)
    if (theirs or 0) > (ours or 0):
        said = "nothing" if ours is None else ours
        detail = f"{name} says {theirs}, in A {said}: a broker with B serves nothing below it"
        yield Finding(
            kind=Kind.LACKS,
            directory=partition.directory,
            first_offset=ours or 0,
            last_offset=(theirs or 0) - 1,
            detail=detail,
        )
    elif (ours or 0) > (theirs or 0):
        said = "nothing" if theirs is None else theirs
        detail = f"{name} says {said}, in A {ours}: with B a broker serves again what was deleted"
        yield Finding(kind=Kind.FILE_BEHIND, directory=partition.directory, detail=detail)


def only_in_checkpoints(one: Place, other: Place, topics: re.Pattern[str]) -> Iterator[Finding]:
    """Partitions that checkpoints of A or B name, and of which neither side has a directory. A log dir to which a
    broker moves a partition names it, too, and has it as `-future` (`LogManager.logsByDir`).
    """
    named: dict[TopicPartition, str] = {}
    for side, place in (("A", one), ("B", other)):
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            for each, offset in place.checkpoints[name].items():
                named.setdefault(each, f"{name} of {side} says {offset}")
    there = {loaded_as(name) for place in (one, other) for name in place.directories}
    for each in sorted(named):
        if topics.fullmatch(each.topic) and each not in there:
            detail = f"neither side has its directory, and {named[each]}; look for it in other log dirs and replicas"
            yield Finding(kind=Kind.NEITHER, directory=each.directory, detail=detail)


def ends_early(partition: TopicPartition | None, end: int | None, other: Place) -> Iterator[Finding]:
    """Where the log of B ends below its own high watermark, and that of A, too.

    Args:
        end: where it ends; None where nobody could tell.
    """
    name = HIGH_WATERMARK_CHECKPOINT
    if partition is None or end is None or (offset := other.checkpoints[name].get(partition, -1)) <= end:
        return
    detail = (
        f"both sides end at {end}, below the high watermark {offset} in {name} of B; look for a replica that has it"
    )
    yield Finding(
        kind=Kind.NEITHER, directory=partition.directory, first_offset=end, last_offset=offset - 1, detail=detail
    )


def _some(values: set[str]) -> str:
    return ", ".join(sorted(values)[:3])
