"""What stands right in a log dir: whose it is, and the checkpoints of its partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kidxlib.errors import describe_error
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_DIR_CHECKPOINTS,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.topic_partition import TopicPartition, loaded_as
from kidxlib.operations.compare.finding import Finding, Kind
from kidxlib.operations.compare.place import Place
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.small_files import small_file
from kidxlib.text.counted import counted

#: Of these B may have more or less; the log starts are looked at with their partitions.
_OFFSETS: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
#: Files of a log dir that a copy has to have if the original has them.
_FILES: Final = (META_PROPERTIES, *LOG_DIR_CHECKPOINTS, segment_files.BOOTSTRAP_SNAPSHOT)


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
