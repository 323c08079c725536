"""Plans: Kafka's decisions from the catalog and from index files, in Delta, in JSON and on screen, with what a person
would not expect of them in words.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow
import pytest

from kidxlib.commands.retention import RetentionCommand
from kidxlib.format import layouts
from kidxlib.format.segment_files import TIME_INDEX_SUFFIX, segment_file
from kidxlib.log.log import Log
from kidxlib.operations.retention.make_plan import RetentionFinding
from kidxlib.operations.retention.plan_work import PlanOptions, planned_rows, split_into_partitions
from kidxlib.operations.retention.retention_request import PlanRequest
from kidxlib.records.reader import Record
from kidxlib.retention.policy import PlanWarning, Policy, TopicPolicy
from kidxlib.text.times import show_time
from tests.docs.log_dirs import put
from tests.faults.trees import write_log
from tests.jobs.archive import Archive, assert_refused
from tests.jobs.test_clock import _given
from tests.support import cluster_metadata
from tests.support.kafka.classes import Kafka
from tests.support.kafka.retention import KafkaRetention
from tests.support.logs import encoded, golden
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import kidx_build_here, rows
from tests.support.spark.jobs import kidx_retention_here as retention_here

#: In the middle of what the sample's records say of their time.
_NOW: Final = 1_795_224_739_000
_DAY_MS: Final = 24 * 60 * 60 * 1000

_POLICIES: Final = """\
[policy.hours]
retention.ms = 10000
[[policy.hours.topic]]
match = "compacted"
cleanup.policy = "delete"

[policy.small]
retention.ms = -1
retention.bytes = 200000
[[policy.small.topic]]
match = "compacted"
cleanup.policy = "delete"

[policy.by-topic]
[[policy.by-topic.topic]]
match = ".*-.*"
order = 2
retention.ms = 0
[[policy.by-topic.topic]]
match = "plain-.*"
order = 1
cleanup.policy = "compact"
log.start.offsets = { 0 = 14000 }
[[policy.by-topic.topic]]
match = "append-time"
order = 0
remote.storage.enable = true
"""
#: What a deletion rests on besides limits.
_ALL_SAID: Final = "cleanup.policy = 'delete'\nremote.storage.enable = false\n"
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "hours": {"retention.ms": 10000},
    "small": {"retention.ms": -1, "retention.bytes": 200000},
}

_THEN_MS = 1_760_000_000_935


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The sample, built once; who changes it takes a copy."""
    archive = Archive(tmp_path_factory.mktemp("retention"))
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    archive.build()
    return archive


@pytest.fixture(scope="module")
def kafka_retention() -> Iterator[KafkaRetention]:
    with Kafka() as kafka:
        yield KafkaRetention(kafka)


def _deleted(plan: dict[str, Any], key: str = "decision") -> dict[tuple[str, str], list[int]]:
    """By policy and partition directory, the base offsets that go."""
    found: dict[tuple[str, str], list[int]] = {}
    for segment in plan["segments"]:
        of_partition = found.setdefault((segment["policy"], f"{segment['topic']}-{segment['partition']}"), [])
        if segment[key] == "delete":
            of_partition.append(segment["base_offset"])
    return found


def test_policies_are_compared_and_each_decides_as_kafka(
    archive: Archive, kafka_retention: KafkaRetention, tmp_path: Path
) -> None:
    """Several policies in one run; what goes is what UnifiedLog deletes; all of it stands in the table, too."""
    policy = tmp_path / "policy.toml"
    policy.write_text(_POLICIES)
    plan = archive.plan("--policy", policy, "--now", str(_NOW))
    assert plan["policies"] == ["hours", "small", "by-topic"]
    deleted = _deleted(plan)
    for name, settings in _SETTINGS.items():
        for directory in sorted(archive.log_dir.iterdir()):
            if directory.name.startswith("__"):
                continue
            copy = tmp_path / name / directory.name
            shutil.copytree(directory, copy)
            assert deleted[name, directory.name] == kafka_retention.retain(copy, settings, _NOW).deleted, (
                name,
                directory,
            )
    assert sum(map(len, deleted.values())) >= 5
    reasons = {(segment["policy"], segment["topic"], segment["reason"]) for segment in plan["segments"]}
    assert {reason for _, topic, reason in reasons if topic == "__transaction_state"} == {"internal-topic"}
    assert ("by-topic", "append-time", "not modelled") in reasons
    assert ("by-topic", "plain-zstd", "log-start") in reasons and ("by-topic", "plain-zstd", "compacted") in reasons
    recorded = rows(archive.catalog, f"SELECT * FROM retention_plans WHERE plan_id = '{plan['plan_id']}'")
    assert len(recorded) == len(plan["segments"]) == 3 * 12
    names = ("policy", "topic", "partition", "base_offset", "decision", "reason", "bytes")
    as_json = sorted([segment[name] for name in names] for segment in plan["segments"])
    assert as_json == sorted([row[name] for name in names] for row in recorded)
    for topic in plan["topics"]:
        of_topic = [s for s in plan["segments"] if (s["policy"], s["topic"]) == (topic["policy"], topic["topic"])]
        going = [s for s in of_topic if s["decision"] == "delete"]
        assert (topic["segments"], topic["deleted"]) == (len(of_topic), len(going))
        assert (topic["bytes"], topic["freed"]) == (sum(s["bytes"] for s in of_topic), sum(s["bytes"] for s in going))


def test_internal_topics_are_planned_on_request(archive: Archive) -> None:
    """As a broker configures them: the state of transactions is compacted, and never goes by time."""
    plan = archive.plan("--include-internal", "--topics", "__.*", "--now", str(_NOW + 99 * _DAY_MS))
    assert {(segment["decision"], segment["reason"]) for segment in plan["segments"]} == {("keep", "compacted")}


def test_the_offset_at_which_a_time_cuts(archive: Archive) -> None:
    """For each partition what `ListOffsets` answers, from time index, offset index and batches; else the log end."""
    columns = "*, NULL AS log_start_offset, NULL AS high_watermark, FALSE AS is_only_replica"
    found = none = 0
    for directory in sorted(archive.log_dir.iterdir()):
        log = Log.open(directory, archive.index_dir / directory.name)
        topic = directory.name.rpartition("-")[0]
        of_topic = f"SELECT {columns} FROM segments WHERE topic = '{topic}' ORDER BY base_offset"
        table = pyarrow.Table.from_pylist(rows(archive.catalog, of_topic))
        edges = [segment.largest_timestamp + step for segment in log.segments for step in (-1000, -1, 0, 1)]
        for timestamp in [0, *edges, _NOW, *range(1_760_000_000_000, 1_760_000_800_000, 50_000)]:
            options = PlanOptions(now_ms=timestamp + 1000, from_files=False, include_internal=True, what_if=True)
            config = replace(Policy().of_topic(topic), policy=TopicPolicy(retention_ms=1000))
            planned = planned_rows(table, split_into_partitions(table), "it", {topic: config}, (), options, None)
            answer = log.fetch_offset_by_timestamp(timestamp)
            expected = log.log_end_offset if answer is None else answer.offset
            assert [cut for cut in planned["cut_offset"].to_pylist() if cut is not None] == [expected], timestamp
            found, none = found + (answer is not None), none + (answer is None)
    assert found >= 50 and none >= 10


def test_high_watermark_of_the_checkpoint(tmp_path: Path) -> None:
    """Each partition has its own; one that is past the log end keeps nothing. Of the only replica, as the metadata has
    it, the broker goes by the log end when it starts, and what stays otherwise is told. So is what is missing.
    """
    archive, ids = Archive(tmp_path), {topic: cluster_metadata.topic_id(topic) for topic in "tuv"}
    for topic, base_offset in itertools.product("tuv", (0, 10, 20)):
        put(archive.log_dir / f"{topic}-0", base_offset, [Batch(offset_step=10, timestamp=1)])
        (archive.log_dir / f"{topic}-0/partition.metadata").write_text(f"version: 0\ntopic_id: {ids[topic]}\n")
    (archive.log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (archive.log_dir / "replication-offset-checkpoint").write_text("0\n5\nt 0 15\nu 0 99\nv 0 15\nw 0 7\nx 0 7\n")
    replicas = {"t": [1, 2], "u": [1], "v": [1]}
    values = [cluster_metadata.topic(topic, ids[topic]) for topic in ids]
    values += [cluster_metadata.partition(ids[topic], 0, of, [ids[topic]] * len(of)) for topic, of in replicas.items()]
    lost = cluster_metadata.topic_id("w")
    values += [cluster_metadata.topic("w", lost), cluster_metadata.partition(lost, 0, [1], [lost])]
    cluster_metadata.put_metadata(archive.log_dir, values)
    archive.build()
    policy = tmp_path / "policy.toml"  # said of the topics themselves, whose segments lack offsets as compacted ones do
    policy.write_text("".join(f"[[topic]]\nmatch = '{topic}'\ncleanup.policy = 'delete'\n" for topic in "tuv"))
    plan = archive.plan("--policy", policy, "--what-if", "--topics", "[tuvw]", code=3)
    assert [(end["topic"], end["known_end"]) for end in plan["ends_below"]] == [("u", 99)]
    assert [(each["topic"], each["known_end"]) for each in plan["partitions_missing"]] == [("w", 7)]
    reported = [(s["topic"], s["reason"], s["rolls_first"]) for s in plan["segments"]]
    assert reported == [
        *(("t", "time", False), ("t", "high-watermark", False), ("t", "high-watermark", False)),
        *(("u", "time", False), ("u", "time", False), ("u", "time", True)),
        *(("v", "time", False), ("v", "time", False), ("v", "time", True)),
    ]
    warned = [(w["surprise"], w["segments"], w["partitions"]) for w in plan["warnings"]]
    expected = [("late-high-watermark", 2, 1), ("looks-compacted", 7, 3), ("only-replica", 2, 1)]
    assert warned == [*expected, ("whole-partition", 6, 2)]


def test_time_indexes_that_say_something_else(
    archive: Archive, kafka_retention: KafkaRetention, tmp_path: Path
) -> None:
    """Padded with zeros, incomplete, missing: both decisions are reported, and that by files is a broker's."""
    spoiled = Archive(tmp_path / "spoiled")
    for name in ("kafka-logs", "catalog"):
        shutil.copytree(archive.directory / name, spoiled.directory / name)
    shutil.rmtree(spoiled.catalog)
    for directory in spoiled.log_dir.iterdir():
        shutil.copytree(archive.index_dir / directory.name, directory, dirs_exist_ok=True)
    for log in spoiled.log_dir.glob("*/*.log"):
        os.utime(log, (_NOW // 1000, _NOW // 1000))  # as young as its records, whenever the sample was checked out
    spoiled.build()

    def index(directory: str, base_offset: int) -> Path:
        return spoiled.log_dir / directory / segment_file(base_offset, TIME_INDEX_SUFFIX)

    whole = index("append-time-0", 0).stat().st_size
    index("append-time-0", 0).write_bytes(bytes(whole))
    os.truncate(index("compacted-0", 16431), 0)
    index("txn-mixed-0", 84).unlink()
    now = _NOW + _DAY_MS
    policy = tmp_path / "policy.toml"
    policy.write_text(f"retention.ms = {2 * _DAY_MS}\n[[topic]]\nmatch = 'compacted'\ncleanup.policy = 'delete'\n")
    settings = ("--policy", policy, "--now", str(now))
    plan = spoiled.plan("--from-files", *settings, code=3)
    differ = [s for s in plan["segments"] if s["decision"] != s["decision_on_disk"]]
    assert plan["disagreement_count"] == len(differ) >= 1
    assert any(
        "by the catalog keep (time-not-reached), by its time index delete (time)" in line
        for line in plan["disagreements"]
    )
    warned = {
        (s["topic"], s["base_offset"], word)
        for s in plan["segments"]
        for word in s["warnings"]
        if word.startswith("time-")
    }
    assert warned - {("txn-mixed", 5797, "timestamps-backwards")} == {
        ("append-time", 0, "time-index-padded"),
        ("compacted", 16431, "time-index-cut-short"),
        ("txn-mixed", 84, "time-index-cut-short"),
    }
    by_files, by_catalog = _deleted(plan, "decision_on_disk"), _deleted(plan)
    for directory in sorted(spoiled.log_dir.iterdir()):
        if not directory.name.startswith("__"):
            found = kafka_retention.retain(directory, {"retention.ms": 2 * _DAY_MS}, now, clean=True)
            assert by_files["default", directory.name] == found.deleted, directory.name
    assert by_files["default", "append-time-0"] and not by_catalog["default", "append-time-0"]


def test_a_policy_that_nobody_said_decides_nothing(archive: Archive, tmp_path: Path) -> None:
    """Values that are known leave the others unknown; then nothing is decided, one line says so, and how to tell."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "retention.ms = 1\nretention.bytes = 1\n[[topic]]\nmatch = 'plain-zstd'\ncleanup.policy = 'delete'\n"
    )
    for arguments, missing in (
        ((), ["cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable"]),
        (("--retention-ms", "1"), ["cleanup.policy", "retention.bytes", "remote.storage.enable"]),
        (("--policy", policy), ["remote.storage.enable"]),
    ):
        plan = archive.plan("--topics", "plain-zstd", *arguments, code=3)  # which was asked for
        assert plan["unknown_policies"] == {"plain-zstd": missing} and not plan["what_if"]
        assert {(s["decision"], s["reason"]) for s in plan["segments"]} == {("undecided", "policy-unknown")}
    ended = retention_here("--catalog", archive.catalog, "--policy", policy)
    assert "not decided: 11 segments of 4 topics (the first: append-time): no known cleanup.policy, " in ended.out
    assert "give --policy FILE with what kafka-configs --describe --all" in ended.out and ended.code == 0
    # The rest is __transaction_state, which is not asked for.
    assert "policy default: 0 of 1 decided segment go, 0 bytes; not decided: 11 segments of 4 topics" in ended.out
    ended = retention_here("--catalog", archive.catalog, "--policy", policy, "--topics", "plain-zstd")
    assert "policy default: none of 2 segments was decided on" in ended.out
    ended = retention_here("--catalog", archive.catalog, "--policy", policy, "--topics", "plain-zstd", "--what-if")
    assert (
        "Kafka's defaults, not the topics' own: remote.storage.enable of 1 topic (the first: plain-zstd)" in ended.out
    )


def test_where_values_come_from_is_recorded(archive: Archive, tmp_path: Path) -> None:
    """In the plan's rows; and topics that look compacted stay, unless cleanup.policy was said of that very topic."""
    policy = tmp_path / "policy.toml"
    policy.write_text(f"{_ALL_SAID}retention.ms = 1\n[[topic]]\nmatch = '.*zstd'\nretention.bytes = -1\n")
    plan = archive.plan("--policy", policy, "--topics", "plain-zstd")
    origins = dict.fromkeys(("cleanup.policy", "retention.ms", "remote.storage.enable"), "default")
    origins["retention.bytes"] = "pattern"
    assert [s["policy_origins"] for s in plan["segments"]] == [origins] * 2
    query = f"SELECT * FROM retention_plans WHERE plan_id = '{plan['plan_id']}'"
    for row in rows(archive.catalog, query):
        assert (dict(row["policy_origins"]), row["cleanup_policy"], row["remote_storage"]) == (origins, "delete", False)
        assert (row["what_if"], row["policy_file"]) == (False, str(policy))
    policy.write_text(f"{_ALL_SAID}retention.ms = 1\nretention.bytes = -1\n")
    ended = retention_here("--catalog", archive.catalog, "--policy", policy)
    assert "look compacted: 1 topic (the first: compacted, as it: compacted-0/0 has " in ended.out
    assumed = archive.plan("--policy", policy, "--topics", "compacted")
    assert {(s["decision"], s["reason"]) for s in assumed["segments"]} == {("keep", "looks-compacted")}
    what_if = archive.plan("--what-if", "--topics", "compacted")
    assert {(s["decision"], s["reason"]) for s in what_if["segments"]} == {("keep", "looks-compacted")}
    policy.write_text(f"retention.ms = 1\nretention.bytes = -1\n[[topic]]\nmatch = 'compacted'\n{_ALL_SAID}")
    reported = archive.plan("--policy", policy, "--topics", "compacted")
    assert {(s["decision"], s["reason"]) for s in reported["segments"]} == {("delete", "time")}
    assert all("looks-compacted" in s["warnings"] for s in reported["segments"])


def test_the_oldest_record_left_is_one_that_a_consumer_gets(tmp_path: Path) -> None:
    """No marker, and none below the log start offset, which may lie amid a segment."""
    archive = Archive(tmp_path)
    marker = Record(1, 3, b"\0\0\0\1", bytes(6))
    batches = [
        encoded.batch_v2([Record(0, 2, None, b"below")]),
        encoded.batch_v2([marker], attributes=layouts.ATTRIBUTE_CONTROL),
        *(encoded.batch_v2([Record(offset, time, None, b"")]) for offset, time in ((2, 5), (3, 4))),
    ]
    write_log(archive.log_dir / "t-0", 0, b"".join(batches))
    (archive.log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    archive.build()
    [segment] = archive.plan("--now", "6", code=0)["segments"]
    [row] = rows(archive.catalog, "SELECT first_timestamp_ms FROM retention_plans")
    assert (segment["decision"], row["first_timestamp_ms"]) == ("keep", 5)


def test_timestamps_in_seconds_go_with_a_warning(tmp_path: Path) -> None:
    """A broker takes them for ms of 1970, and so does the plan. Those of a clock that counts from 0 are not meant."""
    archive = Archive(tmp_path)
    for base_offset, seconds in ((0, 60), (10, _NOW // 1000), (20, _NOW // 1000)):
        put(archive.log_dir / "t-0", base_offset, [Batch(timestamp=seconds)])
    archive.build()
    policy = tmp_path / "policy.toml"
    policy.write_text("[[topic]]\nmatch = 't'\ncleanup.policy = 'delete'\n")
    options = ("--policy", policy, "--now", str(_NOW), "--what-if")
    plan = archive.plan(*options, code=3)
    assert [s["decision"] for s in plan["segments"]] == ["delete"] * 3
    assert [(gap["first_offset"], gap["last_offset"]) for gap in plan["gaps"]] == [(1, 9), (11, 19)]
    on_screen = retention_here("--catalog", archive.catalog, *options).out
    assert (
        "broken: t-0: gap-unexplained: offsets 1 to 9 are in no log (9 offsets); 1 more gap of the topic: t-0/11-19"
        in on_screen
    )
    assert "topic looks compacted, as it: t-0 has no log with offsets 1 to 9; cleanup.policy was said" in on_screen
    assert ["timestamps-in-seconds" in s["warnings"] for s in plan["segments"]] == [False, True, True]
    [warned] = [w["sentence"] for w in plan["warnings"] if w["surprise"] == "timestamps-in-seconds"]
    assert f"in seconds the largest would be {show_time(_NOW // 1000 * 1000)}" in warned


def test_segments_that_are_not_well_stay(tmp_path: Path) -> None:
    """And all after them; a truncated one counts with what a broker would leave of it. The exit code says so."""
    archive = Archive(tmp_path)
    well = [Batch(timestamp=1), Batch(timestamp=2)]
    for directory, spoiled in (
        ("quarantined-0", [Batch(magic=2, offset_step=0), *well]),
        ("truncated-0", [*well, Batch(crc_error=1)]),
    ):
        put(archive.log_dir / directory, 0, spoiled)
        put(archive.log_dir / directory, 10, well)
    archive.build()
    plan = archive.plan("--what-if", code=3)
    reasons = {
        name: [s["reason"] for s in plan["segments"] if s["topic"] == name] for name in ("quarantined", "truncated")
    }
    assert reasons == {"quarantined": ["not-well", "behind"], "truncated": ["time", "time"]}
    assert plan["not_well_count"] == 1 and plan["not_well"][0].startswith("it: quarantined-0/0: ")
    first = next(s for s in plan["segments"] if s["topic"] == "truncated")
    assert first["bytes"] == (archive.log_dir / "truncated-0" / f"{0:020}.log").stat().st_size


def test_nothing_of_a_bucket_of_tiered_storage_goes(tmp_path: Path) -> None:
    """Its segments go by the rules of RemoteLogManager, whatever a policy says that knows of no remote storage."""
    bucket = golden.SAMPLES.parent / "tiered/kafka-tiered-storage"
    policy = tmp_path / "policy.toml"
    policy.write_text(f"{_ALL_SAID}retention.ms = 0\n")
    for place in (bucket, bucket.parent / "log-dir"):
        catalog, index_dir = tmp_path / f"catalog-{place.name}", tmp_path / f"index-{place.name}"
        built = kidx_build_here(place, "--index-dir", index_dir, "--catalog", catalog)
        # The log dir has its metadata and few of its partitions.
        assert built.code == (0 if place == bucket else 3), built.err
        ended = retention_here("--catalog", catalog, "--policy", policy, "--what-if", "--json")
        assert ended.code == built.code
        reasons = {segment["reason"] for segment in json.loads(ended.out)["segments"]}
        assert (reasons == {"not modelled"}) == (place == bucket), reasons


def test_the_summary_on_screen(archive: Archive) -> None:
    ended = retention_here("--catalog", archive.catalog, "--topics", "plain-zstd", "--now", str(_NOW + 99 * _DAY_MS))
    assert ended.code == 0
    assert "policy default: 2 of 2 segments go, 1.5 MB of 1.5 MB" in ended.out
    assert "warning: policy default: 1 partition would lose all segments" in ended.out


def test_each_segment_is_listed_with_its_reason_and_when_it_goes(archive: Archive) -> None:
    wanted = ("--topics", "txn-mixed", "--now", "2026-11-25T00:00Z")
    planned = archive.plan(*wanted)["segments"]
    ended = retention_here("--catalog", archive.catalog, *wanted, "--segments")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in ended.out.splitlines() if "│ it " in line]
    assert [line[3:6] for line in lines] == [
        [s["decision"], s["reason"], "now" if s["decision"] == "delete" else show_time(s["due_ms"])] for s in planned
    ]
    assert [s["decision"] for s in planned] == ["delete", "keep", "keep", "keep"] and planned[0]["due_ms"] is None
    assert planned[1]["due_ms"] == planned[1]["largest_timestamp_ms"] + 7 * _DAY_MS + 1


def test_delete_records_of_copies_are_refused(archive: Archive, tmp_path: Path) -> None:
    """One partition in two sources: there is no one offset up to which it is to be deleted."""
    both = Archive(tmp_path)
    shutil.copytree(archive.log_dir / "plain-zstd-0", both.log_dir / "plain-zstd-0")
    copy = shutil.copytree(both.log_dir, tmp_path / "copy")
    places = ("--source", f"a={both.log_dir}", "--source", f"b={copy}", "--index-dir", both.index_dir)
    assert kidx_build_here(*places, "--catalog", both.catalog).code == 0
    policy = tmp_path / "policy.toml"
    policy.write_text(f"{_ALL_SAID}retention.ms = -1\nretention.bytes = 478816\n")
    wanted = ("--catalog", both.catalog, "--delete-records-json", tmp_path / "delete.json", "--policy", policy)
    ended = retention_here(*wanted)
    assert_refused(ended, "--delete-records-json: plain-zstd-0 is in the sources a, b; choose one with --source")
    assert retention_here(*wanted, "--source", "a").code == 0
    assert json.loads((tmp_path / "delete.json").read_text()) == {
        "partitions": [{"topic": "plain-zstd", "partition": 0, "offset": 13697}],
        "version": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--source", "nobody"), "--source nobody: no segment in the catalog; there are: it"),
        (("--topics", "nothing"), "no segment of a topic that matches nothing"),
        (("--topics", "("), "--topics (: not a regular expression"),
        (("--now", "2026-01-01"), "has no time zone"),
        (("--retention-ms", "-2"), "-2: expected a whole number from -1 to "),
        (("--policy", "missing.toml"), "missing.toml: cannot read the policies: No such file"),
        (("--policy", "x.toml", "--retention-ms", "1"), "--policy and --retention-ms or --retention-bytes"),
        (("--plan", "x"), "--plan: without --apply nothing is deleted"),
        (("--delete-delay", "1s"), "--delete-delay: without --apply"),
        (("--apply",), "--apply: name the plan to apply with --plan"),
        (("--apply", "--plan", "x", "--topics", "t"), "--topics: --apply takes a plan as it was recorded"),
        (("--apply", "--plan", "x", "--delete-delay", "60"), "'60' is not a duration"),
        (("--apply", "--plan", "x", "--now", "0"), "--now: --apply goes by this machine's clock, and takes no such"),
        (("--apply", "--plan", "x", "--what-if"), "--what-if: --apply takes a plan as it was recorded"),
        (("--delete-records-json", "x", "--now", "0"), "--now: --delete-records-json is for Kafka to delete now"),
        (("--delete-records-json", "x", "--what-if"), "--what-if: --delete-records-json is for Kafka to delete now"),
        (("--delete-records-json", "/nosuch/x.json"), "/nosuch/x.json: no directory /nosuch; make it first"),
        (("--delete-records-json", "/tmp"), "--delete-records-json /tmp: a directory; expected a file's name"),
        (("--apply", "--plan", "x", "--same-broker"), "--same-broker: it says of what broker --server-properties FILE"),
        (("--same-broker", "--server-properties", "/f"), "--same-broker: a plan needs no proof; give it with --apply"),
        (("--apply", "--plan", "x"), "--plan x: no such plan in"),
        (("--catalog", "/nowhere/at/all"), "/nowhere/at/all: no catalog there"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_inputs_get_one_line(arguments: tuple[str, ...], message: str, archive: Archive) -> None:
    catalog = () if "--catalog" in arguments else ("--catalog", archive.catalog)
    assert_refused(retention_here(*catalog, *arguments), message)


def test_a_policy_that_is_not_clear_for_a_topic_is_refused(archive: Archive, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[topic]]\nmatch = "plain.*"\n[[topic]]\nmatch = ".*zstd"\n')
    ended = retention_here("--catalog", archive.catalog, "--policy", policy)
    assert_refused(ended, f"{policy}: topic plain-zstd matches 'plain.*' and '.*zstd'; give each an order")


def test_a_plan_records_the_path_of_its_policy_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that leads elsewhere by the time of --apply is to be read as it is then."""
    (tmp_path / "segments" / "_delta_log").mkdir(parents=True)
    (tmp_path / "2026.toml").write_text("retention.ms = 1\n")
    (tmp_path / "policy.toml").symlink_to("2026.toml")
    monkeypatch.chdir(tmp_path)
    request = _given(RetentionCommand, catalog=str(tmp_path), policy=Path("policy.toml")).resolved
    assert isinstance(request, PlanRequest) and request.policy_file == tmp_path / "policy.toml"


def test_a_catalog_of_an_older_release_is_refused(tmp_path: Path) -> None:
    """It lacks columns; the next build on Spark brings it up to date."""
    with tarfile.open(golden.DATA.parent / "catalogs" / "version-6.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    ended = retention_here("--catalog", tmp_path / "catalog", "--what-if")
    assert (ended.code, ended.out) == (1, "")
    [error] = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert "made by an older release, with catalog version 6; this one has" in error


@pytest.mark.parametrize(
    ("largest_ms", "unit"),
    [
        (_THEN_MS * 1_000, "; in µs the largest would be 2025-10-09T08:53:20.935Z"),
        (_THEN_MS * 1_000_000 + 7, "; in ns the largest would be 2025-10-09T08:53:20.935Z"),
        (2_056_320_000_000, ""),  # 2035, in whatever unit
        (2**63 - 1, ""),
        ((_NOW + 1) * 1_000, ""),
    ],
)
def test_timestamps_of_the_future_may_be_in_another_unit(largest_ms: int, unit: str) -> None:
    """If that gives a time between the year 2000 and now."""
    finding = RetentionFinding(
        "p", PlanWarning.FUTURE_TIMESTAMP, 1, 1, "s: t-0/0", most_ms=largest_ms - _NOW, largest_ms=largest_ms
    )
    assert f"keeps such a segment until long after that{unit} (the first: s: t-0/0)" in finding.sentence
