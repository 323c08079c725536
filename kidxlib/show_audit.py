"""What an audit found: rows for tables and JSON, their counts, and how both are shown. `kidx verify` and the job
verify_index say the same.
"""

from __future__ import annotations

import enum
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from rich.filesize import decimal

from kidxlib.audit import Fate, Finding, Verdict
from kidxlib.command import ExitCode
from kidxlib.console import note, print_json, print_line, print_table, rate
from kidxlib.names import LEADER_EPOCH_CHECKPOINT, LOG_SUFFIX, segment_file
from kidxlib.plan import PartitionKey
from kidxlib.startup import HOLDS_FOR, Action, SegmentForecast
from kidxlib.storage import version_at
from kidxlib.verify import AuditedPartition, AuditedSegment, PartitionAudit

#: Of a kind, what is told on screen one by one.
SHOWN: Final = 20

#: Bytes a second that a broker reads when it recovers, where nobody says so: the less of what was measured.
START_RATE_DEFAULT: Final = 250_000_000

#: What becomes of segments without anything being lost.
NOTHING_LOST: Final = (Action.LOAD, Action.REBUILD)
#: What becomes of those of which no more may be lost than a torn end; the verdict on the log says whether it is.
_JUDGED_BY_LOG: Final = (*NOTHING_LOST, Action.CUT)

#: Verdicts on logs, and on other files, in the order in which they are shown.
_OF_LOGS: Final = (Verdict.WHOLE, Verdict.SAFE, Verdict.TORN, Verdict.BROKEN)
_OF_SIDE_FILES: Final = (Verdict.IDENTICAL, Verdict.SAFE, Verdict.BROKEN)

#: The numbers in a row of `Kind.SEGMENT`.
COUNTED: Final = ("log_bytes", "read_bytes", "lost_bytes", "lost_records")

#: Verdicts of which something is told.
WORST_FIRST: Final = (Verdict.BROKEN, Verdict.TORN, Verdict.SAFE)

#: Those that are nothing to pass over.
DAMAGE: Final = (Verdict.BROKEN, Verdict.TORN)

#: Where index files were looked for, when no place was given.
BESIDE_LOGS: Final = "beside the logs"

#: A row by its columns, which begin with source, topic and partition.
Row: TypeAlias = dict[str, Any]


class Kind(enum.StrEnum):
    """The rows that an audit leaves, and where they stand in its JSON object."""

    FILE = "files"  # each file, the logs too: what is to be said of it
    SEGMENT = "startup"  # each segment: what a broker would do with it
    PARTITION = "partitions"  # likewise each partition
    NOT_READY = "not_ready"  # segments that are not ready for tiered storage


def rows_of_segment(source: str, task: PartitionAudit, audited: AuditedSegment) -> Iterable[tuple[Kind, Row]]:
    """What is known of a segment when it was read."""
    for finding in audited.findings:
        yield Kind.FILE, _file(source, task, audited.base_offset, finding)


def rows_of_partition(source: str, task: PartitionAudit, audited: AuditedPartition) -> Iterable[tuple[Kind, Row]]:
    """What is known of a partition when all of its segments were."""
    for found in audited.findings:
        yield Kind.FILE, _file(source, task, found.base_offset, found.finding)
    forecast = audited.forecast
    key = _key(source, task)
    for segment in forecast.segments:
        yield Kind.SEGMENT, {**key, **_segment(segment)}
    yield (
        Kind.PARTITION,
        {
            **key,
            "folder": str(task.folder),
            "clean_shutdown": task.last_stop.clean_shutdown,
            "log_start_offset": forecast.log_start_offset,
            "log_end_offset": forecast.log_end_offset,
            "failure": "\n".join(forecast.failures) or None,
            "removed": [{"file": name, "why": why.value} for name, why in forecast.removed.items()],
            "renamed": forecast.renamed,
        },
    )
    for each in audited.not_ready or ():
        yield Kind.NOT_READY, {**key, "base_offset": each.base_offset, "missing": list(each.missing)}


def _key(source: str, task: PartitionAudit) -> Row:
    return {"source": source, "topic": task.topic_partition.topic, "partition": task.topic_partition.partition}


def _file(source: str, task: PartitionAudit, base_offset: int, finding: Finding) -> Row:
    name = finding.file if finding.file == LEADER_EPOCH_CHECKPOINT else segment_file(base_offset, finding.file)
    path = (task.folder if finding.file == LOG_SUFFIX else task.index_folder) / name
    # Which state of the file this was found in: whoever accepts it accepts no other.
    version = version_at(path) if finding.verdict in DAMAGE else None
    return {
        **_key(source, task),
        "base_offset": base_offset,
        "file": finding.file,
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "position": finding.position,
        "detail": finding.detail,
        "consequence": finding.consequence,
        **asdict(finding.fate or Fate()),
        "path": str(path),
        "file_bytes": version and version.size,
        "file_mtime_ns": version and version.mtime_ns,
        "file_inode": version and version.inode,
    }


def _segment(segment: SegmentForecast) -> Row:
    return {
        "base_offset": segment.base_offset,
        "action": segment.action.value,
        "log_bytes": segment.log_bytes,
        "read_bytes": segment.read_bytes,
        "lost_bytes": segment.lost_bytes,
        "lost_batches": segment.lost_batches,
        "lost_records": segment.lost_records,
        "detail": segment.detail,
    }


def broken_files(files: Iterable[Row]) -> dict[PartitionKey, frozenset[str]]:
    """Names of the side files that were found broken, by partition; of logs there is nothing to be made anew.

    Args:
        files: rows of `Kind.FILE`.
    """
    broken: dict[PartitionKey, set[str]] = defaultdict(set)
    for row in files:
        if row["verdict"] == Verdict.BROKEN and row["file"] != LOG_SUFFIX:
            broken[row["source"], row["topic"], row["partition"]].add(os.path.basename(row["path"]))
    return {key: frozenset(names) for key, names in broken.items()}


def say_broken_logs(paths: Iterable[str]) -> int:
    """Say of which logs a repair of index files does not mend; how many there are."""
    broken = sorted(paths)
    if broken:
        more = f", and {len(broken) - 1:,} more" if len(broken) > 1 else ""
        note(f"broken, and no repair of index files mends it: {broken[0]}{more}; kidx verify says what is wrong")
    return len(broken)


# ---- counts ----


@dataclass(slots=True)
class ActionCounts:
    """Segments with which a broker would do one thing.

    Attributes:
        lost_records: of those of which it is known.
    """

    segments: int = 0
    log_bytes: int = 0
    read_bytes: int = 0
    lost_bytes: int = 0
    lost_records: int = 0


@dataclass(slots=True)
class AuditSummary:
    """What an audit comes to. Of what is told one by one, `SHOWN` rows at least.

    Attributes:
        many_sources: rows are told with the names of theirs.
        files: side files and logs, by suffix and verdict.
        told: those of which there is something to be said, the worst first, and logs before side files.
        actions: segments, by what a broker would do with them.
        lost: those of which something is lost.
        starts: partitions, by whether their broker stopped cleanly.
        failures: what keeps a broker from starting, besides segments; of a log dir as a whole it is there once.
        removed: files that a broker would remove, by why.
        not_ready: segments that are not ready for tiering; None where nobody asked.
    """

    many_sources: bool = False
    files: Counter[tuple[str, str]] = field(default_factory=Counter)
    told: list[Row] = field(default_factory=list)
    actions: dict[str, ActionCounts] = field(default_factory=dict)
    lost: list[Row] = field(default_factory=list)
    starts: Counter[bool] = field(default_factory=Counter)
    failures: dict[str, None] = field(default_factory=dict)
    removed: Counter[str] = field(default_factory=Counter)
    not_ready: list[Row] | None = None
    not_ready_count: int = 0

    @classmethod
    def of(cls, rows: Mapping[Kind, Sequence[Row]], *, tiering: bool) -> AuditSummary:
        """Of rows that are all at hand, in their order."""
        summary = cls()
        for row in rows[Kind.FILE]:
            summary.files[row["file"], row["verdict"]] += 1
        for verdict in WORST_FIRST:
            told = [row for row in rows[Kind.FILE] if row["verdict"] == verdict]
            summary.told += sorted(told, key=lambda row: row["file"] != LOG_SUFFIX)
        for row in rows[Kind.SEGMENT]:
            summary.add_action(row["action"], 1, **{name: row[name] or 0 for name in COUNTED})
        summary.lost = [row for row in rows[Kind.SEGMENT] if row["action"] not in NOTHING_LOST]
        for row in rows[Kind.PARTITION]:
            summary.add_start(row)
        if tiering:
            summary.not_ready, summary.not_ready_count = list(rows[Kind.NOT_READY]), len(rows[Kind.NOT_READY])
        return summary

    def add_action(
        self, action: str, segments: int, log_bytes: int, read_bytes: int, lost_bytes: int, lost_records: int
    ) -> None:
        counts = self.actions.setdefault(action, ActionCounts())
        counts.segments += segments
        counts.log_bytes += log_bytes
        counts.read_bytes += read_bytes
        counts.lost_bytes += lost_bytes
        counts.lost_records += lost_records

    def add_start(self, row: Row) -> None:
        """Add a row of `Kind.PARTITION`."""
        self.starts[row["clean_shutdown"]] += 1
        self.removed.update(each["why"] for each in row["removed"])
        self.failures.update(dict.fromkeys(_failures(row)))

    def name(self, row: Row) -> str:
        """What a person calls the segment of a row."""
        source = f"{row['source']}: " if self.many_sources else ""
        return f"{source}{row['topic']}-{row['partition']} {row['base_offset']}"

    @property
    def read_bytes(self) -> int:
        """What a broker would read to recover segments."""
        return sum(counts.read_bytes for counts in self.actions.values())

    @property
    def told_count(self) -> int:
        return sum(count for (_, verdict), count in self.files.items() if not Verdict(verdict).is_well)

    @property
    def lost_count(self) -> int:
        return sum(counts.segments for action, counts in self.actions.items() if action not in NOTHING_LOST)

    def logs(self, verdict: Verdict) -> int:
        """How many logs have a verdict."""
        return self.files[LOG_SUFFIX, verdict.value]

    def exit_code(self, fail_on: Verdict) -> ExitCode:
        """What `--fail-on` makes of it. That something is lost at the next start but a torn end always counts."""
        fails = any(
            count and Verdict(verdict).severity >= fail_on.severity for (_, verdict), count in self.files.items()
        )
        loses = any(counts.segments for action, counts in self.actions.items() if action not in _JUDGED_BY_LOG)
        return ExitCode.NOT_WELL if fails or loses or self.failures or self.not_ready_count else ExitCode.OK


# ---- on screen and as JSON ----


def show_json(rows: Mapping[Kind, Sequence[Row]], summary: AuditSummary, start_rate: int, **more: object) -> None:
    """Print the JSON object; `more` stands in it too."""
    shown = {kind.value: rows[kind] for kind in Kind if kind is not Kind.NOT_READY or summary.not_ready is not None}
    start = {
        "start_bytes": summary.read_bytes,
        "start_seconds": summary.read_bytes / start_rate,
        "start_holds_for": list(HOLDS_FOR),
    }
    print_json({**more, **shown, **start})


def show_summary(title: str, summary: AuditSummary, start_rate: int, looked_in: Sequence[str]) -> None:
    """Print what was found, the worst first, and what a broker would do at its next start.

    Args:
        looked_in: where index files were looked for.
    """
    print_table(
        title,
        ("log", *(verdict.value for verdict in _OF_LOGS)),
        [[LOG_SUFFIX, *(summary.logs(verdict) for verdict in _OF_LOGS)]],
        text_columns=1,
    )
    suffixes = sorted({suffix for suffix, _ in summary.files} - {LOG_SUFFIX})
    rows: list[list[str | int]] = [
        [suffix, *(summary.files[suffix, verdict.value] for verdict in _OF_SIDE_FILES)] for suffix in suffixes
    ]
    print_line(f"index files: {', '.join(looked_in[:SHOWN])}")
    print_table("", ("side file", *(verdict.value for verdict in _OF_SIDE_FILES)), rows, text_columns=1)
    for row in summary.told[:SHOWN]:
        what = row["detail"] or "no such file"
        at = f" at byte {row['position']}" if row["file"] == LOG_SUFFIX and row["position"] is not None else ""
        print_line(f"{row['verdict']}: {summary.name(row)} {row['file']}: {row['reason']}{at}: {what}")
        print_line(f"  {row['consequence']}")
    _print_more(summary.told_count)
    _show_start(summary, start_rate)
    if summary.not_ready is not None:
        for row in summary.not_ready[:SHOWN]:
            print_line(f"not ready for tiering: {summary.name(row)}: {'; '.join(row['missing'])}")
        _print_more(summary.not_ready_count)
        if not summary.not_ready_count:
            print_line("ready for tiering: all inactive segments")


def _show_start(summary: AuditSummary, start_rate: int) -> None:
    print_table(
        f"a broker's next start (partitions after a clean stop: {summary.starts[True]:,}, after an unclean one: "
        f"{summary.starts[False]:,})",
        ("it would", "segments", "bytes", "bytes read", "bytes lost", "records lost"),
        [
            (action.value, *(getattr(counts, name) for name in ActionCounts.__dataclass_fields__))
            for action in Action
            if (counts := summary.actions.get(action.value)) is not None
        ],
        text_columns=1,
    )
    for failure in list(summary.failures)[:SHOWN]:
        print_line(f"{Action.FAIL}: {failure}")
    _print_more(len(summary.failures))
    for row in summary.lost[:SHOWN]:
        records = "an unknown number of records" if row["lost_records"] is None else f"{row['lost_records']:,} records"
        print_line(
            f"{row['action']}: {summary.name(row)}: {row['lost_bytes']:,} of {row['log_bytes']:,} bytes, {records}"
        )
        print_line(f"  {row['detail']}")
    _print_more(summary.lost_count)
    for why, count in sorted(summary.removed.items()):
        print_line(f"removed: {count:,} × {why}")
    if summary.read_bytes:
        seconds = summary.read_bytes / start_rate
        takes = f"about {seconds:,.0f} s at {rate(start_rate, 1)}" if seconds >= 1 else "less than a second"
        print_line(f"it would read {decimal(summary.read_bytes)}: {takes}")
    print_line(f"told for Kafka {HOLDS_FOR[0]} to {HOLDS_FOR[-1]}")


def _failures(row: Row) -> Iterable[str]:
    """Of a row of `Kind.PARTITION`, each with the place that it is about."""
    folder = row["folder"]
    for failure in row["failure"].split("\n") if row["failure"] else ():
        yield failure if failure.startswith(f"{os.path.dirname(folder)}/") else f"{folder}: {failure}"


def _print_more(count: int) -> None:
    if count > SHOWN:
        print_line(f"… and {count - SHOWN:,} more; --json has them all")
