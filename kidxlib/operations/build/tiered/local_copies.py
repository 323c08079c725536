"""Logs of log dirs that may be those of remote segments: they are read in the place of objects that prove the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from kidxlib.audit.tiered.segment import RemoteSegmentToRead
from kidxlib.build.source import Source
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.operations.audit.tiered.numbers.local_logs import local_logs
from kidxlib.storage.location import Location


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """Logs by topic id, partition, base offset and size."""

    paths: Mapping[tuple[str, int, int, int], Location]

    @classmethod
    def of(cls, sources: Sequence[Source], topics: Collection[tuple[str, str]]) -> Self:
        """List the logs of some topics. Warns where that cannot be done.

        Args:
            sources: log dirs, or directories of single partitions; of several with the same log the first counts.
            topics: names and ids.
        """
        paths: dict[tuple[str, int, int, int], Location] = {}
        for log in local_logs(sources, topics) if sources else ():
            sizes = zip(log.segments.base_offsets.tolist(), log.segments.sizes.tolist(), strict=True)
            for base_offset, size in sizes:
                key = log.partition.topic_id, log.partition.partition, base_offset, size
                paths.setdefault(key, log.directory / segment_file(base_offset, LOG_SUFFIX))
        return cls(paths)

    def beside(self, segment: RemoteSegmentToRead) -> RemoteSegmentToRead:
        """A segment, and those before it, with the logs that may be theirs."""
        partition = segment.partition
        key = partition.topic_id, partition.partition, segment.start_offset, segment.log_bytes
        before = None if segment.before is None else self.beside(segment.before)
        return replace(segment, local_log=self.paths.get(key), before=before)
