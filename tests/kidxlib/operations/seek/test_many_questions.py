"""Seeks in a catalog: the answers of `Log`, which is tested against Kafka, and what is said of them. Questions in
order, cut into ranges: none is lost, and ranges are of one length. Where consumers are to go on: the offset asked for,
the record found, or the nearer end of the log.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.errors import UsageError
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek import many_questions
from kidxlib.operations.seek.answer_work import PARTITIONS_TO_SEARCH, RESULT
from kidxlib.operations.seek.many_questions import (
    ASKED,
    asked_partitions,
    ensure_unambiguous,
    question_ranges,
    sorted_questions,
    write_consumer_offsets,
)
from kidxlib.operations.seek.seek_files import QUESTIONS
from tests.conftest import Say
from tests.support.seek_catalog import Held, check_answers, hold_golden, some_questions, write_questions
from tests.support.seeks import check_timestamp
from tests.support.spark.jobs import Ended, kidx_seek_here

_KEY = ("topic", "partition", "by_time", "target")

_LOG = (100, 200)
#: What is asked of a log that starts at 100 and ends at 200, what is answered, and where consumers go on.
_ANSWERS: list[tuple[str, int, dict[str, Any], int | None]] = [
    ("offset", 150, {"found": True}, 150),
    ("offset", 150, {"found": False}, 150),
    ("offset", 5, {"found": False}, 100),
    ("offset", 500, {"found": False}, 200),
    ("timestamp", 9, {"found": True, "offset": 120}, 120),
    ("timestamp", 9, {"found": False}, 200),
    ("timestamp", 9, {"found": True, "offset": 120, "answered": False}, None),
]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Held:
    return hold_golden(tmp_path_factory.mktemp("seek"), pytestconfig.getoption("golden"))


def test_answers_are_the_logs_own(held: Held, tmp_path: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Of every partition of both sources: offsets and times in range, at the ends, outside, and special ones."""
    questions = some_questions(held, rng, 200 if exhaustive else 20)
    write_questions(questions, tmp_path / "questions.csv", rng)
    output = tmp_path / "answers.parquet"
    ended = held.ask("--queries", tmp_path / "questions.csv", "--output", output, "--json")
    assert ended.code == 3, ended.err  # some partitions are not there, some logs are truncated
    answers = pq.read_table(output).to_pylist()
    check_answers(held, questions, answers)
    assert (ended.json["answers"], ended.json["found"]) == (len(answers), sum(answer["found"] for answer in answers))
    assert ended.json["bytes_read"] == sum(answer["bytes_read"] for answer in answers)
    assert ended.json["not_answered"] == sum(not answer["answered"] for answer in answers)
    say(f"{len(answers)} answers of {len(held.logs)} partitions, {ended.json['found']} found")


def test_answers_are_in_order(held: Held, tmp_path: Path, rng: random.Random) -> None:
    """Of topic, partition, kind of question and target, also where several sources answer."""
    write_questions(some_questions(held, rng, 10), tmp_path / "questions.parquet", rng)
    output = tmp_path / "answers.json"
    assert held.ask("--queries", tmp_path / "questions.parquet", "--output", output).code == 3
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    keys = [tuple(answer[name] for name in ("topic", "partition", "query", "target")) for answer in answers]
    assert keys == sorted(keys)
    assert tuple(answers[0]) == RESULT_COLUMNS
    assert {path.name for path in tmp_path.iterdir()} == {"questions.parquet", "answers.json"}


def test_processes_answer_as_the_command_itself(
    held: Held, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few questions are answered without a worker; five times as many, by two."""
    few = some_questions(held, rng, 5)
    monkeypatch.setattr(many_questions, "_FEW_QUESTIONS", len(few))
    for name, questions in (("few", few), ("many", [*few, *some_questions(held, rng, 20)])):
        write_questions(questions, tmp_path / f"{name}.parquet", rng)
        ended = held.ask(
            *("--queries", tmp_path / f"{name}.parquet", "--output", tmp_path / f"{name}-answers.parquet"),
            *("--processes", "2"),
        )
        assert ended.code == 3, ended
    found = {name: pq.read_table(tmp_path / f"{name}-answers.parquet").to_pylist() for name in ("few", "many")}
    key = ("topic", "partition", "query", "target", "source")
    of_many = {tuple(answer[name] for name in key): answer for answer in found["many"]}
    for answer in found["few"]:
        other = of_many[tuple(answer[name] for name in key)]
        assert {**other, "bytes_read": 0} == {**answer, "bytes_read": 0}


def test_one_question_to_several_sources(held: Held, tmp_path: Path) -> None:
    """A row of each source with its name, on screen and in a file; --source picks."""
    question = ["--topic", "compacted", "--partition", "0", "--timestamp", "-2"]
    output = tmp_path / "answers.json"
    ended = held.ask(*question, "--json", "--output", output)
    answers = ended.json["answers"]
    assert (ended.code, [answer["source"] for answer in answers]) == (0, ["rest", "sample"])
    assert [json.loads(line) for line in output.read_text().splitlines()] == answers
    assert tuple(answers[0]) == RESULT_COLUMNS
    for answer in answers:
        check_timestamp(held.sources("compacted", 0)[answer["source"]], -2, answer)

    picked = held.ask(*question, "--source", "sample")
    assert (picked.code, "rest" in picked.out, "sample" in picked.out) == (0, False, True)


def test_what_only_the_catalog_can_tell_is_one_line(held: Held, tmp_path: Path) -> None:
    """Nothing is answered."""
    ask = ("--topic", "compacted", "--partition", "0", "--offset", "1")
    _refused(held.ask("--topic", "compactd", *ask[2:]), "no partition compactd-0 in it; it has compacted-0 ")
    _refused(held.ask(*ask, "--source", "elsewhere"), "compacted-0 is not in source elsewhere; it is in rest, sample")
    _refused(
        kidx_seek_here("--catalog", tmp_path, *ask),
        "no catalog there; look whether the path is right, or make one",
    )
    _refused(held.ask("--queries", tmp_path / "none.csv", "--output", tmp_path / "o.csv"), "Path does not exist")
    mistyped = tmp_path / "mistyped.csv"
    mistyped.write_text("topic,partition,offset\ncompactd,0,1\ncompacted,7,1\ncompacted,0,1\n")
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


def _questions(rng: random.Random, count: int) -> pa.Table:
    """Of few partitions, and some of them the very same; in chunks that each have dictionaries of their own."""
    chunks = [
        pa.RecordBatch.from_pylist(
            [
                {
                    "topic": rng.choice(["b", "a", "é", "a.b"]),
                    "partition": rng.choice([0, 7, 2**31 - 1]),
                    "by_time": rng.randrange(2),
                    "target": rng.choice([0, -1, -(2**63), 2**63 - 1, rng.randrange(100)]),
                    "source": rng.choice([None, "s", "t"]),
                }
                for _ in range(count)
            ],
            QUESTIONS,
        )
        for _ in range(3)
    ]
    return pa.Table.from_batches(chunks, QUESTIONS).unify_dictionaries()


def test_questions_come_in_the_order_of_their_answers(rng: random.Random) -> None:
    questions = _questions(rng, 500)
    found = sorted_questions(questions).to_pylist()
    assert found == sorted(questions.to_pylist(), key=lambda row: tuple(row[name] for name in _KEY))


def test_it_is_counted_who_is_asked(rng: random.Random) -> None:
    questions = sorted_questions(_questions(rng, 500))
    expected = Counter((row["topic"], row["partition"], row["source"]) for row in questions.to_pylist())
    asked = asked_partitions(questions).to_pylist()
    assert {(row["topic"], row["partition"], row["source"]): row["queries"] for row in asked} == expected
    assert len(asked) == len(expected)


def test_ranges_are_of_one_length_whatever_is_asked() -> None:
    """200,000 of one partition, half of them the very same, and one of another."""
    same = pa.table(
        {
            "topic": pa.array(["a"] * 200_000 + ["b"]).dictionary_encode(),
            "partition": pa.array([0] * 200_001, pa.int32()),
            "by_time": pa.array([0] * 200_001, pa.int8()),
            "target": pa.array([max(0, number - 100_000) for number in range(200_001)]),
            "source": pa.array([None] * 200_001, pa.string()).dictionary_encode(),
        },
        schema=QUESTIONS,
    )
    questions = sorted_questions(same)
    ranges = list(question_ranges(questions, 2))
    assert len(ranges) == 5
    lengths = [part.num_rows for part, _ in ranges]
    assert max(lengths) - min(lengths) <= 1
    assert pa.concat_tables([part for part, _ in ranges]).combine_chunks() == questions
    assert [partitions.to_pylist() for _, partitions in ranges[:4]] == [[{"topic": "a", "partition": 0}]] * 4
    assert ranges[4][1]["topic"].to_pylist() == ["a", "b"]
    assert len(list(question_ranges(questions, 1))) == 4
    assert len(list(question_ranges(questions.slice(0, 1), 8))) == 1


def _answers(rows: list[tuple[str, int, dict[str, Any]]]) -> pa.Table:
    certain = {"answered": True, "bytes_read": 0, "file_error": False, "source": "s"}
    return pa.Table.from_pylist(
        [
            {"topic": "t", "partition": number, "query": query, "target": target, **certain, **answer}
            for number, (query, target, answer) in enumerate(rows)
        ],
        RESULT,
    )


def _held(*logs: tuple[int | None, int | None], source: str = "s", first: int | None = None) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "source": source,
                "topic": "t",
                "partition": number,
                "first_base_offset": first,
                "log_start_offset": start,
                "log_end_offset": end,
                "directory": "d",
            }
            for number, (start, end) in enumerate(logs)
        ],
        PARTITIONS_TO_SEARCH,
    )


def test_offsets_are_those_that_kafkas_tool_would_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = _answers([row[:3] for row in _ANSWERS])
    write_consumer_offsets(tmp_path / "a.csv", answers, _held(*[_LOG] * len(_ANSWERS)))
    known = [(number, offset) for number, (*_, offset) in enumerate(_ANSWERS) if offset is not None]
    assert (tmp_path / "a.csv").read_text() == "".join(f"t,{number},{offset}\n" for number, offset in known)
    assert f"{tmp_path}/a.csv: without t-6, whose offsets are not known" in capsys.readouterr().err


def test_a_log_whose_ends_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It starts at 0 where no checkpoint says otherwise; without an end, and without a partition, nobody knows. Few are
    named.
    """
    missed: tuple[str, int, dict[str, Any]] = ("offset", -5, {"found": False})
    write_consumer_offsets(tmp_path / "a.csv", _answers([missed] * 9), _held((None, 200), *[(None, None)] * 7))
    assert (tmp_path / "a.csv").read_text() == "t,0,0\n"
    assert "without t-1, t-2, t-3, t-4, t-5 and 3 more, whose offsets" in capsys.readouterr().err


def test_a_log_without_a_checkpoint_of_its_start_begins_with_its_first_segment(tmp_path: Path) -> None:
    below: list[tuple[str, int, dict[str, Any]]] = [("offset", offset, {"found": False}) for offset in (5, -7)]
    write_consumer_offsets(tmp_path / "a.csv", _answers(below), _held((None, 200), (60, 200), first=50))
    assert (tmp_path / "a.csv").read_text() == "t,0,50\nt,1,60\n"


def test_one_offset_a_partition() -> None:
    """More questions than one, or more sources, are refused."""
    one = {"topic": "t", "partition": 0, "source": None, "queries": 1}
    asked = pa.Table.from_pylist([one, {**one, "partition": 1}], ASKED)
    ensure_unambiguous(asked, _held(_LOG, _LOG))
    for questions in ([{**one, "queries": 2}], [one, {**one, "source": "s"}]):
        with pytest.raises(UsageError, match="--consumer-group-csv: t-0 has 2 questions, expected one"):
            ensure_unambiguous(pa.Table.from_pylist(questions, ASKED), _held(_LOG))
    both = pa.concat_tables([_held(_LOG), _held(_LOG, source="r")])
    with pytest.raises(UsageError, match="--consumer-group-csv: t-0 is in s, r; pick one with --source"):
        ensure_unambiguous(asked, both)
