"""A copy compared with its original, file by file: partitions first, then segments, offsets and bytes."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kidxlib.build.bins import pack
from kidxlib.catalog.results.compare import COMPARED_COPY, FilePairRow, LogPairRow
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import ItemRows, Work
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.operations.compare.copy_partition import (
    ComparedPartition,
    PartitionFindings,
    beside_logs,
    logs_end,
    same_to,
)
from kidxlib.operations.compare.file_pair import FilePairs, compared_files
from kidxlib.operations.compare.finding import Comparison, Finding, PartitionResult, verdict_of
from kidxlib.operations.compare.known import KnownOfPlaces, LogsOfPartition, gaps
from kidxlib.operations.compare.log_dir_files import ends_early, log_dir_files, log_start, only_in_checkpoints, origin
from kidxlib.operations.compare.log_pair import LogPair, compared_pair
from kidxlib.operations.compare.pairing import DirectoryPair, paired
from kidxlib.operations.compare.place import Place
from kidxlib.operations.compare.replica import compare_pairs
from kidxlib.operations.compare.replica_partition import ReplicaFindings
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted


def compare_copy(one: Place, other: Place, topics: re.Pattern[str], known: KnownOfPlaces, engine: Engine) -> Comparison:
    """Compare B with A.

    Args:
        topics: matches the full names of those that are compared.
        known: what the cluster's metadata says.

    Raises:
        KidxError: as `Engine.run`.
        Interrupted: the run is; nothing is reported.
    """
    pairs, results, findings = paired(one, other, topics)
    logs = [log for pair in pairs for log in _logs_of(pair)]
    files = [each for pair in pairs if (each := _files_of(pair)).names]
    staged = _work([*logs, *files], engine)
    findings += origin(one, other, as_copy=True)
    compared = list(_compared(pairs, staged))
    lost = gaps(
        (
            LogsOfPartition(each.one, each.one.topic_partition, each.logs)
            for each in compared
            if each.one.topic_partition
        ),
        known,
    )
    by_offset = _by_offset(pairs, compared, one, other, known, engine)
    for partition in compared:
        batches = by_offset.get(partition.one.name)
        found = _of_partition(partition, batches, lost, one, other)
        findings += found
        results.append(
            PartitionResult(
                directory=partition.one.name,
                verdict=verdict_of(found),
                a_end_offset=logs_end(partition.logs, "one"),
                b_end_offset=logs_end(partition.logs, "other"),
                same_to_offset=same_to(partition.logs) if batches is None else batches.same_to,
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


def _by_offset(
    pairs: Sequence[DirectoryPair],
    compared: Sequence[ComparedPartition],
    one: Place,
    other: Place,
    known: KnownOfPlaces,
    engine: Engine,
) -> Mapping[str, ReplicaFindings]:
    """How the batches of those partitions compare that are cut elsewhere in B, by directory. Their logs alone are read
    once more.
    """
    elsewhere = [
        pair for pair, partition in zip(pairs, compared, strict=True) if PartitionFindings(partition).is_cut_elsewhere
    ]
    if not elsewhere:
        return {}
    found = compare_pairs(elsewhere, one, other, known, engine, as_copy=True)
    return {each.directory: each for each in found}


def _of_partition(
    partition: ComparedPartition, batches: ReplicaFindings | None, lost: Sequence[Finding], one: Place, other: Place
) -> list[Finding]:
    """What is said of a partition that both sides have."""
    found = PartitionFindings(partition).findings(batches)
    found += [each for each in lost if each.directory == partition.one.name]
    found += log_start(partition.one.topic_partition, one, other)
    if not found:
        end = logs_end(partition.logs, "other") if partition.logs else 0
        found += ends_early(partition.one.topic_partition, end, other)
    return found


def _logs_of(pair: DirectoryPair) -> Iterator[LogPair]:
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


def _files_of(pair: DirectoryPair) -> FilePairs:
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


def _compared(pairs: Sequence[DirectoryPair], staged: Staged) -> Iterator[ComparedPartition]:
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
        )
