"""A catalog of golden directories for seeks, questions to it, and a check of the answers."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from kidxlib.log.log import Log
from kidxlib.text.times import show_time
from tests.support.logs import golden
from tests.support.seeks import check_offset, check_timestamp, golden_directory, some_offsets, some_timestamps
from tests.support.spark.jobs import Ended, kidx_build_here, kidx_seek_here

Command: TypeAlias = Callable[..., Ended]

LONG_MAX: Final = 2**63 - 1
#: A log start offset that a broker's checkpoint file names, amid a batch.
_LOG_START: Final = 1000
_CUT: Final = "when the catalog was built"


@dataclass(frozen=True, slots=True)
class Held:
    """A catalog, and its logs.

    Attributes:
        logs: the logs that Kafka's recovery leaves, by topic and partition, and by source.
    """

    catalog: Path
    logs: dict[tuple[str, int], dict[str, Log]]

    def sources(self, topic: str, partition: int) -> dict[str, Log]:
        return self.logs.get((topic, partition), {})

    def ask(self, *arguments: str | Path, seek: Command = kidx_seek_here) -> Ended:
        return seek("--catalog", self.catalog, *arguments)


def hold_golden(directory: Path, more: str | None = None) -> Held:
    """Build a catalog of all golden directories, and of those below `more`: the sample is one source, and all others
    are in a second one, with a part of the sample.
    """
    sample, rest = directory / "sample", directory / "rest"
    shutil.copytree(golden.SAMPLES, sample)
    (sample / "log-start-offset-checkpoint").write_text(f"0\n1\ntxn-mixed 0 {_LOG_START}\n")
    segments = {segment.log: segment for segment in golden.found_below(Path(more))} if more else {}
    segments |= {segment.log: segment for segment in golden.committed()}
    by_directory: dict[tuple[str, str], list[golden.GoldenSegment]] = defaultdict(list)
    for segment in segments.values():
        of_sample = segment.log.is_relative_to(golden.SAMPLES)
        by_directory["sample" if of_sample else "rest", segment.log.parent.name].append(segment)
    by_directory["rest", "compacted-0"] = by_directory["sample", "compacted-0"][:2]

    logs: dict[tuple[str, int], dict[str, Log]] = defaultdict(dict)
    for (source, name), of_directory in by_directory.items():
        for segment in of_directory:
            (directory / source / name).mkdir(parents=True, exist_ok=True)
            shutil.copy2(segment.log, directory / source / name)
        recovered = directory / f"{source}-recovered" / name
        recovered.parent.mkdir(exist_ok=True)
        golden_directory(of_directory, recovered)
        start = _LOG_START if name == "txn-mixed-0" else 0
        topic, _, partition = name.rpartition("-")
        logs[topic, int(partition)][source] = Log.open(recovered, log_start_offset=start)

    catalog = directory / "catalog"
    sources = ("--source", f"sample={sample}", "--source", f"rest={rest}")
    ended = kidx_build_here(*sources, "--index-dir", directory / "index", "--catalog", catalog, "--json")
    assert ended.code == 3, ended.err
    return Held(catalog, dict(logs))


def some_questions(held: Held, rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Questions for as many offsets as times of every partition, and for a few absent partitions."""
    questions: list[dict[str, Any]] = []

    def add(topic: str, partition: int, query: str, target: int, source: str | None = None) -> None:
        questions.append({"topic": topic, "partition": partition, query: target, "source": source})

    for (topic, partition), sources in held.logs.items():
        log = rng.choice(list(sources.values()))
        offsets = [*some_offsets(log, rng, count), log.log_start_offset - 1, log.log_end_offset + 1, -1, LONG_MAX]
        for offset in offsets:
            add(topic, partition, "offset", offset, rng.choice([None, None, *sources, "nowhere"]))
        for timestamp in some_timestamps(log, rng, count):
            add(topic, partition, "timestamp", timestamp, rng.choice([None, None, *sources]))
    for query in ("offset", "timestamp"):
        add("compacted", 99, query, 5)
        add("nobody's", 0, query, 5, "sample")
    rng.shuffle(questions)
    return questions


def write_questions(questions: Sequence[Mapping[str, Any]], path: Path, rng: random.Random) -> None:
    columns = ("source", "timestamp", "topic", "offset", "partition")
    match path.suffix:
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows({**question, "timestamp": _as_text(question, rng)} for question in questions)
        case ".json":
            lines = (
                json.dumps({name: value for name, value in question.items() if value is not None})
                for question in questions
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
    """A question's timestamp, sometimes as ISO 8601."""
    timestamp: int | None = question.get("timestamp")
    if timestamp is None or not 0 <= timestamp < _YEAR_2100_MS or rng.random() < 0.5:
        return timestamp
    return show_time(timestamp)


def check_answers(held: Held, questions: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> None:
    """Check that each question has an answer from each source that it is for, and that the answer is the log's."""
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
    """The beginning of the note about an absent partition."""
    if sources := held.sources(topic, partition):
        return f"{topic}-{partition} is not in source {source}; it is in {', '.join(sorted(sources))}"
    if any(topic == known for known, _ in held.logs):
        return f"no partition {partition} of topic {topic} in the catalog; there are 0"
    return f"no partition of topic {topic} in the catalog; there are "
