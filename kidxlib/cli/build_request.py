"""What `kidx build` is asked, checked before anything is listed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from kidxlib.build.directories import Target
from kidxlib.build.plan import REPAIRED_AUXILIARY_FILES, AuxiliaryFiles
from kidxlib.build.source import Source, source_at
from kidxlib.errors import UsageError
from kidxlib.recovery.options import INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from kidxlib.storage.location import Location
from kidxlib.terminal.options.directories import ensure_no_overlap, index_dir_to_write
from kidxlib.terminal.options.sources import parse_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBuildRequest:
    """What is built from what, and where it goes.

    Attributes:
        index_dir: the index directory; None to write beside the segments.
        publish_truncated: publish the index of a valid prefix too.
        auxiliary_files: which files are written besides indexes.
        repair: audit first, and write what is broken alone.
        processes: how many read.
    """

    source: Source
    index_dir: Location | None
    target: Target
    publish_truncated: bool
    topics: re.Pattern[str]
    options: RecoverOptions
    auxiliary_files: AuxiliaryFiles
    repair: bool
    processes: int

    @property
    def in_place(self) -> bool:
        """Whether indexes are written beside the segments."""
        return self.index_dir is None


def build_request(
    directory: str,
    *,
    index_dir: str | None,
    in_place: bool,
    accept_truncated: bool,
    topics: str | None,
    interval_bytes: int | None,
    max_index_bytes: int | None,
    verify_crc: bool | None,
    snapshots: bool | None,
    epochs: bool | None,
    repair: bool,
    processes: int | None,
) -> LocalBuildRequest:
    """The options of the command as they were given; Kafka's defaults for those that were not.

    Raises:
        UsageError: they cannot be taken together, or a directory is none that can be read or written.
    """
    if in_place == (index_dir is not None):
        raise UsageError("give --index-dir DIR to write there, or --in-place to write beside the segments")
    source = source_at(directory)
    place = None if index_dir is None else index_dir_to_write("--index-dir", index_dir)
    ensure_no_overlap(place, None, (source,))
    return LocalBuildRequest(
        source=source,
        index_dir=place,
        target=Target(index_dir=place, by_source=False),
        publish_truncated=accept_truncated or not in_place,
        topics=parse_topics(".*" if topics is None else topics),
        options=RecoverOptions(
            interval_bytes=INTERVAL_BYTES_DEFAULT if interval_bytes is None else interval_bytes,
            max_index_bytes=MAX_INDEX_BYTES_DEFAULT if max_index_bytes is None else max_index_bytes,
            verify_crc=verify_crc is not False,
        ),
        auxiliary_files=REPAIRED_AUXILIARY_FILES if repair else AuxiliaryFiles(bool(snapshots), bool(epochs)),
        repair=repair,
        processes=processes or os.cpu_count() or 1,
    )
