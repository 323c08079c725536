"""What kidx reads from batches is what Kafka's own classes read: real, written by them or others, damaged."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.java import text_of
from kidxlib.lookup.seeker import Seeker
from kidxlib.records import batch_headers, reader
from kidxlib.records.arrow_columns import schema_of_columns
from kidxlib.records.arrow_records import record_rows
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.reader import Header, Record
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.log_bytes import LogBytes, WholeLog
from tests.conftest import Say
from tests.support.kafka.classes import Kafka
from tests.support.kafka.records import KafkaBatch, KafkaThrewError, NewBatch
from tests.support.logs import encoded
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.v2_records import varint


def _log(data: bytes) -> LogBytes:
    return WholeLog(np.frombuffer(data, np.uint8))


def _read(log: LogBytes) -> tuple[list[KafkaBatch], list[Record], MalformedRecordsError | None]:
    """All that is read from a log, until its end or an error."""
    batches, read = [], []
    try:
        for batch in batch_headers.batches(log):
            inside = list(reader.records(log, batch))
            batches.append(
                KafkaBatch(
                    position=batch.position,
                    size=batch.size,
                    magic=batch.magic,
                    base_offset=reader.base_offset(log, batch),
                    last_offset=batch.last_offset,
                    max_timestamp=batch.max_timestamp,
                    leader_epoch=batch.partition_leader_epoch,
                    records=batch.records_count if batch.is_v2 else None,
                    delete_horizon_ms=batch.delete_horizon_ms,
                    offset_of_max_timestamp=reader.offset_of_max_timestamp(log, batch),
                )
            )
            read += inside
    except MalformedRecordsError as error:
        return batches, read, error
    return batches, read, None


def _read_in_bulk(log: LogBytes) -> tuple[list[Record], str | None]:
    """All records by the compiled loops, and what error there is."""
    schema = schema_of_columns(["offset", "timestamp_ms", "key", "value", "headers"])
    read = []
    try:
        for rows in record_rows(BatchWalk(log, 0, WantedRecords()).tables(), 0, schema, WantedRecords()):
            rows.validate(full=True)
            for row in rows.to_pylist():
                headers = tuple(Header(**header) for header in row["headers"])
                read.append(Record(row["offset"], row["timestamp_ms"], row["key"], row["value"], headers))
    except MalformedRecordsError as error:
        return read, str(error)
    return read, None


def _assert_as_kafka(kafka: Kafka, data: bytes, scratch: Path) -> MalformedRecordsError | None:
    """Batches and records are Kafka's, up to the batch that Kafka throws at too; that error of ours."""
    path = scratch / "a.log"
    path.write_bytes(data)
    batches, read, error = _read(_log(data))
    assert _read_in_bulk(_log(data)) == (read, None if error is None else str(error))
    if error is not None:
        assert _throws(kafka, path), error
        size = layouts.LOG_OVERHEAD + int.from_bytes(data[error.position + 8 : error.position + 12], signed=True)
        path.write_bytes(data[error.position : error.position + max(size, layouts.BATCH_V2_BYTES_MIN)])
        assert _throws(kafka, path), f"Kafka throws, but not at this batch: {error}"
        path.write_bytes(data[: error.position])
    assert kafka.records.records(path) == read
    assert kafka.records.batches(path) == batches
    return error


def _throws(kafka: Kafka, log: Path) -> bool:
    try:
        kafka.records.records(log)
    except KafkaThrewError:
        return True
    return False


def test_golden_segments(kafka: Kafka, golden_segment: GoldenSegment, scratch: Path) -> None:
    """Real, synthetic and damaged logs; a damaged one up to where Kafka throws."""
    error = _assert_as_kafka(kafka, golden_segment.log.read_bytes(), scratch)
    assert error is None or golden_segment.truncated_bytes > 0


_LOG_APPEND_TIME: Final = 1_800_000_000_000


def _records(rng: random.Random, magic: int, count: int) -> list[Record]:
    def some_bytes() -> bytes | None:
        return rng.choice([None, b"", rng.randbytes(rng.randrange(300)), b"ab" * rng.randrange(5000)])

    def headers() -> tuple[Header, ...]:
        if magic < 2:
            return ()
        return tuple(
            Header(rng.choice(["", "k", "\u00e4\U0001f600"]), some_bytes()) for _ in range(rng.choice([0, 0, 1, 3]))
        )

    offset, read = rng.choice([0, 1, 2**40]), []
    for _ in range(count):
        timestamp = -1 if magic == 0 else rng.choice([-1, 0, 1_700_000_000_000 + rng.randrange(-(10**6), 10**6)])
        read.append(Record(offset, timestamp, some_bytes(), some_bytes(), headers()))
        offset += rng.choice([1, 1, 1, 100, 2**26])
    return read


@pytest.mark.parametrize("log_append_time", [None, _LOG_APPEND_TIME])
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1, 2) for codec in layouts.CODECS[:5] if magic == 2 or codec != "zstd"],
)
def test_batches_that_kafka_writes(
    kafka: Kafka, scratch: Path, magic: int, codec: str, log_append_time: int | None
) -> None:
    rng = random.Random(random.getrandbits(32))  # of pytest-randomly's seed
    data, wanted = b"", []
    for count in (1, 2, rng.randrange(3, 20)):
        written = _records(rng, magic, count)
        batch = NewBatch(
            magic=magic,
            codec=codec,
            base_offset=written[0].offset,
            records=written,
            log_append_time=None if magic == 0 else log_append_time,
            delete_horizon_ms=rng.choice([None, 1_750_000_000_000]) if magic == 2 else None,
        )
        data += kafka.records.write(batch)
        if batch.log_append_time is not None:
            written = [replace(record, timestamp=batch.log_append_time) for record in written]
        wanted += written
    assert _assert_as_kafka(kafka, data, scratch) is None
    assert _read(_log(data))[1] == wanted


@pytest.mark.parametrize("way", encoded.WAYS)
def test_batches_of_other_clients(kafka: Kafka, scratch: Path, way: str) -> None:
    """Codecs in all the forms that Kafka reads."""
    codec, compress = encoded.WAYS[way]
    data = encoded.batch_v2(encoded.RECORDS, codec, compress)
    assert _assert_as_kafka(kafka, data, scratch) is None
    assert _read(_log(data))[1] == list(encoded.RECORDS)


@pytest.mark.promised_alone("damaged batches are read with both")
@pytest.mark.parametrize("way", [way for way in encoded.WAYS if way != "none" and "zstd" not in way])
@pytest.mark.parametrize("attributes", [0, layouts.ATTRIBUTE_LOG_APPEND_TIME])
@pytest.mark.parametrize("inner_magic", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("offset", "inner"), [(0, (0, 1, 2)), (12, (0, 1, 2)), (12, (3, 4, 9)), (12, (10, 11, 12))])
def test_wrappers(
    kafka: Kafka,
    scratch: Path,
    way: str,
    attributes: int,
    inner_magic: int,
    magic: int,
    offset: int,
    inner: tuple[int, ...],
) -> None:
    """Offsets and timestamps of records in wrappers, as brokers, old clients and nobody wrote them."""
    codec, compress = encoded.WAYS[way]
    messages = [encoded.message(Record(number, 1000 - number, b"k", bytes(30)), inner_magic) for number in inner]
    data = encoded.wrapper(
        messages, offset, magic=magic, codec=codec, compress=compress, timestamp=5000, attributes=attributes
    )
    assert _assert_as_kafka(kafka, data, scratch) is None


_MESSAGES: Final = [encoded.message(Record(number, 7, b"k", b"value"), 1) for number in range(3)]


def _odd(magic: int, compressed: bytes, codec: int = 1, offset: int = 2) -> bytes:
    return encoded.wrapper([compressed], offset, magic=magic, codec=codec, compress=bytes)


def _with_reserved_flags(member: bytes) -> bytes:
    return member[:3] + bytes([member[3] | 0b0110_0000]) + member[4:]


_BODY: Final = b"".join(
    encoded.record_v2(record, encoded.RECORDS[0].offset, encoded.RECORDS[0].timestamp) for record in encoded.RECORDS
)


def _zstd_frame(content: bytes, *, ends: bool = True) -> bytes:
    """Of blocks that are stored as they are; the last one says that it is the last, or does not."""
    blocks = [content[at : at + 2**16] for at in range(0, len(content), 2**16)]
    marks = [False] * (len(blocks) - 1) + [ends]
    return b"\x28\xb5\x2f\xfd\0\x70" + b"".join(
        (len(block) << 3 | is_last).to_bytes(3, "little") + block for block, is_last in zip(blocks, marks, strict=True)
    )


_AS_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "negative count": {"records": -1},
    "one record less": {"records": len(encoded.RECORDS) - 1},
    "one record more": {"records": len(encoded.RECORDS) + 1},
    "no records": {"records": 0},
    "codec 7": {"attributes": 7},
    "snappy of 2 GB": {"attributes": 2, "body": b"\xff\xff\xff\xff\7" + bytes(100)},
    "snappy of nothing": {"attributes": 2, "body": b""},
    "xerial of version 0": {"attributes": 2, "body": encoded.xerial(_BODY).replace(b"\0\0\0\1", bytes(4), 2)},
    "xerial of nothing": {"attributes": 2, "body": encoded.xerial(b"")},
    "xerial block of −1": {"attributes": 2, "body": encoded.xerial(b"") + b"\xff" * 4},
    "xerial, second header cut": {"attributes": 2, "body": encoded.xerial(_BODY) + encoded.xerial(b"")[:-1]},
    "xerial, second header of version 0": {"attributes": 2, "body": encoded.xerial(_BODY) + b"\x82SNAPPY\0" + bytes(8)},
    "xerial, second header wrong": {
        "attributes": 2,
        "body": encoded.xerial(_BODY[:9]) + encoded.xerial(_BODY[9:]).replace(b"PPY", b"PPX"),
    },
    "xerial, second header wrong and of version 0": {
        "attributes": 2,
        "body": encoded.xerial(_BODY[:9]) + encoded.xerial(_BODY[9:]).replace(b"PPY\0\0\0\0\1", b"PPX\0\0\0\0\0"),
    },
    "xerial and three bytes": {"attributes": 2, "body": encoded.xerial(_BODY) + bytes(3)},
    "xerial and an empty block": {"attributes": 2, "body": encoded.xerial(_BODY) + bytes(4)},
    "xerial block cut": {"attributes": 2, "body": encoded.xerial(bytes(100))[:-1]},
    "zstd of nothing": {"attributes": 4, "body": b""},
    "zstd frame without end": {"attributes": 4, "body": _zstd_frame(_BODY, ends=False)},
    "zstd, second frame without end": {
        "attributes": 4,
        "body": encoded.zstd(_BODY[:-9]) + _zstd_frame(_BODY[-9:], ends=False),
    },
    "zstd, second frame without end, first one large": {
        "attributes": 4,
        "body": _zstd_frame(_BODY[:-9]) + _zstd_frame(_BODY[-9:], ends=False),
    },
    "zstd, second frame without end and large": {
        "attributes": 4,
        "body": encoded.zstd(_BODY[:9]) + _zstd_frame(_BODY[9:], ends=False),
    },
    "gzip of nothing": {"attributes": 1, "body": b""},
    "offsets beyond the end": {"base_timestamp": 2**63 - 1, "magic": 127},
}

_ODD: Final[dict[str, bytes]] = {
    "wrapper of nothing": _odd(1, encoded.gzip(b"")),
    "wrapper of nothing, magic 0": _odd(0, encoded.gzip(b"")),
    "wrapper whose value is null": encoded.message(Record(2, 7, None, None), 1, 1),
    "wrapper with a key": encoded.message(Record(2, 7, b"key", encoded.gzip(b"".join(_MESSAGES))), 1, 1),
    "wrapper below its records": _odd(1, encoded.gzip(b"".join(_MESSAGES)), offset=1),
    "wrapper of zstd": _odd(1, encoded.zstd(b"".join(_MESSAGES)), codec=4),
    "wrapper of codec 5": _odd(1, b"".join(_MESSAGES), codec=5),
    "wrapper in a wrapper": _odd(1, encoded.gzip(_odd(1, encoded.gzip(_MESSAGES[0])))),
    "last message cut": _odd(1, encoded.gzip(b"".join(_MESSAGES)[:-1])),
    "last message cut to its size": _odd(1, encoded.gzip(b"".join(_MESSAGES[:2]) + _MESSAGES[2][:12])),
    "last message's size cut": _odd(1, encoded.gzip(b"".join(_MESSAGES) + bytes(11))),
    "last message cut, magic 0": _odd(0, encoded.gzip(b"".join(_MESSAGES)[:-1])),
    "only message cut": _odd(1, encoded.gzip(_MESSAGES[0][:-1])),
    "message of 13 bytes": _odd(1, encoded.gzip(bytes(8) + (13).to_bytes(4) + bytes(13))),
    "gzip with reserved flags": _odd(1, _with_reserved_flags(encoded.gzip(b"".join(_MESSAGES)))),
    "gzip with reserved flags in its second member": _odd(
        1, encoded.gzip(_MESSAGES[0]) + _with_reserved_flags(encoded.gzip(b"".join(_MESSAGES[1:])))
    ),
    "gzip cut": _odd(1, encoded.gzip(b"".join(_MESSAGES))[:-9]),
    "gzip of nothing at all": _odd(1, b""),
    **{
        f"{what}, magic {magic}": _odd(magic, frame, codec=3)
        for magic in (0, 1)
        for what, frame in {
            "lz4 frame": encoded.lz4_frame(_MESSAGES),
            "lz4 header checksum wrong": encoded.lz4_frame(_MESSAGES, checksum_error=1),
            "lz4 with content size": encoded.lz4_frame(_MESSAGES, flags=0x68, content_size=bytes(8)),
            "lz4 with wrong content checksum": encoded.lz4_frame(_MESSAGES, flags=0x64, end=bytes(8)),
            "lz4 with block checksums, wrong": encoded.lz4_frame([_MESSAGES[0] + bytes(4)], flags=0x70),
            "lz4 of dependent blocks": encoded.lz4_frame(_MESSAGES, flags=0x40),
            "lz4 with a dictionary": encoded.lz4_frame(_MESSAGES, flags=0x61, content_size=bytes(4)),
            "lz4 of version 2": encoded.lz4_frame(_MESSAGES, flags=0xA0),
            "lz4 block size 3": encoded.lz4_frame(_MESSAGES, block_size_code=0x30),
            "lz4 block size 7": encoded.lz4_frame(_MESSAGES, block_size_code=0x70),
            "lz4 block size 8": encoded.lz4_frame(_MESSAGES, block_size_code=0x80),
            "lz4 block larger than it may be": encoded.lz4_frame([b"".join(_MESSAGES), bytes(65537)]),
            "lz4 without end mark": encoded.lz4_frame(_MESSAGES, end=b""),
            "lz4 cut in a block": encoded.lz4_frame(_MESSAGES, end=b"")[:-1],
            "lz4 of no blocks": encoded.lz4_frame([]),
            "lz4 header cut": encoded.lz4_frame([], end=b"")[:-1],
            "lz4 with another magic number": b"\5" + encoded.lz4_frame(_MESSAGES)[1:],
        }.items()
    },
    **{f"{what} in v2": encoded.batch_v2(encoded.RECORDS, **fields) for what, fields in _AS_FIELDS.items()},
    **{
        f"{what} in v2, {way}": encoded.batch_v2(
            encoded.RECORDS[:1], encoded.WAYS[way][0], body=encoded.WAYS[way][1](body)
        )
        for way in ("none", "gzip")
        for what, body in {
            "record of size −1": b"\1",
            "record whose size does not end": b"\xff" * 5,
            "record whose size is cut": b"\xff",
            "empty record": b"\0",
            "record that is cut": b"\x14\0\0",
            "timestamp of ten bytes": varint(15) + b"\0" + b"\xff" * 9 + b"\1" + b"\0\1\1\0",
            "timestamp of eleven bytes": varint(16) + b"\0" + b"\xff" * 10 + b"\1" + b"\0\1\1\0",
            "timestamp in more bytes than needed": varint(7) + b"\0\x80\0\0\1\1\0",
            "offset with bits to spare": varint(10) + b"\0\0\xff\xff\xff\xff\x7f\1\1\0",
            "key longer than the record": varint(6) + b"\0\0\0\x40\1\0",
            "header count −1": varint(6) + b"\0\0\0\1\1\1",
            "more headers than bytes": varint(8) + b"\0\0\0\1\1\x06\0\1",
            "header whose key is null": varint(8) + b"\0\0\0\1\1\2\1\1",
            "header whose key is not UTF-8": varint(11) + b"\0\0\0\1\1\2\6a\xffb\1",
            "byte after the fields": varint(7) + b"\0\0\0\1\1\0\0",
            "byte after the record": varint(6) + b"\0\0\0\1\1\0\0",
            "attributes": varint(6) + b"\xff\0\0\1\1\0",
        }.items()
    },
}


@pytest.mark.promised_alone("damaged batches are read with both")
@pytest.mark.parametrize("odd", _ODD)
@pytest.mark.parametrize("following", [b"", encoded.batch_v2(encoded.RECORDS)], ids=["alone", "before a sound batch"])
def test_odd_batches(kafka: Kafka, scratch: Path, odd: str, following: bytes) -> None:
    sound = encoded.batch_v2(encoded.RECORDS)
    _assert_as_kafka(kafka, sound + _ODD[odd] + following, scratch)


def test_damaged_batches(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Bytes changed at random after the magic, which a checksum would have found: refused where Kafka refuses it,
    else read alike.
    """
    sound = [encoded.batch_v2(encoded.RECORDS[:4], codec, compress) for codec, compress in encoded.WAYS.values()]
    sound += [
        encoded.wrapper(_MESSAGES, 2, magic=magic, codec=codec, compress=compress)
        for codec, compress in encoded.WAYS.values()
        if 0 < codec < layouts.CODEC_ZSTD
        for magic in (0, 1)
    ]
    sound += _MESSAGES
    refused, tried = 0, 5000 if exhaustive else 300
    for _ in range(tried):
        data = bytearray(rng.choice(sound))
        for _ in range(rng.choice([1, 1, 2])):
            data[rng.randrange(17, len(data))] ^= rng.choice([1, 128, rng.randrange(1, 256)])
        try:
            refused += _assert_as_kafka(kafka, bytes(data), scratch) is not None
        except KafkaThrewError as thrown:
            if "OutOfMemoryError" not in str(thrown):  # it makes room for what a size says, before it reads
                raise
    say(f"{tried} damaged batches as Kafka's, {refused} of them refused")


def test_first_record_since(
    kafka: Kafka, golden_segments: list[GoldenSegment], scratch: Path, rng: random.Random, exhaustive: bool
) -> None:
    """`FileRecords.searchForTimestamp`, of single batches of all layouts."""
    for segment in rng.sample(golden_segments, len(golden_segments) if exhaustive else 20):
        log = _log(segment.log.read_bytes())
        batches, read, _ = _read(log)
        for found in rng.sample(batches, min(4, len(batches))):
            batch = next(batch_headers.batches(log, found.position))
            path = scratch / "a.log"
            path.write_bytes(log.read(batch.position, batch.size))
            inside = list(reader.records(log, batch))
            for _ in range(3):
                near = rng.choice(inside or read)
                timestamp, offset = near.timestamp + rng.choice([-1, 0, 1]), near.offset + rng.choice([-1, 0, 1])
                if batch.max_timestamp < timestamp:
                    continue
                record = reader.first_record_since(log, batch, timestamp, offset)
                theirs = kafka.records.first_since(path, timestamp, 0, offset)
                assert (record and (record.timestamp, record.offset)) == (theirs and theirs[:2])


@pytest.mark.parametrize("way", encoded.WAYS)
def test_damage_behind_the_record_of_a_time(kafka: Kafka, scratch: Path, rng: random.Random, way: str) -> None:
    """Kafka finds the record all the same; up to 4.3 it does not in a compressed batch, and a seek says so."""
    codec, compress = encoded.WAYS[way]
    records = [Record(at, 1000 + at, b"k", rng.randbytes(200)) for at in range(400)]
    log = scratch / "damaged-0" / segment_file(0, LOG_SUFFIX)
    log.parent.mkdir()
    said = 0
    for where in (0.3, 0.6, 0.9, 2):

        def damaged(body: bytes, where: float = where) -> bytes:
            content = bytearray(compress(body))
            for at in range(int(len(content) * where), min(int(len(content) * where) + 300, len(content))):
                content[at] ^= 255
            return bytes(content)

        log.write_bytes(encoded.batch_v2(records, codec, damaged))
        [answer] = Seeker.of_directory(log.parent).timestamps(np.array([1003])).to_pylist()
        if not answer["answered"]:  # a codec reads ahead, and may fail before it gives the record
            assert where < 1 and not answer["found"]
            continue
        assert (answer["found"], answer["offset"]) == (True, 3)
        is_named = "Kafka up to 4.3 fails on it" in (answer["note"] or "")
        assert answer["file_error"] or not is_named
        assert not (is_named and where == 2)
        said += is_named
        if is_named and kafka.release < KAFKA_4_4:
            with pytest.raises(KafkaThrewError):
                kafka.records.first_since(log, 1003, 0, 0)
        else:
            theirs = kafka.records.first_since(log, 1003, 0, 0)
            assert theirs is not None and theirs[1] == 3
    assert (said > 0) == (codec != layouts.CODEC_NONE)


_UTF8_PARTS: Final = (b"a", b"\x80", b"\xa0", b"\xbf", b"\xc0", b"\xc3", b"\xe0", b"\xed", b"\xef", b"\xf0", b"\xf4")


@given(st.lists(st.sampled_from([*_UTF8_PARTS, b"\xf5", b"\xff", b"\x90", b"\x9f"]), max_size=9).map(b"".join))
@settings(max_examples=500)
@example(b"\xed\xa0\x80")
@example(b"\xed\xa0")
@example(b"\xf0\x9f\xed\xa0")
def test_text_is_javas(kafka: Kafka, data: bytes) -> None:
    """What is no UTF-8, as in keys of headers, is replaced as Java does."""
    assert text_of(data) == kafka.gateway.jvm.java.lang.String(data, "UTF-8")
