"""The transaction index: what is ours of it. tests/kafka/test_lookup.py changes and asks Kafka's one alike."""

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
from kidxlib.format.kafka_release import KAFKA_4_3
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


def test_errors_say_what_was_expected() -> None:
    index = filled(TRANSACTIONS[:2])
    with pytest.raises(CorruptIndexError, match=r"x: the last offset of entry 0 is 10, expected 100, .* rebuild it"):
        TransactionIndex.from_bytes(index.to_bytes(), 100, name="x").sanity_check()
    with pytest.raises(InvalidOffsetError, match="last offset 13, expected one above 15, the last"):
        index.append(AbortedTransaction(0, 0, 13, 11))
    out_of_step = TransactionIndex.from_bytes(index.to_bytes() + b"\1\2\3")
    out_of_step.append(TRANSACTIONS[2])
    with pytest.raises(UnknownVersionError, match=r"entry 2 is of version 258, expected 0: .* rebuild it"):
        out_of_step.all()


def test_versions() -> None:
    """Up to 4.3 Kafka looks at the higher byte alone, as a signed one: 1 and −1 pass, 256 does not. From 4.4 on only
    0 passes.
    """
    fields = (7, 0, 10, 11)
    for version in (1, 255, -1):
        content = stored([(0, *fields), (version, *fields)])
        older = TransactionIndex.from_bytes(content, release=KAFKA_4_3)
        assert older.all() == (AbortedTransaction(*fields),) * 2
        older.sanity_check()
        says = rf"entry 1 is of version {version}, expected 0, which only Kafka up to 4\.3 takes for that: "
        newer = TransactionIndex.from_bytes(content)
        for refuses in (newer.all, newer.sanity_check):
            with pytest.raises(UnknownVersionError, match=says):
                refuses()
    index = TransactionIndex.from_bytes(stored([(0, *fields), (256, *fields), (0, 7, 0, 10, 100)]), 5)
    assert index.collect_aborted(0, 11) == AbortedInRange((AbortedTransaction(*fields),), complete=True)
    for fails in (
        index.all,
        index.sanity_check,
        lambda: index.entry(1),
        lambda: index.collect_aborted(0, 12),
        lambda: index.truncate_to(11),
    ):
        with pytest.raises(UnknownVersionError, match="entry 1 is of version 256, expected 0: "):
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
