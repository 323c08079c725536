"""What is answered, and what is not: a log that has changed since it was recorded, or is damaged, is never said not to
hold what it may hold. Targets below 0 are answered as `Log` answers them, which tests/kafka holds to Kafka.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from kidxlib.commands.seek import seek as seek_command
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, offset_checkpoint
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.library.partition import open_partition
from kidxlib.library.read import read as read_records
from kidxlib.log.log import Log
from kidxlib.log.segment import EARLIEST, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from kidxlib.lookup.answers import ANSWER, FAR, OFFSET, RESULT_COLUMNS, TIMESTAMP, Answers
from kidxlib.lookup.searched_partitions import CatalogedPartition
from kidxlib.lookup.seeker import Seeker, answer_special, seek_all
from kidxlib.operations.seek.one_question import NotAsked, Question, outcome_of_answers
from kidxlib.records import batch_headers, reader
from kidxlib.records.reader import Record
from kidxlib.terminal.console import printable
from tests.docs.pages import read
from tests.faults.trees import write_log
from tests.support.docstrings import columns_in, columns_of
from tests.support.logs import encoded, golden
from tests.support.seeks import (
    SPECIAL,
    cataloged,
    cataloged_row,
    check_timestamp,
    golden_directory,
    sample_directory,
)

_TOPIC: Final = "txn-mixed"
_PARTITION: Final = ("--topic", _TOPIC, "--partition", "0")
_FUTURE: Final = 2_000_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A partition with all that a broker leaves."""
    return Log.open(sample_directory(tmp_path / f"{_TOPIC}-0"))


def _directory(log: Log) -> Path:
    return Path(log.name)


def _log_of(log: Log, number: int) -> Path:
    return _directory(log) / f"{log.segments[number].base_offset:020d}.log"


def _cataloged(log: Log) -> CatalogedPartition:
    """The partition as a build records it."""
    rows = [cataloged_row(_log_of(log, number)) for number in range(len(log.segments))]
    return cataloged(*rows, log_end_offset=log.log_end_offset)


def _ask(seeker: Seeker | str, query: str, target: int) -> tuple[bool, bool, str]:
    [answer] = seek_all(seeker, query, np.array([target], np.int64)).to_pylist()
    assert answer["file_error"] or answer["answered"], "exit code 3 wherever something is not answered"
    return answer["found"], answer["answered"], answer["note"] or ""


def test_its_docstring_and_the_page_list_the_columns() -> None:
    assert columns_in(Seeker.__doc__) == columns_of(ANSWER)
    rows = re.findall(r"^\| (`.+?`) \|", read("docs/seek.md"), re.MULTILINE)
    on_page = {name for row in rows for name in re.findall(r"\w+", row)}
    assert set(ANSWER.names) <= on_page and set(RESULT_COLUMNS) <= on_page


@pytest.mark.parametrize("kind", [list, tuple, np.uint64, np.int32, pa.array], ids=lambda kind: kind.__name__)
def test_targets_may_be_whole_numbers_of_any_kind(log: Log, kind: Any) -> None:
    seeker, targets = Seeker(log), [500, 5850, 20_000]
    given = np.array(targets, kind) if isinstance(kind, type) and issubclass(kind, np.generic) else kind(targets)
    assert seeker.offsets(given).equals(seeker.offsets(np.array(targets)))
    assert seeker.timestamps(given).equals(seeker.timestamps(np.array(targets)))
    assert seeker.offsets([]).num_rows == seeker.timestamps(()).num_rows == 0


@pytest.mark.parametrize(
    "targets", [[1.5], ["1"], [None], [True], 500, [[1]], [[1], [2, 3]], [2**63], [2**64], np.array([1.0])], ids=repr
)
def test_targets_that_are_no_whole_numbers_are_refused(log: Log, targets: Any) -> None:
    """1.5 was taken for 1, and a list was a TypeError."""
    seeker = Seeker(log)
    for ask in (seeker.offsets, seeker.timestamps):
        with pytest.raises(UsageError, match=r"^targets?\b.*: expected "):
            ask(targets)


def test_a_log_that_has_grown_since_it_was_recorded(log: Log) -> None:
    """Of what may be new there is no answer: offsets and times after the recorded end, and the end itself; nor of
    what is in that file. All else is answered.
    """
    cataloged, end = _cataloged(log), log.log_end_offset
    with _log_of(log, -1).open("ab") as file:
        file.write(_log_of(log, -1).read_bytes())
    longer = "bytes, expected"
    for query, target in ((OFFSET, end - 1), (OFFSET, end), (OFFSET, end + 5), (TIMESTAMP, _FUTURE)):
        found, answered, note = _ask(cataloged.seeker(), query, target)
        assert (found, answered) == (False, False) and longer in note, (query, target, note)
    found, answered, note = _ask(cataloged.seeker(), TIMESTAMP, LATEST)
    assert (found, answered) == (True, False) and longer in note, "known is where it ended"
    for query, target in ((OFFSET, 500), (OFFSET, -1), (TIMESTAMP, EARLIEST)):
        assert _ask(cataloged.seeker(), query, target)[1], (query, target)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_log_that_is_gone_or_may_not_be_read(log: Log, number: int) -> None:
    """No answer that needs it is given: within it, and the start or the end that it decides."""
    cataloged, segment = _cataloged(log), log.segments[number]
    _log_of(log, number).unlink()
    questions = [(OFFSET, segment.base_offset), (TIMESTAMP, segment.largest_timestamp)]
    questions += [(TIMESTAMP, EARLIEST)] if number == 0 else []
    questions += [(TIMESTAMP, LATEST), (TIMESTAMP, MAX_TIMESTAMP), (OFFSET, 10**9)] if number == -1 else []
    for query, target in questions:
        _found, answered, note = _ask(cataloged.seeker(), query, target)
        assert not answered and "No such file or directory" in note, (query, target)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _halve_without_index(path: Path) -> None:
    _halve(path)
    path.with_suffix(".index").unlink()


@pytest.mark.parametrize("hurt", [_halve, _halve_without_index])
def test_a_log_of_which_the_end_is_missing(log: Log, hurt: Callable[[Path], None]) -> None:
    """As of a copy that was interrupted: what lies after its last whole batch is not said to be in the next segment, or
    nowhere; with an index that knows more, and with none.
    """
    directory = _directory(log)
    inside, last = log.segments[2].base_offset - 2, log.log_end_offset - 1
    hurt(_log_of(log, 1))
    found, answered, note = _ask(Seeker.of_directory(directory), OFFSET, inside)
    assert (found, answered) == (True, False), note  # the next batch that there is
    assert str(_log_of(log, 1)) in note
    assert _ask(Seeker.of_directory(directory), OFFSET, log.segments[1].base_offset)[:2] == (True, True)
    hurt(_log_of(log, -1))
    for query, target in ((OFFSET, last), (OFFSET, last + 1), (TIMESTAMP, LATEST), (TIMESTAMP, _FUTURE)):
        _found, answered, note = _ask(Seeker.of_directory(directory), query, target)
        assert not answered and str(_log_of(log, -1)) in note, (query, target, note)


@pytest.mark.parametrize("entry", [-1, -2, -3, 0])
def test_a_log_that_is_cut_between_two_batches(log: Log, entry: int) -> None:
    """It ends behind the last batch that is there, and its index knows up to where more is missing."""
    active = log.segments[-1]
    last = active.offset_index.last_offset
    cut_at = active.offset_index.entry(range(len(active.offset_index))[entry])
    first = next(batch_headers.batches(active.log, cut_at.position)).offset_field
    os.truncate(_log_of(log, -1), cut_at.position)
    cut = open_partition(_directory(log))
    assert cut.log_end_offset == first
    assert _ask(Seeker(cut), OFFSET, first - 1)[:2] == (True, True)
    for query, target in ((OFFSET, first), (OFFSET, last), (TIMESTAMP, LATEST)):
        _found, answered, note = _ask(Seeker(cut), query, target)
        assert not answered and f"offsets {first} to {last} or above are missing" in note, (query, target, note)


@pytest.mark.parametrize("opened", [Seeker.of_directory, lambda directory: Seeker(open_partition(directory))])
def test_a_lost_end_is_not_certain(log: Log, opened: Callable[[Path], Seeker]) -> None:
    """By the high watermark of the log dir, as for the command; also where that cannot be read."""
    directory, end = _directory(log), log.log_end_offset
    checkpoint = directory.parent / HIGH_WATERMARK_CHECKPOINT
    for high_watermark, is_certain in ((end, True), (end + 5, False)):
        checkpoint.write_bytes(offset_checkpoint({TopicPartition(_TOPIC, 0): high_watermark}))
        found, answered, note = _ask(opened(directory), OFFSET, end + 2)
        assert (found, answered, f"below the high watermark {end + 5}" in note) == (False, is_certain, not is_certain)
    checkpoint.write_bytes(bytes(20))
    (directory.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    assert "it is not known whether the log ends below" in _ask(opened(directory), OFFSET, end + 2)[2]


def test_a_log_without_an_index_is_answered(log: Log) -> None:
    """A scan says for certain that something is not there; the note says what is missing."""
    for path in [*_directory(log).glob("*.index"), *_directory(log).glob("*.timeindex")]:
        path.unlink()
    for query, target, is_there in ((OFFSET, 500, True), (OFFSET, 10**9, False), (TIMESTAMP, _FUTURE, False)):
        found, answered, _note = _ask(Seeker.of_directory(_directory(log)), query, target)
        assert (found, answered) == (is_there, True), target


def test_leader_epochs_are_told_from_beside_the_log(log: Log, tmp_path: Path) -> None:
    """Where the directory of the indexes has no `leader-epoch-checkpoint`; and from there where it has one."""
    directory, indexes = _directory(log), tmp_path / "indexes"
    indexes.mkdir()
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        shutil.move(path, indexes)
    for target in (EARLIEST, LATEST):
        for epoch in (0, 7):
            opened = Log.open(directory, indexes)
            reported = opened.fetch_offset_by_timestamp(target)
            assert reported is not None and reported.leader_epoch == epoch
            [answer] = seek_all(Seeker(opened), TIMESTAMP, np.array([target])).to_pylist()
            assert answer["leader_epoch"] == epoch
            (indexes / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
        (indexes / "leader-epoch-checkpoint").unlink()


# ---- on screen ----


def _shown(log: Log, *arguments: str) -> list[str]:
    ended = CliRunner().invoke(seek_command, [log.name, *_PARTITION, *arguments], standalone_mode=False)
    assert ended.exception is None, ended.exception
    return ended.stdout.splitlines()


def test_times_are_shown_as_times(log: Log) -> None:
    """The time that was asked for as it was typed; what notes say of times with a date."""
    typed = "2030-01-01T00:00:00+01:00"
    first, *rest = _shown(log, "--timestamp", typed)
    assert first == f"{_TOPIC}-0, timestamp {typed}: not found"
    note = f"{'note':<20} all records are older, the latest is of 1795224740485 (2026-11-21T01:32:20.485Z)"
    assert f"  {note}" in rest
    assert _shown(log, "--timestamp", "1795224740485")[0] == (
        f"{_TOPIC}-0, timestamp 1795224740485 (2026-11-21T01:32:20.485Z): found"
    )
    assert _shown(log, "--timestamp", "-1")[0] == f"{_TOPIC}-0, timestamp -1 (the log end): found"


@pytest.mark.parametrize(
    ("found", "answered", "said"),
    [(True, True, "found"), (False, True, "not found"), (True, False, "not certain"), (False, False, "not answered")],
)
def test_the_outcome_is_in_the_first_line(
    found: bool, answered: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = Question(topic="t", partition=0, query=OFFSET, target=5, asked=None)
    answers = seek_all("no matter", OFFSET, np.array([5])).to_pylist()
    answer = {"topic": "t", "partition": 0, "query": OFFSET, "target": 5, "source": None} | answers[0]
    outcome_of_answers([answer | {"found": found, "answered": answered}], question, NotAsked()).show(as_json=False)
    assert capsys.readouterr().out.splitlines()[0] == printable(f"t-0, offset 5: {said}")


def test_a_timestamp_of_the_future_is_told(tmp_path: Path) -> None:
    """What is found for a time that it hides; a record that is merely late is said to be late."""
    hour = 3_600_000
    times = [10, 1_000 * hour, 11, 12]
    batches = [encoded.batch_v2([Record(offset, time, b"k", b"v")]) for offset, time in enumerate(times)]
    write_log(tmp_path / "t-0", 0, b"".join(batches))
    answers = Seeker.of_directory(tmp_path / "t-0").timestamps([10, 11, 999 * hour + 5])
    notes = [str(each) for each in answers["note"].to_pylist()]
    assert FAR not in notes[0] and FAR not in notes[2]
    assert (
        f"999 hours {FAR}" not in notes[1]
        and f"41 days {FAR}" in notes[1]
        and "later than those at the end of the log, 12 (1970-01-01T00:00:00.012Z)" in notes[1]
    )
    in_the_way = "segment 0 stands in the way, whose largest timestamp is 3600000000 (1970-02-11T16:00:00.000Z)"
    assert in_the_way in notes[1] and "kidx export --times TIME/" in notes[1]


_BETWEEN: Final = "kidx export --times TIME/FOUND reads the logs, and has the records between the two times, if there"


@pytest.mark.parametrize(
    ("hours", "note", "between"),
    [
        ([0, 0, 1_000, 1_001], f"41 days {FAR}; all records before it are older than that time; {_BETWEEN}", []),
        ([0, 0, 1_000, 500, 1_001], f"41 days {FAR}; all records before it are older than that time; {_BETWEEN}", [3]),
        ([9_000, 2, 9_000], f"1 year {FAR}; the log begins there; {_BETWEEN}", [1]),
    ],
)
def test_a_record_that_is_merely_late_has_a_way_out(
    hours: list[int], note: str, between: list[int], tmp_path: Path
) -> None:
    """Where no timestamp of the future is in the way; the command that the note names finds what is nearer."""
    hour = 3_600_000
    batches = [encoded.batch_v2([Record(offset, time * hour, b"k", b"v")]) for offset, time in enumerate(hours)]
    write_log(tmp_path / "t-0", 0, b"".join(batches))
    [answer] = Seeker.of_directory(tmp_path / "t-0").timestamps([11]).to_pylist()
    assert note in answer["note"]
    found = read_records(tmp_path, times=(11, answer["timestamp"])).read_all()
    assert found["offset"].to_pylist() == between


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Log]:
    """All golden partitions, as a broker leaves them."""
    root = tmp_path_factory.mktemp("logs")
    found = []
    for parent, segments in itertools.groupby(golden.committed(), lambda segment: segment.log.parent):
        golden_directory(list(segments), root / parent.name)
        found.append(Log.open(root / parent.name))
    return found


def asked(log: Log, target: int) -> dict[str, Any]:
    """The answer to the second of three rows; the others are left alone."""
    answers = Answers(3)
    answer_special(log, target, np.array([1]), answers)
    first, answer, last = answers.to_arrow().to_pylist()
    assert not first["found"] and not last["found"] and first["note"] is last["note"] is None
    return dict(answer)


def timestamps(log: Log) -> Iterator[tuple[int, int]]:
    """Of each record, with its offset."""
    for segment in log.segments:
        for batch in batch_headers.batches(segment.log):
            yield from ((record.timestamp, record.offset) for record in reader.records(segment.log, batch))


@pytest.mark.parametrize("target", SPECIAL)
def test_golden_logs(logs: list[Log], target: int) -> None:
    found = 0
    for log in logs:
        answer = asked(log, target)
        check_timestamp(log, target, answer)
        assert answer["answered"] and not answer["file_error"], log.name
        found += answer["found"]
    assert (found > 20) == (target in range(-4, 0))


def test_the_largest_timestamp_is_that_of_the_first_record_that_has_it(logs: list[Log]) -> None:
    """In its batch, of all records of the log. Messages of magic 0 have none."""
    for log in logs:
        answer = asked(log, MAX_TIMESTAMP)
        largest, offset = max(timestamps(log), key=lambda each: (each[0], -each[1]), default=(-1, -1))
        if all(batch.magic == 0 for segment in log.segments for batch in batch_headers.batches(segment.log)):
            assert not answer["found"] and answer["note"] == "no record has a timestamp"
            continue
        assert (answer["timestamp"], answer["offset"]) == (largest, offset), log.name
        segment = next(each for each in log.segments if each.base_offset == answer["segment_base_offset"])
        batch = next(batch_headers.batches(segment.log, answer["position"]))
        assert offset in [record.offset for record in reader.records(segment.log, batch)]


def test_a_log_that_is_not_tiered_has_no_tiered_offset(logs: list[Log]) -> None:
    assert asked(logs[0], LATEST_TIERED)["note"] == "the log is not tiered"


@pytest.mark.parametrize(("target", "number"), [(EARLIEST, 0), (LATEST, -1), (MAX_TIMESTAMP, -1)])
def test_a_log_that_is_gone_makes_its_end_unsure(target: int, number: int, log: Log) -> None:
    gone = _log_of(log, number)
    gone.unlink()
    answer = asked(log, target)
    assert not answer["answered"] and answer["file_error"] and str(gone) in answer["note"]
