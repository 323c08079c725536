"""Options are those of Spark's Kafka source where they mean something; any other is one line that says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.spark.source_options import (
    LATEST,
    OPTIONS,
    SourceLimitOption,
    SourceOptions,
    StreamOptions,
    TriggerLimits,
    parse_columns,
    parse_options,
    parse_stream_options,
)


def _parsed(**options: str) -> SourceOptions:
    given: Any = CaseInsensitiveDict({"path": "/logs", **options})
    return parse_options(given)


def test_without_options_all_is_read_as_a_consumer_reads_it() -> None:
    found = _parsed()
    assert (found.paths, found.isolation, found.mode) == (("/logs",), "read_uncommitted", "records")
    assert (found.start, found.end) == (SourceLimitOption("startingOffsets"), SourceLimitOption("endingOffsets"))
    assert (found.to_log_end, found.fails_on_loss, found.catalog) == (None, True, None)
    assert parse_columns({"path": "/logs"}) == ("records", False), "without headers"
    assert _parsed(ISOLATION="READ_COMMITTED", failondataloss="FALSE").isolation == "read_committed"


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": "Earliest"}, SourceLimitOption("startingOffsets")),
        (
            {"startingOffsets": '{"a": {"0": 23, "1": -2}}'},
            SourceLimitOption(
                "startingOffsets", by_partition={TopicPartition("a", 0): 23, TopicPartition("a", 1): None}
            ),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a-b": {"7": 0}}', "startingOffsets": "earliest"},
            SourceLimitOption("startingOffsetsByTimestamp", is_time=True, by_partition={TopicPartition("a-b", 7): 0}),
        ),
        (
            {"startingTimestamp": "1700000000000", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'},
            SourceLimitOption("startingTimestamp", is_time=True, everywhere=1_700_000_000_000),
        ),
    ],
)
def test_the_first_option_counts_that_says_where_to_begin(options: dict[str, str], start: SourceLimitOption) -> None:
    assert _parsed(**options).start == start


def test_the_end_is_said_in_the_same_ways() -> None:
    assert _parsed(endingOffsets="latest").end == SourceLimitOption("endingOffsets")
    by_partition = {TopicPartition("a", 0): None, TopicPartition("a", 1): 5}
    assert _parsed(endingOffsets='{"a": {"0": -1, "1": 5}}').end == SourceLimitOption(
        "endingOffsets", by_partition=by_partition
    )
    assert _parsed(endingTimestamp="7").end == SourceLimitOption("endingTimestamp", is_time=True, everywhere=7)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": "x:9092"}, "option kafka.bootstrap.servers: it means nothing here, as no broker"),
        ({"kafka.isolation.level": "x"}, "option kafka.isolation.level: no broker is asked; give isolation"),
        ({"minPartitions": "3"}, "option minpartitions: it means nothing here"),
        ({"maxOffsetsPerTrigger": "3"}, "option maxOffsetsPerTrigger: only a stream has micro-batches; leave it out"),
        ({"maxBytesPerTrigger": "3"}, "option maxBytesPerTrigger: only a stream has micro-batches; leave it out"),
        ({"minOffsetsPerTrigger": "3"}, "option minoffsetspertrigger: a stream here does not wait for more"),
        ({"startOffsets": "earliest"}, f"option startoffsets: not known; expected {', '.join(OPTIONS)}"),
        ({"source": "/other"}, "path and source given, expected one"),
        ({"isolation": "committed"}, "isolation 'committed': expected read_uncommitted or read_committed"),
        ({"mode": "rows"}, "mode 'rows': expected records or batches"),
        ({"mode": "batches", "isolation": "read_committed"}, "isolation read_committed: of batches all are read"),
        ({"includeHeaders": "yes"}, "includeHeaders 'yes': expected true or false"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign: expected one of them"),
        ({"subscribe": " , "}, "subscribe ' , ': expected topics, separated by commas"),
        ({"subscribePattern": "("}, r"subscribePattern \(: not a regular expression"),
        ({"assign": '{"a": 0}'}, "assign .*: expected JSON as"),
        ({"assign": "{}"}, "assign {}: expected a partition"),
        ({"startingOffsets": "latest"}, "startingOffsets latest: expected a number for each partition in JSON"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets of a-0: -1, expected an offset, or -2 for earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets of a-0: -2, expected an offset, or -1 for latest"),
        ({"endingOffsets": '{"a": {"0": 1.5}}'}, "endingOffsets .*: expected a number for each partition"),
        ({"endingOffsets": f'{{"a": {{"0": {2**63}}}}}'}, "endingOffsets .*: expected a number for each partition"),
        ({"endingOffsetsByTimestamp": "[]"}, "endingOffsetsByTimestamp .*: expected a number for each partition"),
        ({"startingTimestamp": "2026-11-20"}, "startingTimestamp 2026-11-20: expected milliseconds since the epoch"),
        (
            {"startingOffsetsByTimestampStrategy": "skip"},
            "startingOffsetsByTimestampStrategy 'skip': expected err",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        _parsed(**options)
    assert "\n" not in str(raised.value)


def test_something_is_to_be_read() -> None:
    with pytest.raises(UsageError, match="none given, expected one of path, paths and source: log dirs"):
        parse_options({})
    assert parse_options({"source": "/logs"}).paths == ("/logs",)


def test_load_takes_a_list() -> None:
    """Spark makes JSON of it."""
    assert parse_options({"paths": '["/a", "/b"]'}).paths == ("/a", "/b")
    for text in ("/a", "[]", '["/a", 1]'):
        with pytest.raises(UsageError, match="expected a list of directories in JSON"):
            parse_options({"paths": text})


def _streamed(**options: str) -> StreamOptions:
    given: Any = CaseInsensitiveDict({"path": "/logs", **options})
    return parse_stream_options(given)


def test_a_stream_has_limits_of_its_own() -> None:
    assert _streamed().limits == TriggerLimits()
    assert _streamed(maxOffsetsPerTrigger="7").limits == TriggerLimits(offsets=7)
    assert _streamed(maxbytespertrigger=" 9 ", mode="batches").limits == TriggerLimits(log_bytes=9)
    assert _streamed(startingOffsets="latest").source.start == SourceLimitOption("startingOffsets", everywhere=LATEST)
    assert _streamed(startingOffsets='{"a": {"0": -1}}').source.start.of_partition(TopicPartition("a", 0)) == LATEST


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream goes on; leave it out, or use spark.read"),
        ({"endingTimestamp": "5"}, "option endingTimestamp: a stream goes on"),
        ({"endingOffsetsByTimestamp": "{}"}, "option endingOffsetsByTimestamp: a stream goes on"),
        ({"path": f"/logs/a-0/{0:020}.log"}, "/logs/a-0/0*.log: expected a log dir or a partition's directory"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger '0': expected a whole number, 1 or more"),
        ({"maxBytesPerTrigger": "1m"}, "maxBytesPerTrigger '1m': expected a whole number, 1 or more"),
        ({"maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "maxOffsetsPerTrigger and maxBytesPerTrigger: exp"),
        ({"maxOffsetsPerTrigger": "1", "mode": "batches"}, "maxOffsetsPerTrigger: it may end amid a batch; for mode"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets of a-0: -3, expected an offset, or -2"),
        ({"kafka.bootstrap.servers": "x:9092"}, "option kafka.bootstrap.servers: it means nothing here, as no broker"),
    ],
)
def test_what_is_wrong_with_a_stream_is_said_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        _streamed(**options)
    assert "\n" not in str(raised.value)
