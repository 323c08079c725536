"""Segments in shares for workers: each is in one, and in order, whatever partitions are like."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.segments import SEGMENTS, SegmentToCompare
from kidxlib.errors import UsageError
from kidxlib.operations.compare import copy_in_store
from kidxlib.operations.compare.copy_in_store import (
    NOT_COMPARABLE,
    PROBLEMS,
    CopyRequest,
    CopyVerdict,
    ExpectedInStore,
    judge_copy_in_store,
)
from kidxlib.run.context import RunContext
from kidxlib.storage.store.client import HeadAnswer, ObjectHead
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.tables.memory_tables import MemoryTables
from tests.conftest import one_in
from tests.support.catalog import filled_rows

_COPY = ObjectPath("bucket/logs")
_REQUEST = CopyRequest(
    context=RunContext(catalog="c", database=None, now=datetime(2026, 11, 25, tzinfo=UTC), event_log_dir=None),
    copy=_COPY,
    source=None,
    topics=re.compile(".*"),
    inactive_only=False,
)


def _row(source: str, topic: str, partition: int, base_offset: int, **values: Any) -> dict[str, Any]:
    key = {"source": source, "topic": topic, "partition": partition, "base_offset": base_offset}
    return {**key, "status": "ok", "log_bytes": base_offset, **values}


def _tables(*rows: dict[str, Any]) -> MemoryTables:
    tables = MemoryTables("catalog")
    tables.append(SEGMENTS, filled_rows(SEGMENTS, random.sample(rows, len(rows))))
    return tables


@one_in(20)  # rows of all columns of the catalog are made for each
@given(
    st.dictionaries(st.tuples(st.sampled_from("tu"), st.integers(0, 9)), st.integers(1, 15), min_size=1),
    st.integers(1, 3),
    st.integers(1, 12),
)
def test_each_segment_is_in_one_share(partitions: dict[tuple[str, int], int], cores: int, share_segments: int) -> None:
    """Shares are small, too: one may be a part of a partition, and have no more segments than it may."""
    rows = [_row("s", *key, offset) for key, segments in partitions.items() for offset in range(segments)]
    others = [_row("s", "t", 0, 99, status="gone"), _row("s", "t", 11, 0, status="deleted")]
    found = ExpectedInStore.of(_REQUEST, _tables(*rows, *others), "catalog")
    assert (found.source, found.segments) == ("s", len(rows))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copy_in_store, "_SHARE_SEGMENTS", share_segments)
        shares = [share.read() for share in found.shares(_COPY, cores)]
    assert max(map(len, shares)) <= share_segments
    read = [(each.topic, each.partition, each.base_offset, each.log_bytes) for share in shares for each in share]
    assert read == sorted((row["topic"], row["partition"], row["base_offset"], row["base_offset"]) for row in rows)


def test_what_is_asked_for() -> None:
    """One source, some topics, and not the segments that a broker may write to."""
    tables = _tables(
        _row("a", "t", 0, 0, active=False),
        _row("a", "t", 0, 5, active=True),
        _row("a", "u", 0, 7, active=False),
        _row("b", "t", 0, 9, active=False),
    )

    def offsets(request: CopyRequest) -> list[int]:
        shares = ExpectedInStore.of(request, tables, "catalog").shares(_COPY, 1)
        return [segment.base_offset for share in shares for segment in share.read()]

    with pytest.raises(UsageError, match="no --source, and the catalog catalog has a, b: name the one"):
        offsets(_REQUEST)
    of_a = replace(_REQUEST, source="a")
    assert offsets(of_a) == [0, 5, 7]
    assert offsets(replace(of_a, topics=re.compile("t"))) == [0, 5]
    assert offsets(replace(of_a, inactive_only=True)) == [0, 7]
    with pytest.raises(UsageError, match="no segment of a topic that matches v"):
        offsets(replace(of_a, topics=re.compile("v")))


def test_a_worker_that_has_another_catalog_says_so() -> None:
    """One that finds none would find nothing wrong either."""
    [share] = ExpectedInStore.of(_REQUEST, _tables(_row("s", "t", 0, 0)), "catalog").shares(_COPY, 1)
    with pytest.raises(UsageError, match="a worker finds 0 of 1 segment in the catalog"):
        replace(share, tables=MemoryTables("elsewhere")).read()


_CRC32C, _CRC64 = 0xE3069283, 0xAE8B14860A799888
#: As Java's long.
_SIGNED = _CRC64 - 2**64


def _known(*of_log: int | None) -> SegmentToCompare:
    """What the catalog knows of a log: its bytes, CRC-32C and CRC-64/NVME."""
    return SegmentToCompare.of_dict(dict(zip(SegmentToCompare.names(), ("t", 0, 0, *of_log), strict=True)))


_KNOWN = _known(9, _CRC32C, _SIGNED)


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
        (_known(9, _CRC32C, None), ObjectHead(9, crc64nvme=_CRC64), "no-fact", "the object has CRC-64/NVME"),
        (_known(9, None, None), ObjectHead(9, crc32c=_CRC32C), "no-fact", "--fill-facts"),
        (_known(9, None, None), ObjectHead(8, crc32c=_CRC32C), "other-size", "the object 8"),
        (_known(9, None, _SIGNED), ObjectHead(9, crc32c=1, crc64nvme=_CRC64), "as-uploaded", ""),
        (_known(None, None, None), ObjectHead(9, crc32c=_CRC32C), "no-fact", "could not be read"),
    ],
)
def test_verdicts(known: SegmentToCompare, head: ObjectHead | None, verdict: str, words: str) -> None:
    found, why = judge_copy_in_store(known, HeadAnswer(head))
    assert found == CopyVerdict(verdict) and words in why
    assert bool(why) == (found is not CopyVerdict.AS_UPLOADED)


def test_what_the_store_refuses_is_not_missing() -> None:
    assert judge_copy_in_store(_KNOWN, HeadAnswer(None, "HTTP 403: Forbidden")) == (
        CopyVerdict.REFUSED,
        "HTTP 403: Forbidden",
    )


_NUMBERS = st.sampled_from([0, 1, 2**31, 2**32 - 1])
_LONGS = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])


@given(
    st.builds(_known, st.none() | st.integers(0, 2), st.none() | _NUMBERS, st.none() | _LONGS),
    st.builds(
        ObjectHead,
        st.integers(0, 2),
        st.none() | _NUMBERS,
        st.none() | _LONGS.map(lambda number: number % 2**64),
        st.sampled_from([(), ("CRC-32C",)]),
        st.sampled_from([(), ("SHA-256",)]),
    ),
)
def test_nothing_is_as_uploaded_that_was_not_compared(known: SegmentToCompare, head: ObjectHead) -> None:
    """Equal size, a checksum that both have, and none that differs: no less, and no more."""
    crc64nvme = None if known.log_crc64nvme is None else known.log_crc64nvme % 2**64
    pairs = [(known.log_crc32c, head.crc32c), (crc64nvme, head.crc64nvme)]
    both = [one == other for one, other in pairs if one is not None and other is not None]
    verdict, _ = judge_copy_in_store(known, HeadAnswer(head))
    assert (verdict is CopyVerdict.AS_UPLOADED) == (known.log_bytes == head.size and bool(both) and all(both))
    assert (verdict is CopyVerdict.DIFFERS) == (known.log_bytes == head.size and not all(both))


def test_each_verdict_is_of_one_kind() -> None:
    assert {CopyVerdict.AS_UPLOADED, *PROBLEMS, *NOT_COMPARABLE} == {*CopyVerdict}
    assert len(PROBLEMS) + len(NOT_COMPARABLE) + 1 == len(CopyVerdict)
