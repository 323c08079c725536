"""A build from a plan to the outcome, step by step: with a catalog (`build`); without one, where all segments are read,
and nobody reads the tables later (`build_once`); and a dry run. A repair is a build of the files that an audit found
broken: the last audits that the catalog has, or, without a catalog, one that the build makes first.

A run locks the log dirs in which it writes, as a broker would, and removes what killed runs have left.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

import numpy as np
from rich.filesize import decimal

from kidxlib.audit.gaps import FoundGaps
from kidxlib.catalog.findings import JudgedFile
from kidxlib.catalog.matching import numbers_in
from kidxlib.catalog.partitions import PartitionRow
from kidxlib.catalog.tables import BUILDS, LAYOUT_VERSION, TABLES, BuildRow
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import Changes, all_new
from kidxlib.indexing.listed_segments import partition_numbers
from kidxlib.indexing.listing import unlistable_as_json
from kidxlib.indexing.plan import Plan, repair_plan
from kidxlib.indexing.source import Source, ensure_no_overlap
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build_report import (
    Built,
    build_outcome,
    catalog_damage,
    emptied,
    exit_code,
    gone_counts,
    policies_and_directories,
)
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.planning import plan_changes
from kidxlib.operations.build.waves import BuildRun, Scanned, finish_partitions_of, recording_phase, scan_in_waves
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.damage.known_damage import KnownDamage, audited_sources, gaps_between, known_logs
from kidxlib.operations.damage.lost import ExpectedInLogDirs, Lost
from kidxlib.operations.maintenance import OptimizedTable, optimize_tables
from kidxlib.operations.packed import remove_unused_packed
from kidxlib.run.sources import recorded_sources, warn_of_other_names
from kidxlib.storage.location import Location, location
from kidxlib.storage.lock import locked
from kidxlib.storage.log_bytes import RANGE_BYTES
from kidxlib.storage.log_dir import NO_CHECKPOINTS, Checkpoints
from kidxlib.storage.publisher import remove_held, sweep_staging_files
from kidxlib.storage.store.requests import Requests
from kidxlib.storage.store.s3 import ObjectPath, is_object
from kidxlib.terminal.console import begin_phase, note, rate
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.times import NS_PER_MS
from kidxlib.text.words import counted

#: `.index` and `.timeindex`.
_INDEX_FILES_PER_SEGMENT: Final = 2


@dataclass(frozen=True, slots=True)
class BrokenFiles:
    """Names of index and auxiliary files by partition that an audit found broken, and the number of broken logs."""

    files: Mapping[PartitionKey, frozenset[str]] = field(default_factory=dict)
    logs: int = 0


@dataclass(frozen=True, slots=True)
class BuiltOnce:
    """What a build did.

    Attributes:
        plan: in a repair, the part of the plan that was broken.
        broken: what a repair's audit found broken; empty in other builds.
        gaps: between the logs that were read.
        lost: what the log dirs had, and have not any more.
        seconds: of the whole run.
        requests: to object stores.
    """

    plan: Plan
    scanned: Scanned
    broken: BrokenFiles
    gaps: FoundGaps
    lost: Lost
    seconds: float
    requests: Requests


@dataclass(frozen=True, slots=True)
class DryRunCost:
    """The requests to object stores that a build would make, as a dry run says them.

    Attributes:
        reading: requests of listing, comparing and reading: a build makes no fewer.
        writing: of index files, if all differ from those there.
        read_bytes: of logs.
    """

    reading: Requests
    writing: Requests
    read_bytes: int

    def __bool__(self) -> bool:
        return bool(self.reading or self.writing)

    def __str__(self) -> str:
        written = f"; {self.writing} for index files, if all differ" if self.writing else ""
        return f"at least {self.reading}; {decimal(self.read_bytes)} to read{written}"

    def as_json(self) -> dict[str, Any]:
        return {"requests": (self.reading + self.writing).as_json(), "read_bytes": self.read_bytes}


def build(request: BuildRequest, plan: Plan, backend: Backend, log_dir_locks: contextlib.ExitStack) -> Outcome:
    """Read what is new or has changed, and record it. The locks are let go once the build is recorded."""
    start = time.monotonic()
    build_id, expected_in_log_dirs, catalog = request.context.run_id(), _listed_log_dirs(request, plan), backend.catalog
    ensure_no_overlap(request.index_place.index_dir, catalog.path, request.sources)
    is_new = not catalog.has_segments()
    _ensure_as_recorded(request, catalog)
    if request.repair:
        plan = _repairs_of_last_audits(catalog, plan, request.sources)
    begin_phase("comparing with the catalog")
    changes = plan_changes(request, plan, None if is_new else catalog, backend.engine)
    _sweep_leftovers(request, plan, backend)
    _ensure_locks_cover_workers(request, changes, backend)
    catalog.make_tables()
    # In place: if the run fails, offset indexes that wait for the end of their partition are removed under the locks.
    log_dir_locks.enter_context(_removing_held_indexes(request, plan))
    _say_where_files_stay(request, catalog)
    with catalog.committing_together() as commit:  # the changes of `segments`, wave by wave
        # which segments are gone, have moved, or are active or no longer active
        marked = catalog.mark(changes, build_id, commit)
        run = BuildRun(request, plan, backend, build_id, commit)
        scanned = scan_in_waves(run, changes)  # and most partitions are finished
        notes, damage = _finish(run, scanned, expected_in_log_dirs)  # the others
        begin_phase(recording_phase(request))
    if not request.packs:  # an earlier build may have packed what this one has written as files
        remove_unused_packed(catalog.tables, [source.name for source in request.sources])
    seconds = time.monotonic() - start
    row = _build_row(run, changes, scanned, seconds=seconds, rows_changed=marked + scanned.rows_changed)
    begin_phase("recording the build")
    catalog.append_build(row)
    log_dir_locks.close()  # a broker may start
    built = Built(
        plan=plan,
        changes=changes,
        scanned=scanned,
        row=row,
        notes=notes,
        damage=damage,
        requests=request.context.requests(backend.engine.requests()),
        catalog=catalog.path,
        is_new=is_new,
        optimized=_optimize(request, row, backend),
    )
    return build_outcome(request, built)


def build_once(request: BuildRequest, plan: Plan, backend: Backend, *, start: float) -> BuiltOnce:
    """Index the segments of the sources. The backend's catalog has no rows yet, and nobody reads it later; `start` is
    when the run began, by the monotonic clock.
    """
    expected_in_log_dirs, broken = _listed_log_dirs(request, plan), BrokenFiles()
    _sweep_leftovers(request, plan, backend)
    if request.repair:
        # Other builds do not wait for the imports of an audit. There is no catalog with the findings of the last one.
        from kidxlib.operations.audit.audit import audit_before_repair

        broken = BrokenFiles(*audit_before_repair(request, plan, backend))
        plan = repair_plan(plan, broken.files)
    scanned = _read_and_finish(request, plan, backend)
    tables = backend.catalog.tables
    logs = known_logs(tables, [source.name for source in request.sources], request.topics)
    gaps = gaps_between(tables, logs, *policies_and_directories(request, plan)).found
    # A repair reads few logs, so none is told lost.
    not_known = expected_in_log_dirs.log_dirs if request.repair else plan.unlistable
    lost = expected_in_log_dirs.lost(tables, logs, not_known)
    requests = request.context.requests(backend.engine.requests())
    return BuiltOnce(plan, scanned, broken, gaps, lost, time.monotonic() - start, requests)


def _read_and_finish(request: BuildRequest, plan: Plan, backend: Backend) -> Scanned:
    """Read all segments of a plan, and finish its partitions. In place, the caller holds the log dirs' locks."""
    with _removing_held_indexes(request, plan):
        # Rows are in the tables at once, so there is nothing to commit.
        run = BuildRun(request, plan, backend, request.context.run_id(), commit=lambda: None)
        scanned = scan_in_waves(run, all_new(plan))
        begin_phase("finishing partitions")
        finish_partitions_of(run, plan.partitions, scanned)
    return scanned


def dry_run(request: BuildRequest, plan: Plan, backend: Backend) -> Outcome:
    """Compare, and say what a build would do."""
    catalog, expected_in_log_dirs = backend.catalog, _listed_log_dirs(request, plan)
    _ensure_as_recorded(request, catalog)
    if request.repair:
        plan = _repairs_of_last_audits(catalog, plan, request.sources)
    has_current_layout = (catalog.oldest_version() or 0) >= LAYOUT_VERSION
    changes = plan_changes(request, plan, catalog if has_current_layout else None, backend.engine)
    last_rate = catalog.last_rate() if has_current_layout else None
    is_known = has_current_layout or catalog.has_segments()  # an older catalog has damage, too
    if is_known:
        damage = catalog_damage(request, catalog, plan, expected_in_log_dirs, changes)
    else:
        damage = KnownDamage(lost=expected_in_log_dirs.listed)
    log_bytes, to_read = changes.bytes_to_read, changes.to_read.num_rows
    seconds = log_bytes / last_rate if last_rate else None
    cost = _cost_of(plan, changes, request.context.requests(backend.engine.requests()))
    emptied_sources = emptied(plan, damage)
    outcome = Outcome(
        code=exit_code(plan, damage, changes),
        counts={
            "segments": to_read,
            "unchanged": changes.unchanged,
            "gone": changes.gone.num_rows,
            **gone_counts(changes),
            "unlistable": len(plan.unlistable),
            "sources_emptied": len(emptied_sources),
            **damage.counts,
        },
        bytes=log_bytes,
        catalog_segments=damage.figures if is_known else None,
    )
    outcome.values.update(
        {
            "to_read": to_read,
            "to_read_bytes": log_bytes,
            "unchanged": changes.unchanged,
            "unchanged_bytes": changes.unchanged_bytes,
            "gone": changes.gone.num_rows,
            **gone_counts(changes),
            **unlistable_as_json(plan.unlistable.values()),
            "emptied_sources": emptied_sources,
            "estimated_seconds": seconds,
            "cost": cost.as_json(),
            "damage": damage.as_json(),
        }
    )
    outcome.line(f"would read {counted(to_read, 'segment')}, {decimal(log_bytes)}")
    outcome.line(f"unchanged: {counted(changes.unchanged, 'segment')}, {decimal(changes.unchanged_bytes)}")
    outcome.line(f"missing:   {counted(changes.gone.num_rows, 'segment')} of the catalog")
    outcome.line(*damage.lines(many_sources=len(request.sources) > 1))
    if cost:
        outcome.line(f"requests:  {cost}")
    if to_read and seconds is None:
        outcome.line("estimate:  none, as no build of this catalog has read anything yet")
    elif to_read and seconds is not None:
        outcome.line(f"estimate:  {seconds:.0f} s at the last build's {rate(log_bytes, seconds)}")
    return outcome


def _cost_of(plan: Plan, changes: Changes, asked: Requests) -> DryRunCost:
    """The cost of a build after a dry run, which lists and compares with as many requests as the dry run (`asked`)."""
    in_store = [isinstance(partition.directory.path, ObjectPath) for partition in plan.partitions]
    is_in_store = np.array(in_store, np.bool_)
    sizes = numbers_in(changes.to_read["log_bytes"])[0][is_in_store[partition_numbers(changes.to_read)]]
    ranges = int((-(-sizes // RANGE_BYTES)).sum())
    reading = replace(asked, tried_again=0) + Requests(head=2 * len(sizes), get=ranges)
    writing = Requests()
    if any(is_object(partition.index_directory.root) for partition in plan.partitions):
        files = _INDEX_FILES_PER_SEGMENT * changes.to_read.num_rows
        reading += Requests(list=len(changes.to_finish), head=files)
        writing = Requests(put=files)
    return DryRunCost(reading, writing, int(sizes.sum()))


def _finish(run: BuildRun, scanned: Scanned, expected_in_log_dirs: ExpectedInLogDirs) -> tuple[list[str], KnownDamage]:
    """Finish the partitions that are left, and record how they were listed. Returns notes for a person, and the damage
    that is known now.
    """
    request, catalog = run.request, run.backend.catalog
    begin_phase("finishing partitions")
    # Recording the listing and finishing need the segments and not each other, and both mostly wait.
    with ThreadPoolExecutor(2) as threads:
        notes = threads.submit(_record_partitions, catalog, run.plan, run.build_id, all_topics=request.all_topics)
        finish_partitions_of(run, run.plan.partitions, scanned)
        damage = threads.submit(catalog_damage, request, catalog, run.plan, expected_in_log_dirs)
        return notes.result(), damage.result()


def _listed_log_dirs(request: BuildRequest, plan: Plan) -> ExpectedInLogDirs:
    """What the log dirs should have, just after they were listed."""
    return ExpectedInLogDirs.of(plan, request.sources, request.topics, request.known_topics.by_source)


def _build_row(run: BuildRun, changes: Changes, scanned: Scanned, *, seconds: float, rows_changed: int) -> BuildRow:
    request, plan, counts = run.request, run.plan, scanned.counts.total
    # The column's values are text: an option as in JSON, but a string without quotes.
    options: dict[str, Any] = {
        name: value if value is None or isinstance(value, str) else json.dumps(value)
        for name, value in request.recorded().items()
    }
    return BuildRow(
        build_id=run.build_id,
        started_at=request.context.now,
        seconds=round(seconds, 3),
        scan_seconds=round(scanned.seconds, 3),
        waves=scanned.waves,
        sources={source.name: str(source.path) for source in request.sources},
        options=options,
        versions={"kidx": metadata.version("kidx"), **run.backend.versions, "python": platform.python_version()},
        partitions=len(plan.partitions),
        segments=counts.segments,
        log_bytes=counts.log_bytes,
        batches=counts.batches,
        unchanged=changes.unchanged,
        gone=changes.gone.num_rows,
        by_status=dict(counts.by_status),
        by_published=dict(counts.by_published),
        finished=len(changes.to_finish),
        aborted_transactions=counts.aborted_transactions,
        by_transaction_index=dict(counts.by_transaction_index),
        skipped={reason.value: count for reason, count in sorted(plan.skipped.counts.items())},
        rows_changed=rows_changed,
    )


def _optimize(request: BuildRequest, row: BuildRow, backend: Backend) -> list[OptimizedTable]:
    """Optimize all tables, or `builds` alone if no row of `segments` has changed."""
    if request.optimize is None:
        return []
    return optimize_tables(backend.maintenance, TABLES if row.rows_changed else (BUILDS,), request.optimize)


def _record_partitions(catalog: TablesCatalog, plan: Plan, build_id: str, *, all_topics: bool) -> list[str]:
    """Bring `partitions` up to date with a listing and with the checkpoints of its log dirs. The row of a partition
    that could not be listed stays as it is. `all_topics`: the listing left no topic out, so partitions that it lacks
    are gone. Returns notes for a person: files that are missing, with what is taken instead, or that cannot be read.
    """
    notes: list[str] = []
    log_dirs = sorted({partition.directory.log_dir for partition in plan.partitions}, key=str)
    checkpoints = {log_dir: plan.checkpoints.get(log_dir, NO_CHECKPOINTS) for log_dir in log_dirs}
    for log_dir, of_log_dir in checkpoints.items():
        notes += _notes(log_dir, of_log_dir)
    sources = sorted({partition.directory.source.name for partition in plan.partitions})
    offsets = catalog.offsets(sources)
    known = {(row.source, row.topic, row.partition): row for row in catalog.known_partitions(sources)}

    rows: dict[PartitionKey, PartitionRow] = {}
    for partition in plan.partitions:
        if partition.key in plan.unlistable:
            continue
        of_log_dir, topic_partition = checkpoints[partition.directory.log_dir], partition.directory.topic_partition
        first_base_offset, log_end_offset = offsets.get(partition.key, (None, None))
        rows[partition.key] = PartitionRow(
            source=partition.directory.source.name,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            topic_id=partition.topic_id,
            first_base_offset=first_base_offset,
            log_end_offset=log_end_offset,
            log_start_offset=(of_log_dir.log_start_offsets or {}).get(topic_partition),
            high_watermark=(of_log_dir.high_watermarks or {}).get(topic_partition),
            recovery_point=(of_log_dir.recovery_points or {}).get(topic_partition),
            cleaner_offset=(of_log_dir.cleaner_offsets or {}).get(topic_partition),
            clean_shutdown=of_log_dir.clean_shutdown,
            present=True,
            directory=str(partition.directory.path),
            build_id=build_id,
        )
    if all_topics:
        for key, row in known.items():
            of_listed_source = key[0] in plan.log_dirs and key[0] not in plan.empty
            if key not in rows and key not in plan.unlistable and of_listed_source:
                rows[key] = replace(row, present=False, build_id=build_id)
    changed = [
        row for key, row in rows.items() if key not in known or replace(row, build_id=known[key].build_id) != known[key]
    ]
    if changed:
        catalog.merge_partitions(changed)
    return notes


def _notes(log_dir: Location, checkpoints: Checkpoints) -> Iterator[str]:
    if checkpoints.error is not None:
        yield checkpoints.error
        return
    missing = []
    if checkpoints.log_start_offsets is None:
        missing.append("no log-start-offset-checkpoint, log start taken as the first base offset")
    if checkpoints.high_watermarks is None:
        missing.append("no replication-offset-checkpoint, high watermark taken as the log end")
    if missing:
        yield f"{log_dir}: {'; '.join(missing)}"


def _repairs_of_last_audits(catalog: TablesCatalog, plan: Plan, sources: Sequence[Source]) -> Plan:
    """The part of a plan that the last audits found broken. Broken logs are reported: no repair mends them."""
    from kidxlib.audit.rows import broken_files  # other builds do not wait for the imports of an audit
    from kidxlib.terminal.audit import say_before_repair

    with_audits = audited_sources(catalog.tables)
    for source in sources:
        if source.name not in with_audits:
            raise UsageError(
                f"--repair: no audit of source {source.name} in {catalog.path}; make one with "
                f"kidx verify --source {shlex.quote(f'{source.name}={source.path}')} "
                f"--catalog {shlex.quote(str(catalog.path))}"
            )
    files = files_to_repair(plan, catalog.broken_files([source.name for source in sources]))
    directories = {partition.key: str(partition.index_directory) for partition in plan.partitions}
    for file in files:
        directory = directories.get(file.partition_key)
        audited = str(location(file.path).parent)
        if file.file != LOG_SUFFIX and directory not in (None, audited):
            raise UsageError(
                f"--repair: the last audit looked at {audited}, this build would write in {directory}; give both "
                "the same --index-dir, or audit beside the logs and build with --in-place, or with --pack"
            )
    say_before_repair(files)
    return repair_plan(plan, broken_files(files))


def files_to_repair(plan: Plan, files: Sequence[JudgedFile]) -> list[JudgedFile]:
    """The broken files that concern a repair, logs among them: all but a broker's leader epochs and producer snapshots
    beside logs, if the build does not write there. Says that these are left.
    """
    log_directories = {str(partition.directory.path) for partition in plan.partitions if not partition.in_place}
    brokers_files = [
        file
        for file in files
        if file.file in (LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX) and os.path.dirname(file.path) in log_directories
    ]
    if brokers_files:
        more = f" and {len(brokers_files) - 1:,} more" if len(brokers_files) > 1 else ""
        note(
            f"broken, and left as it is, as this build writes elsewhere: {brokers_files[0].path}{more}; kidx verify "
            "says what comes of it"
        )
    return [file for file in files if file not in brokers_files]


def lock_log_dirs(request: BuildRequest, plan: Plan, stack: contextlib.ExitStack) -> None:
    """Lock the log dirs of a plan that is built in place, until the stack is left."""
    if request.in_place:
        for log_dir in plan.log_dirs_to_lock():
            stack.enter_context(locked(log_dir))


def _ensure_locks_cover_workers(request: BuildRequest, changes: Changes, backend: Backend) -> None:
    if not request.in_place or not (changes.to_read.num_rows or changes.to_finish):
        return
    if not backend.engine.is_on_this_machine:
        raise UsageError(
            "--in-place: only with a local master, so that the log dir's lock covers every writer; give -- "
            "--master 'local[*]', or use kidx"
        )


def _sweep_leftovers(request: BuildRequest, plan: Plan, backend: Backend) -> None:
    """Remove what killed runs left. Its age is by the machine's clock and not by `--now`: else a run that is going on
    could lose its files.
    """
    older_than_ms = int((datetime.now(UTC) - request.limits.longest_run).timestamp() * 1000)
    for partition in plan.partitions if plan.is_listed else ():  # else workers have swept as they planned
        sweep_staging_files(partition.index_directory, older_than_ms * NS_PER_MS)
    backend.catalog.sweep_staging(older_than_ms)
    backend.engine.sweep(older_than_ms)


@contextlib.contextmanager
def _removing_held_indexes(request: BuildRequest, plan: Plan) -> Iterator[None]:
    """In place, leave no offset index that waits for its partition to be finished: the directory is a broker's. A run
    that succeeds has finished its partitions; one that fails removes these files. Those of a killed run go first: under
    the lock, none can be another run's.
    """
    if not request.in_place:
        yield
        return
    _remove_held(plan)
    try:
        yield
    except BaseException:  # interrupted, or the disk is full
        _remove_held(plan)
        raise


def _remove_held(plan: Plan) -> None:
    for partition in plan.partitions:
        remove_held(partition.index_directory)


def _ensure_as_recorded(request: BuildRequest, catalog: TablesCatalog) -> None:
    """Refuse a build whose index directory comes from the settings alone and is not where the last build wrote: all
    index files would be made anew, and no build would look after the old ones. Warn of a source that has another name
    in the catalog.
    """
    recorded = recorded_sources(catalog.tables)
    warn_of_other_names(request.sources, {name: source.path for name, source in recorded.items()})
    if request.names_index_dir or request.in_place or request.repair:
        return
    here = str(request.index_place.index_dir)
    for source in request.sources:
        if source.name in recorded and recorded[source.name].packed:
            raise UsageError(
                f"source {source.name}: its last build packed the index files in this catalog, and this one would "
                f"write files to {here}, as the settings say; give --pack to go on there, or --index-dir {here}"
            )
        last = recorded[source.name].index_dir if source.name in recorded else here
        if last != here:
            where, option = ("beside the logs", "--in-place") if last is None else (f"to {last}", f"--index-dir {last}")
            raise UsageError(
                f"source {source.name}: its last build wrote {where}, and this one would write all index files anew "
                f"to {here}, as the settings say; give {option} to go on there, or --index-dir {here}"
            )


def _say_where_files_stay(request: BuildRequest, catalog: TablesCatalog) -> None:
    """Note which index files of earlier builds nobody reads any more, as they are packed from now on."""
    if not request.packs:
        return
    recorded = recorded_sources(catalog.tables)
    for source in request.sources:
        last = recorded.get(source.name)
        if last is not None and last.index_dir is not None:
            note(
                f"source {source.name}: its index files are packed from now on; those in {last.index_dir} stay, and "
                "nothing reads them any more"
            )
