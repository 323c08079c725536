"""Runs of equal rows: what `itertools.groupby` finds."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa

from kidxlib.catalog.run_lengths import runs


def test_runs_are_those_of_groupby(rng: random.Random) -> None:
    """Of texts, numbers and dictionaries, with nulls among them, also in a part of an array."""
    for count in (0, 1, 2, 500):
        texts = [rng.choice(["a", "b", None]) for _ in range(count)]
        numbers = [rng.choice([1, None]) for _ in range(count)]
        columns: list[pa.Array[Any]] = [pa.array(texts, pa.string()), pa.array(numbers, pa.int32())]
        ends = itertools.accumulate(
            len(list(of_run)) for _, of_run in itertools.groupby(zip(texts, numbers, strict=True))
        )
        expected = list(itertools.pairwise([0, *ends]))
        assert list(runs(columns)) == expected
        assert list(runs([columns[0].dictionary_encode(), columns[1]])) == expected
        part = [column.slice(count // 2) for column in columns]
        assert list(runs(part)) == list(runs([pa.concat_arrays([column]) for column in part]))
