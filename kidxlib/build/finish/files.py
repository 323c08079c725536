"""The files of one partition that is finished: those there, those staged (and who owns them), those to remove."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import cached_property, partial

from kidxlib.build.finish.listings import Listings
from kidxlib.build.tasks import PartitionTask
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.storage.directory import read_file
from kidxlib.storage.publisher import Owner, Published, Publisher
from kidxlib.storage.store.at_once import in_order
from kidxlib.storage.store.s3 import is_object


class PartitionFiles:
    """The files of a partition. None changes before the publisher commits.

    Attributes:
        task: the partition, and which files may be written.
        kept: the names of those that stay as a broker left them.
        superfluous: the names of those that `remove_superfluous` removes.
    """

    def __init__(self, task: PartitionTask, publisher: Publisher, listings: Listings) -> None:
        self.task = task
        self.kept: list[str] = []
        self.superfluous: list[str] = []
        self._publisher, self._listings = publisher, listings
        self._owner: Owner | None = None

    def take_owner_of(self, base_offset: int) -> None:
        """In place, give all files staged after this the owner and mode of a segment's log."""
        if self.task.in_place:
            log = os.path.join(str(self.task.index_directory), segment_file(base_offset, LOG_SUFFIX))
            with contextlib.suppress(OSError):
                self._owner = Owner.of(os.lstat(log))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        return read_file(self.task.index_directory, name)

    def read_present(self, name: str, limit: int) -> bytes | None:
        """Up to `limit` bytes of a file that existed when the partition was begun. The directory is listed once: most
        of these files do not exist, and an object store would need a request for each.
        """
        return read_file(self.task.index_directory, name, limit) if name in self.present else None

    @cached_property
    def present(self) -> frozenset[str]:
        """The names of the files that existed when the partition was begun."""
        return frozenset(self._listings.names_in(self.task.index_directory))

    def stage(self, name: str, content: bytes) -> Callable[[], Published]:
        """Hand a file to the publisher; what is done with it, to be asked once it is committed."""
        return self._publisher.begin_staging(self.task.index_directory, name, content, self._owner)

    def stage_or_keep(self, name: str, content: bytes, *, certain: bool) -> None:
        """Stage a file; in place only if its content is certain. A broker would believe a snapshot or checkpoint that
        knows too little.
        """
        if self.task.in_place and not certain:
            self.kept.append(name)
        else:
            self.stage(name, content)

    def remove_superfluous(self) -> None:
        """Remove the superfluous files, once all others are published."""
        directory = self.task.index_directory
        remove = partial(self._publisher.remove, directory)
        removed = in_order(remove, self.superfluous) if is_object(directory.root) else map(remove, self.superfluous)
        for _ in removed:
            pass
