"""The options of a topic's indexes, from command line options, settings, and its cluster's metadata."""

from __future__ import annotations

import re

from kidxlib.indexing.source import PartitionDirectory
from kidxlib.recovery.options import OptionsOfTopic
from kidxlib.run.index_options import options_of_topic
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.settings import Settings, TopicSettings


def recover_options(
    settings: Settings,
    known: KnownTopics,
    partition: PartitionDirectory,
    interval_bytes: int | None,
    max_index_bytes: int | None = None,
    *,
    verify_crc: bool = True,
) -> OptionsOfTopic:
    """The options of a partition's indexes: from the command line, else the first matching [[topic]], else [build],
    else the topic's own configuration, else Kafka's defaults.
    """
    topic, build = partition.topic_partition.topic, settings.build
    matching = (entry for entry in settings.topic if re.fullmatch(entry.match, topic))
    own = next(matching, TopicSettings(match=""))
    return options_of_topic(
        known,
        partition,
        interval_bytes=_first(interval_bytes, own.interval_bytes, build.interval_bytes),
        max_index_bytes=_first(max_index_bytes, own.max_index_bytes, build.max_index_bytes),
        verify_crc=verify_crc,
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
