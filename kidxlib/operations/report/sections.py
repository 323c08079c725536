"""The sections of the report: overview, health (what builds and audits have found, what follows from it, and which
command mends it), builds, growth by day, the shape of topics (batches, compression), and replicas.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from kidxlib.audit.finding import DAMAGE, Verdict
from kidxlib.audit.gaps import Gap, range_in
from kidxlib.audit.tiered.remedies import what_to_do
from kidxlib.catalog.tables import BUILDS
from kidxlib.format.layouts import BATCH_V2
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.compare.catalog_replica_verdict import ReplicaVerdict
from kidxlib.operations.compare.catalog_replica_verdict import Verdict as PairVerdict
from kidxlib.operations.damage.gaps import KnownGaps
from kidxlib.operations.recover.fleet import UNFLUSHED
from kidxlib.operations.report.questions import (
    CODECS,
    DAMAGED,
    GAPS,
    GROWTH,
    HELD,
    LARGEST,
    LAST_BUILDS,
    LOCAL_FINDINGS,
    MAGICS,
    PARTITION_COUNTS,
    PRODUCERS,
    REMOTE,
    REMOTE_FINDINGS,
    SHAPE,
    TOTALS,
    UNTIMED,
    VERDICTS,
    Answers,
)
from kidxlib.operations.report.savings.saving import TopicSavings
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.run.known_topics import KnownTopics
from kidxlib.tables.protocol import TablesToRead
from kidxlib.text.times import to_ms
from kidxlib.text.words import shell_option

_ABSENT_STATUSES: Final = tuple(status.value for status in ABSENT)
#: Columns for a log dir that was not stopped cleanly.
_UNCLEAN_STOP_COLUMNS: Final = ("source", "partitions", "segments", "log_bytes")
_STATUSES_WITHOUT_DAMAGE: Final = (Status.OK.value, *_ABSENT_STATUSES)

#: Batches below this mean size are costly: a header has 61 bytes, and compression finds little.
SMALL_BATCH_BYTES: Final = 1024
#: Fewer batches than that are no cost to speak of.
_BATCHES_LEAST: Final = 1000


def health_section(answers: Answers, paths: Mapping[str, str], catalog: str, gaps: KnownGaps) -> dict[str, Any]:
    """Damage, gaps, and what was never audited. `paths` of sources by name and the catalog's place are for commands."""
    counted: Counter[str] = Counter()
    for row in answers[TOTALS]:
        counted[row["status"]] += row["segments"]
    damaged = [_damaged_with_commands(row, catalog) for row in answers[DAMAGED]]
    files = [_file_with_commands(row, paths, catalog) for row in answers[LOCAL_FINDINGS] if not row["is_gap"]]
    return {
        "segments": dict(counted),
        "damaged_segments": sum(count for status, count in counted.items() if status not in _STATUSES_WITHOUT_DAMAGE),
        "damaged": damaged,
        "accepted_segments": answers.count(DAMAGED, is_accepted=True),
        "accepted_files": answers.count(LOCAL_FINDINGS, is_accepted=True, is_gap=False),
        "not_accepted": {
            "damaged": answers.count(DAMAGED, is_accepted=False),
            **{
                verdict.value: answers.count(LOCAL_FINDINGS, verdict=verdict.value, is_accepted=False, is_gap=False)
                for verdict in DAMAGE
            },
            **{
                f"{verdict}_missing": answers.count(
                    LOCAL_FINDINGS, verdict=verdict.value, is_accepted=False, is_missing=True
                )
                for verdict in DAMAGE
            },
        },
        "broken_remote_files": answers.count(REMOTE_FINDINGS, verdict=Verdict.BROKEN.value),
        "verdicts": _verdicts_by_source(answers),
        "files": files,
        "not_audited": _sources_not_audited(answers),
        "partly_audited": _sources_partly_audited(answers),
        "starts": [
            {name: row[name] for name in _UNCLEAN_STOP_COLUMNS}
            for row in answers[UNFLUSHED]
            if not row["clean_shutdown"]
        ],
        "losses": [row for row in files if row["lost_bytes"]],
        "gaps": [{**row, "offsets": row["next_base_offset"] - row["next_offset"]} for row in answers[GAPS]],
        "lost_gaps": _lost_gaps(gaps, [row for row in answers[LOCAL_FINDINGS] if row["is_gap"]], catalog),
        "gaps_explained": [gap.as_json() for gap in gaps.found.explained],
        "borders": gaps.found.borders,
        "borders_unknown": gaps.found.unknown_borders,
        "remote": answers[REMOTE],
        "remote_files": [{**row, "remedy": what_to_do(row["file"], row["reason"])} for row in answers[REMOTE_FINDINGS]],
    }


def _damaged_with_commands(row: dict[str, Any], catalog: str) -> dict[str, Any]:
    where = f"{row['topic']}-{row['partition']}/{row['base_offset']}"
    commands = [f"kidx dump {shlex.quote(row['path'])}"]
    if not row["is_accepted"]:
        commands.append(_accept_command(catalog, row["source"], where))
    return {**row, "commands": commands}


def _file_with_commands(row: dict[str, Any], paths: Mapping[str, str], catalog: str) -> dict[str, Any]:
    where = f"{row['topic']}-{row['partition']}/{row['base_offset']}"
    source = f"{row['source']}={paths.get(row['source'], 'DIR')}"
    if row["file"] == LOG_SUFFIX:
        commands = [f"kidx dump {shlex.quote(row['path'])}"]
    else:
        target = f"--source {shlex.quote(source)} --catalog {shlex.quote(catalog)}"
        place = "--in-place" if _is_beside_its_log(row["path"], paths.get(row["source"])) else "--index-dir …"
        commands = [f"kidx build --repair {place} {target}", f"kidx verify {target}"]
    if row["file"] == LOG_SUFFIX and not row["is_accepted"]:
        commands.append(_accept_command(catalog, row["source"], where))
    return {**row, "commands": commands}


def _is_beside_its_log(path: str, source: str | None) -> bool:
    return source is not None and path.startswith(source.rstrip(os.sep) + os.sep)


def _accept_command(catalog: str, source: str, name: str, option: str = "--segment") -> str:
    catalog, source = map(shlex.quote, (catalog, source))
    return f"kidx accept --catalog {catalog} --source {source} {shell_option(option, name)} --reason …"


def _lost_gaps(gaps: KnownGaps, audited: Sequence[Mapping[str, Any]], catalog: str) -> list[dict[str, Any]]:
    """Gaps that nothing explains, those that builds know and then those of audits since; accepted ones last."""
    nobody = {"is_accepted": False, "accepted_by": None, "accepted_reason": None}
    rows = [{**_gap_as_json(gap), **nobody} for gap in gaps.found.lost]
    for accepted in gaps.accepted:
        by = {"is_accepted": True, "accepted_by": accepted.accepted_by, "accepted_reason": accepted.accepted_reason}
        rows.append({**_gap_as_json(accepted.gap), **by})
    known = {_gap_identity(row) for row in rows}
    rows += [_audited_gap_as_json(row) for row in audited if _gap_identity(row) not in known]
    for row in rows:
        name = f"{row['topic']}-{row['partition']}/{row['first_offset']}-{row['last_offset']}"
        row["commands"] = [] if row["is_accepted"] else [_accept_command(catalog, row["source"], name, "--gap")]
    return sorted(rows, key=lambda row: row["is_accepted"])


def _gap_identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("source", "topic", "partition", "detail"))


def _audited_gap_as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    first, _, last = (range_in(row["detail"]) or "").partition("-")
    offsets = {"first_offset": int(first), "last_offset": int(last), "offsets": int(last) - int(first) + 1}
    return {**row, **offsets}


def _gap_as_json(gap: Gap) -> dict[str, Any]:
    return {**gap.as_json(), "detail": gap.detail, "consequence": gap.consequence}


def _verdicts_by_source(answers: Answers) -> list[dict[str, Any]]:
    """For each source the number of files by verdict, and when the oldest of the last audits was."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    audited: dict[str, int] = {}
    for row in answers[VERDICTS]:
        source, audited_ms = row["source"], to_ms(row["audited_at"])
        counts[source][row["verdict"]] += row["files"]
        audited[source] = min(audited_ms, audited.get(source, audited_ms))
    return [{"source": source, "audited_ms": audited[source], "files": dict(files)} for source, files in counts.items()]


def _sources_not_audited(answers: Answers) -> list[str]:
    audited = {row["source"] for row in answers[VERDICTS]} | {row["source"] for row in answers[REMOTE]}
    return sorted({row["source"] for row in answers[PARTITION_COUNTS] if row["present"]} - audited)


def _sources_partly_audited(answers: Answers) -> list[dict[str, Any]]:
    """Sources some of whose partitions were audited, and how many never were."""
    audited = {row["source"] for row in answers[VERDICTS]}
    never = Counter(row["source"] for row in answers[HELD] if not row["is_audited"])
    return [{"source": source, "partitions": never[source]} for source in sorted(never) if source in audited]


def topics_unknown(retention: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Topics of which not all that decides is known, without those that stay whatever it is."""
    return [row for row in retention["topics"] if row["configured"]["unknown"] and not row["kept"]]


def audited_before_build(health: Mapping[str, Any], builds: Mapping[str, Any]) -> list[str]:
    """Sources that were built after the oldest of their last audits."""
    built: dict[str, int] = {}
    for build in builds["builds"]:
        for source in build["sources"]:
            built[source] = max(build["started_ms"], built.get(source, 0))
    return [row["source"] for row in health["verdicts"] if row["audited_ms"] < built.get(row["source"], 0)]


def builds_section(answers: Answers, tables: TablesToRead) -> dict[str, Any]:
    """The last builds, the newest first: how long, how fast, and the problems they met."""
    recorded = tables.read(BUILDS, ["build_id", "by_status", "sources"])
    builds = {row["build_id"]: row for row in recorded.to_pylist(maps_as_pydicts="strict")}
    rows = []
    for row in answers[LAST_BUILDS]:
        build = builds[row["build_id"]]
        problems = {status: count for status, count in build["by_status"].items() if status != Status.OK and count}
        started_ms = to_ms(row["started_at"])
        speed = row["log_bytes"] / row["scan_seconds"] if row["scan_seconds"] else None
        rows.append(
            {
                **{name: value for name, value in row.items() if name != "started_at"},
                "started_ms": started_ms,
                "bytes_a_second": speed,
                "problems": problems,
                "sources": sorted(build["sources"]),
            }
        )
    return {"builds": rows}


def growth_section(answers: Answers) -> dict[str, Any]:
    """Days from first to last, and the records and bytes of each topic on each day.

    Days are whole days since the epoch, in UTC. Records count for the day of their batch's largest timestamp; bytes are
    those of the segment, divided among its records.
    """
    rows = answers[GROWTH]
    days = sorted({row["day"] for row in rows})
    place = {day: number for number, day in enumerate(days)}
    topics: dict[str, dict[str, list[float]]] = defaultdict(
        lambda: {"records": [0] * len(days), "bytes": [0] * len(days), "certain_records": [0] * len(days)}
    )
    for row in rows:
        of_topic = topics[row["topic"]]
        of_topic["records"][place[row["day"]]] = row["records"]
        of_topic["certain_records"][place[row["day"]]] = row["certain_records"] or 0
        of_topic["bytes"][place[row["day"]]] = round(row["bytes"])
    ordered = sorted(topics.items(), key=lambda topic: (-sum(topic[1]["bytes"]), topic[0]))
    return {
        "days": days,
        "topics": [{"topic": topic, **columns} for topic, columns in ordered],
        "uncounted": answers[UNTIMED],
    }


def overview_section(answers: Answers) -> dict[str, Any]:
    """Sums over segments that are present."""
    present = [row for row in answers[TOTALS] if row["status"] not in _ABSENT_STATUSES]
    partitions: dict[str, Counter[str]] = {"source": Counter(), "topic": Counter()}
    for row in answers[PARTITION_COUNTS]:
        for name, counts in partitions.items():
            counts[row[name]] += row["present"]
    return {
        "log_bytes": sum(row["log_bytes"] for row in present),
        "segments": sum(row["segments"] for row in present),
        "partitions": sum(partitions["source"].values()),
        "absent_segments": sum(row["segments"] for row in answers[TOTALS]) - sum(row["segments"] for row in present),
        "remote_segments": sum(row["segments"] for row in answers[REMOTE]),
        "remote_bytes": sum(row["log_bytes"] for row in answers[REMOTE]),
        "sources": _sums_by(present, "source", partitions["source"]),
        "topics": _sums_by(present, "topic", partitions["topic"]),
        "largest": answers[LARGEST],
    }


def _sums_by(rows: list[dict[str, Any]], name: str, partitions: Counter[str]) -> list[dict[str, Any]]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for column in ("segments", "log_bytes"):
            sums[row[name]][column] += row[column]
    summed = [{name: value, "partitions": partitions[value], **counts} for value, counts in sums.items()]
    return sorted(summed, key=lambda row: (-row["log_bytes"], row[name]))


def shape_section(answers: Answers, savings: Sequence[TopicSavings]) -> dict[str, Any]:
    """A row for each topic, the largest first; and the savings of other settings of producers that were measured."""
    codecs, magics = _rows_by_topic(answers[CODECS], "codec"), _rows_by_topic(answers[MAGICS], "magic")
    producers = {row["topic"]: row["producers"] for row in answers[PRODUCERS]}
    return {
        "small_batch_bytes": SMALL_BATCH_BYTES,
        "small_batches_least": _BATCHES_LEAST,
        "savings": [{**asdict(topic), "best": _best_setting(topic)} for topic in savings],
        "topics": [
            {
                **row,
                "codecs": codecs.get(row["topic"], []),
                "magics": magics.get(row["topic"], []),
                "producers": producers.get(row["topic"], 0),
                "bytes_a_batch": _ratio(row["valid_bytes"], row["batches"]),
                "records_a_batch": _ratio(row["records"], row["batches"]) if not row["uncounted_segments"] else None,
                "header_share": _ratio(BATCH_V2.itemsize * row["batches"], row["valid_bytes"]),
                "index_share": _ratio(row["index_bytes"], row["log_bytes"]),
                "has_small_batches": has_small_batches(row),
            }
            for row in answers[SHAPE]
        ],
    }


def has_small_batches(row: dict[str, Any]) -> bool:
    """Whether a topic's batches are so small that they are costly, by a row of `SHAPE`. Transaction markers do not
    count: they are small whatever a producer does.
    """
    batches = row["batches"] - row["control_batches"]
    return bool(batches >= _BATCHES_LEAST and row["valid_bytes"] / batches < SMALL_BATCH_BYTES)


def _best_setting(measured: TopicSavings) -> dict[str, Any] | None:
    """The setting with which the sample takes the fewest bytes, and the share of bytes saved; None where nothing was
    read.
    """
    if not measured.with_settings or not measured.sampled_bytes:
        return None
    best = min(measured.with_settings, key=lambda written: written.bytes)
    return {**asdict(best), "saved": 1 - best.bytes / measured.sampled_bytes}


def _rows_by_topic(rows: list[dict[str, Any]], name: str) -> dict[str, list[dict[str, Any]]]:
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_topic[row["topic"]].append({"name": row[name], "segments": row["segments"], "log_bytes": row["log_bytes"]})
    return by_topic


def _ratio(value: int, by: int) -> float | None:
    return value / by if by else None


def replicas_section(
    tables: TablesToRead, answers: Answers, compacted: Collection[str], known: KnownTopics
) -> dict[str, Any]:
    """A row for each replica that was compared, differing ones first; those that are the same are only counted.
    `compacted` are topics configured so; others are known by what their logs lack. A source whose node and metadata are
    known is asked for what that metadata has (`ExpectedInLogDirs`), and not for what other sources have.
    """
    if not _is_topic_in_several_sources(
        answers
    ):  # without importing what compares them, which takes long to be compiled
        return {"verdicts": {}, "partitions": [], "missing": []}
    from kidxlib.operations.compare.catalog_replica_verdict import missing_partitions
    from kidxlib.operations.compare.catalog_replicas import compare_replicas

    buckets = {row["source"] for row in answers[REMOTE]}
    replicas = [replica for replica in compare_replicas(tables, compacted=compacted) if replica.source not in buckets]
    settled = {name for name, topics in known.of_sources.items() if topics.broker.node_id is not None}
    order = list(PairVerdict)
    replicas.sort(key=lambda replica: order.index(replica.verdict))
    return {
        "verdicts": dict(Counter(replica.verdict.value for replica in replicas)),
        "partitions": [
            {**asdict(replica), "sentence": replica.sentence(), "damaged": _is_not_compared_for_damage(replica)}
            for replica in replicas
            if replica.verdict is not PairVerdict.SAME
        ],
        "missing": missing_partitions(tables, buckets, settled),
    }


def _is_not_compared_for_damage(replica: ReplicaVerdict) -> bool:
    """Whether a replica was not compared because its log or the other log is damaged or not known."""
    return replica.verdict is PairVerdict.NOT_COMPARABLE and replica.compacted is None and replica.undecided_offsets > 0


def _is_topic_in_several_sources(answers: Answers) -> bool:
    """Whether a topic is in several sources."""
    topics = [row["topic"] for row in answers[PARTITION_COUNTS] if row["present"]]
    return len(topics) > len(set(topics))
