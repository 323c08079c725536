"""Tables of batches and records hold what a dump of the log shows, which tests/kafka compares with Kafka's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.dump.items import DumpedBatch, DumpedRecord
from kidxlib.dump.read import dump_file
from kidxlib.dump.release import DumpRelease
from kidxlib.dump.source import DumpOptions, DumpSource, FileKind
from kidxlib.errors import MalformedRecordsError, UsageError
from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.library.read import read_batches, read_records, stream_records
from kidxlib.log.log import Log
from kidxlib.records.arrow_batches import BATCHES
from kidxlib.records.arrow_columns import RECORDS, schema_of_columns
from kidxlib.records.arrow_records import record_rows
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.reader import Header, Record
from kidxlib.records.wanted_records import WantedRecords
from tests.faults.trees import write_log
from tests.support.docstrings import columns_in, columns_of
from tests.support.logs import encoded
from tests.support.logs.batches import Batch, control, encode
from tests.support.logs.golden import SAMPLES, GoldenSegment
from tests.support.logs.guarded import whole
from tests.support.seeks import sample_directory

Row = dict[str, Any]

#: Four segments, with offsets 0 to 10,333.
PARTITION: Final = SAMPLES / "txn-mixed-0"
LOG: Final = PARTITION / segment_file(84, LOG_SUFFIX)


def _column(table: pa.Table | pa.RecordBatch, name: str) -> list[Any]:
    found: list[Any] = table[name].to_pylist()
    return found


# ---- what is in them ----


def test_docstrings_list_the_columns() -> None:
    assert columns_in(read_batches.__doc__) == columns_of(BATCHES)
    assert columns_in(read_records.__doc__) == columns_of(RECORDS)


def test_tables_are_what_a_dump_shows(golden_segment: GoldenSegment) -> None:
    """Of each segment that Kafka has written or somebody has damaged, up to where it is malformed."""
    path, first = golden_segment.log, golden_segment.base_offset
    dumped, malformed = _dumped(path)
    of_records, malformed_here = _rows(path)
    assert malformed_here == malformed
    before = [each for each in dumped if malformed is None or each.batch.position < malformed]
    assert of_records == [_record_row(first, each) for each in before if isinstance(each, DumpedRecord)]
    if malformed is None:
        of_batches = read_batches(path).to_pylist()
        assert of_batches == [_batch_row(first, each) for each in before if isinstance(each, DumpedBatch)]


def _dumped(path: Path) -> tuple[list[DumpedBatch | DumpedRecord], int | None]:
    """What a dump shows, and the position of the batch that is malformed."""
    found: list[DumpedBatch | DumpedRecord] = []
    try:
        options = DumpOptions(deep=True, contents=True)
        pieces = dump_file(DumpSource(path, FileKind.LOG), options, DumpRelease(path, None))
        found.extend(piece for piece in pieces if isinstance(piece, DumpedBatch | DumpedRecord))
    except MalformedRecordsError as error:
        return found, error.position
    return found, None


def _rows(path: Path) -> tuple[list[Row], int | None]:
    """The same of `stream_records`."""
    found: list[Row] = []
    try:
        for rows in stream_records(path):
            found += rows.to_pylist()
    except MalformedRecordsError as error:
        return found, error.position
    return found, None


def _batch_row(segment_base_offset: int, dumped: DumpedBatch) -> Row:
    batch = dumped.batch
    is_wrapper = not batch.is_v2 and batch.codec != layouts.CODEC_NONE
    return {
        "segment_base_offset": segment_base_offset,
        "position": batch.position,
        "bytes": batch.size,
        "magic": batch.magic,
        "base_offset": None if is_wrapper else batch.offset_field,
        "last_offset": batch.last_offset,
        "records": None if is_wrapper else batch.records_count,
        "timestamp_type": _timestamp_type(dumped),
        "max_timestamp_ms": batch.max_timestamp,
        "codec": layouts.CODECS[batch.codec],
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": dumped.last_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "crc": batch.crc,
    }


def _record_row(segment_base_offset: int, dumped: DumpedRecord) -> Row:
    batch = dumped.batch
    row = {
        "offset": dumped.offset,
        "timestamp_ms": dumped.timestamp,
        "timestamp_type": _timestamp_type(dumped),
        "headers": [{"key": header.key, "value": header.value} for header in dumped.headers],
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": dumped.sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "control_type": None if dumped.control is None else dumped.control.name,
        "segment_base_offset": segment_base_offset,
        "batch_position": batch.position,
    }
    if dumped.contents is not None:
        return row | {"key": dumped.contents.key, "value": dumped.contents.value}
    # A dump shows no contents of a marker: Kafka's is four bytes of version and type, and six of what it says.
    return row | {"key": (1 if row["control_type"] == "COMMIT" else 0).to_bytes(4), "value": bytes(6)}


def _timestamp_type(dumped: DumpedBatch | DumpedRecord) -> str:
    if dumped.batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if dumped.batch.is_log_append_time else "CreateTime"


def test_numbers_stay_whole_in_pandas() -> None:
    """A column with nulls would be one of floating point numbers, which do not hold all offsets and times."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = read_records(LOG).to_pandas()
    assert {name: str(frame[name].dtype) for name in ("offset", "timestamp_ms", "producer_id", "sequence")} == {
        "offset": "int64",
        "timestamp_ms": "int64",
        "producer_id": "int64",
        "sequence": "int32",
    }
    assert len(frame) == 5713 and frame["offset"].is_monotonic_increasing


def test_whatever_a_record_holds(tmp_path: Path) -> None:
    headers = (Header("", None), Header("ключ", b""), Header("key", b"\0\xff"), Header("key", b"again"))
    written = [
        Record(5, 2**62, None, None),
        Record(6, -1, b"", b""),
        Record(9, 0, b"\xff", b"value", headers),
    ]
    path = write_log(tmp_path, 5, encoded.batch_v2(written))
    rows = read_records(path).to_pylist()
    names = ("offset", "timestamp_ms", "key", "value")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (record.offset, record.timestamp, record.key, record.value) for record in written
    ]
    assert [row["headers"] for row in rows] == [[], [], [{"key": each.key, "value": each.value} for each in headers]]


@pytest.mark.parametrize(("first", "expected"), [(2**31 - 2, [2**31 - 2, 2**31 - 1, 0, 3]), (-1, [-1] * 4)])
def test_sequences_go_round(first: int, expected: list[int], tmp_path: Path) -> None:
    """After the largest int comes 0 (`DefaultRecordBatch.incrementSequence`)."""
    records = [Record(offset, 0, b"", b"") for offset in (0, 1, 2, 5)]
    path = write_log(tmp_path, 0, encoded.batch_v2(records, base_sequence=first))
    assert read_records(path)["sequence"].to_pylist() == expected


def test_a_log_without_batches_gives_no_rows(tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, b"")
    assert read_batches(path).schema == BATCHES and read_batches(path).num_rows == 0
    assert read_records(path).schema == RECORDS and read_records(path).num_rows == 0


# ---- columns ----


#: Some that the compiled loop gives alone, and some that it does not.
_SOME_COLUMNS: Final[tuple[list[str], ...]] = (
    ["timestamp_ms", "offset"],
    ["offset", "sequence", "producer_id", "control_type"],
    ["value"],
    [name for name in RECORDS.names if name not in ("key", "value", "headers")],
)


def test_columns_are_those_of_all(golden_segment: GoldenSegment) -> None:
    """Whether the compiled loop gives them or not, and errors too."""
    try:
        whole_table = read_records(golden_segment.log)
    except MalformedRecordsError as error:
        for columns in _SOME_COLUMNS:
            with pytest.raises(MalformedRecordsError, match=f"batch at byte {error.position}:"):
                read_records(golden_segment.log, columns=columns)
        return
    for columns in _SOME_COLUMNS:
        table = read_records(golden_segment.log, columns=columns)
        table.validate(full=True)
        assert table.equals(whole_table.select(columns)), columns


@pytest.mark.parametrize("columns", [["offset", "offset"], ["offsets"]])
def test_other_columns_are_refused(columns: list[str]) -> None:
    with pytest.raises(UsageError, match=f"column '{columns[0]}': expected each of these once at most: offset, "):
        stream_records(LOG, columns=columns)


# ---- ranges ----


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The sample's, with indexes."""
    return Log.open(sample_directory(tmp_path_factory.mktemp("partition") / PARTITION.name))


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, None), (0, 84), (84, 85), (83, 5798), (5850, 5850), (5850, 5851), (10_000, None), (10_332, 20_000)],
)
def test_a_range_of_a_partition(start: int | None, end: int | None, partition: Log) -> None:
    """Each offset once, over the ends of segments; of batches those that hold one of them."""
    offsets = [offset for offset in _all_offsets(partition) if (start or 0) <= offset and (end is None or offset < end)]
    for columns in (None, ["offset"]):
        assert read_records(partition, start, end, columns)["offset"].to_pylist() == offsets
    least, most = start or 0, 20_000 if end is None else end
    everything = read_batches(partition).to_pylist()
    holding = [row for row in everything if row["last_offset"] >= least and row["base_offset"] < most]
    assert read_batches(partition, start, end).to_pylist() == (holding if least < most else [])


def _all_offsets(partition: Log) -> list[int]:
    files = sorted(Path(partition.name).glob(f"*{LOG_SUFFIX}"))
    return [offset for path in files for offset in _column(read_records(path, columns=["offset"]), "offset")]


def test_a_partition_is_read_from_its_log_start_offset(partition: Log) -> None:
    """Records below it were deleted, and their segment may be there still; who names an earlier offset gets them."""
    later = Log(partition.segments, log_start_offset=100)
    assert read_records(later)["offset"][0].as_py() == 100
    assert read_records(later, 90)["offset"][0].as_py() == 90


def test_a_range_of_a_file() -> None:
    everything = _column(read_records(LOG), "offset")
    assert read_records(LOG, 500, 600)["offset"].to_pylist() == [offset for offset in everything if 500 <= offset < 600]
    assert read_batches(LOG, 500, 501)["base_offset"].to_pylist() == [499]
    assert read_batches(LOG, 500, 500).num_rows == 0


def test_a_wrapper_belongs_to_a_range_by_the_records_in_it(tmp_path: Path) -> None:
    """Its header says the last offset alone."""
    inside = [encoded.message(Record(number, 7, b"k", b"v"), magic=1) for number in range(3)]
    codec, compress = encoded.WAYS["gzip"]
    wrappers = [encoded.wrapper(inside, last, magic=1, codec=codec, compress=compress) for last in (12, 15)]
    path = write_log(tmp_path, 10, b"".join(wrappers))
    assert read_records(path, 11, 14)["offset"].to_pylist() == [11, 12, 13]
    assert read_batches(path, 11, 13)["last_offset"].to_pylist() == [12]
    assert read_batches(path, 11, 14)["last_offset"].to_pylist() == [12, 15]
    assert read_batches(path)["base_offset"].to_pylist() == [None, None]


def test_what_is_no_log_is_refused(partition: Log) -> None:
    with pytest.raises(UsageError, match=r"txn-mixed-0: expected the path of a segment's log"):
        read_batches(PARTITION)
    for source in (partition, LOG):
        with pytest.raises(UsageError, match="offsets 5 to 4: expected an end that is not below the start"):
            read_records(source, 5, 4)
    with pytest.raises(FileNotFoundError):
        read_records(PARTITION / segment_file(1, LOG_SUFFIX))


# ---- memory, and what is malformed ----


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=5),
    st.integers(1, 7),
    st.integers(1, 60),
)
def test_no_more_is_given_at_once_than_asked_for(sizes: list[list[int]], rows_max: int, bytes_max: int) -> None:
    """Batches are taken apart, and one record that is larger comes alone."""
    data, offset, written = b"", 0, []
    for of_batch in sizes:
        found = [Record(offset + number, 0, None, bytes(size)) for number, size in enumerate(of_batch)]
        data += encoded.batch_v2(found)
        offset += len(found)
        written += found
    tables = BatchWalk(whole(data), 0, WantedRecords()).tables()
    schema = schema_of_columns(["offset", "value"])
    given_out = list(record_rows(tables, 0, schema, WantedRecords(), rows_max=rows_max, bytes_max=bytes_max))
    assert [row["offset"] for rows in given_out for row in rows.to_pylist()] == list(range(len(written)))
    for rows in given_out:
        held = [len(value) for value in _column(rows, "value")]
        assert 0 < len(held) <= rows_max and (sum(held) <= bytes_max or len(held) == 1)


def _sound_then(*rest: Batch) -> Iterator[bytes]:
    yield encoded.batch_v2([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")])
    yield from encode(2, rest)


@pytest.mark.parametrize("columns", [None, ["offset"]])
def test_what_stands_before_a_malformed_batch_is_given(columns: list[str] | None, tmp_path: Path) -> None:
    sound, malformed = _sound_then(Batch(body=b"\x7f", records=3))
    path = write_log(tmp_path, 0, sound + malformed)
    reader = stream_records(path, columns=columns)
    assert reader.read_next_batch()["offset"].to_pylist() == [0, 1]
    with pytest.raises(MalformedRecordsError, match=f"batch at byte {len(sound)}"):
        reader.read_next_batch()
    with pytest.raises(MalformedRecordsError, match=f"batch at byte {len(sound)}"):
        read_records(path, columns=columns)


def test_a_marker_that_says_nothing_is_malformed_where_its_type_is_asked_for(tmp_path: Path) -> None:
    """Kafka throws, too."""
    sound, marker = _sound_then(Batch(**control(key=b"\0")))
    path = write_log(tmp_path, 0, sound + marker)
    with pytest.raises(MalformedRecordsError, match=f"batch at byte {len(sound)}: .* key of a control record"):
        read_records(path)
    assert read_records(path, columns=["offset", "control"])["control"].to_pylist() == [False, False, True]


def test_a_reader_goes_on_to_others(tmp_path: Path) -> None:
    """A stream is an Arrow stream: who reads those reads it, as Polars does."""
    reader = stream_records(LOG, columns=["offset", "value"])
    assert isinstance(pa.RecordBatchReader.from_stream(reader).read_all(), pa.Table)
