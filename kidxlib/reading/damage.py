"""Damage of a log, which ends the reading, or is reported while reading goes on behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from kidxlib.errors import DamagedLogError

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A stretch of a log that cannot be read.

    Attributes:
        position: the byte of the log at which the stretch begins.
        end: the byte at which reading goes on; None if it does not.
        first_offset: the first offset that may be lost.
        next_offset: the offset at which reading goes on; None if it does not in this segment.
        reason: what was found, and what was expected.
        is_end: whether the log ends there too early: nothing follows.
        is_whole_log: whether the stretch is a whole log that is not read because it may be another partition's.
    """

    path: str
    topic: str
    partition: int
    position: int
    end: int | None
    first_offset: int
    next_offset: int | None
    reason: str
    is_end: bool = False
    is_whole_log: bool = False

    def __str__(self) -> str:
        return f"{self.path}: byte {self.position}: {self.reason}"

    @property
    def lost(self) -> str:
        """The lost offsets in words."""
        end = "to the end of the segment" if self.next_offset is None else f"to {self.next_offset - 1}"
        return f"offsets {self.first_offset} {end}{' of that log' if self.is_whole_log else ''}"


#: Is called with each stretch that is not read.
TakeDamage: TypeAlias = Callable[[Damage], object]
OnDamage: TypeAlias = Literal["fail", "skip"] | TakeDamage


def warn_of_unfinished(path: str, position: int, size: int) -> None:
    """Say that a log ends with an unfinished append: it is no damage, as a broker cuts it off."""
    _log.warning("%s: byte %d: %d bytes that are no whole batch; not read", path, position, size - position)


def fail_on(damage: Damage) -> NoReturn:
    if damage.is_end:
        raise DamagedLogError(f"{damage}; all that is there was read: look for a replica or a copy that has the rest")
    raise DamagedLogError(
        f"{damage}; what comes before it was read. --skip-damage (in Python on_damage='skip') reads what comes after it"
    )


def warn_of(damage: Damage) -> None:
    _log.warning("%s; not read: %s", damage, damage.lost)
