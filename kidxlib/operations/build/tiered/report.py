"""What a repair of tiered storage came to: its counts, the exit code, and what is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.tiered.finding import RemoteFindingRow
from kidxlib.audit.tiered.remedies import what_to_do
from kidxlib.operations.audit.tiered.remote_metadata import RemoteMetadata
from kidxlib.operations.build.tiered.put import Mended, Outcome
from kidxlib.operations.build.tiered.request import RepairRequest
from kidxlib.operations.build.tiered.rows import RemadeRow
from kidxlib.run.result import RunResult
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.build import PROBLEMS_SHOWN, print_requests
from kidxlib.terminal.console import print_json, print_line, print_more
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time

_CACHES: Final = (
    "brokers go on with the indexes that they have fetched before: remove these segments' files from "
    "remote-log-index-cache in the log dir of each broker, or wait until they are evicted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What a repair has found and done.

    Attributes:
        objects: what became of those that are missing or broken, in the order of partitions and offsets.
        left: findings that no build mends.
        safe: how many findings there are that give no wrong answer.
        segments, log_bytes: whose logs were read.
        local_segments, local_bytes: of these, those of log dirs.
        made, made_bytes: objects in the mirror.
        requests: of object stores.
    """

    objects: Sequence[Mended]
    left: Sequence[RemoteFindingRow]
    safe: int
    segments: int
    log_bytes: int
    local_segments: int
    local_bytes: int
    made: int
    made_bytes: int
    metadata: RemoteMetadata
    requests: Requests

    @classmethod
    def of(
        cls,
        *,
        objects: Sequence[Mended],
        left: Sequence[RemoteFindingRow],
        safe: int,
        made: Sequence[RemadeRow],
        metadata: RemoteMetadata,
        requests: Requests,
    ) -> Repaired:
        """Count, and put objects in order."""
        logs = {(row.topic_id, row.partition, row.segment_id): row.log_bytes for row in made}
        local = {(row.topic_id, row.partition, row.segment_id): row.log_bytes for row in made if row.is_local}
        in_mirror = [row.made_bytes for row in made if row.made_bytes is not None]
        return cls(
            objects=sorted(objects, key=lambda each: (each.row.topic, each.row.partition, each.row.name)),
            left=left,
            safe=safe,
            segments=len(logs),
            log_bytes=sum(logs.values()),
            local_segments=len(local),
            local_bytes=sum(local.values()),
            made=len(in_mirror),
            made_bytes=sum(in_mirror),
            metadata=metadata,
            requests=requests,
        )

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many objects there are of each outcome."""
        return Counter(each.outcome for each in self.objects)


def result_of(request: RepairRequest, repaired: Repaired) -> RunResult:
    """How the run ended."""
    run_id = None if request.audit.recording is None else request.audit.recording.audit_id
    is_mended = not repaired.left and all(each.outcome.is_mended for each in repaired.objects)
    return RunResult(
        code=ExitCode.OK if is_mended else ExitCode.PROBLEMS_FOUND,
        run_id=run_id,
        counts={
            "segments": repaired.segments,
            "made": repaired.made,
            **{outcome.value.replace("-", "_"): repaired.outcomes[outcome] for outcome in Outcome},
            "left": len(repaired.left),
        },
        bytes=repaired.log_bytes,
        requests=repaired.requests,
    )


def show_json(request: RepairRequest, repaired: Repaired) -> None:
    """Print the JSON object."""
    recording = request.audit.recording
    print_json(
        {
            **({} if recording is None else recording.as_json()),
            "tiered": str(request.audit.bucket),
            "index_dir": str(request.mirror),
            "level": request.audit.level.value,
            "applied": request.apply,
            "metadata": {
                "places": list(map(str, request.audit.places)),
                "records": repaired.metadata.records,
                "last_ms": repaired.metadata.last_ms,
            },
            "segments": repaired.segments,
            "log_bytes": repaired.log_bytes,
            "local_logs": {"segments": repaired.local_segments, "bytes": repaired.local_bytes},
            "made": {"objects": repaired.made, "bytes": repaired.made_bytes},
            "objects": [_as_json(each) for each in repaired.objects],
            "left": [{**each.values(), "what_to_do": what_to_do(each.file, each.reason)} for each in repaired.left],
            "safe": repaired.safe,
            "requests": repaired.requests.as_json(),
        }
    )


def show(request: RepairRequest, repaired: Repaired) -> None:
    """Print what became of each object that was wrong, and what is left."""
    kinds = Counter((each.row.file, each.row.reason or "", each.outcome.value) for each in repaired.objects)
    if kinds:
        print_table(
            f"{request.audit.bucket}, level {request.audit.level}",
            ("of", "reason", "outcome", "number"),
            [(*kind, number) for kind, number in sorted(kinds.items())],
            text_columns=3,
        )
    for each in repaired.objects[:PROBLEMS_SHOWN]:
        row = each.row
        why = "" if each.why is None else f": {each.why}"
        segment = f"{row.topic}-{row.partition} {row.start_offset} {row.segment_id}"
        print_line(f"{each.outcome}: {segment} {row.file}: {row.reason or 'nothing is wrong'}{why}")
    print_more(len(repaired.objects) - PROBLEMS_SHOWN, "; --json has them all")
    _show_logs(request, repaired)
    if repaired.metadata.last_ms is not None:
        print_line(f"metadata: as of {show_time(repaired.metadata.last_ms)}")
    print_requests(repaired.requests)
    for (file, reason), number in Counter((each.file, each.reason) for each in repaired.left).items():
        print_line(f"left:     {file} {reason}: {number:,}; {what_to_do(file, reason)}")
    if repaired.safe:
        print_line(
            f"left:     {counted(repaired.safe, 'finding')} without a wrong answer; kidx verify --tiered has the names"
        )
    if repaired.outcomes[Outcome.TO_PUT]:
        print_line("nothing was put: --apply does it")
    elif repaired.outcomes[Outcome.PUT]:
        print_line(_CACHES)
    elif not repaired.objects and not repaired.left:
        print_line("nothing is to be mended, as far as this level shows")
    if request.audit.recording is not None:
        print_line(request.audit.recording.line)


def _show_logs(request: RepairRequest, repaired: Repaired) -> None:
    print_line(f"read:     {counted(repaired.segments, 'segment')}, {decimal(repaired.log_bytes)} of logs")
    if request.logs:
        print_line(
            f"of these: {counted(repaired.local_segments, 'segment')}, {decimal(repaired.local_bytes)}, in --logs, "
            "proved to be the same"
        )
    print_line(f"made:     {counted(repaired.made, 'object')}, {decimal(repaired.made_bytes)}, in {request.mirror}")


def _as_json(each: Mended) -> dict[str, Any]:
    columns = {name: value for name, value in each.row.values().items() if name not in ("log_bytes", "why_not")}
    return {**columns, "outcome": each.outcome.value, "why": each.why}
