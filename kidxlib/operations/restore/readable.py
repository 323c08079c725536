"""Whether this user may read all of a source. What may not be read would count as lost, or as no copy at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LOG_DIR_CHECKPOINTS
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.operations.compare.place import Place
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.small_files import CLEAN_SHUTDOWN_FILE
from kidxlib.text.words import counted

#: A log dir's own files, of which a restore reads what it says.
_FILES: Final = (META_PROPERTIES, CLEAN_SHUTDOWN_FILE, *LOG_DIR_CHECKPOINTS)


def ensure_readable(place: Place, topics: re.Pattern[str]) -> None:
    """See that this user may read the log dirs' own files, the metadata, and all of the partitions of these topics.

    Raises:
        UsageError: something may not be read: whose it is, and how many more there are.
    """
    if not (found := [*_not_readable(place, topics)]):
        return
    first, *more = found
    owner = first.stat().st_uid
    whom = "as root" if owner in (0, os.getuid()) else f"as user {owner}, to whom it belongs, or as root"
    also = f", nor {counted(len(more), 'other file or directory', 'other files and directories')} there" if more else ""
    raise UsageError(f"{first}: this user may not read it{also}; run this {whom}: what is not read would count as lost")


def _not_readable(place: Place, topics: re.Pattern[str]) -> Iterator[Path]:
    """The files and directories that this user may not read. Of a directory nothing more is looked at then."""
    for log_dir in map(str, place.log_dirs):
        for name in _FILES:
            if _is_forbidden(path := os.path.join(log_dir, name), os.R_OK):
                yield Path(path)
    for directory in place.directories.values():
        partition = directory.topic_partition
        is_wanted = partition is not None and topics.fullmatch(partition.topic) is not None
        if not is_wanted and directory.name != METADATA_DIRECTORY:
            continue
        if _is_forbidden(path := str(directory.path), os.R_OK | os.X_OK):
            yield Path(path)
            continue
        paths = (os.path.join(path, name) for name in sorted(directory.files))
        yield from (Path(file) for file in paths if _is_forbidden(file, os.R_OK))


def _is_forbidden(path: str, mode: int) -> bool:
    return not os.access(path, mode) and os.path.exists(path)
