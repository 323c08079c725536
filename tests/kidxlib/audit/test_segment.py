"""Logs are judged by their batches and records, and segments to which a broker writes while they are audited."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.audit import segment
from kidxlib.audit.finding import IN_USE, Finding, Verdict
from kidxlib.audit.segment import SequenceAudit, _oddities, _oddities_in_records, audit_records
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.indexing.plan import ScanTask
from kidxlib.indexing.segments import recover_task
from kidxlib.java import incremented_sequence
from kidxlib.records import batch_headers
from kidxlib.records.batch_table_kernel import BATCH
from kidxlib.records.reader import Record
from kidxlib.recovery.recover import RecoveredSegment, ScannedLogs, scan_logs
from kidxlib.storage.log_bytes import LogBytes, WholeLog
from tests.conftest import one_in
from tests.support.audits import audited, problems_of, verified
from tests.support.damages.damage import ACTIVE, END, LARGE
from tests.support.logs import encoded
from tests.support.logs.batches import Batch, batch_positions

#: Bytes that are appended at a time, which end amid batches and amid headers.
_PIECE: Final = 9_997


def _growing(patch: pytest.MonkeyPatch, log: Path, rest: bytes) -> None:
    """Let the rest of a log be appended, a piece each time that an audit has opened it, and another once the audit has
    read it: no thread has to get its turn meanwhile. The log is read alone, as a large one.
    """
    patch.setattr(segment, "SMALL_BYTES", -1)
    pieces = (rest[at : at + _PIECE] for at in range(0, len(rest), _PIECE))

    def append() -> None:
        with log.open("ab") as file:
            file.write(next(pieces))

    def appended_to(content: LogBytes, task: ScanTask) -> RecoveredSegment:
        if str(task.segment.path) != str(log):
            return recover_task(content, task)
        append()
        recovered = recover_task(content, task)
        append()
        return recovered

    patch.setattr(segment, "recover_task", appended_to)


def _batch_at(content: bytes | bytearray, position: int) -> int:
    """Where the first batch begins that begins at a byte or behind it."""
    return next(at for at in batch_positions(content) if at >= position)


def _preallocated(directory: Path, base_offset: int) -> None:
    for suffix, size in ((OFFSET_INDEX_SUFFIX, 10_485_760), (TIME_INDEX_SUFFIX, 10_485_756)):
        os.truncate(directory / segment_file(base_offset, suffix), size)


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged-before"])
@pytest.mark.parametrize("seen", [0, 11, 30, 75], ids=["whole", "amid-length", "amid-header", "amid-records"])
def test_all_before_the_first_look_at_a_growing_log_is_judged(
    tree: Path, monkeypatch: pytest.MonkeyPatch, seen: int, damaged: bool
) -> None:
    """What is appended meanwhile is in use, whatever part of a batch was seen of it; indexes, which have entries for it
    already, and for transactions aborted there, are judged up to there. Damage before that is found.
    """
    directory = tree / "txn-mixed-0"
    log = directory / segment_file(ACTIVE, LOG_SUFFIX)
    content = bytearray(log.read_bytes())
    _preallocated(directory, ACTIVE)
    whole = _batch_at(content, len(content) // 4)
    if damaged:
        content[5_000] ^= 1
    log.write_bytes(content[: whole + seen])
    _growing(monkeypatch, log, bytes(content[whole + seen :]))
    found = audited(tree)
    [row] = [file for file in found.files if file.path == str(log)]
    if damaged:
        assert (row.verdict, row.reason) == ("broken", "crc-mismatch")
        return
    assert (row.verdict, row.reason, row.position) == ("safe", IN_USE, whole), row
    assert row.file_bytes is not None and row.file_bytes > whole + seen
    problems = problems_of(found.files)
    assert {reason for verdict, reason in problems.values() if verdict != "safe"} == set(), problems
    assert found.partitions[0].failure is None


def test_a_log_that_grows_after_it_was_read_with_others_is_read_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found of it is not told: indexes that were read later may lead to what came later."""
    expected = audited(tree)
    log = tree / "txn-mixed-0" / segment_file(LARGE, LOG_SUFFIX)
    content = log.read_bytes()
    log.write_bytes(content[: _batch_at(content, len(content) // 4)])
    short = log.stat().st_size

    def scanned(logs: Sequence[LogBytes], *arguments: Any) -> ScannedLogs:
        scans = scan_logs(logs, *arguments)
        if short in [each.size for each in logs]:
            log.write_bytes(content)
        return scans

    monkeypatch.setattr(segment, "scan_logs", scanned)
    found = audited(tree)
    assert short < log.stat().st_size
    assert [(row.file, row.verdict, row.reason) for row in found.files] == [
        (row.file, row.verdict, row.reason) for row in expected.files
    ]
    assert found.startup == expected.startup


def _retention(directory: Path) -> None:
    """The first segment goes, as `LocalLog.deleteSegmentFiles` renames it, and the epochs begin with the next."""
    for path in directory.glob(f"{0:020d}.*"):
        path.rename(f"{path}.deleted")
    (directory / LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n0 {LARGE}\n")


def _roll(directory: Path) -> None:
    """Another segment is begun, and the high watermark lies in it."""
    log = directory / segment_file(END, LOG_SUFFIX)
    log.write_bytes(Batch(leader_epoch=0, timestamp=1).encode(END))
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        log.with_suffix(suffix).touch()
    checkpoint = directory.parent / HIGH_WATERMARK_CHECKPOINT
    checkpoint.write_text(f"0\n1\ntxn-mixed 0 {END + 1}\n")


@pytest.mark.parametrize("happens", [_retention, _roll])
def test_what_a_broker_does_after_the_listing_is_no_damage(tree: Path, happens: Callable[[Path], None]) -> None:
    """Segments that retention deletes, and one that is rolled, between the listing and the look at the files."""
    found = audited(tree, meanwhile=lambda: happens(tree / "txn-mixed-0"))
    assert {row.path: row.reason for row in found.files if row.verdict not in ("identical", "whole", "safe")} == {}
    assert found.partitions[0].failure is None


_INT_MAX: Final = 2**31 - 1
_PRODUCER = st.integers(-1, 3)
_EPOCH = st.integers(0, 1)
_SEQUENCE = st.sampled_from([-1, 0, 1, 2, 3, 4, _INT_MAX - 1, _INT_MAX])
_TABLES = st.lists(st.lists(st.tuples(_PRODUCER, _EPOCH, _SEQUENCE, st.integers(0, 3)), max_size=8), max_size=4)


def _records(first: int, timestamp: int = 1_000, count: int = 3) -> list[Record]:
    return [Record(first + number, timestamp + number, b"key", b"value" * 9) for number in range(count)]


def _batch(first: int, **fields: Any) -> bytes:
    return encoded.batch_v2(_records(first), **fields)


def _of_producer(first: int, base_sequence: int, epoch: int = 0) -> bytes:
    return _batch(first, producer_id=7, producer_epoch=epoch, base_sequence=base_sequence)


def _wrapper(offset: int) -> bytes:
    """Magic 1, gzip: three records with relative offsets."""
    inside = [encoded.message(Record(number, 1_000, b"k", b"v"), 1) for number in range(3)]
    return encoded.wrapper(inside, offset, magic=1, codec=1, compress=encoded.gzip, timestamp=1_000)


def _audited(log: bytes) -> Finding:
    return audit_records(WholeLog(np.frombuffer(log, np.uint8)))


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    log: bytes
    verdict: str
    reason: str | None = None
    position: int | None = None


_ONE = len(_batch(0))

CASES = [
    _Case("sound", _batch(0) + _batch(3) + _batch(10), "whole"),
    _Case("no batch", b"", "whole"),
    _Case("a wrapper", _wrapper(2) + _wrapper(5), "whole"),
    _Case("more records than there are", _batch(0) + _batch(3, records=4), "broken", "malformed-records", _ONE),
    _Case("fewer records than there are", _batch(0, records=2), "broken", "malformed-records", 0),
    _Case("no codec's bytes", _batch(0, attributes=1), "broken", "malformed-records", 0),
    _Case("codec 6", _batch(0, attributes=6), "broken", "malformed-records", 0),
    _Case("a negative number of records", _batch(0, records=-1), "broken", "malformed-records", 0),
    _Case("largest timestamp too small", _batch(0, timestamp=1_001), "broken", "records-newer-than-batch", 0),
    _Case("largest timestamp too large", _batch(0, timestamp=1_003), "safe", "batch-newer-than-records", 0),
    _Case("a broker's clock", _batch(0, timestamp=9_999, attributes=layouts.ATTRIBUTE_LOG_APPEND_TIME), "whole"),
    _Case(
        "a negative magic ends it",
        _batch(0, timestamp=1_001) + encoded.message(Record(3, 1_000, None, b""), -1) + _batch(4),
        "broken",
        "records-newer-than-batch",
        0,
    ),
    _Case("emptied by the cleaner", _batch(0, records=0, body=b"", timestamp=1_002) + _batch(3), "whole"),
    _Case("offsets go back", _batch(10) + _batch(5), "broken", "offsets-not-increasing", _ONE),
    _Case("offsets overlap", _batch(0) + _batch(2), "broken", "offsets-not-increasing", _ONE),
    _Case("records past the last offset", _batch(0, last_offset_delta=1), "broken", "offsets-not-increasing", 0),
    _Case("sequence goes on", _of_producer(0, 0) + _of_producer(3, 3), "whole"),
    _Case("sequence wraps", _of_producer(0, _INT_MAX - 2) + _of_producer(3, 0), "whole"),
    _Case("sequence begins again with an epoch", _of_producer(0, 9) + _of_producer(3, 0, epoch=1), "whole"),
    _Case("sequence has a gap", _of_producer(0, 0) + _of_producer(3, 6), "safe", "sequence-gap"),
    _Case("sequence repeats", _of_producer(0, 0) + _of_producer(3, 0), "safe", "sequence-gap"),
    _Case(
        "what is broken comes first",
        _batch(0, timestamp=1_003) + _batch(3, timestamp=1_001),
        "broken",
        "records-newer-than-batch",
        _ONE,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_oddity_has_its_verdict(case: _Case) -> None:
    finding = _audited(case.log)
    assert (finding.verdict, finding.reason) == (case.verdict, case.reason), finding
    if case.position is not None:
        assert finding.position == case.position
    assert (finding.consequence is None) == (case.verdict == "whole")


@pytest.mark.parametrize("way", encoded.WAYS)
def test_records_compressed_in_any_way_are_sound(way: str) -> None:
    codec, compress = encoded.WAYS[way]
    assert _audited(encoded.batch_v2(encoded.RECORDS, codec, compress)).verdict is Verdict.WHOLE


def test_more_of_the_same_are_counted() -> None:
    finding = _audited(b"".join(_of_producer(3 * number, 7 * number) for number in range(5)))
    assert finding.reason == "sequence-gap"
    assert finding.detail is not None and finding.detail.endswith("and 3 more batches like this")


@st.composite
def _logs(draw: st.DrawFn) -> bytes:
    """Batches of all formats, some of which are not what they say, with checksums that are right."""
    log, offset = b"", 0
    for _ in range(draw(st.integers(1, 6))):
        offset += draw(st.sampled_from([0, 0, 0, 1, -2]))
        count = draw(st.integers(1, 4))
        inside = [
            Record(offset + number + (number and draw(st.sampled_from([0, 0, 0, -1]))), 1_000 + number, None, b"v" * 9)
            for number in range(count)
        ]
        codec, compress = draw(st.sampled_from(sorted(encoded.WAYS.values(), key=repr)))
        kind = draw(st.sampled_from(["v2", "v2", "v2", "message", "wrapper"]))
        if kind == "v2":
            fields: dict[str, Any] = draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "records": st.integers(0, 5),
                        "timestamp": st.integers(999, 1_005),
                        "last_offset_delta": st.integers(0, 5),
                        "magic": st.sampled_from([2, 3]),
                    },
                )
            )
            if draw(st.booleans()):
                fields |= {"producer_id": draw(st.integers(0, 2)), "producer_epoch": draw(st.integers(0, 1))}
                fields |= {"base_sequence": draw(st.sampled_from([0, 1, 2, 3, 4, _INT_MAX]))}
            batch = encoded.batch_v2(inside, codec, compress, **fields)
        elif kind == "message" or codec == 4:
            batch = encoded.message(inside[0], draw(st.sampled_from([0, 1, 1, -1])))
        else:
            messages = [encoded.message(replace(each, offset=each.offset - offset), 1) for each in inside]
            batch = encoded.wrapper(
                messages,
                inside[-1].offset + draw(st.sampled_from([0, 0, 1])),
                magic=1,
                codec=codec,
                compress=compress,
                timestamp=draw(st.integers(1_000, 1_004)),
            )
        log += batch
        offset += count
    return log


@one_in(4)  # each takes some milliseconds
@given(log=_logs())
def test_what_the_loops_pass_over_has_nothing_odd(log: bytes) -> None:
    """With each batch looked at by itself the finding is the same."""
    expected = list[Finding]()
    whole, last_offset = WholeLog(np.frombuffer(log, np.uint8)), -1
    with suppress(MalformedRecordsError):  # a negative magic
        for batch in batch_headers.batches(whole):
            expected += _oddities_in_records(whole, batch, last_offset)
            last_offset = max(last_offset, batch.last_offset)
    found = [each for each in _oddities(whole) if each.reason != "sequence-gap"]
    assert found == expected


def test_records_are_read_when_asked(tree: Path) -> None:
    """A batch whose checksum fits and whose records do not passes, but not with --deep-iteration."""
    log = tree / "txn-mixed-0" / segment_file(5797, LOG_SUFFIX)
    data = bytearray(log.read_bytes())
    count = layouts.field_position(layouts.BATCH_V2, "records_count")
    data[count : count + 4] = (99).to_bytes(4)
    crc, covered = (layouts.field_position(layouts.BATCH_V2, field) for field in ("crc", "attributes"))
    size = layouts.LOG_OVERHEAD + int.from_bytes(data[8:12])
    data[crc : crc + 4] = int(google_crc32c.value(bytes(data[covered:size]))).to_bytes(4)
    log.write_bytes(data)
    assert not problems_of(audited(tree).files)
    files = verified(tree, "--deep-iteration", code=3)["files"]
    logs = {each["base_offset"]: each for each in files if each["file"] == LOG_SUFFIX}
    assert len(logs) == 4
    assert (logs[5797]["reason"], logs[5797]["position"], logs[5797]["path"]) == ("malformed-records", 0, str(log))


@given(tables=_TABLES)
def test_they_are_those_of_one_batch_after_the_other(tables: list[list[tuple[int, int, int, int]]]) -> None:
    check = SequenceAudit()
    last: dict[int, tuple[int, int]] = {}
    for table in tables:
        rows = np.zeros(len(table), BATCH)
        expected = []
        for number, (producer, epoch, sequence, delta) in enumerate(table):
            rows[number]["producer_id"], rows[number]["producer_epoch"] = producer, epoch
            rows[number]["base_sequence"], rows[number]["offset_field"] = sequence, 100 + number
            rows[number]["last_offset"] = 100 + number + delta
            if producer == -1 or sequence == -1:
                continue
            before = last.get(producer)
            last[producer] = epoch, incremented_sequence(sequence, delta)
            if before is not None and before[0] == epoch and sequence != incremented_sequence(before[1], 1):
                expected.append((number, incremented_sequence(before[1], 1)))
        assert list(check.gaps(rows).items()) == expected
