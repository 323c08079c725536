"""Seeks in a catalog: the answers of `Log`, which is tested against Kafka, and what is said of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kidxlib.engine.work import SMALL_BYTES
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek import run
from tests.conftest import Say
from tests.support.seek_catalog import Held, check_answers, hold_golden, some_questions, write_questions
from tests.support.seeks import check_timestamp
from tests.support.spark.jobs import Ended, kidx_seek_here


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
    monkeypatch.setattr(run, "_BYTES_PER_QUESTION", SMALL_BYTES // len(few))
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
        "no catalog there; a build with this option, and without --repair, makes one",
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
