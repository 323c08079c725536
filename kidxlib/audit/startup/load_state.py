"""The state of a broker's loading of one partition: what each of its passes reads and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, Self

from kidxlib.audit.startup import partition_files
from kidxlib.audit.startup.partition_files import offset_of
from kidxlib.audit.startup.producer_snapshots import ProducerSnapshots
from kidxlib.audit.startup.recovery import ReadLog, Recovery
from kidxlib.audit.startup.simulation import Removal, SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.format import segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.location import Location, files_in, location


class LoadStopped(Exception):  # noqa: N818  # ends a simulated load, and is none of ours
    """Loading of the partition has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadArguments:
    """The options and offsets with which a broker loads a partition.

    Attributes:
        options: of the topic, as they are when the broker starts.
        recovery_point, log_start_offset: what the log dir's checkpoint files say; 0 where they say nothing.
    """

    options: RecoverOptions
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int


@dataclass(slots=True)
class LoadState:
    """One partition while it is loaded.

    Attributes:
        arguments: what it is loaded with.
        read_before: what recovering a segment comes to, by base offset, for segments that were already read with these
            options.
        read_log: reads others.
        found: what the simulation has found so far.
        files: by the names that they have at this point.
        snapshots: the producer snapshots that exist at this point.
        recoveries: of the segments that the broker recovered, by base offset.
    """

    arguments: LoadArguments
    read_before: Mapping[int, Recovery]
    read_log: ReadLog
    found: StartupSimulation
    files: dict[str, Location]
    snapshots: ProducerSnapshots = field(default_factory=ProducerSnapshots)
    recoveries: dict[int, Recovery] = field(default_factory=dict)

    @classmethod
    def of_directory(
        cls, directory: Location, arguments: LoadArguments, read_before: Mapping[int, Recovery], read_log: ReadLog
    ) -> Self:
        """The state of a directory before loading begins.

        Raises:
            OSError: the directory cannot be listed.
        """
        files = files_in(directory)
        return cls(
            arguments,
            read_before,
            read_log,
            StartupSimulation(failures=[str(each) for each in partition_files.failures_in_files(directory, files)]),
            {name: path for name, path in files.items() if not partition_files.is_misnamed(name)},
        )

    def log_of(self, base_offset: int) -> Location:
        """The path of a segment's log."""
        return self.files[segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)]

    def opened(self, base_offset: int, suffix: str = "", kept_bytes: int | None = None) -> LogSegment:
        """Open a segment as a broker opens it.

        Args:
            suffix: what its files' names end with besides.
            kept_bytes: what is left of its log; None for all of it.
        """

        def path(kind: str) -> str:
            name = segment_files.segment_file(base_offset, kind) + suffix
            return str(self.files.get(name, name))

        log, offset_path = LogFile(path(segment_files.LOG_SUFFIX)), path(segment_files.OFFSET_INDEX_SUFFIX)
        index = OffsetIndex.open(offset_path, base_offset)
        if not location(offset_path).exists() or base_offset in self.recoveries:
            # A swap file may have no index. A recovered segment's index is rebuilt, so any right index will do.
            index = OffsetIndex.from_bytes(b"", base_offset)
        if kept_bytes is not None:
            log.keep_valid(kept_bytes)
        return LogSegment(log, base_offset, index, TimeIndex.from_bytes(b"", base_offset))

    def remove(self, name: str, why: Removal) -> None:
        """Remove a file."""
        del self.files[name]
        self.found.removed[name] = why

    def delete(self, segment: SimulatedSegment, why: str) -> None:
        """Delete a segment and its producer snapshot."""
        segment.action, segment.kept_bytes, segment.detail = StartupAction.DELETE, 0, why
        self.snapshots.remove(segment.base_offset)


def fail(segment: SimulatedSegment, why: str) -> NoReturn:
    """Let loading fail at a segment.

    Raises:
        LoadStopped: always.
    """
    segment.action, segment.detail = StartupAction.FAIL, why
    raise LoadStopped


def file_offset(name: str) -> int:
    """The offset in the name of a file; the name is known to have one."""
    offset = offset_of(name)
    assert offset is not None, name
    return offset
