"""The names of snapshots of KRaft's log: where in the log they end, and that place's epoch.

Source: `org.apache.kafka.snapshot.Snapshots`, `BootstrapDirectory`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SUFFIX: Final = ".checkpoint"
#: With those of snapshots that are being written or deleted, which a node removes as it starts.
SUFFIXES: Final = (SUFFIX, ".checkpoint.part", ".checkpoint.deleted")
#: What formatting a log dir leaves for a controller that starts for the first time.
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"

_NAME: Final = re.compile(rf"([0-9]{{20}})-([0-9]{{10}}){re.escape(SUFFIX)}")
_OFFSET_MAX: Final = 2**63 - 1
_EPOCH_MAX: Final = 2**31 - 1


class SnapshotId(NamedTuple):
    """Which snapshot: it holds what the log says below `end_offset`, whose last record has `epoch`."""

    end_offset: int
    epoch: int


def snapshot_file(snapshot: SnapshotId) -> str:
    """The name of a snapshot's file."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_snapshot(name: str) -> SnapshotId | None:
    """The snapshot that is called `name`; None where that is none."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > _OFFSET_MAX or int(match[2]) > _EPOCH_MAX:
        return None
    return SnapshotId(int(match[1]), int(match[2]))
