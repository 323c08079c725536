"""Logs that are missing though their indexes are there, and logs that get their names only when a broker starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.audit.finding import Fate, Finding, Verdict
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.startup.simulation import Removal, StartupSimulation
from kidxlib.format import segment_files

#: The reason of a log that is missing though its `.index` is there.
MISSING: Final = "missing"


def is_missing(finding: Finding) -> bool:
    """Whether a finding is on such a log, and it is a loss."""
    return (finding.file, finding.reason, finding.verdict) == (segment_files.LOG_SUFFIX, MISSING, Verdict.BROKEN)


def missing_logs(logs: Sequence[AuditedLog], simulation: StartupSimulation) -> Iterator[tuple[int, Finding]]:
    """Logs that are missing though their indexes are there, and that nothing has renamed. A broker and a build remove
    the log last.
    """
    judged = {log.base_offset for log in logs}
    ends = {log.base_offset: log.recovery.next_offset for log in logs if log.recovery is not None}
    for name, why in sorted(simulation.removed.items()):
        offset, suffix = segment_files.parse_segment_file(name) or (0, "")
        if why is not Removal.ORPHAN or suffix != segment_files.OFFSET_INDEX_SUFFIX or offset in judged:
            continue
        renamed = (
            f"{segment_files.segment_file(offset, segment_files.LOG_SUFFIX)}{segment_files.DELETED_SUFFIX}"
            in simulation.removed
        )
        inside = any(base_offset <= offset < end for base_offset, end in ends.items())
        if not renamed and not inside:
            yield (
                offset,
                Finding(
                    file=segment_files.LOG_SUFFIX,
                    verdict=Verdict.BROKEN,
                    reason=MISSING,
                    detail=f"{name} is there, its log is not",
                    consequence="a broker that starts removes the segment's index files, and knows nothing of its "
                    f"records; {_in_no_log(offset, logs)}",
                    fate=Fate(),
                ),
            )


def missing_by_index_directory(
    logs: Sequence[AuditedLog], simulation: StartupSimulation, indexed: Collection[int], compacted: bool
) -> Iterator[tuple[int, Finding]]:
    """Logs that are missing though their indexes are there, by their place among the existing logs. If a partition has
    no log at all, the simulation says so.
    """
    if not logs:
        return
    first, last = logs[0].base_offset, logs[-1].base_offset
    judged = {log.base_offset for log in logs} | {offset for offset, _ in swapped_in(logs, simulation)}
    ends = {log.base_offset: log.recovery.next_offset for log in logs if log.recovery is not None}
    for offset in sorted(set(indexed) - judged):
        if any(base <= offset < end for base, end in ends.items()):
            continue
        if offset < first:
            yield offset, _GONE_FROM_BEGINNING
            continue
        finding = _MISSING_AT_END if offset > last else _MERGED if compacted else _MISSING_BETWEEN
        yield offset, replace(finding, consequence=f"{finding.consequence}; {_in_no_log(offset, logs)}")


def missing_at_end(last: int, end: int | None, indexed: Collection[int]) -> Iterator[tuple[int, Finding]]:
    """Logs after the last one that are missing though their indexes are there, where no log was read.

    Args:
        last: base offset of the last log.
        end: the offset at which that ends; None where it is not known.
        indexed: base offsets of the offset indexes of logs that are not there.
    """
    for offset in sorted(indexed):
        if offset > last:
            lacking = f"offsets from {offset if end is None else end} on are in no log"
            yield offset, replace(_MISSING_AT_END, consequence=f"{_MISSING_AT_END.consequence}; {lacking}")


def _in_no_log(offset: int, logs: Sequence[AuditedLog]) -> str:
    """Which offsets are missing where a log is that began at an offset."""
    ends = [log.recovery.next_offset for log in logs if log.base_offset < offset and log.recovery is not None]
    first = max(ends, default=offset)
    following = min((log.base_offset for log in logs if log.base_offset > offset), default=None)
    return f"offsets {f'from {first} on' if following is None else f'{first} to {following - 1}'} are in no log"


_MISSING_BETWEEN: Final = Finding(
    file=segment_files.LOG_SUFFIX,
    verdict=Verdict.BROKEN,
    reason=MISSING,
    detail="its .index is there, its log is not, and others before and after it are",
    consequence="its records are missing: retention deletes at the beginning, and compaction has not merged it",
    fate=Fate(),
)
#: The cleaner merges segments into the one before, and may leave no record of theirs.
_MERGED: Final = replace(
    _MISSING_BETWEEN, verdict=Verdict.SAFE, consequence="compaction may have merged it into the log before"
)
#: Retention keeps the last segment, or begins another after it; and the cleaner does not touch it.
_MISSING_AT_END: Final = replace(
    _MISSING_BETWEEN,
    detail="its .index is there, its log is not, and the logs before it are",
    consequence="its records are missing, if no broker has truncated the log: neither retention nor compaction removes "
    "the last segment",
)
#: As retention leaves them until somebody removes indexes that nothing needs.
_GONE_FROM_BEGINNING: Final = replace(
    _MISSING_BETWEEN,
    verdict=Verdict.SAFE,
    reason="gone",
    detail="its .index is there, its log is not, nor any before it",
    consequence="the log was deleted by retention, or is lost: leader-epoch-checkpoint beside the logs tells which, if "
    "it begins there",
)


def may_be_compacted(logs: Sequence[AuditedLog]) -> bool:
    """Whether some log has fewer records than offsets, or wrappers that hide how many it has."""
    recoveries = [(log.base_offset, log.recovery) for log in logs if log.recovery is not None]
    return any(
        found.records is None or found.records < found.next_offset - base_offset for base_offset, found in recoveries
    )


def swapped_in(logs: Sequence[AuditedLog], simulation: StartupSimulation) -> Iterator[tuple[int, Finding]]:
    """Logs that get their names when a broker starts. No scan has seen them."""
    judged = {log.base_offset for log in logs}
    for segment in simulation.segments:
        swapped = (
            f"{segment_files.segment_file(segment.base_offset, segment_files.LOG_SUFFIX)}{segment_files.SWAP_SUFFIX}"
        )
        if segment.base_offset not in judged and swapped in simulation.renamed:
            yield (
                segment.base_offset,
                Finding(
                    file=segment_files.LOG_SUFFIX,
                    verdict=Verdict.BROKEN,
                    reason="not-checked",
                    detail=f"{swapped} takes its place when a broker starts, and was not read",
                    consequence="whether its records are whole is not known; audit it again once it has its name",
                    fate=Fate(),
                ),
            )
