"""What a person should look at, put together from all sections: the first thing that the page says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit import finding
from kidxlib.audit.finding import DAMAGE
from kidxlib.operations.compare.replicas.verdict import Verdict
from kidxlib.operations.damage.lost import EMPTY_LOG
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

_DAY_MS: Final = 24 * 3_600_000


class Severity(StrEnum):
    """How much it matters."""

    BAD = "bad"  # data is lost, wrong, or will be
    WARNING = "warning"  # something is not as somebody would expect it
    UNKNOWN = "unknown"  # nobody has looked


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing to look at.

    Attributes:
        place: what says more: a page of the report, or a page and a table on it.
        title: what it is, in one line.
        detail: which, the first of them, and what follows from it.
        is_missing: offsets are not there that a log had, and nobody has accepted that; or two log dirs of a broker have
            a partition; or all of a log dir is counted twice.
        is_damage: a build or an audit has found a file damaged or broken, and nobody has accepted it.
    """

    severity: Severity
    place: str
    title: str
    detail: str
    is_missing: bool = False
    is_damage: bool = False


def attention(sections: dict[str, Any], now_ms: int) -> list[dict[str, Any]]:
    """All that is to be looked at, what is bad first.

    Args:
        sections: of the report, by name.
        now_ms: the report's time, ms since the epoch.
    """
    found = [
        *_of_health(sections["health"]),
        *_of_lost(sections["health"]),
        *_of_sources(sections["health"]),
        *_of_replicas(sections["replicas"], sections["health"]),
        *_of_retention(sections["retention"]),
        *_of_shape(sections["shape"]),
        *_of_audits(sections["health"], sections["builds"]),
        *_of_builds(sections["builds"], sections["overview"], now_ms),
    ]
    order = list(Severity)
    return [asdict(each) for each in sorted(found, key=lambda each: order.index(each.severity))]


def _of_health(health: dict[str, Any]) -> list[Attention]:
    found = []
    not_accepted = health["not_accepted"]
    if segments := not_accepted["damaged"]:
        first = health["damaged"][0]  # those that are accepted are listed last
        detail = f"{_segment(first)}: {first['status']}, {first['reason']}"
        found.append(
            Attention(Severity.BAD, "health/damaged", f"{counted(segments, 'segment')} damaged", detail, is_damage=True)
        )
    if gaps := [row for row in health["lost_gaps"] if not row["is_accepted"]]:
        first = gaps[0]
        detail = f"{first['topic']}-{first['partition']} of {first['source']}: {first['detail']}: {first['reason']}. "
        detail += _sentence(first["consequence"])
        title = f"{counted(len(gaps), 'gap')} between logs"
        found.append(Attention(Severity.BAD, "health/lost_gaps", title, detail, is_missing=True))
    for verdict in DAMAGE:
        if files := not_accepted[verdict.value]:
            row = next((row for row in health["files"] if row["verdict"] == verdict and not row["is_accepted"]), None)
            detail = "" if row is None else _file(row)  # a thousand are listed
            title, is_missing = f"{counted(files, 'file')} {verdict}", bool(not_accepted[f"{verdict}_missing"])
            is_damage = verdict is finding.Verdict.BROKEN
            found.append(Attention(Severity.BAD, "health/files", title, detail, is_missing, is_damage))
    if findings := health["broken_remote_files"]:
        row = health["remote_files"][0]  # broken ones are listed first
        detail = f"{row['topic']}-{row['partition']}, remote segment at {row['start_offset']}: {row['file']} "
        detail += f"{row['reason']}. {_sentence(row['consequence'])}"
        title = f"{counted(findings, 'finding')} in tiered storage"
        found.append(Attention(Severity.BAD, "health/remote_files", title, detail, is_damage=True))
    if health["not_audited"]:
        names = health["not_audited"]
        detail = f"{_names(names)}: no index file was compared with its log"
        title = f"{counted(len(names), 'source')} never audited"
        found.append(Attention(Severity.UNKNOWN, "health/verdicts", title, detail))
    if partly := health["partly_audited"]:
        names = [f"{row['partitions']:,} of {row['source']}" for row in partly]
        title = f"{counted(sum(row['partitions'] for row in partly), 'partition')} never audited"
        found.append(Attention(Severity.UNKNOWN, "health/verdicts", title, f"{_names(names)}: nobody has looked"))
    return found


def _of_lost(health: dict[str, Any]) -> list[Attention]:
    """What log dirs had by their checkpoints and the metadata. An end that an audit has found is among its files."""
    found = []
    if missing := health["partitions_missing"]:
        kinds = [[row for row in missing if row["has_directory"] == there] for there in (False, True)]
        details = [f"{_names(list(map(_with_end, rows)))}: {rows[0]['detail']}" for rows in kinds if rows]
        detail = f"{'; '.join(details)}. {_sentence(EMPTY_LOG)}"
        title = f"{counted(len(missing), 'partition')} missing"
        found.append(Attention(Severity.BAD, "health", title, detail, is_missing=True))
    if twice := health["partitions_twice"]:
        row = twice[0]
        detail = f"{row['topic']}-{row['partition']}: {row['detail']}. {_sentence(row['consequence'])}"
        title = f"{counted(len(twice), 'partition')} in two log dirs of a broker"
        found.append(Attention(Severity.BAD, "health", title, detail, is_missing=True))
    if misnamed := health["partitions_misnamed"]:
        row = misnamed[0]
        detail = f"{row['topic']}-{row['partition']}: {row['detail']}. {_sentence(row['consequence'])}"
        title = f"{counted(len(misnamed), 'directory', 'directories')} with another partition's name"
        found.append(Attention(Severity.BAD, "health", title, detail, is_missing=True))
    if older := health["log_dirs_older"]:
        title = f"{counted(len(older), 'log dir')} older than others of the broker"
        found.append(Attention(Severity.BAD, "health", title, _sentence(older[0]["detail"]), is_missing=True))
    if lines := health["log_dirs_maybe_older"]:
        title = f"{counted(len(lines), 'log dir')} perhaps of another time than others of the broker"
        found.append(Attention(Severity.UNKNOWN, "health", title, _sentence(lines[0])))
    audited = {(row["path"], row["reason"]) for row in health["files"]}
    starts = [row for row in health["first_logs_missing"] if row["accepted_by"] is None]
    if starts := [row for row in starts if (row["path"], row["reason"]) not in audited]:
        row = starts[0]
        detail = f"{row['topic']}-{row['partition']} of {row['source']}: {row['detail']}. "
        title = f"{counted(len(starts), 'partition')} without first logs"
        attention_on = Attention(Severity.BAD, "health", title, detail + _sentence(row["consequence"]), is_missing=True)
        found.append(attention_on)
    if ends := [row for row in health["ends_below"] if (row["path"], row["reason"]) not in audited]:
        row = ends[0]
        detail = (
            f"{row['topic']}-{row['partition']} of {row['source']}: {row['detail']}. {_sentence(row['consequence'])}"
        )
        title = f"{counted(len(ends), 'log')} ending below a checkpoint"
        found.append(Attention(Severity.BAD, "health", title, detail, is_missing=True))
    return found


def _of_sources(health: dict[str, Any]) -> list[Attention]:
    """Sources in which nobody could look, and those that are there twice."""
    found = []
    if twice := health["sources_twice"]:
        row = twice[0]
        detail = f"{row['source']} and {row['other']} are {row['path']}: this report counts it twice; "
        detail += "kidx forget-source takes one of them out of the catalog"
        title = f"{counted(len({row['other'] for row in twice}), 'source')} there under another name"
        found.append(Attention(Severity.BAD, "health", title, detail, is_missing=True))
    for is_empty, severity, called in ((True, Severity.BAD, "empty"), (False, Severity.UNKNOWN, "not reached")):
        if rows := [row for row in health["not_reached"] if row["is_empty"] == is_empty]:
            names = [f"{row['source']} ({row['path']})" for row in rows]
            detail = f"{_names(names)}: {rows[0]['why']} Nobody has looked for partitions and ends of logs that are "
            detail += "missing; kidx verify --catalog tells where the log dir is by now"
            title = f"{counted(len(rows), 'source')} {called}"
            found.append(Attention(severity, "health", title, detail, is_missing=is_empty))
    if rows := health["not_built"]:
        details = [f"{row['partitions']:,} of {row['of']:,} in {row['path']} of {row['source']}" for row in rows]
        detail = (
            f"{_names(details)}: left out by --topics, or newer than the last build; this report says nothing of them"
        )
        title = f"{counted(sum(row['partitions'] for row in rows), 'partition')} in no build"
        found.append(Attention(Severity.UNKNOWN, "health", title, detail))
    return found


def _with_end(row: dict[str, Any]) -> str:
    """A partition that is missing, and up to where it is known to have gone."""
    end = f" (offsets up to {row['known_end'] - 1})" if row["known_end"] else ""
    return f"{row['topic']}-{row['partition']} of {row['source']}{end}"


def _of_audits(health: dict[str, Any], builds: dict[str, Any]) -> list[Attention]:
    """Sources that were built after they were last audited: of what has come since no audit knows."""
    built: dict[str, int] = {}
    for build in builds["builds"]:
        for source in build["sources"]:
            built[source] = max(build["started_ms"], built.get(source, 0))
    old = [row for row in health["verdicts"] if row["audited_ms"] < built.get(row["source"], 0)]
    if not old:
        return []
    names = [row["source"] for row in old]
    detail = f"{_names(names)}: what audits say is older than the logs; "
    detail += "kidx verify looks again"
    title = f"{counted(len(old), 'source')} not audited since the last build"
    return [Attention(Severity.UNKNOWN, "health/verdicts", title, detail)]


#: What is said of replicas that have these verdicts, and how bad it is.
_OF_REPLICAS: Final = (
    ((Verdict.DIFFERS, Verdict.EPOCHS_DISAGREE), Severity.BAD, "diverged"),
    ((Verdict.LACKS,), Severity.BAD, "with offsets missing"),
    ((Verdict.BEHIND,), Severity.WARNING, "behind"),
)


def _of_replicas(replicas: dict[str, Any], health: dict[str, Any]) -> list[Attention]:
    found = []
    accepted = [row for row in health["lost_gaps"] if row["is_accepted"]]
    for verdicts, severity, what in _OF_REPLICAS:
        rows = [row for row in replicas["partitions"] if row["verdict"] in verdicts and not _is_in(row, accepted)]
        if rows:
            detail = f"{rows[0]['topic']}-{rows[0]['partition']}: {rows[0]['sentence']}"
            title, is_missing = f"{counted(len(rows), 'replica')} {what}", Verdict.LACKS in verdicts
            found.append(Attention(severity, "replicas/replicas", title, detail, is_missing=is_missing))
    damaged = [row for row in replicas["partitions"] if row["damaged"]]
    if damaged:
        detail = f"{damaged[0]['topic']}-{damaged[0]['partition']}: {damaged[0]['sentence']}"
        title = f"{counted(len(damaged), 'replica')} not compared to the end"
        found.append(Attention(Severity.UNKNOWN, "replicas/replicas", title, detail))
    for row in replicas["missing"]:
        names = _names(row["partitions"])
        detail = f"source {row['source']} lacks {names}, which {row['compared_with']} has; a copy should have them, "
        detail += "another broker need not"
        title = f"{counted(row['count'], 'partition')} of {row['of']:,} missing in {row['source']}"
        found.append(Attention(Severity.UNKNOWN, "replicas/missing", title, detail))
    return found


def _is_in(row: dict[str, Any], gaps: list[dict[str, Any]]) -> bool:
    """Whether all that a replica lacks is in one of these gaps."""
    if row["verdict"] != Verdict.LACKS or (lacks := row["lacks"]) is None:
        return False
    return any(
        (gap["source"], gap["topic"], gap["partition"]) == (lacks["source"], row["topic"], row["partition"])
        and gap["first_offset"] <= lacks["first_offset"]
        and lacks["last_offset"] <= gap["last_offset"]
        for gap in gaps
    )


def _of_retention(retention: dict[str, Any]) -> list[Attention]:
    found = []
    if rows := retention["future"]:
        row = rows[0]
        later = f"{counted(row['later_segments'], 'later segment')} of {decimal(row['later_bytes'])}"
        detail = f"{_segment(row)} has the timestamp {show_time(row['max_timestamp_ms'])}: until then retention.ms "
        detail += f"deletes neither it nor the {later}"
        title = f"{counted(retention['future_segments'], 'segment')} with a timestamp in the future"
        found.append(Attention(Severity.BAD, "retention/future", title, detail))
    unknown = [row for row in retention["topics"] if row["configured"]["unknown"] and not row["kept"]]
    if unknown:
        configured = unknown[0]["configured"]
        detail = (
            f"{unknown[0]['topic']}: {', '.join(configured['unknown'])} were not given; {configured['remedy']}, and "
        )
        detail += "the report says what is deleted by it"
        title = f"{counted(len(unknown), 'topic')} whose retention is not known"
        found.append(Attention(Severity.UNKNOWN, "retention/configured", title, detail))
    return found


def _of_shape(shape: dict[str, Any]) -> list[Attention]:
    rows = [row for row in shape["topics"] if row["has_small_batches"]]
    if not rows:
        return []
    row = max(rows, key=lambda row: row["batches"])
    detail = f"{row['topic']}: {row['batches']:,} batches of {row['bytes_a_batch']:,.0f} bytes on average, of which "
    detail += f"{row['header_share']:.0%} are headers. A producer with linger.ms and a larger batch.size writes fewer"
    best = next((each["best"] for each in shape["savings"] if each["topic"] == row["topic"]), None)
    if best is not None:
        detail += f": {best['codec']} and {best['batch_size']:,} bytes would have saved {best['saved']:.0%} of a sample"
    return [Attention(Severity.WARNING, "shape/shape", f"{counted(len(rows), 'topic')} of small batches", detail)]


def _of_builds(builds: dict[str, Any], overview: dict[str, Any], now_ms: int) -> list[Attention]:
    found = []
    if not overview["segments"]:
        detail = "no build has recorded any, or their sources were forgotten: run a build"
        found.append(Attention(Severity.UNKNOWN, "overview", "the catalog has no segments", detail))
    changes = overview["changes"]
    if changes is not None and changes["gone_segments"]:
        title = f"{counted(changes['gone_segments'], 'segment')} gone since the build before"
        detail = f"{decimal(changes['gone_bytes'])}: deleted by retention, or lost"
        found.append(Attention(Severity.WARNING, "overview", title, detail))
    if builds["builds"]:
        age_ms = now_ms - builds["builds"][0]["started_ms"]
        if age_ms > _DAY_MS:
            title = f"the last build is {counted(age_ms // _DAY_MS, 'day')} old"
            detail = "what brokers have written, deleted or damaged since is not in this report"
            found.append(Attention(Severity.UNKNOWN, "builds/builds", title, detail))
    return found


def _segment(row: dict[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}/{row['base_offset']:020}"


def _file(row: dict[str, Any]) -> str:
    name = row["file"] if row["file"].startswith(".") else f" {row['file']}"
    return f"{_segment(row)}{name}: {row['reason']}. {_sentence(row['consequence'])}"


def _names(names: list[str]) -> str:
    """The first names."""
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


def _sentence(text: str | None) -> str:
    return text or "nothing follows from it for brokers"
