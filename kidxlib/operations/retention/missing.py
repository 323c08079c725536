"""What is missing of the partitions that are planned: nothing of it is decided on, so that a plan says it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Self

from kidxlib.indexing.source import Source
from kidxlib.operations.damage.gaps import KnownGaps, asked_of_recorded, gaps_between, known_logs
from kidxlib.operations.damage.lost import Lost, OfLogDirs, not_reached
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.recorded_sources import as_sources, source_paths
from kidxlib.tables.protocol import TablesToRead


@dataclass(frozen=True, slots=True)
class Missing:
    """What retention cannot have taken: gaps between logs, whole partitions, ends of logs.

    Attributes:
        not_reached, empty: sources as in `OfLogDirs`: what is planned of them is what the catalog had.
    """

    gaps: KnownGaps
    lost: Lost
    not_reached: tuple[Source, ...] = ()
    empty: tuple[Source, ...] = ()

    @classmethod
    def of(cls, tables: TablesToRead, names: Collection[str], topics: re.Pattern[str], known: KnownTopics) -> Self:
        """What is missing, as far as catalog, checkpoints and metadata tell.

        Args:
            names: of sources.
            known: what the sources' clusters say.
        """
        sources = [each for each in as_sources(source_paths(tables)) if each.name in names]
        policy_of, directories = asked_of_recorded(tables, names, known)
        of_log_dirs = OfLogDirs.recorded(tables, sources, topics, known)
        logs = known_logs(tables, names, topics)
        return cls(
            gaps_between(tables, logs, policy_of, directories),
            of_log_dirs.lost(tables, logs),
            of_log_dirs.not_reached,
            of_log_dirs.empty,
        )

    @property
    def is_loss(self) -> bool:
        """Whether there is something that nobody has accepted, or has looked for."""
        return bool(self.gaps.found.lost or self.empty or self.not_reached) or self.lost.is_loss

    @property
    def counts(self) -> dict[str, int]:
        return {**self.gaps.counts, **self.lost.counts, "not_reached": len(self.empty) + len(self.not_reached)}

    def as_json(self) -> dict[str, Any]:
        return {**self.gaps.as_json(), **self.lost.as_json(), "not_reached": not_reached(self.empty, self.not_reached)}

    def lines(self, *, many_sources: bool) -> Iterator[str]:
        """What is missing, a line for each topic and reason."""
        by_catalog = "What is planned there is by the catalog, of segments that nobody has looked for"
        for each in self.empty:
            yield f"broken: source {each.name} ({each.path}): nothing is in it: is the disk mounted? {by_catalog}"
        for each in self.not_reached:
            yield f"source {each.name} ({each.path}): cannot be listed here: is the disk mounted? {by_catalog}"
        yield from self.gaps.lines(many_sources=many_sources)
        yield from self.lost.lines(many_sources=many_sources)
