"""What is asked of an audit of tiered storage: options, put together and checked, and the settings of topics that say
what is kept, and for how long.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kidxlib.audit.finding import Verdict
from kidxlib.audit.tiered.finding import Level
from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS
from kidxlib.errors import UsageError, describe_error
from kidxlib.indexing.remote_logs import LAYOUTS
from kidxlib.indexing.source import Source, source_at, split_name
from kidxlib.java import parse_integer
from kidxlib.log.remote.layout import LOCAL, Layout, find_bucket
from kidxlib.log.remote.metadata_topic import EXPORT_SUFFIX
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.run.options import MetadataOptions, parse_option
from kidxlib.storage.location import Location, as_text, given_location
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options.directories import ensure_no_overlap
from kidxlib.terminal.options.sources import parse_topics
from kidxlib.text.times import parse_duration, parse_milliseconds

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
LOCAL_RETENTION_MS: Final = "local.retention.ms"
LOCAL_RETENTION_BYTES: Final = "local.retention.bytes"
#: Settings that may be asked about, each with the least value that Kafka takes.
SETTINGS: Final = {RETENTION_MS: -1, RETENTION_BYTES: -1, LOCAL_RETENTION_MS: -2, LOCAL_RETENTION_BYTES: -2}


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredOptions:
    """The options as they were given; None or empty where they were not."""

    tiered: str
    tiered_metadata: tuple[str, ...]
    layout: str | None
    level: str
    stuck_after: str
    topics: str | None
    interval_bytes: int | None
    fail_on: str
    metadata: MetadataOptions
    now: str | None
    what_if: tuple[str, ...] = ()
    catalog: str | None = None
    database: str | None = None
    settings_file: Path | None = None
    is_repair: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that the catalog keeps.

    Attributes:
        audit_id: of the run. One question at one time has one id, so that a run which was stopped can be run again.
        source: what the catalog calls the bucket.
        level: as `Level`.
    """

    context: RunContext
    audit_id: str
    source: str
    level: str

    @property
    def catalog(self) -> str:
        """Where the catalog is."""
        return self.context.catalog or f"database {self.context.database}"

    @property
    def line(self) -> str:
        """What a report says of it."""
        return f"catalog: {self.catalog}, table {REMOTE_SEGMENTS.name}, audit {self.audit_id}"

    def as_json(self) -> dict[str, str]:
        """What a report in JSON says of it."""
        return {"audit_id": self.audit_id, "catalog": self.catalog, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredRequest:
    """What to audit.

    Attributes:
        layout: how objects are named.
        bucket: the directory, or the prefix, of the partitions' directories.
        places: where partitions of `__remote_log_metadata` are: directories, and files with what was exported.
        metadata: these directories, and those of the files, perhaps with metadata of the cluster beside them.
        stuck_ms: how long a state may last.
        as_of_ms: the time as of which states are judged, ms since the epoch; None for that of the metadata.
        interval_bytes: of indexes; None for what is known of topics.
        known_topics: what the clusters of the metadata's log dirs say of topics.
        what_if: settings of topics, by Kafka's names, of which is asked what they would free.
        recording: None where nothing is recorded.
        asked_before: of object stores, by this process, for something else.
    """

    layout: Layout
    bucket: Location
    places: tuple[Location, ...]
    metadata: tuple[Source, ...]
    level: Level
    stuck_ms: int
    as_of_ms: int | None
    topics: re.Pattern[str]
    interval_bytes: int | None
    fail_on: Verdict
    known_topics: KnownTopics
    what_if: Mapping[str, int] = field(default_factory=dict)
    recording: Recording | None = None
    asked_before: Requests = field(default_factory=requests_made)

    @property
    def log_dirs(self) -> list[Source]:
        """The log dirs of the metadata, each once. A file that it was exported to lies anywhere."""
        places = set(map(str, self.places))
        return list({str(each.path): each for each in self.metadata if str(each.path) in places}.values())


def _parse_settings(texts: Iterable[str]) -> dict[str, int]:
    """The settings of `--what-if NAME=VALUE`."""
    settings = {}
    for text in texts:
        name, _, value = text.partition("=")
        number = parse_integer(value, 64)
        if name not in SETTINGS or number is None or number < SETTINGS[name]:
            raise UsageError(
                f"--what-if {text}: expected NAME=NUMBER of {', '.join(SETTINGS)}; -1 is no limit, and -2 of the local "
                "ones the same as of all"
            )
        settings[name] = number
    return settings


def tiered_request(options: TieredOptions) -> TieredRequest:
    """Put options together."""
    if not options.tiered_metadata:
        raise UsageError(
            "--tiered: no metadata to compare it with; name a log dir that has __remote_log_metadata with "
            "--tiered-metadata DIR"
        )
    places = tuple(_metadata_place(each) for each in options.tiered_metadata)
    directories = (place.parent if place.name.endswith(EXPORT_SUFFIX) else place for place in places)
    sources = tuple(source_at(str(directory)) for directory in directories)
    name, place = split_name(options.tiered)
    layout = LAYOUTS[options.layout or LOCAL.name]
    bucket = _bucket(place, layout)
    return TieredRequest(
        layout=layout,
        bucket=bucket,
        places=places,
        metadata=sources,
        level=Level(options.level),
        stuck_ms=int(parse_option("--stuck-after", parse_duration, options.stuck_after).total_seconds() * 1000),
        as_of_ms=None if options.now is None else parse_option("--now", parse_milliseconds, options.now),
        topics=parse_topics(".*" if options.topics is None else options.topics),
        interval_bytes=options.interval_bytes,
        fail_on=Verdict(options.fail_on),
        known_topics=read_known_topics(options.metadata, sources),
        what_if=_parse_settings(options.what_if),
        recording=_recording(options, name or as_text(_absolute(place)), bucket, sources),
    )


def _recording(options: TieredOptions, source: str, bucket: Location, sources: Sequence[Source]) -> Recording | None:
    """What is recorded of a run.

    Args:
        source: what the catalog calls the bucket.
        sources: the places of the metadata.
    """
    if options.catalog is None and options.database is None:
        return None
    from kidxlib.run.settings import read_settings  # who keeps no catalog may not have the packages

    assert options.settings_file is not None
    settings = read_settings(options.settings_file)
    context = RunContext.given(settings, options.catalog, options.database, options.now).with_catalog()
    ensure_no_overlap(None, context.catalog, [*sources, Source(source, _absolute(bucket))])
    if isinstance(bucket, ObjectPath):
        with needing_packages("--tiered with --catalog"):
            import kidxlib.storage.store.client  # noqa: F401  # before anything is read
    asked = {
        "tiered": [source, str(bucket)],
        "repair": options.is_repair,
        "layout": options.layout,
        "metadata": options.tiered_metadata,
        "level": options.level,
        "topics": options.topics,
        "interval_bytes": options.interval_bytes,
        "stuck_after": options.stuck_after,
    }
    digits = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    return Recording(context, context.run_id(digits), source, options.level)


def _absolute(place: str | Location) -> Location:
    if isinstance(place, str):
        place = given_location("--tiered ", place) or Path(place)
    return Path(os.path.realpath(place)) if isinstance(place, Path) else place


def _metadata_place(text: str) -> Location:
    if not text.endswith(EXPORT_SUFFIX):
        return source_at(text).path
    place = given_location("--tiered-metadata ", text) or Path(text)
    try:
        if place.exists():
            return place
    except OSError as error:
        raise UsageError(f"--tiered-metadata {text}: {describe_error(error)}") from error
    raise UsageError(f"--tiered-metadata {text}: it does not exist; expected what kidx export has written")


def _bucket(text: str, layout: Layout) -> Location:
    place = given_location("--tiered ", text) or Path(text)
    try:
        found = find_bucket(place) if layout is LOCAL else place
        if not isinstance(found, Path):
            next(iter(found.iterdir()), None)  # raises where nothing has that prefix
        elif not found.is_dir():
            raise UsageError(f"--tiered {text}: no such directory; expected that of the storage plugin")
    except OSError as error:
        raise UsageError(f"--tiered {text}: {describe_error(error)}") from error
    return found
