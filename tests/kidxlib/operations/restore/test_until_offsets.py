"""Ends that somebody gives: where they lie, what is refused, and what a time proposes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_MAX, segment_file
from kidxlib.java import hash_of
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import write_message
from kidxlib.messages.typed_records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kidxlib.operations.restore.until_offsets import quiet_end
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import Ended, kidx
from tests.faults.trees import write_log
from tests.support.cluster_metadata import topic_id
from tests.support.logs import encoded
from tests.support.logs.transactions import Written
from tests.support.restored import formatted_log_dir, write_properties

_TIMES_MS: Final = (1_000, 5_000, 2_000, 9_000)
_OFFSETS: Final = "__consumer_offsets"
_TRANSACTIONS: Final = "__transaction_state"
_PREPARE_COMMIT: Final = 2
_COMPLETE_COMMIT: Final = 4


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10), st.booleans()), max_size=8),
    st.integers(0, 40),
)
def test_nothing_is_open_at_the_end(drawn: list[tuple[int, int, bool]], end: int) -> None:
    """It is the largest such offset: a transaction is open behind its first record, up to its marker."""
    transactions = [(first, OFFSET_MAX if is_open else first + length) for first, length, is_open in drawn]

    def is_quiet(offset: int) -> bool:
        return not any(first < offset <= marker for first, marker in transactions)

    assert quiet_end(transactions, end) == next(offset for offset in range(end, -1, -1) if is_quiet(offset))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A log dir without metadata."""
    (tmp_path / "old").mkdir()
    write_properties(tmp_path / "old", 1, "old")
    return tmp_path / "old"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return formatted_log_dir(tmp_path, 1)


def _write(log_dir: Path, name: str, batches: Sequence[bytes], base_offset: int = 0) -> None:
    write_log(log_dir / name, base_offset, b"".join(batches))
    (log_dir / name / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id(name[:1])}\n")


def _transactions(log_dir: Path) -> Written:
    """Producer 0: offsets 0 and 1, ended at 4. Producer 1: offsets 2 and 3, ended at 7. Offsets 5 and 6 of nobody."""
    written = Written()
    written.data(0, 2)
    written.data(1, 2)
    written.marker(0, aborts=False)
    written.data(None, 2)
    written.marker(1, aborts=False)
    _write(log_dir, "t-0", [batch for _, batch in written.batches[:4]])
    _write(log_dir, "t-0", [batch for _, batch in written.batches[4:]], 7)
    return written


def _message(module: str, name: str, version: int, **values: Any) -> bytes:
    """A key, whose first field is its type, or a value, whose first one is its version."""
    message = messages_of(module)[name]
    first = message.api_key if message.kind == "coordinator-key" else version
    assert first is not None
    return first.to_bytes(2, "big") + write_message(message, values, version)


def _coordinated(
    log_dir: Path, topic: str, records: Sequence[tuple[bytes, bytes | None]], number: int = 0, **fields: Any
) -> None:
    """A coordinator's topic with these keys and values."""
    batch = encoded.batch_v2([Record(offset, 0, key, value) for offset, (key, value) in enumerate(records)], **fields)
    _write(log_dir, f"{topic}-{number}", [batch])


def _committed(group: str, topic: str, offset: int | None, partition: int = 0) -> tuple[bytes, bytes | None]:
    key = _message(CONSUMER_OFFSETS, "OffsetCommitKey", 0, group=group, topic=topic, partition=partition)
    if offset is None:
        return key, None
    return key, _message(CONSUMER_OFFSETS, "OffsetCommitValue", 3, offset=offset, metadata="", commitTimestamp=0)


def _ended(producer_id: int, status: int) -> tuple[bytes, bytes | None]:
    key = _message(TRANSACTION_STATE, "TransactionLogKey", 0, transactionalId="transfer")
    value = _message(
        TRANSACTION_STATE,
        "TransactionLogValue",
        0,
        producerId=producer_id,
        producerEpoch=0,
        transactionTimeoutMs=1,
        transactionStatus=status,
        transactionPartitions=[{"topic": "t", "partitionIds": [0]}],
        transactionLastUpdateTimestampMs=0,
        transactionStartTimestampMs=0,
    )
    return key, value


def _until(root: Path, offsets: Mapping[str, int]) -> tuple[str, str]:
    partitions = [{"topic": topic, "partition": 0, "offset": offset} for topic, offset in offsets.items()]
    (root / "until.json").write_text(json.dumps({"partitions": partitions, "version": 1}))
    return "--until-offsets", str(root / "until.json")


def _restore(old: Path, new: Path, *options: str) -> Ended:
    return kidx("restore", str(old), "--broker", f"1={new}", "--controller", str(new), "--json", *options)


def _applied(old: Path, new: Path, *options: str) -> Ended:
    ended = _restore(old, new, *options, "--apply", _restore(old, new, *options).json["plan"])
    assert ended.json["applied"], ended
    return ended


def _end(ended: Ended) -> tuple[int, int | None]:
    [end] = ended.json["ends"]
    return end["end"], end["open_since"]


@pytest.mark.parametrize(
    "given, expected",
    [(100, (8, None)), (8, (8, None)), (7, (0, 2)), (5, (0, 2)), (4, (0, 0)), (1, (0, None)), (0, (0, None))],
)
def test_an_end_goes_back_to_where_nothing_is_open(
    old: Path, new: Path, tmp_path: Path, given: int, expected: tuple[int, int | None]
) -> None:
    """Also where the transaction that is open at the given offset began within another one."""
    _transactions(old)
    assert _end(_restore(old, new, *_until(tmp_path, {"t": given}))) == expected


def test_what_is_behind_the_end_is_not_copied(old: Path, new: Path, tmp_path: Path) -> None:
    """Nor are leader epochs that begin there. The source stays as it is, and the new leader epoch is above all."""
    for number, offset in enumerate((0, 3, 6)):
        records = [Record(offset + each, 0, None, b"v") for each in range(3)]
        _write(old, "t-0", [encoded.batch_v2(records, leader_epoch=number)], offset)
    (old / "t-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n3\n0 0\n1 3\n2 6\n")
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    applied = _applied(old, new, *_until(tmp_path, {"t": 8}))
    assert _end(applied) == (6, None)
    assert [path.name for path in sorted((new / "t-0").glob(f"*{LOG_SUFFIX}"))] == [
        segment_file(0, LOG_SUFFIX),
        segment_file(3, LOG_SUFFIX),
    ]
    assert (new / "t-0" / LEADER_EPOCH_CHECKPOINT).read_text() == "0\n2\n0 0\n1 3\n"
    [partition] = applied.json["topics"][0]["partitions"]
    assert partition["leader_epoch"] == 3
    assert {path: path.read_bytes() for path in before} == before


def test_an_empty_partition_keeps_its_first_offset(old: Path, new: Path, tmp_path: Path) -> None:
    """So new records get offsets that no consumer has seen. In the middle of a log nothing is kept before its start."""
    _write(old, "t-0", [encoded.batch_v2([Record(offset, 0, None, b"v")]) for offset in (40, 41)], 40)
    (old / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nt 0 41\n")
    refused = _restore(old, new, *_until(tmp_path, {"t": 40}))
    assert refused.code == ExitCode.USAGE and any("give 41 for an empty" in line for line in refused.json["refused"])
    (old / LOG_START_OFFSET_CHECKPOINT).unlink()
    assert _end(_applied(old, new, *_until(tmp_path, {"t": 39}))) == (40, None)
    assert (new / "t-0" / segment_file(40, LOG_SUFFIX)).read_bytes() == b""


@pytest.mark.parametrize("options", [("--topics", "t"), None])
def test_a_log_that_ends_below_its_start_is_empty(
    old: Path, new: Path, tmp_path: Path, options: Sequence[str] | None
) -> None:
    """A start deletes all of its segments: there is none to be cut, or in which a transaction is open."""
    _transactions(old)
    (old / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nt 0 20\n")
    planned = _restore(old, new, *(options or _until(tmp_path, {"t": 25})))
    assert planned.json["replicas"][0]["end_offset"] == 20, planned


def test_an_end_in_no_source_is_refused(old: Path, new: Path, tmp_path: Path) -> None:
    _transactions(old)
    refused = _restore(old, new, *_until(tmp_path, {"t": 8, "nowhere": 1}))
    assert refused.code == ExitCode.USAGE
    assert any("nowhere-0 is in no source" in line for line in refused.json["refused"])


@pytest.mark.parametrize(
    "content, says",
    [
        ("{}", "no partitions in it"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "expected {"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -1}]}', "expected {"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "expected {"),
        ('{"partitions": [{"topic": "__consumer_offsets", "partition": 0, "offset": 1}]}', "no end of its own"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 9223372036854775808}]}', "expected {"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 1, "offset": 2}]}', 'two values of "offset"'),
        ("t,0,1", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_files_of_another_form(old: Path, new: Path, tmp_path: Path, content: str, says: str) -> None:
    _transactions(old)
    (tmp_path / "until.json").write_text(content)
    _restore(old, new, "--until-offsets", str(tmp_path / "until.json")).assert_one_line(ExitCode.USAGE, says)


@pytest.mark.parametrize(
    "producer_id, status, given, is_refused",
    [
        (1, _PREPARE_COMMIT, 5, True),
        (1, _PREPARE_COMMIT, 8, False),
        (1, _COMPLETE_COMMIT, 5, False),
        (7, _PREPARE_COMMIT, 5, False),
    ],
)
def test_no_transaction_commits_in_part(
    old: Path, new: Path, tmp_path: Path, producer_id: int, status: int, given: int, is_refused: bool
) -> None:
    """A coordinator that has decided on a commit writes the markers at its start, whatever is left of the records."""
    _transactions(old)
    _coordinated(old, _TRANSACTIONS, [_ended(producer_id, status)])
    planned = _restore(old, new, *_until(tmp_path, {"t": given}))
    assert (planned.code == ExitCode.USAGE) == is_refused
    assert any("transaction transfer is about to commit" in line for line in planned.json["refused"]) == is_refused


def test_no_transaction_stays_open_for_ever(old: Path, new: Path, tmp_path: Path) -> None:
    """Without the coordinators' topic nobody ends it; at a given end none is open."""
    written = Written()
    written.data(None, 1)
    written.data(1, 2)
    _write(old, "t-0", [batch for _, batch in written.batches])
    _coordinated(old, _TRANSACTIONS, [_ended(1, 0)])
    refused = _restore(old, new, "--topics", "t")
    assert refused.code == ExitCode.USAGE
    assert any("t-0: a transaction is open since offset 1" in line for line in refused.json["refused"])
    assert _restore(old, new).code == ExitCode.OK
    cut = _restore(old, new, "--topics", "t", *_until(tmp_path, {"t": 3}))
    assert cut.code == ExitCode.OK and _end(cut) == (1, 1)


def test_groups_behind_the_end_are_set_back(old: Path, new: Path, tmp_path: Path) -> None:
    """By a file for Kafka's tool; without it the plan is refused, as they would pass over new records."""
    _transactions(old)
    records = [
        *(_committed("a, b", "t", 8), _committed("before", "t", 0), _committed("gone", "t", 8)),
        *(_committed("gone", "t", None), _committed("other", "elsewhere", 3)),
    ]
    _coordinated(old, _OFFSETS, records)
    until, resets = _until(tmp_path, {"t": 6}), tmp_path / "resets.csv"
    refused = _restore(old, new, *until)
    assert refused.code == ExitCode.USAGE and any("a, b has 8 of t-0" in line for line in refused.json["refused"])
    planned = _restore(old, new, *until, "--reset-offsets", str(resets))
    assert planned.code == ExitCode.OK and planned.json["groups_not_restored"] == {"elsewhere": 1}
    assert resets.read_text() == '"a, b",t,0,0\n'
    inside = _restore(old, new, *until, "--reset-offsets", str(old / "resets.csv"))
    inside.assert_one_line(ExitCode.USAGE, "--reset-offsets", "where nothing else is written")
    applied = _restore(old, new, *until, "--reset-offsets", str(resets), "--apply", planned.json["plan"])
    checked = {(each["group"], each["partition"]): each["offset"] for each in applied.json["groups"]}
    assert checked == {("a, b", "t-0"): 0, ("before", "t-0"): 0, ("other", "elsewhere-0"): 3}, "what a check expects"


def test_a_partition_that_only_groups_name_is_missed(old: Path, new: Path) -> None:
    """Its number is above all others of its topic, and no metadata and no checkpoint has it."""
    _transactions(old)
    _coordinated(old, _OFFSETS, [_committed("g", "t", 5, 7), _committed("h", "t", 3, 7), _committed("g", "t", 0)])
    planned = _restore(old, new)
    assert (planned.code, planned.json["groups_not_restored"]) == (ExitCode.USAGE, {})
    assert planned.json["lost"] == [
        "t-7: __consumer_offsets has a committed offset of it, 5, and no source has its directory"
    ]


def test_a_lost_last_partition_of_a_coordinators_topic_is_missed(old: Path, new: Path) -> None:
    """With another number of partitions, coordinators would look for groups in others than those that have them."""
    _transactions(old)
    groups = {name: abs(hash_of(name)) % 50 for name in map("group-{}".format, range(9))}
    last = max(groups.values())
    for group, number in groups.items():
        if number != last:
            _coordinated(old, _OFFSETS, [_committed(group, "t", 1)], number=number)
    refused = _restore(old, new)
    [offsets] = (topic for topic in refused.json["topics"] if topic["topic"] == _OFFSETS)
    assert refused.code == ExitCode.USAGE and len(offsets["partitions"]) == 50
    assert f"{_OFFSETS}-49: no source has its directory: it begins empty, at offset 0" in refused.json["lost"]


def test_offsets_of_a_transaction_count(old: Path, new: Path, tmp_path: Path) -> None:
    """It may commit after the start."""
    _transactions(old)
    fields = {"attributes": layouts.ATTRIBUTE_TRANSACTIONAL, "producer_id": 5, "producer_epoch": 0}
    _coordinated(old, _OFFSETS, [_committed("g", "t", 8)], **fields)
    [behind] = _restore(old, new, *_until(tmp_path, {"t": 6})).json["groups_behind"]
    assert (behind["group"], behind["committed"], behind["end"]) == ("g", 8, 0)


def test_a_time_proposes_ends(old: Path, new: Path, tmp_path: Path) -> None:
    """Before the first batch that is later. What is behind, and not later, has a warning."""
    for offset, time_ms in enumerate(_TIMES_MS):
        _write(old, "t-0", [encoded.batch_v2([Record(offset, time_ms, None, b"v")])], offset)
    _coordinated(old, _OFFSETS, [_committed("g", "t", 1)])
    until = ("--until-offsets", str(tmp_path / "until.json"))
    for time_ms, offset, later in ((999, 0, 0), (1_000, 1, 0), (2_000, 1, 1), (5_000, 3, 0), (9_000, 4, 0)):
        (tmp_path / "until.json").unlink(missing_ok=True)
        proposed = kidx("restore", str(old), "--propose-until", str(time_ms), *until, "--json")
        assert proposed.code == ExitCode.OK
        [end] = proposed.json["ends"]
        assert (end["offset"], end["later_batches"], len(proposed.json["warnings"])) == (offset, later, later)
        assert json.loads((tmp_path / "until.json").read_text()) == {
            "partitions": [{"topic": "t", "partition": 0, "offset": offset}],
            "version": 1,
        }
        if offset:
            assert _end(_restore(old, new, *until)) == (offset, None)
    again = kidx("restore", str(old), "--propose-until", "1000", *until)
    again.assert_one_line(ExitCode.USAGE, "it is there already")
    wrong = kidx("restore", str(old), "--propose-until", "yesterday", *until)
    wrong.assert_one_line(ExitCode.USAGE, "--propose-until: 'yesterday' is not a time")
