"""The transaction index: Kafka's own tests (TransactionIndexTest), and what is ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import CorruptIndexError, InvalidOffsetError, NoSuchEntryError, UnknownVersionError
from kidxlib.format import layouts
from kidxlib.index.transaction import AbortedInRange, AbortedTransaction, TransactionIndex

TRANSACTIONS: Final = (
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
)


def filled(transactions: Sequence[AbortedTransaction] = TRANSACTIONS, base_offset: int = 0) -> TransactionIndex:
    index = TransactionIndex.from_bytes(b"", base_offset)
    for transaction in transactions:
        index.append(transaction)
    return index


def stored(entries: Sequence[tuple[int, int, int, int, int]]) -> bytes:
    """An index file with these versions, producer ids, first, last and last stable offsets."""
    return np.array(entries, layouts.ABORTED_TRANSACTION).tobytes()


# ---- Kafka's own tests ----


def test_position_when_opened() -> None:
    """What is appended follows what was there."""
    index = TransactionIndex.from_bytes(filled(TRANSACTIONS[:1]).to_bytes())
    index.append(TRANSACTIONS[1])
    assert index.all() == TRANSACTIONS[:2]


def test_sanity() -> None:
    index = filled()
    index.sanity_check()
    with pytest.raises(CorruptIndexError, match=r"x: the last offset of entry 0 is 10, expected 100, .* rebuild it"):
        TransactionIndex.from_bytes(index.to_bytes(), 100, name="x").sanity_check()


def test_last_offset_must_increase() -> None:
    index = filled(TRANSACTIONS[:2])
    for last_offset in (13, 15):
        with pytest.raises(InvalidOffsetError, match=f"last offset {last_offset}, expected one above 15, the last"):
            index.append(AbortedTransaction(0, 0, last_offset, 11))
    # Kafka remembers what it appended, not what it found.
    again = TransactionIndex.from_bytes(index.to_bytes())
    again.append(AbortedTransaction(0, 0, 15, 11))
    assert len(again) == 3


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected"),
    [
        (0, 100, AbortedInRange(TRANSACTIONS, complete=False)),
        (0, 32, AbortedInRange(TRANSACTIONS[:3], complete=True)),
        (0, 35, AbortedInRange(TRANSACTIONS, complete=True)),
        (10, 35, AbortedInRange(TRANSACTIONS, complete=True)),
        (11, 35, AbortedInRange(TRANSACTIONS[1:], complete=True)),
        (20, 41, AbortedInRange(TRANSACTIONS[2:], complete=False)),
    ],
)
def test_collect_aborted(fetch_offset: int, upper_bound: int, expected: AbortedInRange) -> None:
    assert filled().collect_aborted(fetch_offset, upper_bound) == expected


def test_truncate() -> None:
    index = filled()
    index.truncate_to(51)
    assert index.all() == TRANSACTIONS
    index.truncate_to(50)
    assert index.all() == TRANSACTIONS[:3]
    assert index.last_entry == TRANSACTIONS[2]
    with pytest.raises(InvalidOffsetError, match="expected one above 35"):
        index.append(AbortedTransaction(9, 0, 35, 0))
    index.reset()
    assert (len(index), index.all()) == (0, ())
    assert index.last_entry is None
    index.append(TRANSACTIONS[0])


# ---- ours ----


def test_part_of_an_entry() -> None:
    """It is passed over; what is appended after it is out of step, as in Kafka."""
    index = TransactionIndex.from_bytes(filled(TRANSACTIONS[:2]).to_bytes() + b"\1\2\3")
    assert index.all() == TRANSACTIONS[:2]
    index.append(TRANSACTIONS[2])
    assert index.to_bytes() == filled(TRANSACTIONS[:2]).to_bytes() + b"\1\2\3" + filled(TRANSACTIONS[2:3]).to_bytes()
    with pytest.raises(UnknownVersionError, match=r"entry 2 is of version 258, expected 0: .* rebuild it"):
        index.all()


def test_versions() -> None:
    """Kafka looks at the higher byte alone, as a signed one: 1 and −1 pass, 256 does not."""
    fields = (7, 0, 10, 11)
    index = TransactionIndex.from_bytes(stored([(1, *fields), (255, *fields), (-1, *fields)]))
    assert index.all() == (AbortedTransaction(*fields),) * 3
    index.sanity_check()
    index = TransactionIndex.from_bytes(stored([(0, *fields), (256, *fields), (0, 7, 0, 10, 100)]), 5)
    assert index.collect_aborted(0, 11) == AbortedInRange((AbortedTransaction(*fields),), complete=True)
    for fails in (
        index.all,
        index.sanity_check,
        lambda: index.entry(1),
        lambda: index.collect_aborted(0, 12),
        lambda: index.truncate_to(11),
    ):
        with pytest.raises(UnknownVersionError, match="entry 1 is of version 256"):
            fails()
    with pytest.raises(CorruptIndexError, match="entry 0"):  # found first
        TransactionIndex.from_bytes(index.to_bytes(), 11).sanity_check()


def test_entry() -> None:
    index = filled()
    assert [index.entry(number) for number in range(4)] == list(TRANSACTIONS)
    for number in (4, -1):
        with pytest.raises(NoSuchEntryError, match=f"no entry {number}, expected 0 to below 4"):
            index.entry(number)


@given(
    st.lists(st.builds(AbortedTransaction, *[st.integers(0, 30)] * 4), max_size=8),
    st.integers(-1, 31),
    st.integers(-1, 31),
)
def test_collect_aborted_reads_on_until_all_is_decided(
    transactions: list[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> None:
    """Kafka's loop, whatever the order of the entries."""
    expected, complete = [], False
    for one in transactions:
        if one.last_offset >= fetch_offset and one.first_offset < upper_bound:
            expected.append(one)
        if one.last_stable_offset >= upper_bound:
            complete = True
            break
    content = stored([(0, *_fields(one)) for one in transactions])
    index = TransactionIndex.from_bytes(content)
    assert index.collect_aborted(fetch_offset, upper_bound) == AbortedInRange(tuple(expected), complete)


def _fields(one: AbortedTransaction) -> tuple[int, int, int, int]:
    return one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset


def test_files_are_opened_when_used(tmp_path: Path) -> None:
    """One that does not exist is empty. No file is written to."""
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex.open(path, 0)
    path.write_bytes(filled().to_bytes())
    assert index.all() == TRANSACTIONS
    index.truncate_to(20)
    assert (len(index), path.stat().st_size) == (2, 4 * 34)
    missing = TransactionIndex.open(tmp_path / "no.txnindex", 0)
    assert (len(missing), missing.all(), missing.collect_aborted(0, 9)) == (0, (), AbortedInRange((), complete=False))
    missing.append(TRANSACTIONS[0])
    assert not (tmp_path / "no.txnindex").exists()
