"""Which state of a file or an object was seen: its size, time and inode."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What tells one state of a file from another: size in bytes, modification time in ns, inode number; an object has
    none, and its time is in whole seconds.
    """

    size: int
    mtime_ns: int
    inode: int | None

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> FileVersion:
        return cls.of(os.fstat(descriptor))

    @classmethod
    def of_object(cls, status: ObjectStatus) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, None)


def version_at(place: Location) -> FileVersion | None:
    """The version of what stands there; None where nothing does, or it cannot be looked at."""
    try:
        return FileVersion.of_object(place.stat()) if isinstance(place, ObjectPath) else FileVersion.of(place.stat())
    except OSError:
        return None
