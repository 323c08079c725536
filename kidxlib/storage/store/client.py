"""The second client of an object store, for what pyarrow's file system lacks: checksums that the store has computed,
ETags in a listing, and conditional writes.

It is botocore's, and finds credentials, region and endpoint as pyarrow's does. It does not replace pyarrow's: a small
GET takes it 3 ms of processor time, in which no other thread of Python runs, and pyarrow 0.5 ms outside of Python (an
AMD EPYC without AVX-512). A run sends some millions of requests to a bucket of a million segments. The
client below delta-rs (tried as obstore 0.12.1) knows ETags, but passes on no checksum of a HEAD's answer.
"""

from __future__ import annotations

import base64
import binascii
import errno
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    SSLError,
)

from kidxlib.storage.store.requests import (
    STATUSES,
    TRIES,
    TRIES_TO_REACH,
    NotNow,
    RequestKind,
    answer_with_retries,
    count_requests,
)
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus, endpoint, region

#: How many requests of a process run at a time.
AT_ONCE: Final = 32

_NOT_FOUND: Final = 404
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60

_T = TypeVar("_T")

_COMPOSITE: Final = "COMPOSITE"
#: The checksums of S3: their names in answers, and their usual names.
_NAMES: Final = {
    "ChecksumCRC32C": "CRC-32C",
    "ChecksumCRC64NVME": "CRC-64/NVME",
    "ChecksumCRC32": "CRC-32",
    "ChecksumSHA1": "SHA-1",
    "ChecksumSHA256": "SHA-256",
    "ChecksumSHA512": "SHA-512",
    "ChecksumMD5": "MD5",
    "ChecksumXXHASH64": "XXH64",
    "ChecksumXXHASH3": "XXH3",
    "ChecksumXXHASH128": "XXH128",
}

#: Statuses of a failed condition: the object was written, is being written, or was removed.
_WRITTEN: Final = 412
_BEING_WRITTEN: Final = 409
_GONE: Final = 404

_NO_LIFECYCLE: Final = "NoSuchLifecycleConfiguration"

_NS_PER_S: Final = 1_000_000_000


def connect() -> Any:
    """botocore's client for the store in the environment: one for all threads of this process."""
    return _connected(endpoint(), region())


@functools.cache
def _connected(url: str | None, region: str | None) -> Any:
    settings = Config(
        max_pool_connections=AT_ONCE,
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": 1},  # `answer_with_retries` tries again, as for the other client
    )
    return botocore.session.get_session().create_client("s3", endpoint_url=url, region_name=region, config=settings)


def _answered(kind: RequestKind, request: Callable[[], _T], tries_to_reach: int = TRIES) -> _T:
    """The store's answer to a request of this client, or after all retries the errors of `_plainly`."""
    return answer_with_retries(
        functools.partial(_plainly, kind, request), tries_to_reach=tries_to_reach, why_not_now=_why_not_now
    )


def _plainly(kind: RequestKind, request: Callable[[], _T]) -> _T:
    """The result of a request, which is counted, with botocore's errors turned into `OSError`."""
    count_requests(kind)
    try:
        return request()
    except ClientError as error:
        of_answer = error.response["Error"]
        message = f"HTTP {_status_of(error)}: {of_answer.get('Message') or of_answer.get('Code')}"
        if str(_status_of(error)) in STATUSES:
            raise OSError(message) from error
        raise (FileNotFoundError if _status_of(error) == _NOT_FOUND else PermissionError)(message) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error


def _why_not_now(error: OSError) -> NotNow | None:
    match error.__cause__:
        case ClientError() as answer:
            return STATUSES.get(str(_status_of(answer)))
        case EndpointConnectionError() | ConnectTimeoutError() | ProxyConnectionError():
            return NotNow.UNREACHED
        case SSLError():
            return None
        case HTTPClientError():
            return NotNow.DROPPED
        case _:
            return None


def _status_of(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """An object's size and checksums in its store.

    Attributes:
        size: in bytes.
        crc32c, crc64nvme: of the whole object, unsigned; None if the store has none.
        composite: names of checksums over the checksums of the object's parts.
        others: names of other checksums of the whole object.
    """

    size: int
    crc32c: int | None = None
    crc64nvme: int | None = None
    composite: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeadAnswer:
    """The answer to a HEAD.

    Attributes:
        head: None if there is no such object, or the store refused.
        refused: why the store refuses the request, always; None: it does not.
    """

    head: ObjectHead | None
    refused: str | None = None


def ask_for_head(client: Any, path: ObjectPath) -> HeadAnswer:
    """Send a HEAD for an object with a client of `connect`, which threads may share."""
    bucket, _, key = path.key.partition("/")

    try:
        answer: Mapping[str, Any] = _answered(
            RequestKind.HEAD, lambda: client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        )
    except FileNotFoundError:
        return HeadAnswer(None)
    except PermissionError as error:
        return HeadAnswer(None, str(error))
    return HeadAnswer(head_of(answer))


def ensure_any_object(client: Any, path: ObjectPath) -> None:
    """Check that a prefix has an object, with a client of `connect`."""
    bucket, slash, prefix = path.key.partition("/")
    arguments = {"Bucket": bucket, "Prefix": f"{prefix}/" if slash else ""}
    while not (page := _answered(RequestKind.LIST, lambda: _page(client, arguments), TRIES_TO_REACH)).get("Contents"):
        if not page.get("IsTruncated"):
            raise FileNotFoundError("no object with this prefix")
        arguments["ContinuationToken"] = page["NextContinuationToken"]


def head_of(answer: Mapping[str, Any]) -> ObjectHead:
    """An object's size and stored checksums, from its store's answer to a HEAD."""
    checksums = {name: str(answer[name]) for name in _NAMES if answer.get(name)}
    is_composite = answer.get("ChecksumType") == _COMPOSITE
    # A composite checksum ends in the number of parts, even if the store does not name its type.
    composite = {name for name, text in checksums.items() if is_composite or "-" in text}
    whole = {name: text for name, text in checksums.items() if name not in composite}
    numbers = {
        name: number
        for name, size in (("ChecksumCRC32C", 4), ("ChecksumCRC64NVME", 8))
        if (number := _number(whole.get(name, ""), size)) is not None
    }
    return ObjectHead(
        size=int(answer["ContentLength"]),
        crc32c=numbers.get("ChecksumCRC32C"),
        crc64nvme=numbers.get("ChecksumCRC64NVME"),
        composite=tuple(shown for name, shown in _NAMES.items() if name in composite),
        others=tuple(shown for name, shown in _NAMES.items() if name in whole and name not in numbers),
    )


def _number(text: str, size: int) -> int | None:
    """The number of a checksum in S3's form, big-endian bytes in base64; None if it is malformed."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return int.from_bytes(data) if len(data) == size else None


def put_object_if(path: ObjectPath, content: bytes, etag: str | None) -> bool:
    """Write an object with one conditional request, if the present object has an `etag`; None: if there is no object.
    Return whether it was written. False also if it was written and the answer was lost: then the object has `content`.
    """
    bucket, _, key = path.key.partition("/")
    condition: dict[str, Any] = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}

    def put() -> bool:
        try:
            connect().put_object(Bucket=bucket, Key=key, Body=content, **condition)
        except ClientError as error:
            if _status_of(error) in (_WRITTEN, _BEING_WRITTEN) or (etag is not None and _status_of(error) == _GONE):
                return False
            raise
        return True

    return _answered(RequestKind.PUT, put)


def objects_with_etags(directory: ObjectPath) -> Iterator[ObjectPath]:
    """The objects directly in a directory, in the order of their keys; none if it is empty. One request lists a
    thousand.
    """
    bucket, _, key = directory.key.partition("/")
    arguments: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "Delimiter": "/"}
    try:
        while True:
            page = _answered(RequestKind.LIST, lambda: _page(connect(), arguments))
            for entry in page.get("Contents", ()):
                if entry["Key"] != arguments["Prefix"]:  # an empty object that stands for the directory
                    yield ObjectPath(f"{bucket}/{entry['Key']}", _status(entry))
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]
    except OSError as error:
        raise OSError(errno.EIO, error.strerror or str(error), str(directory)) from error


def bucket_versioning(path: ObjectPath) -> str | None:
    """Whether the bucket of a path keeps what is deleted as an older version: `Enabled` or `Suspended`; None: it never
    has.
    """
    bucket = path.key.partition("/")[0]
    answer: Mapping[str, Any] = _answered(RequestKind.GET, lambda: connect().get_bucket_versioning(Bucket=bucket))
    return answer.get("Status")


def bucket_lifecycle(path: ObjectPath) -> list[Mapping[str, Any]]:
    """The rules by which the store itself removes objects of a path's bucket, or their older versions."""

    def ask() -> list[Mapping[str, Any]]:
        try:
            answer = connect().get_bucket_lifecycle_configuration(Bucket=path.key.partition("/")[0])
        except ClientError as error:
            if error.response["Error"].get("Code") == _NO_LIFECYCLE:
                return []
            raise
        return list(answer.get("Rules", ()))

    return _answered(RequestKind.GET, ask)


def _page(client: Any, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    page: Mapping[str, Any] = client.list_objects_v2(**arguments)
    return page


def _status(entry: dict[str, Any]) -> ObjectStatus:
    written_ns = int(entry["LastModified"].timestamp()) * _NS_PER_S
    return ObjectStatus(int(entry["Size"]), written_ns, entry.get("ETag", ""))
