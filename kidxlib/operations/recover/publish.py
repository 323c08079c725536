"""The last steps of a recovery: all that was written becomes durable, then recovery points say so, then the marker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kidxlib.errors import PublishError
from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT, clean_shutdown, offset_checkpoint
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.dir_fd import DIRECTORY, flush_file_systems
from kidxlib.storage.directory import Directory
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.publisher import Owner, Publisher, sweep

#: Not the epoch that the broker had. With that one the controller would take the stop for a clean one, and count on
#: records that may be gone (`ClusterControlManager.registerBroker`, KIP-966).
_UNKNOWN_EPOCH: Final = -1
_ALL_AGES_NS: Final = 2**63


def sweep_leftovers(log_dir: Path, forecasts: Sequence[Forecast]) -> None:
    """Remove what killed runs have staged. Whoever holds the lock of the log dir is the only one who stages there."""
    for name in ("", *(each.directory.name for each in forecasts)):
        sweep(Directory(str(log_dir), name), _ALL_AGES_NS)


def flush(log_dir: Path, forecasts: Sequence[Forecast]) -> None:
    """Make logs durable from the segments on that were read, and all that lies beside them. With a recovery point
    behind them, or a marker, a broker takes that for granted.

    Raises:
        PublishError: the disk does not take it.
    """
    for each in forecasts:
        for segment in each.simulation.segments:
            if each.scan_from is not None and segment.base_offset >= each.scan_from:
                _flush_file(each.directory / segment_file(segment.base_offset, LOG_SUFFIX))
    descriptor = os.open(log_dir, DIRECTORY)
    try:
        flush_file_systems([descriptor])
    except OSError as error:
        raise PublishError(f"{log_dir}: cannot be flushed: {error.strerror}; check this disk") from error
    finally:
        os.close(descriptor)


def _flush_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PublishError(f"{path}: cannot be flushed: {error.strerror}; check this disk") from error


def advance_recovery_points(log_dir: Path, points: Mapping[TopicPartition, int], forecasts: Sequence[Forecast]) -> None:
    """Write up to where partitions are flushed: to the ends of their logs.

    Args:
        points: what the checkpoint says now; partitions that are not among the others keep that.

    Raises:
        PublishError: it cannot be written.
    """
    ends = {each.topic_partition: each.simulation.log_end_offset or 0 for each in forecasts}
    _publish(log_dir, RECOVERY_POINT_CHECKPOINT, offset_checkpoint({**points, **ends}))


def write_markers(log_dirs: Sequence[Path]) -> None:
    """Tell the broker that it stopped cleanly, in all log dirs.

    Args:
        log_dirs: those first in which the broker has left a marker of its own. Beside markers of the epoch -1 it
            would go by the epoch in that one (`LogManager.readBrokerEpochFromCleanShutdownFiles`).

    Raises:
        PublishError: one cannot be written; none is left then.
    """
    written: list[Path] = []
    try:
        for log_dir in log_dirs:
            written.append(log_dir)
            _publish(log_dir, CLEAN_SHUTDOWN_FILE, clean_shutdown(_UNKNOWN_EPOCH))
    except PublishError:
        with Publisher() as publisher:
            for log_dir in written:
                publisher.remove(Directory(str(log_dir), ""), CLEAN_SHUTDOWN_FILE)
        raise


def _publish(log_dir: Path, name: str, content: bytes) -> None:
    owner = replace(Owner.of((log_dir / META_PROPERTIES).stat()), mode=0o644)
    with Publisher() as publisher:
        publisher.stage(Directory(str(log_dir), ""), name, content, owner)
        publisher.commit()
