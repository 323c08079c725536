"""What a HEAD says of an object: its size, and the checksums that the store computed when the object was uploaded."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.storage.store.client import answered
from kidxlib.storage.store.requests import Kind, count
from kidxlib.storage.store.retries import TRIES_TO_REACH
from kidxlib.storage.store.s3 import ObjectPath

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

    Raises:
        OSError: the store cannot be asked, or has not answered in `TRIES` tries.
    """
    bucket, _, key = path.key.partition("/")

    def head() -> Mapping[str, Any]:
        count(Kind.HEAD)
        answer: Mapping[str, Any] = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        return answer

    try:
        answer = answered(head)
    except FileNotFoundError:
        return Asked(None)
    except PermissionError as error:
        return Asked(None, str(error))
    return Asked(head_of(answer))


def ensure_any_object(client: Any, path: ObjectPath) -> None:
    """Ask the store for one object below a prefix.

    Args:
        client: that of `kidxlib.storage.store.client.connect`.

    Raises:
        FileNotFoundError: there is none, or no such bucket.
        OSError: the store cannot be asked, or has not answered.
    """
    bucket, slash, prefix = path.key.partition("/")
    asked = {"Bucket": bucket, "Prefix": f"{prefix}/" if slash else ""}

    def page() -> Mapping[str, Any]:
        count(Kind.LIST)
        answer: Mapping[str, Any] = client.list_objects_v2(**asked)
        return answer

    while not (listed := answered(page, tries_to_reach=TRIES_TO_REACH)).get("Contents"):
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
