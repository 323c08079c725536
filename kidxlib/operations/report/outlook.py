"""The outlook of a fleet (`outlook_section`): what is deleted next, how long disks have room, and what is stored."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.format.layouts import BATCH_V2
from kidxlib.operations.report.questions import LATELY_MS, SHAPE, Answers, written_lately
from kidxlib.operations.report.sections import topics_unknown
from kidxlib.storage.store.s3 import is_object

_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of this machine on which sources are.

    Attributes:
        path: of its first source.
        total_bytes, free_bytes: free ones are those for users other than root, as a broker has them.
    """

    path: str
    sources: tuple[str, ...]
    total_bytes: int
    free_bytes: int


def disks_of(paths: Mapping[str, str]) -> list[Disk]:
    """The disks of the sources that this machine can reach; `paths` by the name of the source. Sources in object stores
    have none.
    """
    sources: defaultdict[int, list[str]] = defaultdict(list)
    found: dict[int, tuple[str, os.statvfs_result]] = {}
    for name, path in sorted(paths.items()):
        if is_object(path) or not os.path.isdir(path):
            continue
        device = os.stat(path).st_dev
        sources[device].append(name)
        found.setdefault(device, (path, os.statvfs(path)))
    return [
        Disk(path, tuple(sources[device]), state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize)
        for device, (path, state) in found.items()
    ]


def outlook_section(
    answers: Answers, retention: Mapping[str, Any], overview: Mapping[str, Any], disks: list[Disk], built_ms: int
) -> dict[str, Any]:
    """What comes next and what is stored, in bytes and ms since the epoch. A day's bytes are a seventh of those of the
    seven days before the last build, at `built_ms`.
    """
    lately = {row["source"]: row["bytes"] for row in answers[written_lately(built_ms)]}
    topics = retention["topics"]
    known = [row["configured"] for row in topics if not row["configured"]["unknown"]]
    due = [row["due_ms"] for row in known if row["due_ms"] is not None]
    shape = answers[SHAPE]
    return {
        "retention": {
            "topics": len(topics),
            "topics_unknown": len(topics_unknown(retention)),
            "freed_now": sum(row["freed"] for row in known),
            "freed_later": sum(row["freed_later"] for row in known),
            "next_due_ms": min(due, default=None),
        },
        "bytes_a_day": round(sum(lately.values()) * _DAY_MS / LATELY_MS),
        "disks": [_disk_outlook(disk, lately) for disk in disks],
        "stored": {
            "log_bytes": overview["log_bytes"],
            "remote_bytes": overview["remote_bytes"],
            "index_bytes": sum(row["index_bytes"] for row in shape),
            "header_bytes": sum(row["batches"] for row in shape) * BATCH_V2.itemsize,
        },
    }


def _disk_outlook(disk: Disk, lately: Mapping[str, float]) -> dict[str, Any]:
    """A disk, and in how many days it is full if as much is written as in the last seven, and nothing is deleted."""
    a_day = sum(lately.get(source, 0) for source in disk.sources) * _DAY_MS / LATELY_MS
    return {
        "path": disk.path,
        "sources": list(disk.sources),
        "total_bytes": disk.total_bytes,
        "free_bytes": disk.free_bytes,
        "bytes_a_day": round(a_day),
        "days_left": disk.free_bytes / a_day if a_day else None,
    }
