"""Why log dirs cannot be made ready."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason, and what to do about it.

    Attributes:
        text: the line that a person reads.
        recovers: a broker that starts comes over it by itself, as after any crash. Else the line says what the broker
            does, or that nobody knows.
        is_loss: --accept-loss goes on without what it names.
    """

    text: str
    recovers: bool = False
    is_loss: bool = False
