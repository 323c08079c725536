"""Gaps in the sequence numbers of many batches are those that are found batch by batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.audit.logs.sequences import SequenceCheck
from kidxlib.java import incremented_sequence
from kidxlib.records.bulk.batch_table_kernel import BATCH

_MAX = 2**31 - 1
_PRODUCER = st.integers(-1, 3)
_EPOCH = st.integers(0, 1)
_SEQUENCE = st.sampled_from([-1, 0, 1, 2, 3, 4, _MAX - 1, _MAX])
_TABLES = st.lists(st.lists(st.tuples(_PRODUCER, _EPOCH, _SEQUENCE, st.integers(0, 3)), max_size=8), max_size=4)


@given(tables=_TABLES)
def test_they_are_those_of_one_batch_after_the_other(tables: list[list[tuple[int, int, int, int]]]) -> None:
    check = SequenceCheck()
    last: dict[int, tuple[int, int]] = {}
    for table in tables:
        rows = np.zeros(len(table), BATCH)
        expected = []
        for number, (producer, epoch, sequence, delta) in enumerate(table):
            rows[number]["producer_id"], rows[number]["producer_epoch"] = producer, epoch
            rows[number]["base_sequence"], rows[number]["offset_field"] = sequence, 100 + number
            rows[number]["last_offset"] = 100 + number + delta
            if producer == -1 or sequence == -1:
                continue
            before = last.get(producer)
            last[producer] = epoch, incremented_sequence(sequence, delta)
            if before is not None and before[0] == epoch and sequence != incremented_sequence(before[1], 1):
                expected.append((number, incremented_sequence(before[1], 1)))
        found = check.gaps(rows)
        assert list(zip(found.numbers.tolist(), found.expected.tolist(), strict=True)) == expected
