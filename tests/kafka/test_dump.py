"""`kidx dump` prints the lines of Kafka's `kafka-dump-log`, whatever the files hold, and leaves them as they are."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import google_crc32c
import pytest
from click.testing import CliRunner

from kidxlib.commands.dump import dump
from kidxlib.errors import UsageError
from kidxlib.format import layouts, segment_files
from kidxlib.format.segment_files import segment_file
from kidxlib.library.read import read
from kidxlib.records.reader import Header, Record
from tests.conftest import Say
from tests.kafka.dumps import NO_MEMORY, assert_as_kafka
from tests.kafka.mutations import mutated_log
from tests.kafka.partitions import marker_key, marker_value
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump
from tests.support.kafka.records import NewBatch
from tests.support.logs import encoded
from tests.support.logs.batches import FILLER, Batch
from tests.support.logs.golden import DATA, GoldenSegment
from tests.support.logs.v2_records import record

#: By suffix, the options that matter to a file.
_OPTIONS: Final = {
    segment_files.LOG_SUFFIX: (
        (),
        ("--deep-iteration",),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--deep-iteration", "--skip-record-metadata", "--max-bytes", "5000"),
    ),
    segment_files.OFFSET_INDEX_SUFFIX: (
        (),
        ("--verify-index-only",),
        ("--index-sanity-check",),
        ("--max-message-size", "600"),
    ),
    segment_files.TIME_INDEX_SUFFIX: ((), ("--verify-index-only",), ("--index-sanity-check",)),
    segment_files.TRANSACTION_INDEX_SUFFIX: ((),),
    segment_files.SNAPSHOT_SUFFIX: ((),),
}
_GZIP: Final = layouts.CODECS.index("gzip")


@pytest.mark.promised_alone("mutated segments are dumped with both")
def test_golden_segments(kafka_dump: KafkaDump, golden_segment: GoldenSegment, scratch: Path) -> None:
    """Real, synthetic and damaged segments with the files that Kafka's recovery wrote for them."""
    golden_segment.write(scratch, golden_segment.log.read_bytes())
    for file in sorted(scratch.iterdir()):
        for options in _OPTIONS[file.suffix]:
            end = assert_as_kafka(kafka_dump, file, options)
            may_throw = golden_segment.truncated_bytes or "--max-message-size" in options
            assert may_throw or end in ("well", "not well"), (file, options)


def test_mutated_segments(
    kafka_dump: KafkaDump,
    golden_segments: list[GoldenSegment],
    scratch: Path,
    tmp_path: Path,
    rng: random.Random,
    say: Say,
    random_cases: Callable[[int, int], int],
) -> None:
    """Real files changed at random. Files that are dumped otherwise are kept."""
    ends: Counter[str] = Counter()
    for number in range(random_cases(120, 5_000)):
        segment = rng.choice(golden_segments)
        for path in scratch.iterdir():
            path.unlink()
        files = _mutated_files(rng, segment, [other.log for other in golden_segments])
        for suffix, content in files.items():
            (scratch / segment_file(segment.base_offset, suffix)).write_bytes(content)
        for suffix in files:
            file = scratch / segment_file(segment.base_offset, suffix)
            options = rng.choice(_OPTIONS[suffix])
            try:
                ends[assert_as_kafka(kafka_dump, file, options)] += 1
            except AssertionError as error:
                kept = shutil.copytree(scratch, tmp_path / f"case-{number}")
                error.add_note(f"{kept / file.name} {' '.join(options)}, from {segment.name}")
                raise
    say(f"{ends.total()} dumps as Kafka's; how they ended: " + ", ".join(f"{e} {n}" for e, n in ends.most_common()))


def test_sizes_that_kafka_has_no_memory_for(kafka_dump: KafkaDump, scratch: Path) -> None:
    """With more memory Kafka prints what is printed here."""
    size = 200 * 1024 * 1024
    messages = b"".join(encoded.message(Record(number, 7, b"k", b"value"), 1) for number in range(3))
    damaged = messages + (3).to_bytes(8) + size.to_bytes(4) + b"less"
    wrapper = encoded.wrapper([damaged], 2, magic=1, codec=_GZIP, compress=encoded.gzip)
    varint = bytes([0x80, 0x80, 0x80, 0xC8, 0x01])
    assert size * 2 == sum((byte & 127) << 7 * place for place, byte in enumerate(varint))
    batch = encoded.batch_v2(encoded.RECORDS[:1], _GZIP, lambda body: encoded.gzip(varint + body))
    for log in (wrapper, batch):
        path = scratch / segment_file(0, segment_files.LOG_SUFFIX)
        path.write_bytes(wrapper + log)
        thrown = kafka_dump("--deep-iteration", "--files", str(path)).thrown
        assert thrown is not None and thrown.name == NO_MEMORY
        end = assert_as_kafka(kafka_dump, path, ["--deep-iteration"])
        assert end == ("well" if log == wrapper else "InvalidRecordException")


def _mutated_files(rng: random.Random, segment: GoldenSegment, others: list[Path]) -> dict[str, bytes]:
    log = segment.log.read_bytes()[: 1 << 20]
    aborted = rng.randbytes(34 * rng.randrange(4))
    entries = rng.randrange(4)
    covered = entries.to_bytes(4) + rng.randbytes(46 * entries)
    snapshot = layouts.SNAPSHOT_VERSION.to_bytes(2) + google_crc32c.value(covered).to_bytes(4) + covered
    return {
        segment_files.LOG_SUFFIX: mutated_log(rng, segment.log, others).log if rng.random() < 0.6 else log,
        segment_files.OFFSET_INDEX_SUFFIX: _mutated(rng, segment.offset_index, 8),
        segment_files.TIME_INDEX_SUFFIX: _mutated(rng, segment.time_index, 12),
        segment_files.TRANSACTION_INDEX_SUFFIX: _mutated(rng, segment.transaction_index or aborted, 34),
        segment_files.SNAPSHOT_SUFFIX: _mutated(rng, segment.snapshot or snapshot, 46),
    }


def _mutated(rng: random.Random, content: bytes, entry_bytes: int) -> bytes:
    """A file as it is, with a bit flipped, truncated, with room after its entries, or with some of them again."""
    data = bytearray(content)
    match rng.randrange(5):
        case 1 if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2 if data:
            del data[rng.randrange(len(data)) :]
        case 3:
            data += bytes(entry_bytes * rng.randrange(1, 4))
        case 4:
            data += data[: entry_bytes * rng.randrange(1, 4)]
    return bytes(data)


def _some_bytes(rng: random.Random) -> bytes | None:
    return rng.choice([None, b"", b"key", "ä😀".encode(), rng.randbytes(rng.randrange(40)), b'{"a": 1,\n"b": [2]}'])


def test_what_kafka_writes(kafka: Kafka, kafka_dump: KafkaDump, scratch: Path, rng: random.Random) -> None:
    """Headers, nulls and bytes that are no text, in all formats and codecs."""
    data = b""
    for magic in (0, 1, 2):
        for codec in layouts.CODECS[: 5 if magic == 2 else 4]:
            written = [
                Record(
                    offset,
                    -1 if magic == 0 else 1_700_000_000_000 + offset,
                    _some_bytes(rng),
                    _some_bytes(rng),
                    () if magic < 2 else tuple(Header(key, _some_bytes(rng)) for key in ("", "a", "ä,")[: offset % 4]),
                )
                for offset in range(100, 110)
            ]
            data += kafka.records.write(
                NewBatch(
                    magic=magic,
                    codec=codec,
                    base_offset=100,
                    records=written,
                    log_append_time=rng.choice([None, 5]) if magic else None,
                    delete_horizon_ms=rng.choice([None, 6]) if magic == 2 else None,
                )
            )
    log = scratch / segment_file(100, segment_files.LOG_SUFFIX)
    log.write_bytes(data)
    for options in (
        *_OPTIONS[segment_files.LOG_SUFFIX],
        ("--key-decoder-class", "org.apache.kafka.tools.api.StringDecoder"),
        ("--max-bytes", str(layouts.SEGMENT_BYTES_MAX)),
    ):
        assert assert_as_kafka(kafka_dump, log, options) == "well"


@pytest.mark.parametrize("name", ["Integer", "Long"])
def test_keys_that_are_numbers(kafka: Kafka, kafka_dump: KafkaDump, scratch: Path, name: str) -> None:
    """Longer ones than needed, too; Kafka throws at shorter ones, and they are shown all the same."""
    keys = [bytes([sign]) + bytes(range(7)) + more for sign in (0, 255) for more in (b"", b"more")]
    batch = NewBatch(magic=2, codec="none", base_offset=0, records=[Record(n, 1, k, k) for n, k in enumerate(keys)])
    log = scratch / segment_file(0, segment_files.LOG_SUFFIX)
    log.write_bytes(kafka.records.write(batch))
    decoder = f"org.apache.kafka.tools.api.{name}Decoder"
    assert (
        assert_as_kafka(kafka_dump, log, ("--value-decoder-class", decoder, "--key-decoder-class", decoder)) == "well"
    )


@pytest.mark.promised_alone("mutated segments are dumped with both")
@pytest.mark.parametrize("key_version", [0, 1, -1])
@pytest.mark.parametrize("control_type", [-1, 0, 1, 2, 3, 4, 5, 6, 7])
def test_control_records(kafka_dump: KafkaDump, scratch: Path, control_type: int, key_version: int) -> None:
    """Of transactions and of KRaft; sound values, and such as nobody writes."""
    voter = (7).to_bytes(4) + bytes(16) + b"\2\5CTRL\5host\x23\x82\0" + bytes(2) + (1).to_bytes(2) + b"\0\0"
    values = [
        marker_value(3),
        marker_value(3, version=-1),
        (0).to_bytes(2) + (3).to_bytes(4) + b"\2" + (4).to_bytes(4) + b"\0\1\0",
        (1).to_bytes(2) + (3).to_bytes(4) + b"\3" + ((4).to_bytes(4) + b"\0") * 2 + b"\1\1\5\2ab",
        bytes(2) + (1_700_000_000_000).to_bytes(8) + b"\0",
        bytes(2) + b"\0",
        bytes(2) + (1).to_bytes(2) + b"\0",
        bytes(2) + b"\2" + voter + b"\0",
        bytes(2) + b"\xff\xff\xff\xff\x0f",
        b"",
        None,
        *(FILLER[start : start + 9] for start in range(5)),
    ]
    log = scratch / segment_file(0, segment_files.LOG_SUFFIX)
    for value in values:
        batch = Batch(
            attributes=layouts.ATTRIBUTE_CONTROL,
            body=record(marker_key(control_type, key_version), value),
            base_sequence=-1,
        )
        log.write_bytes(batch.encode(0))
        assert_as_kafka(kafka_dump, log, ("--print-data-log",))


@pytest.mark.promised_alone("mutated segments are dumped with both")
@pytest.mark.parametrize("base_sequence", [-1, -5, 0, 2**31 - 3, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("delta", [0, 1, 5, -1, 2**31 - 1, -(2**31)])
def test_sequences_wrap(kafka_dump: KafkaDump, scratch: Path, base_sequence: int, delta: int) -> None:
    batch = Batch(
        producer_id=1,
        base_sequence=base_sequence,
        last_offset_delta=delta,
        records=2,
        body=record(b"k", None, offset_delta=delta) + record(None, b"v", offset_delta=delta),
    )
    log = scratch / segment_file(0, segment_files.LOG_SUFFIX)
    log.write_bytes(batch.encode(0))
    assert_as_kafka(kafka_dump, log, ("--print-data-log",))


def test_names_that_kafka_refuses(kafka_dump: KafkaDump, scratch: Path) -> None:
    """Kafka throws, or says that it ignores the file."""
    for name in ("a.log", ".log", "1_0.log", "9223372036854775808.index", "1.swap", "partition.metadata", "1"):
        file = scratch / name
        file.touch()
        assert CliRunner().invoke(dump, [str(file)], standalone_mode=False).exception.__class__ is UsageError
        dumped = kafka_dump("--files", str(file))
        assert dumped.thrown is not None or dumped.error_lines == [f"Ignoring unknown file {file}".encode()]


_TYPES: Final = {b"NoTimestampType": -1, b"CreateTime": 0, b"LogAppendTime": 1}
_RECORD: Final = re.compile(rb"\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) ")
#: An offset, a type of timestamp, a timestamp, a key and a value.
_Row = tuple[int, int, int, bytes | None, bytes | None]


#: Partitions with batches of magic 0 and 1.
_OLD: Final = sorted(path.name for path in (DATA / "logs").iterdir() if path.name.startswith(("v0-", "v1-", "mixed-")))


@pytest.mark.parametrize("directory", _OLD)
def test_records_are_those_of_kafka_dump_log(kafka_dump: KafkaDump, directory: str, scratch: Path) -> None:
    copy = shutil.copytree(DATA / "logs" / directory, scratch / directory)
    logs = sorted(copy.glob("*.log"))
    printed = [line for log in logs for line in kafka_dump("--print-data-log", "--files", str(log)).lines]
    expected = [_row(line) for line in printed if line.startswith(b"| ")]
    columns = ["offset", "timestampType", "timestamp", "key", "value"]
    found = read(copy, columns=columns).read_all().to_pydict()
    found["timestamp"] = [round(each.timestamp() * 1_000) for each in found["timestamp"]]
    assert [*zip(*found.values(), strict=True)] == expected and expected


def _row(line: bytes) -> _Row:
    """What a line says of a record; its sizes tell how long key and value are."""
    match = _RECORD.match(line)
    assert match is not None, line
    key_size, value_size = int(match[4]), int(match[5])
    value = line[len(line) - value_size :] if value_size >= 0 else None
    rest = line[: len(line) - len(b" payload: ") - value_size] if value_size >= 0 else line
    key = rest[len(rest) - key_size :] if key_size >= 0 else None
    return int(match[1]), _TYPES[match[2]], int(match[3]), key, value
