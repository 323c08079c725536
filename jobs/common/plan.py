"""What a build is asked to do, and the segments that this comes to: sources listed, a task for each segment."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobs.common.settings import Settings, TopicSettings
from kidxlib.build import BuildTask
from kidxlib.discover import LeftAlone, Source, list_partitions, list_segments, parse_source
from kidxlib.errors import UsageError
from kidxlib.recover import RecoverOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Options and settings put together.

    Attributes:
        index_dir: absolute; where index files go.
        catalog: absolute path or URL of the catalog's folder; None where `database` names it.
        interval_bytes, max_index_bytes: None where no option was given and the settings decide by topic.
        now: the time to record.
    """

    sources: tuple[Source, ...]
    index_dir: Path
    catalog: str | None
    database: str | None
    topics: re.Pattern[str]
    interval_bytes: int | None
    max_index_bytes: int | None
    verify_crc: bool
    settings: Settings
    now: datetime

    def recover_options(self, topic: str) -> RecoverOptions:
        """What a topic's indexes are built with: the option, else the first matching [[topic]], else [build]."""
        build = self.settings.build
        own = next(
            (entry for entry in self.settings.topic if re.fullmatch(entry.match, topic)), TopicSettings(match="")
        )

        def choose(*values: int | None) -> int:
            return next(value for value in values if value is not None)

        return RecoverOptions(
            interval_bytes=choose(self.interval_bytes, own.interval_bytes, build.interval_bytes),
            max_index_bytes=choose(self.max_index_bytes, own.max_index_bytes, build.max_index_bytes),
            verify_crc=self.verify_crc,
        )

    def recorded(self) -> dict[str, str | None]:
        """The options as the catalog keeps them."""

        def text(value: object) -> str | None:
            return None if value is None else str(value)

        return {
            "index_dir": text(self.index_dir),
            "topics": self.topics.pattern,
            "interval_bytes": text(self.interval_bytes),
            "max_index_bytes": text(self.max_index_bytes),
            "verify_crc": text(self.verify_crc),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found to index, and what was left alone."""

    tasks: tuple[BuildTask, ...]
    partitions: int
    left_alone: LeftAlone
    empty_sources: tuple[Source, ...]

    @property
    def log_bytes(self) -> int:
        return sum(task.log_bytes for task in self.tasks)


def find_segments(request: BuildRequest) -> Plan:
    """List the sources.

    Raises:
        UsageError: there is nothing to index in any of them.
    """
    tasks: list[BuildTask] = []
    left_alone = LeftAlone()
    partitions = 0
    empty: list[Source] = []
    for source in request.sources:
        tasks_before = len(tasks)
        for topic_partition, folder in list_partitions(source, left_alone):
            if not request.topics.fullmatch(topic_partition.topic):
                continue
            partitions += 1
            options = request.recover_options(topic_partition.topic)
            index_folder = topic_partition.folder
            if len(request.sources) > 1:
                index_folder = f"{source.name}/{index_folder}"
            tasks.extend(
                BuildTask(segment=segment, options=options, index_folder=index_folder)
                for segment in list_segments(source, topic_partition, folder, left_alone)
            )
        if len(tasks) == tasks_before:
            empty.append(source)
    if not tasks:
        where = ", ".join(str(source.path) for source in request.sources)
        if partitions:
            raise UsageError(
                f"{where}: no segment in its {partitions} partition folders; expected <20 digits>.log files"
            )
        of_topics = "" if request.topics.pattern == ".*" else f" of a topic that matches {request.topics.pattern}"
        raise UsageError(f"{where}: no partition folder{of_topics}; expected folders named <topic>-<partition>")
    return Plan(tuple(tasks), partitions, left_alone, tuple(empty))


def parse_sources(given: Iterable[str]) -> tuple[Source, ...]:
    """The sources that the `--source` options mean.

    Raises:
        UsageError: one is no folder, or names are missing or given twice.
    """
    texts = tuple(given)
    sources = tuple(parse_source(text, name_required=len(texts) > 1) for text in texts)
    for name, count in Counter(source.name for source in sources).items():
        if count > 1:
            raise UsageError(f"--source: the name {name} is given {count} times; each source needs its own")
    return sources


def parse_topics(pattern: str) -> re.Pattern[str]:
    """The regular expression of `--topics`.

    Raises:
        UsageError: it is not one.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--topics {pattern}: not a regular expression: {error}") from error


def local_folder(option: str, path: str) -> Path:
    """The absolute path of a folder on this machine or on a file system that every executor mounts.

    Raises:
        UsageError: it is a URL.
    """
    if "://" in path:
        raise UsageError(f"{option} {path}: expected a path of a mounted file system, not a URL")
    return Path(os.path.realpath(path))


def refuse_overlap(index_dir: Path, catalog: str | None, sources: Iterable[Source]) -> None:
    """Index files live apart from logs, which are only read, and from Delta tables, where VACUUM would delete them.

    Raises:
        UsageError: the index folder is within a source, or within or around the catalog.
    """
    for source in sources:
        if index_dir.is_relative_to(source.path):
            raise UsageError(f"--index-dir {index_dir}: it is inside the source {source.path}, which is only read")
    if catalog is None or "://" in catalog:
        return
    for inner, outer in ((index_dir, Path(catalog)), (Path(catalog), index_dir)):
        if inner.is_relative_to(outer):
            raise UsageError(
                f"--index-dir {index_dir} and --catalog {catalog}: one is inside the other; keep them apart"
            )
