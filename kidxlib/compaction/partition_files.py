"""The files of a partition that is compacted, which of them may be written, and who is to own new ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.compaction.change import LOG_CHANGED, UNREADABLE, Place
from kidxlib.compaction.task import CompactionOptions, CompactionTask, Mode
from kidxlib.errors import LogChangedError, PublishError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.storage.directory import Directory, FileStatus
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.publisher import Owner, Publisher
from kidxlib.storage.remover import Remover


@dataclass(slots=True)
class FilesToCompact:
    """The files of a partition that is compacted, and how they may be changed.

    Attributes:
        listed: for each directory the regular files in it, by name.
    """

    task: CompactionTask
    options: CompactionOptions
    mode: Mode
    use_mmap: bool
    publisher: Publisher
    remover: Remover
    listed: dict[Directory, dict[str, FileStatus]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for directory in self.task.directories:
            self.listed[directory] = self._listed(directory)

    def _listed(self, directory: Directory) -> dict[str, FileStatus]:
        """The regular files of a directory; none if a symlink leads to it: nothing there is touched."""
        try:
            return self.remover.files(directory)
        except PublishError:
            return {}

    @contextmanager
    def opened(
        self, segment: SegmentToCompact, access: Access = Access.NORMAL
    ) -> Iterator[tuple[LogBytes, Owner | None]]:
        """Open a segment's log, up to the end of its last valid batch when it was built, and find its file's owner.

        Args:
            access: in which order its bytes are read.

        Raises:
            OSError: it cannot be read.
            LogChangedError: it differs from what it was, or changes while it is read.
        """
        directory, valid_bytes = self.task.segments_directory, segment.valid_bytes
        if directory is None or valid_bytes is None:
            raise FileNotFoundError
        path = os.path.join(str(directory), segment_file(segment.base_offset, LOG_SUFFIX))
        with opened_log(path) as opened:
            if opened.version != segment.version:
                raise LogChangedError(f"{directory}: the log has changed since it was built; build again")
            log = opened.log(valid_bytes, use_mmap=self.use_mmap, access=access)
            yield log, None if opened.status is None else Owner.of(opened.status)
            opened.ensure_unchanged()

    def place(self, directory: Directory, name: str) -> Place:
        """The path of a file, and its log dir."""
        return Place(os.path.join(str(directory), name), directory.root if self._is_beside_logs(directory) else None)

    def may_write(self, place: Place) -> bool:
        """Whether a file may be changed. A file beside logs may be changed only if their log dir is locked."""
        return self.mode is not Mode.APPLY or place.log_dir is None or place.log_dir in self.options.locked

    def owner_in(self, directory: Directory, owner: Owner | None) -> Owner | None:
        """The owner of a new file; None: this user."""
        return owner if self._is_beside_logs(directory) else None

    def _is_beside_logs(self, directory: Directory) -> bool:
        return self.task.segments_directory is not None and str(directory) == str(self.task.segments_directory)


def why_not_read(error: OSError | LogChangedError) -> str:
    """Why a log was not read, as a reason of a change."""
    return LOG_CHANGED if isinstance(error, LogChangedError) else UNREADABLE
