"""What a build asks of whoever keeps its catalog and does its work: Spark, or the processes of one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from kidxlib.build.changes import Changes, FirstPresent
from kidxlib.build.source import Source
from kidxlib.build.summary import Counts
from kidxlib.build.tasks import BuildTask, PartitionTask
from kidxlib.catalog.builds import BuildRow
from kidxlib.catalog.findings import JudgedFile
from kidxlib.catalog.partitions import PartitionRow
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.known_damage import KnownDamage
from kidxlib.terminal.phase import Done


class KnownCatalog(Protocol):
    """What the catalog says, for a build to compare its listing with and to report."""

    @property
    def path(self) -> str:
        """The directory or URL below which its tables are."""

    def version(self) -> int | None:
        """The version of its columns; None where not all of its tables are there.

        Raises:
            CatalogError: something else stands where a table should be, or a newer version wrote it.
        """

    def has_segments(self) -> bool:
        """Whether the table `segments` is there."""

    def known_segments(self, sources: Sequence[str], topics: re.Pattern[str]) -> pa.Table:
        """The rows of `KNOWN` of some sources and topics."""

    def index_directories_of_others(self, sources: Sequence[str]) -> Mapping[str, str]:
        """The index directories of every source but these, and whose they are."""

    def last_rate(self) -> float | None:
        """Bytes a second at which the last build that read anything did so; None where none did."""

    def audited_sources(self) -> Sequence[str]:
        """The sources that were ever audited."""

    def broken_files(self, sources: Sequence[str]) -> Sequence[JudgedFile]:
        """What the audits that last looked at the partitions of some sources found broken, and is not missing."""

    def damage(self, sources: Sequence[str], topics: re.Pattern[str], gone: pa.Table | None) -> KnownDamage:
        """How the segments stand.

        Args:
            gone: keys of segments that a listing did not find, if that is not recorded yet.
        """

    def offsets(self, sources: Sequence[str]) -> Mapping[PartitionKey, tuple[int, int | None]]:
        """The first base offset and the last next offset of the segments that are present, by partition."""

    def known_partitions(self, sources: Sequence[str]) -> Sequence[PartitionRow]:
        """The rows of `partitions` of some sources."""


class CatalogToBuild(KnownCatalog, Protocol):
    """A catalog that a build writes to: each change is one commit of one table."""

    def make_tables(self, found: int | None) -> bool:
        """Make the tables that are missing, and bring the others up to this version.

        Args:
            found: what `version` said.

        Returns:
            Whether the catalog is new.
        """

    def mark(self, changes: Changes, build_id: str) -> int:
        """Record what a listing alone shows; return how many rows of `segments` that changed."""

    def merge_partitions(self, rows: Sequence[PartitionRow]) -> None:
        """Add or replace rows of `partitions`."""

    def append_build(self, build: BuildRow) -> None:
        """Add the row of one run."""

    def sweep_staging(self, older_than_ms: int) -> None:
        """Remove what killed runs left, where it was last written before then (milliseconds since the epoch)."""


class ScannedWave(Protocol):
    """The rows of segments that were read, which lie on disk."""

    def record(self, build_id: str) -> int:
        """Write them into the catalog; return how many rows of `segments` were added or changed."""

    def count(self, counts: Counts) -> None:
        """Add them to the counts."""


class FinishedPartitions(Protocol):
    """The rows of partitions that were finished, which lie on disk."""

    def count(self, counts: Counts) -> None:
        """Add them to the counts. To be asked before they are recorded."""

    def record(self, build_id: str) -> int:
        """Write them into the catalog; return how many rows of `segments` changed that this build had not changed."""


class BuildBackend(Protocol):
    """Workers, and the catalog that they share."""

    @property
    def catalog(self) -> CatalogToBuild:
        """The catalog."""

    @property
    def cores(self) -> int:
        """How many bins of work are done at a time."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of what does the work, besides this project and Python: recorded in `builds`."""

    def beginning_workers(self, wanted: bool) -> AbstractContextManager[None]:
        """Within the context workers start, if wanted, while something else is done."""

    def stopping(self) -> AbstractContextManager[None]:
        """While the context lasts, work that was begun comes to its end where the run is interrupted."""

    def done(self) -> Done:
        """How much was read in all scans, as units end."""

    def scan(
        self, name: str, bins: Sequence[Sequence[BuildTask]], sources: Sequence[Source]
    ) -> AbstractContextManager[ScannedWave]:
        """Read segments, biggest first, and write their indexes. What was found is there within the context.

        Args:
            name: of the directory in which the rows lie meanwhile.
        """

    def finish(
        self, name: str, tasks: Mapping[PartitionKey, PartitionTask], first_present: Mapping[PartitionKey, FirstPresent]
    ) -> AbstractContextManager[FinishedPartitions]:
        """Finish partitions from what the catalog has of their segments.

        Args:
            tasks, first_present: of the same partitions.
        """
