"""A log dir's logs and index files, audited by one process: `kidx verify` as a function."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from kidxlib.audit.finding import SegmentFinding, Verdict
from kidxlib.audit.gaps import FACTS, GapEvidence, gaps_in
from kidxlib.audit.partition import PartitionAudit, audit_partition, partition_audits
from kidxlib.audit.partition_logs import is_missing
from kidxlib.audit.segment import AuditedSegment, audit_segment
from kidxlib.audit.startup.metadata_log import metadata_at_start
from kidxlib.audit.startup.simulation import StartupSimulation
from kidxlib.audit.tiered.local_log import NotReady
from kidxlib.catalog.partitions import named_key
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.plan import Plan, ScanTask, find_segments
from kidxlib.indexing.source import IndexPlace, existing_index_dir, parse_topics, source_at
from kidxlib.library.recover_directory import ensure_listable
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.run.known_topics import KnownTopics, read_known_topics

_SEVERITY: Final = attrgetter("severity")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFindings:
    """The findings of one partition.

    Attributes:
        topic_partition: the topic and the number.
        directory: where its logs are.
        index_directory: where its index files are; may be the same.
        findings: on its logs and other files, and on gaps between logs, by base offset and file. A finding on a file of
            the whole partition has the first base offset; one on a gap has the first missing offset.
        simulation: what a broker would do with the partition at its next start.
        not_ready: segments that are not ready for tiered storage; None if the caller did not ask.
    """

    topic_partition: TopicPartition
    directory: str
    index_directory: str
    findings: tuple[SegmentFinding, ...]
    simulation: StartupSimulation
    not_ready: tuple[NotReady, ...] | None

    @property
    def worst(self) -> Verdict:
        """The worst verdict of the findings of a partition; `whole` if there are none."""
        return max((found.finding.verdict for found in self.findings), key=_SEVERITY, default=Verdict.WHOLE)


@dataclass(frozen=True, slots=True)
class AuditedDirectory:
    """The findings of a log dir, or of one partition's directory.

    Attributes:
        partitions: by topic and number.
        notes: what a person should know of the listing, and of files of the whole log dir.
        failures: what keeps a broker from starting with the log dir, or from records, besides the `simulation` of each
            partition.
    """

    partitions: tuple[PartitionFindings, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def worst(self) -> Verdict:
        """The worst verdict of all findings in the directory."""
        return max((partition.worst for partition in self.partitions), key=_SEVERITY, default=Verdict.WHOLE)


def audit_directory(
    directory: str | os.PathLike[str],
    index_dir: str | os.PathLike[str] | None = None,
    *,
    topics: str = ".*",
    options: RecoverOptions | None = None,
    deep: bool = False,
    tiering: bool = False,
    clean_shutdown: bool | None = None,
    kafka_version: str | None = None,
) -> AuditedDirectory:
    """Tell whether each log in a directory is whole, whether each index file is right, and what a broker would do with
    them at its next start. Nothing is written. All logs are read, one after the other, on one core; `kidx verify` takes
    all cores.

    Damage is no error: it is a finding, with its consequence.

    Args:
        directory: a log dir or one partition's directory, here or in `s3://<bucket>/<prefix>`.
        index_dir: the tree with the index files, as `recover_directory` makes it; None if they are beside the logs.
        topics: a regular expression for the full names of topics.
        options: the options with which a broker that starts would make indexes; None for Kafka's defaults.
        deep: check the records in the batches, too.
        tiering: tell which segments are not ready for tiered storage.
        clean_shutdown: whether the broker stopped cleanly; None to believe the log dir.
        kafka_version: the broker's Kafka, such as `4.3`; None for the one that it has registered, else the newest.

    Raises:
        UsageError: a directory is missing, cannot be listed or is not what it should be, or holds no segment of these
            topics.
        OSError: a directory cannot be listed any more.
    """
    source = source_at(os.fspath(directory))
    kafka = None if kafka_version is None else KafkaRelease.given("kafka_version", kafka_version)
    like = options or RecoverOptions()
    place = None if index_dir is None else existing_index_dir("index_dir", os.fspath(index_dir))
    index_place = IndexPlace(index_dir=place, by_source=False)
    wanted = parse_topics(topics, "topics")
    plan = find_segments((source,), wanted, index_place, lambda _: OptionsOfTopic(like))
    ensure_listable(plan)
    metadata = metadata_at_start(source.log_dir / METADATA_DIRECTORY)
    audits, stops = partition_audits(
        plan,
        (source,),
        lambda _: OptionsOfTopic(like),
        clean_shutdown=clean_shutdown,
        tiering=tiering,
        topics=wanted,
        metadata={} if metadata is None else {source.name: metadata},
        kafka_version=kafka,
    )
    audited, facts = _audited_partitions(plan, audits, deep)
    known = read_known_topics((source,))
    partitions = _with_gaps(audited, facts, plan, known)
    return AuditedDirectory(
        tuple(sorted(partitions, key=lambda partition: partition.topic_partition)),
        (*plan.warnings, *(note for stop in stops.values() for note in stop.notes), *known.warnings),
        tuple(failure for stop in stops.values() for failure in stop.failures),
    )


def _audited_partitions(
    plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], deep: bool
) -> tuple[dict[PartitionKey, PartitionFindings], pa.Table]:
    """The findings of each partition, but for gaps, and the facts by which gaps are found."""
    tasks = {listed.key: list(listed.scan_tasks(rows)) for listed, rows in plan.by_partition()}
    audited: dict[PartitionKey, PartitionFindings] = {}
    facts: list[dict[str, Any]] = []
    for key, audit in audits.items():
        audited[key], segments = _audited(audit, tasks.get(key, []), deep)
        facts += [{**named_key(key), **row} for row in segments]
    return audited, pa.Table.from_pylist(facts, SEGMENTS.schema(FACTS))


def _with_gaps(
    audited: Mapping[PartitionKey, PartitionFindings], facts: pa.Table, plan: Plan, known: KnownTopics
) -> Iterator[PartitionFindings]:
    """The partitions, with the findings on gaps between their logs."""
    places = {partition.key: partition.directory.path for partition in plan.partitions}
    policy_of = known.policy_of((*partition.key[:2], partition.topic_id) for partition in plan.partitions)
    gaps = gaps_in(facts, policy_of, GapEvidence(places))
    missing = {
        key: [found.base_offset for found in partition.findings if is_missing(found.finding)]
        for key, partition in audited.items()
    }
    on_gaps: dict[PartitionKey, list[SegmentFinding]] = {}
    for gap in gaps.without_logs_at(missing).lost:
        on_gaps.setdefault(gap.partition_key, []).append(SegmentFinding(gap.first_offset, gap.finding))
    for key, partition in audited.items():
        yield replace(partition, findings=_in_order((*partition.findings, *on_gaps.get(key, ()))))


def _in_order(findings: Iterable[SegmentFinding]) -> tuple[SegmentFinding, ...]:
    return tuple(sorted(findings, key=lambda found: (found.base_offset, found.finding.file)))


def _facts(segment: AuditedSegment) -> dict[str, Any]:
    """The facts by which gaps are found; the end of a log that could not be read is not known."""
    recovery = segment.log.recovery
    if recovery is None:
        return {"base_offset": segment.base_offset, "status": Status.UNREADABLE.value}
    return {
        "base_offset": segment.base_offset,
        "status": recovery.end.status.value,
        "next_offset": recovery.next_offset,
        "records": recovery.records,
        "log_bytes": recovery.log_bytes,
    }


def _audited(
    audit: PartitionAudit, tasks: list[ScanTask], deep: bool
) -> tuple[PartitionFindings, list[dict[str, Any]]]:
    """The findings of a partition, but for gaps, and the facts by which gaps are found."""
    clean_shutdown = audit.last_stop.clean_shutdown
    segments = [audit_segment(task, use_mmap=False, deep=deep, clean_shutdown=clean_shutdown) for task in tasks]
    audited = audit_partition(audit, map(AuditedSegment.for_partition, segments))
    on_segments = [SegmentFinding(segment.base_offset, finding) for segment in segments for finding in segment.findings]
    findings = PartitionFindings(
        topic_partition=audit.topic_partition,
        directory=str(audit.directory),
        index_directory=str(audit.index_directory),
        findings=_in_order((*on_segments, *audited.findings)),
        simulation=audited.simulation,
        not_ready=None if audited.not_ready is None else tuple(audited.not_ready),
    )
    return findings, [_facts(segment) for segment in segments]
