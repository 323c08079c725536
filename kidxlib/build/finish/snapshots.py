"""The producer snapshots of a partition: the broker's own, those of the fold, and superfluous ones."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from functools import cached_property

from kidxlib.build.finish.files import PartitionFiles
from kidxlib.build.tasks import PartitionTask
from kidxlib.errors import SnapshotError
from kidxlib.format.producer_snapshot import SNAPSHOT_BYTES_MAX
from kidxlib.format.segment_files import SNAPSHOT_SUFFIX, parse_snapshot, segment_file
from kidxlib.recovery.partition import StateSource
from kidxlib.recovery.producers import Producers
from kidxlib.storage.directory import list_directory, read_file


class BrokerSnapshots:
    """The broker's snapshots beside the logs of a partition."""

    def __init__(self, task: PartitionTask) -> None:
        self._task = task

    @cached_property
    def _offsets(self) -> frozenset[int | None]:
        """Listed once, and only where the state is not known without them."""
        return frozenset(parse_snapshot(name) for name in list_directory(self._task.segments_directory))

    def at(self, offset: int) -> bytes | None:
        """The snapshot at an offset; None where there is none."""
        if offset not in self._offsets:
            return None
        return read_file(self._task.segments_directory, segment_file(offset, SNAPSHOT_SUFFIX), SNAPSHOT_BYTES_MAX)


def publish_snapshot(files: PartitionFiles, offset: int, content: bytes, source: StateSource) -> None:
    """Stage a snapshot, unless one with the same producers exists, or in place the state is not certain.

    Where there is none that can be read, a broker that recovers takes one of what it has read, certain or not. Without
    it a segment is never copied to tiered storage (`RemoteLogManager.RLMCopyTask.copyLogSegment`).
    """
    name = segment_file(offset, SNAPSHOT_SUFFIX)
    if not files.task.may_write(name):
        return
    present, is_there = files.read_present(name, SNAPSHOT_BYTES_MAX), False
    if present is not None:
        # The same producers in another order are the same snapshot: a broker's own is left as it is.
        with contextlib.suppress(SnapshotError):
            if Producers.from_snapshot(present).snapshot() == content:
                return
            is_there = True
    is_taken = bool(files.task.recovered) and not is_there
    files.stage_or_keep(name, content, certain=is_taken or source is not StateSource.UNKNOWN)


def drop_other_snapshots(files: PartitionFiles, wanted: Collection[int]) -> None:
    """Remove the snapshots in an index directory that are at none of some offsets. Snapshots beside the logs are the
    broker's.
    """
    if files.task.in_place:
        return
    offsets = {name: parse_snapshot(name) for name in files.present}
    others = (name for name, offset in offsets.items() if offset is not None and offset not in wanted)
    files.superfluous += filter(files.task.may_write, others)
