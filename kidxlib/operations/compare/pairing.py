"""Which directories both sides have, and what is said of those that only one has."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.compare.finding import Finding, Kind, PartitionResult
from kidxlib.operations.compare.place import ListedDirectory, Place
from kidxlib.text.counted import counted


@dataclass(frozen=True, slots=True)
class DirectoryPair:
    """A directory that both sides have."""

    one: ListedDirectory
    other: ListedDirectory


def _is_wanted(name: str, place: Place, topics: re.Pattern[str]) -> bool:
    """Whether a directory is of a topic that was asked for; one that a broker moves or has set aside always is."""
    partition = place.directories[name].topic_partition
    return partition is None or topics.fullmatch(partition.topic) is not None


def paired(
    one: Place, other: Place, topics: re.Pattern[str]
) -> tuple[list[DirectoryPair], list[PartitionResult], list[Finding]]:
    """Compare which directories there are.

    Returns:
        Those on both sides that can be compared; and what is said of all others.
    """
    findings: list[Finding] = []
    results: list[PartitionResult] = []
    pairs = []
    wanted = {name for place in (one, other) for name in place.directories if _is_wanted(name, place, topics)}
    for name in sorted(wanted):
        found = _of_directory(name, one.directories.get(name), other.directories.get(name))
        for side, place in (("A", one), ("B", other)):
            if name in place.twice:
                first, second = place.twice[name]
                detail = (
                    f"{side} has it twice, in {first} and {second}, and the first was compared; a broker does not start"
                )
                findings.append(Finding(kind=Kind.NOT_COMPARABLE, directory=name, detail=detail))
        if found is None:
            pairs.append(DirectoryPair(one.directories[name], other.directories[name]))
            continue
        findings.append(found)
        results.append(PartitionResult(directory=name, verdict=found.kind.value))
    for side, place in (("A", one), ("B", other)):
        for path in place.others:
            detail = f"{path}, in {side}: it is no partition's"
            findings.append(Finding(kind=Kind.NOT_COMPARED, detail=detail))
    return pairs, results, findings


def _of_directory(name: str, one: ListedDirectory | None, other: ListedDirectory | None) -> Finding | None:
    """What is said of a directory before anything in it is read; None where it is to be compared."""
    if name.endswith("-delete"):
        side = "A and B" if one and other else "A" if one else "B"
        return Finding(kind=Kind.NOT_COMPARED, directory=name, detail=f"in {side}: a broker was deleting it")
    for side, directory in (("A", one), ("B", other)):
        if directory is not None and directory.problem is not None:
            return Finding(kind=Kind.NOT_COMPARABLE, directory=name, detail=f"in {side}: {directory.problem}")
    if one is None or other is None:
        directory = one or other
        assert directory is not None
        logs = {file: listed.size or 0 for file, listed in directory.files.items() if file.endswith(LOG_SUFFIX)}
        amount = f"{counted(len(logs), 'segment')}, {sum(logs.values()):,} bytes"
        kind, where = (Kind.ONLY_IN_B, "A") if one is None else (Kind.MISSING, "B")
        return Finding(
            kind=kind, directory=name, bytes=sum(logs.values()), detail=f"{where} has no such directory; {amount}"
        )
    if other.link is not None and os.path.realpath(other.path) == os.path.realpath(one.path):
        detail = f"{other.path} leads to {one.path}: it is the same directory, and no copy"
        return Finding(kind=Kind.NO_COPY, directory=name, detail=detail)
    return None
