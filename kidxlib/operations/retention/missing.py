"""What is missing of the partitions that are planned: nothing of it is decided on, so that a plan says it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from kidxlib.operations.damage.gaps import KnownGaps, asked_of_recorded, gaps_between, known_logs
from kidxlib.operations.damage.lost import Lost, NotBuilt, OfLogDirs
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.recorded_sources import NotReached, Seen, as_sources, source_paths
from kidxlib.tables.protocol import TablesToRead


@dataclass(frozen=True, slots=True)
class Missing:
    """What retention cannot have taken: gaps between logs, whole partitions, ends of logs.

    Attributes:
        not_reached: sources as in `OfLogDirs`: what is planned of them is what the catalog had.
        not_built: as there: nothing is planned there.
    """

    gaps: KnownGaps
    lost: Lost
    not_reached: tuple[NotReached, ...] = ()
    not_built: tuple[NotBuilt, ...] = ()

    @classmethod
    def of(
        cls, tables: TablesToRead, names: Collection[str], topics: re.Pattern[str], known: KnownTopics, seen: Seen
    ) -> Self:
        """What is missing, as far as catalog, checkpoints and metadata tell.

        Args:
            names: of sources.
            known: what the sources' clusters say.
            seen: these sources, as they were listed.
        """
        sources = [each for each in as_sources(source_paths(tables)) if each.name in names]
        policy_of, directories = asked_of_recorded(tables, names, known)
        of_log_dirs = OfLogDirs.recorded(tables, sources, topics, known, seen)
        logs = known_logs(tables, names, topics)
        return cls(
            gaps_between(tables, logs, policy_of, directories),
            of_log_dirs.lost(tables, logs),
            of_log_dirs.not_reached,
            of_log_dirs.not_built,
        )

    @property
    def is_loss(self) -> bool:
        """Whether there is something that nobody has accepted, or has looked for."""
        return bool(self.gaps.found.lost or self.not_reached) or self.lost.is_loss

    @property
    def counts(self) -> dict[str, int]:
        return {**self.gaps.counts, **self.lost.counts, "not_reached": len(self.not_reached)}

    def as_json(self) -> dict[str, Any]:
        not_reached = [each.as_json() for each in self.not_reached]
        not_built = [asdict(each) for each in self.not_built]
        return {**self.gaps.as_json(), **self.lost.as_json(), "not_reached": not_reached, "not_built": not_built}

    def lines(self, *, many_sources: bool) -> Iterator[str]:
        """What is missing, a line for each topic and reason."""
        by_catalog = "What is planned there is by the catalog, of segments that nobody has looked for"
        for each in self.not_reached:
            yield f"{'broken: ' if each.is_empty else ''}{each} {by_catalog}"
        yield from (f"not planned: {each}" for each in self.not_built)
        yield from self.gaps.lines(many_sources=many_sources)
        yield from self.lost.lines(many_sources=many_sources)
