"""The options of the source: those of Spark's Kafka source that mean something (`ConsumerStrategy`), and its own; also
where reading begins and ends by them (`KafkaSourceProvider`, `JsonUtils`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import INTERNAL_TOPICS, TopicPartition
from kidxlib.indexing.source import PartitionDirectory, RemoteOptions, parse_topics
from kidxlib.reading.request import ISOLATIONS, MODES, ensure_isolation_means_something

#: The numbers that mean the ends of a log in Spark's options.
LATEST: Final = -1

_EARLIEST: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitOptionNames:
    """The options that say where reading begins, or those that say where it ends.

    Attributes:
        word, number: mean no limit.
        other_word, other: mean the other end of the log.
    """

    timestamp: str
    offsets_by_timestamp: str
    offsets: str
    word: str
    number: int
    other_word: str
    other: int


_STARTING: Final = _LimitOptionNames(
    timestamp="startingTimestamp",
    offsets_by_timestamp="startingOffsetsByTimestamp",
    offsets="startingOffsets",
    word="earliest",
    number=_EARLIEST,
    other_word="latest",
    other=LATEST,
)

_ENDING: Final = _LimitOptionNames(
    timestamp="endingTimestamp",
    offsets_by_timestamp="endingOffsetsByTimestamp",
    offsets="endingOffsets",
    word="latest",
    number=LATEST,
    other_word="earliest",
    other=_EARLIEST,
)

_MAX_OFFSETS, _MAX_BYTES = "maxOffsetsPerTrigger", "maxBytesPerTrigger"
_OF_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_OF_STREAMS: Final = (_MAX_OFFSETS, _MAX_BYTES)
OPTIONS: Final = (
    *("path", "paths", "source"),
    *_OF_TOPICS,
    *(_STARTING.offsets, _STARTING.timestamp, _STARTING.offsets_by_timestamp),
    *(_ENDING.offsets, _ENDING.timestamp, _ENDING.offsets_by_timestamp),
    "startingOffsetsByTimestampStrategy",
    *("includeHeaders", "isolation", "toLogEnd", "mode", "indexDir", "catalog", "failOnDataLoss"),
    *("layout", "tieredMetadata"),
    *_OF_STREAMS,
)
#: Options of Spark's Kafka source for requests to a broker, in lower case.
_OF_A_BROKER: Final = frozenset(
    option.lower()
    for option in (
        *("minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs"),
        *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "fetchOffset.retryInterval"),
    )
)
#: Options of Spark's Kafka source for how long a stream waits, in lower case.
_OF_WAITING: Final = frozenset({"minoffsetspertrigger", "maxtriggerdelay"})
_KAFKA: Final = "kafka."
_ISOLATION_LEVEL: Final = "kafka.isolation.level"
_STRATEGIES: Final = ("error", "latest")


@dataclass(frozen=True, slots=True)
class SourceTopicsOption:
    """The partitions to read: `assigned` ones, those of `subscribed` topics, or those of topics whose names contain a
    match of a pattern; all if nothing is set. Brokers' internal topics must be given by name.
    """

    subscribed: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] | None = None

    def among(self, listed: Sequence[PartitionDirectory]) -> list[TopicPartition]:
        """The existing partitions to read; an error if a given one is missing."""
        there = [directory.topic_partition for directory in listed]
        missing = sorted(partition.directory for partition in (self.assigned or frozenset()).difference(there))
        missing += sorted((self.subscribed or frozenset()).difference(partition.topic for partition in there))
        if missing:
            topics = sorted({partition.topic for partition in there})
            raise UsageError(f"no partition of {', '.join(missing[:3])}; there are topics {', '.join(topics[:10])}")
        return self.existing(listed)

    def asks_for(self, partition: TopicPartition) -> bool:
        """Whether a partition without a directory is to be read."""
        is_by_name = self.assigned is not None or self.subscribed is not None
        return (is_by_name or partition.topic not in INTERNAL_TOPICS) and self._holds(partition)

    def existing(self, listed: Sequence[PartitionDirectory]) -> list[TopicPartition]:
        """The existing partitions to read; given ones may be missing."""
        is_by_name = self.assigned is not None or self.subscribed is not None
        may_be_read = (each.topic_partition for each in listed if is_by_name or not each.is_meant_by_name_only)
        return [partition for partition in may_be_read if self._holds(partition)]

    def _holds(self, partition: TopicPartition) -> bool:
        if self.assigned is not None:
            return partition in self.assigned
        if self.subscribed is not None:
            return partition.topic in self.subscribed
        return self.pattern is None or self.pattern.search(partition.topic) is not None


@dataclass(frozen=True, slots=True)
class SourceLimitOption:
    """Where reading begins, or before which record it ends.

    Attributes:
        option: the option with the limit.
        is_time: numbers are timestamps in ms since the epoch, and mean the first record with this timestamp or a later
            one. Else they are offsets.
        everywhere: the limit of all partitions; None for no limit.
        by_partition: the limit of each partition that is read, None for no limit; None if `everywhere` counts.
    """

    option: str
    is_time: bool = False
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int | None] | None = None

    def of_partition(self, partition: TopicPartition) -> int | None:
        """The limit of a partition; None for no limit."""
        return self.everywhere if self.by_partition is None else self.by_partition[partition]

    def ensure_names(self, partitions: Collection[TopicPartition]) -> None:
        """Refuse an option whose limits are not of the partitions that are read, of each and of no other."""
        named = set(self.by_partition or ())
        if self.by_partition is None or named == set(partitions):
            return
        differences = {"missing": set(partitions) - named, "not read": named - set(partitions)}
        raise UsageError(
            f"{self.option}: expected each partition that is read, and no other; "
            + "; ".join(
                f"{what}: {', '.join(partition.directory for partition in sorted(different)[:3])}"
                for what, different in differences.items()
                if different
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a DataFrame.

    Attributes:
        paths: a log dir, a partition's directory, or a segment's log; or several directories.
        start, end: where reading begins in each partition, and the exclusive end.
        skips_unmatched: a partition without records as late as the start is skipped; else it is an error.
        isolation, mode, index_dir, catalog, to_log_end: as in `kidxlib.read`.
        remote: options for a bucket of tiered storage: `layout` and `tiered_metadata` of `kidxlib.read`.
        fails_on_loss: damage, and a start whose records are gone, end the reading. Else there is a warning.
    """

    paths: tuple[str, ...]
    topics: SourceTopicsOption
    start: SourceLimitOption
    end: SourceLimitOption
    skips_unmatched: bool
    isolation: str
    mode: str
    index_dir: str | None
    catalog: str | None
    to_log_end: bool | None
    remote: RemoteOptions
    fails_on_loss: bool


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The most offsets, or bytes of logs, of a micro-batch; None for no limit."""

    offsets: int | None = None
    log_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a stream, whose `source` has no end."""

    source: SourceOptions
    limits: TriggerLimits


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a batch read; those of a stream are refused. `given` finds options in any case."""
    for option in _OF_STREAMS:
        if option in given:
            raise UsageError(f"option {option}: only a stream has micro-batches; leave it out, or use spark.readStream")
    return _parse(given, of_stream=False)


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    for option in (_ENDING.offsets, _ENDING.timestamp, _ENDING.offsets_by_timestamp):
        if option in given:
            raise UsageError(f"option {option}: a stream goes on; leave it out, or use spark.read")
    source = _parse(given, of_stream=True)
    if source.paths[0].endswith(LOG_SUFFIX):
        raise UsageError(
            f"{source.paths[0]}: expected a log dir or a partition's directory, as a stream goes on in others"
        )
    offsets, log_bytes = (_number(given, option) for option in _OF_STREAMS)
    if offsets is not None and log_bytes is not None:
        raise UsageError(f"{_MAX_OFFSETS} and {_MAX_BYTES}: expected one of them, or none")
    if offsets is not None and source.mode == "batches":
        raise UsageError(f"{_MAX_OFFSETS}: it may end amid a batch; for mode batches expected {_MAX_BYTES}")
    return StreamOptions(source=source, limits=TriggerLimits(offsets, log_bytes))


def parse_columns(given: Mapping[str, str]) -> tuple[str, bool]:
    """The mode, and whether headers are included."""
    _ensure_known(given)
    return _one_of(given, "mode", tuple(MODES)), _flag(given, "includeHeaders", default=False)


def _parse(given: Mapping[str, str], *, of_stream: bool) -> SourceOptions:
    mode, _ = parse_columns(given)
    isolation = _one_of(given, "isolation", ISOLATIONS)
    ensure_isolation_means_something(mode, isolation)
    return SourceOptions(
        paths=_paths(given),
        topics=_parse_topics(given),
        start=_parse_limit(given, _STARTING, takes_other=of_stream),
        end=_parse_limit(given, _ENDING),
        skips_unmatched=_one_of(given, "startingOffsetsByTimestampStrategy", _STRATEGIES) == "latest",
        isolation=isolation,
        mode=mode,
        index_dir=given.get("indexDir"),
        catalog=given.get("catalog"),
        to_log_end=_flag(given, "toLogEnd", default=False) if "toLogEnd" in given else None,
        remote=RemoteOptions(given.get("layout"), tuple(filter(None, given.get("tieredMetadata", "").split(",")))),
        fails_on_loss=_flag(given, "failOnDataLoss", default=True),
    )


def _ensure_known(given: Mapping[str, str]) -> None:
    known = {option.lower() for option in OPTIONS}
    for option in map(str.lower, given):
        if option == _ISOLATION_LEVEL:
            raise UsageError(f"option {option}: no broker is asked; give isolation instead")
        if option in _OF_A_BROKER or option.startswith(_KAFKA):
            raise UsageError(f"option {option}: it means nothing here, as no broker is asked; leave it out")
        if option in _OF_WAITING:
            raise UsageError(
                f"option {option}: a stream here does not wait for more; leave it out: a trigger's interval does that"
            )
        if option not in known:
            raise UsageError(f"option {option}: not known; expected {', '.join(OPTIONS)}")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """The paths to read: of a list that `load` takes Spark makes the option `paths`, in JSON."""
    named = [option for option in ("path", "paths", "source") if option in given]
    if len(named) != 1:
        what = f"{' and '.join(named)} given" if named else "none given"
        raise UsageError(f"{what}, expected one of path, paths and source: log dirs, a partition's directory or a log")
    text = given[named[0]]
    if named != ["paths"]:
        return (text,)
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"paths {text}: expected a list of directories in JSON, as load gives it")
    return tuple(paths)


def _one_of(given: Mapping[str, str], option: str, words: tuple[str, ...]) -> str:
    """The value of an option; the first word if the option is not given."""
    word = given.get(option, words[0]).strip().lower()
    if word not in words:
        raise UsageError(f"{option} {given[option]!r}: expected {' or '.join(words)}")
    return word


def _number(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text.strip()) or not 0 < int(text) < 2**63:
        raise UsageError(f"{option} {text!r}: expected a whole number, 1 or more")
    return int(text)


def _flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    word = given.get(option, str(default)).strip().lower()
    if word not in ("true", "false"):
        raise UsageError(f"{option} {given[option]!r}: expected true or false")
    return word == "true"


def _parse_limit(
    given: Mapping[str, str], options: _LimitOptionNames, *, takes_other: bool = False
) -> SourceLimitOption:
    """The limit that the options give. The first option that is there counts, as in Spark: the timestamp, offsets by
    timestamps, offsets. With `takes_other`, the limit may be the other end of the log, as its number: a stream may
    begin at the latest offset.
    """
    if (text := given.get(options.timestamp)) is not None:
        return SourceLimitOption(options.timestamp, is_time=True, everywhere=_milliseconds(options.timestamp, text))
    if (text := given.get(options.offsets_by_timestamp)) is not None:
        return SourceLimitOption(
            options.offsets_by_timestamp, is_time=True, by_partition=_by_partition(options.offsets_by_timestamp, text)
        )
    text = given.get(options.offsets, options.word).strip()
    if text.lower() == options.word:
        return SourceLimitOption(options.offsets)
    if takes_other and text.lower() == options.other_word:
        return SourceLimitOption(options.offsets, everywhere=options.other)
    numbers: dict[TopicPartition, int | None] = {}
    for partition, number in _by_partition(options.offsets, text).items():
        if number < min(options.number, options.other) or (number == options.other and not takes_other):
            raise UsageError(
                f"{options.offsets} of {partition.directory}: {number}, expected an offset, or {options.number} for "
                f"{options.word}"
            )
        numbers[partition] = None if number == options.number else number
    return SourceLimitOption(options.offsets, by_partition=numbers)


def _by_partition(option: str, text: str) -> dict[TopicPartition, int]:
    """A number for each partition, from JSON: {"topic": {"0": 23, "1": 42}}."""
    try:
        return {
            TopicPartition(topic, int(partition)): _whole(number)
            for topic, numbers in json.loads(text).items()
            for partition, number in numbers.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f'{option} {text}: expected a number for each partition in JSON, as {{"topic": {{"0": 23, "1": 42}}}}'
        ) from error


def _whole(number: object) -> int:
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ValueError(number)
    return number


def _milliseconds(option: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()) or not -(2**63) <= int(text) < 2**63:
        raise UsageError(f"{option} {text}: expected milliseconds since the epoch")
    return int(text)


def _parse_topics(given: Mapping[str, str]) -> SourceTopicsOption:
    named = [option for option in _OF_TOPICS if option in given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: expected one of them, or none for all topics")
    if "subscribe" in given:
        topics = frozenset(filter(None, (topic.strip() for topic in given["subscribe"].split(","))))
        if not topics:
            raise UsageError(f"subscribe {given['subscribe']!r}: expected topics, separated by commas")
        return SourceTopicsOption(subscribed=topics)
    if "subscribePattern" in given:
        return SourceTopicsOption(pattern=parse_topics(given["subscribePattern"].strip(), "subscribePattern"))
    return SourceTopicsOption(assigned=_assigned(given["assign"])) if "assign" in given else SourceTopicsOption()


def _assigned(text: str) -> frozenset[TopicPartition]:
    try:
        assigned = frozenset(
            TopicPartition(topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f'assign {text}: expected JSON as {{"topic": [0, 1], "another": [3]}}') from error
    if not assigned:
        raise UsageError(f"assign {text}: expected a partition")
    return assigned
