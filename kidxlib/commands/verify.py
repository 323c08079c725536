"""`kidx verify`, `./spark-submit.sh verify_index`: are logs and index files right, and what happens if they are not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from kidxlib.audit.finding import Verdict
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
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.options import ByteSize, IntegerRange, MetadataOptions, metadata_options, renamed_option
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.indexing.source import Source
    from kidxlib.operations.audit.audit_request import AuditRequest
    from kidxlib.operations.backend import Backend
    from kidxlib.run.known_topics import KnownTopics
    from kidxlib.run.settings import Settings
    from kidxlib.storage.location import Location

    _Given: TypeAlias = tuple[tuple[Source, ...], KnownTopics, Location | None]

_CLEAN: Final = "clean"
#: Options that only an audit with a catalog has.
_OF_CATALOGS: Final = ("sources", "sample", "max_bytes", "settings_file", "now")


@dataclass(frozen=True, kw_only=True)
class VerifyCommand(WithOrWithoutCatalog):
    """What to audit, and how.

    Attributes:
        directories: what `kidx` audits; a job, or an audit with --source, has `sources` instead.
    """

    directories: tuple[str, ...] = parameter(
        click.argument("directories", metavar="[DIR]...", nargs=-1), only=KIDX, at=FIRST
    )
    sources: tuple[str, ...] = parameter(shared_options.sources, at=FIRST)
    sample: bool = parameter(shared_options.sample, at=FIRST)
    index_dir: str | None = option(
        "--index-dir",
        metavar="DIR",
        help="The directory of the index files. [default: where the catalog says, without one beside the logs]",
        at=FIRST,
    )
    catalog: str | None = option(
        "--catalog", metavar="DIR", help="Record what is found in this catalog, and take intervals from it."
    )
    topics: str | None = parameter(shared_options.topics_to_read)
    max_bytes: int | None = option(
        "--max-bytes",
        metavar="SIZE",
        type=ByteSize(),
        help="With --catalog: read logs of at most SIZE bytes together, such as 500GB or 2TiB. Partitions that were "
        "never audited come first, then those of the oldest audits; one that is larger than SIZE is read alone. What "
        "is left out is counted. [default: all]",
    )
    interval_bytes: int | None = option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Kafka's index.interval.bytes. "
        "[default: the catalog's of each segment, else settings: build.interval_bytes, else the topic's]",
    )
    deep_iteration: bool = option(
        "--deep-iteration",
        is_flag=True,
        help="Also decompress and read all records, and check them against the headers of their batches.",
    )
    fail_on: str = parameter(shared_options.fail_on)
    list_safe: bool = option(
        "--list-safe",
        is_flag=True,
        help="Print each file that is safe. [default: of more than three for one reason a line with their number]",
    )
    require_tiering: bool = parameter(
        renamed_option(
            "--require-tiering",
            old="--gate",
            old_type=click.Choice(["tiering"]),
            read_old=lambda _: True,
            is_flag=True,
            help="Exit 3 if a segment lacks what tiered storage needs.",
        )
    )
    alone: bool = option(
        "--this-dir-alone",
        "alone",
        is_flag=True,
        help="Do not exit 3 for other log dirs of the broker that nobody has given, or a lost __cluster_metadata-0.",
    )
    shutdown: str | None = option(
        "--shutdown",
        type=click.Choice([_CLEAN, "unclean"]),
        help="How the broker stopped, for its next start. [default: as the log dir says]",
    )
    kafka_version: KafkaRelease | None = parameter(shared_options.kafka_version)
    metadata: MetadataOptions = parameter(metadata_options)
    tiered_metadata: tuple[str, ...] = parameter(shared_options.tiered_metadata)
    layout: str | None = parameter(shared_options.layout)

    def __post_init__(self) -> None:
        if self.has_catalog and self.directories and self.sources:
            raise UsageError(f"DIR {self.directories[0]} and --source: give one of them")
        if self.is_once:
            self.refuse(_OF_CATALOGS, "{option}: only for an audit with a catalog; name it with --catalog DIR")
            if not self.directories:
                raise UsageError("no DIR: name the log dir, or one partition's directory, to audit")
            if self.index_dir is not None and len(self.directories) > 1:
                raise UsageError(
                    f"--index-dir {self.index_dir} and {len(self.directories)} times DIR: give one DIR, or --catalog"
                )
        if self.max_bytes == 0:
            raise UsageError("--max-bytes 0: no log would be read; expected a SIZE above 0")
        if self.max_bytes is not None and not self.has_catalog:
            raise UsageError(
                "--max-bytes: only for an audit with a catalog, which says what was audited when; name it with "
                "--catalog"
            )
        if self.max_bytes is not None and self.require_tiering:
            raise UsageError(
                "--max-bytes and --require-tiering: give one of them; a part says nothing of other segments"
            )
        _ = self.resolved  # what is wrong is told before anything is done

    @property
    def writes(self) -> bool:
        return not self.is_once

    @cached_property
    def resolved(self) -> AuditRequest:
        """The request: what no option says is from the settings for a job or with a catalog, else from the metadata of
        the source's own cluster and Kafka's defaults.
        """
        from kidxlib.indexing.source import IndexPlace, parse_topics
        from kidxlib.operations.audit.audit_request import AuditRequest, HowToAudit
        from kidxlib.run.index_options import options_of_topic

        settings = None if self.is_once else self.settings
        sources, known, place = self._once() if settings is None else self._with_settings(settings)
        topics = ".*" if settings is None else settings.build.topics
        return AuditRequest(
            context=self.context,
            sources=sources,
            index_place=IndexPlace(index_dir=place, by_source=not self.is_once and len(sources) > 1),
            topics=parse_topics(topics if self.topics is None else self.topics),
            interval_bytes=self.interval_bytes,
            options_for=lambda partition: options_of_topic(
                known, partition, interval_bytes=self.interval_bytes, max_index_bytes=None, settings=settings
            ),
            known_topics=known,
            cluster_metadata=self.metadata.cluster_metadata,
            how=HowToAudit(
                deep=self.deep_iteration,
                fail_on=Verdict(self.fail_on),
                tiering=self.require_tiering,
                clean_shutdown=None if self.shutdown is None else self.shutdown == _CLEAN,
                list_safe=self.list_safe,
                alone=self.alone,
                max_bytes=self.max_bytes,
                kafka_version=self.kafka_version,
            ),
            is_once=self.is_once,
        )

    def _once(self) -> _Given:
        from kidxlib.indexing.source import RemoteOptions, ensure_distinct, existing_index_dir, source_at
        from kidxlib.run.known_topics import read_known_topics

        remote = RemoteOptions(self.layout, self.tiered_metadata)
        sources = tuple(source_at(directory, remote=remote) for directory in self.directories)
        ensure_distinct(sources)
        known = read_known_topics(sources, options=self.metadata)
        return sources, known, None if self.index_dir is None else existing_index_dir("--index-dir", self.index_dir)

    def _with_settings(self, settings: Settings) -> _Given:
        from kidxlib.indexing.source import RemoteOptions, ensure_no_overlap, existing_index_dir
        from kidxlib.run.known_topics import read_known_topics
        from kidxlib.run.sources import chosen_sources, ensure_directories, sources_known_to
        from kidxlib.storage.location import ensure_text

        context, index_dir = self.context, self.index_dir
        named = {"--index-dir": index_dir, "--catalog": self.catalog, "--database": self.database}
        given = self.directories or self.sources
        ensure_directories(given, context.catalog)
        remote = RemoteOptions(self.layout, self.tiered_metadata)
        sources = chosen_sources(given, sample=self.sample, options=named, settings=settings.build, remote=remote)
        ensure_no_overlap(None, context.catalog, sources)
        if not given and not any(named.values()) and os.path.isdir(settings.build.index_dir):
            index_dir = settings.build.index_dir  # where a build without options writes
        place = None if index_dir is None else existing_index_dir("--index-dir", index_dir)
        for source in sources:
            ensure_text("--source ", source.path)
        if place is not None:
            ensure_text("--index-dir ", place)
        known = read_known_topics(sources, lambda: sources_known_to(context.catalog), options=self.metadata)
        return sources, known, place


def run_verify(request: VerifyCommand, backend: Backend) -> Outcome:
    """Check each log in DIR, a Kafka log dir or one partition's directory, and each index file against what recovery
    would write; say what a wrong one leads to, and what a broker would do at its next start. Nothing is written beside
    the source. Buckets of tiered storage are audited by kidx verify-tiered, and kidx compare judges copies.

    With --catalog, also record what is found there: the same as ./spark-submit.sh verify_index, and the same catalog,
    which says where index files are and how they were built. --source takes several log dirs. Without --catalog,
    nothing is kept, and no settings file is read.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 some files are as bad as --fail-on says, a
    broker would not start, or would lose more than a torn end, a partition or source cannot be listed, a source of
    the catalog is empty, or a segment is not ready for tiering (--require-tiering); 1 failed.
    """
    from kidxlib.operations.audit.audit import audit

    return audit(request.resolved, backend)


verify = kidx_command(
    "verify",
    VerifyCommand,
    run_verify,
    reports_as="verify_index",
    formerly={
        "--tiered": Former("kidx verify-tiered PLACE", command_in("verify_tiered")),
        "--copy": Former("kidx compare SOURCE URL --catalog DIR", command_in("verify_copy")),
    },
)
