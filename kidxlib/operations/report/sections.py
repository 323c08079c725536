"""The sections of the report: overview, health (what builds and audits have found, what follows from it, and which
command mends it), builds, what the last build changed, growth by day, the shape of topics (batches, compression),
replicas; and two that are made of these, the map of the fleet and the outlook (what is deleted next, how long disks
have room, and what is stored).
"""

from __future__ import annotations

import enum
import itertools
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import DAMAGE, Verdict
from kidxlib.audit.gaps import Gap, range_in
from kidxlib.audit.tiered.remote_finding import remote_remedy
from kidxlib.catalog.conditions import Among, scope_of
from kidxlib.catalog.matching import Values, flags_of, numbers_in, positions_in, taken_at
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.errors import CatalogError
from kidxlib.format.layouts import BATCH_V2
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.compare.catalog_replica_verdict import ReplicaRelation, ReplicaVerdict, missing_partitions
from kidxlib.operations.damage.known_damage import KnownGaps
from kidxlib.operations.recover.fleet import UNFLUSHED
from kidxlib.operations.report.questions import (
    CODECS,
    COUNTED,
    DAMAGED,
    DAMAGED_BY_PARTITION,
    FINDINGS_BY_PARTITION,
    GAPS,
    GROWTH,
    HELD,
    LARGEST,
    LAST_BUILDS,
    LATELY_MS,
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
    ReportAnswers,
    future_by_partition,
    written_lately,
)
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.protocol import TablesToRead
from kidxlib.text.times import to_ms
from kidxlib.text.words import counted, shell_option

if TYPE_CHECKING:
    from kidxlib.operations.report.savings import TopicSavings


_ABSENT_STATUSES: Final = tuple(status.value for status in ABSENT)
#: Columns for a log dir that was not stopped cleanly.
_UNCLEAN_STOP_COLUMNS: Final = ("source", "partitions", "segments", "log_bytes")
_STATUSES_WITHOUT_DAMAGE: Final = (Status.OK.value, *_ABSENT_STATUSES)

#: Batches below this mean size are costly: a header has 61 bytes, and compression finds little.
_SMALL_BATCH_BYTES: Final = 1024
#: Fewer batches than that are no cost to speak of.
_BATCHES_LEAST: Final = 1000

_DAY_MS: Final = 24 * 3_600_000
#: How many versions are looked through for the state before a build, which makes a few commits.
_VERSIONS_MAX: Final = 12


class State(enum.IntEnum):
    """The states of a partition in a source, from the best to the worst. Where several are drawn as one, it has the
    worst of them.
    """

    ABSENT = -1  # the source has no such partition, and nothing says that it should
    OK = 0
    UNKNOWN = 1  # nobody has looked since the last build
    WARNING = 2
    BAD = 3


#: What is wrong with partitions of sources: which, how bad it is, and what it is in words.
_Problems: TypeAlias = Iterator[tuple[PartitionKey, State, str]]

_STATE_OF_VERDICT: Final = {
    ReplicaRelation.DIFFERS: State.BAD,
    ReplicaRelation.EPOCHS_DISAGREE: State.BAD,
    ReplicaRelation.LACKS: State.BAD,
    ReplicaRelation.BEHIND: State.WARNING,
}

_LOSSES_IN_WORDS: Final = {
    "partitions_missing": "the partition is missing",
    "partitions_twice": "in two log dirs of a broker",
    "partitions_misnamed": "the directory of another partition",
    "first_logs_missing": "its first logs are missing",
    "ends_below": "its log ends below a checkpoint",
}


def health_section(answers: ReportAnswers, paths: Mapping[str, str], catalog: str, gaps: KnownGaps) -> dict[str, Any]:
    """Damage, gaps, and what was never audited. `paths` of sources by name and the catalog's place are for commands."""
    by_status: Counter[str] = Counter()
    for row in answers[TOTALS]:
        by_status[row["status"]] += row["segments"]
    damaged = [_damaged_with_commands(row, catalog) for row in answers[DAMAGED]]
    files = [_file_with_commands(row, paths, catalog) for row in answers[LOCAL_FINDINGS] if not row["is_gap"]]
    return {
        "segments": dict(by_status),
        "damaged_segments": sum(count for status, count in by_status.items() if status not in _STATUSES_WITHOUT_DAMAGE),
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
        "remote_files": [
            {**row, "remedy": remote_remedy(row["file"], row["reason"])} for row in answers[REMOTE_FINDINGS]
        ],
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


def _verdicts_by_source(answers: ReportAnswers) -> list[dict[str, Any]]:
    """For each source the number of files by verdict, and when the oldest of the last audits was."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    audited: dict[str, int] = {}
    for row in answers[VERDICTS]:
        source, audited_ms = row["source"], to_ms(row["audited_at"])
        counts[source][row["verdict"]] += row["files"]
        audited[source] = min(audited_ms, audited.get(source, audited_ms))
    return [{"source": source, "audited_ms": audited[source], "files": dict(files)} for source, files in counts.items()]


def _sources_not_audited(answers: ReportAnswers) -> list[str]:
    audited = {row["source"] for row in answers[VERDICTS]} | {row["source"] for row in answers[REMOTE]}
    return sorted({row["source"] for row in answers[PARTITION_COUNTS] if row["present"]} - audited)


def _sources_partly_audited(answers: ReportAnswers) -> list[dict[str, Any]]:
    """Sources some of whose partitions were audited, and how many never were."""
    audited = {row["source"] for row in answers[VERDICTS]}
    never = Counter(row["source"] for row in answers[HELD] if not row["is_audited"])
    return [{"source": source, "partitions": never[source]} for source in sorted(never) if source in audited]


def topics_unknown(retention: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Topics in the report's section on retention of which not all that decides is known, without those that stay
    whatever it is.
    """
    return [row for row in retention["topics"] if row["configured"]["unknown"] and not row["kept"]]


def audited_before_build(health: Mapping[str, Any], builds: Mapping[str, Any]) -> list[str]:
    """The sources in the report's sections that were built after the oldest of their last audits."""
    built: dict[str, int] = {}
    for build in builds["builds"]:
        for source in build["sources"]:
            built[source] = max(build["started_ms"], built.get(source, 0))
    return [row["source"] for row in health["verdicts"] if row["audited_ms"] < built.get(row["source"], 0)]


def builds_section(answers: ReportAnswers, tables: TablesToRead) -> dict[str, Any]:
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


def changes_section(tables: TablesToRead) -> dict[str, Any] | None:
    """What the last build changed; None where no build is recorded, or the state before it is not to be had. Bytes are
    those by which logs have grown, and those of logs that are new or gone.
    """
    builds = tables.read(BUILDS, ["build_id", "started_at"]).sort_by("started_at")
    if not builds.num_rows:
        return None
    build_id = builds["build_id"][-1].as_py()
    is_of_build = Among("build_id", (build_id,))
    now = tables.read(SEGMENTS, [*SEGMENTS.key, "log_bytes", "status"], [is_of_build])
    before = _rows_before_build(tables, is_of_build, now)
    if before is None:
        return None
    positions = positions_in(now, before, SEGMENTS.key)
    (sizes, _), is_gone = numbers_in(now["log_bytes"]), _gone_flags(now["status"])
    was_there = (positions >= 0) & ~_gone_flags(taken_at(before["status"], positions))
    old_sizes, _ = numbers_in(taken_at(before["log_bytes"], positions))
    old = np.where(was_there, old_sizes, 0)
    return {
        "build_id": build_id,
        "is_first": builds.num_rows == 1,
        "new_segments": int((~was_there & ~is_gone).sum()),
        "new_bytes": int(sizes[~was_there & ~is_gone].sum()),
        "grown_segments": int((was_there & ~is_gone & (sizes != old)).sum()),
        "grown_bytes": int((sizes - old)[was_there & ~is_gone].sum()),
        "gone_segments": int(is_gone.sum()),
        "gone_bytes": int(sizes[is_gone].sum()),
    }


def _rows_before_build(tables: TablesToRead, is_of_build: Among, now: pa.Table) -> pa.Table | None:
    """The rows of the same partitions in the last version of the table without a row of the build; None where that
    version is not there any more.
    """
    version = tables.version(SEGMENTS)
    if version is None:
        return None
    names = [*SEGMENTS.key, "log_bytes", "status"]
    try:
        for earlier in range(version, max(version - _VERSIONS_MAX, -1), -1):
            if not tables.counts(SEGMENTS, ["source"], [is_of_build], earlier).num_rows:
                return tables.read(SEGMENTS, names, scope_of({"now": now}, SEGMENTS.key[:3]), earlier)
    except CatalogError:  # the files of that version were removed
        return None
    return None


def _gone_flags(statuses: Values) -> Any:
    is_gone: Values = pc.equal(statuses, pa.scalar(Status.GONE.value))
    return flags_of(is_gone)


def growth_section(answers: ReportAnswers) -> dict[str, Any]:
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


def overview_section(answers: ReportAnswers) -> dict[str, Any]:
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


def shape_section(answers: ReportAnswers, savings: Sequence[TopicSavings]) -> dict[str, Any]:
    """A row for each topic, the largest first; and the savings of other settings of producers that were measured."""
    codecs, magics = _rows_by_topic(answers[CODECS], "codec"), _rows_by_topic(answers[MAGICS], "magic")
    producers = {row["topic"]: row["producers"] for row in answers[PRODUCERS]}
    return {
        "small_batch_bytes": _SMALL_BATCH_BYTES,
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
                "has_small_batches": _has_small_batches(row),
            }
            for row in answers[SHAPE]
        ],
    }


def _has_small_batches(row: dict[str, Any]) -> bool:
    """Whether a topic's batches are so small that they are costly, by a row of `SHAPE`. Transaction markers do not
    count: they are small whatever a producer does.
    """
    batches = row["batches"] - row["control_batches"]
    return bool(batches >= _BATCHES_LEAST and row["valid_bytes"] / batches < _SMALL_BATCH_BYTES)


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
    tables: TablesToRead, answers: ReportAnswers, compacted: Collection[str], known: KnownTopics
) -> dict[str, Any]:
    """A row for each replica that was compared, differing ones first; those that are the same are only counted.
    `compacted` are topics configured so; others are known by what their logs lack. A source whose node and metadata are
    known is asked for what that metadata has (`ExpectedInLogDirs`), and not for what other sources have.
    """
    topics = [row["topic"] for row in answers[PARTITION_COUNTS] if row["present"]]
    if len(topics) == len(set(topics)):  # without importing what compares them, which takes long to be compiled
        return {"verdicts": {}, "partitions": [], "missing": []}
    from kidxlib.operations.compare.catalog_replicas import compare_catalog_replicas

    buckets = {row["source"] for row in answers[REMOTE]}
    replicas = [
        replica for replica in compare_catalog_replicas(tables, compacted=compacted) if replica.source not in buckets
    ]
    settled = {name for name, of_source in known.of_sources.items() if of_source.broker.node_id is not None}
    order = list(ReplicaRelation)
    replicas.sort(key=lambda replica: order.index(replica.verdict))
    return {
        "verdicts": dict(Counter(replica.verdict.value for replica in replicas)),
        "partitions": [
            {**asdict(replica), "sentence": replica.sentence(), "damaged": _is_not_compared_for_damage(replica)}
            for replica in replicas
            if replica.verdict is not ReplicaRelation.SAME
        ],
        "missing": missing_partitions(tables, buckets, settled),
    }


def _is_not_compared_for_damage(replica: ReplicaVerdict) -> bool:
    """Whether a replica was not compared because its log or the other log is damaged or not known."""
    return (
        replica.verdict is ReplicaRelation.NOT_COMPARABLE
        and replica.compacted is None
        and replica.undecided_offsets > 0
    )


def fleet_section(
    answers: ReportAnswers, sections: Mapping[str, Any], not_audited: Collection[str], now_ms: int
) -> dict[str, Any]:
    """The state of each partition (columns, in the order of topic and number) in each source (rows, by name).
    `not_audited` are sources of which no audit is newer than the last build. `now_ms` is the report's time, ms since
    the epoch.
    """
    held = {_key_of_row(row): row for row in answers[HELD]}
    states = {
        key: State.OK if row["is_audited"] and row["source"] not in not_audited else State.UNKNOWN
        for key, row in held.items()
    }
    reasons: dict[PartitionKey, list[str]] = defaultdict(list)
    problems = _problems_of_partitions(answers, sections, now_ms)
    for key, state, reason in itertools.chain(problems, _problems_of_whole_sources(held, sections["health"])):
        states[key] = max(state, states.get(key, State.OK))
        reasons[key].append(reason)
    sources = sorted({source for source, _, _ in states})
    partitions = sorted({(topic, partition) for _, topic, partition in states})
    numbers = {name: number for number, name in enumerate(partitions)}
    rows = {source: [int(State.ABSENT)] * len(partitions) for source in sources}
    log_bytes = {source: [0] * len(partitions) for source in sources}
    for (source, topic, partition), state in states.items():
        rows[source][numbers[topic, partition]] = int(state)
    for (source, topic, partition), row in held.items():
        log_bytes[source][numbers[topic, partition]] = row["log_bytes"]
    worst_first = sorted(reasons, key=lambda key: (-states[key], key))
    return {
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
        "sources": [{"source": source, "states": rows[source], "log_bytes": log_bytes[source]} for source in sources],
        "reasons": [
            {
                "source": source,
                "topic": topic,
                "partition": partition,
                "state": int(states[source, topic, partition]),
                "reasons": reasons[source, topic, partition],
            }
            for source, topic, partition in worst_first
        ],
    }


def _problems_of_partitions(answers: ReportAnswers, sections: Mapping[str, Any], now_ms: int) -> _Problems:
    """What is wrong with a partition in a source, and nobody has accepted."""
    for row in answers[DAMAGED_BY_PARTITION]:
        yield _key_of_row(row), State.BAD, f"{counted(row[COUNTED], 'segment')} damaged"
    for row in answers[FINDINGS_BY_PARTITION]:
        yield _key_of_row(row), State.BAD, f"{counted(row[COUNTED], 'file')} broken or torn"
    for row in answers[future_by_partition(now_ms)]:
        yield _key_of_row(row), State.BAD, "a timestamp in the future holds retention back"
    for row in sections["replicas"]["partitions"]:
        if (state := _STATE_OF_VERDICT.get(row["verdict"])) is not None:
            yield _key_of_row(row), state, f"its replicas: {row['verdict']}"
    yield from _losses(sections["health"])


def _losses(health: Mapping[str, Any]) -> _Problems:
    for row in health["lost_gaps"]:
        if not row["is_accepted"]:
            what = f"{counted(row['offsets'], 'offset')} missing from {row['first_offset']:,} on"
            yield _key_of_row(row), State.BAD, what
    for name, what in _LOSSES_IN_WORDS.items():
        for row in health[name]:
            if row.get("accepted_by") is None:
                yield _key_of_row(row), State.BAD, what


def _problems_of_whole_sources(held: Collection[PartitionKey], health: Mapping[str, Any]) -> _Problems:
    of_sources = [(row["source"], State.BAD, "its log dir is older than others") for row in health["log_dirs_older"]]
    for row in health["not_reached"]:
        state = State.BAD if row["is_empty"] else State.UNKNOWN
        of_sources.append((row["source"], state, "nothing is in its log dir" if row["is_empty"] else "not reached"))
    for source, state, reason in of_sources:
        yield from ((key, state, reason) for key in held if key[0] == source)


def _key_of_row(row: Mapping[str, Any]) -> PartitionKey:
    return row["source"], row["topic"], row["partition"]


def outlook_section(
    answers: ReportAnswers, sections: Mapping[str, Any], paths: Mapping[str, str], built_ms: int
) -> dict[str, Any]:
    """What comes next and what is stored, in bytes and ms since the epoch. A day's bytes are a seventh of those of the
    seven days before the last build, at `built_ms`. `paths` are of the sources that can be listed here, by name.
    """
    retention, overview = sections["retention"], sections["overview"]
    lately = {row["source"]: row["bytes"] for row in answers[written_lately(built_ms)]}
    topics = retention["topics"]
    known = [row["configured"] for row in topics if not row["configured"]["unknown"]]
    due = [row["due_ms"] for row in known if row["due_ms"] is not None]
    shape = answers[SHAPE]
    return {
        "retention": {
            "topics": len(topics),
            "topics_unknown": len(topics_unknown(retention)),
            "freed_now": sum(row["freed"] for row in known),
            "freed_later": sum(row["freed_later"] for row in known),
            "next_due_ms": min(due, default=None),
        },
        "bytes_a_day": round(sum(lately.values()) * _DAY_MS / LATELY_MS),
        "disks": list(_disks(paths, lately)),
        "stored": {
            "log_bytes": overview["log_bytes"],
            "remote_bytes": overview["remote_bytes"],
            "index_bytes": sum(row["index_bytes"] for row in shape),
            "header_bytes": sum(row["batches"] for row in shape) * BATCH_V2.itemsize,
        },
    }


def _disks(paths: Mapping[str, str], lately: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """The file systems on which sources are, each with the path of its first one, and in how many days it is full if as
    much is written as in the last seven, and nothing is deleted. Free bytes are those for users other than root, as a
    broker has them. Sources in object stores have none.
    """
    of_device: defaultdict[int, list[str]] = defaultdict(list)
    for name, path in sorted(paths.items()):
        if not is_object(path) and os.path.isdir(path):
            of_device[os.stat(path).st_dev].append(name)
    for sources in of_device.values():
        path = paths[sources[0]]
        state = os.statvfs(path)
        free = state.f_bavail * state.f_frsize
        a_day = sum(lately.get(source, 0) for source in sources) * _DAY_MS / LATELY_MS
        yield {
            "path": path,
            "sources": sources,
            "total_bytes": state.f_blocks * state.f_frsize,
            "free_bytes": free,
            "bytes_a_day": round(a_day),
            "days_left": free / a_day if a_day else None,
        }
