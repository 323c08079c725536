"""`kidx seek` on a log dir or one partition's directory: the answers of `Log`, and one line where there can be none."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.commands.build import build
from kidxlib.commands.export import export
from kidxlib.commands.seek import seek
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    clean_shutdown,
)
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.log.log import Log
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.lookup.answers import MARKER
from kidxlib.reading.who_wrote import who_wrote
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA
from tests.conftest import Say
from tests.faults.trees import write_log
from tests.support.catalog import append_rows
from tests.support.cluster_metadata import ID_OF_T, log_dir_of_t, of_broker, partition, put_metadata, topic, topic_id
from tests.support.logs import encoded, golden
from tests.support.seeks import check_offset, check_timestamp, some_offsets, some_timestamps
from tests.support.spark.jobs import Ended, kidx_build_here, run_here

#: A log start offset that a broker's checkpoint file names, amid a batch.
_LOG_START = 1000


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, its indexes in a directory beside it, and one log start offset."""
    place = tmp_path_factory.mktemp("seek") / "kafka-logs"
    shutil.copytree(golden.SAMPLES, place)
    (place / "log-start-offset-checkpoint").write_text(f"0\n1\ntxn-mixed 0 {_LOG_START}\n")
    assert run_here(build, place, "--index-dir", place.with_name("index")).code == 0
    return place


@pytest.mark.parametrize("place", ["", "txn-mixed-0"], ids=["log-dir", "partition"])
def test_answers_are_the_logs_own(place: str, log_dir: Path, rng: random.Random, say: Say) -> None:
    """Offsets and times of one partition, with indexes from the index directory and no file read that is not needed."""
    index_dir, log = log_dir.with_name("index"), _indexed(log_dir)
    ask = (log_dir / place, "--index-dir", index_dir, "--topic", "txn-mixed", "--partition", "0", "--json")
    targets = some_offsets(log, rng, 20)
    for offset in targets:
        [answer] = _answers(run_here(seek, *ask, "--offset", str(offset)))
        check_offset(log, offset, answer)
    timestamps = some_timestamps(log, rng, 40)
    for timestamp in timestamps:
        [answer] = _answers(run_here(seek, *ask, "--timestamp", str(timestamp)))
        check_timestamp(log, timestamp, answer)
    say(f"{len(targets)} offsets and {len(timestamps)} times as the log's")


def test_a_partitions_directory_names_its_partition(log_dir: Path) -> None:
    """Also where it is given as another path to it; an option that is given must be right all the same."""
    place, index_dir = log_dir / "txn-mixed-0", ("--index-dir", log_dir.with_name("index"))
    asked = (*index_dir, "--offset", "1500", "--json")
    whole = _answers(run_here(seek, place, *asked, "--topic", "txn-mixed", "--partition", "0"))
    for directory, options in ((place, ()), (f"{place}/.", ("--topic", "txn-mixed")), (place, ("--partition", "0"))):
        assert _answers(run_here(seek, directory, *asked, *options)) == whole
    ended = run_here(seek, place, *asked, "--topic", "compacted")
    assert (ended.code, ended.err) == (2, f"error: {place}: no partition compacted-0 in it; it has txn-mixed-0\n")
    ended = run_here(seek, log_dir, *asked)
    assert ended.code == 2 and ended.err.startswith("error: not given: --topic, --partition; give "), ended


def test_a_time_is_asked_of_all_partitions(log_dir: Path, tmp_path: Path) -> None:
    """Or of a topic's: each has the answer that it has by itself. One that cannot be asked does not end the others."""
    copy = tmp_path / "logs"
    shutil.copytree(log_dir, copy)
    for log in (copy / "append-time-0").glob("*.log"):
        log.unlink()
    (copy / "replication-offset-checkpoint").write_text("0\n1\nplain-zstd 0 10\n")
    asked = ("--timestamp", "2026-11-21T01:32:20.485Z", "--index-dir", log_dir.with_name("index"))
    ended = run_here(seek, copy, *asked, "--json")
    answers = {answer["topic"]: answer for answer in ended.json["answers"]}
    assert ended.code == 3 and set(answers) == {"append-time", "compacted", "plain-zstd", "txn-mixed"}
    assert not answers["append-time"]["answered"] and "no segment in it" in answers["append-time"]["note"]
    [alone] = _answers(run_here(seek, copy / "txn-mixed-0", *asked, "--json"))
    assert answers["txn-mixed"] == alone | {"source": str(copy)}
    shown = run_here(seek, copy, *asked, "--topic", "txn-mixed").out
    assert shown == f"txn-mixed-0  10332  2026-11-21T01:32:20.485Z  ({MARKER})\n"
    [above] = _answers(run_here(seek, copy / "plain-zstd-0", "--offset", "10", *asked[2:], "--json"))
    assert above["found"] and str(above["note"]).endswith(
        "above the high watermark 10, so consumers may not have had it"
    )


@pytest.mark.parametrize("asked", [("--timestamp", "-1"), ("--timestamp", "5000", "--topic", "t")])
def test_folders_that_are_passed_over_are_told(asked: tuple[str, ...], tmp_path: Path) -> None:
    """They have records, and their names are no partition's; the answers are what they are."""
    log_dir = tmp_path / "logs"
    for name in ("t-0", "t-1.bak", "t-1", "t-01", ".t-0", f"t-2.{'0' * 32}-stray", "u-0.bak"):
        _partition(log_dir / name, 0)
    ended = run_here(seek, log_dir, *asked)
    assert ended.code == 0
    assert [line for line in ended.err.splitlines() if "not read" in line] == [
        f"{log_dir}: not read: {which}; to read one, copy it to a directory called <topic>-<partition>, and name that"
        for which in (
            "1 directory (partition that Kafka set aside (-stray))",
            "3 directories with a partition's name and more (.t-0, t-01, t-1.bak)",
        )
    ]


def test_metadata_without_logs_is_not_said_to_be_elsewhere(tmp_path: Path) -> None:
    """By `export` neither. Of a log dir that has the directory nobody is told to name all log dirs."""
    places = [tmp_path / name for name in "ab"]
    for number, log_dir in enumerate(places):
        _partition(log_dir / f"t-{number}", 0)
        (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (places[0] / METADATA_DIRECTORY).mkdir()
    for ended in (
        run_here(seek, *places, "--timestamp", "-1"),
        run_here(export, *places, "--output", tmp_path / "all.arrow"),
    ):
        [said] = [line for line in ended.err.splitlines() if METADATA_DIRECTORY in line]
        assert (
            said.startswith(f"{places[0] / METADATA_DIRECTORY}: nothing there that can be read, ") and ended.code == 0
        )


def test_a_checkpoint_that_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    """That of a partition's leader epochs ends no other, and that of a log dir's log starts none of another log dir."""
    places = [tmp_path / name for name in "ab"]
    for log_dir, topic_name in zip(places, "tu", strict=True):
        for number in range(2):
            _partition(log_dir / f"{topic_name}-{number}", 0, 20)
    epochs = places[0] / "t-0" / LEADER_EPOCH_CHECKPOINT
    epochs.write_bytes(bytes(40))
    for spoilt, lines in (
        ({epochs}, {"t-0"}),
        ({epochs, places[1] / LOG_START_OFFSET_CHECKPOINT}, {"t-0", "u-0", "u-1"}),
    ):
        for path in spoilt:
            path.write_bytes(bytes(40))
        ended = run_here(seek, *places, "--timestamp", "-1", "--json")
        answers = {f"{answer['topic']}-{answer['partition']}": answer for answer in ended.json["answers"]}
        assert ended.code == 3 and set(answers) == {"t-0", "t-1", "u-0", "u-1"}
        for name, answer in answers.items():
            why = [path for path in spoilt if str(path) in (answer["note"] or "")]
            assert (answer["answered"], len(why)) == ((False, 1) if name in lines else (True, 0)), answer
    ended = run_here(seek, places[0] / "t-0", "--offset", "5")
    assert ended.code == 2 and str(epochs) in ended.err


def test_without_indexes_the_log_is_scanned(log_dir: Path) -> None:
    """The answer is right, its note says what is missing, and the exit code that something is."""
    ended = run_here(seek, log_dir, "--topic", "txn-mixed", "--partition", "0", "--offset", "1500", "--json")
    assert ended.code == 3
    [answer] = ended.json["answers"]
    remark = (
        ".index: No such file or directory (--index-dir says where index files are); answered from a scan of the log"
    )
    check_offset(_indexed(log_dir), 1500, answer, [remark])
    assert remark in answer["note"]


_PARTITION = ("--topic", "txn-mixed", "--partition", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "txn-mixd", "--partition", "0", "--offset", "1"), "no partition txn-mixd-0 in it; it has "),
        (("--topic", "txn-mixed", "--partition", "7", "--offset", "1"), "no partition txn-mixed-7 in it; it has "),
        (
            (*_PARTITION, "--offset", "ten"),
            "ten: expected a whole number from -9223372036854775808 to ",
        ),
        ((*_PARTITION, "--timestamp", "2026-11-20T10:00"), "has no time zone; add Z for UTC"),
        (
            (*_PARTITION, "--offset", "1", "--timestamp", "5"),
            "--offset and --timestamp: give one of them, not both",
        ),
        (_PARTITION[2:], "not given: --topic, --offset or --timestamp; give --topic"),
        ((*_PARTITION[2:], "--timestamp", "5"), "not given: --topic; give --topic"),
        (
            _PARTITION,
            "not given: --offset or --timestamp; give --topic, --partition and one of ",
        ),
        ((*_PARTITION, "--offset", "1", "--source", "b1"), "--source: only for a catalog; name it with --catalog DIR"),
        (("--queries", "a.csv", "--output", "b.csv"), "--queries: only for a catalog; name it with --catalog DIR"),
        ((*_PARTITION, "--offset", "1", "--processes", "2"), "--processes: only for a catalog"),
        ((*_PARTITION, "--offset", "1", "--catalog", "somewhere"), "a log dir, or --catalog DIR"),
        ((*_PARTITION, "--offset", "1", "--index-dir", "/nowhere"), "/nowhere"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_asked_is_one_line(arguments: tuple[str, ...], message: str, log_dir: Path) -> None:
    ended = run_here(seek, log_dir, *arguments)
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.startswith("error: ") and message in ended.err and ended.err.count("\n") == 1, ended.err


def test_a_log_that_cannot_be_looked_at_is_one_line(log_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(log_dir / "txn-mixed-0", tmp_path / "txn-mixed-0")
    log = tmp_path / "txn-mixed-0" / "00000000000000000000.log"
    log.unlink()
    log.symlink_to("nowhere")
    ended = run_here(seek, tmp_path, *_PARTITION, "--offset", "1")
    assert (ended.code, ended.err) == (2, f"error: {log}: No such file or directory; nothing was answered\n")


def _garbage(table: Path) -> None:
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / f"{0:020d}.json").write_text("garbage")


def _no_data(table: Path) -> None:
    append_rows(table.parent, PARTITIONS, {"source": "s", "topic": "txn-mixed"})
    [data] = table.glob("*.parquet")
    data.unlink()


@pytest.mark.parametrize("spoil", [_garbage, _no_data])
def test_a_catalog_that_cannot_be_read_is_one_line(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "segments" / "_delta_log").mkdir(parents=True)
    spoil(tmp_path / "partitions")
    ended = run_here(seek, "--catalog", tmp_path, *_PARTITION, "--offset", "1")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1), ended
    assert ended.err.startswith(f"error: {tmp_path}/partitions: cannot be read: "), ended.err
    assert "\\x1b" not in ended.err and "<unknown>" not in ended.err, ended.err


def _two_log_dirs(place: Path) -> tuple[Path, Path]:
    """The log dirs of a broker: `a` with t-0, t-2 and the cluster's metadata, `b` with t-1; each has offsets 0 to 9."""
    ids = {name: topic_id(name) for name in "abt"}
    for name, numbers in (("a", (0, 2)), ("b", (1,))):
        for number in numbers:
            _partition(place / name / f"t-{number}", 0)
        (place / name / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={ids[name]}\n")
    values = [
        topic("t", ids["t"]),
        *(partition(ids["t"], number, [1], [ids[name]]) for number, name in enumerate("aba")),
        of_broker("RegisterBrokerRecord", 1, [ids["a"], ids["b"]]),
    ]
    put_metadata(place / "a", values)
    return place / "a", place / "b"


def _partition(directory: Path, *bases: int) -> Path:
    """Segments with these base offsets, each of ten records in one batch, whose times are their offsets in seconds."""
    for base in bases:
        records = [Record(offset, 1_000 * offset, b"k", b"v") for offset in range(base, base + 10)]
        write_log(directory, base, encoded.batch_v2(records))
        (directory / segment_file(base, OFFSET_INDEX_SUFFIX)).touch()
        entry = struct.pack(">qi", 1_000 * (base + 9), 9)
        (directory / segment_file(base, TIME_INDEX_SUFFIX)).write_bytes(entry)
    return directory


def test_partitions_that_are_in_other_log_dirs_are_told(tmp_path: Path) -> None:
    """Of those that nobody named: a topic is not answered in part as if that were all of it."""
    a, b = _two_log_dirs(tmp_path)
    asked = ("--topic", "t", "--timestamp", "3000")
    ended = run_here(seek, a, *asked)
    assert (ended.code, ended.out.count("\n")) == (3, 2)
    assert "in other log dirs of the broker: 1 partition: t-1; name all log dirs to read them\n" in ended.err
    assert run_here(seek, a, "--timestamp", "3000").code == 0  # of whatever is there
    left_out = [{"topic": "t", "partition": 1, "why": "other-log-dir"}]
    assert run_here(seek, a, *asked, "--json").json["left_out"] == left_out
    properties = (b / "meta.properties").read_text()
    for _ in range(2):
        ended = run_here(seek, b, *asked)  # which has no metadata
        assert ended.code == 3 and f"{b}: no __cluster_metadata-0 in it, so that another log dir" in ended.err
        assert "in none of these log dirs, by the numbers of those that are: 1 partition: t-0; name all" in ended.err
        (b / "meta.properties").unlink(missing_ok=True)
        (b / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))  # no archive has that
    (b / CLEAN_SHUTDOWN_FILE).unlink()
    (b / "meta.properties").write_text(properties)
    both = run_here(seek, a, b, *asked)
    shown = [line.split()[:3] for line in both.out.splitlines()]
    assert shown == [[str(place), f"t-{number}", "3"] for number, place in enumerate((a, b, a))]
    assert (both.code, both.err) == (0, "")
    for place, number, why in (
        (a, 1, f"by the cluster's metadata it is in another log dir of the broker (directory.id {topic_id('b')})"),
        (b, 0, "another log dir of its broker may have it: name all"),
    ):
        ended = run_here(seek, place, "--topic", "t", "--partition", str(number), "--offset", "0")
        assert ended.code == 2 and why in ended.err, ended
    shutil.copytree(b / "t-1", a / "t-1")
    ended = run_here(seek, a, b, *asked)
    assert ended.code == 2 and f"t-1 is in {a} and in {b}" in ended.err
    shutil.rmtree(a / "t-1")
    aside = (a / "t-2").rename(a / f"t-2.{'0' * 32}-future")
    ended = run_here(seek, a, b, *asked)
    assert ended.code == 3 and "no directory of 1 partition" in ended.err
    assert f"perhaps all that is left is {aside}: to read one, copy it" in ended.err
    ended = run_here(seek, a, b, *asked, "--partition", "2")
    assert ended.code == 2 and f"no partition t-2 in it; there is {aside}: to read one, copy it" in ended.err


def test_log_dirs_of_two_stops_are_told(tmp_path: Path) -> None:
    """In the words of `verify`. The exit code is 3 where an answer rests on the older one, with a catalog, too."""
    a, b = _two_log_dirs(tmp_path)
    for log_dir, epoch in ((a, 9), (b, 7)):
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(epoch))
    told = f"{b}/{CLEAN_SHUTDOWN_FILE}: brokerEpoch 7, and that of {a} is 9: the broker did not stop with the two at "
    of_t_1 = f"in an older log dir: 1 partition: t-1; {told}"
    catalog, questions = tmp_path / "catalog", tmp_path / "questions.csv"
    sources = ("--source", f"a={a}", "--source", f"b={b}")
    assert kidx_build_here(*sources, "--catalog", catalog, "--index-dir", tmp_path / "index").code == 3
    for place in ((a, b), ("--catalog", catalog)):
        for option, said in (((), of_t_1), (("--partition", "1"), of_t_1), (("--partition", "0"), told)):
            ended = run_here(seek, *place, "--topic", "t", *option, "--timestamp", "3000")
            assert (ended.code, ended.err.count(f"warning: {said}")) == (3 if said == of_t_1 else 0, 1), ended
        asked = ("--topic", "t", "--partition", "1", "--offset", "3", "--json")
        left_out = [{"topic": "t", "partition": 1, "why": "older-log-dir"}]
        assert run_here(seek, *place, *asked).json["left_out"] == left_out
    for number in (0, 1):
        questions.write_text(f"topic,partition,offset,timestamp\nt,{number},3,\n")
        many = ("--queries", questions, "--output", tmp_path / f"answers-{number}.csv")
        ended = run_here(seek, "--catalog", catalog, *many)
        assert (ended.code, (of_t_1 if number else told) in ended.err) == (3 if number else 0, True), ended
        again = ("--queries", questions, "--output", tmp_path / f"again-{number}.csv", "--json")
        assert run_here(seek, "--catalog", catalog, *again).json["left_out"] == left_out * number
    (b / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(9))
    assert run_here(seek, a, b, "--topic", "t", "--timestamp", "3000").err == ""


def test_a_partition_with_another_topics_id_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By whoever reads it or answers out of it, with 3: a broker does not serve it. One without an id is not told."""
    a, b = _two_log_dirs(tmp_path)
    catalog, questions, output = tmp_path / "catalog", tmp_path / "questions.csv", tmp_path / "all.arrow"
    questions.write_text("topic,partition,offset,timestamp\nt,1,3,\n")
    for log_dir, number in ((a, 0), (b, 1)):
        (log_dir / f"t-{number}" / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id('t')}\n")
    sources = ("--source", f"a={a}", "--source", f"b={b}")
    assert kidx_build_here(*sources, "--catalog", catalog, "--index-dir", tmp_path / "index").code == 0
    asked = ("--topic", "t", "--timestamp", "3000")
    assert (run_here(seek, a, b, *asked).err, read([a, b]).read_all().num_rows) == ("", 30) and not caplog.records
    (b / "t-1" / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id('b')}\n")
    said = f"with another topic id: 1 partition: t-1; partition.metadata there has {topic_id('b')}, and the cluster's "
    said += f"metadata has {topic_id('t')} for this topic: the records may be another topic's"
    for ended in (
        run_here(seek, a, b, *asked),
        run_here(seek, "--catalog", catalog, *asked),
        run_here(seek, "--catalog", catalog, "--queries", questions, "--output", tmp_path / "answers.csv"),
        run_here(export, a, b, "--output", output),
    ):
        assert (ended.code, ended.err.count(said)) == (3, 1), ended
    assert run_here(seek, a, b, *asked, "--partition", "0").code == 0
    assert read([a, b]).read_all().num_rows == 30 and [said in each.message for each in caplog.records] == [True]
    assert [said in each for each in who_wrote([a, b], "t-1", 5).notes] == [True]
    (b / "t-1").rename(b / "u-1")
    (b / "u-1" / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id('t')}\n")
    ended = run_here(seek, a, b, "--topic", "u", "--timestamp", "3000")
    assert ended.code == 3 and f"{topic_id('t')}, which is t's, and the cluster's metadata has no such" in ended.err


@pytest.mark.parametrize("first_is_empty", [False, True])
@pytest.mark.parametrize("topics", [("t",), ()])
def test_of_an_empty_log_dir_it_is_asked_whether_its_disk_is_mounted(
    topics: tuple[str, ...], first_is_empty: bool, tmp_path: Path
) -> None:
    """Of all topics, too: whoever names it has not asked for a part. The first one has the metadata."""
    a, b = _two_log_dirs(tmp_path)
    empty = a if first_is_empty else b
    shutil.rmtree(empty)
    (empty / "lost+found").mkdir(parents=True)
    said = f"nothing is in {empty}: is the disk mounted? Mount it, and run this again\n"
    asked = (*(f"--topic={name}" for name in topics), "--timestamp", "3000")
    exported = (*(f"--topics={name}" for name in topics), "--output")
    for ended in (run_here(seek, a, b, *asked), run_here(export, a, b, *exported, tmp_path / "all.arrow")):
        assert ended.code == 3 and said in ended.err and "name all" not in ended.err, ended
    assert run_here(seek, a, b, *asked, "--json").json["empty_log_dirs"] == str(empty)
    missing = "0" if first_is_empty else "1"
    ended = run_here(seek, a, b, "--topic", "t", "--partition", missing, "--timestamp", "3000")
    assert ended.code == 2 and said in ended.err
    for ended in (run_here(seek, empty, *asked), run_here(export, empty, *exported, tmp_path / "b.arrow")):
        assert ended.code == 2 and (said in ended.err or topics), ended


def test_a_consumer_group_is_not_reset_in_part_without_a_word(tmp_path: Path) -> None:
    """Where a catalog lacks a log dir of the broker, by the metadata or by the numbers of the topic's partitions."""
    a, b = _two_log_dirs(tmp_path)
    catalog, offsets = tmp_path / "catalog", tmp_path / "offsets.csv"
    asked = ("--catalog", catalog, "--topic", "t", "--timestamp", "3000")
    for source in (f"a={a}", f"b={b}"):
        built = kidx_build_here("--source", source, "--catalog", catalog, "--index-dir", tmp_path / "index")
        assert built.code == 0, built
        if source.startswith("a"):
            ended = run_here(seek, *asked)
            assert ended.code == 3 and "in other log dirs of the broker: 1 partition: t-1" in ended.err
        for only, lacks in ((), "a" * source.startswith("a") and "t-1"), (("--source", "a"), "t-1"):
            ended = run_here(seek, *asked, *only, "--consumer-group-csv", offsets, "--json")
            assert (ended.code, ended.json["consumer_group_csv_lacks"]) == ((3, 1) if lacks else (0, 0)), ended
            assert (f"{offsets}: without {lacks}, which no source that was asked has" in ended.err) == bool(lacks)
            assert len(offsets.read_text().splitlines()) == (2 if lacks else 3)
            offsets.unlink()
    shutil.rmtree(a / METADATA_DIRECTORY)
    ended = run_here(seek, *asked, "--source", "b", "--consumer-group-csv", offsets)
    assert ended.code == 3 and f"{offsets}: without t-0, which" in ended.err


def test_a_partition_without_records_has_none(tmp_path: Path) -> None:
    """Whatever the time of its file is."""
    log = _partition(tmp_path / "logs" / "t-0", 0) / segment_file(0, LOG_SUFFIX)
    log.write_bytes(b"")
    logs, catalog = tmp_path / "logs", tmp_path / "catalog"
    assert kidx_build_here("--source", f"s={logs}", "--catalog", catalog, "--index-dir", tmp_path / "i").code == 0
    for place in ((logs,), ("--catalog", catalog)):
        for time in ("1", "2030-01-01T00:00Z"):
            ended = run_here(seek, *place, "--topic", "t", "--timestamp", time)
            assert (ended.code, ended.out) == (0, "t-0  not found  (no records)\n")


def test_a_gap_before_the_answer_is_told(tmp_path: Path) -> None:
    """A fetch goes on after it; whoever looks for an offset or a time in it is told that its segment is missing."""
    place = _partition(tmp_path / "t-0", 0, 10, 30)
    gap = "offsets 20 to 29 are in no log: unless the topic is compacted, a segment is missing"
    for option, value, expected in (
        ("--offset", "25", gap),
        ("--offset", "30", None),
        ("--offset", "10", None),
        ("--timestamp", "25000", gap),
        ("--timestamp", "15000", None),
    ):
        [answer] = _answers(run_here(seek, place, option, value, "--json"))
        assert (answer["found"], answer["note"]) == (True, expected), (option, value)


def test_what_is_missing_of_a_log_is_told_with_every_answer_that_rests_on_it(tmp_path: Path) -> None:
    """Its end, by the high watermark; its first logs, by the leader epochs; logs between others, by the policy. The
    exit code is 3, with a catalog, too.
    """
    log_dir, catalog = log_dir_of_t(tmp_path / "logs"), tmp_path / "catalog"
    shutil.rmtree(log_dir / "t-0")
    _partition(log_dir / "t-0", 10, 20, 40)
    (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID_OF_T}\n")
    (log_dir / "t-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
    (log_dir / HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nt 0 70\n")
    (log_dir / CLEANER_CHECKPOINT).write_text("0\n0\n")
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text("0\n0\n")
    end = "the log ends at offset 50, below the high watermark 70 that replication-offset-checkpoint has: offsets 50"
    start = "offsets 0 to 9 were in logs that are missing: leader-epoch-checkpoint begins at 0"
    gap = "offsets 30 to 39 are in no log, and the topic is not compacted: a segment is missing"
    assert kidx_build_here("--source", f"s={log_dir}", "--catalog", catalog, "--index-dir", tmp_path / "i").code == 3
    for place in ((log_dir,), ("--catalog", catalog)):
        for option, value, note, is_certain in (
            ("--timestamp", "-1", end, False),
            ("--timestamp", "99000", end, False),
            ("--offset", "50", end, False),
            ("--timestamp", "-2", start, True),
            ("--timestamp", "5000", start, True),
            ("--offset", "5", start, True),
            ("--offset", "35", gap, True),
            ("--timestamp", "35000", gap, True),
            ("--offset", "20", None, True),
        ):
            ended = run_here(seek, *place, "--topic", "t", "--partition", "0", option, value, "--json")
            [answer] = ended.json["answers"]
            assert note is None or note in answer["note"], (place, option, value, answer)
            assert (ended.code, answer["answered"]) == (0 if note is None else 3, is_certain), answer
    (tmp_path / "questions.csv").write_text("topic,partition,offset,timestamp\nt,0,,-1\nt,0,5,\nt,0,35,\nt,0,20,\n")
    many = ("--catalog", catalog, "--queries", tmp_path / "questions.csv", "--output", tmp_path / "answers.csv")
    assert run_here(seek, *many).code == 3
    lines = (tmp_path / "answers.csv").read_text()
    assert all(lines.count(note) == 1 for note in (end, start, gap)), lines
    (log_dir / CLEANER_CHECKPOINT).write_text("0\n1\nt 0 40\n")
    ended = run_here(seek, log_dir, "--topic", "t", "--partition", "0", "--offset", "35", "--json")
    assert ended.code == 0 and "unless the topic is compacted" in ended.out
    (log_dir / LOG_START_OFFSET_CHECKPOINT).unlink()
    for place in ((log_dir,), ("--catalog", catalog)):
        for option, value in (("--timestamp", "-2"), ("--offset", "5")):
            ended = run_here(seek, *place, "--topic", "t", "--partition", "0", option, value)
            assert ended.code == 0 and "not known: offsets 0 to 9 were in logs before the first log" in ended.out


def test_a_log_start_above_the_log_end(tmp_path: Path) -> None:
    """No answer that rests on where the log starts or ends is certain."""
    log_dir = log_dir_of_t(tmp_path / "logs")
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nt 0 9000\n")
    for target in ("-1", "-2"):
        ended = run_here(seek, log_dir, "--topic", "t", "--partition", "0", "--timestamp", target, "--json")
        [answer] = ended.json["answers"]
        assert (ended.code, answer["answered"]) == (3, False) and "below the log start 9000 that" in answer["note"]


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("0\n1\nt 0 20\n", 0, None),
        ("0\n0\n", 0, ": has no line for t-0: it is not known whether the log ends below its high watermark"),
        (None, 0, ": missing: it is not known whether"),
        ("0\n9\n", 3, ": line 2: 9 entries announced, 0 found: it is not known whether"),
    ],
)
def test_an_end_that_no_high_watermark_bears_out(
    content: str | None, code: int, said: str | None, tmp_path: Path
) -> None:
    """As `verify`: a checkpoint that is missing is told, one that cannot be read is a problem."""
    log_dir = log_dir_of_t(tmp_path / "logs")
    if content is not None:
        (log_dir / HIGH_WATERMARK_CHECKPOINT).write_text(content)
    (log_dir / "t-0" / segment_file(0, OFFSET_INDEX_SUFFIX)).touch()
    (log_dir / "t-0" / segment_file(0, TIME_INDEX_SUFFIX)).write_bytes(struct.pack(">qi", 1, 0))
    for option, value in (("--timestamp", "-1"), ("--timestamp", "99000"), ("--offset", "20")):
        ended = run_here(seek, log_dir, "--topic", "t", "--partition", "0", option, value, "--json")
        [answer] = ended.json["answers"]
        assert ended.code == code, answer
        told = f"{log_dir}/{HIGH_WATERMARK_CHECKPOINT}{said}"
        assert (said is not None) == ("not known whether the log ends" in (answer["note"] or "")), answer
        assert said is None or told in answer["note"], answer
    ended = run_here(seek, log_dir, "--topic", "t", "--partition", "0", "--offset", "5", "--json")
    assert "high watermark" not in (ended.json["answers"][0]["note"] or "")


def test_the_room_after_the_entries_of_an_index_is_no_damage(tmp_path: Path) -> None:
    """A broker that did not stop in order leaves the files of its last segments as long as they may become."""
    shutil.copytree(golden.SAMPLES / "txn-mixed-0", tmp_path / "txn-mixed-0")
    assert run_here(build, tmp_path, "--in-place").code == 0
    asked = ("--topic", "txn-mixed", "--timestamp", "2026-11-21T01:32:20.485Z", "--json")
    whole = _answers(run_here(seek, tmp_path, *asked))
    for index in (tmp_path / "txn-mixed-0").glob("*index"):
        with index.open("ab") as file:
            file.write(bytes(8 * 12 * 1000))
    assert _answers(run_here(seek, tmp_path, *asked)) == whole


def _indexed(log_dir: Path) -> Log:
    directory = log_dir / "txn-mixed-0"
    return Log.open(directory, log_dir.with_name("index") / directory.name, log_start_offset=_LOG_START)


def _answers(ended: Ended) -> list[dict[str, object]]:
    assert ended.code == 0, ended
    answers: list[dict[str, object]] = ended.json["answers"]
    return answers
