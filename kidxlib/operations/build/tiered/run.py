"""A repair of tiered storage: an audit finds what is missing or broken, logs are read, and what they give is put.

Nothing is removed, and nothing but indexes, snapshots and leader epochs is written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import Verdict
from kidxlib.audit.tiered.finding import CopiedSegmentRow, RemoteFindingRow
from kidxlib.audit.tiered.segment import SIDE_OBJECTS, SegmentsToRemake
from kidxlib.log.remote.epochs import epochs_up_to
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.audit.tiered.find import TieredAudit, plan_audit, read_metadata
from kidxlib.operations.audit.tiered.plan import by_partition
from kidxlib.operations.audit.tiered.remote_metadata import MetadataReader, RemoteMetadata
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.build.tiered.local_copies import LocalCopies
from kidxlib.operations.build.tiered.put import Mended, Outcome, Putting, as_planned
from kidxlib.operations.build.tiered.record import record_repair
from kidxlib.operations.build.tiered.report import Repaired, result_of, show, show_json
from kidxlib.operations.build.tiered.request import RepairRequest
from kidxlib.operations.build.tiered.rows import REMADE, RemadeRow
from kidxlib.operations.build.tiered.work import SegmentsToMend, remake_objects
from kidxlib.run.result import RunResult
from kidxlib.storage.store.requests import requests_made
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn_of_first
from kidxlib.terminal.progress import begin_phase

#: No object mends what these say: brokers ask for none.
_OF_METADATA: Final = ("never-asked-for", "not-in-metadata")
#: Topic id, partition and segment id.
_Key = tuple[str, int, str | None]


def run_repair(request: RepairRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Make anew what is missing or broken in a bucket, and put it there if that is asked for.

    Raises:
        UsageError: there is no metadata, or nothing to mend; or a place cannot be read.
        RemoteLogMetadataError: the metadata is not what a broker writes.
        PublishError: the mirror cannot be written.
        OSError: an object cannot be read, or a directory not be listed.
        Interrupted: the run is. What was put by then is reported; before anything is put, nothing is.
    """
    warn_of_first(request.audit.known_topics.warnings)
    reader = MetadataReader(request.audit.places, request.audit.topics)
    metadata = read_metadata(reader, request.audit)
    plan = plan_audit(request.audit, metadata)
    interrupted = threading.Event()
    recording = request.audit.recording
    with open_backend() as backend:
        audit = TieredAudit(backend.engine, plan, reader)
        if recording is not None:
            backend.catalog.make_tables()
        findings, _ = audit.find(metadata)
        broken = [each for each in findings if each.verdict == Verdict.BROKEN.value]
        made = _remade(request, audit, broken)
        planned = [as_planned(row) for row in _of_interest(made, broken)]
        with interrupts.stopping(interrupted.set):
            if request.apply and any(each.outcome is Outcome.TO_PUT for each in planned):
                begin_phase("putting")
                planned = _put(planned, Putting(plan, reader, request.mirror, interrupted))
            if recording is not None:
                begin_phase("recording in the catalog")
                left = _not_mended(findings, planned)
                record_repair(backend.catalog.tables, recording, audit.listed, left, planned, plan.as_of)
            repaired = Repaired.of(
                objects=planned,
                left=_left(broken, planned),
                safe=len(findings) - len(broken),
                made=made,
                metadata=metadata,
                requests=requests_made() - request.audit.asked_before + backend.engine.requests(),
            )
            (show_json if as_json else show)(request, repaired)
    return result_of(request, repaired)


def _remade(request: RepairRequest, audit: TieredAudit, broken: Iterable[RemoteFindingRow]) -> list[RemadeRow]:
    """What is made of the logs of segments that have a damage that one can mend."""
    damaged = {_key_of(each) for each in broken if each.file in SIDE_OBJECTS and each.reason not in _OF_METADATA}
    if not damaged:
        return []
    partitions = {
        TopicIdPartition(each.topic_id, each.topic, each.partition) for each in broken if _key_of(each) in damaged
    }
    begin_phase("listing again")
    metadata = audit.reader.read()
    segments = audit.segments(metadata, partitions)
    epochs = _epochs(metadata, partitions)
    copies = LocalCopies.of(request.logs, {(each.topic, each.topic_id) for each in partitions})
    shares = [
        SegmentsToMend(
            SegmentsToRemake(tuple(map(copies.beside, share)), tuple(epochs.get(each.segment_id) for each in share)),
            request.mirror,
        )
        for share in audit.plan.shares(segments, metadata.flag_since, lambda row: _key_of(row) in damaged)
    ]
    number, bytes_ = sum(len(each.asked.segments) for each in shares), sum(each.asked.bytes for each in shares)
    begin_phase("reading logs", done=audit.engine.done, segments=number, log_bytes=bytes_)
    return RemadeRow.of_arrow(audit.run(remake_objects, shares, REMADE, bytes_).rows("remade"))


def _epochs(metadata: RemoteMetadata, partitions: Iterable[TopicIdPartition]) -> dict[str, Any]:
    """The leader epochs up to the end of each segment of some partitions, by its id."""
    is_read: Any = pc.and_(
        metadata.segments["is_read"],
        pc.equal(metadata.segments["state"], pa.scalar(SegmentState.COPY_SEGMENT_FINISHED.name)),
    )
    of_partitions = by_partition(metadata.segments.filter(is_read), "start_offset")
    found: dict[str, Any] = {}
    for partition in partitions:
        if (rows := of_partitions.get(partition)) is not None:
            found |= epochs_up_to(rows.to_pylist())
    return found


def _of_interest(made: Iterable[RemadeRow], broken: Iterable[RemoteFindingRow]) -> Iterator[RemadeRow]:
    """The objects that are wrong by their log, or that the audit took for wrong; where no log tells, that says why."""
    named = {(*_key_of(each), each.file): each for each in broken}
    for row in made:
        finding = named.get((*_key_of(row), row.file))
        if row.reason is None and row.why_not is not None and finding is not None:
            yield replace(row, reason=finding.reason, detail=finding.detail, consequence=finding.consequence)
        elif row.reason is not None or finding is not None:
            yield row


def _put(planned: Sequence[Mended], putting: Putting) -> list[Mended]:
    rows = [each.row for each in planned if each.outcome is Outcome.TO_PUT]
    return [each for each in planned if each.outcome is not Outcome.TO_PUT] + list(putting.put(rows))


def _left(broken: Iterable[RemoteFindingRow], objects: Iterable[Mended]) -> list[RemoteFindingRow]:
    """The findings that are about none of some objects, or that no object mends."""
    named = {(*_key_of(each.row), each.row.file) for each in objects}
    return [each for each in broken if each.reason in _OF_METADATA or (*_key_of(each), each.file) not in named]


def _not_mended(findings: Iterable[RemoteFindingRow], objects: Iterable[Mended]) -> list[RemoteFindingRow]:
    """The findings that are so after all was done."""
    return _left(findings, (each for each in objects if each.outcome.is_mended))


def _key_of(row: RemoteFindingRow | CopiedSegmentRow | RemadeRow) -> _Key:
    return row.topic_id, row.partition, row.segment_id
