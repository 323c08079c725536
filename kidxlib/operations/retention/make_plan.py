"""Makes a plan and records it. The outcome has counts by topic, warnings about unexpected decisions, a table on screen
or a JSON object, and the file with which Kafka's own tool deletes records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import PLANNED
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.work import StagedRows, Work
from kidxlib.errors import KidxError, UsageError
from kidxlib.format.topic_partition import INTERNAL_TOPICS, PartitionKey
from kidxlib.operations.backend import Backend
from kidxlib.operations.damage.known_damage import KnownGapsAndLosses
from kidxlib.operations.retention.plan_work import plan_partitions
from kidxlib.operations.retention.retention_request import PlanRequest, RequestConfigs
from kidxlib.operations.retention.segments_to_plan import (
    FACTS_OF_OFFSETS,
    SegmentsToPlan,
    ensure_one_cluster,
    ensure_one_source_each,
    partitions_to_plan,
    topics_that_look_compacted,
    topics_to_plan,
)
from kidxlib.retention.policy import (
    DECIDING_CONFIGS,
    RETENTION_MS_DEFAULT,
    Decision,
    Origin,
    PlanWarning,
    Reason,
    Written,
)
from kidxlib.run.retention_configs import Configs, RetentionConfigs
from kidxlib.run.sources import as_sources, list_sources, source_paths, sources_in_catalog, sources_in_one_directory
from kidxlib.tables.protocol import Tables, counts_of
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.terminal.run_summary import TOPICS_SHOWN
from kidxlib.text.times import NS_PER_MS, YEAR_2000_MS, show_time
from kidxlib.text.words import counted

#: As many rows as a person may want to scroll through.
_SEGMENTS_SHOWN: Final = 10_000
#: So little is planned faster than workers start. For each partition two logs are opened, which takes half a
#: millisecond; segments are decided on by columns, a million in a second.
_FEW_PARTITIONS: Final = 2000
_FEW_SEGMENTS: Final = 1_000_000
_DEFAULT: Final = timedelta(milliseconds=RETENTION_MS_DEFAULT)
#: A row of the JSON object's `segments`.
_JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "policy", "decision", "reason", "bytes", "warnings", "largest_timestamp_ms", "next_offset"),
    *("age_from_mtime", "retention_ms", "retention_bytes", "future_ms", "backwards_ms", "cut_offset", "rolls_first"),
    *("cleanup_policy", "remote_storage", "policy_origins"),
    *("decision_on_disk", "reason_on_disk", "timestamp_on_disk_ms", "due_ms"),
)

_NAMED: Final = (*SEGMENTS.key, "policy")
_ON_DISK: Final = ("decision", "reason", "decision_on_disk", "reason_on_disk", "timestamp_on_disk_ms")

#: So many seconds or more are not shown as days: timestamps of broken clocks reach further than `timedelta`.
_SECONDS_SHOWN: Final = 10**11
#: Units in which producers wrote timestamps in place of ms (KAFKA-6482), and how many of them make one ms.
_OTHER_UNITS: Final = {"µs": 1_000, "ns": 1_000_000}

_TIME_COLUMNS: Final = ("future_ms", "backwards_ms", "largest_timestamp_ms")


def make_plan(backend: Backend, request: PlanRequest) -> Outcome:
    """Decide on the segments that are present, record each decision, and give the outcome."""
    tables = backend.catalog.tables
    known = topics_to_plan(tables)
    sources = sources_in_catalog(request.sources, known)
    own = request.configs_of(set().union(*(known[source] for source in sources)))
    if not own:
        raise UsageError(
            f"{tables.path}: no segment of a topic that matches {request.topics.pattern}; give another --topics"
        )
    _ensure_counted_once(tables, sources)
    plan_id = request.context.run_id()
    begin_phase("planning")
    segments = SegmentsToPlan(tables, tables.version(SEGMENTS), sources, list(own))
    paths = source_paths(tables)
    seen = list_sources([source for source in as_sources(paths) if source.name in sources])
    configured = _configured(request, segments, seen.answering(paths))
    described = [policy.name for policy in request.policies if policy.described]
    configs = configured.complete(own, deletes=not request.options.what_if, described=described)
    staged, compacted = _staged(backend, request, segments, configs, plan_id)
    if request.delete_records_json is not None:
        _ensure_recent(request, staged, own, configs, configured)
    summary = _summary(staged, configs, compacted, what_if=request.options.what_if)
    missing = KnownGapsAndLosses.in_sources(tables, sources, request.topics, configured.known, seen)
    begin_phase("recording in the catalog")
    of_plan = {
        "plan_id": plan_id,
        "planned_at": request.context.now,
        "policy_file": None if request.policy_file is None else str(request.policy_file),
        "what_if": request.options.what_if,
    }
    tables.append(RETENTION_PLANS, _RowsOfPlan(staged, of_plan))
    if request.delete_records_json is not None:
        _write_delete_records(staged, request.delete_records_json)
    doubts = [] if request.options.what_if else configured.doubts(own, described)
    outcome = _outcome(plan_id, request, summary, missing, is_partial=bool(configured.other_log_dirs))
    outcome.values.update(
        **_as_json(plan_id, request, summary),
        cluster_metadata=configured.as_json(own),
        other_log_dirs=list(configured.other_log_dirs),
        doubts=doubts,
        **missing.as_json(),
        segments=lambda: _segments_as_json(staged),
    )
    _tell_plan(outcome, plan_id, summary, what_if=request.options.what_if)
    outcome.line(*configured.lines(own), *doubts, *_lines_of_missing(missing, many_sources=len(sources) > 1))
    if request.shows_segments:
        _tell_segments(outcome, staged)
    outcome.line(f"catalog: {tables.path}, table {RETENTION_PLANS.name}")
    return outcome


def _lines_of_missing(missing: KnownGapsAndLosses, *, many_sources: bool) -> Iterator[str]:
    by_catalog = "What is planned there is by the catalog, of segments that nobody has looked for"
    for source in missing.not_reached:
        yield f"{'broken: ' if source.is_empty else ''}{source} {by_catalog}"
    yield from (f"not planned: {log_dir}" for log_dir in missing.not_built)
    yield from missing.gaps.lines(many_sources=many_sources)
    yield from missing.lost.lines(many_sources=many_sources)


def _ensure_counted_once(tables: Tables, sources: Sequence[str]) -> None:
    for same in sources_in_one_directory(tables, sources):
        raise UsageError(
            f"{tables.path}: {same}: its segments would be planned twice; choose one of them with --source, or "
            "take one out with kidx forget-source"
        )


def _configured(request: PlanRequest, segments: SegmentsToPlan, paths: Mapping[str, str]) -> RetentionConfigs:
    """The configurations of topics in the metadata of the sources' clusters."""
    configured = RetentionConfigs.from_metadata(
        request.metadata,
        paths,
        segments.sources,
        lambda: segments.read_columns(["topic_id"]),
        deletes=request.delete_records_json is not None,
        same_broker=request.same_broker,
    )
    warn_of_first(configured.known.warnings)
    return configured


def _ensure_recent(
    request: PlanRequest, staged: StagedRows, own: Configs, configs: Configs, configured: RetentionConfigs
) -> None:
    """Refuse a configuration that is much older than a partition's last record: Kafka's tool deletes by the file at
    once.
    """
    is_listing = any(policy.described for policy in request.policies)
    current = RequestConfigs(
        configured=configured,
        completed=[topic for topic in own if own[topic] != configs[topic]],
        listing=request.policy_file if is_listing else None,
    )
    current.ensure_recent(_partitions_to_delete_from(staged), request.max_metadata_lag)


def _staged(
    backend: Backend, request: PlanRequest, segments: SegmentsToPlan, configs: Configs, plan_id: str
) -> tuple[StagedRows, Mapping[str, str]]:
    """Stage rows of `PLANNED` for all segments or for none; also give the topics that look compacted, and why each."""
    rows = segments.read_columns(FACTS_OF_OFFSETS)
    if request.delete_records_json is not None:
        ensure_one_source_each(rows)
    if request.policy_file is not None and any(policy.described for policy in request.policies):
        ensure_one_cluster(segments.read_columns(["topic_id"]), request.policy_file)
    engine = backend.engine
    compacted = topics_that_look_compacted(rows, what_if=request.options.what_if)
    partitions = counts_of(rows, PARTITIONS.key)
    # Executors may reach files that the driver does not, and a time index is opened for each segment.
    is_little = engine.is_on_this_machine and not request.options.from_files
    work = Work(
        f"plan-{plan_id}",
        [[share] for share in partitions_to_plan(segments, partitions, engine, configs, compacted)],
        partial(plan_partitions, options=request.options),
        PLANNED,
        is_small=is_little and partitions.num_rows <= _FEW_PARTITIONS and rows.num_rows <= _FEW_SEGMENTS,
    )
    if not work.is_small:
        engine.start()
        begin_phase("planning")
    with engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()
    return staged, compacted


@dataclass(frozen=True, slots=True)
class _RowsOfPlan:
    """Gives Arrow the rows of a plan to record, batch by batch: a large plan does not fit into memory.

    Attributes:
        staged: rows of `PLANNED`.
        of_plan: the columns that are the same in all rows.
    """

    staged: StagedRows
    of_plan: Mapping[str, Any]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader: Any = pa.RecordBatchReader.from_batches(RETENTION_PLANS.schema(), self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = RETENTION_PLANS.schema()
        alike: dict[str, Any] = {
            name: pa.scalar(value, schema.field(name).type) for name, value in self.of_plan.items()
        }
        for batch in self.staged.batches("segment"):
            columns = [
                pa.repeat(alike[name], batch.num_rows) if name in alike else batch[name] for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_json(plan_id: str, request: PlanRequest, summary: _RetentionReport) -> dict[str, Any]:
    return {
        "plan_id": plan_id,
        "planned_at": request.context.now.isoformat(),
        "what_if": request.options.what_if,
        "policies": [policy.name for policy in request.policies],
        "topics": [asdict(topic) for topic in summary.topics],
        "unknown_policies": summary.unknown,
        "assumed_defaults": summary.assumed,
        "compacted_topics": list(summary.compacted),
        "warnings": [finding.as_json() for finding in summary.findings],
        "not_well_count": summary.problems[0],
        "not_well": summary.problems[1],
        "disagreement_count": summary.disagreements[0],
        "disagreements": summary.disagreements[1],
    }


def _outcome(
    plan_id: str, request: PlanRequest, summary: _RetentionReport, missing: KnownGapsAndLosses, *, is_partial: bool
) -> Outcome:
    """The outcome of a plan. `is_partial`: a broker has a log dir that is no source, so that nothing is planned there.
    That is a hint only, unless something deletes by this plan, as --apply does, and Kafka's tool from the file. The
    file names the right offsets all the same.
    """
    problems, disagreements = summary.problems[0], summary.disagreements[0]
    has_problems = problems or disagreements or missing.is_loss or (is_partial and request.delete_records_json)
    not_answered = request.names_topics and summary.unknown
    return Outcome(
        code=ExitCode.PROBLEMS_FOUND if has_problems or not_answered else ExitCode.OK,
        run_id=plan_id,
        counts={
            "segments": sum(topic.segments for topic in summary.topics),
            "deleted": sum(topic.deleted for topic in summary.topics),
            "undecided": sum(topic.undecided for topic in summary.topics),
            "not_well": problems,
            "disagreements": disagreements,
            **missing.counts,
        },
        bytes=sum(topic.freed for topic in summary.topics),
    )


@dataclass(frozen=True, slots=True)
class RetentionFinding:
    """A warning about segments under one policy: a decision that a person would not expect.

    Attributes:
        first: the name of the first segment.
        most_ms: the most that a timestamp lies in the future, or goes back; in ms.
        largest_ms: the largest timestamp of all these segments, in ms since the epoch; None if a segment has none.
        why: the first place where a topic looks compacted; empty for other warnings.
    """

    policy: str
    warning: PlanWarning
    segments: int
    partitions: int
    first: str
    most_ms: int
    largest_ms: int | None = None
    why: str = ""

    @property
    def _other_unit(self) -> str:
        """The unit other than ms in which a timestamp of the future would lie in the past; empty if there is none."""
        if self.largest_ms is None:
            return ""
        now_ms = self.largest_ms - self.most_ms
        for unit, divisor in _OTHER_UNITS.items():
            if YEAR_2000_MS <= (as_unit := self.largest_ms // divisor) <= now_ms:
                return f"; in {unit} the largest would be {show_time(as_unit)}"
        return ""

    @property
    def sentence(self) -> str:
        seconds = self.most_ms // 1000
        far = timedelta(seconds=seconds) if 0 < seconds < _SECONDS_SHOWN else f"{self.most_ms} ms"
        segments, partitions = counted(self.segments, "segment"), counted(self.partitions, "partition")
        indexes = counted(self.segments, "time index", "time indexes")
        return {
            PlanWarning.WHOLE_PARTITION: f"{partitions} would lose all segments; a broker then starts an empty one, "
            "--apply keeps the last",
            PlanWarning.LOOKS_COMPACTED: f"{segments} would go though their topic looks compacted, as {self.why}; "
            "cleanup.policy was said to be delete",
            PlanWarning.FUTURE_TIMESTAMP: f"{segments} with timestamps in the future, by up to {far}; time alone keeps "
            f"such a segment until long after that{self._other_unit}",
            PlanWarning.TIMESTAMPS_IN_SECONDS: f"{segments} would go for timestamps of 1970; in seconds the largest "
            f"would be {show_time((self.largest_ms or 0) * 1000)}, and a broker that takes them for ms deletes at once",
            PlanWarning.TIMESTAMPS_BACKWARDS: f"{segments} old enough, kept after one that is not; timestamps run "
            f"backwards, by up to {far}",
            PlanWarning.ONLY_REPLICA: f"{segments} would go that reach above the high watermark of the checkpoint: the "
            "cluster's metadata has no other replica and no broker runs on the log dir, so that a broker that starts "
            "goes by the end of the log; --apply leaves them to it",
            PlanWarning.LATE_HIGH_WATERMARK: f"{segments} would go that reach above the high watermark of the "
            "checkpoint, and stay; a broker that learns a later one from the other replicas deletes them",
            PlanWarning.TIME_INDEX_PADDED: f"{indexes} padded with zeros; a broker takes such a segment for one of "
            "1970 and deletes it by time at once",
            PlanWarning.TIME_INDEX_INCOMPLETE: f"{indexes} without the largest timestamp of the segment; a broker "
            "deletes such a segment too early",
        }[self.warning] + f" (the first: {self.first})"

    def as_json(self) -> dict[str, Any]:
        names = (*(name for name in self.__dataclass_fields__ if name != "why"), "sentence")
        # The JSON key is older than the field's name.
        return {"surprise" if name == "warning" else name: getattr(self, name) for name in names}


def _segment_name(source: str, topic: str, partition: int, base_offset: int) -> str:
    return f"{source}: {topic}-{partition}/{base_offset}"


def _findings_of(staged: StagedRows, looks_compacted: Mapping[str, str]) -> list[RetentionFinding]:
    """The warnings of a plan (rows of `PLANNED`), by policy. `looks_compacted` is of `topics_that_look_compacted`."""
    by = ["policy", "warning"]
    rows = _exploded(staged.rows("segment", [*SEGMENTS.key, "policy", "warnings", *_TIME_COLUMNS]))
    counts = rows.group_by(by).aggregate([([], "count_all"), ("most_ms", "max"), ("largest_timestamp_ms", "max")])
    partitions = rows.group_by([*by, *PARTITIONS.key]).aggregate([]).group_by(by).aggregate([([], "count_all")])
    partitions_of = {(row["policy"], row["warning"]): row["count_all"] for row in partitions.to_pylist()}
    findings = []
    for row in counts.to_pylist():
        first = _first_segment(rows, row["policy"], row["warning"])
        findings.append(
            RetentionFinding(
                policy=row["policy"],
                warning=PlanWarning(row["warning"]),
                segments=row["count_all"],
                partitions=partitions_of[row["policy"], row["warning"]],
                first=_segment_name(*(first[name] for name in SEGMENTS.key)),
                most_ms=row["most_ms_max"],
                largest_ms=row["largest_timestamp_ms_max"],
                why=looks_compacted.get(first["topic"], ""),
            )
        )
    return sorted(findings, key=lambda finding: (finding.policy, finding.warning))


def _exploded(rows: pa.Table) -> pa.Table:
    """One row for each warning of a segment. `most_ms`: by how many ms a timestamp is in the future or goes back."""
    warnings: Values = rows["warnings"].combine_chunks()
    parents: Values = pc.list_parent_indices(warnings)
    rows = rows.drop_columns(["warnings"]).take(parents)
    words: Values = pc.list_flatten(warnings)
    is_future: Values = pc.equal(words, pa.scalar(PlanWarning.FUTURE_TIMESTAMP.value))
    most: Values = pc.if_else(is_future, rows["future_ms"], rows["backwards_ms"])
    return rows.append_column("warning", words).append_column("most_ms", most)


def _first_segment(rows: pa.Table, policy: str, warning: str) -> dict[str, Any]:
    """The first segment, in the order of names, that has a warning."""
    rows = rows.filter((pc.field("policy") == policy) & (pc.field("warning") == warning))
    for name in SEGMENTS.key:
        rows = rows.filter(pc.field(name) == pc.min(rows[name]))
    row: dict[str, Any] = rows.slice(0, 1).to_pylist()[0]
    return row


@dataclass(frozen=True, slots=True)
class _TopicSummary:
    """One topic under one policy.

    Attributes:
        deleted, freed: how many segments go, and their bytes.
        undecided: how many segments are not decided on, because not all of the topic's policy is known.
        oldest_ms: the timestamp of the first record that stays, the smallest of the topic's partitions; None if the
            logs cannot be read here or hold no record.
    """

    policy: str
    topic: str
    segments: int
    bytes: int
    deleted: int
    freed: int
    undecided: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class _RetentionReport:
    """The summary of a plan.

    Attributes:
        compacted: topics that are kept because they look compacted, each with the first place that shows it.
        unknown: topics that are not decided on, each with the settings that are not known, by Kafka's names.
        assumed: topics of a what-if, each with the settings for which Kafka's defaults were taken.
        problems: how many segments were kept because not all is known of them, and the names of a few.
        disagreements: on how many segments the catalog and the time index lead to different decisions, and a few of
            them.
    """

    topics: list[_TopicSummary]
    findings: list[RetentionFinding]
    compacted: Mapping[str, str]
    unknown: dict[str, list[str]]
    assumed: dict[str, list[str]]
    problems: tuple[int, list[str]]
    disagreements: tuple[int, list[str]]


def _summary(
    staged: StagedRows, configs: Configs, looks_compacted: Mapping[str, str], *, what_if: bool
) -> _RetentionReport:
    """Sum up a plan (rows of `PLANNED`) that was made by these configurations. In a what-if, Kafka's defaults stand for
    settings that are not known. `looks_compacted` is of `topics_that_look_compacted`.
    """
    names = ["policy", "topic", "decision", "reason", "decision_on_disk"]
    rows = staged.rows("segment", [*names, "bytes", "first_timestamp_ms"])
    summed = rows.group_by(names).aggregate([([], "count_all"), ("bytes", "sum"), ("first_timestamp_ms", "min")])
    topics: dict[tuple[str, str], _TopicSummary] = {}
    compacted = set()
    for row in summed.to_pylist():
        key = row["policy"], row["topic"]
        topics[key] = _added(topics.get(key, _TopicSummary(*key, 0, 0, 0, 0, 0, None)), row)
        if row["reason"] == Reason.LOOKS_COMPACTED.value:
            compacted.add(row["topic"])
    return _RetentionReport(
        topics=sorted(topics.values(), key=lambda topic: (topic.policy, -topic.freed, topic.topic)),
        findings=_findings_of(staged, looks_compacted),
        compacted={topic: looks_compacted[topic] for topic in sorted(compacted)},
        unknown={topic.topic: _unknown(configs, topic) for topic in topics.values() if topic.undecided},
        assumed=_assumed_by_topic(configs) if what_if else {},
        problems=_undecided_segments(staged, summed),
        disagreements=_differing_decisions(staged, summed),
    )


def _added(topic: _TopicSummary, row: Mapping[str, Any]) -> _TopicSummary:
    """Add the segments of a row, which all have the same reason, to a topic's summary."""
    count, size = row["count_all"], row["bytes_sum"] or 0
    goes = row["decision"] == Decision.DELETE.value
    oldest = [time_ms for time_ms in (topic.oldest_ms, row["first_timestamp_ms_min"]) if time_ms is not None]
    return _TopicSummary(
        policy=topic.policy,
        topic=topic.topic,
        segments=topic.segments + count,
        bytes=topic.bytes + size,
        deleted=topic.deleted + goes * count,
        freed=topic.freed + goes * size,
        undecided=topic.undecided + (row["decision"] == Decision.UNDECIDED.value) * count,
        oldest_ms=min(oldest, default=None),
    )


def _unknown(configs: Configs, topic: _TopicSummary) -> list[str]:
    origins = configs[topic.topic][topic.policy].origins
    return [name for name in DECIDING_CONFIGS if origins[name] is Origin.KAFKA]


def _assumed_by_topic(configs: Configs) -> dict[str, list[str]]:
    """The assumed settings of each topic. Internal topics are left out: brokers make them with these very settings."""
    assumed: dict[str, list[str]] = {}
    for topic, by_policy in configs.items():
        names = {name for config in by_policy.values() for name in config.unknown}
        if names and topic not in INTERNAL_TOPICS:
            assumed[topic] = [name for name in DECIDING_CONFIGS if name in names]
    return assumed


def _undecided_segments(staged: StagedRows, summed: pa.Table) -> tuple[int, list[str]]:
    """How many segments are kept as not all of them is known; and a line on each of the first."""
    is_problem = pc.field("reason") == Reason.NOT_WELL.value
    if not summed.filter(is_problem).num_rows:
        return 0, []
    rows = staged.rows("segment", [*_NAMED, "reason"]).filter(is_problem)
    what = "kept, as not all of it is known; run build_index, or look into the catalog"
    return rows.num_rows, [f"{_named(row)}: {what}" for row in _first_rows(rows)]


def _differing_decisions(staged: StagedRows, summed: pa.Table) -> tuple[int, list[str]]:
    """How many segments their time indexes decide otherwise than the catalog; and a line on each of the first."""
    differ = pc.field("decision") != pc.field("decision_on_disk")
    if not summed.filter(differ).num_rows:
        return 0, []
    rows = staged.rows("segment", [*_NAMED, *_ON_DISK]).filter(differ)
    return rows.num_rows, [
        f"{_named(row)}: by the catalog {row['decision']} ({row['reason']}), by its time index "
        f"{row['decision_on_disk']} ({row['reason_on_disk']}): that says {row['timestamp_on_disk_ms']}"
        for row in _first_rows(rows)
    ]


def _named(row: Mapping[str, Any]) -> str:
    return f"{_segment_name(*(row[name] for name in SEGMENTS.key))}: policy {row['policy']}"


def _first_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.sort_by([(name, "ascending") for name in _NAMED]).slice(0, LINES_SHOWN).to_pylist()


def _tell_plan(outcome: Outcome, plan_id: str, summary: _RetentionReport, *, what_if: bool) -> None:
    shown = summary.topics[:TOPICS_SHOWN]
    outcome.table(
        f"plan {plan_id}",
        ("policy", "topic", "oldest record left", "segments", "bytes", "delete", "bytes freed", "left", "bytes left"),
        [
            (
                topic.policy,
                topic.topic,
                "-" if topic.oldest_ms is None else show_time(topic.oldest_ms),
                topic.segments,
                topic.bytes,
                topic.deleted,
                topic.freed,
                topic.segments - topic.deleted,
                topic.bytes - topic.freed,
            )
            for topic in shown
        ],
        text_columns=3,
    )
    outcome.add_more_line(len(summary.topics) - len(shown), " topics")
    if what_if:
        outcome.line("what if: this plan says what would be; --apply refuses it")
    if summary.unknown:
        outcome.line(_not_decided_line(summary))
    if summary.assumed:
        outcome.line(_assumed_line(summary.assumed))
    if summary.compacted:
        outcome.line(_compacted_line(summary.compacted))
    for finding in summary.findings:
        outcome.line(f"warning: policy {finding.policy}: {finding.sentence}")
    for what, (count, lines) in (("disagreement", summary.disagreements), ("problem", summary.problems)):
        outcome.line(*(f"{what}: {line}" for line in lines))
        outcome.add_more_line(count - len(lines))
    for policy in sorted({topic.policy for topic in summary.topics}):
        outcome.line(_policy_line(policy, [topic for topic in summary.topics if topic.policy == policy]))


def _policy_line(policy: str, topics: Sequence[_TopicSummary]) -> str:
    undecided = sum(topic.undecided for topic in topics)
    decided = sum(topic.segments for topic in topics) - undecided
    if undecided and not decided:
        return f"policy {policy}: none of {counted(undecided, 'segment')} was decided on"
    freed, of_all = (decimal(sum(getattr(topic, name) for topic in topics)) for name in ("freed", "bytes"))
    if not undecided:
        deleted = sum(topic.deleted for topic in topics)
        return f"policy {policy}: {deleted:,} of {counted(decided, 'segment')} go, {freed} of {of_all}"
    return (
        f"policy {policy}: {sum(topic.deleted for topic in topics):,} of {counted(decided, 'decided segment')} go, "
        f"{freed}; not decided: {counted(undecided, 'segment')} of "
        f"{counted(sum(topic.undecided > 0 for topic in topics), 'topic')}"
    )


def _not_decided_line(summary: _RetentionReport) -> str:
    topics = sorted(summary.unknown)
    missing = [name for name in DECIDING_CONFIGS if any(name in names for names in summary.unknown.values())]
    segments = sum(topic.undecided for topic in summary.topics)
    return (
        f"not decided: {counted(segments, 'segment')} of {counted(len(topics), 'topic')} (the first: {topics[0]}): "
        f"no known {', '.join(missing)}; give --policy FILE with what kafka-configs --describe "
        "--all --entity-type topics prints, or --cluster-metadata and --server-properties, or ask --what-if"
    )


def _assumed_line(topics: Mapping[str, Sequence[str]]) -> str:
    called = {"retention.ms": f"retention.ms ({_DEFAULT.days} days)"}
    missing = [name for name in DECIDING_CONFIGS if any(name in names for names in topics.values())]
    return (
        f"Kafka's defaults, not the topics' own: {', '.join(called.get(name, name) for name in missing)} of "
        f"{counted(len(topics), 'topic')} (the first: {min(topics)}); give --policy, or --cluster-metadata and "
        "--server-properties"
    )


def _compacted_line(topics: Mapping[str, str]) -> str:
    first = min(topics)
    return (
        f"look compacted: {counted(len(topics), 'topic')} (the first: {first}, as {topics[first]}); none of their "
        "segments goes unless a policy says cleanup.policy of that very topic"
    )


def _segments_as_json(staged: StagedRows) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _in_order(staged, _JSON_COLUMNS).to_pylist(maps_as_pydicts="strict")
    return rows


def _tell_segments(outcome: Outcome, staged: StagedRows) -> None:
    rows = _in_order(staged, ["policy", *SEGMENTS.key, "decision", "reason", "due_ms", "bytes"])
    shown = rows.slice(0, _SEGMENTS_SHOWN).to_pylist()
    outcome.table(
        "segments",
        ("policy", "source", "topic", "decision", "reason", "goes", "partition", "base offset", "bytes"),
        [
            (
                *(row[name] for name in ("policy", "source", "topic", "decision", "reason")),
                _goes(row),
                *(row[name] if row[name] is not None else "-" for name in ("partition", "base_offset", "bytes")),
            )
            for row in shown
        ],
        text_columns=6,
    )
    outcome.add_more_line(rows.num_rows - len(shown), " segments: --json has all of them")


def _in_order(staged: StagedRows, names: Sequence[str]) -> pa.Table:
    rows = staged.rows("segment", names).select(names)
    return rows.sort_by([(name, "ascending") for name in ("policy", *SEGMENTS.key)])


def _goes(row: Mapping[str, Any]) -> str:
    if row["decision"] == Decision.DELETE.value:
        return "now"
    return "-" if row["due_ms"] is None else show_time(row["due_ms"])


def _partitions_to_delete_from(staged: StagedRows) -> dict[PartitionKey, Written]:
    """The partitions that a file for `kafka-delete-records` names, and when each was last written."""
    names = ["decision", "largest_timestamp_ms", "age_from_mtime", "log_mtime_ns"]
    rows = staged.rows("segment", [*PARTITIONS.key, *names])
    goes: Values = pc.equal(rows["decision"], pa.scalar(Decision.DELETE.value))
    last: Values = pc.if_else(rows["age_from_mtime"], pa.scalar(-1, pa.int64()), rows["largest_timestamp_ms"])
    rows = rows.append_column("goes", goes).append_column("last", last)
    by_partition = rows.group_by(list(PARTITIONS.key)).aggregate(
        [("goes", "any"), ("last", "max"), ("log_mtime_ns", "max")]
    )
    written = {}
    for row in by_partition.filter(by_partition["goes_any"]).to_pylist():
        written_ms = (row["log_mtime_ns_max"] or 0) // NS_PER_MS
        last_ms = row["last_max"] if row["last_max"] >= 0 else written_ms
        written[row["source"], row["topic"], row["partition"]] = Written(written_ms, last_ms)
    return written


def _write_delete_records(staged: StagedRows, path: Path) -> None:
    """Write the file for `kafka-delete-records --offset-json-file`: it deletes each partition before an offset."""
    key = ["topic", "partition"]
    rows = staged.rows("segment", [*key, "decision", "next_offset"])
    rows = rows.filter(pc.field("decision") == Decision.DELETE.value)
    offsets = rows.group_by(key).aggregate([("next_offset", "max")]).sort_by([(name, "ascending") for name in key])
    partitions = offsets.rename_columns([*key, "offset"]).to_pylist()
    try:
        path.write_text(json.dumps({"partitions": partitions, "version": 1}, indent=2) + "\n")
    except OSError as error:
        raise KidxError(
            f"--delete-records-json {path}: cannot be written: {error.strerror}; the plan is recorded"
        ) from error
