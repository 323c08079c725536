"""Producer snapshots as brokers leave them, and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import google_crc32c

from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.recovery.partition_fold import Producers
from tests.support.damages.damage import END, SMALL, SNAPSHOT, Damage, Entries, file_name
from tests.support.damages.edits import add_to_field, exactly, set_field, without


def _producers(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    def changed(content: bytes, _: Path) -> bytes:
        entries = read_snapshot(content).copy()
        others = change(entries)
        return _snapshot(entries if others is None else others)

    return changed


def _snapshot(entries: Entries, version: int = 1) -> bytes:
    covered: bytes = len(entries).to_bytes(4) + entries.tobytes()
    checksum: int = google_crc32c.value(covered)
    return version.to_bytes(2) + checksum.to_bytes(4) + covered


_SMALL_SNAPSHOT: Final = file_name(SMALL, SNAPSHOT)

SNAPSHOTS: Final = [
    Damage("a bit flipped", _SMALL_SNAPSHOT, lambda content, _: content[:-1] + b"\7", "broken", "unreadable"),
    Damage("empty", _SMALL_SNAPSHOT, exactly(b""), "broken", "unreadable"),
    Damage(
        "of a version to come",
        _SMALL_SNAPSHOT,
        lambda content, _: _snapshot(read_snapshot(content), version=2),
        "broken",
        "unreadable",
    ),
    Damage("in another order", _SMALL_SNAPSHOT, _producers(lambda entries: entries[::-1]), "safe", "other-order"),
    Damage("without an idle producer", _SMALL_SNAPSHOT, _producers(without(1)), "safe", "expired-producers"),
    Damage("without an open transaction", _SMALL_SNAPSHOT, _producers(without(0)), "broken", "missing-transaction"),
    Damage(
        "another sequence number",
        _SMALL_SNAPSHOT,
        _producers(add_to_field(0, "last_sequence", 1)),
        "broken",
        "wrong-producer",
    ),
    Damage(
        "an open transaction that has ended",
        _SMALL_SNAPSHOT,
        _producers(set_field(1, "current_transaction_first_offset", lambda _: 5000)),
        "broken",
        "wrong-producer",
    ),
    Damage("of no segment", file_name(4000, SNAPSHOT), exactly(Producers().snapshot()), "safe", "stray"),
    Damage(
        "nothing of the end", file_name(END, SNAPSHOT), exactly(Producers().snapshot()), "safe", "expired-producers"
    ),
]
