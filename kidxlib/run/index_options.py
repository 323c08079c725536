"""The options of a topic's indexes: from the command line, else the settings, else its cluster's metadata, else Kafka's
defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kidxlib.format import layouts
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.java import parse_int
from kidxlib.log.metadata_image import ClusterMetadata, ConfigValue
from kidxlib.recovery.options import (
    INTERVAL,
    INTERVAL_BYTES_DEFAULT,
    MAX_INDEX,
    MAX_INDEX_BYTES_DEFAULT,
    OptionsOfTopic,
    RecoverOptions,
)
from kidxlib.run.known_topics import KnownTopics, counted_by_origin, metadata_as_json
from kidxlib.text.words import counted

if TYPE_CHECKING:  # not read without a catalog
    from kidxlib.run.settings import Settings

#: The options of a partition's indexes.
OptionsFor: TypeAlias = Callable[[PartitionDirectory], OptionsOfTopic]

#: The least value of each option.
_LEAST: Final = {INTERVAL: 0, MAX_INDEX: layouts.TIME_INDEX_ENTRY.itemsize}


def options_of_topic(
    known: KnownTopics,
    partition: PartitionDirectory,
    *,
    interval_bytes: int | None,
    max_index_bytes: int | None,
    verify_crc: bool = True,
    settings: Settings | None = None,
) -> OptionsOfTopic:
    """The options of a partition's indexes: those given (None: not given), else those of the first matching [[topic]]
    of the settings, else of [build], else the topic's in the metadata, else Kafka's defaults.
    """
    source, topic = partition.source.name, partition.topic_partition.topic
    if settings is not None:
        of_topic, of_build = settings.of_topic(topic), settings.build
        interval_bytes = _first(interval_bytes, of_topic.interval_bytes, of_build.interval_bytes)
        max_index_bytes = _first(max_index_bytes, of_topic.max_index_bytes, of_build.max_index_bytes)
    otherwise = RecoverOptions(
        interval_bytes=INTERVAL_BYTES_DEFAULT if interval_bytes is None else interval_bytes,
        max_index_bytes=MAX_INDEX_BYTES_DEFAULT if max_index_bytes is None else max_index_bytes,
        verify_crc=verify_crc,
    )
    by_user = {INTERVAL: interval_bytes, MAX_INDEX: max_index_bytes}
    given = frozenset(name for name, number in by_user.items() if number is not None)
    own: dict[str, int] = {}
    origins: dict[str, str] = {}
    for name in by_user.keys() - given:
        config = known.config(source, topic, name)
        if config is not None and (number := _number(name, config)) is not None:
            own[name], origins[name] = number, config.origin.value
    if not own:
        return OptionsOfTopic(otherwise, given=given)
    with_own = replace(
        otherwise,
        interval_bytes=own.get(INTERVAL, otherwise.interval_bytes),
        max_index_bytes=own.get(MAX_INDEX, otherwise.max_index_bytes),
    )
    return OptionsOfTopic(otherwise, known.topic_id(source, topic), with_own, tuple(sorted(origins.items())), given)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _number(name: str, config: ConfigValue) -> int | None:
    """A setting's number, if a broker would accept it."""
    number = parse_int(config.value)
    return None if number is None or number < _LEAST[name] else number


def _taken_from_metadata(
    known: KnownTopics, plan: Plan
) -> Iterator[tuple[ClusterMetadata, int, Mapping[str, Mapping[str, int]]]]:
    """Each copy of metadata, how many topics it has (one in several sources counts once), and for how many topics a run
    has taken each setting from it, by who set it.
    """
    for metadata in known.read():
        sources = {name for name, of_source in known.of_sources.items() if of_source.metadata is metadata}
        partitions = [partition for partition in plan.partitions if partition.key[0] in sources]
        taken = {
            (partition.key[1], *setting)
            for partition in partitions
            for setting in partition.choice.known_of(partition.topic_id).items()
        }
        counts = {name: Counter(origin for _, setting, origin in taken if setting == name) for name in _LEAST}
        yield metadata, len({partition.key[1] for partition in partitions}), counts


def index_options_lines(known: KnownTopics, plan: Plan) -> list[str]:
    """A line for each copy of metadata: how far it was read, and for how many topics it gave options of indexes, by who
    set them.
    """
    lines = []
    for metadata, topics, by_origin in _taken_from_metadata(known, plan):
        settings = ", ".join(
            f"{name} is set in {counted_by_origin(origins)} of {counted(topics, 'topic')}"
            for name, origins in by_origin.items()
            if origins
        )
        line = f"{known.described(metadata)}{f': {settings}; options and settings win' if settings else ''}"
        if metadata.end_offset > metadata.as_of.offset:
            line += f"; what it has up to offset {metadata.end_offset} may not be committed (--metadata-high-watermark)"
        lines.append(line)
    return lines


def index_options_as_json(known: KnownTopics, plan: Plan) -> list[dict[str, Any]]:
    return [metadata_as_json(*taken) for taken in _taken_from_metadata(known, plan)]
