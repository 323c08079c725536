"""Objects of an S3 store, as paths (`ObjectPath`): listed, read, written and removed here and nowhere else.

pyarrow's S3 file system reads and writes them. It finds credentials, region and profile as AWS' own tools do, and the
endpoint of another object store in `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`; so none of them is ever in a path, a
table or a log. delta-rs gets the same place for a catalog's tables (`storage_options`, `file_system_of`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fnmatch
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from kidxlib.storage.store.requests import (
    AT_ONCE,
    TRIES,
    TRIES_TO_REACH,
    RequestKind,
    answer_in_parts,
    answer_with_retries,
    count_again,
    count_requests,
    is_momentary,
    pages_of,
)

if TYPE_CHECKING:  # all of these are slow to import
    from deltalake import DeltaTable
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSelector, FileSystem, S3FileSystem

SCHEME: Final = "s3://"

_T = TypeVar("_T")

#: From this size on, Arrow writes an object in parts.
PARTS_FROM_BYTES: Final = 10 * 1024 * 1024

_NS_PER_S: Final = 1_000_000_000
#: Arrow's error if the answer to a GET is an unknown body that is longer than the requested bytes. A HEAD gets the same
#: answer, without a body.
_DOES_NOT_FIT: Final = "Failed to flush response stream"
#: A part of errors that differs from try to try.
_REQUEST_ID: Final = re.compile(r" \(Request ID: [^)]*\)")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """An object's status, with the names of `os.stat_result`.

    Attributes:
        st_mtime_ns, st_ctime_ns: when it was written, in whole seconds; an object is not renamed.
        etag: identifies the content; empty in a listing, and if the store has none.
    """

    st_size: int
    st_mtime_ns: int
    etag: str = ""

    @property
    def st_ctime_ns(self) -> int:
        return self.st_mtime_ns


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """`s3://<bucket>/<key>`: an object, or the directory of the keys with this prefix. Methods with a name of `Path`'s
    mean the same.

    Attributes:
        key: the bucket and the object's key, with a slash between them.
        listed: the object's status, if the path is from a listing; else None.
    """

    key: str
    listed: ObjectStatus | None = field(default=None, compare=False)

    @classmethod
    def of(cls, path: str) -> ObjectPath:
        """The object that a path names; `is_object` must be true."""
        return cls(path.removeprefix(SCHEME).rstrip("/"))

    def __str__(self) -> str:
        return f"{SCHEME}{self.key}"

    def __fspath__(self) -> str:
        return str(self)

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.key}/{name}")

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The directory above; for a bucket the bucket itself."""
        return ObjectPath(self.key.rpartition("/")[0] or self.key)

    def stat(self) -> ObjectStatus:
        return self.listed or open_object(self)[1]

    def exists(self) -> bool:
        return self._info().type.name != "NotFound"

    def is_file(self) -> bool:
        return self.listed is not None or self._info().type.name == "File"

    def iterdir(self) -> Iterator[ObjectPath]:
        """The entries in the order of names. One request lists a thousand."""
        from pyarrow.fs import FileSelector, FileType

        infos = _listed(self, FileSelector(self.key))
        for info in sorted(infos, key=lambda info: info.base_name):
            listed = None if info.type == FileType.Directory else ObjectStatus(info.size or 0, info.mtime_ns or 0)
            yield ObjectPath(f"{self.key}/{info.base_name}", listed)

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The entries directly in the directory; none if it does not exist."""
        try:
            yield from (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))
        except FileNotFoundError:
            return

    def read_bytes(self) -> bytes:
        file, status = open_object(self)
        return read_object(file, self, 0, status.st_size)

    def _info(self) -> FileInfo:
        with _in_plain_words(self):
            return answer_with_retries(lambda: _info_now(self.key), tries_to_reach=TRIES_TO_REACH)


def is_object(path: str) -> bool:
    return path.startswith(SCHEME)


def open_object(path: ObjectPath) -> tuple[NativeFile, ObjectStatus]:
    """Open an object for reading, with its present status. One request."""
    with _in_plain_words(path):
        return answer_with_retries(lambda: _opened_now(path))


def input_file(path: ObjectPath) -> NativeFile:
    """An object of a store, as a file for other libraries."""
    with _in_plain_words(path):
        return answer_in_parts(lambda: _store(TRIES).open_input_file(path.key))


def read_object(file: NativeFile, path: ObjectPath, position: int, size: int) -> bytes:
    """Bytes of an opened object; fewer if it has become shorter. One request, or none for 0 bytes."""
    if size == 0:
        return b""
    return _read_from(
        path,
        position,
        lambda: bytes(file.read_at(size, position)),  # type: ignore[call-arg]  # the stubs lack the position
        b"",
    )


def read_object_into(file: NativeFile, path: ObjectPath, position: int, room: NDArray[np.uint8]) -> int:
    """Fill memory with the bytes of an open object from a position on, and return how many there were."""
    return _read_from(path, position, lambda: int(file.get_stream(position, len(room)).readinto(room.data)), 0)


def put_object(path: ObjectPath, content: bytes) -> None:
    """Write a whole object: with one request below 10 MiB, else in parts that appear together."""
    if len(content) >= PARTS_FROM_BYTES:
        count_requests(RequestKind.PUT, 2 + -(-len(content) // PARTS_FROM_BYTES))  # begin, parts, end
        with object_written(path) as stream, _in_plain_words(path):
            answer_in_parts(lambda: stream.write(content))
        return

    def put() -> None:
        count_requests(RequestKind.PUT)
        stream = _store().open_output_stream(path.key, compression=None)
        stream.write(content)
        stream.close()

    with _in_plain_words(path):
        answer_with_retries(put)


@contextlib.contextmanager
def object_written(path: ObjectPath) -> Iterator[NativeFile]:
    """A new object, written piece by piece. It appears when the context ends without an error."""
    with _in_plain_words(path):
        stream = answer_in_parts(lambda: _store(TRIES).open_output_stream(path.key, compression=None))
    try:
        yield stream
        with _in_plain_words(path):
            answer_in_parts(stream.close)
    except BaseException:
        # Arrow closes a stream before dropping it: the bytes written so far would appear as the object.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
        raise


def delete_object(path: ObjectPath) -> None:
    with _in_plain_words(path), contextlib.suppress(FileNotFoundError):
        answer_with_retries(lambda: _delete_now(path.key))


def endpoint() -> str | None:
    """The URL of an object store other than AWS'; None if the environment names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def region() -> str | None:
    """The region in the environment; None if the clients find it themselves."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def storage_options(path: str) -> dict[str, str]:
    """The options with which delta-rs opens a catalog at `s3://<bucket>/<prefix>`; none are needed for a directory.
    delta-rs finds credentials and the region as AWS' tools do, and as kidx does for sources. It does not find the
    endpoint of another store.
    """
    if not is_object(path) or (store := endpoint()) is None:
        return {}
    options = {"AWS_ENDPOINT_URL": store}
    if urlsplit(store).scheme == "http":  # delta-rs expects TLS otherwise
        options["AWS_ALLOW_HTTP"] = "true"
    if (name := region()) is not None:
        options["AWS_REGION"] = name
    return options


def file_system_of(delta: DeltaTable) -> FileSystem:
    """Pyarrow's file system for a Delta table's directory in an S3 store, by delta-rs' client, or on a disk. Not
    delta-rs' own on a disk: on a full disk it would print the state of its threads before the error.
    """
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if is_object(delta.table_uri):
        return PyFileSystem(DeltaStorageHandler(delta.table_uri, storage_options(delta.table_uri)))
    return SubTreeFileSystem(unquote(urlsplit(delta.table_uri).path), LocalFileSystem())


#: Arrow waits for all requests before it gets more threads for others: that is done once, before the first request.
_connecting: Final = threading.Lock()


def _store(tries: int = 1) -> S3FileSystem:
    """The client, which itself tries a request `tries` times."""
    with _connecting:
        return _connected(endpoint(), region(), tries)


@functools.cache
def _connected(url: str | None, region: str | None, tries: int) -> S3FileSystem:
    # Slow to import, and only needed for objects.
    import pyarrow
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    if pyarrow.io_thread_count() < AT_ONCE:  # listings and writes use these threads
        pyarrow.set_io_thread_count(AT_ONCE)
    return S3FileSystem(
        endpoint_override=url,
        region=region,
        # A small object then takes one request instead of three. For a large one whose first request fails, Arrow would
        # make an empty object.
        allow_delayed_open=tries == 1,  # type: ignore[call-arg]  # the stubs do not know it
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=tries),
    )


def _listed(path: ObjectPath, selector: FileSelector) -> list[FileInfo]:
    with _in_plain_words(path):
        try:
            infos = _store().get_file_info(selector)
        except OSError as error:
            count_requests(RequestKind.LIST)
            if not is_momentary(error):
                raise
            # With many pages, one might fail at each attempt: now the client retries each page.
            count_again()
            infos = answer_in_parts(lambda: _store(TRIES).get_file_info(selector))
    count_requests(RequestKind.LIST, pages_of(len(infos)))
    return infos


def _delete_now(key: str) -> None:
    count_requests(RequestKind.HEAD)
    _store().delete_file(key)
    count_requests(RequestKind.DELETE)
    count_requests(RequestKind.PUT)  # Arrow leaves an empty object for the directory


def _info_now(key: str) -> FileInfo:
    count_requests(RequestKind.HEAD)
    info = _store().get_file_info(key)
    if info.type.name != "File":  # Arrow then lists the keys with this prefix
        count_requests(RequestKind.LIST)
    return info


def _opened_now(path: ObjectPath) -> tuple[NativeFile, ObjectStatus]:
    count_requests(RequestKind.HEAD)
    file = _store().open_input_file(path.key)
    metadata = file.metadata()
    written = datetime.fromisoformat(metadata["Last-Modified"].decode())
    # The stubs have bytes as its keys.
    etag = metadata["ETag"].decode() if "ETag" in metadata else ""  # type: ignore[comparison-overlap]
    return file, ObjectStatus(file.size(), int(written.timestamp()) * _NS_PER_S, etag)


def _read_from(path: ObjectPath, position: int, read: Callable[[], _T], nothing: _T) -> _T:
    """Read from an object; `nothing` is the answer if it has become so short that it ends before the position."""

    def read_now() -> _T:
        count_requests(RequestKind.GET)
        try:
            return read()
        except OSError as error:
            if is_momentary(error) and _DOES_NOT_FIT not in str(error):
                raise
            if _opened_now(path)[1].st_size <= position:
                return nothing
            raise

    with _in_plain_words(path):
        return answer_with_retries(read_now)


@contextlib.contextmanager
def _in_plain_words(path: ObjectPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _plain(error, path) from error


def _plain(error: OSError, path: ObjectPath) -> OSError:
    """An object store's error in plain words, which are the same each time."""
    if error.filename is not None:
        return error  # already in plain words
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", str(path))
    return OSError(errno.EIO, _REQUEST_ID.sub("", str(error)).strip(), str(path))
