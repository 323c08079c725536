"""The outcome of a build: the damage that is known, the exit code, lines and JSON (`build_outcome`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kidxlib.audit.gaps import GapEvidence, PolicyOf
from kidxlib.catalog.matching import numbers_in
from kidxlib.catalog.rows import SEGMENT_KEY
from kidxlib.catalog.segments import FillableFacts
from kidxlib.catalog.tables import BuildRow
from kidxlib.indexing.changes import Changes
from kidxlib.indexing.listed_segments import partition_numbers
from kidxlib.indexing.listing import unlistable_as_json
from kidxlib.indexing.plan import Plan
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.waves import Scanned
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.damage.known_damage import (
    DamagedSegment,
    KnownDamage,
    broken_by_audits,
    gaps_between,
    known_damage,
    known_logs,
)
from kidxlib.operations.damage.lost import ExpectedInLogDirs
from kidxlib.operations.maintenance import OptimizedTable, optimized_as_json, optimized_in_words
from kidxlib.run.index_options import index_options_as_json, index_options_lines
from kidxlib.run.sources import sources_line
from kidxlib.storage.location import as_text
from kidxlib.storage.store.requests import Requests
from kidxlib.storage.store.s3 import is_object
from kidxlib.terminal.console import warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.terminal.run_summary import tell_build_counts, tell_rate, tell_requests, tell_skipped
from kidxlib.text.words import counted


def catalog_damage(
    request: BuildRequest,
    catalog: TablesCatalog,
    plan: Plan,
    expected_in_log_dirs: ExpectedInLogDirs,
    changes: Changes | None = None,
) -> KnownDamage:
    """The damage for a build's report: that of the catalog's segments, the gaps between them, and what the log dirs
    lack. `changes` are those of a listing that are not recorded; None where all are.
    """
    sources, gone = [source.name for source in request.sources], None if changes is None else changes.gone
    tables = catalog.tables
    logs = known_logs(tables, sources, request.topics, gone)
    gaps = gaps_between(tables, logs, *policies_and_directories(request, plan))
    not_known = set(plan.unlistable)
    if request.repair:  # it reads no other log that has grown
        not_known |= expected_in_log_dirs.log_dirs.keys()
    elif changes is not None:
        not_known |= {plan.partitions[number].key for number in set(partition_numbers(changes.to_read).tolist())}
    lost = expected_in_log_dirs.lost(tables, logs, not_known)
    broken = broken_by_audits(catalog.tables, sources, request.topics)
    if broken and changes is not None:
        broken = _not_read_again(broken, plan, changes)
    return replace(known_damage(catalog.tables, sources, request.topics, gone), gaps=gaps, lost=lost, by_audits=broken)


def _not_read_again(broken: Sequence[DamagedSegment], plan: Plan, changes: Changes) -> list[DamagedSegment]:
    """The logs that are there and that the build does not read."""
    keys = [partition.key for partition in plan.partitions]
    base_offsets = numbers_in(changes.to_read["base_offset"])[0].tolist()
    numbers = partition_numbers(changes.to_read).tolist()
    others = {(*keys[number], base_offset) for number, base_offset in zip(numbers, base_offsets, strict=True)}
    others |= {tuple(row.values()) for row in changes.gone.select(SEGMENT_KEY).to_pylist()}
    return [log for log in broken if (log.source, log.topic, log.partition, log.base_offset) not in others]


def policies_and_directories(request: BuildRequest, plan: Plan) -> tuple[PolicyOf, GapEvidence]:
    """What explains gaps between logs in a build's report: the policies of a plan's topics, and the directories of its
    partitions.
    """
    topics = ((*partition.key[:2], partition.topic_id) for partition in plan.partitions)
    directories = GapEvidence({partition.key: partition.directory.path for partition in plan.partitions})
    return request.known_topics.policy_of(topics), directories


def gone_counts(changes: Changes) -> dict[str, int]:
    """The counts of partitions that are gone, or lack segments at their end, for a build's report."""
    return {"partitions_gone": len(changes.emptied), "partitions_cut_off": len(changes.missing_at_end)}


def emptied(plan: Plan, damage: KnownDamage) -> list[dict[str, Any]]:
    """The sources that a build's report names as emptied: those without a segment of which the catalog has some, as
    objects of JSON.
    """
    return [
        {"source": name, "path": as_text(path), "segments": damage.present(name)}
        for name, path in plan.empty.items()
        if damage.present(name)
    ]


def exit_code(plan: Plan, damage: KnownDamage, changes: Changes) -> ExitCode:
    """The exit code of a build, by all that is known of its sources and topics, whether this run found it or an earlier
    one. Only this run knows that missing segments were the last of their partition.
    """
    emptied_sources = emptied(plan, damage)
    for source in emptied_sources:
        where = "is that its bucket and prefix?" if is_object(source["path"]) else "is it mounted?"
        warn(
            f"{source['path']}: no segment found, but the catalog has {source['segments']:,} of source "
            f"{source['source']}, which stay there: {where} If they will not come back, kidx forget-source removes them"
        )
    has_problems = damage.is_loss or plan.unlistable or emptied_sources or changes.missing_at_end
    return ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build did.

    Attributes:
        plan: of a repair, the part that was broken.
        changes: since the catalog's last build.
        row: of `builds`.
        notes: for a person.
        requests: to object stores, but not those to the catalog.
        catalog: its path; `is_new` where this build has made it.
    """

    plan: Plan
    changes: Changes
    scanned: Scanned
    row: BuildRow
    notes: list[str]
    damage: KnownDamage
    requests: Requests
    catalog: str
    is_new: bool
    optimized: list[OptimizedTable]

    @property
    def unknown_facts(self) -> dict[str, int]:
        """The facts that `--fill-facts` fills, and for how many segments that are there they are not known."""
        of_others, read = self.changes.unknown_facts, self.scanned.counts.unknown_facts
        return {name: of_others.get(name, 0) + read[name] for name in FillableFacts.names()}


#: The names of `FillableFacts` on screen.
_FACTS: Final = {
    "log_crc32c": "the CRC-32C",
    "smallest_timestamp_ms": "the smallest timestamp",
    "log_crc64nvme": "the CRC-64/NVME",
}
#: Columns of `builds` that are metrics.
_COUNTED: Final = ("partitions", "segments", "unchanged", "gone", "rows_changed")


def _as_json(request: BuildRequest, built: Built) -> dict[str, Any]:
    """The row of `builds`, and what it has no columns for."""
    return {
        **built.row.values(),
        **built.scanned.counts.as_json(),
        "started_at": request.context.now.isoformat(),
        "notes": built.notes,
        "options": request.recorded(),
        **gone_counts(built.changes),
        "unknown_facts": built.unknown_facts,
        **unlistable_as_json(built.plan.unlistable.values()),
        "damage": built.damage.as_json(),
        "emptied_sources": emptied(built.plan, built.damage),
        "requests": built.requests.as_json(),
        "optimized": optimized_as_json(built.optimized),
        "cluster_metadata": index_options_as_json(request.known_topics, built.plan),
        "catalog": built.catalog,
        "new_catalog": built.is_new,
    }


def _tell(outcome: Outcome, request: BuildRequest, built: Built) -> None:
    """Say what was made, where it is, and what to do next."""
    row = built.row
    tell_build_counts(outcome, f"build {row.build_id}", built.scanned.counts)
    if row.unchanged or row.gone:
        outcome.line(f"not read: {counted(row.unchanged, 'unchanged segment')}; missing from the source: {row.gone:,}")
    named = {segment.log_path for segment in built.scanned.counts.problems[:LINES_SHOWN]}
    outcome.line(*built.damage.lines(many_sources=len(request.sources) > 1, named=named))
    tell_skipped(outcome, row.skipped.items())
    for text in built.notes:
        outcome.line(f"note: {text}")
    if request.repair and not row.partitions:
        outcome.line("repair:      nothing, the last audit found nothing broken")
    else:
        tell_rate(outcome, row.log_bytes, built.scanned.read_seconds, row.seconds)
    tell_requests(outcome, built.requests)
    outcome.line(f"source:      {sources_line(request.sources)}")
    for line in index_options_lines(request.known_topics, built.plan):
        outcome.line(f"topics:      {line}")
    where = "beside the segments" if request.in_place else request.index_place.index_dir
    if request.packs:
        where = "packed in the catalog; kidx unpack writes them as files"
    outcome.line(f"index files: {where}")
    if unknown := [f"{_FACTS[name]} of {count:,}" for name, count in built.unknown_facts.items() if count]:
        outcome.detail(
            f"optional:    {', '.join(unknown)} segments would make reads by time faster, and show whether a copy on "
            "S3 is whole; --fill-facts SIZE reads their logs for it"
        )
    outcome.line(f"catalog:     {built.catalog} ({counted(row.rows_changed, 'row')} of segments added or changed)")
    if line := optimized_in_words(built.optimized):
        outcome.line(f"tables:      {line}")
    outcome.line("next:        kidx report makes a page of the catalog; its tables answer questions in SQL")
    if built.is_new:
        outcome.line(f"new catalog made at {built.catalog}")


def build_outcome(request: BuildRequest, built: Built) -> Outcome:
    outcome = Outcome(
        code=exit_code(built.plan, built.damage, built.changes),
        run_id=built.row.build_id,
        counts={
            **{name: getattr(built.row, name) for name in _COUNTED},
            **gone_counts(built.changes),
            "unlistable": len(built.plan.unlistable),
            "sources_emptied": len(emptied(built.plan, built.damage)),
            "not_well": built.scanned.counts.total.problems,
            **built.damage.counts,
        },
        bytes=built.scanned.counts.total.log_bytes,
        requests=built.requests,
        catalog_segments=built.damage.figures,
    )
    outcome.values.update(_as_json(request, built))
    _tell(outcome, request, built)
    return outcome
