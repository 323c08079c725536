"""Compaction of index files as a run: what is asked, the catalog's rows shared with workers, what changes or would
change, summed up by topic, and what is shown. Changes are made under the log dirs' locks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import PRESENT, Among, rows_where
from kidxlib.catalog.matching import Flags, Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import COMPACTED
from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.catalog.segments import SEGMENTS, IndexFacts, LogVersion
from kidxlib.compaction.orphans import Delays
from kidxlib.compaction.policy import CompactionPolicy, Expiry, Rule
from kidxlib.compaction.policy_file import read_compaction_policy
from kidxlib.compaction.task import NOT_OURS, ChangeAction, ChangeOutcome, CompactionOptions, Mode
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.errors import UsageError
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.operations.catalog import pieces
from kidxlib.operations.compaction.compact_work import PartitionsToCompact, compact_partitions
from kidxlib.operations.maintenance.maintain import ALL, MaintainedTable, maintain_tables
from kidxlib.operations.maintenance.report import print_tables, tables_as_json
from kidxlib.operations.maintenance.tidy_tables import ensure_vacuum_spares_runs
from kidxlib.run.context import RunContext
from kidxlib.run.options import DELETE_DELAY, parse_option
from kidxlib.run.recorded_sources import source_paths
from kidxlib.run.result import RunResult
from kidxlib.run.settings import read_settings
from kidxlib.run.sources import sources_in_catalog
from kidxlib.storage.lock import locked
from kidxlib.storage.store.s3 import SCHEME
from kidxlib.tables.protocol import MaintenanceOf, Tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.build import PROBLEMS_SHOWN, TOPICS_SHOWN
from kidxlib.terminal.console import print_json, print_line, print_more
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options.sources import parse_topics
from kidxlib.terminal.progress import begin_phase
from kidxlib.terminal.tables import print_table
from kidxlib.text.times import parse_duration, to_ms
from kidxlib.text.words import counted

_INTERRUPTED = "what is recorded stays, the rest is not done; run the same command again"

_OF_INDEXES: Final = Among("action", (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value))
_IN_PLACE: Final = Among("outcome", (ChangeOutcome.WRITTEN.value, ChangeOutcome.UNCHANGED.value))

_NAMES: Final = tuple(dict.fromkeys([*SEGMENTS.key, *SegmentToCompact.names()]))

#: A row of the JSON object's `changes`.
JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after", "interval_before"),
    *("interval_bytes", "mean_scan_bytes_before", "max_scan_bytes_before"),
    *("mean_scan_bytes_after", "max_scan_bytes_after"),
)

#: On screen. What a lookup scans is given in bytes of log.
_TOPIC_COLUMNS: Final = (
    *("topic", "action", "changes", "bytes before", "bytes after"),
    *("mean scan before", "mean scan after", "longest scan before", "longest scan after"),
)

_KEPT: Final = Among("outcome", (ChangeOutcome.KEPT.value,))
_CHANGED: Final = Among("outcome", (ChangeOutcome.KEPT.value, ChangeOutcome.UNCHANGED.value), negated=True)
_MEANS: Final = ("mean_scan_bytes_before", "mean_scan_bytes_after")
_MOST: Final = ("max_scan_bytes_before", "max_scan_bytes_after")
_KINDS: Final = ["topic", "action"]
#: What the line of a file says.
_LINE: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after"),
    *("interval_before", "interval_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactIndexOptions:
    """The options as they were given; None, empty or False where they were not."""

    catalog: str | None
    database: str | None
    sources: tuple[str, ...]
    topics: str | None
    policy: Path | None
    interval_bytes: int | None
    older_than: str | None
    trim: bool
    orphans: bool
    delete_delay: str | None
    tables: bool
    apply: bool
    settings_file: Path
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What to do.

    Attributes:
        sources: by name; empty for all.
        files: None where index files are left alone.
        tables: which rows of tables are to go; None where tables are left alone.
        apply: do it, and not only say what would be done.
    """

    context: RunContext
    sources: tuple[str, ...]
    topics: re.Pattern[str]
    files: CompactionOptions | None
    tables: Expiry | None
    apply: bool


def compaction_request(options: CompactIndexOptions) -> CompactionRequest:
    """Put options, settings and the policy together."""
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, options.now)
    policy = _policy(options)
    longest_run = timedelta(hours=settings.build.longest_run_hours)
    on_files = bool(policy.rules) or options.trim or options.orphans
    if not on_files and not options.tables:
        raise UsageError(
            "nothing to do; give --trim, --orphans, --tables, --interval-bytes, or a --policy with a [[rule]]"
        )
    if options.tables:
        ensure_vacuum_spares_runs("--tables", settings)
    files = CompactionOptions(
        policy=policy,
        trim=options.trim,
        orphans=options.orphans,
        now_ms=to_ms(context.now),
        clock_ms=to_ms(datetime.now(UTC)),
        delays=Delays(
            staged=_ns(longest_run),
            deleted=_ns(parse_option("--delete-delay", parse_duration, options.delete_delay or DELETE_DELAY)),
        ),
    )
    return CompactionRequest(
        context=context.with_catalog(),
        sources=options.sources,
        topics=parse_topics(options.topics or ".*"),
        files=files if on_files else None,
        tables=policy.expiry if options.tables else None,
        apply=options.apply,
    )


def _policy(options: CompactIndexOptions) -> CompactionPolicy:
    for wrong, message in (
        (
            options.policy is not None and options.interval_bytes is not None,
            "--policy and --interval-bytes: put the interval into the file, as a [[rule]]",
        ),
        (
            options.older_than is not None and options.interval_bytes is None,
            "--older-than: give --interval-bytes too, the interval that older segments get",
        ),
        (options.delete_delay is not None and not options.orphans, "--delete-delay: only --orphans uses it"),
    ):
        if wrong:
            raise UsageError(message)
    if options.policy is not None:
        return read_compaction_policy(options.policy)
    if options.interval_bytes is None:
        return CompactionPolicy()
    older_than = (
        timedelta(0)
        if options.older_than in (None, "0")
        else parse_option("--older-than", parse_duration, str(options.older_than))
    )
    return CompactionPolicy((Rule(older_than=older_than, interval_bytes=options.interval_bytes),))


def _ns(time: timedelta) -> int:
    return time // timedelta(microseconds=1) * 1000


def partitions_to_compact(tables: Tables, engine: Engine, request: CompactionRequest) -> Iterator[PartitionsToCompact]:
    """The partitions that are asked for, segments that are gone among them, in shares of about as many segments.

    Args:
        engine: shares the rows.
    """
    known = tables.read(SEGMENTS, PARTITIONS.key)
    topics: dict[str, set[str]] = {}
    for row in known.group_by(["source", "topic"]).aggregate([]).to_pylist():
        topics.setdefault(row["source"], set()).add(row["topic"])
    sources = sources_in_catalog(request.sources, topics)
    asked = {topic for source in sources for topic in topics[source] if request.topics.fullmatch(topic)}
    if not asked:
        raise UsageError(
            f"{tables.path}: no segment of a topic that matches {request.topics.pattern}; give another --topics"
        )
    of_sources = Among("source", sources)
    wanted = rows_where(known, [of_sources, Among("topic", asked)])
    shares = engine.cores * BINS_PER_CORE
    for piece in pieces(wanted):
        rows = tables.read(SEGMENTS, _NAMES, [of_sources, *piece])
        if request.files is not None and (request.files.trim or request.files.orphans):
            _ensure_no_objects(rows)
        rows = rows.sort_by([(name, "ascending") for name in SEGMENTS.key])
        for share in _cut(rows, max(1, shares * rows.num_rows // wanted.num_rows)):
            log_bytes = pc.sum(rows_where(share, [PRESENT])["log_bytes"]).as_py()
            yield PartitionsToCompact(engine.share(share), int(log_bytes or 0))


def _cut(rows: pa.Table, shares: int) -> Iterator[pa.Table]:
    """About as many rows each, cut between partitions.

    Args:
        rows: in the order of their keys.
    """
    if not rows.num_rows:
        return
    begins: Flags = np.ones(rows.num_rows, np.bool_)
    begins[1:] = False
    for name in PARTITIONS.key:
        column = rows[name]
        differs: Values = pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1))
        begins[1:] |= differs.to_numpy()
    partitions = np.append(np.flatnonzero(begins), rows.num_rows)
    wanted = np.arange(shares + 1) * rows.num_rows // shares
    cuts = np.unique(partitions[np.searchsorted(partitions, wanted)]).tolist()
    for start, end in pairwise(cuts):
        yield rows.slice(start, end - start)


def _ensure_no_objects(rows: pa.Table) -> None:
    """Before files are trimmed or removed."""
    in_store: Values = pc.or_(pc.starts_with(rows["log_path"], SCHEME), pc.starts_with(rows["index_directory"], SCHEME))
    for row in rows.select(["source", "log_path", "index_directory"]).filter(in_store).slice(0, 1).to_pylist():
        raise UsageError(
            f"source {row['source']}: {row['log_path']}, with its index files in {row['index_directory']}: --trim and "
            "--orphans change nothing in an object store; name the others with --source, or leave both out"
        )


def compact_files(
    backend: Backend, request: CompactionRequest, options: CompactionOptions, stack: contextlib.ExitStack
) -> Staged:
    """What changes, as rows of `COMPACTED`; with `--apply` it is done, and recorded.

    Args:
        stack: gets the locks of the log dirs that are written to, to release them.
    """
    begin_phase("looking at index files")
    engine, tables = backend.engine, backend.catalog.tables
    shares = list(partitions_to_compact(tables, engine, request))
    sources = source_paths(tables)
    engine.start()
    if not request.apply:
        return engine.run(_work(shares, sources, options, Mode.PLAN))
    log_dirs = _lock(engine.run(_work(shares, sources, options, Mode.LOOK)), engine, stack)
    begin_phase("writing index files")
    with engine.stopping():
        changes = engine.run(_work(shares, sources, replace(options, locked=log_dirs), Mode.APPLY))
        begin_phase("recording in the catalog")
        _record(tables, changes)
    return changes


def _work(
    shares: Sequence[PartitionsToCompact], sources: Mapping[str, str], options: CompactionOptions, mode: Mode
) -> Work[PartitionsToCompact]:
    return Work(
        f"compact-{mode.name.lower()}",
        [[share] for share in shares],
        partial(compact_partitions, sources=sources, options=options, mode=mode),
        COMPACTED,
        bytes=sum(share.log_bytes for share in shares),
    )


def _record(tables: Tables, changes: Staged) -> None:
    """Write into `segments` which indexes were replaced, so many at a time that their rows have room in memory."""
    names = [*SEGMENTS.key, "action", "outcome", *IndexFacts.names(), *LogVersion.names()]
    rows = rows_where(changes.rows("compacted", names), [_OF_INDEXES, _IN_PLACE])
    for piece in pieces(rows.select(["topic", "partition"])):
        tables.change(SEGMENTS, {"compacted": rows_where(rows, piece)}, updates.coarsened, by=SEGMENTS.key)


def _lock(changes: Staged, engine: Engine, stack: contextlib.ExitStack) -> frozenset[str]:
    """Hold the log dirs in which something would be written, and name them."""
    rows = changes.rows("compacted", ["outcome", "log_dir"])
    rows = rows_where(rows, [Among("outcome", (ChangeOutcome.KEPT.value,), negated=True)])
    log_dirs = sorted(str(log_dir) for log_dir in pc.unique(rows["log_dir"].drop_null()).to_pylist())
    if log_dirs and not engine.is_on_this_machine:
        raise UsageError(
            f"--apply: files in {log_dirs[0]} are to change; only with a local master, so that the log dir's lock "
            "covers every writer; give -- --master 'local[*]', or use kidx"
        )
    for log_dir in log_dirs:
        stack.enter_context(locked(Path(log_dir)))
    return frozenset(log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSavings:
    """What one action does to the files of one topic; files that stay are not counted.

    Attributes:
        changes: files, or pairs of indexes.
        mean_scan_bytes_before, mean_scan_bytes_after: bytes of log that a lookup walks through, on average.
        max_scan_bytes_before, max_scan_bytes_after: at most.
    """

    topic: str
    action: str
    changes: int
    bytes_before: int
    bytes_after: int
    mean_scan_bytes_before: int | None
    max_scan_bytes_before: int | None
    mean_scan_bytes_after: int | None
    max_scan_bytes_after: int | None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What it comes to.

    Attributes:
        changed: some of the files that change, as lines, and how many there are.
        unchanged: how many pairs of indexes have the same bytes at the interval that they are to have.
        kept: some of the files that stay though they were to change, as lines, and how many there are.
        problems: how many of these a person should look into.
    """

    topics: list[TopicSavings]
    changed: tuple[int, list[str]]
    unchanged: int
    kept: tuple[int, list[str]]
    problems: int


def report(changes: Staged) -> CompactionReport:
    """Sum changes up.

    Args:
        changes: rows of `COMPACTED`.
    """
    rows = changes.rows("compacted", _LINE)
    changed, kept = rows_where(rows, [_CHANGED]), rows_where(rows, [_KEPT])
    of_others = rows_where(kept, [Among("reason", (NOT_OURS,))]).num_rows
    return CompactionReport(
        topics=_savings(changes),
        changed=(changed.num_rows, _lines(changed)),
        unchanged=rows.num_rows - changed.num_rows - kept.num_rows,
        kept=(kept.num_rows, _lines(kept)),
        problems=kept.num_rows - of_others,
    )


def in_order(changes: pa.Table, first: int | None = None) -> pa.Table:
    """Changes as they are listed: by partition, files that are of no segment before those of segments.

    Args:
        first: how many of these; None for all.
    """
    names = (*SEGMENTS.key, "action", "path")
    order: Any = [(name, "ascending", "at_start") for name in names]
    at: Values = pc.sort_indices(changes, sort_keys=order)
    return changes.take(at if first is None else at.slice(0, first))


def _savings(changes: Staged) -> list[TopicSavings]:
    names = [*_KINDS, "outcome", "bytes_before", "bytes_after", "log_bytes", *_MEANS, *_MOST]
    rows = rows_where(changes.rows("compacted", names), [_CHANGED])
    # An average over logs goes by their bytes; products of two sizes have no room in 64 bits.
    weight: Values = pc.coalesce(rows["log_bytes"].cast(pa.float64()), pa.scalar(0.0))
    for name in _MEANS:
        weighted: Values = pc.multiply(rows[name].cast(pa.float64()), weight)
        counted: Values = pc.if_else(rows[name].is_valid(), weight, pa.scalar(0.0))
        rows = rows.append_column(f"{name}_weighted", weighted).append_column(f"{name}_weight", counted)
    sums = ["bytes_before", "bytes_after", *(f"{name}_{of}" for name in _MEANS for of in ("weighted", "weight"))]
    summed = rows.group_by(_KINDS).aggregate(
        [([], "count_all"), *((name, "sum") for name in sums), *((name, "max") for name in _MOST)]
    )
    return [
        TopicSavings(
            topic=row["topic"],
            action=row["action"],
            changes=row["count_all"],
            bytes_before=row["bytes_before_sum"],
            bytes_after=row["bytes_after_sum"] or 0,
            mean_scan_bytes_before=_mean(row, "mean_scan_bytes_before"),
            max_scan_bytes_before=row["max_scan_bytes_before_max"],
            mean_scan_bytes_after=_mean(row, "mean_scan_bytes_after"),
            max_scan_bytes_after=row["max_scan_bytes_after_max"],
        )
        for row in summed.sort_by([(name, "ascending") for name in _KINDS]).to_pylist()
    ]


def _mean(row: dict[str, Any], name: str) -> int | None:
    weight = row[f"{name}_weight_sum"]
    return int(row[f"{name}_weighted_sum"] / weight + 0.5) if weight else None


def _lines(changes: pa.Table) -> list[str]:
    return [_line(row) for row in in_order(changes, PROBLEMS_SHOWN).to_pylist()]


def _line(row: dict[str, Any]) -> str:
    what = f"{row['action']}: {row['path']}: "
    if row["outcome"] == ChangeOutcome.KEPT.value:
        return f"kept: {what}{row['reason']}"
    if row["action"] == ChangeAction.REMOVE.value:
        return f"{what}{row['bytes_before']:,} bytes, {row['reason']}"
    of_index = (
        " with its .timeindex" if row["action"] in (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value) else ""
    )
    intervals = (
        "" if row["interval_before"] is None else f", every {row['interval_before']:,} → {row['interval_bytes']:,}"
    )
    return f"{what}{row['bytes_before']:,} → {row['bytes_after']:,} bytes{of_index}{intervals}"


def print_report(found: CompactionReport, *, applied: bool) -> None:
    """Show a row per topic and action, and a line for each of a few files."""
    shown = found.topics[:TOPICS_SHOWN]
    print_table(
        "changed" if applied else "would change; nothing was written: --apply does it",
        _TOPIC_COLUMNS,
        [
            (
                topic.topic,
                topic.action,
                topic.changes,
                topic.bytes_before,
                topic.bytes_after,
                *(
                    "-" if cost is None else cost
                    for cost in (
                        topic.mean_scan_bytes_before,
                        topic.mean_scan_bytes_after,
                        topic.max_scan_bytes_before,
                        topic.max_scan_bytes_after,
                    )
                ),
            )
            for topic in shown
        ],
        text_columns=2,
    )
    print_more(len(found.topics) - len(shown), " rows")
    for count, lines in (found.changed, found.kept):
        for line in lines:
            print_line(line)
        print_more(count - len(lines), "; --json has all")
    before = sum(topic.bytes_before for topic in found.topics)
    after = sum(topic.bytes_after for topic in found.topics)
    same = f"; same bytes at the new interval: {found.unchanged:,}" if found.unchanged else ""
    print_line(
        f"{decimal(before)} → {decimal(after)}, {counted(found.changed[0], 'change')}; {found.kept[0]:,} kept{same}"
    )


def report_as_json(found: CompactionReport, changes: Staged) -> dict[str, Any]:
    """The JSON object's part about index files.

    Args:
        changes: rows of `COMPACTED`.
    """
    return {
        "topics": [asdict(topic) for topic in found.topics],
        "changed_count": found.changed[0],
        "unchanged_count": found.unchanged,
        "kept_count": found.kept[0],
        "not_well_count": found.problems,
        "changes": in_order(changes.rows("compacted", JSON_COLUMNS)).select(JSON_COLUMNS).to_pylist(),
    }


def run_compaction(
    request: CompactionRequest, open_backend: OpenBackend, maintenance_of: MaintenanceOf, *, as_json: bool
) -> RunResult:
    """Compact index files and tables, or say what that would change."""
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(open_backend())
        stack.enter_context(interrupts.telling(lambda: _INTERRUPTED))
        changes: Staged | None = None
        found: CompactionReport | None = None
        if request.files is not None:
            changes = compact_files(backend, request, request.files, stack)
            found = report(changes)
        tables: list[MaintainedTable] = []
        if request.tables is not None:
            of_catalog = backend.catalog.tables
            tables = maintain_tables(of_catalog, maintenance_of(of_catalog), request.tables, ALL, apply=request.apply)
        if as_json:
            shown: dict[str, Any] = {"applied": request.apply, "now": request.context.now.isoformat()}
            shown["tables"] = tables_as_json(tables)
            if found is not None and changes is not None:
                shown |= report_as_json(found, changes)
            print_json(shown)
        else:
            if found is not None:
                print_report(found, applied=request.apply)
            if tables:
                print_tables(tables, applied=request.apply)
            print_line(f"catalog: {backend.catalog.path}")
    return _result(found, tables)


def _result(found: CompactionReport | None, tables: list[MaintainedTable]) -> RunResult:
    changed, kept, problems = (found.changed[0], found.kept[0], found.problems) if found is not None else (0, 0, 0)
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if problems else ExitCode.OK,
        counts={"changed": changed, "kept": kept, "not_well": problems, "tables": len(tables)},
        bytes=sum(topic.bytes_before - topic.bytes_after for topic in found.topics) if found is not None else 0,
    )
