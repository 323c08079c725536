"""Leader epoch checkpoints as brokers leave them, and damaged."""

from __future__ import annotations

from typing import Final

from tests.support.damages.damage import END, EPOCHS, Damage
from tests.support.damages.edits import exactly, removed

LEADER_EPOCHS: Final = [
    Damage("missing", EPOCHS, removed, "broken", "missing-epoch"),
    Damage("without entries", EPOCHS, exactly(b"0\n0\n"), "broken", "missing-epoch"),
    Damage("no numbers", EPOCHS, exactly(b"0\n1\nzero 0\n"), "broken", "unreadable"),
    Damage("fewer than it says", EPOCHS, exactly(b"0\n2\n0 0\n"), "broken", "unreadable"),
    Damage("begins amid an epoch", EPOCHS, exactly(b"0\n1\n0 5\n"), "safe", "later-log-start"),
    Damage("begins anew, amid an epoch", EPOCHS, exactly(b"0\n1\n1 5\n"), "broken", "missing-epoch"),
    Damage("begins behind the end", EPOCHS, exactly(f"0\n1\n0 {END + 1}\n".encode()), "broken", "wrong-start-offset"),
    Damage(
        "a leader that wrote nothing",
        EPOCHS,
        exactly(f"0\n2\n0 0\n3 {END}\n".encode()),
        "safe",
        "epochs-without-batches",
    ),
]
