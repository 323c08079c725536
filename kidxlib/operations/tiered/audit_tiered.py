"""An audit of tiered storage, from reading the metadata to the outcome. It writes nothing to the bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.finding import WORST_FIRST, Verdict
from kidxlib.audit.tiered.listing import JudgedAsOf
from kidxlib.audit.tiered.remote_finding import NEWER, OBJECTS, OTHERS, RemoteFindingRow, remote_remedy
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.operations.backend import Backend
from kidxlib.operations.tiered.bucket_audit import BucketAudit, Counts, plan_bucket_audit, record_bucket_audit
from kidxlib.operations.tiered.local_partitions import findings_on_log_dirs
from kidxlib.operations.tiered.remote_metadata import RemoteMetadata, RemoteMetadataReader, read_remote_metadata
from kidxlib.operations.tiered.sizes_and_lag import (
    BucketNumbers,
    CopyLag,
    Deleted,
    FreedOfTieredTopic,
    TopicSizes,
    bucket_numbers,
    findings_on_lag,
)
from kidxlib.operations.tiered.tiered_request import TieredRequest
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.terminal.console import MORE_IN_JSON, begin_phase, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.terminal.run_summary import tell_requests
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

_RANK_BY_VERDICT: Final = {verdict.value: number for number, verdict in enumerate(WORST_FIRST)}

#: How many topics and partitions are shown on screen; JSON has all.
_LINES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class TieredFound:
    """The result of an audit. The findings are in order: the worst first, then by partition and offset."""

    findings: Sequence[RemoteFindingRow]
    counts: Counts
    numbers: BucketNumbers
    metadata: RemoteMetadata
    as_of: JudgedAsOf
    requests: Requests

    @property
    def kinds(self) -> Counter[tuple[str, str, str]]:
        """How many findings there are by verdict, file and reason, in the order of the findings."""
        return Counter((finding.verdict, finding.file, finding.reason) for finding in self.findings)

    def number(self, counter: str) -> int:
        return self.counts.by_counter.get(counter, (0, 0))[0]

    def verdicts(self, verdict: Verdict) -> int:
        return sum(finding.verdict == verdict.value for finding in self.findings)


def _numbers_as_json(numbers: BucketNumbers) -> dict[str, Any]:
    return {
        "as_of_ms": numbers.as_of_ms,
        "log_dirs": list(map(str, numbers.log_dirs)),
        "topics": [_topic_as_json(sizes) for sizes in numbers.topics],
        "copy_lags": [_lag_as_json(lag, numbers.as_of_ms) for lag in numbers.lags],
        "what_if": [_what_if_as_json(what_if) for what_if in numbers.what_if],
    }


def _tell_numbers(outcome: Outcome, numbers: BucketNumbers) -> None:
    """Show the largest topics, and the partitions whose segments wait longest for their copies."""
    largest = sorted(numbers.topics, key=lambda sizes: -(sizes.object_bytes + (sizes.local_bytes or 0)))
    if largest:
        outcome.table(
            "topics",
            ("topic", "copied segments", "their logs", "all objects", "in log dirs", "to be copied"),
            [
                (
                    sizes.topic,
                    sizes.segments,
                    sizes.log_bytes,
                    sizes.object_bytes,
                    "-" if sizes.local_bytes is None else sizes.local_bytes,
                    "-" if sizes.lag_bytes is None else sizes.lag_bytes,
                )
                for sizes in largest[:_LINES_SHOWN]
            ],
            text_columns=1,
        )
        outcome.add_more_line(len(largest) - _LINES_SHOWN, MORE_IN_JSON)
    for lag in numbers.lags[:_LINES_SHOWN]:
        waiting = timedelta(milliseconds=_waiting_ms(lag, numbers.as_of_ms))
        outcome.line(
            f"to be copied: {lag.partition.topic}-{lag.partition.partition} from offset {lag.first_offset} on: "
            f"{counted(lag.segments, 'segment')}, {lag.bytes:,} bytes, for {waiting}"
        )
    outcome.add_more_line(len(numbers.lags) - _LINES_SHOWN, MORE_IN_JSON)


def _tell_what_if(outcome: Outcome, numbers: BucketNumbers, settings: dict[str, int]) -> None:
    if not settings:
        return
    shown = ", ".join(f"{name}={value}" for name, value in settings.items())
    topics = sorted(numbers.what_if, key=lambda topic: -(topic.freed.remote.bytes + topic.freed.local.bytes))
    outcome.table(
        f"what if {shown}, as of {show_time(numbers.as_of_ms)}",
        ("topic", "segments freed in the bucket", "bytes there", "in log dirs", "bytes in these"),
        [
            (
                topic.topic,
                topic.freed.remote.segments,
                topic.freed.remote.bytes,
                topic.freed.local.segments,
                topic.freed.local.bytes,
            )
            for topic in topics[:_LINES_SHOWN]
        ],
        text_columns=1,
    )
    outcome.add_more_line(len(topics) - _LINES_SHOWN, MORE_IN_JSON)
    unknown = [topic for topic in topics if topic.unknown]
    if unknown:
        outcome.line(
            f"not known: {', '.join(unknown[0].unknown)} of {counted(len(unknown), 'topic')} (the first: "
            f"{unknown[0].topic}); no default is taken; --server-properties says what brokers were started with"
        )


def _waiting_ms(lag: CopyLag, as_of_ms: int) -> int:
    return max(as_of_ms - lag.since_ms, 0)


def _topic_as_json(sizes: TopicSizes) -> dict[str, Any]:
    return {
        "topic": sizes.topic,
        "topic_id": sizes.topic_id,
        "segments": sizes.segments,
        "log_bytes": sizes.log_bytes,
        "object_bytes": sizes.object_bytes,
        "partitions": sizes.partitions,
        "partitions_with_log": sizes.partitions_with_log,
        "local_bytes": sizes.local_bytes,
        "copy_lag_bytes": sizes.lag_bytes,
    }


def _lag_as_json(lag: CopyLag, as_of_ms: int) -> dict[str, Any]:
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "topic_id": lag.partition.topic_id,
        "segments": lag.segments,
        "bytes": lag.bytes,
        "first_offset": lag.first_offset,
        "since_ms": lag.since_ms,
        "waiting_ms": _waiting_ms(lag, as_of_ms),
    }


def _what_if_as_json(what_if: FreedOfTieredTopic) -> dict[str, Any]:
    return {
        "topic": what_if.topic,
        "topic_id": what_if.topic_id,
        "due": _deleted_as_json(what_if.due),
        "freed": _deleted_as_json(what_if.freed),
        "unknown": list(what_if.unknown),
    }


def _deleted_as_json(deleted: Deleted) -> dict[str, Any]:
    return {
        "bucket": {"segments": deleted.remote.segments, "log_bytes": deleted.remote.bytes},
        "log_dirs": {"segments": deleted.local.segments, "log_bytes": deleted.local.bytes},
    }


def _audit_as_json(request: TieredRequest, found: TieredFound) -> dict[str, Any]:
    metadata = found.metadata
    recorded_as = request.recorded_as
    return {
        **({} if recorded_as is None else recorded_as.as_json()),
        "tiered": str(request.bucket),
        "level": request.level.value,
        "as_of_ms": found.as_of.metadata_ms,
        "metadata": {
            "places": list(map(str, request.places)),
            "partitions": sorted(metadata.read),
            "partitions_of_topic": metadata.partitions,
            "records": metadata.records,
            "last_ms": metadata.last_ms,
        },
        "segments": {
            state.name: {"segments": number, "log_bytes": bytes_}
            for state in SegmentState
            for number, bytes_ in [found.counts.by_counter.get(state.name, (0, 0))]
        },
        "objects": dict(zip(("objects", "bytes"), found.counts.by_counter.get(OBJECTS, (0, 0)), strict=True)),
        "not_judged": found.number(NEWER),
        "other_files": found.number(OTHERS),
        "findings": [
            {**finding.values(), "what_to_do": remote_remedy(finding.file, finding.reason)}
            for finding in found.findings
        ],
        "numbers": _numbers_as_json(found.numbers),
        "read_bytes": found.counts.read_bytes,
        "requests": found.requests.as_json(),
    }


def _tell_audit(outcome: Outcome, request: TieredRequest, found: TieredFound) -> None:
    outcome.table(
        f"{request.bucket}, level {request.level}",
        ("segments", "number", "bytes of logs"),
        [(state.name, *found.counts.by_counter.get(state.name, (0, 0))) for state in SegmentState],
        text_columns=1,
    )
    _tell_numbers(outcome, found.numbers)
    objects, bytes_ = found.counts.by_counter.get(OBJECTS, (0, 0))
    outcome.line(f"objects:  {objects:,}, {decimal(bytes_)}")
    metadata = found.metadata
    of_all = "" if metadata.partitions is None else f" of {metadata.partitions:,}"
    outcome.line(
        f"metadata: {len(metadata.read):,}{of_all} partitions, {counted(metadata.records, 'record')}, as of "
        f"{show_time(found.as_of.metadata_ms)}"
    )
    if newer := found.number(NEWER):
        outcome.line(f"not judged: {counted(newer, 'object')} newer than the metadata, or whose metadata was not read")
    if others := found.number(OTHERS):
        outcome.line(f"other files: {others:,}, which are no objects of remote segments")
    if found.counts.read_bytes:
        outcome.line(f"read:     {decimal(found.counts.read_bytes)} of objects")
    tell_requests(outcome, found.requests)
    _tell_what_if(outcome, found.numbers, dict(request.what_if))
    _tell_findings(outcome, found)
    if request.recorded_as is not None:
        outcome.line(request.recorded_as.line)


def _tell_findings(outcome: Outcome, found: TieredFound) -> None:
    if not found.findings:
        outcome.line("nothing is wrong, as far as this level shows")
        return
    outcome.table(
        "findings",
        ("verdict", "of", "reason", "number"),
        [(*kind, number) for kind, number in found.kinds.items()],
        text_columns=3,
    )
    for finding in found.findings[:LINES_SHOWN]:
        segment = "" if finding.partition < 0 else f"-{finding.partition} {finding.start_offset}"
        segment += "" if finding.segment_id is None else f" {finding.segment_id}"
        detail = "" if finding.detail is None else f": {finding.detail}"
        outcome.line(f"{finding.verdict}: {finding.topic}{segment} {finding.file}: {finding.reason}{detail}")
        outcome.line(f"  {finding.consequence}")
    outcome.add_more_line(len(found.findings) - LINES_SHOWN, MORE_IN_JSON)
    for _, file, reason in found.kinds:
        outcome.line(f"what to do: {file} {reason}: {remote_remedy(file, reason)}")


def _finding_sort_key(finding: RemoteFindingRow) -> tuple[Any, ...]:
    return (
        _RANK_BY_VERDICT[finding.verdict],
        finding.file,
        finding.reason,
        finding.topic,
        finding.partition,
        finding.start_offset,
        finding.segment_id or "",
    )


def _outcome_of(request: TieredRequest, found: TieredFound) -> Outcome:
    fails = any(Verdict(finding.verdict).severity >= request.fail_on.severity for finding in found.findings)
    segments = {state.name.lower(): found.number(state.name) for state in SegmentState}
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
        run_id=None if request.recorded_as is None else request.recorded_as.audit_id,
        counts={
            "segments": sum(segments.values()),
            **segments,
            "objects": found.number(OBJECTS),
            "not_judged": found.number(NEWER),
            "broken": found.verdicts(Verdict.BROKEN),
            "safe": found.verdicts(Verdict.SAFE),
        },
        bytes=found.counts.read_bytes,
        requests=found.requests,
    )
    outcome.values.update(_audit_as_json(request, found))
    _tell_audit(outcome, request, found)
    return outcome


def audit_tiered(request: TieredRequest, backend: Backend) -> Outcome:
    """Audit a bucket, and record the findings if there is a catalog."""
    warn_of_first(request.known_topics.warnings)
    reader = RemoteMetadataReader(request.places, request.topics)
    metadata = read_remote_metadata(reader, request)
    plan = plan_bucket_audit(request, metadata)
    audit = BucketAudit(backend.engine, plan, reader)
    if request.recorded_as is not None:
        backend.catalog.make_tables()
    findings, counts = audit.find(metadata)
    findings += findings_on_log_dirs(request.log_dirs, reader)
    begin_phase("counting")
    numbers = bucket_numbers(request, plan, metadata, counts)
    findings += findings_on_lag(numbers, plan.topics, request.stuck_ms)
    if request.recorded_as is not None:
        begin_phase("recording in the catalog")
        record_bucket_audit(backend.catalog.tables, request.recorded_as, audit.listed, findings, plan.as_of)
    requests = requests_made() - request.asked_before + backend.engine.requests()
    findings = sorted(findings, key=_finding_sort_key)
    return _outcome_of(request, TieredFound(findings, counts, numbers, metadata, plan.as_of, requests))
