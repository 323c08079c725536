"""An audit, from the listing and the catalog's rows to its findings in the catalog and its outcome. Gaps between logs
are compared with everything else that knows the offsets. A repair without a catalog begins with an audit, too
(`audit_before_repair`).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.audit.finding import IN_USE, Verdict
from kidxlib.audit.gaps import FACTS, GapEvidence, gaps_in
from kidxlib.audit.partition import PartitionAudit, partition_audits
from kidxlib.audit.partition_logs import MISSING
from kidxlib.audit.rows import RowKind, broken_files
from kidxlib.audit.startup.absent import has_no_partition
from kidxlib.audit.startup.directories import DirectoryAside, directories_aside, lines_of_directories_aside
from kidxlib.audit.startup.last_stop import PartitionStop, checkpoints_not_compared, lost_checkpoints
from kidxlib.audit.startup.meta_properties import log_dirs_by_node
from kidxlib.audit.startup.metadata_log import ONLY_VOTER_WITHOUT_METADATA, STARTS_WITHOUT_METADATA
from kidxlib.audit.summary import AuditSummary, StartFailure
from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import FINDINGS, JudgedFile
from kidxlib.catalog.matching import Values, positions_in, taken_at
from kidxlib.catalog.partitions import partition_keys, rows_of_keys
from kidxlib.catalog.rows import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.engine.protocol import Engine
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.known_segments import (
    NOWHERE,
    KnownSegments,
    known_segment_counts,
    match_known_segments,
    without_directory,
)
from kidxlib.indexing.listing import unlistable_as_json
from kidxlib.indexing.plan import Plan, PlannedPartition, ScanTask, find_segments
from kidxlib.indexing.source import Source
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.audit.audit_request import AuditRequest
from kidxlib.operations.audit.audit_summary import AcceptedAuditFindings, AuditedCatalog, summarise_audit
from kidxlib.operations.audit.budget import FoundBeyondBudget, LastAudits, NotAudited, beyond_budget, look_beyond_budget
from kidxlib.operations.audit.run_audit import AuditResults, run_audit
from kidxlib.operations.backend import Backend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.damage.acceptances import VERSION_NAMES
from kidxlib.operations.tiered.local_partitions import LocalPartition, tiered_partitions
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.run.index_options import index_options_as_json, index_options_lines
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.log_dirs_at_hand import unnamed_log_dirs, without_metadata_log
from kidxlib.run.sources import as_sources, source_paths, sources_line, warn_of_other_names
from kidxlib.storage.location import Directory, Location, as_text, location
from kidxlib.storage.log_dir import META_PROPERTIES, looks_unmounted, usable_meta_properties
from kidxlib.tables.protocol import Tables, TablesToRead
from kidxlib.terminal.audit import BESIDE_LOGS, audit_as_json, say_before_repair, tell_audit_summary
from kidxlib.terminal.console import MORE_IN_JSON, begin_phase, note, warn, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.operations.build.build_request import BuildRequest

#: The columns that say where a segment's indexes are, and with which options they were built.
_OPTIONS: Final = ("interval_bytes", "max_index_bytes", "crc_checked")
_INDEX_DIRECTORY: Final = "index_directory"


@dataclass(frozen=True, slots=True)
class _PlannedAudit:
    """What is to be audited.

    Attributes:
        plan: the listed sources, with the directories where index files are looked for.
        tasks: the segments to read.
        gone: how many known partitions have no directory.
        aside: directories that Kafka moves, deletes or has set aside.
        log_dir_failures: what keeps a broker from starting with a log dir, besides partitions' logs.
        cut_metadata: what the only voter of a quorum has lost of the cluster's metadata, in words.
        not_audited: partitions that the budget leaves out.
        unread: what to audit of these partitions without reading their logs.
        unchanged: how many logs are as they were when an audit last read them in full; None without a catalog.
    """

    plan: Plan
    tasks: Sequence[ScanTask]
    audits: Mapping[PartitionKey, PartitionAudit]
    gone: int
    aside: Sequence[DirectoryAside]
    log_dir_failures: Sequence[str] = ()
    cut_metadata: Sequence[str] = ()
    not_audited: NotAudited = field(default_factory=NotAudited)
    unread: Mapping[PartitionKey, PartitionAudit] = field(default_factory=dict)
    unchanged: int | None = None

    @property
    def not_compared(self) -> list[str]:
        """Logs that could not be compared with checkpoints, in words."""
        return list(checkpoints_not_compared(self._stops))

    @property
    def lost_checkpoints(self) -> list[str]:
        """Checkpoints that are lost, or that have lost lines, in words."""
        return list(lost_checkpoints(self._stops))

    @property
    def _stops(self) -> Iterator[tuple[Location, TopicPartition, PartitionStop]]:
        for audit in {**self.audits, **self.unread}.values():
            if audit.is_brokers and audit.known_to is None:
                yield audit.directory.parent, audit.topic_partition, audit.last_stop

    @property
    def log_bytes(self) -> int:
        return self.plan.log_bytes - self.not_audited.log_bytes

    def coverage(self, earlier: int) -> str:
        """The logs that are read and those that are left out, in words; empty without a catalog. So many findings of
        `earlier` audits still hold.
        """
        if self.unchanged is None:
            return ""
        parts = [
            f"read: {counted(len(self.tasks), 'log')}, {decimal(self.log_bytes)}; unchanged since they were last read "
            f"in full: {counted(self.unchanged, 'log')}"
        ]
        if self.not_audited.partitions:
            parts.append(self.not_audited.in_words)
        if earlier:
            parts.append(f"with {counted(earlier, 'finding')} of earlier audits, of files that are as they were")
        return "; ".join(parts)

    @property
    def counts(self) -> dict[str, int]:
        """The logs that are read and those that are left out, in numbers; empty without a catalog."""
        if self.unchanged is None:
            return {}
        read = {"segments": len(self.tasks), "logs_unchanged": self.unchanged}
        partitions = len(self.plan.partitions) - len(self.not_audited.partitions)
        return {**read, "partitions": partitions, **self.not_audited.counts}

    def coverage_as_json(self, failures: Sequence[StartFailure], earlier: int) -> dict[str, Any]:
        """The keys of the JSON object about what was read; none without a catalog. `failures` are of partitions that
        are left out.
        """
        if self.unchanged is None:
            return {}
        return {
            "logs_read": len(self.tasks),
            "logs_unchanged": self.unchanged,
            "not_audited": self.not_audited.as_json(),
            "not_audited_failures": list(dict.fromkeys(failure.in_words for failure in failures)),
            "findings_of_earlier_audits": earlier,
        }


def audit(request: AuditRequest, backend: Backend) -> Outcome:
    """Audit the sources. If there is a catalog, the findings are recorded there; no other catalog is read."""
    plan, audit_id = _listed(request), request.audit_id
    catalog = backend.catalog if request.context.has_catalog else None
    at_hand = list(request.sources)
    if catalog is not None:
        recorded = source_paths(catalog.tables)
        warn_of_other_names(request.sources, recorded)
        at_hand += as_sources(recorded)
    planned = _planned(request, plan, catalog)
    results, unread = _run_audit(request, planned, backend.engine, catalog)
    if catalog is not None and audit_id is not None:
        begin_phase("recording in the catalog")
        _record_audit(catalog.tables, results, audit_id, request.context.now, planned.plan, planned.unread)
    begin_phase("counting")
    of_catalog = AuditedCatalog()
    if catalog is not None:
        names = [source.name for source in request.sources]
        of_catalog = AuditedCatalog.of(catalog.tables, results, names, request.topics)
    accepted, place = of_catalog.accepted, None if catalog is None else catalog.path
    summary = summarise_audit(
        results,
        planned.log_dir_failures,
        tiering=request.how.tiering,
        left_out=accepted.keys,
        list_safe=request.how.list_safe,
    )
    summary.many_sources = len(request.sources) > 1
    of_nodes = [*_not_named(request, plan, at_hand), *_lost_metadata(request, plan, at_hand), *planned.cut_metadata]
    summary.failures |= dict.fromkeys([*of_nodes, *planned.lost_checkpoints])
    failures = unread.all_failures(accepted.partitions)
    summary.add_failures(failures)
    summary.coverage, summary.not_simulated = planned.coverage(unread.earlier), len(planned.unread)
    without = _without_metadata(request, plan)
    beside = _beside_logs(planned.plan)
    summary.not_looked_at = _not_looked_at(request, planned.plan, beside)
    counted_out = accepted.taken_from(summary)
    outcome = Outcome(
        code=audit_exit_code(plan, counted_out, request.how.fail_on),
        run_id=audit_id,
        counts={**_run_counts(plan, summary, accepted, partitions_gone=planned.gone), **planned.counts},
        bytes=planned.log_bytes,
        catalog_segments=of_catalog.segments,
        catalog_files=of_catalog.files,
    )
    shown = replace(counted_out, actions=summary.actions)  # a start does what it does, whatever is accepted
    _tell(outcome, request, planned, shown, accepted, place, without)
    outcome.values.update(
        {
            "partitions_gone": planned.gone,
            "without_metadata": list(map(as_text, without)),
            "node_failures": of_nodes,
            "beside_logs_not_looked_at": beside,
            **planned.coverage_as_json(failures, unread.earlier),
            **results.gaps.as_json(),
            **_run_as_json(request, plan, accepted, place, planned),
            **audit_as_json(results.all_rows, summary),
        }
    )
    return outcome


def _listed(request: AuditRequest) -> Plan:
    """List the sources. Warns of what is wrong with them."""
    warn_of_first(request.known_topics.warnings)
    begin_phase("listing")
    metadata = request.known_topics.by_source
    plan = find_segments(
        request.sources,
        request.topics,
        request.index_place,
        request.options_for,
        may_be_empty=lambda source: source.name in metadata and has_no_partition(source.path, metadata[source.name]),
    )
    warn_of_first(plan.warnings)
    if not request.is_once:
        note(
            f"{counted(plan.segments.num_rows, 'segment')}, {decimal(plan.log_bytes)}, in "
            f"{counted(len(plan.partitions), 'partition')}"
        )
    return plan


def _planned(request: AuditRequest, plan: Plan, catalog: TablesCatalog | None) -> _PlannedAudit:
    """Decide what to audit, by the listing and the catalog. Warns of errors in a log dir's own files, and of partitions
    that are gone.
    """
    tasks, in_catalog = None, dict[PartitionKey, int]()
    if catalog is not None:
        catalog.make_tables()
        begin_phase("comparing with the catalog")
        plan, tasks, in_catalog = _as_cataloged(
            plan,
            catalog.known_segments([source.name for source in request.sources], request.topics),
            find_indexes=request.index_place.index_dir is None,
            find_interval=request.interval_bytes is None,
        )
    how = request.how
    audits, stops = partition_audits(
        plan,
        request.sources,
        request.options_for,
        clean_shutdown=how.clean_shutdown,
        tiering=how.tiering,
        topics=request.topics,
        metadata=request.known_topics.by_source,
        kafka_version=how.kafka_version,
    )
    with_remote, not_compared = _with_remote_segments(request, plan, audits)
    lost = (stop.lost_metadata for stop in stops.values())
    cut = [str(obstacle) for obstacle in lost if obstacle is not None and obstacle.is_loss]
    notes = [note for stop in stops.values() for note in stop.notes if note not in cut]
    warn_of_first([*notes, *not_compared])
    gone = without_directory(plan, request.sources, request.topics, request.index_place, in_catalog)
    warn_of_first(gone.values())
    aside = directories_aside(source.path for source in request.sources if source.name in plan.log_dirs)
    log_dir_failures = list(itertools.chain.from_iterable(stop.failures for stop in stops.values()))
    tasks = plan.scan_tasks() if tasks is None else tasks
    planned = _PlannedAudit(plan, tasks, with_remote, len(gone), aside, log_dir_failures, cut)
    return planned if catalog is None else _within_budget(planned, request, catalog.tables)


def _as_cataloged(
    plan: Plan, known: pa.Table, *, find_indexes: bool, find_interval: bool
) -> tuple[Plan, list[ScanTask], dict[PartitionKey, int]]:
    """Complete a plan with the catalog's rows of its segments (`KNOWN`): the plan, the tasks to read its segments, and
    how many segments the catalog has in partitions that were listed without a segment. Index files are looked for where
    the last build put them (`find_indexes`), and compared at the interval with which they were built (`find_interval`).
    """
    matched = match_known_segments(plan, known)
    matched = matched.where(matched.present)
    listed = np.append(plan.have_segments(), False)[matched.partitions]  # the last is for `NOWHERE`
    there = matched.where(listed)
    if find_indexes:
        plan = replace(plan, partitions=_where_built(plan, there))
    tasks = plan.scan_tasks()
    both = there.where(there.listed != NOWHERE)
    rows = both.known.select([*_OPTIONS, _INDEX_DIRECTORY]).to_pylist()
    for number, row in zip(both.listed.tolist(), rows, strict=True):
        task = tasks[number]
        options = _options(row) if find_interval else task.options
        directory = _index_directory(row[_INDEX_DIRECTORY]) if find_indexes else task.index_directory
        tasks[number] = replace(task, options=options, index_directory=directory)
    return plan, tasks, known_segment_counts(matched.where(~listed).known)


def _where_built(plan: Plan, there: KnownSegments) -> list[PlannedPartition]:
    """The partitions, with the index directory of the last segment that the catalog knows. The next build would index
    new segments there, too.
    """
    order = np.lexsort((there.known["base_offset"].to_numpy(), there.partitions))
    last = order[np.flatnonzero(np.diff(there.partitions[order], append=NOWHERE))]
    recorded: list[Any] = there.known[_INDEX_DIRECTORY].take(last).to_pylist()
    directories = dict(zip(there.partitions[last].tolist(), map(_index_directory, recorded), strict=True))
    return [
        replace(partition, index_directory=directories.get(number, partition.index_directory))
        for number, partition in enumerate(plan.partitions)
    ]


def _options(row: Mapping[str, int]) -> RecoverOptions:
    return RecoverOptions(
        interval_bytes=row["interval_bytes"],
        max_index_bytes=row["max_index_bytes"],
        verify_crc=bool(row["crc_checked"]),
    )


def _index_directory(path: str) -> Directory:
    directory = location(path)
    return Directory(str(directory.parent), directory.name)


def _with_remote_segments(
    request: AuditRequest, plan: Plan, audits: Mapping[PartitionKey, PartitionAudit]
) -> tuple[Mapping[PartitionKey, PartitionAudit], Sequence[str]]:
    """Add the remote segments of partitions whose log dirs know some; also give what could not be learned, in words."""
    log_dirs = {source.name: source.path for source in request.sources if source.name in plan.log_dirs}
    ids = {partition.key: partition.topic_id for partition in plan.partitions}
    local = {
        key: LocalPartition(
            log_dirs[key[0]],
            audit.topic_partition,
            ids.get(key),
            _is_tiered(request, key[0], audit.topic_partition.topic),
        )
        for key, audit in audits.items()
        if key[0] in log_dirs and audit.is_brokers
    }
    tiered = tiered_partitions(log_dirs.values(), local.values(), request.topics)
    remote = {key: tiered.found[partition] for key, partition in local.items() if partition in tiered.found}
    with_remote = {key: replace(audit, tiered=remote[key]) if key in remote else audit for key, audit in audits.items()}
    return with_remote, tiered.warnings


def _is_tiered(request: AuditRequest, source: str, topic: str) -> bool:
    config = request.known_topics.config(source, topic, "remote.storage.enable")
    return config is not None and config.value == "true"


def _within_budget(planned: _PlannedAudit, request: AuditRequest, tables: Tables) -> _PlannedAudit:
    """Take out the partitions that the budget leaves out. A missing partition has no bytes and stays in."""
    names = [source.name for source in request.sources]
    last = LastAudits.of(tables, planned.plan, names, request.audit_id)
    budget = request.how.max_bytes
    left_out = NotAudited() if budget is None else beyond_budget(planned.tasks, last, budget)
    out = left_out.partitions
    return replace(
        planned,
        tasks=[task for task in planned.tasks if task.segment.partition_key not in out],
        audits={key: audit for key, audit in planned.audits.items() if key not in out},
        not_audited=left_out,
        unread={key: audit for key, audit in planned.audits.items() if key in out},
        unchanged=sum(count for key, count in last.unchanged.items() if key not in out),
    )


def _run_audit(
    request: AuditRequest, planned: _PlannedAudit, engine: Engine, catalog: TablesCatalog | None
) -> tuple[AuditResults, FoundBeyondBudget]:
    """The findings in logs that are read, on partitions that are left out, and on gaps between logs."""
    results = run_audit(engine, planned.tasks, planned.audits, request.sources, deep=request.how.deep)
    tables, unread = None, FoundBeyondBudget()
    if catalog is not None:
        tables, names = catalog.tables, [source.name for source in request.sources]
        unread = look_beyond_budget(tables, planned.plan, planned.unread, names, request.how.fail_on)
        results = results.with_others(unread.rows)
    return _with_gaps(results, planned.plan, request.known_topics, tables, unread.facts), unread


def _with_gaps(
    results: AuditResults, plan: Plan, known: KnownTopics, tables: TablesToRead | None, unread: pa.Table
) -> AuditResults:
    """Add the gaps between the logs to an audit's results. A missing log whose `.index` is there has a finding of its
    own, and is no gap. The catalog's tables may know the offsets; `unread` has its `FACTS` of segments that were left
    out.
    """
    rows = pa.concat_tables([_facts(results, plan), unread])
    places = {partition.key: partition.directory.path for partition in plan.partitions}
    gaps = gaps_in(
        rows,
        known.policy_of((*partition.key[:2], partition.topic_id) for partition in plan.partitions),
        GapEvidence(places),
    )
    gaps = gaps.without_logs_at(_missing_logs(results)).with_known(rows)
    if tables is not None and gaps.lost:
        topics = sorted({gap.topic for gap in gaps.lost})
        gaps = gaps.with_known(tables.read(SEGMENTS, FACTS, [Among("topic", topics)]))
    on_gaps = [gap.row(places[gap.partition_key]) for gap in gaps.lost]
    return replace(results.with_others(on_gaps), gaps=gaps)


def _facts(results: AuditResults, plan: Plan) -> pa.Table:
    """`FACTS` of the segments that were read. A segment that was deleted since the listing has an unknown end."""
    rows = results.segments.rows("segment", [*SEGMENT_KEY, "status", "recovery"])
    recovery: Values = rows["recovery"].combine_chunks()
    parts = {name: recovery.field(name) for name in ("next_offset", "records", "log_bytes")}
    ids = {partition.key: partition.topic_id for partition in plan.partitions}
    columns: dict[str, Any] = {name: rows[name] for name in SEGMENT_KEY}
    columns["topic_id"] = pa.array([ids.get(key) for key in partition_keys(rows)], pa.string())
    columns["status"] = pc.if_else(recovery.is_valid(), rows["status"], Status.UNREADABLE.value)
    # `field` does not always give null where the struct is null.
    columns |= {name: pc.if_else(recovery.is_valid(), part, None) for name, part in parts.items()}
    schema = SEGMENTS.schema(FACTS)
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def _missing_logs(results: AuditResults) -> dict[PartitionKey, list[int]]:
    """The base offsets of missing logs whose `.index` is there."""
    conditions = [Among("file", (LOG_SUFFIX,)), Among("reason", (MISSING,)), Among("verdict", (Verdict.BROKEN.value,))]
    base_offsets: defaultdict[PartitionKey, list[int]] = defaultdict(list)
    for row in results.rows(RowKind.FILE, SEGMENT_KEY, conditions).to_pylist():
        base_offsets[row["source"], row["topic"], row["partition"]].append(row["base_offset"])
    return base_offsets


def _record_audit(
    tables: Tables, results: AuditResults, audit_id: str, now: datetime, plan: Plan, unread: Collection[PartitionKey]
) -> None:
    """Record the findings of an audit in one commit. They replace all rows of the same audit, so that it can be run
    again. For partitions whose logs were not read, the findings of the audit before stay in force.
    """
    findings = results.rows(RowKind.FILE)
    if unread:
        findings = findings.filter(pa.array(positions_in(findings, rows_of_keys(unread), PARTITION_KEY) < 0))
    findings = _with_versions(findings, plan)
    for name, value in {"audit_id": audit_id, "audited_at": now}.items():
        values = pa.repeat(pa.scalar(value, FINDINGS.schema().field(name).type), findings.num_rows)
        findings = findings.append_column(name, values)
    rows = findings.select(FINDINGS.column_names).cast(FINDINGS.schema())
    audit = pa.table({"audit_id": [audit_id]})
    tables.change_rows(FINDINGS, {"audit": audit, "finding": rows}, updates.audited, by=["audit_id"])


def _with_versions(findings: pa.Table, plan: Plan) -> pa.Table:
    """Add size, modification time and inode of each log without damage, as it was listed. A log that changes while it
    is read has a finding of its own.
    """
    is_sound = pc.and_(
        pc.equal(findings["file"], pa.scalar(LOG_SUFFIX)),
        pc.is_in(findings["verdict"], value_set=pa.array([Verdict.WHOLE.value, Verdict.SAFE.value])),
    )
    is_in_use = pc.equal(pc.coalesce(findings["reason"], pa.scalar("")), pa.scalar(IN_USE))
    at = positions_in(findings, plan.keys(plan.segments), SEGMENT_KEY).copy()
    at[~pc.and_(is_sound, pc.invert(is_in_use)).to_numpy().astype(np.bool_)] = -1
    versions = taken_at(plan.segments.select(LogVersion.names()), at)
    for name, listed in zip(VERSION_NAMES, LogVersion.names(), strict=True):
        field = findings.schema.field(name)
        seen = versions[listed].cast(field.type, safe=False)
        number = findings.schema.get_field_index(name)
        findings = findings.set_column(number, field, pc.coalesce(findings[name], seen))
    return findings


def _not_named(request: AuditRequest, plan: Plan, at_hand: Sequence[Source]) -> list[str]:
    """The log dirs of the sources' brokers that were not named, in words: this audit cannot see losses there."""
    if request.how.alone:
        return []
    log_dirs = _log_dirs(request, plan)
    nameless = [source.path for source in log_dirs if usable_meta_properties(source.path).directory_id is None]
    return [
        f"broker {node_id} has {counted(len(others), 'more log dir')} (directory.id {', '.join(others)}), which nobody "
        f"has named: it is not known what is there; {_name_them(nameless)}"
        for node_id, others in unnamed_log_dirs(request.known_topics, log_dirs, at_hand)
    ]


def _name_them(nameless: Sequence[Location]) -> str:
    """Advice to name the other log dirs, among which may be those whose directory id is not known."""
    if not nameless:
        return "name all of log.dirs, or give --this-dir-alone"
    are = f"{', '.join(map(as_text, nameless))} may be {'it' if len(nameless) == 1 else 'these'}"
    if unmounted := [as_text(log_dir) for log_dir in nameless if looks_unmounted(log_dir)]:
        return f"{are}: nothing is in {', '.join(unmounted)}: is the disk mounted? Mount it, and run this again"
    if missing := [as_text(log_dir) for log_dir in nameless if not (log_dir / META_PROPERTIES).exists()]:
        return (
            f"{are}: {META_PROPERTIES} is not in {', '.join(missing)}: look whether that is the log dir, and restore it"
        )
    return f"{are}: no directory.id is in {META_PROPERTIES} there; write that into the file first"


def _lost_metadata(request: AuditRequest, plan: Plan, at_hand: Sequence[Source]) -> list[str]:
    """Nodes that have the cluster's metadata in none of their log dirs, in words: what a start does is not known. If an
    option says where the metadata is, or that the log dir is judged alone, there is a warning instead; but not for the
    only voter of a quorum, which by that metadata loses all. `at_hand` has the sources of the catalog, too.
    """
    nodes = []
    for node_id, log_dirs in without_metadata_log(_log_dirs(request, plan), at_hand, request.known_topics):
        where = f"{', '.join(map(str, log_dirs))}: node {node_id} has {METADATA_DIRECTORY} in none of these log dirs"
        if request.cluster_metadata is not None:
            where += f": {request.cluster_metadata} has to be in metadata.log.dir, or in the first of log.dirs, when "
            if any(copy.only_voter == node_id for copy in request.known_topics.read()):
                nodes.append(f"{where}the node starts: {ONLY_VOTER_WITHOUT_METADATA}")
            else:
                warn(f"{where}the node starts; {STARTS_WITHOUT_METADATA}")
        elif request.how.alone:
            warn(f"{where}: {STARTS_WITHOUT_METADATA}")
        else:
            nodes.append(
                f"{where}: name the one that has it, which is that of metadata.log.dir; if it is lost, restore it "
                f"before any start, as {STARTS_WITHOUT_METADATA}. --this-dir-alone goes on without"
            )
    return nodes


def _log_dirs(request: AuditRequest, plan: Plan) -> list[Source]:
    """The sources that are log dirs."""
    return [source for source in request.sources if source.name in plan.log_dirs and source.remote is None]


def _without_metadata(request: AuditRequest, plan: Plan) -> list[Location]:
    """The log dirs of brokers whose cluster's metadata is not known."""
    return [
        source.path
        for source in _log_dirs(request, plan)
        if source.name not in request.known_topics.of_sources and (source.path / META_PROPERTIES).exists()
    ]


def _beside_logs(plan: Plan) -> dict[str, int]:
    """How many index files beside logs are not audited, because those of an index directory are; by suffix. A broker
    that starts reads the files beside the logs.
    """
    counts: Counter[str] = Counter()
    elsewhere = {str(partition.directory.path) for partition in plan.partitions if not partition.in_place}
    for (directory, suffix), count in plan.skipped.indexes.items():
        if directory in elsewhere:
            counts[suffix] += count
    return dict(sorted(counts.items()))


def _not_looked_at(request: AuditRequest, plan: Plan, beside: Mapping[str, int]) -> str:
    """A line on the index files `beside` logs that were left out, with the command that audits them."""
    if not beside:
        return ""
    elsewhere = {partition.directory.source.name for partition in plan.partitions if not partition.in_place}
    paths = [source.path for source in request.sources if source.name in elsewhere]
    files = ", ".join(f"{count:,} {suffix}" for suffix, count in beside.items())
    [first, *_] = log_dirs_by_node(paths)
    others = " for one broker; the others each with theirs" if len(first) < len(paths) else ""
    return (
        f"not looked at: {files} beside the logs, which a broker that starts takes: kidx verify "
        f"{' '.join(map(as_text, first))} looks at these{others}"
    )


def audit_exit_code(plan: Plan, summary: AuditSummary, fail_on: Verdict) -> ExitCode:
    """The exit code of an audit: a plan without a segment is a problem, and so is a source that cannot be listed."""
    has_problems = plan.unlistable or plan.empty or summary.fails(fail_on)
    return ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK


def _run_counts(
    plan: Plan, summary: AuditSummary, accepted: AcceptedAuditFindings, *, partitions_gone: int
) -> dict[str, int]:
    """The numbers of a run, for metrics and JSON."""
    numbers = {
        "partitions": len(plan.partitions),
        "segments": plan.segments.num_rows,
        "not_ready": summary.not_ready_count,
        "segments_lost": summary.lost_count,
        "partitions_gone": partitions_gone,
        "unlistable": len(plan.unlistable),
        "sources_empty": len(plan.empty),
        "gaps": len(summary.gaps.lost),
        "in_use": summary.in_use[0],
        "in_use_bytes": summary.in_use[1],
    }
    for verdict in Verdict:
        numbers[verdict.value] = sum(count for (_, of_files), count in summary.files.items() if of_files == verdict)
        if verdict is not Verdict.IDENTICAL:
            numbers[f"logs_{verdict}"] = summary.logs(verdict)
    return {**numbers, "accepted": accepted.count}


def _run_as_json(
    request: AuditRequest, plan: Plan, accepted: AcceptedAuditFindings, catalog: str | None, planned: _PlannedAudit
) -> dict[str, Any]:
    recorded: dict[str, Any] = {}
    if request.audit_id is not None:
        recorded = {
            "audit_id": request.audit_id,
            "catalog": catalog,
            "accepted": accepted.count,
            "accepted_findings": accepted.as_json(),
        }
    return recorded | {
        **unlistable_as_json(plan.unlistable.values()),
        "empty_sources": [{"source": name, "path": as_text(path)} for name, path in plan.empty.items()],
        "cluster_metadata": index_options_as_json(request.known_topics, plan),
        "aside": [
            {"path": as_text(folder.path), "kind": folder.kind, "bytes": folder.bytes} for folder in planned.aside
        ],
        "log_dir_failures": list(planned.log_dir_failures),
        "not_compared": planned.not_compared,
        "lost_checkpoints": planned.lost_checkpoints,
    }


def _tell(
    outcome: Outcome,
    request: AuditRequest,
    planned: _PlannedAudit,
    summary: AuditSummary,
    accepted: AcceptedAuditFindings,
    catalog: str | None,
    without_metadata: Sequence[Location],
) -> None:
    """Show the findings and where they are recorded: `catalog` is a directory or URL. In `without_metadata` are log
    dirs whose cluster's metadata is not known.
    """
    audit_id, not_compared = request.audit_id, planned.not_compared
    title = ", ".join(as_text(source.path) for source in request.sources) if audit_id is None else f"audit {audit_id}"
    partitions = planned.plan.partitions
    looked_in = {BESIDE_LOGS if partition.in_place else partition.index_directory.root for partition in partitions}
    tell_audit_summary(outcome, title, summary, sorted(looked_in))
    outcome.line(*lines_of_directories_aside(planned.aside))
    accepted.tell(outcome)
    outcome.line(*(f"not compared: {line}" for line in not_compared[:LINES_SHOWN]))
    outcome.add_more_line(len(not_compared) - LINES_SHOWN, MORE_IN_JSON)
    if without_metadata:
        more = f" and {len(without_metadata) - 1:,} more" if len(without_metadata) > 1 else ""
        outcome.line(
            f"not compared: {without_metadata[0]}{more}: topic ids and assignments of directories, and which "
            f"partitions should be there, as no {METADATA_DIRECTORY} can be read; --cluster-metadata names one"
        )
    if audit_id is not None:
        outcome.line(f"source:  {sources_line(request.sources)}")
    outcome.line(*(f"topics:  {line}" for line in index_options_lines(request.known_topics, planned.plan)))
    if catalog is not None:
        outcome.line(f"catalog: {catalog}, table {FINDINGS.name}")


def audit_before_repair(
    request: BuildRequest, plan: Plan, backend: Backend
) -> tuple[Mapping[PartitionKey, frozenset[str]], int]:
    """Audit a plan before a repair, where no earlier audit is recorded: the names of broken index and auxiliary files
    by partition, and how many logs are broken.
    """
    from kidxlib.operations.build.build import files_to_repair  # an audit does without a build

    audits, _ = partition_audits(plan, request.sources, request.options_for, clean_shutdown=None, tiering=False)
    results = run_audit(backend.engine, plan.scan_tasks(), audits, request.sources, deep=False)
    rows = results.rows(RowKind.FILE, JudgedFile.names(), [Among("verdict", (Verdict.BROKEN.value,))])
    files = files_to_repair(plan, JudgedFile.of_arrow(rows))
    broken = broken_files(files)
    note(f"broken: {counted(sum(map(len, broken.values())), 'index file')} in {counted(len(broken), 'partition')}")
    return broken, say_before_repair(files)
