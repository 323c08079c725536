"""Two replicas compared batch by batch, by offset: how segments are cut and what stands beside them does not count."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.build.bins import pack
from kidxlib.catalog.results.compare import COMPARED_REPLICAS, BatchRangeRow, ReplicaRangeRow
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, Work
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.segment_files import OFFSET_MAX, parse_segment_log
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS
from kidxlib.operations.compare.finding import Comparison, Finding, Kind, PartitionResult, verdict_of
from kidxlib.operations.compare.known import KnownOfPlaces
from kidxlib.operations.compare.log_dir_files import origin
from kidxlib.operations.compare.pairing import DirectoryPair, paired
from kidxlib.operations.compare.place import ListedDirectory, Place
from kidxlib.operations.compare.replica_partition import ComparedReplicas, ReplicaFindings
from kidxlib.operations.compare.replica_range import ReplicaLog, ReplicaRange, compared_range
from kidxlib.terminal import interrupts
from kidxlib.terminal.phase import Done
from kidxlib.terminal.progress import begin_phase

#: A range of offsets holds about so many bytes of each side: a second or so of work.
_RANGE_BYTES: Final = 256 * 1024 * 1024


def compare_replicas_of_places(
    one: Place, other: Place, topics: re.Pattern[str], known: KnownOfPlaces, engine: Engine
) -> Comparison:
    """Compare the replicas in B with those in A.

    Args:
        topics: matches the full names of those that are compared.
        known: what the cluster's metadata says: which topics are compacted, and which nodes are to have a partition.

    Raises:
        KidxError: as `Engine.run`.
        Interrupted: the run is; nothing is reported.
    """
    pairs, results, findings = paired(one, other, topics)
    pairs = [pair for pair in pairs if pair.one.topic_partition is not None]
    findings = [_of_assignment(finding, other, known) for finding in findings]
    kinds = {finding.directory: finding.kind.value for finding in findings}
    results = [replace(result, verdict=kinds.get(result.directory, result.verdict)) for result in results]
    findings += origin(one, other, as_copy=False)
    findings += _of_one_broker(one, other) if not pairs else ()
    for replicas in compare_pairs(pairs, one, other, known, engine):
        found = replicas.findings()
        findings += found
        results.append(
            PartitionResult(
                directory=replicas.directory,
                verdict=verdict_of(found),
                a_end_offset=replicas.one_end,
                b_end_offset=replicas.other_end,
                same_to_offset=replicas.same_to,
            )
        )
    both = [len(list(_logs(pair.one))) for pair in pairs]
    return Comparison(
        findings=findings,
        partitions=sorted(results, key=lambda result: result.directory),
        logs=sum(both),
        log_bytes=sum(log.size for pair in pairs for side in (pair.one, pair.other) for log in _logs(side)),
        files=0,
    )


def compare_pairs(
    pairs: Sequence[DirectoryPair],
    one: Place,
    other: Place,
    known: KnownOfPlaces,
    engine: Engine,
    *,
    as_copy: bool = False,
) -> list[ReplicaFindings]:
    """Compare partitions that two places have, in the same order.

    Args:
        as_copy: see `ComparedReplicas`: what was cleaned before B was copied is the same there.

    Raises:
        KidxError, Interrupted: as `compare_replicas_of_places`.
    """
    ranges = [each for pair in pairs for each in _ranges(pair, 0 if as_copy else _cleaned_to(pair, one, other, known))]
    rows, batches = _work(ranges, engine)
    return [
        ReplicaFindings(
            ComparedReplicas(
                one=pair.one,
                other=pair.other,
                ranges=sorted(rows[pair.one.name], key=lambda row: row.first_offset),
                batches=sorted(batches[pair.one.name], key=lambda row: (row.first_offset, row.kind)),
                as_copy=as_copy,
            )
        )
        for pair in pairs
    ]


def _of_one_broker(one: Place, other: Place) -> Iterator[Finding]:
    """That A and B are log dirs of one broker, where they have no partition in common: it has each partition once."""
    is_one = one.clusters == other.clusters and one.nodes == other.nodes and one.nodes
    if is_one and one.directory_ids and other.directory_ids and not one.directory_ids & other.directory_ids:
        yield Finding(
            kind=Kind.OTHER_ORIGIN,
            detail=f"A and B are log dirs of one broker (node.id {', '.join(sorted(one.nodes))}), which has each "
            "partition once: name them together, with a comma between, and another broker's log dirs for B",
        )


def _of_assignment(finding: Finding, other: Place, known: KnownOfPlaces) -> Finding:
    """A partition that B lacks, and that the cluster's metadata assigns to other nodes, is none that it lacks."""
    if finding.kind is not Kind.MISSING:
        return finding
    if finding.partition is None:
        return replace(finding, kind=Kind.NOT_COMPARED, detail="in A: a broker was moving it, or has set it aside")
    nodes = known.nodes(finding.partition)
    if not nodes or not other.nodes or other.nodes & nodes:
        return finding
    detail = f"it is assigned to nodes {', '.join(sorted(nodes))}, and B is of node {', '.join(sorted(other.nodes))}"
    return replace(finding, kind=Kind.NOT_COMPARED, detail=detail)


def _cleaned_to(pair: DirectoryPair, one: Place, other: Place, known: KnownOfPlaces) -> int:
    """Below which offset a cleaner has, or may have, worked on one of the replicas."""
    partition = pair.one.topic_partition
    assert partition is not None
    by_cleaner = max(place.checkpoints[CLEANER_CHECKPOINT].get(partition, 0) for place in (one, other))
    policy = known.policy(partition.topic)
    compacts = partition.topic in COMPACTED_BY_BROKERS or (policy is not None and "compact" in policy.value)
    if not compacts:
        return by_cleaner
    # A broker does not clean its last segment (`LogCleanerManager.cleanableOffsets`).
    active = [log.base_offset for side in (pair.one, pair.other) for log in list(_logs(side))[-1:]]
    return max([by_cleaner, *active])


def _logs(directory: ListedDirectory) -> Iterator[ReplicaLog]:
    names = {base: name for name in directory.files if (base := parse_segment_log(name)) is not None}
    bases = sorted(names)
    for base_offset, end in zip(bases, [*bases[1:], None][: len(bases)], strict=True):
        name = names[base_offset]
        yield ReplicaLog(directory.as_named(name), directory.files[name].size or 0, base_offset, end)


def _ranges(pair: DirectoryPair, cleaned_to: int) -> Iterator[ReplicaRange]:
    """The offsets of a partition in ranges, each from a segment of A to one of A."""
    one, other = list(_logs(pair.one)), list(_logs(pair.other))
    firsts, size = [0], 0
    for log in one or other:
        if size >= _RANGE_BYTES:
            firsts.append(log.base_offset)
            size = 0
        size += log.size
    for first, following in zip(firsts, [*firsts[1:], None], strict=True):
        last = OFFSET_MAX if following is None else following - 1
        sides = [_within(logs, first, last) for logs in (one, other)]
        yield ReplicaRange(
            directory=pair.one.name,
            first=first,
            last=last,
            one=sides[0],
            other=sides[1],
            cleaned_to=cleaned_to,
            log_bytes=sum(log.size for logs in sides for log in logs),
        )


def _within(logs: Sequence[ReplicaLog], first: int, last: int) -> list[ReplicaLog]:
    return [log for log in logs if log.base_offset <= last and (log.end is None or log.end > first)]


def _work(
    ranges: Sequence[ReplicaRange], engine: Engine
) -> tuple[dict[str, list[ReplicaRangeRow]], dict[str, list[BatchRangeRow]]]:
    """What came of ranges, by directory."""
    log_bytes = sum(each.log_bytes for each in ranges)
    name = f"compare-{uuid.uuid4().hex[:16]}"
    work = Work(name, pack(ranges, engine.cores), compare_ranges, COMPARED_REPLICAS, bytes=log_bytes)
    if not work.is_small:
        engine.start()

    before = engine.done()  # where logs were compared as a copy's, too

    def done() -> Done:
        return engine.done() - before

    def compared_so_far() -> str:
        return f"{done().log_bytes:,} bytes compared, and none reported; run the same command again"

    segments = sum(len(each.one) + len(each.other) for each in ranges)
    begin_phase("comparing", done=done, segments=segments, log_bytes=log_bytes, after="counting")
    with interrupts.telling(compared_so_far), engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()
    begin_phase("counting")
    rows: dict[str, list[ReplicaRangeRow]] = defaultdict(list)
    batches: dict[str, list[BatchRangeRow]] = defaultdict(list)
    for row in ReplicaRangeRow.of_arrow(staged.rows("range")):
        rows[row.directory].append(row)
    for each in BatchRangeRow.of_arrow(staged.rows("batches")):
        batches[each.directory].append(each)
    return rows, batches


def compare_ranges(ranges: Iterable[ReplicaRange], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `COMPARED_REPLICAS`.

    Args:
        use_mmap: no log is mapped.
    """
    for wanted in ranges:
        row, batches = compared_range(wanted)
        rows = [{"range": row.values()}, *({"batches": each.values()} for each in batches)]
        yield ItemRows(segments=len(wanted.one) + len(wanted.other), log_bytes=wanted.log_bytes, rows=rows)
