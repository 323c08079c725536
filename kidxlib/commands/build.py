"""`kidx build`, `./spark-submit.sh build_index`: write the index files of segments, and record them in a catalog."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from kidxlib.commands.command import (
    FIRST,
    KIDX,
    Former,
    WithOrWithoutCatalog,
    command_in,
    kidx_command,
    option,
    parameter,
)
from kidxlib.errors import UsageError
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import ByteSize, IntegerRange, MetadataOptions, metadata_options
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.indexing.plan import Plan
    from kidxlib.indexing.source import Source
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.build.build import BuiltOnce
    from kidxlib.operations.build.build_request import BuildLimits, BuildRequest
    from kidxlib.operations.maintenance import OptimizeLimits
    from kidxlib.run.context import RunContext
    from kidxlib.run.known_topics import KnownTopics
    from kidxlib.run.settings import BuildSettings, TablesSettings
    from kidxlib.storage.location import Location

    _Given: TypeAlias = tuple[tuple[Source, ...], KnownTopics, Location | None]

#: Options that only a build with a catalog has.
_OF_CATALOGS: Final = (
    *("pack", "sources", "sample", "rebuild", "fill_facts", "plan_on_executors", "dry_run", "settings_file", "now"),
)
_BOTH_PLACES: Final = "--in-place and --index-dir: give one of them, not both"
_PACKED_ELSEWHERE: Final = "--pack and {option}: give one of them; --pack keeps index files in the catalog"
_NO_PLACE: Final = "give --index-dir DIR to write there, or --in-place to write beside the segments"


@dataclass(frozen=True, kw_only=True)
class BuildCommand(WithOrWithoutCatalog):
    """What to index, how, and where to.

    Attributes:
        directory: where `kidx` reads; a job, or a build with --source, has `sources` instead.
    """

    directory: str | None = parameter(click.argument("directory", metavar="[DIR]", required=False), only=KIDX, at=FIRST)
    sources: tuple[str, ...] = parameter(shared_options.sources, at=FIRST)
    sample: bool = parameter(shared_options.sample, at=FIRST)
    index_dir: str | None = option(
        "--index-dir",
        metavar="DIR",
        help="Where <topic>-<partition>/<base offset>.index and .timeindex go. [settings: build.index_dir]",
        at=FIRST,
    )
    in_place: bool = option(
        "--in-place", is_flag=True, help="Write beside the segments instead, under the log dir's lock.", at=FIRST
    )
    pack: bool = option(
        "--pack",
        is_flag=True,
        help="Keep index files in the catalog, many in one object, where no broker reads them. kidx unpack writes them "
        "as files.",
        at=FIRST,
    )
    accept_truncated: bool = parameter(shared_options.accept_truncated, at=FIRST)
    topics: str | None = parameter(shared_options.topics_to_read)
    interval_bytes: int | None = option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Kafka's index.interval.bytes. [default: settings: build.interval_bytes, else the topic's]",
    )
    max_index_bytes: int | None = option(
        "--max-index-bytes",
        metavar="BYTES",
        type=IntegerRange(12, 2**31 - 1),
        help="Kafka's segment.index.bytes. [default: settings: build.max_index_bytes, else the topic's]",
    )
    verify_crc: bool | None = option(
        "--verify-crc/--no-verify-crc",
        default=None,
        help="Check every batch's checksum, or read batch headers only. [settings: build.verify_crc]",
    )
    snapshots: bool | None = option(
        "--snapshots/--no-snapshots", default=None, help="Write producer snapshots too. [settings: build.snapshots]"
    )
    epochs: bool | None = option(
        "--epochs/--no-epochs", default=None, help="Write leader-epoch-checkpoint files too. [settings: build.epochs]"
    )
    rebuild: bool = option("--rebuild", is_flag=True, help="Read every segment again, whatever the catalog says of it.")
    fill_facts: int | None = option(
        "--fill-facts",
        metavar="SIZE",
        type=ByteSize(),
        help="Read logs once more for facts that the catalog lacks of them: of at most SIZE bytes together, such as "
        "500MB or 2TiB.",
    )
    plan_on_executors: bool = option(
        "--plan-on-executors",
        is_flag=True,
        help="Let executors, or processes of kidx, list segments and compare them with the catalog, also where there "
        "are few. "
        "[settings: build.driver_listing_max]",
    )
    metadata: MetadataOptions = parameter(metadata_options)
    repair: bool = option("--repair", is_flag=True, help="Write only the files that the last audit found broken.")
    dry_run: bool = option(
        "--dry-run", is_flag=True, help="Say what would be read and how long that takes; write nothing."
    )
    tiered_metadata: tuple[str, ...] = parameter(shared_options.tiered_metadata)
    layout: str | None = parameter(shared_options.layout)

    def __post_init__(self) -> None:
        if self.is_once:
            self.refuse(_OF_CATALOGS, "{option}: only for a build with a catalog; name it with --catalog DIR")
            if self.directory is None:
                raise UsageError("no DIR: name the log dir, or one partition's directory, to index")
        elif self.directory is not None and self.sources:
            raise UsageError(f"DIR {self.directory} and --source: give one of them")
        _ = self.resolved  # what is wrong is told before anything is done

    @property
    def writes(self) -> bool:
        return not self.dry_run

    @property
    def makes_catalog(self) -> bool:
        return not self.repair

    @cached_property
    def context(self) -> RunContext:
        if not self.is_job:
            return super().context
        from kidxlib.run.context import RunContext

        return RunContext.from_options_or_settings(self.settings, self.catalog, self.database, self.now)

    @cached_property
    def resolved(self) -> BuildRequest:
        """The request: what no option says is from the settings if there is a catalog, else from the metadata of the
        source's own cluster and Kafka's defaults.
        """
        from kidxlib.indexing.plan import REPAIRED_AUXILIARY_FILES, AuxiliaryFiles
        from kidxlib.indexing.source import IndexPlace, parse_topics
        from kidxlib.operations.build.build_request import BuildLimits, BuildRequest
        from kidxlib.run.index_options import options_of_topic

        sources, known, index_dir = self._once() if self.is_once else self._with_settings()
        settings = None if self.is_once else self.settings
        build = None if settings is None else settings.build
        topics = (".*" if build is None else build.topics) if self.topics is None else self.topics
        verify_crc = (build is None or build.verify_crc) if self.verify_crc is None else self.verify_crc
        snapshots = (build is not None and build.snapshots) if self.snapshots is None else self.snapshots
        epochs = (build is not None and build.epochs) if self.epochs is None else self.epochs
        return BuildRequest(
            context=self.context,
            sources=sources,
            index_place=IndexPlace(index_dir=index_dir, by_source=not self.is_once and (len(sources) > 1 or self.pack)),
            names_index_dir=self.index_dir is not None or self.pack,
            publish_truncated=self.accept_truncated or not self.in_place,
            topics=parse_topics(topics),
            interval_bytes=self.interval_bytes,
            max_index_bytes=self.max_index_bytes,
            verify_crc=verify_crc,
            auxiliary_files=REPAIRED_AUXILIARY_FILES if self.repair else AuxiliaryFiles(snapshots, epochs),
            rebuild=self.rebuild,
            repair=self.repair,
            options_for=lambda partition: options_of_topic(
                known,
                partition,
                interval_bytes=self.interval_bytes,
                max_index_bytes=self.max_index_bytes,
                verify_crc=verify_crc,
                settings=settings,
            ),
            known_topics=known,
            fill_bytes=self.fill_facts,
            plans_on_workers=self.plan_on_executors,
            optimize=None if settings is None else _optimize(settings.tables),
            limits=BuildLimits() if build is None else _limits(build),
        )

    def _once(self) -> _Given:
        from kidxlib.indexing.source import RemoteOptions, ensure_no_overlap, index_dir_to_write, source_at
        from kidxlib.run.known_topics import read_known_topics

        if self.in_place and self.index_dir is not None:
            raise UsageError(_BOTH_PLACES)
        if not self.in_place and self.index_dir is None:
            raise UsageError(_NO_PLACE)
        source = source_at(str(self.directory), remote=RemoteOptions(self.layout, self.tiered_metadata))
        known = read_known_topics((source,), options=self.metadata)
        place = None if self.index_dir is None else index_dir_to_write("--index-dir", self.index_dir)
        ensure_no_overlap(place, None, (source,))
        return (source,), known, place

    def _with_settings(self) -> _Given:
        from kidxlib.run.known_topics import read_known_topics
        from kidxlib.run.sources import sources_known_to

        self._ensure_no_contradiction()
        context = self.context
        sources, index_dir = self._places()
        known = read_known_topics(sources, lambda: sources_known_to(context.catalog), options=self.metadata)
        return sources, known, index_dir

    def _ensure_no_contradiction(self) -> None:
        for wrong, message in (
            (self.in_place and self.index_dir, _BOTH_PLACES),
            (self.pack and self.in_place, _PACKED_ELSEWHERE.format(option="--in-place")),
            (self.pack and self.index_dir, _PACKED_ELSEWHERE.format(option="--index-dir")),
            (self.in_place and not self._given_sources, "--in-place: name the log dir to write in with --source"),
            (self.rebuild and self.repair, "--rebuild and --repair: give one of them"),
            (self.fill_facts is not None and self.repair, "--fill-facts and --repair: give one of them"),
            (
                self.fill_facts is not None and self.plan_on_executors,
                "--fill-facts and --plan-on-executors: give one of them; SIZE is shared out among all segments",
            ),
            (self.accept_truncated and not self.in_place, "--accept-truncated: only --in-place needs it"),
        ):
            if wrong:
                raise UsageError(message)

    @property
    def _given_sources(self) -> tuple[str, ...]:
        return self.sources if self.directory is None else (self.directory,)

    def _places(self) -> tuple[tuple[Source, ...], Location | None]:
        """The sources, and the index directory; None where index files go beside the segments."""
        from kidxlib.indexing.source import RemoteOptions, ensure_no_overlap
        from kidxlib.run.context import ensure_catalog_usable
        from kidxlib.run.sources import chosen_sources, ensure_directories, ensure_sample_alone
        from kidxlib.storage.location import ensure_text

        given, catalog = self._given_sources, self.context.catalog
        named = {"--index-dir": self.index_dir, "--catalog": self.catalog, "--database": self.database}
        remote = RemoteOptions(self.layout, self.tiered_metadata)
        ensure_directories(given, catalog)
        sources = chosen_sources(given, sample=self.sample, options=named, settings=self.settings.build, remote=remote)
        if not given and not self.sample and catalog is not None:
            ensure_sample_alone(catalog)
        index_dir = None if self.in_place or self.pack else self._index_dir()
        ensure_no_overlap(index_dir, catalog, sources)
        if catalog is not None:
            ensure_catalog_usable(catalog)
        for source in sources:
            ensure_text("--source ", source.path)
        if index_dir is not None:
            ensure_text("--index-dir ", index_dir)
        return sources, self._packed_place() if self.pack else index_dir

    def _packed_place(self) -> Location:
        """Where the catalog keeps index files."""
        from kidxlib.storage.packed import PackedPath
        from kidxlib.storage.store.s3 import is_object

        catalog = self.context.catalog
        if catalog is None or ("://" in catalog and not is_object(catalog)):
            raise UsageError(
                f"--pack: Spark alone reaches the catalog {catalog or self.database}, and whoever reads an index could "
                "not; give --catalog a directory or an s3:// URL"
            )
        return PackedPath(catalog.rstrip("/"))

    def _index_dir(self) -> Location:
        from kidxlib.indexing.source import index_dir_to_write

        if self.index_dir is None and not self.settings_file.exists():  # a wheel has no settings file
            raise UsageError(_NO_PLACE)
        return index_dir_to_write("--index-dir", self.index_dir or self.settings.build.index_dir)

    @cached_property
    def begun(self) -> float:
        """When the command began, in seconds of the monotonic clock."""
        return time.monotonic()

    @cached_property
    def plan(self) -> Plan:
        from kidxlib.operations.build.planning import listed_plan

        return listed_plan(self.resolved)

    @cached_property
    def log_dirs(self) -> ExitStack:
        """The locks of log dirs in which the command writes index files."""
        return ExitStack()

    def held(self) -> AbstractContextManager[object]:
        from kidxlib.operations.build.build import lock_log_dirs

        _ = self.begun
        if not self.dry_run:
            lock_log_dirs(self.resolved, self.plan, self.log_dirs)
        return self.log_dirs


def _optimize(tables: TablesSettings) -> OptimizeLimits | None:
    from kidxlib.operations.maintenance import OptimizeLimits

    limits = OptimizeLimits(small_files_max=tables.small_files_max, bytes_max=tables.optimize_bytes_max)
    return limits if tables.optimize else None


def _limits(build: BuildSettings) -> BuildLimits:
    from kidxlib.operations.build.build_request import BuildLimits

    return BuildLimits(
        wave_bytes=build.wave_bytes,
        wave_seconds=build.wave_seconds,
        longest_run=timedelta(hours=build.longest_run_hours),
        driver_listing_max=build.driver_listing_max,
    )


def run_build(request: BuildCommand, backend: Backend) -> Outcome:
    """Index the segments in DIR, a Kafka log dir or one partition's directory, as Kafka's recovery would. What is
    broken in a bucket of tiered storage is rebuilt by kidx repair-tiered.

    With --catalog, also record every segment in that catalog, and read only those that are new or have changed since
    its last build: the same as ./spark-submit.sh build_index, and the same catalog. --source takes several log dirs.
    Without --catalog, all is read, nothing but the index files is kept, and no settings file is read.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems, found
    now or recorded earlier, or logs or partitions are missing; 1 failed. 0 means that recovery accepts each log; kidx
    verify judges the other files, too.
    """
    resolved, plan = request.resolved, request.plan
    if request.is_once:
        from kidxlib.operations.build.build import build_once

        return _outcome_once(resolved, build_once(resolved, plan, backend, start=request.begun))
    from kidxlib.operations.build.build import build, dry_run

    return dry_run(resolved, plan, backend) if request.dry_run else build(resolved, plan, backend, request.log_dirs)


def _outcome_once(request: BuildRequest, built: BuiltOnce) -> Outcome:
    """The outcome of a build without a catalog. A place that could not be looked at is a problem."""
    from kidxlib.indexing.listing import unlistable_as_json
    from kidxlib.run.index_options import index_options_as_json

    counts, total, plan = built.scanned.counts, built.scanned.counts.total, built.plan
    is_lost = bool(built.gaps.lost) or built.lost.is_loss
    has_problems = total.problems or is_lost or built.broken.logs or plan.unlistable
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK,
        counts={
            "partitions": len(plan.partitions),
            "segments": total.segments,
            "unlistable": len(plan.unlistable),
            "not_well": total.problems,
            "gaps": len(built.gaps.lost),
            **built.lost.counts,
        },
        bytes=total.log_bytes,
        requests=built.requests,
    )
    outcome.values.update(
        source=str(request.sources[0].path),
        index_dir=str(request.index_place.index_dir) if request.index_place.index_dir else None,
        seconds=round(built.seconds, 3),
        partitions=len(plan.partitions),
        skipped={reason.value: count for reason, count in sorted(plan.skipped.counts.items())},
        **unlistable_as_json(plan.unlistable.values()),
        cluster_metadata=index_options_as_json(request.known_topics, plan),
    )
    if request.repair:
        files = built.broken.files.items()
        broken = sorted(f"{topic}-{number}/{name}" for (_, topic, number), names in files for name in names)
        outcome.values.update(broken=broken, broken_logs=built.broken.logs)
    outcome.values.update(
        counts.as_json() | built.gaps.as_json() | built.lost.as_json() | {"requests": built.requests.as_json()}
    )
    _tell_once(outcome, request, built)
    return outcome


def _tell_once(outcome: Outcome, request: BuildRequest, built: BuiltOnce) -> None:
    from kidxlib.run.index_options import index_options_lines
    from kidxlib.terminal.run_summary import gap_lines, tell_build_counts, tell_rate, tell_requests, tell_skipped

    tell_build_counts(outcome, str(request.sources[0].path), built.scanned.counts)
    outcome.line(*built.lost.lines(many_sources=False), *gap_lines(built.gaps, many_sources=False))
    tell_skipped(outcome, ((reason.value, count) for reason, count in built.plan.skipped.counts.items()))
    tell_rate(outcome, built.scanned.counts.total.log_bytes, built.scanned.read_seconds, built.seconds)
    tell_requests(outcome, built.requests)
    outcome.line(*(f"topics:      {line}" for line in index_options_lines(request.known_topics, built.plan)))
    outcome.line(f"index files: {request.index_place.index_dir or 'beside the segments'}")


build = kidx_command(
    "build",
    BuildCommand,
    run_build,
    reports_as="build_index",
    formerly={"--tiered": Former("kidx repair-tiered PLACE", command_in("repair_tiered"))},
)
