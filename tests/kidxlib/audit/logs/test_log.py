"""What is said of records that are not what their batches say: recovery and brokers do not see it, consumers do. Gaps
in the sequence numbers of many batches are those that are found batch by batch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.logs.log import SequenceCheck, _oddities, _oddities_in_records, _Oddity, audit_records
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts, segment_files
from kidxlib.java import incremented_sequence
from kidxlib.records import batch_headers
from kidxlib.records.batch_table_kernel import BATCH
from kidxlib.records.reader import Record
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import one_in
from tests.support.audits import audited, problems_of, verified
from tests.support.logs import encoded

_INT_MAX = 2**31 - 1

_MAX = 2**31 - 1
_PRODUCER = st.integers(-1, 3)
_EPOCH = st.integers(0, 1)
_SEQUENCE = st.sampled_from([-1, 0, 1, 2, 3, 4, _MAX - 1, _MAX])
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
    expected = list[_Oddity]()
    whole, last_offset = WholeLog(np.frombuffer(log, np.uint8)), -1
    with suppress(MalformedRecordsError):  # a negative magic
        for batch in batch_headers.batches(whole):
            expected += _oddities_in_records(whole, batch, last_offset)
            last_offset = max(last_offset, batch.last_offset)
    found = [each for each in _oddities(whole) if each.reason != "sequence-gap"]
    assert found == expected


def test_records_are_read_when_asked(tree: Path) -> None:
    """A batch whose checksum fits and whose records do not passes, but not with --deep-iteration."""
    log = tree / "txn-mixed-0" / segment_files.segment_file(5797, segment_files.LOG_SUFFIX)
    data = bytearray(log.read_bytes())
    count = layouts.field_position(layouts.BATCH_V2, "records_count")
    data[count : count + 4] = (99).to_bytes(4)
    crc, covered = (layouts.field_position(layouts.BATCH_V2, field) for field in ("crc", "attributes"))
    size = layouts.LOG_OVERHEAD + int.from_bytes(data[8:12])
    data[crc : crc + 4] = int(google_crc32c.value(bytes(data[covered:size]))).to_bytes(4)
    log.write_bytes(data)
    assert not problems_of(audited(tree).files)
    files = verified(tree, "--deep-iteration", code=3)["files"]
    logs = {each["base_offset"]: each for each in files if each["file"] == segment_files.LOG_SUFFIX}
    assert len(logs) == 4
    assert (logs[5797]["reason"], logs[5797]["position"], logs[5797]["path"]) == ("malformed-records", 0, str(log))


@given(tables=_TABLES)
def test_they_are_those_of_one_batch_after_the_other(tables: list[list[tuple[int, int, int, int]]]) -> None:
    check = SequenceCheck()
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
        found = check.gaps(rows)
        assert list(zip(found.numbers.tolist(), found.expected.tolist(), strict=True)) == expected
