"""Verdicts on copies: by the answer to one HEAD, and what the catalog knows of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.audit.copies import NOT_COMPARABLE, PROBLEMS, CopyVerdict, KnownLog, judge_copy
from kidxlib.storage.store.client import HeadAnswer, ObjectHead

_CRC32C, _CRC64 = 0xE3069283, 0xAE8B14860A799888
#: As Java's long.
_SIGNED = _CRC64 - 2**64
_KNOWN = KnownLog(9, _CRC32C, _SIGNED)


@pytest.mark.parametrize(
    ("known", "head", "verdict", "words"),
    [
        (_KNOWN, ObjectHead(9, crc32c=_CRC32C), "as-uploaded", ""),
        (_KNOWN, ObjectHead(9, crc64nvme=_CRC64), "as-uploaded", ""),
        (_KNOWN, ObjectHead(9, crc32c=_CRC32C, crc64nvme=_CRC64), "as-uploaded", ""),
        (_KNOWN, ObjectHead(9, crc32c=_CRC32C, crc64nvme=0), "differs", "CRC-64/NVME of the log is ae8b14860a799888"),
        (_KNOWN, ObjectHead(9, crc32c=1), "differs", "CRC-32C of the log is e3069283, of the object 00000001"),
        (_KNOWN, ObjectHead(8, crc32c=_CRC32C), "other-size", "the log has 9 bytes, the object 8"),
        (_KNOWN, None, "missing", "no such object"),
        (_KNOWN, ObjectHead(9, composite=("CRC-32C",)), "composite", "CRC-32C is of the checksums of its parts"),
        (_KNOWN, ObjectHead(9), "no-checksum", "neither CRC-32C nor CRC-64/NVME"),
        (_KNOWN, ObjectHead(9, others=("CRC-32", "MD5")), "no-checksum", "it has CRC-32 and MD5"),
        (KnownLog(9, _CRC32C, None), ObjectHead(9, crc64nvme=_CRC64), "no-fact", "the object has CRC-64/NVME"),
        (KnownLog(9, None, None), ObjectHead(9, crc32c=_CRC32C), "no-fact", "--fill-facts"),
        (KnownLog(9, None, None), ObjectHead(8, crc32c=_CRC32C), "other-size", "the object 8"),
        (KnownLog(9, None, _SIGNED), ObjectHead(9, crc32c=1, crc64nvme=_CRC64), "as-uploaded", ""),
        (KnownLog(None, None, None), ObjectHead(9, crc32c=_CRC32C), "no-fact", "could not be read"),
    ],
)
def test_verdicts(known: KnownLog, head: ObjectHead | None, verdict: str, words: str) -> None:
    found, why = judge_copy(known, HeadAnswer(head))
    assert found == CopyVerdict(verdict) and words in why
    assert bool(why) == (found is not CopyVerdict.AS_UPLOADED)


def test_what_the_store_refuses_is_not_missing() -> None:
    assert judge_copy(_KNOWN, HeadAnswer(None, "HTTP 403: Forbidden")) == (CopyVerdict.REFUSED, "HTTP 403: Forbidden")


_NUMBERS = st.sampled_from([0, 1, 2**31, 2**32 - 1])
_LONGS = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])


@given(
    st.builds(KnownLog, st.none() | st.integers(0, 2), st.none() | _NUMBERS, st.none() | _LONGS),
    st.builds(
        ObjectHead,
        st.integers(0, 2),
        st.none() | _NUMBERS,
        st.none() | _LONGS.map(lambda number: number % 2**64),
        st.sampled_from([(), ("CRC-32C",)]),
        st.sampled_from([(), ("SHA-256",)]),
    ),
)
def test_nothing_is_as_uploaded_that_was_not_compared(known: KnownLog, head: ObjectHead) -> None:
    """Equal size, a checksum that both have, and none that differs: no less, and no more."""
    crc64nvme = None if known.log_crc64nvme is None else known.log_crc64nvme % 2**64
    pairs = [(known.log_crc32c, head.crc32c), (crc64nvme, head.crc64nvme)]
    both = [one == other for one, other in pairs if one is not None and other is not None]
    verdict, _ = judge_copy(known, HeadAnswer(head))
    assert (verdict is CopyVerdict.AS_UPLOADED) == (known.log_bytes == head.size and bool(both) and all(both))
    assert (verdict is CopyVerdict.DIFFERS) == (known.log_bytes == head.size and not all(both))


def test_each_verdict_is_of_one_kind() -> None:
    assert {CopyVerdict.AS_UPLOADED, *PROBLEMS, *NOT_COMPARABLE} == {*CopyVerdict}
    assert len(PROBLEMS) + len(NOT_COMPARABLE) + 1 == len(CopyVerdict)
