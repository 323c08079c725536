"""What a build is asked for: options and settings, put together and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from kidxlib.build.directories import Target
from kidxlib.build.plan import REPAIRED_AUXILIARY_FILES, AuxiliaryFiles
from kidxlib.build.source import Source
from kidxlib.errors import UsageError
from kidxlib.recovery.options import RecoverOptions
from kidxlib.run.catalog_place import ensure_usable
from kidxlib.run.context import RunContext
from kidxlib.run.settings import Settings, read_settings
from kidxlib.run.sources import chosen_sources, ensure_sample_alone
from kidxlib.run.topic_options import recover_options
from kidxlib.terminal.options.directories import ensure_no_overlap, index_dir_to_write
from kidxlib.terminal.options.sources import parse_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options as they were given; None, empty or False where they were not."""

    sources: tuple[str, ...]
    sample: bool
    index_dir: str | None
    in_place: bool
    accept_truncated: bool
    catalog: str | None
    database: str | None
    topics: str | None
    interval_bytes: int | None
    max_index_bytes: int | None
    verify_crc: bool | None
    snapshots: bool | None
    epochs: bool | None
    rebuild: bool
    repair: bool
    settings_file: Path
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to do.

    Attributes:
        context: its time is recorded.
        publish_truncated: publish the index of a valid prefix too.
        interval_bytes, max_index_bytes: None where no option was given and the settings decide by topic.
    """

    context: RunContext
    sources: tuple[Source, ...]
    target: Target
    publish_truncated: bool
    topics: re.Pattern[str]
    interval_bytes: int | None
    max_index_bytes: int | None
    verify_crc: bool
    auxiliary_files: AuxiliaryFiles
    rebuild: bool
    repair: bool
    settings: Settings

    @property
    def in_place(self) -> bool:
        return self.target.index_dir is None

    @property
    def all_topics(self) -> bool:
        return self.topics.pattern == ".*" and not self.repair

    def recover_options(self, topic: str) -> RecoverOptions:
        """What a topic's indexes are built with."""
        return replace(
            recover_options(self.settings, topic, self.interval_bytes, self.max_index_bytes), verify_crc=self.verify_crc
        )

    def recorded(self) -> dict[str, str | int | bool | None]:
        """The options as they came out of the command line and the settings."""
        return {
            "index_dir": None if self.target.index_dir is None else str(self.target.index_dir),
            "in_place": self.in_place,
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
            "max_index_bytes": self.max_index_bytes,
            "verify_crc": self.verify_crc,
            "snapshots": self.auxiliary_files.snapshots,
            "epochs": self.auxiliary_files.epochs,
            "rebuild": self.rebuild,
            "repair": self.repair,
        }


def build_request(options: BuildOptions) -> BuildRequest:
    """Put options and settings together.

    Raises:
        UsageError: the settings file or an option is wrong, or two options contradict each other.
    """
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, options.now)
    for wrong, message in (
        (options.in_place and options.index_dir, "--in-place and --index-dir: give one of them"),
        (options.in_place and not options.sources, "--in-place: name the log dir to write in with --source"),
        (options.rebuild and options.repair, "--rebuild and --repair: give one of them"),
        (options.accept_truncated and not options.in_place, "--accept-truncated: only --in-place needs it"),
    ):
        if wrong:
            raise UsageError(message)
    build = settings.build
    named = {
        "--index-dir": options.index_dir,
        "--catalog": options.catalog,
        "--database": options.database,
    }
    sources = chosen_sources(options.sources, sample=options.sample, options=named, settings=build)
    if not options.sources and not options.sample and context.catalog is not None:
        ensure_sample_alone(context.catalog)
    index_dir = None if options.in_place else index_dir_to_write("--index-dir", options.index_dir or build.index_dir)
    ensure_no_overlap(index_dir, context.catalog, sources)
    if context.catalog is not None:
        ensure_usable(context.catalog)
    return BuildRequest(
        sources=sources,
        target=Target(index_dir=index_dir, by_source=len(sources) > 1),
        publish_truncated=options.accept_truncated or not options.in_place,
        context=context,
        topics=parse_topics(build.topics if options.topics is None else options.topics),
        interval_bytes=options.interval_bytes,
        max_index_bytes=options.max_index_bytes,
        verify_crc=build.verify_crc if options.verify_crc is None else options.verify_crc,
        auxiliary_files=REPAIRED_AUXILIARY_FILES
        if options.repair
        else AuxiliaryFiles(
            snapshots=build.snapshots if options.snapshots is None else options.snapshots,
            epochs=build.epochs if options.epochs is None else options.epochs,
        ),
        rebuild=options.rebuild,
        repair=options.repair,
        settings=settings,
    )
