"""An audit of tiered storage, from reading the metadata to the outcome. It writes nothing to the bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.finding import WORST_FIRST, Verdict
from kidxlib.audit.tiered.finding import NEWER, OBJECTS, OTHERS, RemoteFindingRow
from kidxlib.audit.tiered.metadata import AsOf
from kidxlib.audit.tiered.remedies import what_to_do
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.operations.backend import Backend
from kidxlib.operations.tiered.find import Counts, TieredAudit, of_log_dirs, plan_audit, read_metadata
from kidxlib.operations.tiered.numbers import CopyLag, Deleted, Numbers, TopicSizes, WhatIf, numbers_of, stalled
from kidxlib.operations.tiered.record import record_segments
from kidxlib.operations.tiered.remote_metadata import MetadataReader, RemoteMetadata
from kidxlib.operations.tiered.tiered_request import TieredRequest
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.terminal.build import PROBLEMS_SHOWN, tell_requests
from kidxlib.terminal.console import warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

_RANK: Final = {verdict.value: number for number, verdict in enumerate(WORST_FIRST)}

#: How many topics and partitions are shown on screen; JSON has all.
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class TieredFound:
    """The findings and the numbers of an audit.

    Attributes:
        findings: the worst first, then in the order of partitions and offsets.
        requests: how many requests object stores were sent.
    """

    findings: Sequence[RemoteFindingRow]
    counts: Counts
    numbers: Numbers
    metadata: RemoteMetadata
    as_of: AsOf
    requests: Requests

    @classmethod
    def of(
        cls,
        findings: Sequence[RemoteFindingRow],
        counts: Counts,
        numbers: Numbers,
        metadata: RemoteMetadata,
        as_of: AsOf,
        requests: Requests,
    ) -> TieredFound:
        """Sort the findings, and put all together."""
        return cls(sorted(findings, key=_order), counts, numbers, metadata, as_of, requests)

    @property
    def kinds(self) -> Counter[tuple[str, str, str]]:
        """How many findings there are by verdict, file and reason, in the order of the findings."""
        return Counter((each.verdict, each.file, each.reason) for each in self.findings)

    def number(self, what: str) -> int:
        return self.counts.of.get(what, (0, 0))[0]

    def verdicts(self, verdict: Verdict) -> int:
        """How many findings have a verdict."""
        return sum(each.verdict == verdict.value for each in self.findings)


def _numbers_as_json(numbers: Numbers) -> dict[str, Any]:
    """The size of each topic, the lag of each partition, and what other settings would free."""
    return {
        "as_of_ms": numbers.as_of_ms,
        "log_dirs": list(map(str, numbers.log_dirs)),
        "topics": [_topic_as_json(each) for each in numbers.topics],
        "copy_lags": [_lag_as_json(each, numbers.as_of_ms) for each in numbers.lags],
        "what_if": [_what_if_as_json(each) for each in numbers.what_if],
    }


def _tell_numbers(outcome: Outcome, numbers: Numbers) -> None:
    """Show the largest topics, and the partitions whose copying is behind for the longest."""
    largest = sorted(numbers.topics, key=lambda each: -(each.object_bytes + (each.local_bytes or 0)))
    if largest:
        outcome.table(
            "topics",
            ("topic", "copied segments", "their logs", "all objects", "in log dirs", "to be copied"),
            [
                (
                    each.topic,
                    each.segments,
                    each.log_bytes,
                    each.object_bytes,
                    "-" if each.local_bytes is None else each.local_bytes,
                    "-" if each.lag_bytes is None else each.lag_bytes,
                )
                for each in largest[:_SHOWN]
            ],
            text_columns=1,
        )
        outcome.more(len(largest) - _SHOWN, "; --json has them all")
    for lag in numbers.lags[:_SHOWN]:
        outcome.line(
            f"to be copied: {lag.partition.topic}-{lag.partition.partition} from offset {lag.first_offset} on: "
            f"{counted(lag.segments, 'segment')}, {lag.bytes:,} bytes, for {_waiting(lag, numbers.as_of_ms)}"
        )
    outcome.more(len(numbers.lags) - _SHOWN, "; --json has them all")


def _tell_what_if(outcome: Outcome, numbers: Numbers, settings: dict[str, int]) -> None:
    """Show what other settings would free, the most first."""
    if not settings:
        return
    said = ", ".join(f"{name}={value}" for name, value in settings.items())
    found = sorted(numbers.what_if, key=lambda each: -(each.freed.remote.bytes + each.freed.local.bytes))
    outcome.table(
        f"what if {said}, as of {show_time(numbers.as_of_ms)}",
        ("topic", "segments freed in the bucket", "bytes there", "in log dirs", "bytes in these"),
        [
            (
                each.topic,
                each.freed.remote.segments,
                each.freed.remote.bytes,
                each.freed.local.segments,
                each.freed.local.bytes,
            )
            for each in found[:_SHOWN]
        ],
        text_columns=1,
    )
    outcome.more(len(found) - _SHOWN, "; --json has them all")
    unknown = [each for each in found if each.unknown]
    if unknown:
        outcome.line(
            f"not known: {', '.join(unknown[0].unknown)} of {counted(len(unknown), 'topic')} (the first: "
            f"{unknown[0].topic}); no limit stands in for them; --server-properties says what brokers were started with"
        )


def _waiting(lag: CopyLag, as_of_ms: int) -> timedelta:
    return timedelta(milliseconds=max(as_of_ms - lag.since_ms, 0))


def _topic_as_json(each: TopicSizes) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "topic_id": each.topic_id,
        "segments": each.segments,
        "log_bytes": each.log_bytes,
        "object_bytes": each.object_bytes,
        "partitions": each.partitions,
        "partitions_with_log": each.partitions_with_log,
        "local_bytes": each.local_bytes,
        "copy_lag_bytes": each.lag_bytes,
    }


def _lag_as_json(each: CopyLag, as_of_ms: int) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "topic_id": each.partition.topic_id,
        "segments": each.segments,
        "bytes": each.bytes,
        "first_offset": each.first_offset,
        "since_ms": each.since_ms,
        "waiting_ms": max(as_of_ms - each.since_ms, 0),
    }


def _what_if_as_json(each: WhatIf) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "topic_id": each.topic_id,
        "due": _deleted_as_json(each.due),
        "freed": _deleted_as_json(each.freed),
        "unknown": list(each.unknown),
    }


def _deleted_as_json(each: Deleted) -> dict[str, Any]:
    return {
        "bucket": {"segments": each.remote.segments, "log_bytes": each.remote.bytes},
        "log_dirs": {"segments": each.local.segments, "log_bytes": each.local.bytes},
    }


def _values(request: TieredRequest, found: TieredFound) -> dict[str, Any]:
    """The keys of the JSON object."""
    metadata = found.metadata
    recording = request.recording
    return {
        **({} if recording is None else recording.as_json()),
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
            for number, bytes_ in [found.counts.of.get(state.name, (0, 0))]
        },
        "objects": dict(zip(("objects", "bytes"), found.counts.of.get(OBJECTS, (0, 0)), strict=True)),
        "not_judged": found.number(NEWER),
        "other_files": found.number(OTHERS),
        "findings": [_as_json(each) for each in found.findings],
        "numbers": _numbers_as_json(found.numbers),
        "read_bytes": found.counts.read,
        "requests": found.requests.as_json(),
    }


def _tell(outcome: Outcome, request: TieredRequest, found: TieredFound) -> None:
    """Show the findings, the worst first, and what to do about them."""
    outcome.table(
        f"{request.bucket}, level {request.level}",
        ("segments", "number", "bytes of logs"),
        [(state.name, *found.counts.of.get(state.name, (0, 0))) for state in SegmentState],
        text_columns=1,
    )
    _tell_numbers(outcome, found.numbers)
    objects, bytes_ = found.counts.of.get(OBJECTS, (0, 0))
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
    if found.counts.read:
        outcome.line(f"read:     {decimal(found.counts.read)} of objects")
    tell_requests(outcome, found.requests)
    _tell_what_if(outcome, found.numbers, dict(request.what_if))
    _tell_findings(outcome, found)
    if request.recording is not None:
        outcome.line(request.recording.line)


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
    for each in found.findings[:PROBLEMS_SHOWN]:
        segment = "" if each.partition < 0 else f"-{each.partition} {each.start_offset}"
        segment += "" if each.segment_id is None else f" {each.segment_id}"
        detail = "" if each.detail is None else f": {each.detail}"
        outcome.line(f"{each.verdict}: {each.topic}{segment} {each.file}: {each.reason}{detail}")
        outcome.line(f"  {each.consequence}")
    outcome.more(len(found.findings) - PROBLEMS_SHOWN, "; --json has them all")
    for _, file, reason in found.kinds:
        outcome.line(f"what to do: {file} {reason}: {what_to_do(file, reason)}")


def _as_json(each: RemoteFindingRow) -> dict[str, Any]:
    return {**each.values(), "what_to_do": what_to_do(each.file, each.reason)}


def _order(each: RemoteFindingRow) -> tuple[Any, ...]:
    return (
        _RANK[each.verdict],
        each.file,
        each.reason,
        each.topic,
        each.partition,
        each.start_offset,
        each.segment_id or "",
    )


def outcome_of(request: TieredRequest, found: TieredFound) -> Outcome:
    """The outcome of an audit: the exit code, the lines and the JSON object."""
    fails = any(Verdict(each.verdict).severity >= request.fail_on.severity for each in found.findings)
    segments = {state.name.lower(): found.number(state.name) for state in SegmentState}
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
        run_id=None if request.recording is None else request.recording.audit_id,
        counts={
            "segments": sum(segments.values()),
            **segments,
            "objects": found.number(OBJECTS),
            "not_judged": found.number(NEWER),
            "broken": found.verdicts(Verdict.BROKEN),
            "safe": found.verdicts(Verdict.SAFE),
        },
        bytes=found.counts.read,
        requests=found.requests,
    )
    outcome.values.update(_values(request, found))
    _tell(outcome, request, found)
    return outcome


def audit_tiered(request: TieredRequest, backend: Backend) -> Outcome:
    """Audit a bucket, and record the findings if there is a catalog."""
    warn_of_first(request.known_topics.warnings)
    reader = MetadataReader(request.places, request.topics)
    metadata = read_metadata(reader, request)
    plan = plan_audit(request, metadata)
    audit = TieredAudit(backend.engine, plan, reader)
    if request.recording is not None:
        backend.catalog.make_tables()
    findings, counts = audit.find(metadata)
    findings += of_log_dirs(request, reader)
    begin_phase("counting")
    numbers = numbers_of(request, plan, metadata, counts)
    findings += stalled(numbers, plan.topics, request.stuck_ms)
    if request.recording is not None:
        begin_phase("recording in the catalog")
        record_segments(backend.catalog.tables, request.recording, audit.listed, findings, plan.as_of)
    requests = requests_made() - request.asked_before + backend.engine.requests()
    return outcome_of(request, TieredFound.of(findings, counts, numbers, metadata, plan.as_of, requests))
