"""What the log dirs of a catalog miss (`Missing`): nothing that a plan or a report decides on, so that they name it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Self

from kidxlib.operations.damage.gaps import KnownGaps, gaps_between, known_logs, recorded_policies_and_directories
from kidxlib.operations.damage.lost import ExpectedInLogDirs, Lost, NotBuilt
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.sources import ListedSources, NotReached, as_sources, source_paths
from kidxlib.tables.protocol import TablesToRead


@dataclass(frozen=True, slots=True)
class Missing:
    """What is missing and was not deleted by retention: offsets between logs, whole partitions, ends of logs.

    Attributes:
        not_reached, not_built: as in `ExpectedInLogDirs`.
    """

    gaps: KnownGaps
    lost: Lost
    not_reached: tuple[NotReached, ...]
    not_built: tuple[NotBuilt, ...]

    @classmethod
    def in_sources(
        cls,
        tables: TablesToRead,
        names: Collection[str],
        topics: re.Pattern[str],
        known: KnownTopics,
        seen: ListedSources,
    ) -> Self:
        """Everything that is missing in these sources by the catalog, the checkpoints and the metadata of the sources'
        clusters. `seen` are the sources as they were listed.
        """
        sources = [source for source in as_sources(source_paths(tables)) if source.name in names]
        policy_of, directories = recorded_policies_and_directories(tables, names, known)
        expected_in_log_dirs = ExpectedInLogDirs.recorded(tables, sources, topics, known, seen)
        logs = known_logs(tables, names, topics)
        return cls(
            gaps_between(tables, logs, policy_of, directories),
            expected_in_log_dirs.lost(tables, logs),
            expected_in_log_dirs.not_reached,
            expected_in_log_dirs.not_built,
        )

    @property
    def is_loss(self) -> bool:
        """Whether something is missing that nobody has accepted, or could not be looked for."""
        return bool(self.gaps.found.lost or self.not_reached) or self.lost.is_loss

    @property
    def counts(self) -> dict[str, int]:
        return {**self.gaps.counts, **self.lost.counts, "not_reached": len(self.not_reached)}

    def as_json(self) -> dict[str, Any]:
        return {**self.gaps.as_json(), **self.in_log_dirs_as_json()}

    def in_log_dirs_as_json(self) -> dict[str, Any]:
        """What is missing but for gaps."""
        not_reached = [source.as_json() for source in self.not_reached]
        not_built = [asdict(log_dir) for log_dir in self.not_built]
        return {**self.lost.as_json(), "not_reached": not_reached, "not_built": not_built}
