"""The request for a reading: what to read, checked before anything is listed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Final, TypeAlias

import pyarrow as pa

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, parse_segment_log
from kidxlib.format.topic_partition import INTERNAL_TOPICS, TopicPartition, parse_partition_directory
from kidxlib.indexing.listing import SkippedEntries, list_distinct_partitions
from kidxlib.indexing.source import ANY_TOPIC, NOT_SAID, PartitionDirectory, RemoteOptions, Source, source_at
from kidxlib.records.arrow_batches import LISTED_BATCHES
from kidxlib.records.arrow_columns import CONSUMED, schema_of_columns
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import Location, given_location, location
from kidxlib.text.times import parse_milliseconds

#: From a start to below an end; None for no limit.
OffsetRange: TypeAlias = tuple[int | None, int | None]
#: One range for all partitions; or one for each named directory, and then no other partition is read.
Offsets: TypeAlias = OffsetRange | Mapping[str, OffsetRange]
#: From a time to before another, in ms since the epoch or in ISO 8601 with a zone; None for no limit.
Times: TypeAlias = tuple[int | str | None, int | str | None]

#: One place or several.
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

READ_COMMITTED: Final = "read_committed"
#: Kafka's `isolation.level`.
ISOLATIONS: Final = ("read_uncommitted", READ_COMMITTED)
#: What may be read, and its columns.
MODES: Final = {"records": CONSUMED, "batches": LISTED_BATCHES}
_EXPECTED_TIMES: Final = (
    "expected a start and an end, each in ms since the epoch, in ISO 8601 with a zone (as a datetime's isoformat()), "
    "or nothing for no limit"
)
#: A pattern that is a topic's name.
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EVERYTHING: Final[OffsetRange] = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The request for a reading.

    Attributes:
        sources: log dirs, partitions' directories, or the directory of a segment's log.
        log_name: the only log that is read, by its name; None for all.
        index_dir: the tree with the index files; None if they are beside the logs.
        topics: matches the full names of topics. Topics that brokers keep for themselves are meant only if the pattern
            spells their names.
        offsets: the range of each partition; None for `all_offsets` in all partitions.
        times: ms since the epoch, from the first on to before the second; None for no limit.
        committed: only records of committed transactions, and records outside transactions, up to the last stable
            offset.
        to_log_end: whether to read beyond the high watermark, to the end of logs. None: if this is the only replica,
            see `OnlyReplicas`.
    """

    sources: Sequence[Source]
    log_name: str | None
    index_dir: Location | None
    topics: re.Pattern[str]
    offsets: Mapping[TopicPartition, OffsetRange] | None
    all_offsets: OffsetRange
    times: tuple[int | None, int | None]
    committed: bool
    to_log_end: bool | None

    @property
    def place(self) -> str:
        """The sources in messages."""
        return ", ".join(str(source.path) for source in self.sources)

    @property
    def log_dirs(self) -> list[Location]:
        return [source.log_dir for source in self.sources]

    def partitions(self, skipped: SkippedEntries | None = None) -> list[PartitionDirectory]:
        """The partitions of the sources, in order. Other entries of the directories are added to `skipped`."""
        return list_distinct_partitions(self.sources, skipped)

    def offsets_of(self, directory: PartitionDirectory) -> OffsetRange:
        return self.all_offsets if self.offsets is None else self.offsets[directory.topic_partition]

    def wanted(self, directory: PartitionDirectory) -> WantedRecords | None:
        """The part of a partition that is asked for; None if nothing of it is."""
        if not self.names(directory) or self.leaves_out(directory):
            return None
        wanted = WantedRecords.between(*self.offsets_of(directory), *self.times)
        return None if wanted.is_empty else wanted

    def names(self, directory: PartitionDirectory) -> bool:
        """Whether topics and offsets name a partition, also if no record of it is wanted."""
        partition = directory.topic_partition
        is_asked = self.offsets is None or partition in self.offsets
        return is_asked and self.topics.fullmatch(partition.topic) is not None

    def asks_for(self, partition: TopicPartition) -> bool:
        """Whether a partition without a directory is asked for."""
        if self.offsets is not None:
            return partition in self.offsets
        is_meant = partition.topic not in INTERNAL_TOPICS or partition.topic in self.topics.pattern
        return is_meant and self.topics.fullmatch(partition.topic) is not None

    @property
    def is_by_name(self) -> bool:
        """Whether topics or partitions are asked for by their names, and not all that there are."""
        return self.offsets is not None or self.topics.pattern != ANY_TOPIC.pattern

    def missing_names(self, known: Collection[TopicPartition]) -> list[TopicPartition]:
        """The partitions that are asked for by name and are not `known`. A topic that is named alone or as in `a|b`
        stands for its partition 0, which each topic has.
        """
        if self.offsets is not None:
            return sorted(self.offsets.keys() - known)
        topics = {partition.topic for partition in known}
        names = self.topics.pattern.split("|")
        if not all(map(_TOPIC_NAME.fullmatch, names)):
            return []
        return [TopicPartition(name, 0) for name in names if not any(map(re.compile(name).fullmatch, topics))]

    def leaves_out(self, directory: PartitionDirectory) -> bool:
        """Whether `topics` matches a partition that is not read: brokers keep its topic for themselves, and the request
        does not spell its name.
        """
        topic = directory.topic_partition.topic
        is_named = self.offsets is not None or topic in self.topics.pattern
        return directory.is_meant_by_name_only and not is_named and self.topics.fullmatch(topic) is not None


def read_request(
    path: Paths,
    *,
    topics: re.Pattern[str] = ANY_TOPIC,
    offsets: Offsets | None = None,
    times: Times | None = None,
    isolation: str = ISOLATIONS[0],
    index_dir: Location | None = None,
    to_log_end: bool | None = None,
    remote: RemoteOptions = NOT_SAID,
) -> ReadRequest:
    """Make a `ReadRequest` of a caller's arguments, which are checked. `path` is a log dir, a partition's directory, a
    segment's log in one, or a bucket of tiered storage, which `remote` describes; or several directories, as of a
    broker with more than one log dir.
    """
    directories, log_name = _places(path)
    if isolation not in ISOLATIONS:
        raise UsageError(f"isolation {isolation!r}: expected {' or '.join(ISOLATIONS)}")
    by_partition = _by_partition(offsets) if isinstance(offsets, Mapping) else None
    all_offsets = _EVERYTHING if offsets is None or isinstance(offsets, Mapping) else _checked(offsets, "offsets")
    return ReadRequest(
        sources=[source_at(directory or ".", remote=remote) for directory in directories],
        log_name=log_name,
        index_dir=index_dir,
        topics=topics,
        offsets=by_partition,
        all_offsets=all_offsets,
        times=_EVERYTHING if times is None else _checked(_in_ms(times), "times"),
        committed=isolation == READ_COMMITTED,
        to_log_end=to_log_end,
    )


def requested_log(path: str | os.PathLike[str]) -> tuple[str, int]:
    """The path or URL of a segment's log that a caller requests, and the base offset in its name."""
    text = os.fspath(path)
    place = given_location("", text) or location(text)
    base_offset = parse_segment_log(place.name)
    if base_offset is None:
        raise UsageError(f"{text}: expected the path of a segment's log, which is named <base offset, 20 digits>.log")
    return str(place), base_offset


def _places(path: Paths) -> tuple[list[str], str | None]:
    """The directories of some paths, and the name of the only log to read; None for all logs."""
    texts = [os.fspath(path)] if isinstance(path, str | os.PathLike) else [os.fspath(one) for one in path]
    if not texts:
        raise UsageError("no path: expected a log dir, a partition's directory or a log")
    for text in texts:
        if text.endswith(LOG_SUFFIX) and parse_segment_log(os.path.basename(text)) is None:
            raise UsageError(f"{text}: expected a segment's log, which is named <base offset, 20 digits>{LOG_SUFFIX}")
        if text.endswith(LOG_SUFFIX) and len(texts) > 1:
            raise UsageError(f"{text}: a log beside other paths; expected it alone, or directories")
    if texts[0].endswith(LOG_SUFFIX):
        directory, log_name = os.path.split(texts[0])
        return [directory], log_name
    return texts, None


def ensure_isolation_means_something(mode: str, isolation: str) -> None:
    if mode != "records" and isolation == READ_COMMITTED:
        raise UsageError(f"isolation {isolation}: of {mode} all are read; expected none")


def requested_schema(mode: str, columns: Iterable[str] | None, *, include_headers: bool) -> pa.Schema:
    """The schema of the columns that a caller requests, in their order; None for all, headers only if included."""
    if mode not in MODES:
        raise UsageError(f"mode {mode!r}: expected {' or '.join(MODES)}")
    known = MODES[mode]
    left_out = set() if include_headers else {"headers"}
    names = [name for name in known.names if name not in left_out] if columns is None else list(columns)
    if not names:
        raise UsageError("no column: expected one or more; kidxlib.count tells how many records there are")
    return schema_of_columns(names, known)


def _by_partition(offsets: Mapping[str, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
    ranges = {}
    for name, offset_range in offsets.items():
        partition = parse_partition_directory(name)
        if partition is None:
            raise UsageError(f"offsets of {name!r}: expected the name of a partition's directory, <topic>-<partition>")
        ranges[partition] = _checked(offset_range, f"offsets of {name}")
    return ranges


def _checked(limits: OffsetRange, what: str) -> OffsetRange:
    start, end = limits
    if start is not None and end is not None and end < start:
        raise UsageError(f"{what} {start} to {end}: expected an end that is not below the start")
    return start, end


def _in_ms(times: Times) -> OffsetRange:
    if not isinstance(times, tuple | list) or len(times) != 2:
        raise UsageError(f"times: found {times!r}, {_EXPECTED_TIMES}")
    return _moment(times[0]), _moment(times[1])


def _moment(moment: object) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, str):
        return parse_milliseconds(moment)
    if isinstance(moment, Integral) and not isinstance(moment, bool):
        return int(moment)
    raise UsageError(f"times: found {moment!r}, {_EXPECTED_TIMES}")
