"""The request for an audit of tiered storage, made of checked options, and the settings of topics about retention."""

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
from kidxlib.audit.tiered.remote_finding import AuditLevel
from kidxlib.catalog.findings import REMOTE_SEGMENTS
from kidxlib.errors import UsageError, describe_error
from kidxlib.format.kafka_release import KafkaRelease, NodeRelease
from kidxlib.indexing.source import LAYOUTS, Source, ensure_no_overlap, parse_topics, source_at, split_name
from kidxlib.java import parse_long
from kidxlib.log.remote.layout import LOCAL, ObjectLayout, find_bucket
from kidxlib.log.remote.metadata_topic import EXPORT_SUFFIX
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.storage.location import Location, as_text, given_location
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.terminal.options import MetadataOptions, needing_packages, parse_option
from kidxlib.text.times import parse_duration, parse_milliseconds

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
LOCAL_RETENTION_MS: Final = "local.retention.ms"
LOCAL_RETENTION_BYTES: Final = "local.retention.bytes"
STUCK_AFTER: Final = "1h"
#: The settings that `--what-if` takes, each with the least value that Kafka allows.
SETTINGS: Final = {RETENTION_MS: -1, RETENTION_BYTES: -1, LOCAL_RETENTION_MS: -2, LOCAL_RETENTION_BYTES: -2}


@dataclass(frozen=True, slots=True)
class TieredRecordRequest:
    """A request that the catalog record an audit of tiered storage, or a repair of its objects.

    Attributes:
        audit_id: the run's id. The same request at the same time has the same id, so that a stopped run can be
            repeated.
        source: the bucket's name in the catalog.
        level: a value of `AuditLevel`.
    """

    context: RunContext
    audit_id: str
    source: str
    level: str

    @property
    def catalog(self) -> str:
        return self.context.catalog or f"database {self.context.database}"

    @property
    def line(self) -> str:
        return f"catalog: {self.catalog}, table {REMOTE_SEGMENTS.name}, audit {self.audit_id}"

    def as_json(self) -> dict[str, str]:
        return {"audit_id": self.audit_id, "catalog": self.catalog, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredRequest:
    """The request for an audit.

    Attributes:
        bucket: the directory, or the prefix, of the partitions' directories.
        places: where partitions of `__remote_log_metadata` are: directories, or files with exported records.
        metadata: these directories and the directories of these files; the cluster's metadata may be beside them.
        stuck_ms: for how many ms a state may last.
        as_of_ms: the time at which states are judged, ms since the epoch; None: the time of the metadata.
        interval_bytes: the index interval; None: each topic's configuration.
        known_topics: the topics' configurations in the metadata of the log dirs' clusters.
        what_if: other settings of topics by Kafka's names, to compute what they would free.
        kafka_version: the brokers' Kafka; None for what they have registered.
        recorded_as: None if no catalog records the run.
        asked_before: the requests to object stores that this process had sent before.
    """

    layout: ObjectLayout
    bucket: Location
    places: tuple[Location, ...]
    metadata: tuple[Source, ...]
    level: AuditLevel
    stuck_ms: int
    as_of_ms: int | None
    topics: re.Pattern[str]
    interval_bytes: int | None
    fail_on: Verdict
    known_topics: KnownTopics
    what_if: Mapping[str, int] = field(default_factory=dict)
    kafka_version: KafkaRelease | None = None
    recorded_as: TieredRecordRequest | None = None
    asked_before: Requests = field(default_factory=requests_made)

    @property
    def log_dirs(self) -> list[Source]:
        """The log dirs of the metadata, each once. Files with exported records are left out: they may lie anywhere."""
        places = set(map(str, self.places))
        return list({str(source.path): source for source in self.metadata if str(source.path) in places}.values())

    @property
    def kafka(self) -> NodeRelease:
        """The Kafka of the brokers that read the bucket: the newest that one of them has registered."""
        clusters = [metadata.to_end for metadata in self.known_topics.read()]
        registered = [
            release for cluster in clusters for node, release in cluster.releases.items() if node in cluster.brokers
        ]
        return NodeRelease(self.kafka_version, max(registered, default=None))


def _parse_settings(texts: Iterable[str]) -> dict[str, int]:
    settings = {}
    for text in texts:
        name, _, value = text.partition("=")
        number = parse_long(value)
        if name not in SETTINGS or number is None or number < SETTINGS[name]:
            raise UsageError(
                f"--what-if {text}: expected NAME=NUMBER of {', '.join(SETTINGS)}; -1 is no limit, and -2 of the local "
                "ones the same as of all"
            )
        settings[name] = number
    return settings


def tiered_request(
    tiered: str,
    *,
    tiered_metadata: Sequence[str],
    level: str,
    context: RunContext,
    metadata: MetadataOptions,
    layout: str | None,
    stuck_after: str = STUCK_AFTER,
    topics: str | None,
    interval_bytes: int | None,
    fail_on: str = Verdict.BROKEN.value,
    what_if: Sequence[str] = (),
    now: str | None = None,
    kafka_version: KafkaRelease | None,
    is_repair: bool = False,
) -> TieredRequest:
    """Make the request of options. `tiered` is the bucket, perhaps with the name of its source in the catalog. The run
    is recorded if the context has a catalog.
    """
    if not tiered_metadata:
        raise UsageError(
            "no --tiered-metadata: there is nothing to compare the bucket with; name a log dir that has "
            "__remote_log_metadata with --tiered-metadata DIR"
        )
    places = tuple(map(_metadata_place, tiered_metadata))
    sources = tuple(source_at(str(place.parent if place.name.endswith(EXPORT_SUFFIX) else place)) for place in places)
    name, place = split_name(tiered)
    plugin, recorded_as = LAYOUTS[layout or LOCAL.name], None
    bucket = bucket_at(place, plugin)
    if context.has_catalog:
        source = name or as_text(_absolute_place(place))
        asked = {
            "tiered": [source, str(bucket)],
            "repair": is_repair,
            "layout": layout,
            "metadata": tiered_metadata,
            "level": level,
            "topics": topics,
            "interval_bytes": interval_bytes,
            "stuck_after": stuck_after,
            **({} if kafka_version is None else {"kafka_version": str(kafka_version)}),
        }
        recorded_as = _recorded_audit(context, source, level, bucket, sources, asked)
    return TieredRequest(
        layout=plugin,
        bucket=bucket,
        places=places,
        metadata=sources,
        level=AuditLevel(level),
        stuck_ms=int(parse_option("--stuck-after", parse_duration, stuck_after).total_seconds() * 1000),
        as_of_ms=None if now is None else parse_option("--now", parse_milliseconds, now),
        topics=parse_topics(".*" if topics is None else topics),
        interval_bytes=interval_bytes,
        fail_on=Verdict(fail_on),
        known_topics=read_known_topics(sources, options=metadata),
        what_if=_parse_settings(what_if),
        kafka_version=kafka_version,
        recorded_as=recorded_as,
    )


def _recorded_audit(
    context: RunContext,
    source: str,
    level: str,
    bucket: Location,
    metadata: Sequence[Source],
    asked: Mapping[str, object],
) -> TieredRecordRequest:
    """Where and under which id the catalog records a run. The id is made of the values of `asked`."""
    ensure_no_overlap(None, context.catalog, [*metadata, Source(source, _absolute_place(bucket))])
    if isinstance(bucket, ObjectPath):
        with needing_packages("a bucket with --catalog"):
            import kidxlib.storage.store.client  # noqa: F401  # before anything is read
    digits = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    return TieredRecordRequest(context, context.run_id(digits), source, level)


def _absolute_place(place: str | Location) -> Location:
    if isinstance(place, str):
        place = given_location("", place) or Path(place)
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


def bucket_at(text: str, layout: ObjectLayout) -> Location:
    """The directory or prefix of the partitions' directories at a place that a user gives."""
    place = given_location("", text) or Path(text)
    try:
        bucket = find_bucket(place) if layout is LOCAL else place
        if not isinstance(bucket, Path):
            next(iter(bucket.iterdir()), None)  # raises if nothing has that prefix
        elif not bucket.is_dir():
            raise UsageError(f"{text}: no such directory; expected that of the storage plugin")
    except OSError as error:
        raise UsageError(f"{text}: {describe_error(error)}") from error
    return bucket
