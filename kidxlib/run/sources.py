"""The sources of a run: those that options name, or the bundled sample if it can do no harm; and those that builds of a
catalog have recorded, with the paths that they were given, and whether they can be listed here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.catalog.tables import BUILDS
from kidxlib.errors import CatalogError, UsageError
from kidxlib.format.topic_partition import TopicPartition, is_topic_name, parse_partition_directory
from kidxlib.indexing.listing import listed_entries
from kidxlib.indexing.source import NOT_SAID, RemoteOptions, Source, parse_sources
from kidxlib.storage.location import as_text, location
from kidxlib.storage.log_dir import UNMOUNTED
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import ObjectPath, is_object
from kidxlib.terminal.console import begin_phase, warn
from kidxlib.terminal.options import PROJECT
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.run.settings import BuildSettings  # needs packages that a run without a catalog may lack
    from kidxlib.tables.protocol import TablesToRead

_SAMPLE_DIR: Final = PROJECT / "samples" / "kafka-logs"
SAMPLE: Final = Source("sample", _SAMPLE_DIR)

_EXPECTED: Final = "name the log dir to read with --source"
_OR_SAMPLE: Final = "name the log dir to read with --source, or give --sample for the bundled one"


def chosen_sources(
    given: tuple[str, ...],
    *,
    sample: bool,
    options: Mapping[str, object],
    settings: BuildSettings,
    remote: RemoteOptions = NOT_SAID,
) -> tuple[Source, ...]:
    """The sources of `--source`, or the bundled sample: with `--sample`, or if this can only be a first try. A user who
    names a place, by one of the `options`, has data of their own, and has forgotten `--source`.
    """
    if sample and given:
        raise UsageError("--sample and --source: give one of them")
    if not sample and not given:
        from kidxlib.run.settings import BuildSettings

        defaults = BuildSettings()
        named = [option for option, value in options.items() if value]
        named += [
            f"build.{name} in the settings"
            for name in ("index_dir", "catalog")
            if getattr(settings, name) != getattr(defaults, name)
        ]
        if named:
            raise UsageError(f"no --source, though {named[0]} is given: {_what_to_name()}")
    sources = parse_sources(given, remote) or (_sample(asked_for=sample),)
    for source in sources:
        if not str(source.path).isprintable():
            raise UsageError(
                f"{source.path}: a path that cannot be written as text has no place in a table; "
                "use kidx without --catalog"
            )
    return sources


def _sample(*, asked_for: bool) -> Source:
    if not _SAMPLE_DIR.is_dir():
        option = "--sample" if asked_for else "no --source"
        raise UsageError(f"{option}: the sample comes with a checkout, and this kidx is not in one; {_EXPECTED}")
    return SAMPLE


def _what_to_name() -> str:
    return _OR_SAMPLE if _SAMPLE_DIR.is_dir() else _EXPECTED


def ensure_sample_alone(catalog: str) -> None:
    """Refuse the sample if the catalog has other sources: even the default catalog may be in use."""
    # Slow to import, and only needed here.
    from kidxlib.tables.delta_tables import DeltaTables

    try:
        rows = DeltaTables(catalog).read(PARTITIONS, ["source"])
    except CatalogError:  # Spark will report what is wrong with it
        return
    others = sorted(set(map(str, rows["source"].to_pylist())) - {SAMPLE.name})
    if others:
        raise UsageError(f"no --source, and the catalog {catalog} has {', '.join(others[:3])}: {_what_to_name()}")


#: The most sources that a message names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """A source as it was given to the last build that read it.

    Attributes:
        index_dir: where that build wrote index files; None: beside the logs, or packed.
        packed: that build packed them in the catalog.
    """

    path: str
    index_dir: str | None
    packed: bool = False


def recorded_sources(tables: TablesToRead) -> dict[str, RecordedSource]:
    """Each source that a build of this catalog has read, by name."""
    builds = tables.read(BUILDS, ["started_at", "sources", "options"]).sort_by("started_at")
    return {
        name: RecordedSource(path, options.get("index_dir"), options.get("pack") == "true")
        for build in builds.to_pylist()
        for options in [dict(build["options"] or ())]
        for name, path in build["sources"]
    }


def source_paths(tables: TablesToRead) -> dict[str, str]:
    """The paths of the sources that builds of this catalog have recorded, by name."""
    return {name: source.path for name, source in recorded_sources(tables).items()}


def as_sources(paths: Mapping[str, str]) -> list[Source]:
    """The recorded sources of a catalog, from their paths by name."""
    return [Source(name, location(path)) for name, path in paths.items()]


def sources_in_catalog(named: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """The sources that `--source` names, or all that have a segment in the catalog, the `known` ones."""
    for source in named:
        if source not in known:
            raise UsageError(f"--source {source}: no segment in the catalog; there are: {', '.join(sorted(known))}")
    return tuple(named) or tuple(sorted(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDirectory:
    """Two sources of a catalog that are the same directory, so that counts and plans have its segments twice.

    Attributes:
        source, other: in the order of their names.
        path: of the log dir.
    """

    source: str
    other: str
    path: str

    def __str__(self) -> str:
        return f"sources {self.source} and {self.other} are one directory, {self.path}"


def sources_in_one_directory(tables: TablesToRead, names: Collection[str]) -> list[OneDirectory]:
    """The recorded sources that are the same directory, or of which one is a partition's directory in the other.

    Brokers on several machines may have the same paths, and one catalog. So a path alone tells nothing: both sources
    have a log of the same inode, size and time of modification there.
    """
    if len(names) < 2:
        return []
    of_sources = Among("source", tuple(names))
    rows = tables.read(PARTITIONS, [*PARTITION_KEY, "directory"], [of_sources])
    names_of = rows.group_by("directory").aggregate([("source", "count_distinct")])
    shared = names_of.filter(pc.field("source_count_distinct") > 1)["directory"]
    rows = rows.filter(pc.is_in(rows["directory"], value_set=shared.combine_chunks()))
    directories: dict[tuple[str, str, int], str] = {
        (row["source"], row["topic"], row["partition"]): row["directory"] for row in rows.to_pylist()
    }
    if not directories:
        return []
    _, topics, partitions = (set(column) for column in zip(*directories, strict=True))
    where = [of_sources, PRESENT, Among("topic", topics), Among("partition", partitions)]
    logs = tables.read(SEGMENTS, [*SEGMENTS.key, *LogVersion.names()], where)
    same = logs.group_by([*SEGMENTS.key[1:], *LogVersion.names()], use_threads=False)
    same_logs = same.aggregate([("source", "distinct"), ("source", "count_distinct")])
    paths: dict[tuple[str, str], str] = {}
    for row in same_logs.filter(pc.field("source_count_distinct") > 1).to_pylist():
        for one, other in combinations(sorted(row["source_distinct"]), 2):
            places = {directories.get((source, row["topic"], row["partition"])) for source in (one, other)}
            if len(places) == 1 and (place := places.pop()) is not None:
                paths.setdefault((one, other), as_text(location(place).parent))
    return [OneDirectory(source=one, other=other, path=path) for (one, other), path in sorted(paths.items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNotReached:
    """A source of a run whose present contents nobody knows.

    Attributes:
        why: a sentence without its subject.
        is_empty: the source can be listed, and nothing is in it.
    """

    source: Source
    why: str
    is_empty: bool = False

    def __str__(self) -> str:
        return f"source {self.source.name} ({self.source.path}): {self.why}"

    def as_json(self) -> dict[str, Any]:
        where = {"source": self.source.name, "path": as_text(self.source.path)}
        return {**where, "is_empty": self.is_empty, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSources:
    """The result of listing the sources of a run.

    Attributes:
        partitions: the partitions with a directory directly in a source, by the name of the source.
        not_reached: sources that could not be listed, and those that are as empty as a disk that is not mounted.
    """

    partitions: Mapping[str, frozenset[TopicPartition]]
    not_reached: Sequence[SourceNotReached]

    def answering(self, paths: Mapping[str, str]) -> dict[str, str]:
        """The sources of a run, of all in `paths`, whose files may be asked for: those of stores that do not answer
        would keep every question waiting.
        """
        return {name: path for name, path in paths.items() if name in self.partitions or not is_object(path)}


def list_sources(sources: Collection[Source]) -> ListedSources:
    """List the sources of a run at the same time, to see which are reached: a store that does not answer keeps each of
    them waiting for a minute and more.
    """
    if any(isinstance(source.path, ObjectPath) for source in sources):
        begin_phase(
            f"listing {counted(len(sources), 'source')}; a store that does not answer is asked for up to two minutes"
        )
    listings = list(in_order(_listed, sources))
    return ListedSources(
        partitions={
            source.name: listing
            for source, listing in zip(sources, listings, strict=True)
            if isinstance(listing, frozenset)
        },
        not_reached=[listing for listing in listings if isinstance(listing, SourceNotReached)],
    )


def _listed(source: Source) -> frozenset[TopicPartition] | SourceNotReached:
    is_local = isinstance(source.path, Path)
    try:
        entries = list(listed_entries(source.path))
    except OSError as error:
        if not is_local and isinstance(error, FileNotFoundError):
            return SourceNotReached(source=source, why="no object is there: is that its bucket and prefix?")
        why = "is the disk mounted?" if is_local else f"{error.strerror}."
        return SourceNotReached(source=source, why=f"cannot be listed here: {why}")
    if is_local and {entry.name for entry in entries} <= UNMOUNTED:
        return SourceNotReached(source=source, why="nothing is in it: is the disk mounted?", is_empty=True)
    parsed = (parse_partition_directory(entry.name) for entry in entries if entry.is_directory)
    return frozenset(partition for partition in parsed if partition is not None)


def sources_known_to(catalog: str | None) -> list[Source]:
    """The sources in a catalog; none if this process cannot read it, which the reading of its segments will report."""
    return as_sources(_paths_in(catalog))


def ensure_directories(given: Iterable[str], catalog: str | None) -> None:
    """Refuse the name of a source in place of its directory among values of `--source`, and tell the directory that the
    catalog has for it. `catalog` is its path or URL; None: there is none that this process reads.
    """
    for text in given:
        if not is_topic_name(text) or os.path.lexists(text):
            continue
        expected = f"{text}: no such directory; a source is given as DIR or NAME=DIR here"
        known = _paths_in(catalog)
        if text in known:
            raise UsageError(f"{expected}, and the catalog has {text} in {known[text]}: --source {text}={known[text]}")
        if known:
            more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
            raise UsageError(f"{expected}; the catalog has the sources {', '.join(sorted(known)[:_NAMED])}{more}")
        raise UsageError(expected)


def warn_of_other_names(sources: Iterable[Source], known: Mapping[str, str]) -> None:
    """Warn of a source that would be recorded a second time, under another name; `known` has the paths of the catalog's
    sources.
    """
    for source in sources:
        names = sorted(name for name, path in known.items() if path == str(source.path))
        if names and source.name not in known:
            warn(
                f"{source.path}: the catalog has it as source {names[0]}, and this run records it as another one, "
                f"{source.name}; to go on with {names[0]}, give --source {names[0]}={source.path}"
            )


def sources_line(sources: tuple[Source, ...]) -> str:
    """The names and paths of a run's sources, on one line."""
    return ", ".join(
        str(source.path) if source.name == str(source.path) else f"{source.name} ({source.path})" for source in sources
    )


def _paths_in(catalog: str | None) -> Mapping[str, str]:
    """The paths of a catalog's sources; none if it cannot be read, which the reading of its segments will report."""
    if catalog is None or as_text(catalog) != catalog or ("://" in catalog and not is_object(catalog)):
        return {}
    # Slow to import, and only needed here.
    from kidxlib.tables.delta_tables import DeltaTables

    try:
        return source_paths(DeltaTables(catalog))
    except CatalogError:
        return {}
