"""What an audit of tiered storage came to: its counts, the exit code, and what is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.finding import WORST_FIRST, Verdict
from kidxlib.audit.tiered.finding import NEWER, OBJECTS, OTHERS, RemoteFindingRow
from kidxlib.audit.tiered.metadata import AsOf
from kidxlib.audit.tiered.remedies import what_to_do
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.operations.audit.tiered.find import Counts
from kidxlib.operations.audit.tiered.numbers.numbers import Numbers
from kidxlib.operations.audit.tiered.numbers.report import numbers_as_json, show_numbers, show_what_if
from kidxlib.operations.audit.tiered.remote_metadata import RemoteMetadata
from kidxlib.operations.audit.tiered.request import TieredRequest
from kidxlib.run.result import RunResult
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.build import PROBLEMS_SHOWN, print_requests
from kidxlib.terminal.console import print_json, print_line, print_more
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time

_RANK: Final = {verdict.value: number for number, verdict in enumerate(WORST_FIRST)}


@dataclass(frozen=True, slots=True)
class TieredFound:
    """What an audit has found.

    Attributes:
        findings: the worst first, then in the order of partitions and offsets.
        requests: of object stores.
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
        """Put findings in order."""
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


def result_of(request: TieredRequest, found: TieredFound) -> RunResult:
    """How the run ended."""
    fails = any(Verdict(each.verdict).severity >= request.fail_on.severity for each in found.findings)
    segments = {state.name.lower(): found.number(state.name) for state in SegmentState}
    return RunResult(
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


def show_json(request: TieredRequest, found: TieredFound) -> None:
    """Print the JSON object."""
    metadata = found.metadata
    recording = request.recording
    of_recording = {} if recording is None else recording.as_json()
    print_json(
        {
            **of_recording,
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
            "numbers": numbers_as_json(found.numbers),
            "read_bytes": found.counts.read,
            "requests": found.requests.as_json(),
        }
    )


def show(request: TieredRequest, found: TieredFound) -> None:
    """Print what was found, the worst first, and what to do about it."""
    print_table(
        f"{request.bucket}, level {request.level}",
        ("segments", "number", "bytes of logs"),
        [(state.name, *found.counts.of.get(state.name, (0, 0))) for state in SegmentState],
        text_columns=1,
    )
    show_numbers(found.numbers)
    objects, bytes_ = found.counts.of.get(OBJECTS, (0, 0))
    print_line(f"objects:  {objects:,}, {decimal(bytes_)}")
    metadata = found.metadata
    of_all = "" if metadata.partitions is None else f" of {metadata.partitions:,}"
    print_line(
        f"metadata: {len(metadata.read):,}{of_all} partitions, {counted(metadata.records, 'record')}, as of "
        f"{show_time(found.as_of.metadata_ms)}"
    )
    if newer := found.number(NEWER):
        print_line(f"not judged: {counted(newer, 'object')} newer than the metadata, or whose metadata was not read")
    if others := found.number(OTHERS):
        print_line(f"other files: {others:,}, which are no objects of remote segments")
    if found.counts.read:
        print_line(f"read:     {decimal(found.counts.read)} of objects")
    print_requests(found.requests)
    show_what_if(found.numbers, dict(request.what_if))
    _show_findings(found)
    if request.recording is not None:
        print_line(request.recording.line)


def _show_findings(found: TieredFound) -> None:
    if not found.findings:
        print_line("nothing is wrong, as far as this level shows")
        return
    print_table(
        "findings",
        ("verdict", "of", "reason", "number"),
        [(*kind, number) for kind, number in found.kinds.items()],
        text_columns=3,
    )
    for each in found.findings[:PROBLEMS_SHOWN]:
        segment = "" if each.partition < 0 else f"-{each.partition} {each.start_offset}"
        segment += "" if each.segment_id is None else f" {each.segment_id}"
        detail = "" if each.detail is None else f": {each.detail}"
        print_line(f"{each.verdict}: {each.topic}{segment} {each.file}: {each.reason}{detail}")
        print_line(f"  {each.consequence}")
    print_more(len(found.findings) - PROBLEMS_SHOWN, "; --json has them all")
    for _, file, reason in found.kinds:
        print_line(f"what to do: {file} {reason}: {what_to_do(file, reason)}")


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
