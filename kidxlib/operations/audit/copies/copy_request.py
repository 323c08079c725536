"""What is asked of a copy: options and settings, put together and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.run.catalog_place import local_path
from kidxlib.run.context import RunContext
from kidxlib.run.settings import read_settings
from kidxlib.storage.store.s3 import ObjectPath, is_object
from kidxlib.terminal.options.sources import parse_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options as they were given; None, empty or False where they were not."""

    copy: str
    inactive_only: bool
    require_checksums: bool
    sources: tuple[str, ...]
    catalog: str | None
    database: str | None
    topics: str | None
    settings_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """What to compare.

    Attributes:
        copy: the prefix that stands for the log dir.
        source: by name; None for the only one that the catalog has.
        inactive_only: leave out the last segment of each partition.
        require_checksums: what cannot be compared fails the run, too.
    """

    context: RunContext
    copy: ObjectPath
    source: str | None
    topics: re.Pattern[str]
    inactive_only: bool
    require_checksums: bool


def copy_request(options: CopyOptions) -> CopyRequest:
    """Put options and settings together."""
    copy = local_path(options.copy)
    if not is_object(copy) or not ObjectPath.of(copy).key.partition("/")[0]:
        raise UsageError(
            f"--copy {options.copy}: expected s3://BUCKET/PREFIX; a copy on a disk is audited as any log dir is: "
            "kidx verify DIR"
        )
    if not options.catalog and not options.database:
        raise UsageError("--copy: there is nothing to compare it with; name the catalog with --catalog DIR")
    if len(options.sources) > 1:
        raise UsageError(f"--source: given {len(options.sources)} times; a copy is of one source")
    settings = read_settings(options.settings_file)
    return CopyRequest(
        context=RunContext.given(settings, options.catalog, options.database, None).with_catalog(),
        copy=ObjectPath.of(copy),
        source=options.sources[0] if options.sources else None,
        topics=parse_topics(settings.build.topics if options.topics is None else options.topics),
        inactive_only=options.inactive_only,
        require_checksums=options.require_checksums,
    )
