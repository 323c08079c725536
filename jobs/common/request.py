"""What a build is asked to do: the command line's options and the settings file, put together and checked. And what
requests of other jobs share with it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from jobs.common.open_catalog import local_path, refuse_no_catalog, refuse_unusable
from jobs.common.settings import Settings, TopicSettings, read_settings
from jobs.common.sources import chosen_sources, refuse_sample_among_others
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.plan import (
    REPAIRED_SIDE_FILES,
    SideFiles,
    Target,
    mirror_to_write,
    parse_topics,
    refuse_overlap,
)
from kidxlib.recover import RecoverOptions
from kidxlib.times import parse_time

#: From renaming a file until it is removed (`file.delete.delay.ms`).
DELETE_DELAY: Final = "60s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The catalog, the time it is, and the place of Spark's event logs.

    Attributes:
        catalog: absolute path or URL of its folder; None where `database` names it, or there is none.
        event_log_dir: absolute path or URL of a folder; None where no logs are wanted.
    """

    catalog: str | None
    database: str | None
    now: datetime
    event_log_dir: str | None

    @classmethod
    def given(cls, settings: Settings, catalog: str | None, database: str | None, now: str | None) -> Self:
        """Of options and settings, but the catalog of options alone: there may be none.

        Raises:
            UsageError: both name a catalog, or `now` is no time.
        """
        if catalog and database:
            raise UsageError("--catalog and --database: give one of them")
        return cls(
            catalog=None if catalog is None else absolute(catalog),
            database=database,
            now=datetime.now(UTC) if now is None else parse_time(now),
            event_log_dir=absolute(settings.spark.event_log_dir) if settings.spark.event_log_dir else None,
        )

    @classmethod
    def of(cls, settings: Settings, catalog: str | None, database: str | None, now: str | None) -> Self:
        """Likewise, but where options name no catalog it is that of the settings."""
        return cls.given(settings, catalog or (None if database else settings.build.catalog), database, now)

    def with_catalog(self) -> Self:
        """It, for a job that makes no catalog.

        Raises:
            UsageError: there is none, as far as this machine can tell before Spark is started.
        """
        if self.catalog is not None:
            refuse_no_catalog(self.catalog)
        return self


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
        where: its time is recorded.
        interval_bytes, max_index_bytes: None where no option was given and the settings decide by topic.
    """

    where: Where
    sources: tuple[Source, ...]
    target: Target
    topics: re.Pattern[str]
    interval_bytes: int | None
    max_index_bytes: int | None
    verify_crc: bool
    side_files: SideFiles
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
            "snapshots": self.side_files.snapshots,
            "epochs": self.side_files.epochs,
            "rebuild": self.rebuild,
            "repair": self.repair,
        }


def recover_options(
    settings: Settings, topic: str, interval_bytes: int | None, max_index_bytes: int | None = None
) -> RecoverOptions:
    """What a topic's indexes are like: the option, else the first matching [[topic]], else [build]."""
    build = settings.build
    matching = (entry for entry in settings.topic if re.fullmatch(entry.match, topic))
    own = next(matching, TopicSettings(match=""))

    def choose(*values: int | None) -> int:
        return next(value for value in values if value is not None)

    return RecoverOptions(
        interval_bytes=choose(interval_bytes, own.interval_bytes, build.interval_bytes),
        max_index_bytes=choose(max_index_bytes, own.max_index_bytes, build.max_index_bytes),
    )


def build_request(options: BuildOptions) -> BuildRequest:
    """Put options and settings together.

    Raises:
        UsageError: the settings file or an option is wrong, or two options contradict each other.
    """
    settings = read_settings(options.settings_file)
    where = Where.of(settings, options.catalog, options.database, options.now)
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
    if not options.sources and not options.sample and where.catalog is not None:
        refuse_sample_among_others(where.catalog)
    index_dir = None if options.in_place else mirror_to_write("--index-dir", options.index_dir or build.index_dir)
    refuse_overlap(index_dir, where.catalog, sources)
    if where.catalog is not None:
        refuse_unusable(where.catalog)
    return BuildRequest(
        sources=sources,
        target=Target(
            index_dir=index_dir,
            by_source=len(sources) > 1,
            publish_truncated=options.accept_truncated or not options.in_place,
        ),
        where=where,
        topics=parse_topics(build.topics if options.topics is None else options.topics),
        interval_bytes=options.interval_bytes,
        max_index_bytes=options.max_index_bytes,
        verify_crc=build.verify_crc if options.verify_crc is None else options.verify_crc,
        side_files=REPAIRED_SIDE_FILES
        if options.repair
        else SideFiles(
            snapshots=build.snapshots if options.snapshots is None else options.snapshots,
            epochs=build.epochs if options.epochs is None else options.epochs,
        ),
        rebuild=options.rebuild,
        repair=options.repair,
        settings=settings,
    )


def absolute(location: str) -> str:
    """A path as executors know it, whatever folder the command was given in; a URL as it is."""
    path = local_path(location)
    return path if "://" in path else os.path.realpath(path)
