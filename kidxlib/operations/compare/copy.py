"""A copy compared with its original, file by file: partitions first, then segments, offsets and bytes."""

from __future__ import annotations

import os
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kidxlib.build.bins import pack
from kidxlib.catalog.results.compare import COMPARED_COPY, FilePairRow, LogPairRow
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import ItemRows, Work
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, parse_segment_log
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.compare.copy_partition import (
    ComparedPartition,
    PartitionFindings,
    beside_logs,
    logs_end,
    same_to,
)
from kidxlib.operations.compare.file_pair import FilePairs, compared_files
from kidxlib.operations.compare.finding import Comparison, Finding, Kind, PartitionResult, verdict_of
from kidxlib.operations.compare.log_dir_files import ends_early, log_dir_files, log_start, only_in_checkpoints, origin
from kidxlib.operations.compare.log_pair import LogPair, compared_pair
from kidxlib.operations.compare.place import ListedDirectory, Place
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted

#: Topics that Kafka itself compacts.
_COMPACTED = ("__consumer_offsets", "__transaction_state")


@dataclass(frozen=True, slots=True)
class _Pair:
    """A directory that both sides have."""

    one: ListedDirectory
    other: ListedDirectory


def compare_copy(one: Place, other: Place, topics: re.Pattern[str], engine: Engine) -> Comparison:
    """Compare B with A.

    Args:
        topics: matches the full names of those that are compared.

    Raises:
        KidxError: as `Engine.run`.
        Interrupted: the run is; nothing is reported.
    """
    pairs, results, findings = _paired(one, other, topics)
    logs = [log for pair in pairs for log in _logs_of(pair)]
    files = [each for pair in pairs if (each := _files_of(pair)).names]
    staged = _work([*logs, *files], engine)
    findings += origin(one, other, as_copy=True)
    for partition in _compared(pairs, staged, one, other):
        found = PartitionFindings(partition).findings()
        found += log_start(partition.one.topic_partition, one, other)
        if not found:
            found += ends_early(partition.one.topic_partition, logs_end(partition.logs, "other"), other)
        findings += found
        results.append(
            PartitionResult(
                directory=partition.one.name,
                verdict=verdict_of(found),
                a_end_offset=logs_end(partition.logs, "one"),
                b_end_offset=logs_end(partition.logs, "other"),
                same_to_offset=same_to(partition.logs),
            )
        )
    if not (one.is_partition or other.is_partition):
        findings += log_dir_files(one, other, topics)
        findings += only_in_checkpoints(one, other, topics)
    both = [log for log in logs if log.one is not None and log.other is not None]
    return Comparison(
        findings=findings,
        partitions=sorted(results, key=lambda result: result.directory),
        logs=len(both),
        log_bytes=sum(log.log_bytes for log in both),
        files=sum(len(each.names) for each in files),
    )


def is_wanted(name: str, place: Place, topics: re.Pattern[str]) -> bool:
    """Whether a directory is of a topic that was asked for; one that a broker moves or has set aside always is."""
    partition = place.directories[name].topic_partition
    return partition is None or topics.fullmatch(partition.topic) is not None


def unpaired(
    one: Place, other: Place, topics: re.Pattern[str]
) -> tuple[list[str], list[PartitionResult], list[Finding]]:
    """Compare which directories there are.

    Returns:
        The names of those on both sides that can be compared; and what is said of all others.
    """
    findings: list[Finding] = []
    results: list[PartitionResult] = []
    names = []
    wanted = {name for place in (one, other) for name in place.directories if is_wanted(name, place, topics)}
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
            names.append(name)
            continue
        findings.append(found)
        results.append(PartitionResult(directory=name, verdict=found.kind.value))
    for side, place in (("A", one), ("B", other)):
        for path in place.others:
            detail = f"{path}, in {side}: it is no partition's"
            findings.append(Finding(kind=Kind.NOT_COMPARED, detail=detail))
    return names, results, findings


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


def _paired(
    one: Place, other: Place, topics: re.Pattern[str]
) -> tuple[list[_Pair], list[PartitionResult], list[Finding]]:
    names, results, findings = unpaired(one, other, topics)
    return [_Pair(one.directories[name], other.directories[name]) for name in names], results, findings


def _logs_of(pair: _Pair) -> Iterator[LogPair]:
    names = {*pair.one.files, *pair.other.files}
    for name in sorted(names):
        base_offset = parse_segment_log(name)
        if base_offset is None:
            continue
        listed, copied = pair.one.files.get(name), pair.other.files.get(name)
        yield LogPair(
            directory=pair.one.name,
            base_offset=base_offset,
            one=None if listed is None else pair.one.as_named(name),
            other=None if copied is None else pair.other.as_named(name),
            one_bytes=0 if listed is None else listed.size or 0,
            other_bytes=0 if copied is None else copied.size or 0,
            is_same_file=listed is not None
            and copied is not None
            and listed.identity is not None
            and listed.identity == copied.identity,
        )


def _files_of(pair: _Pair) -> FilePairs:
    names = sorted(set(beside_logs(pair.one)) & set(pair.other.files))
    sizes = [(place.files[name].size or 0) for place in (pair.one, pair.other) for name in names]
    return FilePairs(
        directory=pair.one.name, one=str(pair.one.path), other=str(pair.other.path), names=names, log_bytes=sum(sizes)
    )


def _work(items: Sequence[LogPair | FilePairs], engine: Engine) -> Staged:
    logs = [item for item in items if isinstance(item, LogPair)]
    log_bytes = sum(item.log_bytes for item in items)
    work = Work(
        f"compare-{uuid.uuid4().hex[:16]}", pack(items, engine.cores), compare_items, COMPARED_COPY, bytes=log_bytes
    )
    if not work.is_small:
        engine.start()

    def compared_so_far() -> str:
        of_all = f"{engine.done().segments:,} of {counted(len(logs), 'segment')} compared"
        return f"{of_all}, and none reported; run the same command again"

    begin_phase("comparing", done=engine.done, segments=len(logs), log_bytes=log_bytes, after="counting")
    with interrupts.telling(compared_so_far), engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()
    begin_phase("counting")
    return staged


def compare_items(items: Iterable[LogPair | FilePairs], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `COMPARED_COPY`."""
    for item in items:
        if isinstance(item, LogPair):
            row = compared_pair(item, use_mmap)
            yield ItemRows(segments=1, log_bytes=item.log_bytes, rows=[{"log": row.values()}])
        else:
            rows = [{"file": row.values()} for row in compared_files(item)]
            yield ItemRows(log_bytes=item.log_bytes, rows=rows)


def _compared(pairs: Sequence[_Pair], staged: Staged, one: Place, other: Place) -> Iterator[ComparedPartition]:
    logs: dict[str, list[LogPairRow]] = defaultdict(list)
    files: dict[str, list[FilePairRow]] = defaultdict(list)
    for row in LogPairRow.of_arrow(staged.rows("log")):
        logs[row.directory].append(row)
    for file in FilePairRow.of_arrow(staged.rows("file")):
        files[file.directory].append(file)
    for pair in pairs:
        name = pair.one.name
        yield ComparedPartition(
            one=pair.one,
            other=pair.other,
            logs=sorted(logs[name], key=lambda row: row.base_offset),
            files=sorted(files[name], key=lambda row: row.name),
            cleaned=_is_cleaned(pair.one.topic_partition, one, other),
        )


def _is_cleaned(partition: TopicPartition | None, one: Place, other: Place) -> bool:
    """Whether a cleaner has worked on it, or its topic is one that Kafka compacts."""
    if partition is None:
        return False
    by_cleaner = any(partition in place.checkpoints[CLEANER_CHECKPOINT] for place in (one, other))
    return by_cleaner or partition.topic in _COMPACTED
