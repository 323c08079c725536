"""Verdicts on transaction indexes, checked against every fetch that there is."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kidxlib.audit.finding import Verdict
from kidxlib.audit.index_files.transaction_index import TransactionsOfSegment, audit_transaction_index
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_3, NodeRelease
from kidxlib.index.transaction import AbortedTransaction, TransactionIndex
from kidxlib.recovery.partition_fold import StateSource
from tests.conftest import Say

_PRODUCERS = 4
_END = 40


@dataclass(frozen=True, slots=True)
class _Logs:
    """What became of the transactions of a segment that ends at `_END`, and of those after it.

    Attributes:
        aborted: in it.
        later: first offsets of those that are aborted after it, or never decided.
    """

    aborted: list[AbortedTransaction]
    later: list[int]


def _logs(rng: random.Random) -> _Logs:
    ongoing: dict[int, int] = {}
    aborted, later = [], []
    for offset in range(_END + rng.randrange(15)):
        producer_id = rng.randrange(_PRODUCERS)
        if producer_id not in ongoing:
            if rng.random() < 0.6:
                ongoing[producer_id] = offset
        elif rng.random() < 0.5:
            first = ongoing.pop(producer_id)
            if rng.random() < 0.3:
                continue  # committed
            if offset >= _END:
                later.append(first)
            else:
                aborted.append(AbortedTransaction(producer_id, first, offset, min([*ongoing.values(), offset + 1])))
    return _Logs(aborted, later + list(ongoing.values()))


def _file(transactions: list[AbortedTransaction]) -> bytes:
    rows = [
        (0, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset) for each in transactions
    ]
    return np.array(rows, layouts.ABORTED_TRANSACTION).tobytes()


def _changed(rng: random.Random, transactions: list[AbortedTransaction]) -> list[AbortedTransaction]:
    changed = list(transactions)
    for _ in range(rng.choice([1, 1, 2])):
        if not changed:
            return [AbortedTransaction(9, 3, 5, 6)]
        at = rng.randrange(len(changed))
        field = rng.choice(["producer_id", "first_offset", "last_offset", *["last_stable_offset"] * 4])
        match rng.randrange(5):
            case 0:
                del changed[at]
            case 1:
                changed.insert(rng.randrange(len(changed)), changed[at])
            case _:
                value = getattr(changed[at], field) + rng.choice([-5, -2, -1, 1, 2, 5, 12])
                changed[at] = replace(changed[at], **{field: value})
    return changed


def _consumers_right(content: bytes, logs: _Logs) -> bool:
    """Whether each fetch learns of all transactions that it meets, and of none that were not aborted."""
    index = TransactionIndex.from_bytes(content)
    real = {(each.producer_id, each.first_offset, each.last_offset) for each in logs.aborted}
    for fetch in range(_END + 1):
        for upper in range(fetch + 1, _END + 14):
            found = index.collect_aborted(fetch, upper)
            reported = {(each.producer_id, each.first_offset, each.last_offset) for each in found.transactions}
            meets = {each for each in real if each[2] >= fetch and each[1] < upper}
            if not meets <= reported <= real or (found.complete and any(first < upper for first in logs.later)):
                return False
    return True


def _of_segment(aborted: list[AbortedTransaction], **fields: Any) -> TransactionsOfSegment:
    """What the logs say of a segment at the start of the log, if nothing else is said."""
    at_start: dict[str, Any] = {"base_offset": 0, "state_source": StateSource.LOG_START, "markers": frozenset()}
    entries = np.frombuffer(_file(aborted), layouts.ABORTED_TRANSACTION)
    return TransactionsOfSegment(aborted=entries, **{**at_start, "later_first_offset": None, **fields})


def test_verdicts_hold_for_every_fetch(rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Goal: what is called safe tells consumers what it should, for all fetches; what is called broken does not."""
    verdicts = Counter[str]()
    for _ in range(10_000 if exhaustive else 150):
        logs = _logs(rng)
        content = _file(_changed(rng, logs.aborted))
        of_segment = _of_segment(logs.aborted, later_first_offset=min(logs.later, default=None))
        finding = audit_transaction_index(np.frombuffer(content, np.uint8), of_segment)
        refused = any(each.last_offset < 0 for each in TransactionIndex.from_bytes(content).all())
        right = _consumers_right(content, logs)
        assert (finding.verdict is Verdict.BROKEN) == (refused or not right), (finding, logs)
        assert (finding.verdict is Verdict.IDENTICAL) == (content == _file(logs.aborted))
        verdicts[f"{finding.verdict} {finding.reason or ''}"] += 1
    say(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))


def test_transactions_that_began_before_the_log() -> None:
    """Where earlier segments are missing, the file may know of beginnings that the log does not show any more."""
    markers = frozenset({(1, 120), (2, 130)})
    transaction = AbortedTransaction(1, 100, 120, 121)
    logs = _of_segment([transaction], base_offset=100, state_source=StateSource.UNKNOWN, markers=markers)
    begun_earlier = _file([AbortedTransaction(1, 90, 120, 80), AbortedTransaction(2, 80, 130, 131)])
    finding = audit_transaction_index(np.frombuffer(begun_earlier, np.uint8), logs)
    assert (finding.verdict, finding.reason) == (Verdict.SAFE, "earlier-transactions")
    known = replace(logs, state_source=StateSource.LOG_START)
    finding = audit_transaction_index(np.frombuffer(begun_earlier, np.uint8), known)
    assert (finding.verdict, finding.reason, finding.position) == (Verdict.BROKEN, "wrong-transaction", 0)
    invented = _file([AbortedTransaction(1, 90, 120, 80), AbortedTransaction(2, 80, 131, 132)])
    finding = audit_transaction_index(np.frombuffer(invented, np.uint8), logs)
    assert (finding.verdict, finding.reason, finding.position) == (Verdict.BROKEN, "wrong-transaction", 34)


def test_files_that_are_missing_or_not_whole() -> None:
    """No file says that nothing was aborted; versions that Kafka refuses, some from 4.4 on; a part of an entry at the
    end.
    """
    aborted = [AbortedTransaction(1, 0, 2, 3), AbortedTransaction(1, 4, 6, 7)]
    logs = _of_segment(aborted)
    assert audit_transaction_index(None, logs).reason == "missing"
    nothing = replace(logs, aborted=logs.aborted[:0])
    assert audit_transaction_index(None, nothing).verdict is Verdict.IDENTICAL
    newer = bytearray(_file(aborted))
    newer[34] = 1
    finding = audit_transaction_index(np.frombuffer(bytes(newer), np.uint8), logs)
    assert (finding.reason, finding.position) == ("fails-sanity-check", 34)
    assert finding.detail is not None and "version 256" in finding.detail
    newer[34:36] = (1).to_bytes(2)
    finding = audit_transaction_index(np.frombuffer(bytes(newer), np.uint8), logs)
    assert (finding.verdict, finding.reason, finding.position) == (Verdict.BROKEN, "fails-sanity-check", 34)
    assert finding.detail is not None and "which only Kafka up to 4.3 takes for that" in finding.detail
    assert "as nothing says which one the node has" in finding.detail
    older = replace(logs, kafka=NodeRelease(registered=KAFKA_4_3))
    finding = audit_transaction_index(np.frombuffer(bytes(newer), np.uint8), older)
    assert (finding.verdict, finding.reason, finding.position) == (Verdict.SAFE, "other-version", 34)
    assert finding.consequence is not None and "from 4.4 on a broker that starts fails" in finding.consequence
    newer[:8] = (2**40).to_bytes(8)  # another producer, too
    assert audit_transaction_index(np.frombuffer(bytes(newer), np.uint8), older).reason == "wrong-transaction"
    finding = audit_transaction_index(np.frombuffer(_file(aborted) + b"\0" * 5, np.uint8), logs)
    assert (finding.verdict, finding.reason, finding.position) == (Verdict.SAFE, "partial-entry", 68)
