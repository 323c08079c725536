"""Spark gets from the source what `kidxlib.read` gives, in the columns of its own Kafka source. A stream gives each
record once, however its log grows and wherever it is started again; what is gone is told. Spark asks the same of it in
`tests/kafka/test_spark_stream.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import kidxlib.spark
from kidxlib.errors import DamagedLogError, LostRecordsError, UsageError
from kidxlib.format.checkpoint_files import clean_shutdown
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.records.reader import Record
from kidxlib.spark.planning import shares_of_limit
from kidxlib.spark.source import FILTER_PUSHDOWN
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from tests.docs.pages import PROJECT
from tests.faults.trees import topic_log as _log
from tests.support import cluster_metadata
from tests.support.consumed import rows_of_partition
from tests.support.logs import encoded
from tests.support.logs.encoded import one_record as _one
from tests.support.logs.golden import SAMPLES
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.jobs import kidx_build_here
from tests.support.spark.streams import Places, Stream, reader_of

TIERED: Final = PROJECT / "samples" / "tiered"
#: Of Spark's Kafka source, as its guide lists them (`KafkaRecordToRowConverter`).
_COLUMNS: Final = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def _load(spark: SparkSession, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka_segment").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(str(SAMPLES))


def _assert_same(found: DataFrame, **options: Any) -> None:
    """Rows and their order: partitions of the DataFrame are in the order of logs."""
    expected = read(SAMPLES, **options).read_all().cast(to_arrow_schema(found.schema, timezone="UTC"))
    assert found.toArrow().equals(expected) and expected.num_rows > 0


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession) -> None:
    assert _load(spark).schema.simpleString() == _COLUMNS
    assert _load(spark, includeHeaders="true").schema.simpleString() == f"{_COLUMNS[:-1]},headers:{_HEADERS}>"
    assert all(field.nullable for field in _load(spark, includeHeaders="true").schema)


def test_log_dirs_of_a_broker_are_loaded_together(spark: SparkSession, tmp_path: Path) -> None:
    """As a list, which Spark makes the option `paths` of."""
    for log_dir, partition in (("a", "txn-mixed-0"), ("b", "append-time-0")):
        shutil.copytree(SAMPLES / partition, tmp_path / log_dir / partition)
    rows = spark.read.format("kafka_segment").load([str(tmp_path / "a"), str(tmp_path / "b")])
    assert rows.count() == read([tmp_path / "a", tmp_path / "b"], columns=["offset"]).read_all().num_rows == 18_186


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_the_library(spark: SparkSession, isolation: str) -> None:
    found = _load(spark, includeHeaders="true", isolation=isolation)
    _assert_same(found, include_headers=True, isolation=isolation)


def test_a_catalog_changes_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The process that plans for Spark reads it by way of delta-rs."""
    place = tmp_path / "catalog"
    assert kidx_build_here(SAMPLES, "--index-dir", tmp_path / "index", "--catalog", place).code == 0
    found = _load(spark, catalog=str(place), isolation="read_committed").where(f"timestamp >= {_MOMENT}")
    _assert_same(found, isolation="read_committed", times=("2026-11-21T01:32:20.500Z", None))


def test_a_bucket_of_tiered_storage(spark: SparkSession, tmp_path: Path) -> None:
    """By its name, or as the options say."""
    other = shutil.copytree(TIERED / STORAGE_DIRECTORY, tmp_path / "archive")
    expected = read(TIERED, tiered_metadata=[TIERED / "log-dir"]).read_all()
    said = {"layout": "local", "tieredMetadata": str(TIERED / "log-dir")}
    frames = [
        spark.read.format("kafka_segment").load(str(TIERED)),
        spark.read.format("kafka_segment").options(**said).load(str(other)),
        kidxlib.spark.read(spark, other, layout="local", tiered_metadata=[TIERED / "log-dir"]),
    ]
    for found in frames:
        assert found.toArrow().equals(expected.cast(to_arrow_schema(found.schema, timezone="UTC")))
    with pytest.raises(PySparkException, match="no bucket of remote segments, for which --tiered-metadata is"):
        spark.read.format("kafka_segment").option("tieredMetadata", "x").load(str(SAMPLES)).count()


def test_a_schema_chooses_columns(spark: SparkSession) -> None:
    _assert_same(_load(spark, schema="offset long, topic string"), columns=["offset", "topic"])
    headers = f"timestamp timestamp, headers {_HEADERS}"
    _assert_same(_load(spark, schema=headers), columns=["timestamp", "headers"])


def test_batches(spark: SparkSession) -> None:
    found = _load(spark, mode="batches")
    assert dict(found.dtypes)["crc"] == "bigint"
    _assert_same(found, mode="batches")
    _assert_same(_load(spark, mode="batches", schema="last_offset long"), mode="batches", columns=["last_offset"])


_MOMENT: Final = "timestamp '2026-11-21 01:32:20.5'"


@pytest.mark.parametrize(
    ("condition", "options", "pushed"),
    [
        ("offset between 5000 and 5009", {"offsets": (5_000, 5_010)}, True),
        ("topic like 'txn%' and partition in (0, 1)", {"topics": "txn.*"}, True),
        (f"timestamp >= {_MOMENT}", {"times": ("2026-11-21T01:32:20.500Z", None)}, True),
        (f"timestamp < {_MOMENT} + interval 100 microseconds", {"times": (None, "2026-11-21T01:32:20.501Z")}, True),
        ("offset in (5000, 5001)", {"offsets": (5_000, 5_002)}, True),
        ("topic = 'txn-mixed' and offset % 10000 = 5000", {"offsets": {"txn-mixed-0": (5_000, 5_001)}}, False),
    ],
)
def test_filters_are_pushed_down(spark: SparkSession, condition: str, options: Any, pushed: bool) -> None:
    """And are not applied by Spark again, which would have to know all rows."""
    found = _load(spark).where(condition)
    _assert_same(found, **options)
    assert ("Filter (" not in _plan(found)) == pushed


def _plan(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue()


def test_without_the_setting_spark_says_which_one_it_is(spark: SparkSession) -> None:
    spark.conf.set(FILTER_PUSHDOWN, "false")
    try:
        with pytest.raises(PySparkException, match=re.escape(FILTER_PUSHDOWN)):
            _load(spark).count()
    finally:
        kidxlib.spark.register(spark)
    assert _load(spark, subscribe="txn-mixed").count() == 10_186


def test_nothing_may_be_asked_for(spark: SparkSession) -> None:
    assert _load(spark, subscribePattern="none-of-them").count() == 0


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (None, {"kafka.bootstrap.servers": "a:9092"}, "UsageError: option kafka.bootstrap.servers: it means nothing"),
        (None, {"subscribe": "other"}, "UsageError: no partition of other; there are topics"),
        ("offsets long", {}, "UsageError: column 'offsets': expected each of these once at most: key, value, topic"),
        ("offset int", {}, "UsageError: schema: column offset is of type int, expected bigint; cast it after reading"),
    ],
)
def test_what_is_wrong_is_a_line_of_what_spark_says(
    spark: SparkSession, schema: str | None, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        _load(spark, schema=schema, **options).count()
    (line,) = [line for line in str(raised.value).splitlines() if line.startswith("kidxlib.errors.")]
    assert line.startswith(f"kidxlib.errors.{said}")


def test_tasks_are_of_neighbouring_segments(caplog: pytest.LogCaptureFixture) -> None:
    """Small ones together: the sample's are read by one task."""
    with caplog.at_level(logging.INFO, "kidxlib"):
        tasks: list[Any] = reader_of(SAMPLES).partitions()
    assert [len(task.reads) for task in tasks] == [11]
    assert caplog.messages[0].startswith("11 segments to read, ")


def test_what_is_read_is_told_where_the_driver_is() -> None:
    """The process that plans has nobody who says where its log goes."""
    script = f"""
        from kidxlib.spark.source import FILTER_PUSHDOWN, KafkaSegmentSource
        source = KafkaSegmentSource({{"path": {str(SAMPLES)!r}, "subscribe": "txn-mixed"}})
        for _ in range(2):
            source.reader(source.schema()).partitions()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert re.fullmatch(
        r"(kafka_segment: 4 segments to read, [0-9,]+ bytes of logs; passed over: .*\n){2}", done.stderr
    )


_LIMITS: Final[list[dict[str, str]]] = [
    {},
    *({"maxBytesPerTrigger": size} for size in ("1", "300", "2000")),
    *({"maxOffsetsPerTrigger": count} for count in ("1", "5")),
]


# ---- each record once ----


@given(seed=st.integers(0, 2**32), limits=st.sampled_from(_LIMITS), choices=st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_each_record_comes_once_of_logs_that_grow(
    seed: int, limits: dict[str, str], choices: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Byte by byte, so that batches are half written, with new segments and partitions, and processes that end before
    or after a micro-batch is written.
    """
    directory = tmp_path_factory.mktemp("stream")
    rng = random.Random(seed)
    for number in range(2):
        write_random_log(directory / f"whole-{number}", rng)
    (log_dir := directory / "log-dir").mkdir()
    at_start, later = _growth(directory, choices)
    for step in at_start:
        _write(log_dir, *step)
    stream = Stream(log_dir, **limits)
    for step in later:
        _write(log_dir, *step)
        if choices.random() < 0.3:
            shutil.copy(step[0].with_suffix(OFFSET_INDEX_SUFFIX), _in(log_dir, step[0]).parent)
        _go_on(stream, choices, limits)
    stream.run()
    rows = [(number, row["offset"]) for number in range(2) for row in rows_of_partition(directory / f"whole-{number}")]
    assert sorted(stream.rows) == sorted((f"topic-{number}", offset) for number, offset in rows)


def _growth(directory: Path, choices: random.Random) -> tuple[list[tuple[Path, int]], list[tuple[Path, int]]]:
    """Logs and sizes that they have, in an order in which a broker may write two partitions: what has to be there at
    the start of a stream, as a partition that comes later begins at 0, and the rest.
    """
    steps: list[list[tuple[Path, int]]] = []
    for number in range(2):
        found: list[tuple[Path, int]] = []
        for log in sorted((directory / f"whole-{number}").glob(f"*{LOG_SUFFIX}")):
            size = log.stat().st_size
            found += [(log, cut) for cut in sorted({*choices.sample(range(size + 1), min(3, size)), size})]
        steps.append(found)
    at_start = [each.pop(0) for each in steps if each[0][0].name != segment_file(0, LOG_SUFFIX)]
    later: list[tuple[Path, int]] = []
    while any(steps):
        later.append(choices.choice([each for each in steps if each]).pop(0))
    return at_start, later


def _in(log_dir: Path, log: Path) -> Path:
    return log_dir / log.parent.name.replace("whole", "topic") / log.name


def _write(log_dir: Path, log: Path, size: int) -> None:
    """Append to the copy of a log what it lacks of so many bytes."""
    target = _in(log_dir, log)
    target.parent.mkdir(exist_ok=True)
    with target.open("ab") as file:
        file.write(log.read_bytes()[file.tell() : size])


def _go_on(stream: Stream, choices: random.Random, options: dict[str, str]) -> None:
    if choices.random() < 0.3:
        return
    if stream.plan():
        if choices.random() < 0.3:
            stream.start_again(**options)
        else:
            stream.write()
    if choices.random() < 0.2:
        stream.start_again(**options)


def test_of_a_log_that_grows_what_is_committed_comes_once(tmp_path: Path) -> None:
    """Transactions begin and end in different micro-batches, and processes of the stream."""
    options = {"isolation": "read_committed", "maxBytesPerTrigger": "60000"}
    (tmp_path / "txn-mixed-0").mkdir()
    stream = Stream(tmp_path, **options)
    rng = random.Random(5)
    for log in sorted((SAMPLES / "txn-mixed-0").glob(f"*{LOG_SUFFIX}")):
        data = log.read_bytes()
        for size in sorted({*rng.sample(range(len(data)), 4), len(data)}):
            (tmp_path / "txn-mixed-0" / log.name).write_bytes(data[:size])
            if stream.plan() and rng.random() < 0.5:
                stream.start_again(**options)
            elif len(stream.sunk) < len(stream.offsets):
                stream.write()
            stream.run()
    expected = read(SAMPLES, topics="txn-mixed", isolation="read_committed", columns=["offset"]).read_all()
    assert [offset for _, offset in stream.rows] == expected["offset"].to_pylist()


def test_what_was_aborted_is_left_out_also_where_the_high_watermark_is_an_older_one(tmp_path: Path) -> None:
    """A micro-batch that was planned is read to its end all the same."""
    shutil.copytree(SAMPLES / "txn-mixed-0", tmp_path / "txn-mixed-0")
    stream = Stream(tmp_path, isolation="read_committed")
    assert stream.plan()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\ntxn-mixed 0 5000\n")
    stream.start_again(isolation="read_committed")
    expected = read(SAMPLES, topics="txn-mixed", isolation="read_committed", columns=["offset"]).read_all()
    assert [offset for _, offset in stream.rows] == expected["offset"].to_pylist()


_TOPICS: Final = ("txn-mixed", "plain-zstd", "compacted")


@pytest.mark.parametrize("limit", [40_000, 400_000])
def test_a_micro_batch_has_so_many_bytes_at_most(limit: int) -> None:
    """A larger batch comes alone. As long as there is more, a micro-batch is at least half as large."""
    options = {"subscribe": ",".join(_TOPICS), "mode": "batches"}
    stream = Stream(SAMPLES, maxBytesPerTrigger=str(limit), **options)
    sizes = []
    for batch, offsets in zip(stream.run(), stream.offsets, strict=True):
        sizes.append(sum(numbers["0"] for numbers in json.loads(offsets)["log bytes"].values()))
        assert sizes[-1] <= limit or len(batch) == 1
    logs = [log for topic in _TOPICS for log in (SAMPLES / f"{topic}-0").glob(f"*{LOG_SUFFIX}")]
    assert sum(sizes) == sum(log.stat().st_size for log in logs)
    assert len(sizes) <= 2 * sum(sizes) // limit + 1
    assert sorted(stream.rows) == sorted(Stream(SAMPLES, **options).run()[0])


def test_a_micro_batch_has_so_many_offsets_at_most() -> None:
    options = {"subscribe": ",".join(_TOPICS)}
    stream = Stream(SAMPLES, maxOffsetsPerTrigger="7000", **options)
    assert max(map(len, stream.run())) <= 7_000 and len(stream.sunk) > 2
    assert sorted(stream.rows) == sorted(Stream(SAMPLES, **options).run()[0])


@given(pieces=st.lists(st.lists(st.integers(1, 50), max_size=6), min_size=1, max_size=5), limit=st.integers(1, 120))
def test_shares_take_all_in_the_end(pieces: list[list[int]], limit: int) -> None:
    """Whole batches are taken, up to the limit or a single one, and always one at least."""
    left = [list(each) for each in pieces if each]
    while any(left):
        left = [each for each in left if each]
        parts = shares_of_limit([sum(each) for each in left], [each[0] for each in left], limit)
        taken = 0
        for each, part in zip(left, parts, strict=True):
            assert part == 0 or part >= each[0]
            while each and each[0] <= part:
                part -= each[0]
                taken += 1
                each.pop(0)
        assert taken > 0 and (sum(parts) <= limit or taken == 1)


# ---- where it begins and ends ----


def _append(log: Path, *batches: bytes) -> None:
    with log.open("ab") as file:
        file.write(b"".join(batches))


def _topic(*offsets: int, partition: int = 0) -> Places:
    return [(f"topic-{partition}", offset) for offset in offsets]


def test_offsets_are_those_of_sparks_kafka_source(tmp_path: Path) -> None:
    """They come with what shows that a log is still as it was, and where the stream began."""
    log = _log(tmp_path, 0, *map(_one, range(3)))
    stream = Stream(tmp_path)
    assert stream.run() == [_topic(0, 1, 2)]
    _append(log, _one(3))
    assert stream.run() == [_topic(3)] and stream.run() == []
    size = len(_one(0))
    assert [json.loads(offsets) for offsets in stream.offsets] == [
        {
            "topic": {"0": 3},
            "log bytes": {"topic": {"0": 3 * size}},
            "starting offsets": {"topic": {"0": 0}},
        },
        {"topic": {"0": 4}, "log bytes": {"topic": {"0": size}}},
    ]
    assert stream.reader.reportLatestOffset() == {"topic": {"0": 4}}
    with pytest.raises(UsageError, match=r"offsets .*: expected a checkpoint of this source"):
        stream.reader.partitions({}, {"offset": 5})


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": "Latest"}, 4),
        ({"startingOffsets": '{"topic": {"0": 2}}'}, 2),
        ({"startingOffsets": '{"topic": {"0": -1}}'}, 4),
        ({"startingOffsets": '{"topic": {"0": -2}}'}, 0),
        ({"startingTimestamp": "3"}, 3),
        ({"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}, 4),
    ],
)
def test_where_a_stream_begins(tmp_path: Path, options: dict[str, str], first: int) -> None:
    """Options mean what they meant when its first micro-batch was planned, also if that is read later."""
    log = _log(tmp_path, 0, *(encoded.batch_v2([Record(offset, offset, None, b"")]) for offset in range(4)))
    stream = Stream(tmp_path, **options)
    assert stream.plan()
    _append(log, _one(4))
    stream.start_again(**options)
    assert stream.rows == _topic(*range(first, 4))
    stream.run()
    assert stream.rows == _topic(*range(first, 5))


def test_a_topic_that_is_named_is_there_at_the_start(tmp_path: Path) -> None:
    _log(tmp_path, 0, _one(0))
    with pytest.raises(UsageError, match="no partition of other; there are topics topic"):
        Stream(tmp_path, subscribe="other").plan()
    with pytest.raises(UsageError, match="startingTimestamp 9: topic-0 has no record that is as late"):
        Stream(tmp_path, startingTimestamp="9").plan()


def test_partitions_come_while_it_runs(tmp_path: Path) -> None:
    """They are read from their beginning, wherever the others were begun."""
    _log(tmp_path, 0, _one(0))
    stream = Stream(tmp_path, startingOffsets="latest", subscribePattern="top")
    assert stream.run() == [[]]
    _log(tmp_path, 0, partition=1)
    assert stream.run() == []
    _log(tmp_path, 0, _one(0), _one(1), partition=1)
    assert stream.run() == [_topic(0, 1, partition=1)]
    _log(tmp_path, 7, _one(7), partition=2)
    with pytest.raises(LostRecordsError, match="topic-2: offsets 0 to 6 are gone: the first one that is left is 7; "):
        stream.run()


def test_it_ends_at_the_high_watermark_unless_more_is_asked_for(tmp_path: Path) -> None:
    _log(tmp_path, 0, *map(_one, range(5)))
    checkpoint = tmp_path / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\ntopic 0 3\n")
    stream = Stream(tmp_path)
    assert stream.run() == [_topic(0, 1, 2)]
    checkpoint.write_text("0\n1\ntopic 0 2\n")
    assert stream.run() == []
    checkpoint.write_text("0\n1\ntopic 0 4\n")
    assert stream.run() == [_topic(3)]
    assert Stream(tmp_path, toLogEnd="true").run() == [_topic(*range(5))]
    checkpoint.write_text("0\n1\ntopic 0 9\n")
    with pytest.raises(DamagedLogError, match="the log ends before offset 5, expected records up to the high waterma"):
        stream.run()
    stream.start_again(failOnDataLoss="false")
    assert stream.run() == [_topic(4)]


def test_with_available_now_it_ends_where_logs_end_then(tmp_path: Path) -> None:
    log = _log(tmp_path, 0, *map(_one, range(4)))
    stream = Stream(tmp_path, maxOffsetsPerTrigger="2")
    stream.reader.prepareForTriggerAvailableNow()
    _append(log, _one(4))
    _log(tmp_path, 0, _one(0), partition=1)
    assert stream.run() == [_topic(0, 1), _topic(2, 3)]
    stream.start_again()
    stream.reader.prepareForTriggerAvailableNow()
    assert sorted(stream.run()[0]) == [*_topic(4), *_topic(0, partition=1)]


@pytest.mark.parametrize(("options", "said"), [({}, 1), ({"toLogEnd": "true"}, 0)])
def test_with_available_now_it_says_what_lies_beyond_the_high_watermark(
    options: dict[str, str], said: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The query ends before that, and nobody reads it later of a broker that is gone."""
    _log(tmp_path, 0, *map(_one, range(5)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\ntopic 0 3\n")
    Stream(tmp_path, **options).reader.prepareForTriggerAvailableNow()
    lines = [record.message for record in caplog.records if record.message.startswith("not read: 2 offsets of 1 part")]
    assert len(lines) == said


def test_log_dirs_of_two_stops_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With each batch; by a stream once."""
    for number, epoch in enumerate((9, 7)):
        log_dir = tmp_path / "ab"[number]
        _log(log_dir, 0, _one(0), partition=number)
        text = f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={'AB'[number]}\n"
        (log_dir / "meta.properties").write_text(text)
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(epoch))
    named = json.dumps([str(tmp_path / name) for name in "ab"])
    reader_of(tmp_path, paths=named).partitions()
    told = f"{tmp_path}/b/{CLEAN_SHUTDOWN_FILE}: brokerEpoch 7, "
    assert [f"in an older log dir: 1 partition: topic-1; {told}" in each.message for each in caplog.records] == [True]
    caplog.clear()
    stream = Stream(tmp_path, paths=named)
    assert [len(stream.run()) for _ in range(2)] == [1, 0]
    assert [record.message.startswith(told) for record in caplog.records] == [True]


@pytest.mark.parametrize(("options", "is_told"), [({}, True), ({"subscribe": "other"}, False)])
def test_a_partition_without_a_directory_is_told(
    options: dict[str, str], is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By a query as by a stream, if it is asked for."""
    _log(tmp_path, 0, _one(0))
    shutil.copytree(tmp_path / "topic-0", tmp_path / "other-0")
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    ids, directory = [cluster_metadata.topic_id(letter) for letter in "ab"], cluster_metadata.topic_id("d")
    values = [cluster_metadata.topic(name, each) for name, each in zip(("topic", "other"), ids, strict=True)]
    values += [cluster_metadata.partition(ids[0], number, [1], [directory]) for number in range(2)]
    cluster_metadata.put_metadata(tmp_path, values)
    reader_of(tmp_path, **options).partitions()
    Stream(tmp_path, **options).run()
    told = [each.message for each in caplog.records if "no directory of 1 partition" in each.message]
    assert len(told) == (2 if is_told else 0) and all(" this broker: topic-1; " in each for each in told)


_GAPS_TOLD: Final = (
    "5 offsets of 1 partition between two logs: topic-0 4 to 8",
    "1 offset of 1 partition between two logs: topic-0 8",
)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_gap_between_logs_is_told_by_who_reads_up_to_it(
    is_compacted: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A micro-batch that begins within it tells the rest; of a topic that the cleaner has cleaned nothing is told."""
    _log(tmp_path, 0, *map(_one, range(4)))
    _log(tmp_path, 9, *map(_one, range(9, 12)))
    if is_compacted:
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\ntopic 0 9\n")
    stream = Stream(tmp_path, maxOffsetsPerTrigger="4")
    stream.run()
    assert [offset for _, offset in stream.rows] == [*range(4), *range(9, 12)]
    told = [record.message.split(" (")[0] for record in caplog.records if "in no log" in record.message]
    assert told == ([] if is_compacted else [f"in no log: {each}" for each in _GAPS_TOLD])


def test_a_batch_with_zeros_in_it_is_not_there_yet(tmp_path: Path) -> None:
    """A log with preallocated space has such, and a file system that tells sizes before it has bytes."""
    batch = _one(1)
    log = _log(tmp_path, 0, _one(0), batch[:-3], bytes(3 + 100))
    stream = Stream(tmp_path)
    assert stream.run() == [_topic(0)]
    log.write_bytes(_one(0) + batch + bytes(100))
    assert stream.run() == [_topic(1)] and stream.run() == []


# ---- what is gone ----


def _planned(tmp_path: Path) -> Stream:
    """A stream that has read offsets 0 and 1, and planned 2 to 7, in three segments; its process has ended since."""
    for base_offset in (0, 2, 4):
        _log(tmp_path, base_offset, _one(base_offset), _one(base_offset + 1))
    stream = Stream(tmp_path, maxOffsetsPerTrigger="2")
    assert stream.plan()
    stream.write()
    log = _log(tmp_path, 6, _one(6), _one(7))
    assert stream.plan(all_available=True) and log.exists()
    return stream


def _deleted(tmp_path: Path) -> None:
    for base_offset in (0, 2):
        _log(tmp_path, base_offset).unlink()


def _log_start_raised(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 5\n")


def _truncated(tmp_path: Path) -> None:
    _log(tmp_path, 6).unlink()
    _log(tmp_path, 4, _one(4))


def _compacted(tmp_path: Path) -> None:
    _log(tmp_path, 2, _one(3))


def _written_anew(tmp_path: Path) -> None:
    _log(tmp_path, 6, encoded.batch_v2([Record(6, 0, b"another", b"")]), _one(7))


def _removed(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "topic-0")


def _gone_in_the_end(tmp_path: Path) -> None:
    (tmp_path / "topic-0").rename(tmp_path / f"topic-0.{'0' * 32}-delete")


@pytest.mark.parametrize(
    ("change", "left", "said"),
    [
        (_deleted, (4, 5, 6, 7), "offsets 2 to 3 are gone: the first one that is left is 4"),
        (_log_start_raised, (5, 6, 7), "offsets 2 to 4 are gone: the first one that is left is 5"),
        (_truncated, (2, 3, 4), "offsets 5 to 7 are gone: the log ends before 5; it was truncated"),
        (_compacted, (3, 4, 5, 6, 7), r"offsets 2 to 7 are \d+ bytes of batches, and were \d+ when they were planned"),
        (_written_anew, (2, 3, 4, 5, 6, 7), r"offsets 2 to 7 are \d+ bytes of batches, and were \d+ when they were"),
        (_removed, (), "offsets 2 to 7 are gone, with the log"),
        (_gone_in_the_end, (), "offsets 2 to 7 are gone, with the log"),
    ],
)
def test_what_has_gone_of_a_planned_micro_batch(
    tmp_path: Path, change: Any, left: tuple[int, ...], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ends the query with one line, or is told once while the rest is read."""
    stream = _planned(tmp_path)
    change(tmp_path)
    with pytest.raises(LostRecordsError, match=f"topic-0: {said}") as raised:
        stream.start_again()
    assert str(raised.value).endswith("; failOnDataLoss=false goes on with what is there")
    assert "\n" not in str(raised.value)
    stream.start_again(failOnDataLoss="false")
    assert stream.rows == _topic(0, 1, *left)
    assert [record.message for record in caplog.records if "topic-0: offsets" in record.message] == [
        str(raised.value).rpartition("; ")[0]
    ]


def test_holes_that_were_there_are_no_loss(tmp_path: Path) -> None:
    """Compaction leaves such, also at the ends of segments, and may leave segments empty."""
    _log(tmp_path, 0, _one(1), _one(4))
    _log(tmp_path, 8)
    _log(tmp_path, 20, _one(21), _one(25))
    for options in ({}, {"maxBytesPerTrigger": "1"}, {"maxOffsetsPerTrigger": "3"}):
        stream = Stream(tmp_path, **options)
        while stream.plan():
            stream.start_again(**options)
        assert stream.rows == _topic(1, 4, 21, 25)


def test_a_log_that_ends_before_what_was_read(tmp_path: Path) -> None:
    log = _log(tmp_path, 0, *map(_one, range(4)))
    stream = Stream(tmp_path)
    stream.run()
    log.write_bytes(b"".join(map(_one, range(2))))
    with pytest.raises(LostRecordsError, match="topic-0: offsets 2 to 3 are gone: the log ends before 2, and was read"):
        stream.run()
    stream.start_again(failOnDataLoss="false")
    assert stream.run() == [[]]  # from where it goes on is recorded
    _append(log, _one(2))
    assert stream.run() == [_topic(2)]


def test_a_partition_that_is_away_is_not_read_again_when_it_is_back(tmp_path: Path) -> None:
    log = _log(tmp_path, 0, _one(0), _one(1))
    stream = Stream(tmp_path, failOnDataLoss="false")
    stream.run()
    (tmp_path / "topic-0").rename(tmp_path / "away")
    assert stream.run() == []
    (tmp_path / "away").rename(tmp_path / "topic-0")
    _append(log, _one(2))
    assert stream.run() == [_topic(2)]
    (tmp_path / "topic-0").rename(tmp_path / "away")
    stream.start_again()
    with pytest.raises(
        LostRecordsError, match="topic-0: it was read up to offset 3, and is not there any more, or not asked"
    ):
        stream.run()


def test_damage_ends_a_stream_unless_losses_may_be(tmp_path: Path) -> None:
    log = _log(tmp_path, 0, _one(0))
    stream = Stream(tmp_path)
    stream.run()
    _append(log, _one(1, crc_error=1), _one(2))
    with pytest.raises(DamagedLogError, match=r"the batch's checksum is not .*; failOnDataLoss=false reads"):
        stream.run()
    stream.start_again(failOnDataLoss="false")
    assert stream.rows == _topic(0, 2)
    _append(log, b"\x00" * 8 + b"\x00\x00\x00\x05" + b"garbage", _one(3))
    stream.start_again(failOnDataLoss="false")
    assert stream.run() == [_topic(3)]
    stream.start_again()
    _append(log, b"\x00" * 8 + b"\x00\x00\x00\x05" + b"garbage", _one(4))
    with pytest.raises(DamagedLogError, match="size 5"):
        stream.run()
