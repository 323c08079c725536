"""What `kidxlib.read` gives is what a consumer gets, record by record (`tests/model/consume.py`), whatever is pushed
down and whatever is wrong with indexes; damage is told.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import DamagedLogError, LogChangedError, MalformedRecordsError, UsageError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX
from kidxlib.library.read import count, read, read_batches
from kidxlib.reading.walk import Damage
from kidxlib.records.arrow_batches import BATCHES, LISTED_BATCHES
from kidxlib.records.arrow_columns import CONSUMED
from kidxlib.records.batch_headers import parse_batch
from kidxlib.records.reader import Header, Record
from kidxlib.recovery.past_end import is_unfinished_append
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import one_in
from tests.faults.trees import topic_log as _log
from tests.model.consume import crc_is_right
from tests.support import page_cache
from tests.support.consumed import Row, read_rows, rows_of_log, rows_of_partition, rows_until_damage
from tests.support.docstrings import columns_in, columns_of
from tests.support.logs import encoded
from tests.support.logs.golden import DATA, SAMPLES, GoldenSegment
from tests.support.logs.random_indexes import damaged
from tests.support.logs.random_logs import write_random_log
from tests.support.seeks import sample_directory

#: Four segments, with offsets 0 to 10,333.
PARTITION: Final = SAMPLES / "txn-mixed-0"


def _read(path: Path, **options: Any) -> list[Row]:
    return read_rows(read(path, include_headers=True, **options).read_all())


def _until_damage(path: Path, **options: Any) -> tuple[list[Row], str | None]:
    return rows_until_damage(read(path, include_headers=True, **options), CONSUMED)


# ---- what is in it ----


def test_docstring_lists_the_columns() -> None:
    assert columns_in(read.__doc__) == columns_of(CONSUMED)


def test_rows_are_those_of_the_records(golden_segment: GoldenSegment, tmp_path: Path) -> None:
    """Of each segment that Kafka has written or somebody has damaged, up to what no broker has written there."""
    directory = tmp_path / golden_segment.log.parent.name
    directory.mkdir()
    log = directory / golden_segment.log.name
    shutil.copy2(golden_segment.log, log)
    rows, end = rows_of_log(log)
    found, error = _until_damage(log, threads=1)
    assert found == rows
    data = WholeLog(np.fromfile(log, np.uint8))
    next_offset = rows[-1]["offset"] + 1 if rows else golden_segment.base_offset
    is_sound = end == data.size or is_unfinished_append(data, end, golden_segment.base_offset, next_offset)
    assert (error is None) == is_sound
    if error is not None:
        assert error.startswith(f"{log}: byte {end}: ")


@pytest.mark.parametrize("directory", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_partitions_of_a_broker(directory: str) -> None:
    rows = rows_of_partition(SAMPLES / directory)
    assert _read(SAMPLES / directory, threads=2) == rows
    assert _read(SAMPLES, offsets={directory: (None, None)}) == rows


def test_all_of_a_log_dir_in_order() -> None:
    found = read(SAMPLES, columns=["topic", "partition", "offset"]).read_all().to_pylist()
    places = [(row["topic"], row["partition"], row["offset"]) for row in found]
    there = {path.name.rpartition("-")[0] for path in SAMPLES.iterdir() if path.is_dir()}
    assert places == sorted(places) and {topic for topic, *_ in places} == there - {"__transaction_state"}
    topics = read(SAMPLES, topics="(plain|txn)-.*", columns=["topic"]).read_all()["topic"].unique().to_pylist()
    assert topics == ["plain-zstd", "txn-mixed"]


def test_topics_that_brokers_keep_for_themselves_are_read_by_name(tmp_path: Path, caplog: Any) -> None:
    """No consumer's pattern means them (`SubscriptionState`, `exclude.internal.topics`)."""
    for name in ("__consumer_offsets-0", "__cluster_metadata-0", "__mine-0"):
        shutil.copytree(PARTITION, tmp_path / name)

    def topics(path: Path, **options: Any) -> list[Any]:
        rows = read(path, columns=["topic"], **options).read_all()
        assert count(path, **options) == rows.num_rows
        return rows["topic"].unique().to_pylist()

    with caplog.at_level(logging.INFO, "kidxlib"):
        assert topics(tmp_path) == ["__mine"]
    assert caplog.messages[0].endswith(
        "; not read, as brokers keep them for themselves: __cluster_metadata, __consumer_offsets"
    )
    assert topics(tmp_path, topics="__.*") == ["__mine"]
    assert topics(tmp_path, topics="__consumer_offsets") == ["__consumer_offsets"]
    assert topics(tmp_path, topics="__(cluster_metadata|mine)|__cluster_metadata") == ["__cluster_metadata", "__mine"]
    assert topics(tmp_path, offsets={"__consumer_offsets-0": (0, 100)}) == ["__consumer_offsets"]
    assert topics(tmp_path / "__consumer_offsets-0") == ["__consumer_offsets"]
    assert topics(tmp_path / "__cluster_metadata-0" / "00000000000000000084.log") == ["__cluster_metadata"]


@pytest.mark.parametrize(
    "columns", [["offset"], ["topic"], ["headers", "key"], ["timestampType", "timestamp", "value"], ["partition"]]
)
def test_columns_are_those_of_all(columns: list[str]) -> None:
    everything = read(PARTITION, include_headers=True).read_all()
    assert everything.schema == CONSUMED
    found = read(PARTITION, columns=columns).read_all()
    found.validate(full=True)
    assert found.equals(everything.select(columns))


def test_whatever_a_record_holds(tmp_path: Path) -> None:
    written = [
        Record(5, 2**62, None, None),
        Record(6, -1, b"", b"", (Header("", None),)),
        Record(
            9, -(2**63), b"\xff", b"value", (Header("ключ", b""), Header("key", b"\0\xff"), Header("key", b"again"))
        ),
    ]
    log = _log(tmp_path, 5, encoded.batch_v2(written))
    names = ("offset", "timestamp", "key", "value")
    found = _read(log)
    assert [tuple(row[name] for name in names) for row in found] == [
        (record.offset, record.timestamp, record.key, record.value) for record in written
    ]
    assert [row["headers"] for row in found] == [
        [{"key": each.key, "value": each.value} for each in record.headers] or None for record in written
    ]


# ---- what is pushed down ----

_LIMITS: Final = st.one_of(st.none(), st.integers(0, 60))


@given(
    seed=st.integers(0, 2**32),
    offsets=st.tuples(_LIMITS, _LIMITS),
    times=st.tuples(*[st.one_of(st.none(), st.integers(95, 145))] * 2),
    way=st.sampled_from(["as they are", "damaged", "missing", "of another log"]),
    threads=st.sampled_from([1, 1, 2]),
)
@one_in(2)
def test_pushed_filters_give_what_filters_give(
    seed: int,
    offsets: tuple[int | None, int | None],
    times: tuple[int | None, int | None],
    way: str,
    threads: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of logs of all formats, with gaps, empty segments, times in any order; whatever is wrong with indexes."""
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("log-dir") / "topic-0"
    write_random_log(directory, rng)
    for index in sorted(directory.glob(f"*{OFFSET_INDEX_SUFFIX}")):
        if way == "damaged":
            index.write_bytes(damaged(rng, index.read_bytes(), layouts.OFFSET_INDEX_ENTRY))
        elif way == "missing":
            index.unlink()
        elif way == "of another log":
            index.write_bytes(rng.choice(sorted(directory.glob(f"*{OFFSET_INDEX_SUFFIX}"))).read_bytes())
    offsets, times = _ordered(offsets), _ordered(times)
    rows = [
        row
        for row in rows_of_partition(directory)
        if _is_within(row["offset"], offsets) and _is_within(row["timestamp"], times)
    ]
    assert _read(directory, offsets=offsets, times=times, threads=threads) == rows


def _ordered(limits: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    first, second = limits
    return (second, first) if first is not None and second is not None and second < first else limits


def _is_within(number: int, limits: tuple[int | None, int | None]) -> bool:
    start, end = limits
    return (start is None or start <= number) and (end is None or number < end)


def test_an_index_saves_reading(tmp_path: Path, caplog: Any) -> None:
    """And segments are told by their names."""
    directory = sample_directory(tmp_path / PARTITION.name)
    with caplog.at_level(logging.INFO, "kidxlib"):
        found = _read(directory, offsets=(5_000, 5_010))
    assert [row["offset"] for row in found] == [
        row["offset"] for row in rows_of_partition(PARTITION) if 5_000 <= row["offset"] < 5_010
    ]
    assert [record.message for record in caplog.records] == [
        "1 segment to read, 9,128 bytes of logs; passed over: 0 partitions, 3 segments, 1,878,399 bytes; "
        "read to the end of the log, as no replication-offset-checkpoint says how far: 1 partition"
    ]


def test_a_range_for_each_partition() -> None:
    offsets = {"txn-mixed-0": (10, 12), "plain-zstd-0": (13_690, None)}
    found = read(SAMPLES, offsets=offsets, columns=["topic", "offset"]).read_all().to_pylist()
    assert {row["topic"] for row in found} == {"txn-mixed", "plain-zstd"}
    assert [row["offset"] for row in found if row["topic"] == "txn-mixed"] == [10, 11]
    assert min(row["offset"] for row in found if row["topic"] == "plain-zstd") == 13_690


def test_times_as_people_give_them() -> None:
    start, end = datetime(2026, 11, 21, 1, 32, 20, tzinfo=UTC), datetime(2026, 11, 21, 1, 32, 20, 700_000, tzinfo=UTC)
    whole: list[Any] = read(SAMPLES, columns=["timestamp"]).read_all()["timestamp"].to_pylist()
    wanted = sorted(moment for moment in whole if start <= moment < end)
    assert 0 < len(wanted) < len(whole)
    found = read(SAMPLES, columns=["timestamp"], times=("2026-11-21T01:32:20Z", "2026-11-21T02:32:20.7+01:00"))
    times: list[Any] = found.read_all()["timestamp"].to_pylist()
    assert sorted(times) == wanted


# ---- where a log ends ----


def _checkpoint(log_dir: Path, name: str, **offsets: int) -> None:
    lines = [f"{directory.rpartition('-')[0]} 0 {offset}\n" for directory, offset in offsets.items()]
    (log_dir / name).write_text(f"0\n{len(lines)}\n{''.join(lines)}")


def _offsets(found: pa.RecordBatchReader) -> list[int]:
    offsets: list[Any] = found.read_all()["offset"].to_pylist()
    return offsets


def test_reading_ends_at_the_high_watermark_and_begins_at_the_log_start(tmp_path: Path) -> None:
    log = _log(tmp_path, 0, b"".join(encoded.batch_v2([Record(each, 0, None, b"")]) for each in range(9)))
    _checkpoint(tmp_path, "replication-offset-checkpoint", **{"topic-0": 7})
    _checkpoint(tmp_path, "log-start-offset-checkpoint", **{"topic-0": 2})
    for path in (tmp_path, tmp_path / "topic-0", log):
        assert _offsets(read(path)) == [2, 3, 4, 5, 6]
    assert _offsets(read(tmp_path, to_log_end=True)) == [2, 3, 4, 5, 6, 7, 8]
    assert _offsets(read(tmp_path, offsets=(0, 4))) == [2, 3]
    _checkpoint(tmp_path, "replication-offset-checkpoint", **{"another-0": 7})
    assert _offsets(read(tmp_path)) == [2, 3, 4, 5, 6, 7, 8]
    (tmp_path / "replication-offset-checkpoint").write_text("1\n")
    assert _offsets(read(tmp_path)) == [2, 3, 4, 5, 6, 7, 8]  # and a warning says so


def test_a_log_that_ends_below_its_high_watermark_is_damaged(tmp_path: Path) -> None:
    log = _log(tmp_path, 0, encoded.batch_v2([Record(each, 0, None, b"") for each in range(9)]))
    _checkpoint(tmp_path, "replication-offset-checkpoint", **{"topic-0": 12})
    rows, error = _until_damage(tmp_path)
    assert len(rows) == 9
    assert error is not None and error.startswith(
        f"{log}: byte {log.stat().st_size}: the log ends before offset 9, expected records up to the high watermark 12"
    )
    assert _offsets(read(tmp_path, offsets=(0, 9))) == list(range(9))
    with pytest.raises(DamagedLogError):
        read(tmp_path, offsets=(0, 11)).read_all()


@pytest.mark.parametrize("tail", [bytes(5_000), encoded.batch_v2([Record(9, 0, b"key", b"value" * 99)])[:-7]])
def test_an_unfinished_append_is_no_damage_where_a_broker_appends(tail: bytes, tmp_path: Path, caplog: Any) -> None:
    """At the end of the last segment, and a line tells of it; in another one batches are missing."""
    sound = encoded.batch_v2([Record(each, 0, None, b"") for each in range(9)])
    log = _log(tmp_path, 0, sound + tail)
    said = f"{log}: byte {len(sound)}: {len(tail)} bytes that are no whole batch; not read"
    for on_damage in ("fail", "skip"):
        caplog.clear()
        assert _offsets(read(log, on_damage=on_damage)) == list(range(9))
        assert caplog.messages == [said]
    caplog.clear()
    assert count(log) == 9 and caplog.messages == [said]
    caplog.clear()
    assert _offsets(read(log, offsets=(0, 9))) == list(range(9)) and caplog.messages == []
    _checkpoint(tmp_path, "replication-offset-checkpoint", **{"topic-0": 9})
    assert _offsets(read(log)) == list(range(9)) and caplog.messages == []
    (tmp_path / "replication-offset-checkpoint").unlink()
    _log(tmp_path, 20, b"")
    rows, error = _until_damage(log)
    assert len(rows) == 9 and error is not None and error.startswith(f"{log}: byte {len(sound)}: ")


# ---- damage ----


def _flipped(data: bytes, rng: random.Random) -> bytes:
    """A bit is wrong, not in the offset or the leader epoch, which no checksum covers."""
    at = rng.choice([*range(8, 12), *range(16, len(data))])
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


_DAMAGES: Final[dict[str, Callable[[bytes, random.Random], bytes]]] = {
    "a bit": _flipped,
    "cut": lambda data, rng: data[: rng.randrange(1, len(data) // 2)],
    "size": lambda data, rng: data[:8] + rng.choice([0, 13, 60, 2**31 - 1, 2**32 - 1]).to_bytes(4) + data[12:],
    "zeros": lambda data, rng: bytes(len(data)),
    "random": lambda data, rng: rng.randbytes(rng.randrange(1, 300)),
    "something between": lambda data, rng: data + rng.randbytes(rng.randrange(1, 300)),
    "magic": lambda data, rng: data[: layouts.HEADER_SIZE_UP_TO_MAGIC - 1] + b"\3" + data[17:],
}


@pytest.mark.parametrize("way", _DAMAGES)
def test_damage_is_told_and_what_follows_it_is_read_if_asked_for(way: str, tmp_path: Path, rng: random.Random) -> None:
    for number in range(20):
        batches = [
            [Record(10 * each + n, 1_700_000_000_000, None, rng.randbytes(rng.randrange(50))) for n in range(3)]
            for each in range(6)
        ]
        data = [encoded.batch_v2(batch, *encoded.WAYS[rng.choice(["none", "lz4"])]) for batch in batches]
        which = rng.randrange(len(data) - 1)
        data[which] = _DAMAGES[way](data[which], rng)
        (tmp_path / str(number)).mkdir()
        log = _log(tmp_path / str(number), 0, b"".join(data))
        good = [record.offset for batch in batches[:which] for record in batch]
        rows, error = _until_damage(log.parent, threads=rng.choice([1, 2]))
        if way == "something between":
            good += [record.offset for record in batches[which]]
        assert [row["offset"] for row in rows] == good and error is not None
        told: list[Damage] = []
        found = _offsets(read(log.parent, on_damage=told.append, threads=rng.choice([1, 2])))
        assert found == good + [record.offset for batch in batches[which + 1 :] for record in batch]
        assert len(told) == 1 and (told[0].path, told[0].end is not None) == (str(log), True)
        assert told[0].first_offset == (good[-1] + 1 if good else 0) and told[0].next_offset == 10 * (which + 1)


@pytest.mark.parametrize(("offset", "lost"), [(31, 20), (1_000, 20), (2**40, 20), (5, 20)])
def test_offsets_that_do_not_increase_are_damage(offset: int, lost: int, tmp_path: Path) -> None:
    """A checksum does not cover the first of them. The batch is at fault that does not fit between others."""
    batches = [[Record(10 * each + n, 0, None, b"") for n in range(10)] for each in range(5)]
    data = [encoded.batch_v2(batch) for batch in batches]
    data[2] = offset.to_bytes(8) + data[2][8:]
    log = _log(tmp_path, 0, b"".join(data))
    rows, error = _until_damage(log)
    assert [row["offset"] for row in rows] == list(range(lost))
    assert error is not None and error.startswith(f"{log}: byte {len(data[0]) + len(data[1])}: offsets ")
    assert _offsets(read(log, on_damage="skip")) == [*range(lost), *range(30, 50)]


def test_what_is_lost_is_said(tmp_path: Path, caplog: Any) -> None:
    """And a batch with the right checksum that does not hold what it says is one that cannot be read."""
    sound = [encoded.batch_v2([Record(each, 0, None, b"v")]) for each in range(3)]
    malformed = encoded.batch_v2([Record(3, 0, None, b""), Record(4, 0, None, b"")], records=3)
    log = _log(tmp_path, 0, b"".join([*sound, malformed, encoded.batch_v2([Record(5, 0, None, b"")])]))
    rows, error = _until_damage(log)
    at = sum(map(len, sound))
    assert len(rows) == 3 and error == (
        f"{log}: byte {at}: found the end of the data at record 2 of 3, expected the size of that record; what comes "
        "before it was read. --skip-damage (in Python on_damage='skip') reads what comes after it"
    )
    assert _offsets(read(log, on_damage="skip")) == [0, 1, 2, 5]
    assert [record.message for record in caplog.records] == [
        f"{log}: byte {at}: found the end of the data at record 2 of 3, expected the size of that record; not read: "
        "offsets 3 to 4"
    ]


# ---- logs that change, and wrong usage ----


def test_a_log_may_grow_and_nothing_else(tmp_path: Path) -> None:
    sound = encoded.batch_v2([Record(each, 0, None, b"v" * 200) for each in range(100)])
    log = _log(tmp_path, 0, sound)

    def begun() -> pa.RecordBatchReader:
        log.write_bytes(sound)
        return read(log, columns=["offset"])

    reader = begun()
    with log.open("ab") as file:
        file.write(encoded.batch_v2([Record(100, 0, None, b"")]))
    assert _offsets(reader) == list(range(100))
    reader = begun()
    os.truncate(log, len(sound) - 1)
    with pytest.raises(LogChangedError, match=f"{len(sound)} bytes then, {len(sound) - 1} now"):
        reader.read_all()
    reader = begun()
    other = log.with_name("other")
    other.write_bytes(sound)
    other.rename(log)
    with pytest.raises(LogChangedError, match="another file"):
        reader.read_all()
    reader = begun()
    os.utime(log, ns=(0, 0))
    with pytest.raises(LogChangedError, match="changed, since it was listed"):
        reader.read_all()


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("kafka-logs", {"columns": ["offsets"]}, "column 'offsets': expected each of these once at most: key, value, "),
        ("kafka-logs", {"columns": []}, "no column: expected one or more"),
        ("kafka-logs", {"offsets": (5, 4)}, "offsets 5 to 4: expected an end that is not below the start"),
        ("kafka-logs", {"offsets": {"txn": (1, 2)}}, "offsets of 'txn': expected the name of a partition's directory"),
        ("kafka-logs", {"times": ("2026-11-20", None)}, "'2026-11-20' has no time zone"),
        (
            "kafka-logs",
            {"times": (datetime(2026, 11, 20, tzinfo=UTC), None)},
            "found datetime.*datetime's isof",
        ),
        ("kafka-logs", {"times": (1,)}, "times: found \\(1,\\), expected a start and an end"),
        ("kafka-logs", {"times": (True, None)}, "times: found True, expected a start and an end"),
        ("kafka-logs", {"topics": "("}, "topics \\(: not a regular expression"),
        ("kafka-logs", {"on_damage": "go on"}, "on_damage 'go on': expected 'fail', 'skip' or a function"),
        ("kafka-logs", {"threads": 0}, "threads 0: expected 1 or more"),
        ("kafka-logs/txn-mixed-0/x.log", {}, "expected a segment's log, which is named <base offset, 20 digits>.log"),
        ("kafka-logs/nowhere", {}, "No such file or directory; expected a Kafka log dir or a partition's directory"),
        ("kafka-logs/txn-mixed-0/00000000000000000001.log", {}, "no segment found"),
    ],
)
def test_wrong_usage(path: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(SAMPLES.parent / path, **options)


# ---- memory ----


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Of a log of a MB with more than a GB in it, and of who takes the rows slowly."""
    batch = encoded.batch_v2([Record(each, 0, None, bytes(40_000)) for each in range(100)], 4, encoded.zstd)
    log = _log(tmp_path, 0, b"".join((100 * each).to_bytes(8) + batch[8:] for each in range(300)))
    script = f"""
        import re
        from pathlib import Path
        from kidxlib.library.read import read
        rows = size = 0
        for batch in read({str(log)!r}, threads=4):
            rows, size = rows + batch.num_rows, size + batch.nbytes
        assert (rows, size > 1_200_000_000) == (30_000, True), (rows, size)
        # Not `ru_maxrss`: in that is what the process had before it became this one, which is the tests' own.
        print(int(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 512


# ---- batches, and how many records there are ----


def test_batches_are_those_of_their_headers(golden_segment: GoldenSegment, tmp_path: Path) -> None:
    """And whether their checksums are right, also of damaged ones."""
    directory = tmp_path / golden_segment.log.parent.name
    directory.mkdir()
    log = directory / golden_segment.log.name
    shutil.copy2(golden_segment.log, log)
    parts, reader = [LISTED_BATCHES.empty_table()], read(log, mode="batches")
    with contextlib.suppress(DamagedLogError):
        parts += (pa.Table.from_batches([part]) for part in reader)
    found = pa.concat_tables(parts)
    found.validate(full=True)
    with contextlib.suppress(MalformedRecordsError):
        assert found.select(BATCHES.names).equals(read_batches(log))
    topic, _, partition = directory.name.rpartition("-")
    data = log.read_bytes()
    for row in found.to_pylist():
        assert (row["topic"], row["partition"]) == (topic, int(partition))
        batch = parse_batch(row["position"], row["bytes"], data[row["position"] : row["position"] + 61])
        assert (row["crc_is_right"], row["attributes"]) == (crc_is_right(data, batch), batch.attributes)


def test_of_batches_headers_alone_are_read(tmp_path: Path) -> None:
    records = [Record(each, 0, None, b"v") for each in range(3)]
    log = _log(tmp_path, 0, encoded.batch_v2(records, crc_error=1) + encoded.batch_v2([Record(3, 0, None, b"")]))
    found = read(log, mode="batches", columns=["last_offset", "crc_is_right"]).read_all().to_pylist()
    assert found == [{"last_offset": 2, "crc_is_right": False}, {"last_offset": 3, "crc_is_right": True}]
    found = read(log, mode="batches", columns=["records"], offsets=(0, 3)).read_all().to_pylist()
    assert found == [{"records": 3}]
    assert count(log) == 4
    with pytest.raises(UsageError, match="isolation read_committed: of batches all are read"):
        read(log, mode="batches", isolation="read_committed")
    with pytest.raises(UsageError, match="mode 'rows': expected records or batches"):
        read(log, mode="rows")


@given(
    seed=st.integers(0, 2**32),
    offsets=st.tuples(_LIMITS, _LIMITS),
    times=st.none() | st.tuples(*[st.one_of(st.none(), st.integers(95, 145))] * 2),
)
@one_in(2)
def test_records_are_counted_as_they_are_read(
    seed: int,
    offsets: tuple[int | None, int | None],
    times: tuple[int | None, int | None] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("log-dir") / "topic-0"
    write_random_log(directory, random.Random(seed))
    asked: dict[str, Any] = {"offsets": _ordered(offsets), "times": None if times is None else _ordered(times)}
    assert count(directory, **asked) == len(_read(directory, **asked))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_records_of_a_broker_are_counted(isolation: str) -> None:
    """Wrappers of old formats, too, which do not tell how many records they hold."""
    for path in (SAMPLES, SAMPLES / "txn-mixed-0", DATA / "logs" / "v1-snappy-0", DATA / "logs" / "v0-gzip-0"):
        found = read(path, isolation=isolation, columns=["offset"]).read_all().num_rows
        assert count(path, isolation=isolation) == found > 0


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_page_cache_is_left_as_it_was(isolation: str, tmp_path: Path) -> None:
    """On a broker's machine it is the broker's."""
    batch = encoded.batch_v2([Record(each, 0, None, bytes(1_000)) for each in range(100)])
    log = _log(tmp_path, 0, b"".join((100 * each).to_bytes(8) + batch[8:] for each in range(200)))
    if not page_cache.drop(log):
        pytest.skip("this file system is memory")
    assert read(log, threads=2, isolation=isolation).read_all().num_rows == 20_000
    assert page_cache.resident(log) == ()
