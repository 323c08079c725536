"""Transaction indexes as followers wrote them, and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from kidxlib.format import layouts
from tests.support.damages.damage import ABORTED, LARGE_ABORTED, SMALL, Damage, Entries, file_name
from tests.support.damages.edits import add_to_field, changed_entries, exactly, followed_by, removed, set_field, without


def _aborted(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return changed_entries(layouts.ABORTED_TRANSACTION, change)


def _transaction(producer_id: int, first: int, last: int, stable: int) -> bytes:
    return np.array([(0, producer_id, first, last, stable)], layouts.ABORTED_TRANSACTION).tobytes()


TRANSACTION_INDEXES: Final = [
    Damage("missing", LARGE_ABORTED, removed, "broken", "missing"),
    Damage("without entries", LARGE_ABORTED, exactly(b""), "broken", "missing-transaction"),
    Damage("first one missing", LARGE_ABORTED, _aborted(without(0)), "broken", "missing-transaction"),
    Damage("last one missing", LARGE_ABORTED, _aborted(without(-1)), "broken", "missing-transaction"),
    Damage(
        "one that was committed",
        LARGE_ABORTED,
        followed_by(_transaction(5, 5000, 5100, 5101)),
        "broken",
        "wrong-transaction",
    ),
    Damage(
        "in a segment without any",
        file_name(SMALL, ABORTED),
        exactly(_transaction(5, 5800, 5810, 5811)),
        "broken",
        "wrong-transaction",
    ),
    Damage(
        "another producer's", LARGE_ABORTED, _aborted(add_to_field(3, "producer_id", 7)), "broken", "wrong-transaction"
    ),
    Damage("begins later", LARGE_ABORTED, _aborted(add_to_field(1, "first_offset", 5)), "broken", "wrong-transaction"),
    Damage(
        "last stable offset too small",
        LARGE_ABORTED,
        _aborted(add_to_field(1, "last_stable_offset", -100)),
        "safe",
        "other-last-stable-offset",
    ),
    Damage(
        "last stable offset too large",
        LARGE_ABORTED,
        _aborted(add_to_field(1, "last_stable_offset", 3000)),
        "broken",
        "last-stable-offset-too-large",
    ),
    Damage("a part of an entry more", LARGE_ABORTED, followed_by(bytes(20)), "safe", "partial-entry"),
    Damage(
        "of a version to come",
        LARGE_ABORTED,
        _aborted(set_field(2, "version", lambda _: 256)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of a version that Kafka 4.3 takes for 0",
        LARGE_ABORTED,
        _aborted(set_field(2, "version", lambda _: 1)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of offsets below the base",
        LARGE_ABORTED,
        _aborted(set_field(2, "last_offset", lambda _: 5)),
        "broken",
        "fails-sanity-check",
    ),
]
