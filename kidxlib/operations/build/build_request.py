"""What a build is to do, and the limits of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from kidxlib.indexing.plan import AuxiliaryFiles
from kidxlib.indexing.source import IndexPlace, Source
from kidxlib.operations.maintenance import OptimizeLimits
from kidxlib.run.context import RunContext
from kidxlib.run.index_options import OptionsFor
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.packed import PackedPath


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits:
    """How much is read before it is recorded, and how long a run may take.

    Attributes:
        wave_bytes, wave_seconds: of one wave, whichever ends first.
        longest_run: index files staged earlier than this are a killed run's; so are folders without a heartbeat.
        driver_listing_max: how many segments the command lists and compares itself; if there are more, workers do.
    """

    wave_bytes: int = 256 * 1024**3
    wave_seconds: int = 600
    longest_run: timedelta = timedelta(hours=24)
    driver_listing_max: int = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to build.

    Attributes:
        context: with the time that is recorded.
        names_index_dir: the index directory was given, or the files are packed; it is not taken from the settings.
        publish_truncated: publish the index of a valid prefix too.
        interval_bytes, max_index_bytes: None where no option was given and the settings decide by topic.
        options_for: the options of a partition's indexes.
        known_topics: topics in the metadata of the sources' clusters.
        fill_bytes: read logs of so many bytes together for facts that are not known; None for none.
        plans_on_workers: workers list and compare, however few segments there are.
        optimize: how the catalog's tables are put in order at the end; None for not at all.
    """

    context: RunContext
    sources: tuple[Source, ...]
    index_place: IndexPlace
    publish_truncated: bool
    topics: re.Pattern[str]
    interval_bytes: int | None
    max_index_bytes: int | None
    verify_crc: bool
    auxiliary_files: AuxiliaryFiles
    rebuild: bool
    repair: bool
    options_for: OptionsFor
    names_index_dir: bool = False
    known_topics: KnownTopics = field(default_factory=KnownTopics)
    fill_bytes: int | None = None
    plans_on_workers: bool = False
    optimize: OptimizeLimits | None = None
    limits: BuildLimits = field(default_factory=BuildLimits)

    @property
    def in_place(self) -> bool:
        return self.index_place.index_dir is None

    @property
    def packs(self) -> bool:
        """The catalog keeps the index files."""
        return isinstance(self.index_place.index_dir, PackedPath)

    @property
    def keeps_catalog(self) -> bool:
        """Else a run knows nothing of the one before it."""
        return self.context.catalog is not None or self.context.database is not None

    @property
    def all_topics(self) -> bool:
        return self.topics.pattern == ".*" and not self.repair

    def recorded(self) -> dict[str, str | int | bool | None]:
        """The options of the command line and the settings, for the row of `builds`."""
        return {
            # The catalog may move, and what is packed in it with it.
            "index_dir": None if self.index_place.index_dir is None or self.packs else str(self.index_place.index_dir),
            "in_place": self.in_place,
            "pack": self.packs,
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
            "max_index_bytes": self.max_index_bytes,
            "verify_crc": self.verify_crc,
            "snapshots": self.auxiliary_files.snapshots,
            "epochs": self.auxiliary_files.epochs,
            "rebuild": self.rebuild,
            "fill_facts": self.fill_bytes,
            "repair": self.repair,
            "cluster_metadata": self.known_topics.as_of,
        }
