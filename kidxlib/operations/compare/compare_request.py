"""What is to be compared, and how."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from kidxlib.operations.compare.finding import OF_FILES, Kind


class As(StrEnum):
    """What B is of A."""

    COPY = "copy"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Two places.

    Attributes:
        a, b: as the user gave them: a log dir, several with commas between them, or a partition's directory.
        allow_behind: B may end earlier, and a cleaner may have merged segments since.
        logs_only: B may lack other files, or have other ones.
        topics: matches the full names of those that are compared.
        catalog: of which A is a source, and B another one or a copy in an object store; None where both are places.
        inactive_only: of a copy in an object store, leave out the last segments.
    """

    a: str
    b: str
    how: As
    allow_behind: bool
    logs_only: bool
    topics: re.Pattern[str]
    catalog: str | None = None
    inactive_only: bool = False

    @property
    def harmless(self) -> Collection[Kind]:
        """Kinds of findings that do not count."""
        earlier = (Kind.BEHIND, Kind.FILE_BEHIND, Kind.OTHER_SEGMENTS) if self.allow_behind else ()
        return (*earlier, *((*OF_FILES, Kind.FILE_BEHIND) if self.logs_only else ()))
