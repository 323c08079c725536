"""The only module that removes files of a log dir, for a recorded plan or for compaction."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Self

from kidxlib.errors import PublishError
from kidxlib.format.segment_files import DELETED_SUFFIX
from kidxlib.storage.location import (
    DIRECTORY,
    Directory,
    FileStatus,
    flush_file_systems,
    listed_objects,
    opened_below,
    packed_sizes,
    why_not_opened,
)
from kidxlib.storage.packed import is_packed
from kidxlib.storage.store.s3 import ObjectStatus, is_object


class Remover:
    """Renames files as deleted and removes them later, as Kafka does, so that a broker that starts in between finishes
    the removal.

    Directories must exist, and symlinks below their roots are not followed. The caller locks the log dir.
    """

    def __init__(self) -> None:
        self._roots: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._roots.values():
            os.close(descriptor)

    def names(self, directory: Directory) -> set[str]:
        """The names in a directory; none if there is no such directory."""
        try:
            with self._open(directory) as descriptor:
                return set(os.listdir(descriptor))
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise PublishError(f"{directory}: {why_not_opened(error)}") from error

    def files(self, directory: Directory) -> dict[str, FileStatus]:
        """The regular files or objects in a directory, by name; none if there is no such directory."""
        if is_object(directory.root):
            return dict(listed_objects(directory))
        if is_packed(directory.root):
            return {name: ObjectStatus(size, 0) for name, size in packed_sizes(directory).items()}
        statuses = {name: self.status(directory, name) for name in self.names(directory)}
        return {name: status for name, status in statuses.items() if status is not None}

    def status(self, directory: Directory, name: str) -> os.stat_result | None:
        """The status of a regular file; None if there is none with this name."""
        try:
            with self._open(directory) as descriptor:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PublishError(f"{directory}/{name}: not reached: {why_not_opened(error)}") from error
        return status if stat.S_ISREG(status.st_mode) else None

    def is_there(self, directory: Directory) -> bool:
        try:
            with self._open(directory):
                return True
        except FileNotFoundError:
            return False
        except OSError as error:
            raise PublishError(f"{directory}: {why_not_opened(error)}") from error

    def mark_deleted(self, directory: Directory, name: str) -> None:
        """Add the suffix of deleted files to a file's name."""
        try:
            with self._open(directory) as descriptor:
                try:
                    os.stat(name + DELETED_SUFFIX, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    os.replace(name, name + DELETED_SUFFIX, src_dir_fd=descriptor, dst_dir_fd=descriptor)
                else:
                    raise in_the_way(directory, name + DELETED_SUFFIX)
        except OSError as error:
            raise PublishError(f"{directory}/{name}: not renamed: {why_not_opened(error)}") from error

    def remove(self, directory: Directory, name: str) -> None:
        try:
            with self._open(directory) as descriptor, contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PublishError(f"{directory}/{name}: not removed: {why_not_opened(error)}; run again") from error

    def flush(self) -> None:
        """Make all changes so far durable."""
        flush_file_systems(self._roots.values())

    @contextlib.contextmanager
    def _open(self, directory: Directory) -> Iterator[int]:
        if directory.root not in self._roots:
            self._roots[directory.root] = os.open(directory.root, DIRECTORY)
        with opened_below(self._roots[directory.root], directory.path) as descriptor:
            yield descriptor


def in_the_way(directory: Directory, name: str) -> PublishError:
    """The error for an unknown file with the name that a deleted file would get."""
    return PublishError(
        f"{directory}/{name}: in the way of what the plan renames; expected no such file: look whose it is, move it "
        "away and run again"
    )
