"""One run of a build: what it works with, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kidxlib.build.changes import PartitionChange
from kidxlib.build.plan import Plan
from kidxlib.build.summary import Counts
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.request import BuildRequest


@dataclass(frozen=True, slots=True)
class BuildRun:
    """What a run works with.

    Attributes:
        commit: commits the changes of `segments` that are held; changes of other tables are never held.
    """

    request: BuildRequest
    plan: Plan
    backend: Backend
    build_id: str
    commit: Callable[[], None]


@dataclass(slots=True)
class Scanned:
    """What a build has read so far, wave by wave.

    Attributes:
        seconds: that waves took until their results were there.
        read_seconds: in which some executor was reading: less what it took to begin.
        finishing: how many groups of partitions were finished.
        rows_changed: of `segments`, by what was read and by what was finished.
        unfinished: partitions that are to be finished still.
    """

    unfinished: dict[PartitionKey, PartitionChange]
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    read_seconds: float = 0.0
    waves: int = 0
    finishing: int = 0
    rows_changed: int = 0
