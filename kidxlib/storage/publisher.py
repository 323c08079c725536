"""The only writer of index files. It stages a group of files, flushes, reads them back and compares, renames, and
flushes again.

A reader of a final name sees the whole old file or the whole new one, at any moment and after any crash. File systems
are flushed, not single files: one `syncfs` for 300 staged files costs less than one `fsync`.

In an object store nothing can be renamed, and a written object appears as a whole. So a file is staged in memory, and
one request puts it under its final name. Many requests run at the same time; the files of one segment are put in order.

Packed files, which a catalog keeps (`build --pack`), are not written here: a worker takes them from the publisher as
rows, and the run commits these.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Self

from kidxlib.errors import PublishError
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.storage.location import (
    DIRECTORY,
    Directory,
    flush_file_systems,
    object_at,
    open_below,
    opened_below,
    opened_directory,
    packed_sizes,
    why_not_opened,
)
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.packed import PackedFile, PackedPath, is_packed
from kidxlib.storage.small_files import read_at, read_file
from kidxlib.storage.store.requests import AT_ONCE
from kidxlib.storage.store.s3 import ObjectPath, delete_object, is_object, open_object, put_object, read_object

STAGING_PREFIX: Final = ".kidx-"
STAGING_SUFFIX: Final = ".tmp"
_HELD_PREFIX: Final = f"{STAGING_PREFIX}held-"

#: Files that are committed together, and rows held back until they are: one flush for all of them.
GROUP_FILES: Final = 300
GROUP_BYTES: Final = 32 * 1024 * 1024


class Published(enum.StrEnum):
    """The result of publishing a segment's index files."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the same bytes were there; the files were not touched
    KEPT = "kept"  # the existing files stay on purpose
    NONE = "none"  # nothing to publish


@dataclass(frozen=True, slots=True)
class FileOwner:
    """Owner, group and permission bits for a new file."""

    user: int
    group: int
    mode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileOwner:
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


class _StagedFile(NamedTuple):
    directory: Directory
    name: str
    staging_name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class _StagedObject:
    """A staged object, and whether the same bytes are there already."""

    path: ObjectPath
    content: bytes
    is_unchanged: Future[bool]

    def put(self) -> None:
        try:
            if not self.is_unchanged.result():
                put_object(self.path, self.content)
        except OSError as error:
            raise _not_written_error(self.path, error) from error

    def outcome(self) -> Published:
        try:
            return Published.UNCHANGED if self.is_unchanged.result() else Published.WRITTEN
        except OSError as error:
            raise _not_written_error(self.path, error) from error


class Publisher:
    """Puts index files and checkpoints in their places, each whole. Use as a context: its end removes files that were
    staged and not committed.

    Several publishers may put the same file in place at the same time. Every reader then sees the whole file of one of
    them.

    Attributes:
        staged_bytes: of the files that are staged and not yet committed.
    """

    def __init__(self) -> None:
        self._staging_id = uuid.uuid4().hex
        self._root_descriptors: dict[str, int] = {}
        self._open_directory: tuple[Directory, int] | None = None
        self._staged: list[_StagedFile] = []
        self._objects: list[_StagedObject] = []
        self._packed: list[PackedFile] = []
        self._packed_files = 0  # since the last commit, also those that `take_packed` has returned
        self._last_packed_directory: tuple[Directory, PackedPath, frozenset[str]] | None = None
        self.staged_bytes = 0
        self._threads = ThreadPoolExecutor(AT_ONCE, "publisher")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for staged in self._staged:
            with contextlib.suppress(OSError):
                os.unlink(staged.staging_name, dir_fd=self._open(staged.directory))
        self._close()
        for descriptor in self._root_descriptors.values():
            os.close(descriptor)

    @property
    def staged_files(self) -> int:
        """How many files are staged and not yet committed."""
        return len(self._staged) + len(self._objects) + self._packed_files

    def stage(self, directory: Directory, name: str, content: bytes, owner: FileOwner | None = None) -> Published:
        """Write `content` under a staging name in the directory of `name`, unless the file has the same bytes already
        (`UNCHANGED`). `WRITTEN` is true once `commit` has returned.
        """
        return self.begin_staging(directory, name, content, owner)()

    def begin_staging(
        self, directory: Directory, name: str, content: bytes, owner: FileOwner | None = None
    ) -> Callable[[], Published]:
        """Stage a file without waiting for an object store. The returned function returns or raises what `stage` would.
        After `commit` it does not wait.
        """
        if is_packed(directory.root):
            return self._pack(directory, name, content)
        self.staged_bytes += len(content)
        if (path := object_at(directory, name)) is not None:
            self._objects.append(_StagedObject(path, content, self._threads.submit(_has_content, path, content)))
            return self._objects[-1].outcome
        try:
            descriptor = self._open(directory)
            if read_at(descriptor, name, len(content) + 1) == content:
                self.staged_bytes -= len(content)
                return _unchanged
            staging_name = f"{STAGING_PREFIX}{self._staging_id}-{name}{STAGING_SUFFIX}"
            self._staged.append(_StagedFile(directory, name, staging_name, content))
            _write(descriptor, staging_name, content, owner)
        except OSError as error:
            raise _not_written_error(f"{directory}/{name}", error) from error
        return _written

    def remove(self, directory: Directory, name: str) -> None:
        """Remove a file that kidx has published, if it is there."""
        if is_packed(directory.root):
            self._pack(directory, name, None)
            return
        try:
            if (path := object_at(directory, name)) is not None:
                delete_object(path)
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._open(directory))
        except OSError as error:
            raise PublishError(f"{directory}/{name}: not removed: {error.strerror}") from error

    def take_packed(self) -> tuple[PackedFile, ...]:
        """The packed files that were staged or removed since the last call. The caller has to commit them."""
        packed = tuple(self._packed)
        self._packed.clear()
        return packed

    def is_new_packed(self, directory: Directory) -> bool:
        """Whether a catalog is to keep the files of this directory, and keeps none yet. Then there is nothing to
        compare them with: the caller need not stage each one.
        """
        return is_packed(directory.root) and not self._packed_directory(directory)[1]

    def _packed_directory(self, directory: Directory) -> tuple[PackedPath, frozenset[str]]:
        """A packed directory, and the names of its files that the catalog keeps. They are looked up again only for
        another directory.
        """
        if self._last_packed_directory is None or self._last_packed_directory[0] != directory:
            self._last_packed_directory = directory, PackedPath.of(str(directory)), frozenset(packed_sizes(directory))
        return self._last_packed_directory[1:]

    def _pack(self, directory: Directory, name: str, content: bytes | None) -> Callable[[], Published]:
        path, present = self._packed_directory(directory)
        file = path.file_in(name, content)
        assert file is not None  # only index files, snapshots and leader epochs are published
        if content is not None and name in present and read_file(directory, name) == content:
            return _unchanged
        self._packed.append(file)
        self._packed_files += 1
        self.staged_bytes += len(content or b"")
        return _written

    def commit(self) -> None:
        """Put all staged files under their final names, durably, in the order of staging. In an object store, only the
        files of one segment are in this order.
        """
        if self._staged:
            self._commit_files()
        by_segment: dict[ObjectPath, list[_StagedObject]] = {}
        for staged in self._objects:
            by_segment.setdefault(staged.path.parent / staged.path.name.partition(".")[0], []).append(staged)
        for request in [self._threads.submit(_put_objects, objects) for objects in by_segment.values()]:
            request.result()
        self._objects.clear()
        self.staged_bytes = self._packed_files = 0

    def _commit_files(self) -> None:
        staged = self._staged[0]  # the file that an error names
        try:
            self._flush()
            for staged in self._staged:
                self._check(staged)
            for staged in self._staged:
                directory = self._open(staged.directory)
                os.replace(staged.staging_name, staged.name, src_dir_fd=directory, dst_dir_fd=directory)
            self._flush()
        except OSError as error:
            raise _not_written_error(f"{staged.directory}/{staged.name}", error) from error
        self._staged.clear()
        self._close()

    def _check(self, staged: _StagedFile) -> None:
        if read_at(self._open(staged.directory), staged.staging_name, len(staged.content) + 1) != staged.content:
            raise PublishError(
                f"{staged.directory}/{staged.name}: it does not read back as it was written "
                f"({len(staged.content)} bytes): check this disk; the file that was there is unchanged"
            )

    def _open(self, directory: Directory) -> int:
        """A descriptor of the directory; a missing directory is made. The descriptor is valid until another directory
        is opened: opening a directory for each file took a third of the time of publishing.
        """
        if self._open_directory is not None and self._open_directory[0] == directory:
            return self._open_directory[1]
        self._close()
        if directory.root not in self._root_descriptors:
            os.makedirs(directory.root, exist_ok=True)
            self._root_descriptors[directory.root] = os.open(directory.root, DIRECTORY)
        descriptor = open_below(self._root_descriptors[directory.root], directory.path, make=True)
        self._open_directory = directory, descriptor
        return descriptor

    def _close(self) -> None:
        if self._open_directory is not None:
            os.close(self._open_directory[1])
            self._open_directory = None

    def _flush(self) -> None:
        """Make all writes so far durable: contents, names and directories."""
        flush_file_systems(self._root_descriptors.values())


def publish_if(
    directory: Directory,
    name: str,
    content: bytes,
    is_as_seen: Callable[[bytes | None], bool],
    owner: FileOwner | None = None,
) -> Published:
    """Put a file in place, durably, unless the same bytes are there (`UNCHANGED`), or somebody else has changed the
    file: then `is_as_seen` is false for the present content (None: no file), and the file stays (`KEPT`). An object
    store checks the ETag as it writes. On a disk a free name is taken atomically, and an existing file is compared
    right before the rename.
    """
    path = object_at(directory, name)
    try:
        if path is not None:
            return _put_if(path, content, is_as_seen)
        root = os.open(directory.root, DIRECTORY)
        try:
            with opened_below(root, directory.path) as descriptor:
                return _rename_if(descriptor, name, content, is_as_seen, owner)
        finally:
            os.close(root)
    except OSError as error:
        raise _not_written_error(f"{directory}/{name}", error) from error


def publish_log_dir_files(files: Mapping[Path, Mapping[str, bytes]]) -> None:
    """Put files of log dirs themselves in place, by name, as a broker makes them: they get the owner of the log dir's
    `meta.properties`, and the mode 0644.
    """
    with Publisher() as publisher:
        for log_dir, contents in files.items():
            owner = replace(FileOwner.of((log_dir / META_PROPERTIES).stat()), mode=0o644)
            for name, content in contents.items():
                publisher.stage(Directory(str(log_dir), ""), name, content, owner)
        publisher.commit()


def is_staging(name: str) -> bool:
    return name.startswith(STAGING_PREFIX) and name.endswith(STAGING_SUFFIX)


def sweep_staging_files(directory: Directory, older_than_ns: int, prefix: str = STAGING_PREFIX) -> int:
    """Remove the staging files of killed runs in a directory: those with `prefix` that were last written before
    `older_than_ns`. Return how many were removed; 0 if the directory is missing, or cannot be opened or listed.
    """
    removed = 0
    if is_object(directory.root):
        return removed  # an object store has no staging files
    with opened_directory(directory) as descriptor:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = [] if descriptor is None else os.listdir(descriptor)
        for name in names:
            if not is_staging(name) or not name.startswith(prefix):
                continue
            # The file is gone, or must not be removed: publishing will report what is wrong.
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime_ns < older_than_ns:
                    os.unlink(name, dir_fd=descriptor)
                    removed += 1
    return removed


def held_name(base_offset: int) -> str:
    """The name under which an offset index waits for its transaction index, as a broker that finds an offset index
    believes the other files.
    """
    return f"{_HELD_PREFIX}{segment_file(base_offset, OFFSET_INDEX_SUFFIX)}{STAGING_SUFFIX}"


def remove_held(directory: Directory) -> None:
    """Remove the waiting offset indexes in a directory, of a run that ends before they could be published."""
    sweep_staging_files(directory, 2**63 - 1, _HELD_PREFIX)


def _has_content(path: ObjectPath, content: bytes) -> bool:
    """Whether an object has this content. It is read only if it has the same length."""
    try:
        file, status = open_object(path)
        return status.st_size == len(content) and read_object(file, path, 0, status.st_size) == content
    except FileNotFoundError:
        return False


def _put_objects(objects: Iterable[_StagedObject]) -> None:
    for staged in objects:
        staged.put()


def _put_if(path: ObjectPath, content: bytes, is_as_seen: Callable[[bytes | None], bool]) -> Published:
    from kidxlib.storage.store.client import put_object_if  # needs a package of an extra

    present: bytes | None = None
    etag: str | None = None
    with contextlib.suppress(FileNotFoundError):
        file, status = open_object(path)
        present, etag = read_object(file, path, 0, status.st_size), status.etag
    if present == content:
        return Published.UNCHANGED
    if not is_as_seen(present):
        return Published.KEPT
    if etag == "":
        raise OSError(errno.ENOTSUP, "the store gives objects no ETag, without which none is replaced", str(path))
    if put_object_if(path, content, etag):
        return Published.WRITTEN
    return Published.UNCHANGED if _has_content(path, content) else Published.KEPT


def _rename_if(
    directory: int, name: str, content: bytes, is_as_seen: Callable[[bytes | None], bool], owner: FileOwner | None
) -> Published:
    present = read_at(directory, name)
    if present == content:
        return Published.UNCHANGED
    if not is_as_seen(present):
        return Published.KEPT
    staging_name = f"{STAGING_PREFIX}{uuid.uuid4().hex}-{name}{STAGING_SUFFIX}"
    try:
        _write(directory, staging_name, content, owner)
        flush_file_systems([directory])
        if read_at(directory, staging_name) != content:
            raise OSError(errno.EIO, "it does not read back as it was written: check this disk")
        if present is None:
            os.link(staging_name, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        elif is_as_seen(read_at(directory, name)):
            os.replace(staging_name, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            return Published.KEPT
        flush_file_systems([directory])
    except FileExistsError:
        return Published.KEPT
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staging_name, dir_fd=directory)
    return Published.WRITTEN


def _written() -> Published:
    return Published.WRITTEN


def _unchanged() -> Published:
    return Published.UNCHANGED


def _not_written_error(path: str | ObjectPath, error: OSError) -> PublishError:
    return PublishError(f"{path}: not written: {why_not_opened(error)}; the file that was there is unchanged")


def _write(directory: int, name: str, content: bytes, owner: FileOwner | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644 if owner is None else 0o600, dir_fd=directory)
    try:
        if owner is not None:
            os.fchown(descriptor, owner.user, owner.group)
            os.fchmod(descriptor, owner.mode)
        written = os.write(descriptor, content)
        while written < len(content):
            written += os.write(descriptor, content[written:])
    finally:
        os.close(descriptor)
