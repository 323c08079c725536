"""The logs that brokers still have of tiered partitions, in the log dirs that an audit is given for the metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.directories import Target
from kidxlib.build.discover import add_segments, find_partitions
from kidxlib.build.listed import NOT_SEEN
from kidxlib.build.source import Source
from kidxlib.catalog.matching import Values
from kidxlib.errors import UsageError
from kidxlib.format import layouts as formats
from kidxlib.format.segment_files import TIME_INDEX_SUFFIX, segment_file
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.retention.partition import Longs, Segments
from kidxlib.storage.directory import Directory, read_end
from kidxlib.storage.location import Location
from kidxlib.terminal.console import warn
from kidxlib.text.times import NS_PER_MS

_NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A partition's log in one log dir; there is at least one segment.

    Attributes:
        segments: by base offset; without their largest timestamps.
    """

    partition: TopicIdPartition
    directory: Location
    segments: Segments

    @property
    def end(self) -> tuple[int, int]:
        """How far it goes: of two copies the one with more is the leader's, or as good."""
        return int(self.segments.base_offsets[-1]), int(self.segments.sizes[-1])

    @property
    def bytes(self) -> int:
        return int(self.segments.sizes.sum())

    def largest_timestamps(self, numbers: Iterable[int]) -> Longs:
        """What the time indexes of some segments end with, ms since the epoch; −1 where none says it, as of the last
        segment and in an object store, which would have to be asked for each.
        """
        return np.array([self._largest_timestamp(number) for number in numbers], np.int64)

    def _largest_timestamp(self, number: int) -> int:
        base_offset = int(self.segments.base_offsets[number])
        if number == len(self.segments) - 1 or not isinstance(self.directory, Path):
            return _NO_TIME
        name = segment_file(base_offset, TIME_INDEX_SUFFIX)
        end = read_end(Directory(str(self.directory), ""), name, formats.TIME_INDEX_ENTRY.itemsize)
        if end is None or len(end) != formats.TIME_INDEX_ENTRY.itemsize:
            return _NO_TIME
        timestamp = int(np.frombuffer(end, formats.TIME_INDEX_ENTRY)["timestamp"][0])
        return timestamp if timestamp > 0 else _NO_TIME  # zeros: it was not cut to its size


def local_logs(sources: Iterable[Source], topic_ids: Collection[tuple[str, str]]) -> list[LocalLog]:
    """List the logs of some topics.

    Args:
        sources: log dirs, or directories of single partitions.
        topic_ids: names and ids of topics.
    """
    if not topic_ids:
        return []
    topics = re.compile("|".join(sorted(re.escape(topic) for topic, _ in topic_ids)))
    wanted = set(topic_ids)
    return [
        log
        for source in {str(each.path): each for each in sources}.values()
        for log in _logs_in(source, topics)
        if (log.partition.topic, log.partition.topic_id) in wanted
    ]


def _logs_in(source: Source, topics: re.Pattern[str]) -> Sequence[LocalLog]:
    try:
        plan = find_partitions(
            [source], topics, Target(index_dir=None, by_source=False), lambda _: OptionsOfTopic(RecoverOptions())
        )
    except UsageError as error:
        warn(f"{error}; its logs are not counted")
        return []
    add_segments(plan)
    for each in plan.unlistable.values():
        warn(f"{each.directory}: {each.reason}; its log is not counted")
    found = []
    for listed, rows in plan.by_partition():
        place = listed.directory.topic_partition
        sizes = _numbers(rows["log_bytes"])
        is_seen = sizes >= 0
        if not is_seen.any():
            continue
        segments = Segments(
            base_offsets=rows["base_offset"].to_numpy()[is_seen],
            sizes=sizes[is_seen],
            max_timestamps=np.full(int(is_seen.sum()), _NO_TIME, np.int64),
            mtimes_ms=_numbers(rows["log_mtime_ns"])[is_seen] // NS_PER_MS,
            fully_read=np.ones(int(is_seen.sum()), np.bool_),
        )
        of = TopicIdPartition(listed.topic_id or "", place.topic, place.partition)
        found.append(LocalLog(of, listed.directory.path, segments))
    return found


def _numbers(column: Values) -> Longs:
    filled: Any = pc.fill_null(column, pa.scalar(NOT_SEEN, pa.int64()))
    numbers: Longs = filled.to_numpy()
    return numbers
