"""An obstacle: what a node meets as it starts, that keeps it from starting, from a log dir, or from records."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kidxlib.storage.location import Location


class Effect(enum.StrEnum):
    """What comes of an obstacle, the worst first."""

    ENDS = "ends"  # the node does not start, with any of its log dirs
    LOG_DIR = "log-dir"  # it takes the log dir out of use, and ends if it has no other
    HIDES = "hides"  # it starts, and does not serve some records, sets them aside or drops them
    UNKNOWN = "unknown"  # what it takes from the file is not known


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that a node meets as it starts.

    Attributes:
        where: the file or directory.
        found: what was found there, and what was expected.
        effect: of which kind what the node does is.
        does: what the node does, in words.
        remedy: what to do, with the price of that.
        is_loss: records are missing, and nothing else keeps the node from starting: somebody may accept that.
    """

    where: Location
    found: str
    effect: Effect
    does: str
    remedy: str = ""
    is_loss: bool = False

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.where}: {self.found}", self.does, self.remedy)))
