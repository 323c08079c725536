"""What a log dir had and is not there, as builds find it: with and without a catalog, beside a broker, accepted."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kidxlib.format import checkpoint_files
from kidxlib.format.segment_files import segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing import plan
from kidxlib.indexing.plan import Plan
from kidxlib.operations.build import planning
from kidxlib.operations.damage import lost as lost_module
from kidxlib.operations.report.sections import State
from kidxlib.storage import log_dir as log_dir_module
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA
from tests.docs.log_dirs import put
from tests.support.cluster_metadata import OTHER_ID, change, partition, put_metadata, topic, topic_id, write_properties
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended
from tests.support.spark.jobs import kidx_here as _kidx

_HERE = topic_id("h")
_BELOW = "the log ends at offset 3, replication-offset-checkpoint says 5"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of `orders` the partitions 0 to 2, of three records each, and a checkpoint that knows them. A partition may
    have such a name, too.
    """
    log_dir = tmp_path / "kafka-1"
    for number in range(3):
        put(log_dir / f"orders-{number}", 0, [Batch(), Batch(), Batch()])
    write_properties(log_dir, _HERE)
    _write(log_dir, 3, 3, 3)
    return log_dir


def _write(log_dir: Path, *watermarks: int) -> None:
    offsets = {TopicPartition("orders", number): offset for number, offset in enumerate(watermarks)}
    (log_dir / checkpoint_files.HIGH_WATERMARK_CHECKPOINT).write_bytes(checkpoint_files.offset_checkpoint(offsets))


def _accept(catalog: Path, segment: str) -> None:
    named = ("--segment", segment, "--reason", "known", "--by", "ann", "--apply")
    assert _kidx("accept", "--catalog", catalog, *named).code == 0


def _build(log_dir: Path, *options: str | Path, catalog: bool = True) -> Ended:
    of_catalog = ("--catalog", log_dir.parent / "catalog") if catalog else ()
    index = log_dir.parent / ("index" if catalog else "once")
    return _kidx("build", log_dir, "--index-dir", index, *of_catalog, *options)


def _lost(ended: Ended) -> tuple[Any, ...]:
    """The exit code, partitions that are missing and logs that end early."""
    shown = ended.json.get("damage", ended.json)
    partitions = [(each["partition"], each["known_end"]) for each in shown["partitions_missing"]]
    return ended.code, partitions, [(each["partition"], each["detail"]) for each in shown["ends_below"]]


def _missing(catalog: Path) -> list[tuple[int, str]]:
    """The exit code of a report with each title of what is missing."""
    ended = _kidx("report", "--catalog", catalog, "--json")
    return [(ended.code, row["title"]) for row in ended.json["attention"] if row["is_missing"]]


def _states(report: Ended) -> list[int]:
    """Of the partitions that the report's map has in the one source."""
    [row] = report.json["fleet"]["sources"]
    return [state for state in row["states"] if state != State.ABSENT]


def test_a_build_finds_what_its_log_dir_had(log_dir: Path) -> None:
    """A partition's directory, all of its segments, the end of a log; whether this run has read the log or not."""
    assert _lost(_build(log_dir, "--json")) == (0, [], [])
    _write(log_dir, 5, 7, 9, 0, 11)
    for name in ("orders-1", "orders-2"):
        (log_dir / name / segment_file(0, ".log")).unlink()
    (log_dir / "orders-2").rmdir()
    expected = (3, [(1, 7), (2, 9), (3, 0), (4, 11)], [(0, _BELOW)])
    dry, again, once = _build(log_dir, "--json", "--dry-run"), _build(log_dir, "--json"), _build(log_dir, catalog=False)
    assert (_lost(dry), _lost(again)) == (expected, expected)
    lines = [line for line in again.err.splitlines() + once.out.splitlines() if line.startswith("broken: ")]
    assert once.code == 3
    assert lines == [
        "broken: orders-1: partition-missing: no segment is in its directory, and the log dir's checkpoints say that "
        "it had some; 3 more partitions of the topic: orders-2 (offsets up to 8), orders-3, orders-4 "
        "(offsets up to 10)",
        f"broken: orders-0: ends-below-high-watermark: {_BELOW}",
    ]
    assert _lost(_build(log_dir, "--json", "--topics", "other|orders")) == expected
    _write(log_dir, 3)
    assert _lost(_build(log_dir, "--json", "--rebuild"))[0] == 0


def test_the_metadata_names_partitions_too(log_dir: Path) -> None:
    """Those of other log dirs are none of this one."""
    there = topic_id("t")
    assigned = [partition(OTHER_ID, number, [1], [_HERE if number < 4 else there]) for number in range(5)]
    put_metadata(log_dir, [topic("orders", OTHER_ID), *assigned])
    built = _build(log_dir, "--json")
    assert _lost(built) == (3, [(3, 0)], [])
    [found] = built.json["damage"]["partitions_missing"]
    assert found["detail"].startswith("no such directory, and the cluster's metadata as of offset 7")
    replaced = log_dir.parent / "replaced"  # a new disk: nothing is left of the old one
    replaced.mkdir()
    write_properties(replaced, there)
    sources = ("--source", f"a={log_dir}", "--source", f"b={replaced}", "--catalog", log_dir.parent / "both")
    of_both = _kidx("build", *sources, "--index-dir", log_dir.parent / "of-both", "--json")
    assert _lost(of_both) == (3, [(3, 0), (4, 0)], [])


def test_what_a_running_broker_does_meanwhile_is_no_loss(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`orders-2` is deleted between the checkpoints and the listing, and `orders-0` goes on in a new segment after it.
    Checkpoints are read before logs are listed, and what is lacking then is looked at again.
    """
    read, list_all = log_dir_module.usable_checkpoints, plan.find_segments

    def read_and_delete(place: Path) -> log_dir_module.Checkpoints:
        found = read(place)
        (log_dir / "orders-2" / segment_file(0, ".log")).unlink()
        (log_dir / "orders-2").rmdir()
        _write(log_dir, 3, 3)
        return found

    def list_and_roll(*arguments: Any, **options: Any) -> Plan:
        plan = list_all(*arguments, **options)
        put(log_dir / "orders-0", 3, [Batch(), Batch()])
        _write(log_dir, 5, 3)
        return plan

    monkeypatch.setattr(planning, "usable_checkpoints", read_and_delete)
    monkeypatch.setattr(planning, "find_segments", list_and_roll)
    assert _lost(_build(log_dir, "--json")) == (0, [], [])


def test_an_end_that_is_accepted_fails_no_build_and_no_report(log_dir: Path) -> None:
    """An audit finds it, too, and its finding is what is accepted. The report looks itself."""
    _write(log_dir, 5, 3, 3)
    catalog = log_dir.parent / "catalog"
    assert _build(log_dir).code == 3
    assert _missing(catalog) == [(3, "1 log ending below a checkpoint")]
    assert _kidx("verify", log_dir, "--catalog", catalog).code == 3
    assert _missing(catalog) == [(3, "1 file broken")]
    _accept(catalog, "orders-0/0")
    assert _kidx("report", "--catalog", catalog, "--json").code == 0
    built = _build(log_dir)
    assert built.code == 0, built.out
    assert f"accepted: orders-0: {_BELOW} (by ann: known)" in built.out.splitlines()
    put(log_dir / "orders-0", 3, [Batch()])
    assert _build(log_dir).code == 3


@pytest.mark.parametrize("why", ["lost", "deleted", "log start", "no checkpoint"])
def test_first_logs_that_leader_epochs_know(log_dir: Path, why: str) -> None:
    """Where a broker deletes logs it cuts the epochs. A log start in a checkpoint may be in a bucket."""
    catalog, directory, index = log_dir.parent / "catalog", log_dir / "orders-0", log_dir.parent / "index"
    put(directory, 3, [Batch()])
    (directory / segment_file(0, ".log")).unlink()
    begin = 3 if why == "deleted" else 0
    (directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n0 {begin}\n")
    if why != "no checkpoint":
        starts = {TopicPartition("orders", 0): 3} if why == "log start" else {}
        content = checkpoint_files.offset_checkpoint(starts)
        (log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT).write_bytes(content)
    built, once = _build(log_dir, "--json"), _build(log_dir, catalog=False)
    found = [
        (each["partition"], each["first_offset"], each["log_start"])
        for each in built.json["damage"]["first_logs_missing"]
    ]
    said = "broken: orders-0: first-logs-missing: it begins with epoch 0 at offset 0, and the logs at 3: offsets 0 to 2"
    assert (said in once.out) == (why == "lost")
    is_not_known = why == "no checkpoint"
    line = "not known: first logs of 1 partition, where leader-epoch-checkpoint begins: orders-0 (offsets 0 to 2); they"
    assert [text.count(line) for text in (once.out, _build(log_dir).out)] == [is_not_known] * 2
    if why != "lost":
        told = [each["partition"] for each in built.json["damage"]["first_logs_not_known"]]
        report = _kidx("report", "--catalog", catalog, "--json").json
        titles = [each["title"] for each in report["attention"] if "in a bucket or lost" in each["title"]]
        assert (told, titles) == (
            ([0], ["first logs of 1 partition in a bucket or lost"]) if is_not_known else ([], [])
        )
        assert (built.code, once.code, found, _missing(catalog)) == (0, 0, [], [])
        return
    assert (built.code, once.code, found) == (3, 3, [(0, 0, 3)])
    assert _missing(catalog) == [(3, "1 partition without first logs")]
    verified = _kidx("verify", log_dir, "--index-dir", index, "--catalog", catalog)
    assert verified.code == 3 and "first-logs-missing" in verified.out
    assert _missing(catalog) == [(3, "1 file broken")]
    _accept(catalog, "orders-0/3")
    built = _build(log_dir)
    assert (built.code, "accepted: orders-0: it begins" in built.out) == (0, True), built
    assert _kidx("report", "--catalog", catalog, "--json").code == 0


def test_a_partition_in_two_log_dirs_is_named_by_build_report_and_retention(log_dir: Path) -> None:
    """The broker does not start with both, and what is counted counts both. A copy of the log dir is no second one."""
    other = log_dir.parent / "other"
    put(other / "orders-1", 0, [Batch(), Batch()])
    sources, catalog = ("--source", f"a={log_dir}", "--source", f"b={other}"), log_dir.parent / "catalog"
    commands: list[tuple[str | Path, ...]] = [
        ("build", *sources, "--index-dir", log_dir.parent / "index", "--catalog", catalog),
        ("report", "--catalog", catalog),
        ("retention", "--catalog", catalog, "--retention-ms", "1"),
    ]
    for directory_id, is_second in ((_HERE, False), (OTHER_ID, True)):
        write_properties(other, directory_id)
        for name, *options in commands:
            shown = _kidx(str(name), *options, "--json").json
            found = shown.get("damage", shown.get("health", shown))["partitions_twice"]
            assert [row["directory"] for row in found] == [str(other / "orders-1")][:is_second], name
    ended = _kidx(*map(str, commands[0]))
    assert f"broken: b: orders-1: in-two-log-dirs: {other}/orders-1 is there, and {log_dir}/orders-1" in ended.out
    assert ended.code == 3 and _missing(catalog) == [(3, "1 partition in two log dirs of a broker")]


@pytest.mark.parametrize("sign", ["topic id", "name", "no id", "another topic", "its own topic"])
def test_a_directory_with_another_partitions_name_is_named_by_build_report_and_retention(
    sign: str, log_dir: Path
) -> None:
    """One that somebody has renamed or copied: it is counted as what it is called. Topics may begin with a dot."""
    own, other = topic_id("o"), topic_id("p")
    (log_dir / "orders-2").rename(log_dir / ".orders-1")
    _write(log_dir, 3, 3)
    if sign in ("topic id", "its own topic"):
        values = [topic("orders", own), *([topic(".orders", other)] if sign == "its own topic" else [])]
        values += [partition(own, number, [1], [_HERE]) for number in range(2)]
        put_metadata(log_dir, values)
    ids = {"topic id": own, "name": own, "another topic": other, "its own topic": other}
    for name, its_id in ((".orders-1", ids.get(sign)), ("orders-1", own)):
        if its_id is not None:
            (log_dir / name / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {its_id}\n")
    catalog = log_dir.parent / "catalog"
    told = {"topic id": "other-topic-id", "another topic": None, "its own topic": None}.get(sign, "renamed")
    built = _build(log_dir, "--json")
    planned = _kidx("retention", "--catalog", catalog, "--retention-ms", "1", "--json")
    reported = _kidx("report", "--catalog", catalog, "--json")
    for ended, shown in ((built, built.json["damage"]), (planned, planned.json), (reported, reported.json["health"])):
        found = [(row["reason"], row["directory"]) for row in shown["partitions_misnamed"]]
        assert found == ([] if told is None else [(told, str(log_dir / ".orders-1"))])
        assert ended.code == (0 if told is None else 3)
    assert _build(log_dir).out.count(f"broken: .orders-1: {told}: ") == (told is not None)


@pytest.mark.parametrize("sign", ["marker", "leader epochs"])
def test_log_dirs_of_two_stops_are_named_by_build_report_and_retention(sign: str, log_dir: Path) -> None:
    """In the words of `verify`. A marker of an earlier stop is a loss; leader epochs that are older may be none."""
    other, ids = log_dir.parent / "other", topic_id("t")
    put(other / "users-0", 0, [Batch(), Batch()])
    write_properties(other, OTHER_ID)
    values = [topic("users", ids), partition(ids, 0, [1], [OTHER_ID])]
    values += [change("PartitionChangeRecord", partitionId=0, topicId=ids, leader=1)] * 2
    put_metadata(log_dir, values)
    if sign == "marker":
        for place, epoch in ((log_dir, 9), (other, 7)):
            (place / CLEAN_SHUTDOWN_FILE).write_bytes(checkpoint_files.clean_shutdown(epoch))
        told = f"broken: {other}/{CLEAN_SHUTDOWN_FILE}: brokerEpoch 7, and that of {log_dir} is 9: the broker did not"
    else:
        (other / "users-0" / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
        told = (
            f"warning: {other}: it may be an older copy than the cluster's metadata: the newest leader epoch of users"
        )
    sources, catalog = ("--source", f"a={log_dir}", "--source", f"b={other}"), log_dir.parent / "catalog"
    index, is_loss = log_dir.parent / "index", sign == "marker"
    built = _kidx("build", *sources, "--index-dir", index, "--catalog", catalog)
    planned = _kidx("retention", "--catalog", catalog, "--retention-ms", "1")
    reported = _kidx("report", "--catalog", catalog, "--json")
    assert [(each.code, each.out.count(told)) for each in (built, planned)] == [(3 if is_loss else 0, 1)] * 2
    assert (reported.code, len(reported.json["health"]["log_dirs_older"])) == ((3, 1) if is_loss else (0, 0))
    assert any(told.partition(": ")[2] in row["detail"] for row in reported.json["attention"])
    again = _kidx("build", *sources, "--index-dir", index, "--catalog", catalog, "--json")
    assert (again.code, len(again.json["damage"]["log_dirs_older"])) == ((3, 1) if is_loss else (0, 0))


def test_json_and_counts_have_what_a_run_fails_for(log_dir: Path) -> None:
    """A source that is empty, one that is not there, and a partition that is there twice, also before a first build."""
    other, catalog = log_dir.parent / "other", log_dir.parent / "catalog"
    put(other / "orders-1", 0, [Batch(), Batch()])
    write_properties(other, OTHER_ID)
    metrics = log_dir.parent / "kidx.prom"
    counted = ("--json", "--metrics-file", metrics)
    sources = ("--source", f"a={log_dir}", "--source", f"b={other}", "--catalog", catalog)
    build = ("build", *sources, "--index-dir", log_dir.parent / "index", *counted)

    def count(name: str) -> list[str]:
        return re.findall(rf'kidx_run_count{{[^}}]*"{name}"[^}}]*}} ([0-9.]+)', metrics.read_text())

    for dry_run in (("--dry-run",), ()):
        built = _kidx(*build, *dry_run)
        assert built.code == 3 and [row["partition"] for row in built.json["damage"]["partitions_twice"]] == [1]
        assert count("partitions_twice") == ["1.0"]
    shutil.rmtree(other)
    asked = ("retention", "--catalog", catalog, "--retention-ms", "1", *counted)
    for is_empty in (False, True):
        if is_empty:
            other.mkdir()
        planned, reported = _kidx(*asked), _kidx("report", "--catalog", catalog, "--json")
        why = f"{'nothing is in it' if is_empty else 'cannot be listed here'}: is the disk mounted?"
        found = [{"source": "b", "path": str(other), "is_empty": is_empty, "why": why}]
        assert (planned.code, planned.json["not_reached"], count("not_reached")) == (3, found, ["1.0"])
        assert (reported.code, reported.json["health"]["not_reached"]) == (3, found)
    for dry_run in (("--dry-run",), ()):
        built = _kidx(*build, *dry_run)
        assert built.json["emptied_sources"] == [{"source": "b", "path": str(other), "segments": 1}]
        assert (built.code, count("sources_emptied")) == (3, ["1.0"])
    audited = _kidx("verify", log_dir, other, *counted)
    assert [row["path"] for row in audited.json["empty_sources"]] == [str(other)] and count("sources_empty") == ["1.0"]


def test_a_directory_is_listed_once_for_what_was_recorded(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was emptied, and whether its first logs are lost, are told by the same listing."""
    put(log_dir / "orders-0", 3, [Batch(), Batch(), Batch()])
    (log_dir / "orders-0" / segment_file(0, ".log")).unlink()
    (log_dir / "orders-0" / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
    (log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT).write_bytes(checkpoint_files.offset_checkpoint({}))
    assert _build(log_dir).code == 3
    listed = list[Path]()

    def listing(place: Path) -> dict[str, Location]:
        listed.append(place)
        return files_in(place)

    for module in (lost_module, log_dir_module):
        monkeypatch.setattr(module, "files_in", listing)
    assert _missing(log_dir.parent / "catalog") == [(3, "1 partition without first logs")]
    assert listed.count(log_dir / "orders-0") == 1


def test_the_report_looks_for_what_is_missing(log_dir: Path) -> None:
    """As of now, by checkpoints and directories: a log that has grown since its build says nothing. A log dir that is
    not mounted is named.
    """
    catalog = log_dir.parent / "catalog"
    assert _build(log_dir).code == 0
    assert _missing(catalog) == []
    _write(log_dir, 3, 5, 4, 9)
    put(log_dir / "orders-2", 3, [Batch()])  # the broker goes on
    assert _missing(catalog) == [(3, "1 partition missing"), (3, "1 log ending below a checkpoint")]
    (log_dir / "orders-1" / segment_file(0, ".log")).unlink()
    assert _missing(catalog) == [(3, "2 partitions missing")], "of what a build has not seen nobody says how it ends"
    emptied = "no segment is in its directory, and the catalog has some"
    assert emptied in _kidx("report", "--catalog", catalog, "--json").out
    assert _build(log_dir).code == 3
    shown = _kidx("report", "--catalog", catalog, "--json")
    assert [row["title"] for row in shown.json["attention"] if row["is_missing"]] == ["2 partitions missing"]
    [detail] = [row["detail"] for row in shown.json["attention"] if row["is_missing"]]
    assert "orders-3 of " in detail and "(offsets up to 8): no such directory, and " in detail, detail
    assert "; orders-1 of " in detail and "(offsets up to 4): no segment is in its directory" in detail, detail
    log_dir.rename(log_dir.parent / "elsewhere")
    shown = _kidx("report", "--catalog", catalog, "--json")
    assert shown.code == 3 and "1 source not reached" in [row["title"] for row in shown.json["attention"]]
    states = _states(shown)
    assert states and set(states) == {State.UNKNOWN}, "what was audited before says nothing of a disk that is gone"
    log_dir.mkdir()
    assert set(_states(_kidx("report", "--catalog", catalog, "--json"))) == {State.BAD}
    assert _missing(catalog)[-1] == (3, "1 source empty")


def test_partitions_that_no_build_has_read_are_told(log_dir: Path) -> None:
    """Of these nobody says what is missing, what would go or how long a start takes. It is no loss: a build was told to
    leave them out, or they are newer.
    """
    put(log_dir / "payments-0", 0, [Batch(), Batch(), Batch()])
    assert _build(log_dir, "--topics", "payments").code == 0
    catalog, page = ("--catalog", log_dir.parent / "catalog"), log_dir.parent / "page.html"

    def told() -> list[str]:
        """What report, retention and fleet say of them."""
        ended = [_kidx("report", *catalog, "--output", page), _kidx("retention", *catalog), _kidx("fleet", *catalog)]
        assert [each.code for each in ended] == [0, 0, 0], ended
        return [line for each in ended for line in each.out.splitlines() if " of 4 in " in line or " of 5 in " in line]

    where, why = f"3 partitions of 4 in {log_dir} (source {log_dir})", "left out by --topics, or newer than the last"
    reported = (
        f"unknown: 3 partitions in no build: 3 of 4 in {log_dir} of {log_dir}: {why} build; this report says nothing"
    )
    whose = [f"{said}: {where}, which no build has read: {why} one" for said in ("not planned", "not counted")]
    assert told() == [f"{reported} of them", *whose]
    assert "not planned" not in _kidx("retention", *catalog, "--topics", "payments").out, "nobody asked for the others"
    assert _build(log_dir).code == 0 and told() == []
    put(log_dir / "payments-1", 0, [Batch()])
    assert [" 1 of 5 " in line or " 1 partition of 5 " in line for line in told()] == [True] * 3
