"""Health: what builds and audits have found, what it leads to, and which command looks into it or mends it."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kidxlib.audit.finding import DAMAGE, Verdict
from kidxlib.audit.gaps import Gap, range_in
from kidxlib.audit.tiered.remedies import what_to_do
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.damage.gaps import KnownGaps
from kidxlib.operations.recover.fleet.starts import UNFLUSHED
from kidxlib.operations.report.answers import Answers
from kidxlib.operations.report.questions import (
    DAMAGED,
    FOUND,
    GAPS,
    PARTITION_COUNTS,
    REMOTE,
    REMOTE_FOUND,
    TOTALS,
    UNAUDITED,
    VERDICTS,
)
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.text.times import to_ms

_ABSENT: Final = tuple(status.value for status in ABSENT)
#: What is told of a log dir that was not stopped cleanly.
_STARTS: Final = ("source", "partitions", "segments", "log_bytes")
_QUIET: Final = (Status.OK.value, *_ABSENT)


def health_section(answers: Answers, paths: Mapping[str, str], catalog: str, gaps: KnownGaps) -> dict[str, Any]:
    """What is not well, and of what nobody knows.

    Args:
        gaps: between the logs of all sources.
        paths: of sources, by name.
        catalog: its place, for commands.
    """
    counted: Counter[str] = Counter()
    for row in answers[TOTALS]:
        counted[row["status"]] += row["segments"]
    damaged = [_damaged(row, catalog) for row in answers[DAMAGED]]
    files = [_file(row, paths, catalog) for row in answers[FOUND] if not row["is_gap"]]
    return {
        "segments": dict(counted),
        "damaged_segments": sum(count for status, count in counted.items() if status not in _QUIET),
        "damaged": damaged,
        "accepted_segments": answers.count(DAMAGED, is_accepted=True),
        "accepted_files": answers.count(FOUND, is_accepted=True, is_gap=False),
        "not_accepted": {
            "damaged": answers.count(DAMAGED, is_accepted=False),
            **{
                verdict.value: answers.count(FOUND, verdict=verdict.value, is_accepted=False, is_gap=False)
                for verdict in DAMAGE
            },
            **{
                f"{verdict}_missing": answers.count(FOUND, verdict=verdict.value, is_accepted=False, is_missing=True)
                for verdict in DAMAGE
            },
        },
        "broken_remote_files": answers.count(REMOTE_FOUND, verdict=Verdict.BROKEN.value),
        "verdicts": _verdicts(answers),
        "files": files,
        "not_audited": _not_audited(answers),
        "partly_audited": _partly_audited(answers),
        "starts": [{name: row[name] for name in _STARTS} for row in answers[UNFLUSHED] if not row["clean_shutdown"]],
        "losses": [row for row in files if row["lost_bytes"]],
        "gaps": _gaps(answers),
        "lost_gaps": _lost_gaps(gaps, [row for row in answers[FOUND] if row["is_gap"]], catalog),
        "gaps_explained": [each.as_json() for each in gaps.found.explained],
        "borders": gaps.found.borders,
        "borders_unknown": gaps.found.unknown_borders,
        "remote": answers[REMOTE],
        "remote_files": [_remote(row) for row in answers[REMOTE_FOUND]],
    }


def _damaged(row: dict[str, Any], catalog: str) -> dict[str, Any]:
    where = f"{row['topic']}-{row['partition']}/{row['base_offset']}"
    commands = [f"kidx dump {shlex.quote(row['path'])}"]
    if not row["is_accepted"]:
        commands.append(_accept(catalog, row["source"], where))
    return {**row, "commands": commands}


def _file(row: dict[str, Any], paths: Mapping[str, str], catalog: str) -> dict[str, Any]:
    where = f"{row['topic']}-{row['partition']}/{row['base_offset']}"
    source = f"{row['source']}={paths.get(row['source'], 'DIR')}"
    if row["file"] == LOG_SUFFIX:
        commands = [f"kidx dump {shlex.quote(row['path'])}"]
    else:
        target = f"--source {shlex.quote(source)} --catalog {shlex.quote(catalog)}"
        place = "--in-place" if _is_beside_its_log(row["path"], paths.get(row["source"])) else "--index-dir …"
        commands = [f"kidx build --repair {place} {target}", f"kidx verify {target}"]
    if row["file"] == LOG_SUFFIX and not row["is_accepted"]:
        commands.append(_accept(catalog, row["source"], where))
    return {**row, "commands": commands}


def _is_beside_its_log(path: str, source: str | None) -> bool:
    return source is not None and path.startswith(source.rstrip(os.sep) + os.sep)


def _accept(catalog: str, source: str, name: str, option: str = "--segment") -> str:
    quoted = [shlex.quote(each) for each in (catalog, source, name)]
    return f"kidx accept --catalog {quoted[0]} --source {quoted[1]} {option} {quoted[2]} --reason …"


def _lost_gaps(gaps: KnownGaps, audited: Sequence[Mapping[str, Any]], catalog: str) -> list[dict[str, Any]]:
    """Gaps that nothing explains, by what builds know and by what audits have seen since; those that somebody has
    accepted last.

    Args:
        audited: findings on gaps.
    """
    nobody = {"is_accepted": False, "accepted_by": None, "accepted_reason": None}
    found = [{**_gap(gap), **nobody} for gap in gaps.found.lost]
    for each in gaps.accepted:
        by = {"is_accepted": True, "accepted_by": each.accepted_by, "accepted_reason": each.accepted_reason}
        found.append({**_gap(each.gap), **by})
    known = {_identity(row) for row in found}
    found += [_audited_gap(row) for row in audited if _identity(row) not in known]
    for row in found:
        name = f"{row['topic']}-{row['partition']}/{row['first_offset']}-{row['last_offset']}"
        row["commands"] = [] if row["is_accepted"] else [_accept(catalog, row["source"], name, "--gap")]
    return sorted(found, key=lambda row: row["is_accepted"])


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("source", "topic", "partition", "detail"))


def _audited_gap(row: Mapping[str, Any]) -> dict[str, Any]:
    first, _, last = (range_in(row["detail"]) or "").partition("-")
    offsets = {"first_offset": int(first), "last_offset": int(last), "offsets": int(last) - int(first) + 1}
    return {**row, **offsets}


def _gap(gap: Gap) -> dict[str, Any]:
    return {**gap.as_json(), "detail": gap.detail, "consequence": gap.consequence}


def _remote(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "remedy": what_to_do(row["file"], row["reason"])}


def _verdicts(answers: Answers) -> list[dict[str, Any]]:
    """How many files of each source have which verdict, and when the oldest of these audits was."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    audited: dict[str, int] = {}
    for row in answers[VERDICTS]:
        source, at = row["source"], to_ms(row["audited_at"])
        found[source][row["verdict"]] += row["files"]
        audited[source] = min(at, audited.get(source, at))
    return [{"source": source, "audited_ms": audited[source], "files": dict(files)} for source, files in found.items()]


def _not_audited(answers: Answers) -> list[str]:
    audited = {row["source"] for row in answers[VERDICTS]} | {row["source"] for row in answers[REMOTE]}
    return sorted({row["source"] for row in answers[PARTITION_COUNTS] if row["present"]} - audited)


def _partly_audited(answers: Answers) -> list[dict[str, Any]]:
    """Sources of which some partitions were audited, and how many never were."""
    audited = {row["source"] for row in answers[VERDICTS]}
    return [row for row in answers[UNAUDITED] if row["source"] in audited]


def _gaps(answers: Answers) -> list[dict[str, Any]]:
    return [{**row, "offsets": row["next_base_offset"] - row["next_offset"]} for row in answers[GAPS]]
