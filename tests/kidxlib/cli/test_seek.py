"""`kidx seek` on a log dir or one partition's directory: the answers of `Log`, and one line where there can be none."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.cli.build import build
from kidxlib.cli.seek import seek
from kidxlib.log.log import Log
from kidxlib.lookup.remarks import MARKER
from tests.conftest import Say
from tests.support.catalog import append_rows
from tests.support.logs import golden
from tests.support.seeks import check_offset, check_timestamp, some_offsets, some_timestamps
from tests.support.spark.jobs import Ended, run_here

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


def _indexed(log_dir: Path) -> Log:
    directory = log_dir / "txn-mixed-0"
    return Log.open(directory, log_dir.with_name("index") / directory.name, log_start_offset=_LOG_START)


def _answers(ended: Ended) -> list[dict[str, object]]:
    assert ended.code == 0, ended
    answers: list[dict[str, object]] = ended.json["answers"]
    return answers
