"""The files of one partition that is finished: those there, those staged (and who owns them), those to remove. An
offset index waits under another name for its transaction index, and is then published or removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Final, Self

from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from kidxlib.indexing.tasks import PartitionTask
from kidxlib.storage.location import Directory, is_local, list_directory, open_directory, read_at, read_file
from kidxlib.storage.packed import PackedFile
from kidxlib.storage.publisher import STAGING_PREFIX, STAGING_SUFFIX, Owner, Published, Publisher, sweep_staging_files
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import is_object

_HELD_PREFIX: Final = f"{STAGING_PREFIX}held-"


class Listings:
    """The names in directories; in an object store they are listed ahead of the directory that is asked for. Use as a
    context. `coming` are the directories that will be asked for, in that order; some may be left out, others added.
    """

    def __init__(self, coming: Sequence[Directory] = ()) -> None:
        in_store = [directory for directory in coming if is_object(directory.root)]
        self._names = in_order(list_directory, in_store)
        self._coming: Iterator[tuple[Directory, list[str]]] = zip(in_store, self._names, strict=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._names.close()

    def names_in(self, directory: Directory) -> list[str]:
        """None where the directory does not exist."""
        if is_object(directory.root):
            for listed, names in self._coming:
                if listed == directory:
                    return names
        return list_directory(directory)


class PartitionFiles:
    """The files of a partition. None changes before the publisher commits. Whoever reads them closes them.

    Attributes:
        kept: the names of files that stay as a broker left them.
        superfluous: the names of files that `remove_superfluous` removes.
    """

    def __init__(self, task: PartitionTask, publisher: Publisher, listings: Listings) -> None:
        self.task = task
        self.kept: list[str] = []
        self.superfluous: list[str] = []
        self._publisher, self._listings = publisher, listings
        self._owner: Owner | None = None
        self._opened: int | None = None  # the index directory, if it is on this machine, from the first read on

    def close(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None

    def take_owner_of(self, base_offset: int) -> None:
        """In place, give all files staged after this the owner and mode of a segment's log."""
        if self.task.in_place:
            log = os.path.join(str(self.task.index_directory), segment_file(base_offset, LOG_SUFFIX))
            with contextlib.suppress(OSError):
                self._owner = Owner.of(os.lstat(log))

    def read(self, name: str, limit: int = -1) -> bytes | None:
        directory = self.task.index_directory
        if not is_local(directory):
            return read_file(directory, name, limit)
        if self._opened is None:
            self._opened = open_directory(directory)
        return None if self._opened is None else read_at(self._opened, name, limit)

    def read_present(self, name: str, limit: int) -> bytes | None:
        """Up to `limit` bytes of a file of `present`. The directory is listed once: most of these files do not exist,
        and an object store would need a request for each.
        """
        return self.read(name, limit) if name in self.present else None

    @cached_property
    def present(self) -> frozenset[str]:
        """The names of the files that existed when the partition was begun."""
        return frozenset(self._listings.names_in(self.task.index_directory))

    @cached_property
    def transaction_indexes(self) -> frozenset[int]:
        """The base offsets of the transaction indexes of `present`."""
        names = (name for name in self.present if name.endswith(TRANSACTION_INDEX_SUFFIX))
        return frozenset(parsed[0] for name in names if (parsed := parse_segment_file(name)) is not None)

    def stage(self, name: str, content: bytes) -> Callable[[], Published]:
        """Hand a file to the publisher. The result is to be asked for once it is committed."""
        return self._publisher.begin_staging(self.task.index_directory, name, content, self._owner)

    def stage_or_keep(self, name: str, content: bytes, *, certain: bool) -> None:
        """Stage a file; in place only if its content is certain, as a broker would believe a snapshot or checkpoint
        that knows too little.
        """
        if self.task.in_place and not certain:
            self.kept.append(name)
        else:
            self.stage(name, content)

    def take_packed(self) -> tuple[PackedFile, ...]:
        """The packed files that were staged or removed, once the superfluous ones are."""
        return self._publisher.take_packed()

    def remove_superfluous(self) -> None:
        """Remove the superfluous files, once all others are published."""
        directory = self.task.index_directory
        remove = partial(self._publisher.remove, directory)
        removed = in_order(remove, self.superfluous) if is_object(directory.root) else map(remove, self.superfluous)
        for _ in removed:
            pass


def held_name(base_offset: int) -> str:
    """The name under which an offset index waits for its transaction index, as a broker that finds an offset index
    believes the other files.
    """
    return f"{_HELD_PREFIX}{segment_file(base_offset, OFFSET_INDEX_SUFFIX)}{STAGING_SUFFIX}"


def remove_held(directory: Directory) -> None:
    """Remove the waiting offset indexes in a directory, of a run that ends before they could be published."""
    sweep_staging_files(directory, 2**63 - 1, _HELD_PREFIX)


def release_held(files: PartitionFiles, base_offset: int) -> None:
    """Publish a waiting offset index, because its transaction index exists now."""
    held = held_name(base_offset)
    content = files.read(held)
    if content is not None:
        files.stage(segment_file(base_offset, OFFSET_INDEX_SUFFIX), content)
        files.superfluous.append(held)


def discard_held(files: PartitionFiles, base_offset: int) -> None:
    """Remove a waiting offset index that must never get its name."""
    files.superfluous.append(held_name(base_offset))
