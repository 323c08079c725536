"""Plans of log dirs with usual options, and segments to plan with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.plan import Plan, find_segments
from kidxlib.indexing.source import IndexPlace, Source, SourceLog
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import FileVersion, Location


def plan_of(
    sources: Sequence[Source], index_dir: Location | None, topics: str = ".*", options: RecoverOptions | None = None
) -> Plan:
    """The segments of sources; of several, each has its own part of the index directory."""
    of_each = OptionsOfTopic(options or RecoverOptions())
    index_place = IndexPlace(index_dir=index_dir, by_source=len(sources) > 1)
    return find_segments(sources, re.compile(topics), index_place, lambda _: of_each)


def listed_segment(base_offset: int, path: str, version: FileVersion | None) -> SourceLog:
    """A segment of partition 3 of topic t in source s that is not the active one."""
    partition = TopicPartition("t", 3)
    return SourceLog(
        source="s", topic_partition=partition, base_offset=base_offset, path=path, version=version, active=False
    )
