"""Objects of an S3 store, as paths (`ObjectPath`): listed, read, written and removed here and nowhere else.

Objects go through pyarrow's S3 file system. Credentials, region and profile are found as AWS' own tools find them, and
the endpoint of another object store in `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`; so none of them is ever in a path,
a table or a log.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, S3FileSystem


SCHEME: Final = "s3://"

_NS_PER_S: Final = 1_000_000_000
#: Differs from try to try.
_REQUEST_ID: Final = re.compile(r" \(Request ID: [^)]*\)")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """What an object store reports of an object, under the names that `os.stat_result` has for it.

    Attributes:
        st_mtime_ns, st_ctime_ns: when it was written, in whole seconds; an object is not renamed.
        etag: what identifies its content; empty in a listing, which has none.
    """

    st_size: int
    st_mtime_ns: int
    etag: str = ""

    @property
    def st_ctime_ns(self) -> int:
        return self.st_mtime_ns


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """`s3://<bucket>/<key>`: an object, or the directory that keys with this beginning are said to lie in. What is
    here of `Path`'s interface means the same.

    Attributes:
        key: the bucket and the object's key, with a slash between them.
        listed: what the listing said that it comes from, of an object; None of others.
    """

    key: str
    listed: ObjectStatus | None = field(default=None, compare=False)

    @classmethod
    def of(cls, path: str) -> ObjectPath:
        """The object that a path names, one that `is_object`."""
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
        """The directory above; of a bucket itself."""
        return ObjectPath(self.key.rpartition("/")[0] or self.key)

    def stat(self) -> ObjectStatus:
        return self.listed or open_object(self)[1]

    def exists(self) -> bool:
        return self._info().type.name != "NotFound"

    def is_file(self) -> bool:
        return self.listed is not None or self._info().type.name == "File"

    def iterdir(self) -> Iterator[ObjectPath]:
        """In the order of names. One request for a thousand of them.

        Raises:
            FileNotFoundError: no object lies in it.
        """
        from pyarrow.fs import FileSelector, FileType

        try:
            found = _store().get_file_info(FileSelector(self.key))
        except OSError as error:
            raise _plain(error, self) from error
        for info in sorted(found, key=lambda info: info.base_name):
            listed = None if info.type == FileType.Directory else ObjectStatus(info.size or 0, info.mtime_ns or 0)
            yield ObjectPath(f"{self.key}/{info.base_name}", listed)

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """What lies right in it; nothing where it does not exist."""
        try:
            yield from (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))
        except FileNotFoundError:
            return

    def read_bytes(self) -> bytes:
        file, status = open_object(self)
        return read_object(file, self, 0, status.st_size)

    def _info(self) -> FileInfo:
        try:
            return _store().get_file_info(self.key)
        except OSError as error:
            raise _plain(error, self) from error


def is_object(path: str) -> bool:
    """Whether a path is one of an object store."""
    return path.startswith(SCHEME)


def open_object(path: ObjectPath) -> tuple[NativeFile, ObjectStatus]:
    """An object to read, as it is now. One request.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it may not be read, or the object store cannot be reached.
    """
    try:
        file = _store().open_input_file(path.key)
        metadata = file.metadata()
    except OSError as error:
        raise _plain(error, path) from error
    written = datetime.fromisoformat(metadata["Last-Modified"].decode())
    return file, ObjectStatus(file.size(), int(written.timestamp()) * _NS_PER_S, metadata["ETag"].decode())


def read_object(file: NativeFile, path: ObjectPath, position: int, size: int) -> bytes:
    """Bytes of an object that was opened; fewer where it has become shorter. One request, none for no bytes.

    Raises:
        FileNotFoundError: it is there no longer.
        OSError: it cannot be read.
    """
    if size == 0:
        return b""
    try:
        return bytes(file.read_at(size, position))  # type: ignore[call-arg]  # the stubs lack the position
    except OSError as error:
        if _ends_before(path, position):
            return b""
        raise _plain(error, path) from error


def read_object_into(file: NativeFile, path: ObjectPath, position: int, room: NDArray[np.uint8]) -> int:
    """Fill a piece of memory with the bytes of an open object from a position on. Errors are those of `read_object`.

    Returns:
        How many bytes there were.
    """
    try:
        return int(file.get_stream(position, len(room)).readinto(room.data))
    except OSError as error:
        if _ends_before(path, position):
            return 0
        raise _plain(error, path) from error


def put_object(path: ObjectPath, content: bytes) -> None:
    """Write an object as a whole: with one request below 10 MiB, else in parts that appear together.

    Raises:
        OSError: it was not written; what was there is untouched.
    """
    try:
        stream = output_stream(path)
        stream.write(content)
        stream.close()
    except OSError as error:
        raise _plain(error, path) from error


def output_stream(path: ObjectPath) -> NativeFile:
    """A new object that is written piece by piece. It appears once it is closed, and not as a context: one that is left
    by an error would publish what was written so far.

    Raises:
        OSError: it cannot be written.
    """
    try:
        return _store().open_output_stream(path.key, compression=None)
    except OSError as error:
        raise _plain(error, path) from error


def delete_object(path: ObjectPath) -> None:
    """Remove an object, if it is there.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        _store().delete_file(path.key)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _plain(error, path) from error


def _ends_before(path: ObjectPath, position: int) -> bool:
    """Whether that is why nothing could be read there; where the object is gone, that is raised."""
    return open_object(path)[1].st_size <= position


def endpoint() -> str | None:
    """The URL of another object store than AWS' own; None where the environment names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _store() -> S3FileSystem:
    return _connected(endpoint(), os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))


@functools.cache
def _connected(url: str | None, region: str | None) -> S3FileSystem:
    # Who has no objects does not wait for the import.
    from pyarrow.fs import S3FileSystem

    # With `allow_delayed_open` a small object is one request and not three.
    return S3FileSystem(
        endpoint_override=url,
        region=region,
        allow_delayed_open=True,  # type: ignore[call-arg]  # the stubs do not know it
    )


def _plain(error: OSError, path: ObjectPath) -> OSError:
    """An object store's error in the words that are the same each time."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", str(path))
    return OSError(errno.EIO, _REQUEST_ID.sub("", str(error)).strip(), str(path))
