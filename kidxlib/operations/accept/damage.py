"""A finding that may be accepted: a damaged file as it is, with what was found in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kidxlib.audit.gaps import GAP, range_in
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.storage.file_version import version_at
from kidxlib.storage.location import location


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A finding that may be accepted; fields as in the table `accepted`."""

    source: str
    topic: str
    partition: int
    base_offset: int
    file: str
    reason: str
    position: int | None
    found: str
    detail: str | None
    consequence: str | None
    file_bytes: int | None
    file_mtime_ns: int | None
    file_inode: int | None
    path: str

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of its row in the table `accepted`."""
        return tuple(getattr(self, name) for name in ACCEPTED.key)

    @property
    def name(self) -> str:
        """What a person calls it."""
        if self.file == GAP:
            return f"{self.source}: {self.topic}-{self.partition}/{range_in(self.detail)}: {self.reason}"
        segment = f"{self.topic}-{self.partition}/{self.base_offset}"
        return f"{self.source}: {segment} {self.file}: {self.found}: {self.reason}"

    @property
    def version(self) -> tuple[int | None, int | None, int | None]:
        return self.file_bytes, self.file_mtime_ns, self.file_inode


def version_now(path: str) -> tuple[int | None, int | None, int | None]:
    version = version_at(location(path))
    return (None, None, None) if version is None else (version.size, version.mtime_ns, version.inode)
