"""The names of the files in a partition's directory. A segment's file is named by an offset of 20 digits and a suffix,
a snapshot of KRaft's log by its end offset and epoch.

Sources: `org.apache.kafka.storage.internals.log.LogFileUtils`, `org.apache.kafka.snapshot.Snapshots`,
`BootstrapDirectory`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

OFFSET_MAX = 2**63 - 1
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")

INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
AUXILIARY_SUFFIXES = (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX)

KRAFT_SNAPSHOT_SUFFIX: Final = ".checkpoint"
#: Includes snapshots that are being written or deleted, which a node removes when it starts.
KRAFT_SNAPSHOT_SUFFIXES: Final = (KRAFT_SNAPSHOT_SUFFIX, ".checkpoint.part", ".checkpoint.deleted")
#: The snapshot that formatting a log dir writes for a controller's first start.
BOOTSTRAP_SNAPSHOT: Final = "bootstrap.checkpoint"

_KRAFT_SNAPSHOT_FILE: Final = re.compile(rf"([0-9]{{20}})-([0-9]{{10}}){re.escape(KRAFT_SNAPSHOT_SUFFIX)}")
_EPOCH_MAX: Final = 2**31 - 1


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_log(name: str) -> int | None:
    """The base offset of a segment's log by its file name; None if it is not a segment's log."""
    return _offset_in(name, LOG_SUFFIX)


def parse_snapshot(name: str) -> int | None:
    """The offset of a producer snapshot by its file name; None if it is not one."""
    return _offset_in(name, SNAPSHOT_SUFFIX)


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of a segment's file or a snapshot by its name; None if it is neither."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1]), match[2]


def _offset_in(name: str, suffix: str) -> int | None:
    parsed = parse_segment_file(name)
    return parsed[0] if parsed is not None and parsed[1] == suffix else None


class SnapshotId(NamedTuple):
    """The id of a snapshot, which covers the log below `end_offset`; the last record there has `epoch`."""

    end_offset: int
    epoch: int


def kraft_snapshot_file(snapshot: SnapshotId) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{KRAFT_SNAPSHOT_SUFFIX}"


def parse_kraft_snapshot(name: str) -> SnapshotId | None:
    """The id of a snapshot by its file name; None if it is not one."""
    match = _KRAFT_SNAPSHOT_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX or int(match[2]) > _EPOCH_MAX:
        return None
    return SnapshotId(int(match[1]), int(match[2]))
