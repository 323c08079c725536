"""The questions on the page on SQL: each runs as it stands, in Spark and in DataFusion, and answers what the log dirs
themselves, and a bucket of remote segments that is damaged, say.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from jobs.common.spark.local_rows import spark_type
from jobs.common.spark.session import session
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES, delta_properties
from kidxlib.cli.main import kidx
from kidxlib.format.layouts import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, CONTROL_TYPE_ABORT
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from tests.docs.log_dirs import (
    BEHIND,
    CLOCK,
    YEAR_10000,
    Found,
    change_broker,
    find,
    make_broker,
    make_flipped,
    make_volume,
)
from tests.docs.pages import PROJECT, queries, views
from tests.model.recover import read_control_batch
from tests.support.catalog import append_rows
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import accept_here, build_here, kidx_build_here, kidx_retention_here, rows, run_here
from tests.support.tiered_sites import RemoteSegment, Site

Rows = list[tuple[Any, ...]]

SOURCE: Final = "archive"
FIRST_AT: Final = "2026-11-26T10:00:00Z"
SECOND_AT: Final = "2026-11-26T11:00:00Z"
_ORPHAN: Final = "kidx-" * 4 + "nA"


def _audit_bucket(directory: Path, catalog: Path) -> None:
    """Audit a bucket, damage it, and _audit_bucket it again."""
    site = _site_of(directory)
    shutil.copytree(PROJECT / "samples" / "tiered", directory)
    options = (f"{SOURCE}={directory}", "--tiered-metadata", site.log_dir, "--catalog", catalog)
    first = run_here(kidx, "verify-tiered", *options, "--now", FIRST_AT)
    assert first.code == 0, first.err
    _lost(site).object(TRANSACTION_INDEX_SUFFIX).unlink()
    cut = _cut(site).object(OFFSET_INDEX_SUFFIX)
    cut.write_bytes(cut.read_bytes()[:-3])
    _lost(site).copy_objects(_ORPHAN, 1_000)
    second = run_here(kidx, "verify-tiered", *options, "--now", SECOND_AT)
    assert second.code == 3, second.err


def _site_of(directory: Path) -> Site:
    """The bucket and its metadata."""
    return Site(directory / STORAGE_DIRECTORY, directory / "log-dir")


def _lost(site: Site) -> RemoteSegment:
    return next(each for each in site.segments("payments") if not each.row["transaction_index_empty"])


def _cut(site: Site) -> RemoteSegment:
    return site.segments("readings")[1]


def _damaged_objects(directory: Path) -> Rows:
    """One that is lost and one that is cut; the rest is not broken."""
    site = _site_of(directory)
    lost, cut = _lost(site), _cut(site)
    silent = (
        "consumers of committed records get those of transactions that were aborted in offsets {} to {}, and no broker "
        "says so"
    )
    fails = (
        "a broker loads the three indexes of a segment together: fetches of offsets {} to {} fail, and consumers stop "
        "there"
    )
    return [
        (
            *(SOURCE, "payments", 0, lost.offsets[0], lost.id),
            *(TRANSACTION_INDEX_SUFFIX, "missing", silent.format(*lost.offsets)),
        ),
        (
            *(SOURCE, "readings", 0, cut.offsets[0], cut.id),
            *(OFFSET_INDEX_SUFFIX, "fails-sanity-check", fails.format(*cut.offsets)),
        ),
    ]


def _bytes_by_topic(directory: Path) -> Rows:
    """By the files that are there; those that nobody knows are read by nobody."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in _site_of(directory).bucket.glob("*/*-*.*"):
        found[path.parent.name.split("-")[0]].append(path)
    rows = [
        (
            *(SOURCE, topic, sum(path.suffix == LOG_SUFFIX and _ORPHAN not in path.name for path in paths)),
            sum(path.stat().st_size for path in paths),
            sum(path.stat().st_size for path in paths if _ORPHAN in path.name),
        )
        for topic, paths in found.items()
    ]
    assert sum(row[4] for row in rows) > 0
    return sorted(rows, key=lambda row: (-row[3], row))


def _behind(directory: Path) -> Rows:
    """The partition of which the log dir has two full segments more."""
    copied_to = max(each.offsets[1] for each in _site_of(directory).segments("payments"))
    later = [directory.parent / "broker" / "payments-0" / f"{base_offset:020d}.log" for base_offset in BEHIND[1:3]]
    since = datetime.fromtimestamp(1_790_000_100_001 / 1000, UTC)
    return [("broker", "payments", 0, copied_to, 2, sum(path.stat().st_size for path in later), since)]


def _changed_objects(directory: Path) -> Rows:
    """The index that was cut."""
    cut = _cut(_site_of(directory)).object(OFFSET_INDEX_SUFFIX)
    at = [datetime.fromisoformat(text) for text in (FIRST_AT, SECOND_AT)]
    return [(SOURCE, "readings", 0, cut.name, *at, cut.stat().st_size + 3, cut.stat().st_size)]


#: Of its damaged segments all are accepted, and of no other topic any.
ACCEPTED: Final = "flipped"

#: An index that is removed before the audit.
MISSING: Final = f"clock-0/{10:020d}.timeindex"


@dataclass(frozen=True)
class Built:
    """A catalog after three builds: the README's of the sample by Spark, and two of `broker` and `volume` by kidx;
    after an audit of these two, and a plan; and after the damage of `ACCEPTED` was accepted.

    `then` and `now` are the segments that the last two found in all sources, `gone` those of `then` that are not in
    `now`.
    """

    catalog: Path
    then: list[Found]
    now: list[Found]
    third_at: datetime

    @property
    def gone(self) -> list[Found]:
        left = {found.key for found in self.now}
        return [found for found in self.then if found.key not in left]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    directory = tmp_path_factory.mktemp("catalog")
    catalog, broker, volume = directory / "catalog", directory / "broker", directory / "volume"
    of_sample = ("--source", f"sample={SAMPLES}", "--index-dir", directory / "index-of-sample", "--catalog", catalog)
    assert build_here(*of_sample).code == 0
    make_broker(broker)
    make_volume(volume)
    second_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    third_at = second_at + timedelta(hours=1)
    sources = ("--source", f"broker={broker}", "--source", f"volume={volume}", "--index-dir", directory / "index")

    def build(now: datetime) -> list[Found]:
        found = [*find("broker", broker), *find("sample", SAMPLES), *find("volume", volume)]
        for each in found:
            assert each.log_bytes and each.log_mtime_ns and each.recovered  # as it is now, not when it is asked for
        ended = kidx_build_here(*sources, "--catalog", catalog, "--now", now.isoformat())
        assert ended.code == 3, ended.err
        return found

    then = build(second_at)
    change_broker(broker)
    now = build(third_at)
    (directory / "index" / "broker" / MISSING).unlink()
    audited = run_here(kidx, "verify", *sources, "--catalog", catalog)
    assert audited.code == 3, audited.err
    # By a clock that stands: some segments of the sample, which is of 21 November 2026, are to go and some to stay.
    planned = kidx_retention_here("--catalog", catalog, "--what-if", "--now", "2026-11-27T00:00:00Z")
    assert planned.code == 3, planned.err
    looked_at = ("--topics", ACCEPTED, "--reason", "copies", "--by", "ann", "--apply")
    _audit_bucket(directory / "bucket", catalog)
    accepted = accept_here("--catalog", catalog, *looked_at, "--now", third_at.isoformat())
    assert accepted.code == 0, accepted.err
    return Built(catalog, then, now, third_at)


@pytest.fixture(scope="module")
def spark(built: Built) -> Iterator[SparkSession]:
    """A session with the catalog's tables, opened as the page says."""
    with session("docs") as spark:
        for table in TABLES:
            spark.sql(f"CREATE TABLE {table.name} USING delta LOCATION '{built.catalog}/{table.name}'")
        made = [view for view in views() if "unnest" not in view]
        for view in made:
            spark.sql(view)
        yield spark
        for view in made:
            spark.sql(f"DROP VIEW {view.partition('VIEW ')[2].split()[0]}")
        for table in TABLES:
            spark.sql(f"DROP TABLE {table.name}")


@pytest.fixture(scope="module")
def datafusion(built: Built) -> QueryBuilder:
    """The same without Spark, as the page says."""
    builder = QueryBuilder()
    for table in TABLES:
        builder.register(table.name, DeltaTable(built.catalog / table.name))
    for view in views():
        if "unnest" in view:
            builder.execute(view)
    return builder.register("segments_before", DeltaTable(built.catalog / SEGMENTS.name, version=1))


def by(key: Callable[[Found], Any], segments: Iterable[Found]) -> dict[Any, list[Found]]:
    groups = defaultdict(list)
    for found in segments:
        groups[key(found)].append(found)
    return groups


def partition_of(found: Found) -> tuple[str, str, int]:
    return found.key[:3]


def end_of(segments: list[Found]) -> tuple[int, int | None]:
    return segments[0].base_offset, segments[-1].next_offset


def floor_segments(built: Built) -> Rows:
    candidates = [found for found in built.now if found.topic == "txn-mixed" and found.base_offset <= 6000]
    floors = [max(group, key=lambda found: found.base_offset) for group in by(partition_of, candidates).values()]
    assert [(found.source, found.base_offset) for found in floors] == [("broker", 84), ("sample", 5891), ("volume", 84)]
    return [(found.source, found.base_offset, found.next_offset, str(found.path)) for found in floors]


def topic_sizes(built: Built) -> Rows:
    sizes = [
        (topic, len(group), sum(found.log_bytes for found in group), sorted(set().union(*(f.codecs for f in group))))
        for topic, group in by(lambda found: found.topic, built.now).items()
    ]
    return sorted(sizes, key=lambda row: (-row[2], row[0]))


def bytes_lost(built: Built) -> Rows:
    """No index stands beside the logs, so those after the damage stay."""
    [flipped, *later] = [found for found in built.now if found.topic == "flipped"]
    assert flipped.recovered.reason == "crc-mismatch" and len(later) == 2
    return [("broker", "flipped", 0, 0, 1, *after_damage(flipped))]


def after_damage(found: Found) -> tuple[int, int, int]:
    """The bytes, batches and records from the first invalid batch on, by the headers of batches of magic 2."""
    log = found.path.read_bytes()[found.recovered.valid_bytes :]
    position = batches = records = 0
    while position < len(log):
        records += int.from_bytes(log[position + 57 : position + 61])
        position += 12 + int.from_bytes(log[position + 8 : position + 12])
        batches += 1
    assert position == len(log)
    return position, batches, records


def to_be_recovered(built: Built) -> Rows:
    recovered = []
    for (source, topic, partition), group in by(partition_of, built.now).items():
        recovery_point = 35 if (source, topic) == ("broker", "clock") else None
        from_here = [found for found in group if found.base_offset >= 30] if recovery_point else group
        if source != "volume":
            size = sum(found.log_bytes for found in from_here)
            recovered.append((source, topic, partition, recovery_point, len(from_here), size))
    return sorted(recovered, key=lambda row: (-row[5], row[:3]))


def expired(built: Built) -> Rows:
    limit = datetime(2025, 12, 25, tzinfo=UTC).timestamp() * 1000
    return [
        (*found.key, found.log_bytes, found.max_timestamp)
        for found in built.now
        if found.recovered.reason in (None, "crc-mismatch") and found.readable and not found.active
        if (found.max_timestamp_ms if found.max_timestamp_ms >= 0 else found.log_mtime_ns // 1_000_000) < limit
    ]


def old_formats(built: Built) -> Rows:
    old = by(lambda found: (found.source, found.topic), (found for found in built.now if {0, 1} & set(found.magics)))
    assert list(old) == [("broker", "old")]
    return [
        (
            *key,
            len(group),
            sum(found.log_bytes for found in group),
            max(f.max_timestamp for f in group if f.max_timestamp),
        )
        for key, group in old.items()
    ]


def not_joined(built: Built) -> Rows:
    gaps = []
    for before, after in pairwise(built.now):
        if partition_of(before) == partition_of(after) and before.next_offset not in (None, after.base_offset):
            status = "truncated" if before.recovered.reason else "ok"
            missing = after.base_offset - (before.next_offset or 0)
            gaps.append((*before.key, status, before.next_offset, after.base_offset, missing))
    assert {row[1] for row in gaps} == {"clock", "compacted", "flipped", "payments"}
    return gaps


def broken_files(built: Built) -> Rows:
    """Indexes of a log on which Kafka fails, logs that are damaged, unreadable or have lost their end, the last log
    that only its indexes tell of, the index that was removed, and offsets between logs that nothing explains.
    """
    index, logs = built.catalog.parent / "index" / "broker", built.catalog.parent / "broker"

    def log(topic: str, base_offset: int, reason: str, consequence: str) -> tuple[Any, ...]:
        path = logs / f"{topic}-0" / f"{base_offset:020d}.log"
        return ("broker", topic, 0, base_offset, ".log", reason, consequence, str(path))

    failing = ("log-offset-overflow", "a broker that has to recover the segment fails")
    overflow = [
        ("broker", "overflow", 0, 0, suffix, *failing, str(index / "overflow-0" / f"{0:020d}{suffix}"))
        for suffix in (".index", ".timeindex")
    ]
    empty = (
        "a broker that does not recover the segment makes an empty one and leaves it so: retention and searches by "
        "time take the age of the file"
    )
    truncated = (
        "a broker that starts truncates the log to byte 20,332: 48,892 bytes are lost, 23 batches with 480 records"
    )
    lost = "offsets 5797 to 5799 are missing, which were committed; another replica may have them"
    gone = (
        "its records are missing, if no broker has truncated the log: neither retention nor compaction removes the "
        "last segment; offsets from 5797 on are in no log"
    )
    unexplained = (
        "cleanup.policy is known neither by the cluster's metadata (--cluster-metadata) nor by --server-properties, "
        "and the topic's logs have a record for each of their offsets, as without compaction. Consumers and followers "
        "pass over these offsets without a word: look for the log on other replicas and copies"
    )

    def gap(topic: str, first: int) -> tuple[Any, ...]:
        path = logs / f"{topic}-0" / f"{first:020d}.log"
        return ("broker", topic, 0, first, "gap", "gap-unexplained", unexplained, str(path))

    first_gap, *other_gaps = [gap("clock", base_offset + 1) for base_offset in list(CLOCK)[:-1]]
    return [
        log("broken", 0, "cannot-read", "its index and auxiliary files were not checked"),
        first_gap,
        ("broker", "clock", 0, 10, ".timeindex", "missing", empty, str(index / MISSING)),
        *other_gaps,
        log("flipped", 0, "crc-mismatch", truncated),
        overflow[0],
        log("overflow", 0, "offset-overflow", "a broker that starts splits the segment into several"),
        overflow[1],
        gap("payments", 1),
        log("txn-mixed", 84, "ends-below-high-watermark", lost),
        log("txn-mixed", 5797, "missing", gone),
    ]


def transactions(segments: Iterable[Found]) -> tuple[list[tuple[Found, int, int]], dict[int, tuple[int, int]]]:
    """Of one partition, in plain Python: those aborted, with the segment of the marker, its offset and the first one;
    and by producer the first and last offset of those still open.
    """
    aborted, open_ = [], dict[int, tuple[int, int]]()
    for found in segments:
        for batch in found.batches:
            header = batch.header
            if not (batch.is_v2 and header["producer_id"] >= 0 and header["attributes"] & ATTRIBUTE_TRANSACTIONAL):
                continue
            first, _ = open_.get(header["producer_id"], (header["base_offset"], 0))
            if not header["attributes"] & ATTRIBUTE_CONTROL:
                open_[header["producer_id"]] = first, batch.last_offset
            elif marker := read_control_batch(batch):
                if header["producer_id"] in open_ and marker[0] == CONTROL_TYPE_ABORT:
                    aborted.append((found, header["base_offset"], first))
                open_.pop(header["producer_id"], None)
    return aborted, open_


def aborted_by_topic(built: Built) -> Rows:
    by_topic = defaultdict(list)
    for group in by(partition_of, built.now).values():
        for found, last, first in transactions(group)[0]:
            by_topic[found.topic].append((first < found.base_offset, last - first))
    assert set(by_topic) == {"txn-mixed"}
    return [
        (topic, len(found), sum(earlier for earlier, _ in found), max(span for _, span in found))
        for topic, found in by_topic.items()
    ]


def still_open(built: Built) -> Rows:
    found = [
        (*key, producer_id, first, last)
        for key, group in by(partition_of, built.now).items()
        for producer_id, (first, last) in sorted(transactions(group)[1].items())
    ]
    assert {row[0] for row in found} == {"broker", "volume"}, "the sample's have all ended"
    return found


def copies_with_other_bounds(built: Built) -> Rows:
    copies = by(partition_of, [found for found in built.now if found.topic == "txn-mixed"])
    assert len({end_of(group) for group in copies.values()}) == 2
    return [
        ("txn-mixed", 0, source, *end_of(group), 5800 if source == "broker" else None)
        for (source, _, _), group in copies.items()
    ]


def made_again(built: Built) -> Rows:
    metadata = (SAMPLES / "txn-mixed-0" / "partition.metadata").read_text()
    ids = sorted(["AAAAAAAAAAAAAAAAAAAAAA", metadata.partition("topic_id: ")[2].strip()])
    return [("txn-mixed", ids, ["broker", "sample", "volume"])]


def changed_since(built: Built) -> Rows:
    rows = [(*found.key, None, status_of(found), None, found.log_bytes) for found in built.now]
    rows += [(*found.key, None, "gone", None, found.log_bytes) for found in built.gone]
    return sorted(row for row in rows if row[0] != "sample")


def problems(built: Built) -> set[tuple[Any, ...]]:
    return {
        (status_of(found), found.recovered.reason or "cannot-read", *found.key, found.recovered.valid_bytes)
        for found in built.now
        if status_of(found) != "ok"
    }


def accepted(built: Built) -> Rows:
    return [
        (*found.key, status_of(found), "ann", built.third_at, "copies", True) for found in damaged(built, accepted=True)
    ]


def not_accepted(built: Built) -> Rows:
    return [
        (
            *found.key,
            status_of(found),
            found.recovered.reason or "cannot-read",
            found.recovered.valid_bytes,
            str(found.path),
        )
        for found in damaged(built, accepted=False)
    ]


def damaged(built: Built, *, accepted: bool) -> list[Found]:
    found = [each for each in built.now if status_of(each) != "ok" and (each.topic == ACCEPTED) is accepted]
    assert found
    return sorted(found, key=lambda each: each.key)


def status_of(found: Found) -> str:
    if not found.readable:
        return "unreadable"
    return {None: "ok", "crc-mismatch": "truncated", "offset-overflow": "quarantined"}[found.recovered.reason]


def planned(built: Built) -> list[dict[str, Any]]:
    """The rows of the one plan."""
    rows = DeltaTable(built.catalog / "retention_plans").to_pyarrow_table().to_pylist()
    key = ("policy", "source", "topic", "partition", "base_offset")
    return sorted(rows, key=lambda row: tuple(row[name] for name in key))


def planned_topics(built: Built) -> Rows:
    topics: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in planned(built):
        sums = topics[row["policy"], row["topic"]]
        sums[0] += row["decision"] == "delete"
        sums[1] += row["bytes"] if row["decision"] == "delete" else 0
        sums[2] += row["decision"] == "undecided"
    return [(*key, *sums) for key, sums in sorted(topics.items())]


def due(built: Built) -> Rows:
    """Each segment when it and all before it are old enough."""
    answer: Rows = []
    for _, of_partition in groupby(planned(built), key=lambda row: (row["source"], row["topic"], row["partition"])):
        latest: int | None = 0
        for row in of_partition:
            if row["decision"] == "delete":
                continue
            own = row["largest_timestamp_ms"] + row["retention_ms"] + 1
            by_time = row["reason"] in ("time-not-reached", "future-timestamp", "no-timestamps")
            if row["reason"] != "behind":
                latest = max(latest, own) if by_time and own < YEAR_10000 and latest is not None else None
            names = ("policy", "source", "topic", "partition", "base_offset", "reason")
            answer.append((*(row[name] for name in names), latest))
    assert {row[-1] is None for row in answer} == {True, False}
    return answer


QUERIES: Final = dict(queries())

LOST: Final = "What would a broker lose at its next start?"
#: Answers by question; a question that is not here is asked in a test of its own.
ANSWERS: Final[dict[str, Callable[[Built], Rows]]] = {
    "Which segment holds offset 6000 of a partition?": floor_segments,
    "How large are the topics, and how are they compressed?": topic_sizes,
    "Which damaged segments has nobody accepted as they are now?": not_accepted,
    "Which damaged segments were accepted, by whom and why, and which of these have changed since?": accepted,
    LOST: bytes_lost,
    "Which partitions would a broker recover at its next start, and how much would it read?": to_be_recovered,
    "Which segments hold nothing younger than seven days, seen from a given time?": expired,
    "Where is the old message format, magic 0 or 1, still around?": old_formats,
    "Where do consecutive segments not join?": not_joined,
    "How many transactions were aborted, by topic, and what did they span?": aborted_by_topic,
    "Which transactions are still open?": still_open,
    "Which partitions are in several sources, with different bounds?": copies_with_other_bounds,
    "Which topics were deleted and made again, so that sources hold different topics of one name?": made_again,
    "What has changed since an earlier state of the catalog?": changed_since,
    "What does the last plan delete, of which topics, and what is not decided?": planned_topics,
    "Why does each segment stay by the last plan, and when will it go?": due,
    "Which files did the last audit of each partition find broken, and what does that lead to?": broken_files,
}
#: The same of a bucket's remote segments.
REMOTE_ANSWERS: Final[dict[str, Callable[[Path], Rows]]] = {
    "Which remote segments have lost an object or have a broken one, by the last audit of each bucket, and what does "
    "that lead to?": _damaged_objects,
    "How many bytes of each topic are in the bucket, and which of them does nobody read?": (_bytes_by_topic),
    "Which partitions of a log dir are behind in copying, by how much and since when?": _behind,
    "Which objects of the bucket have changed since an earlier audit?": _changed_objects,
}
NOT_WELL: Final = "Which segments have problems, and why?"
LAST_BUILD: Final = "What did the last build do, and how fast?"


def test_every_question_has_its_answer_tested() -> None:
    assert set(QUERIES) == {*ANSWERS, *REMOTE_ANSWERS, NOT_WELL, LAST_BUILD}


@pytest.mark.parametrize("question", ANSWERS)
def test_question_is_answered_right(question: str, spark: SparkSession, datafusion: QueryBuilder, built: Built) -> None:
    _assert_answered(spark, datafusion, question, ANSWERS[question](built))


@pytest.mark.parametrize("question", REMOTE_ANSWERS)
def test_a_question_on_a_bucket_is_answered_right(
    question: str, spark: SparkSession, datafusion: QueryBuilder, built: Built
) -> None:
    _assert_answered(spark, datafusion, question, REMOTE_ANSWERS[question](built.catalog.parent / "bucket"))


def _assert_answered(spark: SparkSession, datafusion: QueryBuilder, question: str, expected: Rows) -> None:
    assert expected, "nothing is asked of these log dirs"
    without_spark = _asked(datafusion, question)
    assert [tuple(row.values()) for row in without_spark.to_pylist()] == expected
    answered = spark.sql(QUERIES[question])
    assert answered.columns == without_spark.column_names
    assert_df_equality(answered, spark.createDataFrame(expected, answered.schema), ignore_nullable=True)


def _asked(datafusion: QueryBuilder, question: str) -> pyarrow.Table:
    return pyarrow.table(datafusion.execute(QUERIES[question]).read_all())


def _answered_by_both(spark: SparkSession, datafusion: QueryBuilder, question: str) -> list[dict[str, Any]]:
    theirs = _without_order(_asked(datafusion, question).to_pylist())
    assert _without_order(spark.sql(QUERIES[question]).toArrow().to_pylist()) == theirs
    return theirs


def test_what_is_not_well_is_named_with_where_and_why(
    spark: SparkSession, datafusion: QueryBuilder, built: Built
) -> None:
    answered = _answered_by_both(spark, datafusion, NOT_WELL)
    assert {tuple(row.values())[:7] for row in answered} == problems(built)
    assert {row["status"] for row in answered} == {"truncated", "quarantined", "unreadable"}
    assert all(row["reason_detail"] for row in answered)


def test_the_last_build_tells_what_it_did(spark: SparkSession, datafusion: QueryBuilder, built: Built) -> None:
    """It read the segment that had grown and the one that it never can, and saw two that are gone."""
    [row] = _answered_by_both(spark, datafusion, LAST_BUILD)
    assert row["started_at"] == built.third_at
    assert (row["segments"], row["gone"], row["by_status"]) == (2, len(built.gone), [("ok", 1), ("unreadable", 1)])
    assert row["unchanged"] == sum(found.source != "sample" for found in built.now) - 2
    assert row["partitions"] == len({partition_of(found) for found in built.now if found.source != "sample"})
    assert row["mb_per_second"] >= 0 and row["seconds"] > 0


@pytest.mark.parametrize(
    ("with_indexes", "stopped_cleanly", "segments"),
    [(False, False, 1), (True, False, 3), (True, True, 0), (False, True, 1)],
)
def test_what_a_start_loses_depends_on_the_last_stop_and_on_the_indexes_beside_the_logs(
    with_indexes: bool, stopped_cleanly: bool, segments: int, tmp_path: Path
) -> None:
    """A broker deletes what comes after the damage only where it finds that after it has loaded all segments."""
    log_dir, catalog = tmp_path / "log-dir", tmp_path / "catalog"
    make_flipped(log_dir)
    found = list(find("it", log_dir))
    if with_indexes:
        for each in found:
            each.path.with_suffix(".index").touch()
    if stopped_cleanly:
        (log_dir / ".kafka_cleanshutdown").touch()
    options = ("--source", f"it={log_dir}", "--index-dir", tmp_path / "index", "--catalog", catalog)
    assert kidx_build_here(*options).code == 3
    assert run_here(kidx, "verify", *options).code == 3
    lost, batches, records = after_damage(found[0])
    for each in found[1:segments]:
        lost += each.log_bytes
        batches += len(each.batches)
        records += each.records or 0
    expected = [("it", "flipped", 0, 0, segments, lost, batches, records)] if segments else []
    assert [tuple(row.values()) for row in rows(catalog, QUERIES[LOST])] == expected


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_another_reader_sees_the_same_rows(table: Table, spark: SparkSession, built: Built) -> None:
    if table is INDEX_BYTES:  # these builds pack nothing
        key = {"source": "sample", "topic": "t", "partition": 1, "base_offset": 2**62, "kind": "index"}
        append_rows(built.catalog, table, {**key, "size_bytes": 8, "crc32c": 2**32 - 1, "content": bytes(range(8))})
    order = f"SELECT * FROM {table.name} ORDER BY {', '.join(f'`{name}`' for name in table.key)}"
    ours = spark.sql(order).toArrow().to_pylist()
    theirs = rows(built.catalog, order.replace("`", '"'))
    assert _without_order(theirs) == _without_order(ours) and ours


def _without_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the entries of maps sorted, as they have no order."""
    for row in rows:
        for name, value in row.items():
            if isinstance(value, list) and value and isinstance(value[0], tuple):
                row[name] = sorted(value)
    return rows


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_are_as_declared(table: Table, spark: SparkSession, built: Built) -> None:
    """Types, comments and not null for each column, and no feature that keeps a reader or a writer out."""
    declared = [(column.name, spark_type(column), column.nullable, column.comment) for column in table.columns]
    schema = spark.table(table.name).schema
    assert [(field.name, field.dataType, field.nullable, field.metadata["comment"]) for field in schema] == declared
    [detail] = spark.sql(f"DESCRIBE DETAIL {table.name}").collect()
    assert (detail.minReaderVersion, detail.minWriterVersion, detail.description) == (1, 2, table.comment)
    assert (detail.properties, detail.clusteringColumns) == (delta_properties(table), [])
    assert DeltaTable(built.catalog / table.name).to_pyarrow_table().num_rows == spark.table(table.name).count()


def test_rows_of_segments_are_unique_by_key(spark: SparkSession, built: Built) -> None:
    every = spark.table(SEGMENTS.name)
    assert every.select(*SEGMENTS.key).distinct().count() == every.count() == len(built.now) + len(built.gone)


def test_timestamps_mean_utc_and_are_null_where_no_calendar_has_them(spark: SparkSession, built: Built) -> None:
    """Under ANSI, where an overflow is an error: −1, −5, the largest long and the year 10000 give null, 0 does not."""
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    clock = spark.sql(
        "SELECT base_offset, max_timestamp_ms, string(max_timestamp) AS text FROM segments WHERE topic = 'clock'"
    )
    found = {row.base_offset: (row.max_timestamp_ms, row.text) for row in clock.collect()}
    assert found == {
        0: (1_790_000_000_000, "2026-09-21 14:13:20"),
        10: (2**63 - 1, None),
        20: (-1, None),
        30: (-1, None),
        40: (253_402_300_800_000, None),
        50: (253_402_300_799_999, "9999-12-31 23:59:59.999"),
        60: (0, "1970-01-01 00:00:00"),
        70: (1_790_000_000_002, "2026-09-21 14:13:20.002"),
    }
