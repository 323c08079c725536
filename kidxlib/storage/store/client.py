"""The client of an object store for what pyarrow's file system does not offer: checksums that the store computed, ETags
of a listing, and writes on the condition that nobody else has written meanwhile.

It is botocore's, and finds credentials, region and endpoint as the other does. It does not stand for the other: a small
GET takes it 3 ms of processor time, in which no other thread of Python runs, and pyarrow 0.5 ms outside of Python (an
AMD EPYC without AVX-512). A bucket of a million segments is asked some millions of times.
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

from kidxlib.storage.store.requests import STATUSES, TRIES, TRIES_TO_REACH, Kind, NotNow, answer_of, count
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus, endpoint, region

#: Requests that a process has on their way at a time.
AT_ONCE: Final = 32

_NOT_FOUND: Final = 404
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60

_T = TypeVar("_T")

_COMPOSITE: Final = "COMPOSITE"
#: The checksums that S3 knows, as its answers and people call them.
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

#: Answers that the condition does not hold: it was written, is being written, or has gone.
_WRITTEN: Final = 412
_BEING_WRITTEN: Final = 409
_GONE: Final = 404

_NS_PER_S: Final = 1_000_000_000


def connect() -> Any:
    """botocore's client of the store that the environment names: one for all threads of this process."""
    return _connected(endpoint(), region())


@functools.cache
def _connected(url: str | None, region: str | None) -> Any:
    settings = Config(
        max_pool_connections=AT_ONCE,
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": 1},  # `answer_of` makes requests again, as those of the other client
    )
    return botocore.session.get_session().create_client("s3", endpoint_url=url, region_name=region, config=settings)


def _answered(request: Callable[[], _T], tries_to_reach: int = TRIES) -> _T:
    """What the store answers to a request of this client. Errors are those of `_plainly`, once it was made in vain as
    often as `answer_of` makes it.
    """
    return answer_of(functools.partial(_plainly, request), tries_to_reach=tries_to_reach, why_not_now=_why_not_now)


def _plainly(request: Callable[[], _T]) -> _T:
    """What a request gives, and botocore's errors as those of an operating system."""
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
    """The HTTP status of an answer."""
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What a store says of an object.

    Attributes:
        size: in bytes.
        crc32c, crc64nvme: of the whole object, without a sign; None where the store has none.
        composite: names of checksums that are of the checksums of the object's parts.
        others: names of checksums of the whole object that are of other kinds.
    """

    size: int
    crc32c: int | None = None
    crc64nvme: int | None = None
    composite: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer to a HEAD.

    Attributes:
        head: None where there is no such object, or `refused` says why there is no answer.
        refused: an answer that would be the same the next time; None where there is none such.
    """

    head: ObjectHead | None
    refused: str | None = None


def ask_for_head(client: Any, path: ObjectPath) -> Asked:
    """Ask the store of an object. Several threads may do so at a time.

    Args:
        client: that of `kidxlib.storage.store.client.connect`.
    """
    bucket, _, key = path.key.partition("/")

    def head() -> Mapping[str, Any]:
        count(Kind.HEAD)
        answer: Mapping[str, Any] = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        return answer

    try:
        answer = _answered(head)
    except FileNotFoundError:
        return Asked(None)
    except PermissionError as error:
        return Asked(None, str(error))
    return Asked(head_of(answer))


def ensure_any_object(client: Any, path: ObjectPath) -> None:
    """Ask the store for one object below a prefix.

    Args:
        client: that of `kidxlib.storage.store.client.connect`.
    """
    bucket, slash, prefix = path.key.partition("/")
    asked = {"Bucket": bucket, "Prefix": f"{prefix}/" if slash else ""}

    def page() -> Mapping[str, Any]:
        count(Kind.LIST)
        answer: Mapping[str, Any] = client.list_objects_v2(**asked)
        return answer

    while not (listed := _answered(page, tries_to_reach=TRIES_TO_REACH)).get("Contents"):
        if not listed.get("IsTruncated"):
            raise FileNotFoundError("no object with this prefix")
        asked["ContinuationToken"] = listed["NextContinuationToken"]


def head_of(answer: Mapping[str, Any]) -> ObjectHead:
    """What the answer to a HEAD says, as botocore gives it."""
    found = {name: str(answer[name]) for name in _NAMES if answer.get(name)}
    is_composite = answer.get("ChecksumType") == _COMPOSITE
    # The number of parts stands behind such a checksum, also where a store does not say its type.
    composite = {name for name, text in found.items() if is_composite or "-" in text}
    whole = {name: text for name, text in found.items() if name not in composite}
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
    """A checksum as S3 writes it, big-endian bytes in base64; None of anything else."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return int.from_bytes(data) if len(data) == size else None


def put_object_if(path: ObjectPath, content: bytes, etag: str | None) -> bool:
    """Write an object with one request, on a condition.

    Args:
        etag: what it has now, as `ObjectStatus` has it; None where there must be none.

    Returns:
        Whether it was written. False also where it was, and the answer was lost: what is there then is `content`.
    """
    bucket, _, key = path.key.partition("/")
    condition: dict[str, Any] = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}

    def put() -> bool:
        count(Kind.PUT)
        try:
            connect().put_object(Bucket=bucket, Key=key, Body=content, **condition)
        except ClientError as error:
            if _status_of(error) in (_WRITTEN, _BEING_WRITTEN) or (etag is not None and _status_of(error) == _GONE):
                return False
            raise
        return True

    return _answered(put)


def objects_with_etags(directory: ObjectPath) -> Iterator[ObjectPath]:
    """The objects right in a directory, in the order of their keys; none where nothing lies in it. One request for a
    thousand of them.
    """
    bucket, _, key = directory.key.partition("/")
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "Delimiter": "/"}
    try:
        while True:
            page = _answered(lambda: _page(asked))
            for each in page.get("Contents", ()):
                if each["Key"] != asked["Prefix"]:  # an empty object that stands for the directory
                    yield ObjectPath(f"{bucket}/{each['Key']}", _status(each))
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]
    except OSError as error:
        raise OSError(errno.EIO, error.strerror or str(error), str(directory)) from error


def _page(asked: dict[str, Any]) -> dict[str, Any]:
    count(Kind.LIST)
    page: dict[str, Any] = connect().list_objects_v2(**asked)
    return page


def _status(each: dict[str, Any]) -> ObjectStatus:
    written_ns = int(each["LastModified"].timestamp()) * _NS_PER_S
    return ObjectStatus(int(each["Size"]), written_ns, each.get("ETag", ""))
