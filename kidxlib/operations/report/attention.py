"""What a person should look at, put together from all sections (`attention`): the page begins with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.audit.finding import DAMAGE, Verdict
from kidxlib.operations.compare.catalog_replica_verdict import ReplicaRelation
from kidxlib.operations.damage.lost import EMPTY_LOG
from kidxlib.operations.report.sections import audited_before_build, topics_unknown
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

_DAY_MS: Final = 24 * 3_600_000


class Severity(StrEnum):
    BAD = "bad"  # data is lost, wrong, or will be
    WARNING = "warning"  # something is not as expected
    UNKNOWN = "unknown"  # nobody has looked


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing to look at.

    Attributes:
        place: a page of the report that says more, or a page and a table on it.
        title: one line.
        detail: the first of the things, and what follows from it.
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
    """All things to look at in the report's sections, the bad ones first. `now_ms` is the report's time, ms since the
    epoch.
    """
    items = [
        *_attention_to_health(sections["health"]),
        *_attention_to_losses(sections["health"]),
        *_attention_to_sources(sections["health"]),
        *_attention_to_replicas(sections["replicas"], sections["health"]),
        *_attention_to_retention(sections["retention"]),
        *_attention_to_shape(sections["shape"]),
        *_attention_to_audits(sections["health"], sections["builds"]),
        *_attention_to_builds(sections["builds"], sections["overview"], now_ms),
    ]
    order = list(Severity)
    return [asdict(item) for item in sorted(items, key=lambda item: order.index(item.severity))]


def _attention_to_health(health: dict[str, Any]) -> Iterator[Attention]:
    not_accepted = health["not_accepted"]
    if segments := not_accepted["damaged"]:
        first = health["damaged"][0]  # accepted ones are listed last
        detail = f"{_segment_name(first)}: {first['status']}, {first['reason']}"
        title = f"{counted(segments, 'segment')} damaged"
        yield Attention(Severity.BAD, "health/damaged", title, detail, is_damage=True)
    if gaps := [row for row in health["lost_gaps"] if not row["is_accepted"]]:
        first = gaps[0]
        detail = f"{_partition_name(first)} of {first['source']}: {first['detail']}: {first['reason']}. "
        detail += _as_sentence(first["consequence"])
        title = f"{counted(len(gaps), 'gap')} between logs"
        yield Attention(Severity.BAD, "health/lost_gaps", title, detail, is_missing=True)
    for verdict in DAMAGE:
        if files := not_accepted[verdict.value]:
            row = next((row for row in health["files"] if row["verdict"] == verdict and not row["is_accepted"]), None)
            detail = "" if row is None else _file_in_words(row)  # a thousand are listed
            title, is_missing = f"{counted(files, 'file')} {verdict}", bool(not_accepted[f"{verdict}_missing"])
            is_damage = verdict is Verdict.BROKEN
            yield Attention(Severity.BAD, "health/files", title, detail, is_missing, is_damage)
    if findings := health["broken_remote_files"]:
        row = health["remote_files"][0]  # broken ones are listed first
        detail = f"{_partition_name(row)}, remote segment at {row['start_offset']}: {row['file']} "
        detail += f"{row['reason']}. {_as_sentence(row['consequence'])}"
        title = f"{counted(findings, 'finding')} in tiered storage"
        yield Attention(Severity.BAD, "health/remote_files", title, detail, is_damage=True)
    if sources := health["not_audited"]:
        detail = f"{_first_names(sources)}: no index file was compared with its log"
        title = f"{counted(len(sources), 'source')} never audited"
        yield Attention(Severity.UNKNOWN, "health/verdicts", title, detail)
    if partly := health["partly_audited"]:
        numbers = [f"{row['partitions']:,} of {row['source']}" for row in partly]
        title = f"{counted(sum(row['partitions'] for row in partly), 'partition')} never audited"
        yield Attention(Severity.UNKNOWN, "health/verdicts", title, f"{_first_names(numbers)}: nobody has looked")


def _attention_to_losses(health: dict[str, Any]) -> Iterator[Attention]:
    """What log dirs had by their checkpoints and the metadata. An end that an audit has found is among its files."""
    if missing := health["partitions_missing"]:
        kinds = [[row for row in missing if row["has_directory"] == there] for there in (False, True)]
        details = [
            f"{_first_names(list(map(_name_and_known_end, rows)))}: {rows[0]['detail']}" for rows in kinds if rows
        ]
        detail = f"{'; '.join(details)}. {_as_sentence(EMPTY_LOG)}"
        yield _missing_item(f"{counted(len(missing), 'partition')} missing", detail)
    if twice := health["partitions_twice"]:
        title = f"{counted(len(twice), 'partition')} in two log dirs of a broker"
        yield _missing_item(title, _detail_and_consequence(_partition_name(twice[0]), twice[0]))
    if misnamed := health["partitions_misnamed"]:
        title = f"{counted(len(misnamed), 'directory', 'directories')} with another partition's name"
        yield _missing_item(title, _detail_and_consequence(_partition_name(misnamed[0]), misnamed[0]))
    if older := health["log_dirs_older"]:
        title = f"{counted(len(older), 'log dir')} older than others of the broker"
        yield _missing_item(title, _as_sentence(older[0]["detail"]))
    if lines := health["log_dirs_maybe_older"]:
        title = f"{counted(len(lines), 'log dir')} perhaps of another time than others of the broker"
        yield Attention(Severity.UNKNOWN, "health", title, _as_sentence(lines[0]))
    audited = {(row["path"], row["reason"]) for row in health["files"]}
    not_accepted = [row for row in health["first_logs_missing"] if row["accepted_by"] is None]
    if starts := [row for row in not_accepted if (row["path"], row["reason"]) not in audited]:
        title = f"{counted(len(starts), 'partition')} without first logs"
        yield _missing_item(
            title, _detail_and_consequence(f"{_partition_name(starts[0])} of {starts[0]['source']}", starts[0])
        )
    if starts := health["first_logs_not_known"]:
        title = f"first logs of {counted(len(starts), 'partition')} in a bucket or lost"
        detail = _detail_and_consequence(f"{_partition_name(starts[0])} of {starts[0]['source']}", starts[0])
        yield Attention(Severity.UNKNOWN, "health", title, detail)
    if ends := [row for row in health["ends_below"] if (row["path"], row["reason"]) not in audited]:
        title = f"{counted(len(ends), 'log')} ending below a checkpoint"
        yield _missing_item(
            title, _detail_and_consequence(f"{_partition_name(ends[0])} of {ends[0]['source']}", ends[0])
        )


def _missing_item(title: str, detail: str) -> Attention:
    return Attention(Severity.BAD, "health", title, detail, is_missing=True)


def _attention_to_sources(health: dict[str, Any]) -> Iterator[Attention]:
    """Sources in which nobody could look, and sources that are there twice."""
    if twice := health["sources_twice"]:
        row = twice[0]
        detail = f"{row['source']} and {row['other']} are {row['path']}: this report counts it twice; "
        detail += "kidx forget-source takes one of them out of the catalog"
        title = f"{counted(len({row['other'] for row in twice}), 'source')} there under another name"
        yield _missing_item(title, detail)
    for is_empty, severity, what in ((True, Severity.BAD, "empty"), (False, Severity.UNKNOWN, "not reached")):
        if rows := [row for row in health["not_reached"] if row["is_empty"] == is_empty]:
            names = [f"{row['source']} ({row['path']})" for row in rows]
            detail = (
                f"{_first_names(names)}: {rows[0]['why']} Nobody has looked for partitions and ends of logs that are "
            )
            detail += "missing; kidx verify --catalog tells where the log dir is by now"
            title = f"{counted(len(rows), 'source')} {what}"
            yield Attention(severity, "health", title, detail, is_missing=is_empty)
    if rows := health["not_built"]:
        numbers = [f"{row['partitions']:,} of {row['of']:,} in {row['path']} of {row['source']}" for row in rows]
        detail = f"{_first_names(numbers)}: left out by --topics, or newer than the last build; "
        detail += "this report says nothing of them"
        title = f"{counted(sum(row['partitions'] for row in rows), 'partition')} in no build"
        yield Attention(Severity.UNKNOWN, "health", title, detail)


def _name_and_known_end(row: dict[str, Any]) -> str:
    end = f" (offsets up to {row['known_end'] - 1})" if row["known_end"] else ""
    return f"{_partition_name(row)} of {row['source']}{end}"


def _attention_to_audits(health: dict[str, Any], builds: dict[str, Any]) -> Iterator[Attention]:
    names = audited_before_build(health, builds)
    if not names:
        return
    detail = f"{_first_names(names)}: what audits say is older than the logs; kidx verify looks again"
    title = f"{counted(len(names), 'source')} not audited since the last build"
    yield Attention(Severity.UNKNOWN, "health/verdicts", title, detail)


#: How bad these verdicts are, and the words about such replicas.
_VERDICTS_OF_REPLICAS: Final = (
    ((ReplicaRelation.DIFFERS, ReplicaRelation.EPOCHS_DISAGREE), Severity.BAD, "diverged"),
    ((ReplicaRelation.LACKS,), Severity.BAD, "with offsets missing"),
    ((ReplicaRelation.BEHIND,), Severity.WARNING, "behind"),
)


def _attention_to_replicas(replicas: dict[str, Any], health: dict[str, Any]) -> Iterator[Attention]:
    accepted = [row for row in health["lost_gaps"] if row["is_accepted"]]
    for verdicts, severity, what in _VERDICTS_OF_REPLICAS:
        rows = [row for row in replicas["partitions"] if row["verdict"] in verdicts and not _is_in_gap(row, accepted)]
        if rows:
            detail = f"{_partition_name(rows[0])}: {rows[0]['sentence']}"
            title, is_missing = f"{counted(len(rows), 'replica')} {what}", ReplicaRelation.LACKS in verdicts
            yield Attention(severity, "replicas/replicas", title, detail, is_missing=is_missing)
    damaged = [row for row in replicas["partitions"] if row["damaged"]]
    if damaged:
        detail = f"{_partition_name(damaged[0])}: {damaged[0]['sentence']}"
        title = f"{counted(len(damaged), 'replica')} not compared to the end"
        yield Attention(Severity.UNKNOWN, "replicas/replicas", title, detail)
    for row in replicas["missing"]:
        names = _first_names(row["partitions"])
        detail = f"source {row['source']} lacks {names}, which {row['compared_with']} has; a copy should have them, "
        detail += "another broker need not"
        title = f"{counted(row['count'], 'partition')} of {row['of']:,} missing in {row['source']}"
        yield Attention(Severity.UNKNOWN, "replicas/missing", title, detail)


def _is_in_gap(row: dict[str, Any], gaps: list[dict[str, Any]]) -> bool:
    """Whether all offsets that a replica lacks are in one of the gaps."""
    if row["verdict"] != ReplicaRelation.LACKS or (lacks := row["lacks"]) is None:
        return False
    return any(
        (gap["source"], gap["topic"], gap["partition"]) == (lacks["source"], row["topic"], row["partition"])
        and gap["first_offset"] <= lacks["first_offset"]
        and lacks["last_offset"] <= gap["last_offset"]
        for gap in gaps
    )


def _attention_to_retention(retention: dict[str, Any]) -> Iterator[Attention]:
    if rows := retention["future"]:
        row = rows[0]
        later = f"{counted(row['later_segments'], 'later segment')} of {decimal(row['later_bytes'])}"
        detail = (
            f"{_segment_name(row)} has the timestamp {show_time(row['max_timestamp_ms'])}: until then retention.ms "
        )
        detail += f"deletes neither it nor the {later}"
        title = f"{counted(retention['future_segments'], 'segment')} with a timestamp in the future"
        yield Attention(Severity.BAD, "retention/future", title, detail)
    if unknown := topics_unknown(retention):
        configured = unknown[0]["configured"]
        detail = f"{unknown[0]['topic']}: {', '.join(configured['unknown'])} were not given; "
        detail += f"{configured['remedy']}, and the report says what is deleted by it"
        title = f"{counted(len(unknown), 'topic')} whose retention is not known"
        yield Attention(Severity.UNKNOWN, "retention/configured", title, detail)


def _attention_to_shape(shape: dict[str, Any]) -> Iterator[Attention]:
    rows = [row for row in shape["topics"] if row["has_small_batches"]]
    if not rows:
        return
    row = max(rows, key=lambda row: row["batches"])
    detail = f"{row['topic']}: {row['batches']:,} batches of {row['bytes_a_batch']:,.0f} bytes on average, of which "
    detail += f"{row['header_share']:.0%} are headers. A producer with linger.ms and a larger batch.size writes fewer"
    best = next((measured["best"] for measured in shape["savings"] if measured["topic"] == row["topic"]), None)
    if best is not None:
        detail += f": {best['codec']} and {best['batch_size']:,} bytes would have saved {best['saved']:.0%} of a sample"
    yield Attention(Severity.WARNING, "shape/shape", f"{counted(len(rows), 'topic')} of small batches", detail)


def _attention_to_builds(builds: dict[str, Any], overview: dict[str, Any], now_ms: int) -> Iterator[Attention]:
    if not overview["segments"]:
        detail = "no build has recorded any, or their sources were forgotten: run a build"
        yield Attention(Severity.UNKNOWN, "overview", "the catalog has no segments", detail)
    changes = overview["changes"]
    if changes is not None and changes["gone_segments"]:
        title = f"{counted(changes['gone_segments'], 'segment')} gone since the build before"
        detail = f"{decimal(changes['gone_bytes'])}: deleted by retention, or lost"
        yield Attention(Severity.WARNING, "overview", title, detail)
    if builds["builds"]:
        age_ms = now_ms - builds["builds"][0]["started_ms"]
        if age_ms > _DAY_MS:
            title = f"the last build is {counted(age_ms // _DAY_MS, 'day')} old"
            detail = "what brokers have written, deleted or damaged since is not in this report"
            yield Attention(Severity.UNKNOWN, "builds/builds", title, detail)


def _partition_name(row: dict[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


def _detail_and_consequence(where: str, row: dict[str, Any]) -> str:
    return f"{where}: {row['detail']}. {_as_sentence(row['consequence'])}"


def _segment_name(row: dict[str, Any]) -> str:
    return f"{_partition_name(row)}/{row['base_offset']:020}"


def _file_in_words(row: dict[str, Any]) -> str:
    name = row["file"] if row["file"].startswith(".") else f" {row['file']}"
    return f"{_segment_name(row)}{name}: {row['reason']}. {_as_sentence(row['consequence'])}"


def _first_names(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


def _as_sentence(text: str | None) -> str:
    text = text or "nothing follows from it for brokers"
    return text[0].upper() + text[1:]
