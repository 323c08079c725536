"""Questions in order, cut into ranges: none is lost, whatever they ask, and ranges are of one length."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from kidxlib.operations.seek.key_ranges import asked_partitions, in_order, key_ranges
from kidxlib.operations.seek.question_columns import QUESTIONS

_KEY = ("topic", "partition", "by_time", "target")


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
    found = in_order(questions).to_pylist()
    assert found == sorted(questions.to_pylist(), key=lambda row: tuple(row[name] for name in _KEY))


def test_it_is_counted_who_is_asked(rng: random.Random) -> None:
    questions = in_order(_questions(rng, 500))
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
    questions = in_order(same)
    ranges = list(key_ranges(questions, 2))
    assert len(ranges) == 5
    assert max(each.questions.num_rows for each in ranges) - min(each.questions.num_rows for each in ranges) <= 1
    assert pa.concat_tables([each.questions for each in ranges]).combine_chunks() == questions
    assert [each.partitions.to_pylist() for each in ranges[:4]] == [[{"topic": "a", "partition": 0}]] * 4
    assert ranges[4].partitions["topic"].to_pylist() == ["a", "b"]
    assert len(list(key_ranges(questions, 1))) == 4
    assert len(list(key_ranges(questions.slice(0, 1), 8))) == 1
