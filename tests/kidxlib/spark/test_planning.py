"""What options ask for is what the same options of Spark's Kafka source would give, record by record, without Spark's
Java: that and a broker are in `tests/kafka/test_spark_source.py`.
"""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from kidxlib.errors import DamagedLogError, UsageError
from kidxlib.reading.plan import plan_reads
from kidxlib.reading.request import read_request
from kidxlib.records.reader import Record
from kidxlib.spark.planning import divide_into_tasks
from tests.faults.trees import topic_log as _log
from tests.support.consumed import Row, rows_of_partition
from tests.support.logs import encoded
from tests.support.logs.encoded import one_record as _one
from tests.support.logs.golden import SAMPLES
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.jobs import kidx_build_here
from tests.support.spark.streams import reader_of

PARTITIONS: Final = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())


def _rows(path: Path, **options: str) -> list[dict[str, Any]]:
    """What all tasks read, one after the other."""
    reader = reader_of(path, **options)
    found: list[dict[str, Any]] = []
    for partition in reader.partitions():
        for rows in reader.read(partition):
            rows.validate(full=True)
            found += rows.to_pylist()
    return found


def _places(path: Path, **options: str) -> list[tuple[str, int]]:
    return [(f"{row['topic']}-{row['partition']}", row["offset"]) for row in _rows(path, **options)]


def _partitions(path: Path, **options: str) -> set[str]:
    return {partition for partition, _ in _places(path, **options)}


# ---- which partitions ----


def test_topics_are_chosen_in_sparks_ways() -> None:
    assert _partitions(SAMPLES) == {*PARTITIONS} - {"__transaction_state-0"}
    assert _partitions(SAMPLES, subscribe="txn-mixed, plain-zstd") == {"txn-mixed-0", "plain-zstd-0"}
    assert _partitions(SAMPLES, subscribePattern="(plain|txn)-.*") == {"txn-mixed-0", "plain-zstd-0"}
    assert _partitions(SAMPLES, subscribePattern="mixed") == {"txn-mixed-0"}
    assert _partitions(SAMPLES, subscribePattern="^mixed") == set()
    assert _partitions(SAMPLES, assign='{"txn-mixed": [0]}') == {"txn-mixed-0"}
    with pytest.raises(UsageError, match="no partition of other; there are topics __transaction_state, append-"):
        _rows(SAMPLES, subscribe="other,txn-mixed")
    with pytest.raises(UsageError, match="no partition of txn-mixed-1; there are topics"):
        _rows(SAMPLES, assign='{"txn-mixed": [0, 1]}')


def test_topics_that_brokers_keep_for_themselves_are_read_by_name(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "__cluster_metadata-0", "__mine-0"):
        shutil.copytree(SAMPLES / "txn-mixed-0", tmp_path / name)
    assert _partitions(tmp_path, subscribePattern=".*", startingOffsetsByTimestampStrategy="latest") == {"__mine-0"}
    assert _partitions(tmp_path, startingOffsetsByTimestampStrategy="latest") == {"__mine-0"}
    assert _partitions(tmp_path, subscribe="__consumer_offsets") == {"__consumer_offsets-0"}
    assert _partitions(tmp_path, assign='{"__cluster_metadata": [0]}') == {"__cluster_metadata-0"}
    assert _partitions(tmp_path / "__consumer_offsets-0") == {"__consumer_offsets-0"}


# ---- from where to where ----

_LIMITS: Final = st.one_of(
    st.none(), st.tuples(st.just("offset"), st.integers(0, 60)), st.tuples(st.just("time"), st.integers(95, 145))
)


@given(seed=st.integers(0, 2**32), start=_LIMITS, end=_LIMITS, by_partition=st.booleans())
@settings(max_examples=120)
def test_limits_are_offsets_also_where_times_are_given(
    seed: int,
    start: tuple[str, int] | None,
    end: tuple[str, int] | None,
    by_partition: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As a broker tells them: all from the first record on that is as late, whenever those after it were."""
    directory = tmp_path_factory.mktemp("log-dir") / "topic-0"
    write_random_log(directory, random.Random(seed))
    rows = rows_of_partition(directory)
    options = {"failOnDataLoss": "false", "startingOffsetsByTimestampStrategy": "latest"}
    options |= _options("starting", start, by_partition=by_partition)
    options |= _options("ending", end, by_partition=by_partition)
    first, until = _offset(rows, start), _offset(rows, end)
    expected = [
        row["offset"]
        for row in rows
        if (start is None or (first is not None and first <= row["offset"]))
        and (until is None or row["offset"] < until)
    ]
    assert [offset for _, offset in _places(directory, **options)] == expected


def _options(which: str, limit: tuple[str, int] | None, *, by_partition: bool) -> dict[str, str]:
    if limit is None:
        return {}
    kind, number = limit
    if kind == "time" and not by_partition:
        return {f"{which}Timestamp": str(number)}
    name = f"{which}Offsets" if kind == "offset" else f"{which}OffsetsByTimestamp"
    return {name: json.dumps({"topic": {"0": number}})}


def _offset(rows: list[Row], limit: tuple[str, int] | None) -> int | None:
    if limit is None or limit[0] == "offset":
        return None if limit is None else limit[1]
    return next((row["offset"] for row in rows if row["timestamp"] >= limit[1]), None)


def test_limits_by_partition_are_of_all_that_are_read() -> None:
    offsets = '{"txn-mixed": {"0": 10}, "plain-zstd": {"0": -2}}'
    with pytest.raises(UsageError, match="expected each partition that is read, and no other; missing: "):
        _rows(SAMPLES, startingOffsets=offsets)
    with pytest.raises(UsageError, match="no other; not read: plain-zstd-0"):
        _rows(SAMPLES, subscribe="txn-mixed", startingOffsets=offsets)
    found = _places(SAMPLES, subscribe="txn-mixed,plain-zstd", startingOffsets=offsets)
    assert ("plain-zstd-0", 0) in found and min(offset for place, offset in found if place == "txn-mixed-0") == 10


def test_a_time_that_no_record_has_is_an_error_unless_it_may_be_passed_over() -> None:
    late = {"subscribe": "txn-mixed", "startingTimestamp": str(2**62)}
    with pytest.raises(UsageError, match=f"startingTimestamp {2**62}: txn-mixed-0 has no record that is as late; "):
        _rows(SAMPLES, **late)
    assert _rows(SAMPLES, **late, startingOffsetsByTimestampStrategy="latest") == []
    whole = _places(SAMPLES, subscribe="txn-mixed")
    assert _places(SAMPLES, subscribe="txn-mixed", endingTimestamp=str(2**62)) == whole


# ---- what a catalog tells ----


def _of_three_segments(tmp_path: Path) -> tuple[Path, Path]:
    """A log dir with 100 records in each of three segments, at 0 to 299 ms, and a catalog of it."""
    log_dir, catalog = tmp_path / "logs", tmp_path / "catalog"
    log_dir.mkdir()
    for first in (0, 100, 200):
        _log(log_dir, first, *(encoded.batch_v2([Record(n, n, None, b"")]) for n in range(first, first + 100)))
    ended = kidx_build_here(log_dir, "--index-dir", tmp_path / "index", "--catalog", catalog)
    assert ended.code == 0, ended.err
    return log_dir, catalog


def test_filters_on_times_reach_segments_by_the_catalog(tmp_path: Path) -> None:
    """What is passed over is not gone: no start that is named stands before all that there is."""
    log_dir, catalog = _of_three_segments(tmp_path)
    moments = [datetime.fromtimestamp(seconds, UTC) for seconds in (0.12, 0.18)]
    filters = [GreaterThanOrEqual(("timestamp",), moments[0]), LessThan(("timestamp",), moments[1])]
    start = {"startingOffsets": '{"topic": {"0": 3}}'}
    for options, segments in (({}, [0, 100, 200]), ({"catalog": str(catalog)}, [100])):
        reader = reader_of(log_dir, **start, **options)
        assert reader.pushFilters(list(filters)) == []
        tasks: list[Any] = reader.partitions()
        assert [read.base_offset for task in tasks for read in task.reads] == segments
        found = [offset for task in tasks for rows in reader.read(task) for offset in rows["offset"].to_pylist()]
        assert found == list(range(120, 180))


def test_times_lead_to_the_same_offsets_with_a_catalog(tmp_path: Path) -> None:
    log_dir, catalog = _of_three_segments(tmp_path)
    limits = {"startingTimestamp": "130", "endingTimestamp": "231"}
    assert _places(log_dir, **limits, catalog=str(catalog)) == [("topic-0", offset) for offset in range(130, 231)]
    assert _places(log_dir, endingTimestamp="900", catalog=str(catalog)) == _places(log_dir)
    with pytest.raises(UsageError, match="startingTimestamp 300: topic-0 has no record that is as late"):
        _rows(log_dir, startingTimestamp="300", catalog=str(catalog))


def test_a_catalog_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"catalog {tmp_path}: no catalog there"):
        _rows(SAMPLES, catalog=str(tmp_path))
    with pytest.raises(UsageError, match="catalog hdfs://namenode/catalog: kidx keeps catalogs in directories and at"):
        _rows(SAMPLES, catalog="hdfs://namenode/catalog")


# ---- what is lost ----


def test_a_start_that_is_gone_is_an_error_unless_losses_may_be(tmp_path: Path) -> None:
    _log(tmp_path, 5, *(_one(offset) for offset in range(5, 9)))
    start = {"startingOffsets": '{"topic": {"0": 3}}'}
    with pytest.raises(UsageError, match="startingOffsets of topic-0: 3, but the first offset that is left is 5; "):
        _rows(tmp_path, **start)
    assert [offset for _, offset in _places(tmp_path, **start, failOnDataLoss="false")] == [5, 6, 7, 8]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 7\n")
    with pytest.raises(UsageError, match="topic-0: 6, but the first offset that is left is 7"):
        _rows(tmp_path, startingOffsets='{"topic": {"0": 6}}')
    assert [offset for _, offset in _places(tmp_path, startingOffsets='{"topic": {"0": 7}}')] == [7, 8]


def test_damage_ends_reading_unless_losses_may_be(tmp_path: Path, caplog: Any) -> None:
    log = _log(tmp_path, 0, _one(0), _one(1, crc_error=1), _one(2))
    with pytest.raises(DamagedLogError, match=r"the batch's checksum is not .*; failOnDataLoss=false reads"):
        _rows(tmp_path)
    assert [offset for _, offset in _places(tmp_path, failOnDataLoss="false")] == [0, 2]
    assert [record.message.startswith(f"{log}: byte ") for record in caplog.records] == [True]


def test_reading_ends_at_the_high_watermark_unless_more_is_asked_for(tmp_path: Path) -> None:
    _log(tmp_path, 0, *map(_one, range(5)))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\ntopic 0 3\n")
    assert [offset for _, offset in _places(tmp_path)] == [0, 1, 2]
    assert [offset for _, offset in _places(tmp_path, toLogEnd="true")] == [0, 1, 2, 3, 4]


def test_what_nobody_can_read_is_said(tmp_path: Path) -> None:
    """A time beyond all that Spark has; the other columns can be read."""
    _log(tmp_path, 0, encoded.batch_v2([Record(0, 2**62, None, b"")]))
    with pytest.raises(UsageError, match="a timestamp beyond those that Spark has"):
        _rows(tmp_path)
    with pytest.raises(UsageError, match="indexDir /nowhere: no such directory"):
        _rows(tmp_path, indexDir="/nowhere")


def test_a_task_reads_a_large_segment_or_some_small_ones(tmp_path: Path) -> None:
    """In their order."""
    megabyte = 1024 * 1024
    for number, size in enumerate((1, 15, 15, 15, 40, 1)):
        with _log(tmp_path, 10 * number).open("wb") as log:
            log.truncate(size * megabyte)
    tasks = divide_into_tasks(plan_reads(read_request(tmp_path, to_log_end=False), goes_on=False).reads)
    assert [[read.base_offset for read in task] for task in tasks] == [[0, 10, 20], [30], [40], [50]]
    assert divide_into_tasks(()) == []
