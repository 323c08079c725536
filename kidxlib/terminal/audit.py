"""Shows the findings of an audit on screen and as JSON, for `kidx verify` and the job verify_index."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.finding import PROMISES_OTHER_END, Verdict
from kidxlib.audit.gaps import GAP, Evidence, FoundGaps
from kidxlib.audit.rows import AuditRows, RowKind
from kidxlib.audit.startup.simulation import HOLDS_FOR, Removal, StartupAction
from kidxlib.audit.summary import ActionCounts, AuditSummary, FilesAlike
from kidxlib.catalog.findings import JudgedFile
from kidxlib.catalog.results import NotReadyRow
from kidxlib.catalog.rows import Row
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kidxlib.terminal.console import MORE_IN_JSON, note, rate
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.terminal.run_summary import gap_lines
from kidxlib.text.words import counted

#: How many bytes a second a broker reads when it recovers: the lowest figure that was measured.
START_RATE: Final = 250_000_000

#: The verdicts on logs and on index files, in the order of the columns.
_LOG_VERDICTS: Final = (Verdict.WHOLE, Verdict.SAFE, Verdict.TORN, Verdict.BROKEN)
_INDEX_FILE_VERDICTS: Final = (Verdict.IDENTICAL, Verdict.SAFE, Verdict.BROKEN)

#: Shown as the place of index files if no other place was given.
BESIDE_LOGS: Final = "beside the logs"

#: The files that a broker would remove, in the singular and the plural.
_REMOVED: Final = {
    Removal.DELETED: ("file marked .deleted", "files marked .deleted"),
    Removal.CLEANED: ("file left unfinished by the cleaner", "files left unfinished by the cleaner"),
    Removal.SWAP: ("file of a swap that was not complete", "files of swaps that were not complete"),
    Removal.SWAPPED: ("file in whose place another is swapped", "files in whose place others are swapped"),
    Removal.ORPHAN: ("index file without a log", "index files without a log"),
}

#: Evidence that the cleaner has made a gap, in words.
_CLEANER_EVIDENCE: Final = {
    Evidence.POLICY: "cleanup.policy",
    Evidence.KAFKAS_OWN: "their names",
    Evidence.LACKING_WITHIN: "offsets missing within logs",
    Evidence.CLEANERS_FILES: "files of the cleaner",
}


def start_takes(size: int) -> str:
    """How long a starting broker takes to read a number of bytes, in words for an audit's lines on screen."""
    seconds = size / START_RATE
    return f"about {seconds:,.0f} s at {rate(START_RATE, 1)}" if seconds >= 1 else "less than a second"


def say_before_repair(broken: Iterable[JudgedFile]) -> int:
    """Print, from an audit's findings, which indexes a repair will shorten to fit their logs, and which logs it does
    not mend. Such an index may be the only trace of records that its log has lost. Return the number of broken logs.
    """
    files = sorted(broken, key=lambda file: file.path)
    shortened = [file for file in files if file.reason == PROMISES_OTHER_END]
    for file in shortened[:LINES_SHOWN]:
        note(f"made to fit its log: {file.path}: {file.detail}; if a broker had that offset, look for it on a replica")
    logs = [file.path for file in files if file.file == LOG_SUFFIX]
    if logs:
        more = f", and {len(logs) - 1:,} more" if len(logs) > 1 else ""
        note(f"broken, and no repair of index files mends it: {logs[0]}{more}; kidx verify says what is wrong")
    return len(logs)


def audit_as_json(all_rows: Callable[[], AuditRows], summary: AuditSummary) -> dict[str, Any]:
    """The findings of an audit as values of the JSON object that its command prints. Rows are functions, called only
    for JSON; `all_rows` is called at most once.
    """
    by_kind = functools.cache(lambda: all_rows().by_kind())
    kinds = [kind for kind in RowKind if kind is not RowKind.NOT_READY or summary.not_ready is not None]
    return {
        **{kind.value: functools.partial(_rows_of_kind, by_kind, kind) for kind in kinds},
        "start_bytes": summary.read_bytes,
        "start_seconds": summary.read_bytes / START_RATE,
        "start_holds_for": list(HOLDS_FOR),
    }


def _rows_of_kind(by_kind: Callable[[], Mapping[RowKind, Sequence[Row]]], kind: RowKind) -> list[dict[str, Any]]:
    return [row.values() for row in by_kind()[kind]]


def tell_audit_summary(outcome: Outcome, title: str, summary: AuditSummary, looked_in: Sequence[str]) -> None:
    """Show on screen an audit's findings, the worst first, and what a broker would do at its next start. `looked_in`
    names the places where index files were looked for.
    """
    outcome.table(
        title,
        ("log", *(verdict.value for verdict in _LOG_VERDICTS)),
        [[LOG_SUFFIX, *(summary.logs(verdict) for verdict in _LOG_VERDICTS)]],
        text_columns=1,
    )
    if summary.coverage:
        outcome.line(summary.coverage)
    suffixes = sorted({suffix for suffix, _ in summary.files} - {LOG_SUFFIX, GAP})
    rows: list[list[str | int]] = [
        [suffix, *(summary.files[suffix, verdict.value] for verdict in _INDEX_FILE_VERDICTS)] for suffix in suffixes
    ]
    outcome.line(f"index files: {', '.join(looked_in[:LINES_SHOWN])}")
    if summary.not_looked_at:
        outcome.line(summary.not_looked_at)
    outcome.table("", ("file", *(verdict.value for verdict in _INDEX_FILE_VERDICTS)), rows, text_columns=1)
    outcome.first_lines(StartupAction.FAIL, summary.failures)
    outcome.line(*gap_lines(summary.gaps, many_sources=summary.many_sources))
    _tell_compacted(outcome, summary.gaps)
    safe = [kind for kind in summary.together if kind.first.verdict == Verdict.SAFE]
    _tell_kinds(outcome, summary, [kind for kind in summary.together if kind not in safe])
    _tell_reported(outcome, summary)
    _tell_kinds(outcome, summary, safe)
    if safe:
        outcome.line("  --list-safe lists them")
    if summary.missing is not None:
        outcome.line(
            f"{summary.missing.first.verdict}: {counted(summary.missing.segments, 'segment')} without an "
            f"{OFFSET_INDEX_SUFFIX} (the first: {summary.name(summary.missing.first)})"
        )
        outcome.line("  a broker that starts rebuilds the indexes of these segments from their logs")
    logs, unjudged_bytes = summary.in_use
    if logs:
        outcome.line(
            f"in use: {counted(logs, 'log')} of a running broker; {unjudged_bytes:,} bytes, written meanwhile, "
            "not judged"
        )
    if summary.actions or summary.failures:  # for a bucket of tiered storage no start is simulated
        _tell_start(outcome, summary)
    if summary.not_ready is not None:
        _tell_not_ready(outcome, summary, summary.not_ready)


def _tell_not_ready(outcome: Outcome, summary: AuditSummary, not_ready: Sequence[NotReadyRow]) -> None:
    for segment in not_ready[:LINES_SHOWN]:
        outcome.line(f"not ready for tiering: {summary.name(segment)}: {'; '.join(segment.missing)}")
    outcome.add_more_line(summary.not_ready_count - LINES_SHOWN, MORE_IN_JSON)
    if not summary.not_ready_count:
        outcome.line("ready for tiering: all inactive segments")


def _tell_reported(outcome: Outcome, summary: AuditSummary) -> None:
    for file in summary.reported:
        detail = file.detail or "no such file"
        at_byte = f" at byte {file.position}" if file.file == LOG_SUFFIX and file.position is not None else ""
        outcome.line(f"{file.verdict}: {summary.name(file)} {file.file}: {file.reason}{at_byte}: {detail}")
        rebuilt = "; the next start here rebuilds the file from the log" if file.path in summary.rebuilt else ""
        outcome.line(f"  {file.consequence}{rebuilt}")
    outcome.add_more_line(summary.reported_count - len(summary.reported), MORE_IN_JSON)


def _tell_kinds(outcome: Outcome, summary: AuditSummary, kinds: Iterable[FilesAlike]) -> None:
    """Show one line for each kind of files, where the files are too many to name each."""
    for kind in kinds:
        files = ", ".join(f"{count:,} {suffix}" for suffix, count in kind.files.items())
        outcome.line(
            f"{kind.first.verdict}: {kind.reason}: {files} (the first: {summary.name(kind.first)} {kind.first.file})"
        )
        outcome.line(f"  {kind.first.consequence}")


def _tell_compacted(outcome: Outcome, gaps: FoundGaps) -> None:
    """Show how many gaps the cleaner has made, and how that is known."""
    compacted = [gap for gap in gaps.explained if gap.evidence in _CLEANER_EVIDENCE]
    if compacted:
        topics = Counter(evidence for evidence, _ in {(gap.evidence, gap.topic) for gap in compacted})
        known_by = ", ".join(
            f"{words} ({counted(topics[evidence], 'topic')})"
            for evidence, words in _CLEANER_EVIDENCE.items()
            if topics[evidence]
        )
        gap_count = counted(sum(gap.gaps for gap in compacted), "gap")
        outcome.line(f"compacted: {gap_count} between logs, as the cleaner leaves them, known by {known_by}")


def _tell_start(outcome: Outcome, summary: AuditSummary) -> None:
    left_out = f"; not looked at: {summary.not_simulated:,}" if summary.not_simulated else ""
    outcome.table(
        f"a broker's next start (partitions after a clean stop: {summary.starts[True]:,}, after an unclean one: "
        f"{summary.starts[False]:,}{left_out})",
        ("it would", "segments", "bytes", "bytes read", "bytes lost", "whole records lost"),
        [
            (action.value, *(getattr(counts, name) for name in ActionCounts.__dataclass_fields__))
            for action in StartupAction
            if (counts := summary.actions.get(action.value)) is not None
        ],
        text_columns=1,
    )
    for segment in summary.lost[:LINES_SHOWN]:
        count = segment.lost_records
        lost_records = "an unknown number of records" if count is None else f"{count:,} whole records"
        lost_bytes = f"{segment.lost_bytes:,} of {segment.log_bytes:,} bytes"
        outcome.line(f"{segment.action}: {summary.name(segment)}: {lost_bytes}, {lost_records}")
        outcome.line(f"  {segment.detail}")
    outcome.add_more_line(summary.lost_count - LINES_SHOWN, MORE_IN_JSON)
    for reason, count in sorted(summary.removed.items()):
        singular, plural = _REMOVED[Removal(reason)]
        outcome.line(f"a broker will remove: {counted(count, singular, plural)}")
    if summary.read_bytes:
        outcome.line(f"it would read {decimal(summary.read_bytes)}: {start_takes(summary.read_bytes)}")
    outcome.line(f"start-up simulation valid for Kafka {HOLDS_FOR[0]} to {HOLDS_FOR[-1]}")
