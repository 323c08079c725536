"""A repair of tiered storage: an audit finds missing and broken objects, new ones are made from logs and put into the
bucket, and the catalog records the result.

Nothing is removed, and only indexes, snapshots and leader epochs are written. A log in a log dir is read in place of
the bucket's only if objects prove that both are the same.

The cluster may be running. So the metadata is read again right before an object is put, and once more at the end: if a
segment was deleted in between, its deletion does not remove the object that was put.
"""

from __future__ import annotations

import enum
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from rich.filesize import decimal

from kidxlib.audit.finding import Verdict
from kidxlib.audit.tiered.listing import JudgedAsOf
from kidxlib.audit.tiered.remote_finding import CopiedSegmentRow, RemoteFindingRow, remote_remedy
from kidxlib.audit.tiered.remote_segment import SIDE_OBJECTS, RemoteSegmentToRead, SegmentsToRemake
from kidxlib.engine.work import reads_little
from kidxlib.errors import PublishError
from kidxlib.format.checksums import crc32c
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.indexing.source import Source
from kidxlib.log.remote.layout import object_name, objects_directory
from kidxlib.log.remote.segments import epochs_up_to, readable_segments
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.backend import Backend
from kidxlib.operations.tiered.bucket_audit import (
    BucketAudit,
    BucketAuditPlan,
    SegmentRowKey,
    keys_of_remote_segments,
    plan_bucket_audit,
    record_bucket_audit,
)
from kidxlib.operations.tiered.remote_metadata import (
    RemoteMetadata,
    RemoteMetadataReader,
    read_remote_metadata,
    split_by_partition,
)
from kidxlib.operations.tiered.repair_work import REMADE, RemadeRow, remake_in_worker
from kidxlib.operations.tiered.sizes_and_lag import local_logs
from kidxlib.operations.tiered.tiered_request import TieredRecordRequest, TieredRequest
from kidxlib.storage.location import Location
from kidxlib.storage.publisher import FileOwner, Published, publish_if
from kidxlib.storage.small_files import read_file
from kidxlib.storage.store.requests import AT_ONCE, Requests, in_order, requests_made
from kidxlib.tables.protocol import Tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import MORE_IN_JSON, begin_phase, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.terminal.run_summary import tell_requests
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

#: Reasons of findings that no object can mend: brokers ask for no object there.
_NOT_MENDED_BY_OBJECTS: Final = ("never-asked-for", "not-in-metadata")
#: Topic id, partition and segment id.
_SegmentKey = tuple[str, int, str | None]

_CACHED_INDEXES_LEFT: Final = (
    "brokers go on with the indexes that they have fetched before: remove these segments' files from "
    "remote-log-index-cache in the log dir of each broker, or wait until they are evicted"
)

#: States by topic id, partition and segment id.
_StatesBySegment: TypeAlias = Mapping[tuple[str, int, str], str]
_COPY_FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED.name
#: Logs in log dirs that may be copies of remote logs, by topic id, partition, base offset and size.
_LocalCopies: TypeAlias = Mapping[tuple[str, int, int, int], Location]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """The request for a repair.

    Attributes:
        audit: the audit that finds broken objects.
        mirror: where new objects are written, in directories and files that are named as in the bucket.
        apply: whether the objects are put into the bucket, too.
        logs: log dirs whose logs are read in place of the bucket's if they are proven to be the same.
    """

    audit: TieredRequest
    mirror: Location
    apply: bool
    logs: tuple[Source, ...] = ()


class RepairOutcome(enum.StrEnum):
    """What became, by a repair, of an object that is missing or broken."""

    TO_PUT = "to-put"  # the object is in the mirror, and --apply would put it
    PUT = "put"
    SAME = "same-bytes"  # somebody else has put the same bytes
    CONFLICT = "conflict"  # somebody else has put other bytes, or removed the object
    NOT_PUT = "not-put"  # its segment must not be touched any more, or the run was interrupted
    LEFT_OVER = "left-over"  # its segment was deleted while the object was put
    FAILED = "failed"  # putting it failed
    NOT_MADE = "not-made"  # its right content is not certain
    RIGHT = "right"  # its log shows that it is right

    @property
    def is_mended(self) -> bool:
        """Whether the bucket has the right object after the repair."""
        return self in (RepairOutcome.PUT, RepairOutcome.SAME, RepairOutcome.RIGHT)


@dataclass(frozen=True, slots=True)
class RepairedObject:
    """An object of a repair, its outcome, and the reason."""

    row: RemadeRow
    outcome: RepairOutcome
    why: str | None = None


def _planned_outcome(row: RemadeRow) -> RepairedObject:
    if row.reason is None:
        return RepairedObject(row, RepairOutcome.RIGHT)
    if row.why_not is not None:
        return RepairedObject(row, RepairOutcome.NOT_MADE, row.why_not)
    return RepairedObject(row, RepairOutcome.TO_PUT)


@dataclass(frozen=True, slots=True)
class _ObjectUpload:
    """Puts objects from a mirror into a bucket. Once `interrupted` is set, no further object is put."""

    plan: BucketAuditPlan
    reader: RemoteMetadataReader
    mirror: Location
    interrupted: threading.Event

    def put(self, rows: Sequence[RemadeRow]) -> list[RepairedObject]:
        """Put the remade objects of a repair into the bucket, and return them in any order."""
        done: list[RepairedObject] = []
        for start in range(0, len(rows), AT_ONCE):
            group = rows[start : start + AT_ONCE]
            if self.interrupted.is_set():
                done += [RepairedObject(row, RepairOutcome.NOT_PUT, "the run was interrupted") for row in group]
                continue
            done += in_order(partial(self._put_object, self._segment_states()), group)
        if any(mended.outcome is RepairOutcome.PUT for mended in done):
            done = list(in_order(partial(self._outcome_after_last_read, self._segment_states()), done))
        return done

    def _segment_states(self) -> _StatesBySegment:
        rows = self.reader.read().segments.select(["topic_id", "partition", "segment_id", "state"]).to_pylist()
        return {(row["topic_id"], row["partition"], row["segment_id"]): row["state"] for row in rows}

    def _put_object(self, states: _StatesBySegment, row: RemadeRow) -> RepairedObject:
        partition = _partition_of(row)
        content = read_file(objects_directory(self.mirror, self.plan.layout, partition), row.name)
        if content is None or (len(content), crc32c(content)) != (row.made_bytes, row.made_crc32c):
            return RepairedObject(
                row, RepairOutcome.FAILED, "the mirror does not have what was made: another run writes to it"
            )
        try:
            if (why_not := self._why_not_touched(states, row)) is not None:
                return RepairedObject(row, RepairOutcome.NOT_PUT, why_not)
            directory = objects_directory(self.plan.bucket, self.plan.layout, partition)
            published = publish_if(directory, row.name, content, row.is_as_seen, self._log_owner(row))
        except PublishError as error:
            return RepairedObject(row, RepairOutcome.FAILED, str(error))
        except OSError as error:
            return RepairedObject(row, RepairOutcome.FAILED, f"{self._log_location(row)}: {error.strerror or error}")
        if published is Published.KEPT:
            return RepairedObject(
                row, RepairOutcome.CONFLICT, "it is not what was read: somebody else has written or removed it"
            )
        return RepairedObject(row, RepairOutcome.PUT if published is Published.WRITTEN else RepairOutcome.SAME)

    def _why_not_touched(self, states: _StatesBySegment, row: RemadeRow) -> str | None:
        """Why a segment must not be touched; None if it may be."""
        state = states.get((row.topic_id, row.partition, row.segment_id))
        if state != _COPY_FINISHED:
            return f"its segment is {state} by now" if state else "the metadata has no such segment any more"
        try:
            size = self._log_location(row).stat().st_size
        except FileNotFoundError:
            return "its .log has gone: the segment was deleted, and the metadata does not say so yet"
        return None if size == row.log_bytes else f"its .log has {size:,} bytes by now, not {row.log_bytes:,}"

    def _outcome_after_last_read(self, states: _StatesBySegment, mended: RepairedObject) -> RepairedObject:
        """The outcome of an object after the metadata was read for the last time."""
        if mended.outcome is not RepairOutcome.PUT:
            return mended
        try:
            why = self._why_not_touched(states, mended.row)
        except OSError:
            return mended  # it was put; the next audit says what became of the segment
        if why is None:
            return mended
        return replace(mended, outcome=RepairOutcome.LEFT_OVER, why=f"{why}; nobody will delete what was put")

    def _log_location(self, row: RemadeRow) -> Location:
        return self.plan.directory(_partition_of(row)) / object_name(row.start_offset, row.segment_id, LOG_SUFFIX)

    def _log_owner(self, row: RemadeRow) -> FileOwner | None:
        log = self._log_location(row)
        return FileOwner.of(os.lstat(log)) if isinstance(log, Path) else None


def _partition_of(row: RemadeRow) -> TopicIdPartition:
    return TopicIdPartition(row.topic_id, row.topic, row.partition)


def _record_repair(
    tables: Tables,
    recorded_as: TieredRecordRequest,
    listed: pa.Table,
    findings: Sequence[RemoteFindingRow],
    objects: Sequence[RepairedObject],
    as_of: JudgedAsOf,
) -> None:
    """Record the segments of a bucket as they were listed before the repair (rows of `ListedSegmentRow`), the findings
    that are not mended, and the outcome of the objects that are or seemed missing or broken.
    """
    repairs: defaultdict[SegmentRowKey, list[Mapping[str, Any]]] = defaultdict(list)
    put: defaultdict[SegmentRowKey, list[dict[str, Any]]] = defaultdict(list)
    for mended in objects:
        row = mended.row
        repair = {"suffix": row.file, "reason": row.reason, "outcome": mended.outcome.value, "why": mended.why}
        repairs[_recorded_key(mended)].append({**repair, "bytes": row.made_bytes})
        if mended.outcome is RepairOutcome.PUT:
            put[_recorded_key(mended)].append({"suffix": row.file, "name": row.name, "bytes": row.made_bytes})
    findings = [*findings, *_found_by_reading(findings, objects)]
    record_bucket_audit(tables, recorded_as, _with_objects_put(listed, put), findings, as_of, repairs)


def _found_by_reading(
    findings: Sequence[RemoteFindingRow], objects: Sequence[RepairedObject]
) -> Iterator[RemoteFindingRow]:
    """Findings on objects that only reading the log has shown to be wrong, and that are not mended."""
    known = {
        (finding.topic_id, finding.partition, finding.start_offset, finding.segment_id, finding.file)
        for finding in findings
    }
    columns = set(RemoteFindingRow.names()) & set(RemadeRow.names())
    for mended in objects:
        row = mended.row
        if row.reason is None or mended.outcome.is_mended or (*_recorded_key(mended), row.file) in known:
            continue
        yield RemoteFindingRow.of({**{name: getattr(row, name) for name in columns}, "verdict": Verdict.BROKEN.value})


def _with_objects_put(listed: pa.Table, put: Mapping[SegmentRowKey, Sequence[Mapping[str, Any]]]) -> pa.Table:
    """The listing with the objects that were put since. Their times and ETags are null: no request asked for them."""
    if not put:
        return listed
    column = listed["objects"]
    objects: list[Any] = column.to_pylist()
    for number, key in enumerate(keys_of_remote_segments(listed)):
        if new := put.get(key):
            replaced = {item["name"] for item in new}
            objects[number] = [*(item for item in objects[number] if item["name"] not in replaced), *new]
    return listed.set_column(listed.schema.get_field_index("objects"), "objects", pa.array(objects, column.type))


def _recorded_key(mended: RepairedObject) -> SegmentRowKey:
    row = mended.row
    return row.topic_id, row.partition, row.start_offset, row.segment_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair.

    Attributes:
        objects: missing and broken objects with their outcomes, in the order of partitions and offsets.
        left: findings that a repair cannot mend.
        safe: how many findings lead to no wrong answer.
        segments, log_bytes: how many segments' logs were read, and their bytes.
        local_segments, local_bytes: how many of these logs, and bytes, were read in log dirs.
        made, made_bytes: how many objects were written into the mirror, and their bytes.
    """

    objects: Sequence[RepairedObject]
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

    @property
    def outcomes(self) -> Counter[RepairOutcome]:
        return Counter(mended.outcome for mended in self.objects)


def _repair_as_json(request: RepairRequest, repaired: Repaired) -> dict[str, Any]:
    recorded_as = request.audit.recorded_as
    return {
        **({} if recorded_as is None else recorded_as.as_json()),
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
        "objects": [_mended_as_json(mended) for mended in repaired.objects],
        "left": [
            {**finding.values(), "what_to_do": remote_remedy(finding.file, finding.reason)} for finding in repaired.left
        ],
        "safe": repaired.safe,
        "requests": repaired.requests.as_json(),
    }


def _tell_repair(outcome: Outcome, request: RepairRequest, repaired: Repaired) -> None:
    kinds = Counter((mended.row.file, mended.row.reason or "", mended.outcome.value) for mended in repaired.objects)
    if kinds:
        outcome.table(
            f"{request.audit.bucket}, level {request.audit.level}",
            ("of", "reason", "outcome", "number"),
            [(*kind, number) for kind, number in sorted(kinds.items())],
            text_columns=3,
        )
    for mended in repaired.objects[:LINES_SHOWN]:
        row = mended.row
        why = "" if mended.why is None else f": {mended.why}"
        segment = f"{row.topic}-{row.partition} {row.start_offset} {row.segment_id}"
        outcome.line(f"{mended.outcome}: {segment} {row.file}: {row.reason or 'nothing is wrong'}{why}")
    outcome.add_more_line(len(repaired.objects) - LINES_SHOWN, MORE_IN_JSON)
    _tell_logs_read(outcome, request, repaired)
    if repaired.metadata.last_ms is not None:
        outcome.line(f"metadata: as of {show_time(repaired.metadata.last_ms)}")
    tell_requests(outcome, repaired.requests)
    for (file, reason), number in Counter((finding.file, finding.reason) for finding in repaired.left).items():
        outcome.line(f"left:     {file} {reason}: {number:,}; {remote_remedy(file, reason)}")
    if repaired.safe:
        outcome.line(
            f"left:     {counted(repaired.safe, 'finding')} without a wrong answer; kidx verify-tiered has the names"
        )
    if repaired.outcomes[RepairOutcome.TO_PUT]:
        outcome.line("nothing was put: --apply does it")
    elif repaired.outcomes[RepairOutcome.PUT]:
        outcome.line(_CACHED_INDEXES_LEFT)
    elif not repaired.objects and not repaired.left:
        outcome.line("nothing is to be mended, as far as this level shows")
    if request.audit.recorded_as is not None:
        outcome.line(request.audit.recorded_as.line)


def _tell_logs_read(outcome: Outcome, request: RepairRequest, repaired: Repaired) -> None:
    outcome.line(f"read:     {counted(repaired.segments, 'segment')}, {decimal(repaired.log_bytes)} of logs")
    if request.logs:
        outcome.line(
            f"of these: {counted(repaired.local_segments, 'segment')}, {decimal(repaired.local_bytes)}, in --logs, "
            "proved to be the same"
        )
    outcome.line(f"made:     {counted(repaired.made, 'object')}, {decimal(repaired.made_bytes)}, in {request.mirror}")


def _mended_as_json(mended: RepairedObject) -> dict[str, Any]:
    columns = {name: value for name, value in mended.row.values().items() if name not in ("log_bytes", "why_not")}
    return {**columns, "outcome": mended.outcome.value, "why": mended.why}


def _outcome_of(request: RepairRequest, repaired: Repaired) -> Outcome:
    is_mended = not repaired.left and all(mended.outcome.is_mended for mended in repaired.objects)
    outcome = Outcome(
        code=ExitCode.OK if is_mended else ExitCode.PROBLEMS_FOUND,
        run_id=None if request.audit.recorded_as is None else request.audit.recorded_as.audit_id,
        counts={
            "segments": repaired.segments,
            "made": repaired.made,
            **{kind.value.replace("-", "_"): repaired.outcomes[kind] for kind in RepairOutcome},
            "left": len(repaired.left),
        },
        bytes=repaired.log_bytes,
        requests=repaired.requests,
    )
    outcome.values.update(_repair_as_json(request, repaired))
    _tell_repair(outcome, request, repaired)
    return outcome


def repair(request: RepairRequest, backend: Backend) -> Outcome:
    """Make missing and broken objects of a bucket anew, and put them there if the request says so."""
    warn_of_first(request.audit.known_topics.warnings)
    reader = RemoteMetadataReader(request.audit.places, request.audit.topics)
    metadata = read_remote_metadata(reader, request.audit)
    plan = plan_bucket_audit(request.audit, metadata)
    interrupted = threading.Event()
    recorded_as = request.audit.recorded_as
    audit = BucketAudit(backend.engine, plan, reader)
    if recorded_as is not None:
        backend.catalog.make_tables()
    findings, _ = audit.find(metadata)
    broken = [finding for finding in findings if finding.verdict == Verdict.BROKEN.value]
    made = _remake_objects(request, audit, broken)
    planned = [_planned_outcome(row) for row in _wrong_objects(made, broken)]
    with interrupts.stopping(interrupted.set):
        if request.apply and any(mended.outcome is RepairOutcome.TO_PUT for mended in planned):
            begin_phase("putting")
            planned = _put_planned(planned, _ObjectUpload(plan, reader, request.mirror, interrupted))
        if recorded_as is not None:
            begin_phase("recording in the catalog")
            left = _findings_on_other_objects(findings, (each for each in planned if each.outcome.is_mended))
            _record_repair(backend.catalog.tables, recorded_as, audit.listed, left, planned, plan.as_of)
        logs = {_segment_key_of(row): row.log_bytes for row in made}
        local_logs_read = {_segment_key_of(row): row.log_bytes for row in made if row.is_local}
        in_mirror = [row.made_bytes for row in made if row.made_bytes is not None]
        repaired = Repaired(
            objects=sorted(planned, key=lambda mended: (mended.row.topic, mended.row.partition, mended.row.name)),
            left=_findings_on_other_objects(broken, planned),
            safe=len(findings) - len(broken),
            segments=len(logs),
            log_bytes=sum(logs.values()),
            local_segments=len(local_logs_read),
            local_bytes=sum(local_logs_read.values()),
            made=len(in_mirror),
            made_bytes=sum(in_mirror),
            metadata=metadata,
            requests=requests_made() - request.audit.asked_before + backend.engine.requests(),
        )
    return _outcome_of(request, repaired)


def _local_copies_of_logs(sources: Sequence[Source], topics: Collection[tuple[str, str]]) -> _LocalCopies:
    """List the logs of some topics (names and ids). If several directories have the same log, the first one is used.
    Warns of directories that cannot be listed.
    """
    copies: dict[tuple[str, int, int, int], Location] = {}
    for log in local_logs(sources, topics):
        sizes = zip(log.segments.base_offsets.tolist(), log.segments.sizes.tolist(), strict=True)
        for base_offset, size in sizes:
            key = log.partition.topic_id, log.partition.partition, base_offset, size
            copies.setdefault(key, log.directory / segment_file(base_offset, LOG_SUFFIX))
    return copies


def _with_local_logs(segment: RemoteSegmentToRead, copies: _LocalCopies) -> RemoteSegmentToRead:
    """The segment and those before it, each with the local log that has its base offset and size, if there is one."""
    partition = segment.partition
    key = partition.topic_id, partition.partition, segment.start_offset, segment.log_bytes
    before = None if segment.before is None else _with_local_logs(segment.before, copies)
    return replace(segment, local_log=copies.get(key), before=before)


def _remake_objects(request: RepairRequest, audit: BucketAudit, broken: Iterable[RemoteFindingRow]) -> list[RemadeRow]:
    """The objects that are made from the logs of segments with damage that can be mended."""
    damaged = {
        _segment_key_of(finding)
        for finding in broken
        if finding.file in SIDE_OBJECTS and finding.reason not in _NOT_MENDED_BY_OBJECTS
    }
    if not damaged:
        return []
    partitions = {
        TopicIdPartition(finding.topic_id, finding.topic, finding.partition)
        for finding in broken
        if _segment_key_of(finding) in damaged
    }
    begin_phase("listing again")
    metadata = audit.reader.read()
    segments = audit.segments(metadata, partitions)
    epochs = _epochs_by_segment(metadata, partitions)
    copies = _local_copies_of_logs(request.logs, {(partition.topic, partition.topic_id) for partition in partitions})
    shares = [
        SegmentsToRemake(
            segments=tuple(_with_local_logs(segment, copies) for segment in share),
            epochs=tuple(epochs.get(segment.segment_id) for segment in share),
        )
        for share in audit.plan.shares(segments, metadata.flag_since, lambda row: _segment_key_of(row) in damaged)
    ]
    number, bytes_ = sum(len(share.segments) for share in shares), sum(share.bytes for share in shares)
    begin_phase("reading logs", done=audit.engine.done, segments=number, log_bytes=bytes_)
    remake = partial(remake_in_worker, mirror=request.mirror)
    staged = audit.run(remake, shares, REMADE, is_small=reads_little(bytes_, number), maps=True)
    return RemadeRow.of_arrow(staged.rows("remade"))


def _epochs_by_segment(metadata: RemoteMetadata, partitions: Iterable[TopicIdPartition]) -> dict[str, Any]:
    """The leader epochs up to the end of each segment of some partitions, by the segment's id."""
    of_partitions = split_by_partition(metadata.segments, "start_offset")
    epochs: dict[str, Any] = {}
    for partition in partitions:
        if (rows := of_partitions.get(partition)) is not None:
            epochs |= epochs_up_to(readable_segments(rows))
    return epochs


def _wrong_objects(made: Iterable[RemadeRow], broken: Iterable[RemoteFindingRow]) -> Iterator[RemadeRow]:
    """The objects that are wrong by their log or by the audit. If the log cannot tell, the row says why."""
    named = {(*_segment_key_of(finding), finding.file): finding for finding in broken}
    for row in made:
        finding = named.get((*_segment_key_of(row), row.file))
        if row.reason is None and row.why_not is not None and finding is not None:
            yield replace(row, reason=finding.reason, detail=finding.detail, consequence=finding.consequence)
        elif row.reason is not None or finding is not None:
            yield row


def _put_planned(planned: Sequence[RepairedObject], putting: _ObjectUpload) -> list[RepairedObject]:
    rows = [mended.row for mended in planned if mended.outcome is RepairOutcome.TO_PUT]
    return [*(mended for mended in planned if mended.outcome is not RepairOutcome.TO_PUT), *putting.put(rows)]


def _findings_on_other_objects(
    broken: Iterable[RemoteFindingRow], objects: Iterable[RepairedObject]
) -> list[RemoteFindingRow]:
    """The findings on other objects than these, and those that no object can mend."""
    named = {(*_segment_key_of(mended.row), mended.row.file) for mended in objects}
    return [
        finding
        for finding in broken
        if finding.reason in _NOT_MENDED_BY_OBJECTS or (*_segment_key_of(finding), finding.file) not in named
    ]


def _segment_key_of(row: RemoteFindingRow | CopiedSegmentRow | RemadeRow) -> _SegmentKey:
    return row.topic_id, row.partition, row.segment_id
