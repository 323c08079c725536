"""Judges whether a copy of a segment's log in an object store is as it was uploaded: the answer to a HEAD request is
compared with the catalog's row of the log. No byte of either is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kidxlib.storage.store.client import HeadAnswer, ObjectHead

_64_BITS: Final = 2**64


class CopyVerdict(StrEnum):
    AS_UPLOADED = "as-uploaded"
    DIFFERS = "differs"
    OTHER_SIZE = "other-size"
    MISSING = "missing"
    REFUSED = "refused"
    COMPOSITE = "composite"
    NO_CHECKSUM = "no-checksum"
    NO_FACT = "no-fact"


#: Verdicts that are problems, and verdicts that say neither that the copy is right nor that it is wrong.
PROBLEMS: Final = (CopyVerdict.DIFFERS, CopyVerdict.OTHER_SIZE, CopyVerdict.MISSING, CopyVerdict.REFUSED)
NOT_COMPARABLE: Final = (CopyVerdict.COMPOSITE, CopyVerdict.NO_CHECKSUM, CopyVerdict.NO_FACT)


@dataclass(frozen=True, slots=True)
class KnownLog:
    """The catalog's values for a log, named as its columns; None if not known."""

    log_bytes: int | None
    log_crc32c: int | None
    log_crc64nvme: int | None


def judge_copy(known: KnownLog, asked: HeadAnswer) -> tuple[CopyVerdict, str]:
    """The verdict on a copy, and the reason. A copy is as uploaded if its size is the log's and a checksum of the whole
    object equals the log's; it differs if any checksum does not.
    """
    if asked.refused is not None:
        return CopyVerdict.REFUSED, asked.refused
    if asked.head is None:
        return CopyVerdict.MISSING, "no such object"
    head = asked.head
    if known.log_bytes is None:
        return CopyVerdict.NO_FACT, "the log could not be read when it was built"
    if head.size != known.log_bytes:
        return CopyVerdict.OTHER_SIZE, f"the log has {known.log_bytes:,} bytes, the object {head.size:,}"
    return _by_checksums(known, head)


def _by_checksums(known: KnownLog, head: ObjectHead) -> tuple[CopyVerdict, str]:
    crc64nvme = None if known.log_crc64nvme is None else known.log_crc64nvme % _64_BITS
    checksums = [
        (name, in_catalog, in_store, digits)
        for name, in_catalog, in_store, digits in (
            ("CRC-32C", known.log_crc32c, head.crc32c, 8),
            ("CRC-64/NVME", crc64nvme, head.crc64nvme, 16),
        )
        if in_store is not None
    ]
    in_both = [checksum for checksum in checksums if checksum[1] is not None]
    for name, in_catalog, in_store, digits in in_both:
        if in_catalog != in_store:
            return (
                CopyVerdict.DIFFERS,
                f"{name} of the log is {in_catalog:0{digits}x}, of the object {in_store:0{digits}x}",
            )
    if in_both:
        return CopyVerdict.AS_UPLOADED, ""
    if checksums:
        names = " and ".join(name for name, *_ in checksums)
        return (
            CopyVerdict.NO_FACT,
            f"the object has {names}, and the catalog not; a build with --fill-facts computes it",
        )
    if head.composite:
        names = " and ".join(head.composite)
        return CopyVerdict.COMPOSITE, f"its {names} is of the checksums of its parts, and not comparable"
    others = f"; it has {' and '.join(head.others)}" if head.others else ""
    return CopyVerdict.NO_CHECKSUM, f"the object has neither CRC-32C nor CRC-64/NVME{others}"
