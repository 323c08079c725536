"""Seeks on Spark: the answers of `Log`, which is tested against Kafka, whatever the questions come in and go out as."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.catalog.open import existing_catalog
from jobs.common.seek.answers import write_answers
from jobs.common.seek.check_queries import check_queries
from jobs.common.seek.executors import RESULT, answer_on_executors
from jobs.common.seek.partitions import cataloged_partitions
from jobs.common.seek.queries import asked
from jobs.common.seek.query_file import read_queries
from jobs.common.seek.row_check import why_wrong
from jobs.common.spark.session import session
from jobs.seek import seek
from kidxlib.cli.seek import seek as kidx_seek
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.log import Log
from kidxlib.lookup.columns import RESULT_COLUMNS
from kidxlib.times import parse_milliseconds, show_time
from tests.conftest import Say
from tests.support.logs import golden
from tests.support.seeks import check_offset, check_timestamp, golden_directory, some_offsets, some_timestamps
from tests.support.spark.jobs import Ended, build_here, run_here, seek_here, use_pips_spark

_LONG_MAX: Final = 2**63 - 1

#: A log start offset that a broker's checkpoint file names, amid a batch.
_LOG_START: Final = 1000
_CUT: Final = "when the catalog was built"


@dataclass(frozen=True, slots=True)
class Held:
    """A catalog, and what it holds.

    Attributes:
        logs: of each partition of each source, as Kafka's recovery leaves it; by topic, partition and source.
    """

    catalog: Path
    logs: dict[tuple[str, int], dict[str, Log]]

    def sources(self, topic: str, partition: int) -> dict[str, Log]:
        return self.logs.get((topic, partition), {})

    def ask(self, *arguments: str | Path) -> Ended:
        return seek_here("--catalog", self.catalog, *arguments)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Held:
    """All golden directories, the sample as one source and the others as a second that has a part of the sample too."""
    directory = tmp_path_factory.mktemp("seek")
    sample, rest = directory / "sample", directory / "rest"
    shutil.copytree(golden.SAMPLES, sample)
    (sample / "log-start-offset-checkpoint").write_text(f"0\n1\ntxn-mixed 0 {_LOG_START}\n")
    more = pytestconfig.getoption("golden")
    segments = {segment.log: segment for segment in golden.found_below(Path(more))} if more else {}
    segments |= {segment.log: segment for segment in golden.committed()}
    by_directory: dict[tuple[str, str], list[golden.GoldenSegment]] = defaultdict(list)
    for segment in segments.values():
        of_sample = segment.log.is_relative_to(golden.SAMPLES)
        by_directory["sample" if of_sample else "rest", segment.log.parent.name].append(segment)
    by_directory["rest", "compacted-0"] = by_directory["sample", "compacted-0"][:2]

    logs: dict[tuple[str, int], dict[str, Log]] = defaultdict(dict)
    for (source, name), found in by_directory.items():
        for segment in found:
            (directory / source / name).mkdir(parents=True, exist_ok=True)
            shutil.copy2(segment.log, directory / source / name)
        recovered = directory / f"{source}-recovered" / name
        recovered.parent.mkdir(exist_ok=True)
        golden_directory(found, recovered)
        start = _LOG_START if name == "txn-mixed-0" else 0
        topic, _, partition = name.rpartition("-")
        logs[topic, int(partition)][source] = Log.open(recovered, log_start_offset=start)

    catalog = directory / "catalog"
    sources = ("--source", f"sample={sample}", "--source", f"rest={rest}")
    ended = build_here(*sources, "--index-dir", directory / "index", "--catalog", catalog, "--json")
    assert ended.code == 3, ended.err
    return Held(catalog, dict(logs))


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    use_pips_spark()
    with session("test") as spark:
        yield spark


def _questions(held: Held, rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Of every partition as many offsets as times, and a few of what is not there."""
    found: list[dict[str, Any]] = []

    def add(topic: str, partition: int, query: str, target: int, source: str | None = None) -> None:
        found.append({"topic": topic, "partition": partition, query: target, "source": source})

    for (topic, partition), sources in held.logs.items():
        log = rng.choice(list(sources.values()))
        offsets = [*some_offsets(log, rng, count), log.log_start_offset - 1, log.log_end_offset + 1, -1, _LONG_MAX]
        for offset in offsets:
            add(topic, partition, "offset", offset, rng.choice([None, None, *sources, "nowhere"]))
        for timestamp in some_timestamps(log, rng, count):
            add(topic, partition, "timestamp", timestamp, rng.choice([None, None, *sources]))
    for query in ("offset", "timestamp"):
        add("compacted", 99, query, 5)
        add("nobody's", 0, query, 5, "sample")
    rng.shuffle(found)
    return found


def _write(questions: Sequence[Mapping[str, Any]], path: Path, rng: random.Random) -> None:
    columns = ("source", "timestamp", "topic", "offset", "partition")
    match path.suffix:
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows({**question, "timestamp": _as_text(question, rng)} for question in questions)
        case ".json":
            lines = (
                json.dumps({name: value for name, value in each.items() if value is not None}) for each in questions
            )
            path.write_text("\n".join(lines))
        case kind:
            table = pa.Table.from_pylist(
                [dict(question) for question in questions],
                pa.schema([pa.field(name, _ARROW.get(name, pa.int64())) for name in columns]),
            )
            if kind == ".parquet":
                pq.write_table(table, path)
            else:
                write_deltalake(path, table)


_ARROW: Final = {"source": pa.string(), "topic": pa.string(), "partition": pa.int32()}
_YEAR_2100_MS: Final = 4_102_444_800_000


def _as_text(question: Mapping[str, Any], rng: random.Random) -> str | int | None:
    """A timestamp as ISO 8601 now and then."""
    timestamp: int | None = question.get("timestamp")
    if timestamp is None or not 0 <= timestamp < _YEAR_2100_MS or rng.random() < 0.5:
        return timestamp
    return show_time(timestamp)


def _read(spark: SparkSession, path: Path) -> DataFrame:
    match path.suffix:
        case ".csv":
            return spark.read.csv(str(path), header=True, schema=_WRITTEN, escape='"')
        case ".json":
            return spark.read.json(str(path), schema=_WRITTEN)
        case ".parquet":
            return spark.read.parquet(str(path))
        case _:
            return spark.read.format("delta").load(str(path))


_WRITTEN: Final = RESULT.__class__([RESULT[name] for name in RESULT_COLUMNS])


def _check(held: Held, questions: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> None:
    """Each question has an answer of each source that it may ask, and it is the log's."""
    by_question: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for answer in answers:
        by_question[tuple(answer[name] for name in ("topic", "partition", "query", "target", "source"))].append(answer)
    expected = 0
    for question in questions:
        topic, partition = question["topic"], question["partition"]
        query = "offset" if question.get("offset") is not None else "timestamp"
        target, source = question[query], question["source"]
        logs = {name: log for name, log in held.sources(topic, partition).items() if source in (None, name)}
        for name, log in logs.items() or [(source, None)]:
            answer = by_question[topic, partition, query, target, name][0]
            expected += 1
            if log is None:
                assert not answer["found"] and not answer["answered"], answer
                assert answer["note"].startswith(_unknown(held, topic, partition, source)), answer
            elif query == "timestamp":
                check_timestamp(log, target, answer, [_CUT])
            elif log.log_start_offset <= target <= log.log_end_offset:
                check_offset(log, target, answer, [_CUT])
            else:
                side = "below the log start" if target < log.log_start_offset else "above the log end"
                assert not answer["found"] and answer["note"].startswith(f"{side} offset"), answer
    assert expected == len(answers)


def _unknown(held: Held, topic: str, partition: int, source: str | None) -> str:
    """What is said of a partition that is not there."""
    if sources := held.sources(topic, partition):
        return f"{topic}-{partition} is not in source {source}; it is in {', '.join(sorted(sources))}"
    if any(topic == known for known, _ in held.logs):
        return f"no partition {partition} of topic {topic} in the catalog; there are 0"
    return f"no partition of topic {topic} in the catalog; there are "


def test_answers_are_the_logs_own(held: Held, tmp_path: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Of every partition of both sources: offsets and times in range, at the ends, outside, and special ones."""
    questions = _questions(held, rng, 200 if exhaustive else 60)
    _write(questions, tmp_path / "questions.csv", rng)
    output = tmp_path / "answers.parquet"
    ended = held.ask("--queries", tmp_path / "questions.csv", "--output", output, "--json")
    assert ended.code == 3, ended.err  # some partitions are not there, some logs are truncated
    answers = pq.read_table(output).to_pylist()
    _check(held, questions, answers)
    assert (ended.json["answers"], ended.json["found"]) == (len(answers), sum(answer["found"] for answer in answers))
    assert ended.json["bytes_read"] == sum(answer["bytes_read"] for answer in answers)
    assert ended.json["not_answered"] == sum(not answer["answered"] for answer in answers)
    say(f"{len(answers)} answers of {len(held.logs)} partitions, {ended.json['found']} found")


def test_the_same_in_every_format(held: Held, tmp_path: Path, rng: random.Random, spark: SparkSession) -> None:
    """Questions are the same whatever file they come from, and answers whatever file they go to."""
    questions = _questions(held, rng, 10)
    kinds = (".csv", ".json", ".parquet", "")
    read = []
    for kind in kinds:
        _write(questions, tmp_path / f"questions{kind}", rng)
        check_queries(str(tmp_path / f"questions{kind}"))
        read.append(read_queries(spark, str(tmp_path / f"questions{kind}")))
    for each in read[1:]:
        assert_df_equality(each, read[0], ignore_row_order=True)
    partitions = cataloged_partitions(
        existing_catalog(spark, str(held.catalog), None), [TopicPartition(*key) for key in held.logs], None
    )
    answers = answer_on_executors(read[0].drop("wrong"), len(questions), partitions).cache()
    for kind in kinds:
        write_answers(answers, str(tmp_path / f"answers{kind}"))
        written = _read(spark, tmp_path / f"answers{kind}")
        assert tuple(written.columns) == RESULT_COLUMNS
        assert_df_equality(written, answers.drop("file_error"), ignore_nullable=True, ignore_row_order=True)
    lines = {kind: (tmp_path / f"answers{kind}").read_text().splitlines() for kind in (".csv", ".json")}
    assert tuple(lines[".csv"][0].split(",")) == tuple(json.loads(lines[".json"][0])) == RESULT_COLUMNS
    for source in ("rest", "sample"):
        found = [answer for answer in map(json.loads, lines[".json"]) if answer["source"] == source]
        keys = [tuple(answer[name] for name in ("topic", "partition", "query", "target")) for answer in found]
        assert keys == sorted(keys)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}{kind}" for name in ("questions", "answers") for kind in kinds
    )


def test_one_question_to_several_sources(held: Held, tmp_path: Path) -> None:
    """A row of each source with its name, on screen and in a file; --source picks; `kidx seek` says the same."""
    question = ["--topic", "compacted", "--partition", "0", "--timestamp", "-2"]
    output = tmp_path / "answers.json"
    ended = held.ask(*question, "--json", "--output", output)
    answers = ended.json["answers"]
    assert (ended.code, [answer["source"] for answer in answers]) == (0, ["rest", "sample"])
    assert [json.loads(line) for line in output.read_text().splitlines()] == answers
    assert tuple(answers[0]) == RESULT_COLUMNS
    for answer in answers:
        check_timestamp(held.sources("compacted", 0)[answer["source"]], -2, answer)
    assert run_here(kidx_seek, "--catalog", held.catalog, *question, "--json").out == ended.out

    picked = held.ask(*question, "--source", "sample")
    assert (picked.code, "rest" in picked.out, "sample" in picked.out) == (0, False, True)
    assert run_here(kidx_seek, "--catalog", held.catalog, *question, "--source", "sample").out == picked.out


def test_skewed_questions_are_spread(held: Held, spark: SparkSession) -> None:
    """200,000 to one segment, half of them the very same: tasks answer as many each, give or take what sampling of
    ranges misses.
    """
    [log] = held.sources("plain-zstd", 0).values()
    segment = log.segments[-1]
    anywhere = F.pmod(F.xxhash64("id"), F.lit(log.log_end_offset - segment.base_offset))
    offsets = F.lit(segment.base_offset) + F.when(F.col("id") % 2 == 0, anywhere).otherwise(F.lit(0))
    columns = (F.lit("plain-zstd").alias("topic"), F.lit(0).alias("partition"), F.lit("offset").alias("query"))
    queries = spark.range(200_000).select(*columns, offsets.alias("target"), F.lit(None).cast("string").alias("source"))
    partitions = cataloged_partitions(
        existing_catalog(spark, str(held.catalog), None), [TopicPartition("plain-zstd", 0)], None
    )
    answers = answer_on_executors(queries, 200_000, partitions)
    tasks = answers.groupBy(F.spark_partition_id().alias("task")).agg(
        F.count("*").alias("rows"),
        F.count_if((F.col("segment_base_offset") == segment.base_offset) & F.col("found")).alias("found"),
    )
    rows = tasks.collect()
    assert len(rows) == 4
    assert sum(row["found"] for row in rows) == 200_000
    assert max(row["rows"] for row in rows) < 1.3 * 200_000 / len(rows)


def _random_time(rng: random.Random) -> str:
    """A time as somebody may write it, and now and then one that is none."""
    year = rng.choice([0, 1, 1969, 1970, 2026, 9999, rng.randrange(10_000)])
    date = f"{year:04d}-{rng.randrange(1, 13):02d}-{rng.choice([1, 28, 29, 30, 31]):02d}"
    clock = f"{rng.choice([0, 23, 24, rng.randrange(24)]):02d}:{rng.choice([0, 59, 60, rng.randrange(60)]):02d}"
    if rng.random() < 0.7:
        clock += f":{rng.choice([0, 59, 60, rng.randrange(60)]):02d}"
        if rng.random() < 0.7:
            clock += "." + "".join(rng.choices("0019", k=rng.randint(1, 7)))
    zone = rng.choice(
        [
            "Z",
            "Z",
            "",
            "z",
            "+01",
            "+0100",
            f"{rng.choice('+-')}{rng.randrange(25):02d}:{rng.choice([0, 30, 59, 60]):02d}",
        ]
    )
    text = f"{date}{rng.choice('TTTT t')}{clock}{zone}"
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("09-+: TZx\t\n") + text[at + rng.randrange(2) :]
    return text


def test_times_in_a_file_mean_what_they_mean_in_an_option(
    tmp_path: Path, rng: random.Random, spark: SparkSession, say: Say
) -> None:
    """Spark reads a time as `parse_milliseconds` does, or says that it is none; never as another one."""
    always = {
        "0": 0, "-1": -1, "1795000000000": 1_795_000_000_000, "-9223372036854775808": -(2**63),
        "9223372036854775807": _LONG_MAX,
        "2026-11-20T10:00Z": 1_795_168_800_000, "2026-11-20T10:00:00Z": 1_795_168_800_000,
        "2026-11-20 11:00+01:00": 1_795_168_800_000, "2026-11-20T10:00:00.000001Z": 1_795_168_800_001,
        "1969-12-31T23:59:59.9991Z": 0, "1969-12-31T23:59:59.999Z": -1, "0001-01-01T00:00Z": -62_135_596_800_000,
        "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
    }  # fmt: skip
    never = [
        "",
        "x",
        "+5",
        "5.0",
        "1e3",
        "9223372036854775808",
        "2026-11-20",
        "2026-11-20T10:00",
        "10:00Z",
        "0000-01-01T00:00Z",
    ]
    texts = [*always, *never, *(str(rng.randrange(-(2**64), 2**64)) for _ in range(100))]
    texts += [_random_time(rng) for _ in range(10_000)]
    table = pa.table(
        {"topic": [str(number) for number in range(len(texts))], "partition": ["0"] * len(texts), "timestamp": texts}
    )
    pq.write_table(table, tmp_path / "times.parquet")
    rows = read_queries(spark, str(tmp_path / "times.parquet")).collect()
    both = 0
    for row in rows:
        text = texts[int(row["topic"])].strip(" ")
        try:
            expected = parse_milliseconds(text)
        except UsageError:
            expected = None
        assert (row["target"] is None) == (row["wrong"] is not None), row
        assert row["target"] in (None, expected), (text, row["target"], expected)
        both += row["target"] is not None
        before_spark = why_wrong({"topic": "t", "partition": "0", "timestamp": texts[int(row["topic"])]})
        assert before_spark is None or row["wrong"] is not None, (text, before_spark)
        if row["target"] is None and text:
            assert row["wrong"].startswith(f"timestamp {text}, expected ISO 8601 with a zone"), row
    found = {texts[int(row["topic"])]: row["target"] for row in rows}
    assert {text: found[text] for text in always} == always
    assert {found[text] for text in never} == {None}
    assert both > 500
    say(f"{both} of {len(texts)} times are taken, as the same moment")


def _csv(*lines: str) -> str:
    return "\n".join(lines) + "\n"


_WRONG_FILES: Final = {
    ("a.csv", _csv("topic,offset", "a,1")): "columns topic, offset; expected topic, partition, and offset or timestamp",
    ("b.csv", _csv("topic,partition", "a,1")): "columns topic, partition; expected topic, partition, and offset or",
    ("c.csv", ""): "columns none; expected topic",
    ("d.csv", _csv("topic,partition,offset", "a,x,1")): "partition x, expected a whole number from 0 on",
    ("e.csv", _csv("topic,partition,offset", "a,-1,1")): "partition -1, expected a whole number from 0 on",
    ("f.csv", _csv("topic,partition,offset", "a,0,ten")): "a-0, offset ten, expected a whole number",
    ("g.csv", _csv("topic,partition,offset", "a,0,9223372036854775808")): "offset 9223372036854775808, expected",
    (
        "h.csv",
        _csv("topic,partition,timestamp", "a,0,2026-11-20T10:00"),
    ): "timestamp 2026-11-20T10:00, expected ISO 8601",
    ("i.csv", _csv("topic,partition,offset,timestamp", "a,0,1,2")): "a row with an offset and a timestamp",
    ("j.csv", _csv("topic,partition,offset,timestamp", "a,0,,")): "a row without an offset and a timestamp",
    ("k.csv", _csv("topic,partition,offset", ",0,1")): "a row without a topic",
    ("l.json", '{"topic": "a", "partition": 0, "offset": 1.5}\n'): "offset 1.5, expected a whole number",
    ("m.json", "no json\n"): "expected topic, partition, and offset or timestamp",
    ("n.parquet", "no parquet"): "n.parquet: ",
    ("o.txt", "topic"): "expected a file called .csv, .json or .parquet, or a Delta table",
}


def test_a_file_that_cannot_be_answered_is_one_line(tmp_path: Path, spark: SparkSession) -> None:
    """The file, what was found in it, and what was expected."""
    for (name, content), message in _WRONG_FILES.items():
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(UsageError) as raised:
            asked(read_queries(spark, str(path)), str(path))
        line = str(raised.value)
        assert line.startswith(f"--queries {path}: ") and message in line and "\n" not in line, line


_QUESTION: Final = ("--topic", "compacted", "--partition", "0", "--offset", "1")
_WRONG_OPTIONS: Final = {
    (): "give --topic, --partition and one of --offset and --timestamp, or --queries FILE",
    _QUESTION[:4]: "give --topic, --partition and one of",
    (*_QUESTION, "--timestamp", "5"): "give --topic, --partition and one of",
    (*_QUESTION[:5], "ten"): "ten: expected a whole number from ",
    (*_QUESTION[:4], "--timestamp", "2026-11-20T10:00"): "has no time zone; add Z for UTC",
    (*_QUESTION, "--queries", "a.csv"): "--queries: the file has the questions; give none beside it",
    ("--queries", "a.csv"): "--queries: give --output FILE for the answers",
    (*_QUESTION, "--output", "a.txt"): "--output a.txt: expected a name that ends in .csv, .json or .parquet",
    (*_QUESTION, "--consumer-group-csv", "/"): "--consumer-group-csv",
    (*_QUESTION, "--consumer-group-csv", "/nowhere/a.csv"): "no directory /nowhere",
    (*_QUESTION, "--catalog", "c", "--database", "d"): "--catalog and --database: give one of them",
}


@pytest.mark.parametrize(("arguments", "message"), list(_WRONG_OPTIONS.items()))
def test_options_that_cannot_be_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    """Said before Spark is started."""
    _refused(run_here(seek, *arguments), message)


def test_what_only_the_catalog_can_tell_is_one_line(held: Held, tmp_path: Path) -> None:
    """Nothing is answered."""
    ask = ("--topic", "compacted", "--partition", "0", "--offset", "1")
    _refused(held.ask("--topic", "compactd", *ask[2:]), "no partition compactd-0 in it; it has compacted-0 ")
    _refused(held.ask(*ask, "--source", "elsewhere"), "compacted-0 is not in source elsewhere; it is in rest, sample")
    _refused(seek_here("--catalog", tmp_path, *ask), "no catalog there; ./spark-submit.sh build_index makes one")
    _refused(held.ask("--queries", tmp_path / "none.csv", "--output", tmp_path / "o.csv"), "Path does not exist")
    mistyped = tmp_path / "mistyped.csv"
    mistyped.write_text(_csv("topic,partition,offset", "compactd,0,1", "compacted,7,1", "compacted,0,1"))
    ended = held.ask("--queries", mistyped, "--output", tmp_path / "o.csv", "--source", "rest")
    assert ended.code == 3, ended.err
    assert "2 not answered for certain: their notes say why" in ended.out, ended.out
    assert "no partition of topic compactd in the catalog; there are compacted and " in ended.out, ended.out
    assert "no partition 7 of topic compacted in the catalog; there are 0" in ended.out, ended.out
    assert "damaged" not in ended.out, ended.out
    taken = tmp_path / "taken.csv"
    taken.touch()
    _refused(held.ask(*ask, "--output", taken), "it is there already; expected a new name")


def _refused(ended: Ended, message: str) -> None:
    assert ended.code == 2, ended
    assert ended.out == "" and ended.err.startswith("error: ") and message in ended.err, ended.err
    assert ended.err.count("\n") == 1, ended.err
