"""What a build with a catalog is asked for: options and settings, put together and checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.indexing.plan import REPAIRED_AUXILIARY_FILES, AuxiliaryFiles
from kidxlib.indexing.remote_logs import RemoteOptions
from kidxlib.indexing.source import PartitionDirectory, Source, Target
from kidxlib.operations.build.build_request import BuildLimits, BuildRequest
from kidxlib.operations.maintenance.after_build import OptimizeLimits
from kidxlib.recovery.options import OptionsOfTopic
from kidxlib.run.catalog_place import ensure_usable
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import read_known_topics
from kidxlib.run.options import MetadataOptions
from kidxlib.run.recorded_sources import ensure_directories, sources_known_to
from kidxlib.run.settings import BuildSettings, TablesSettings, read_settings
from kidxlib.run.sources import chosen_sources, ensure_sample_alone
from kidxlib.run.topic_options import recover_options
from kidxlib.storage.location import Location, ensure_text
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
    fill_facts: int | None
    plan_on_executors: bool
    repair: bool
    metadata: MetadataOptions
    settings_file: Path
    now: str | None
    layout: str | None = None
    tiered_metadata: tuple[str, ...] = ()


def build_request(options: BuildOptions) -> BuildRequest:
    """Put options and settings together."""
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, options.now)
    _ensure_they_fit(options)
    build = settings.build
    named = {
        "--index-dir": options.index_dir,
        "--catalog": options.catalog,
        "--database": options.database,
    }
    remote = RemoteOptions(options.layout, options.tiered_metadata)
    ensure_directories(options.sources, context.catalog)
    sources = chosen_sources(options.sources, sample=options.sample, options=named, settings=build, remote=remote)
    if not options.sources and not options.sample and context.catalog is not None:
        ensure_sample_alone(context.catalog)
    index_dir = None if options.in_place else _index_dir(options, build)
    ensure_no_overlap(index_dir, context.catalog, sources)
    if context.catalog is not None:
        ensure_usable(context.catalog)
    _ensure_text(sources, index_dir)
    verify_crc = build.verify_crc if options.verify_crc is None else options.verify_crc
    known = read_known_topics(options.metadata, sources, lambda: sources_known_to(context.catalog))

    def options_for(partition: PartitionDirectory) -> OptionsOfTopic:
        own = options.interval_bytes, options.max_index_bytes
        return recover_options(settings, known, partition, *own, verify_crc=verify_crc)

    return BuildRequest(
        sources=sources,
        target=Target(index_dir=index_dir, by_source=len(sources) > 1),
        names_index_dir=options.index_dir is not None,
        publish_truncated=options.accept_truncated or not options.in_place,
        context=context,
        topics=parse_topics(build.topics if options.topics is None else options.topics),
        interval_bytes=options.interval_bytes,
        max_index_bytes=options.max_index_bytes,
        verify_crc=verify_crc,
        auxiliary_files=_auxiliary_files(options, build),
        rebuild=options.rebuild,
        repair=options.repair,
        options_for=options_for,
        known_topics=known,
        fill_bytes=options.fill_facts,
        plans_on_workers=options.plan_on_executors,
        optimize=_optimize(settings.tables),
        limits=BuildLimits(
            wave_bytes=build.wave_bytes,
            wave_seconds=build.wave_seconds,
            longest_run=timedelta(hours=build.longest_run_hours),
            driver_listing_max=build.driver_listing_max,
        ),
    )


def _ensure_text(sources: Iterable[Source], index_dir: Location | None) -> None:
    """Refuse paths that a catalog cannot hold."""
    for source in sources:
        ensure_text("--source ", source.path)
    if index_dir is not None:
        ensure_text("--index-dir ", index_dir)


def _optimize(tables: TablesSettings) -> OptimizeLimits | None:
    limits = OptimizeLimits(small_files_max=tables.small_files_max, bytes_max=tables.optimize_bytes_max)
    return limits if tables.optimize else None


def _index_dir(options: BuildOptions, build: BuildSettings) -> Location:
    if options.index_dir is None and not options.settings_file.exists():  # of a wheel there is none
        raise UsageError("give --index-dir DIR to write there, or --in-place to write beside the segments")
    return index_dir_to_write("--index-dir", options.index_dir or build.index_dir)


def _auxiliary_files(options: BuildOptions, build: BuildSettings) -> AuxiliaryFiles:
    if options.repair:
        return REPAIRED_AUXILIARY_FILES
    return AuxiliaryFiles(
        snapshots=build.snapshots if options.snapshots is None else options.snapshots,
        epochs=build.epochs if options.epochs is None else options.epochs,
    )


def _ensure_they_fit(options: BuildOptions) -> None:
    """Refuse options that contradict each other."""
    for wrong, message in (
        (options.in_place and options.index_dir, "--in-place and --index-dir: give one of them, not both"),
        (options.in_place and not options.sources, "--in-place: name the log dir to write in with --source"),
        (options.rebuild and options.repair, "--rebuild and --repair: give one of them"),
        (options.fill_facts is not None and options.repair, "--fill-facts and --repair: give one of them"),
        (
            options.fill_facts is not None and options.plan_on_executors,
            "--fill-facts and --plan-on-executors: give one of them; SIZE is shared out among all segments",
        ),
        (options.accept_truncated and not options.in_place, "--accept-truncated: only --in-place needs it"),
    ):
        if wrong:
            raise UsageError(message)
