"""Both checksums of a log are those that an S3 server computes of it, by itself."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.record_facts import with_all_facts
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import Say
from tests.support.checksum_store import PART_BYTES, ChecksumStore
from tests.support.logs.batches import FILLER, Batch, encode
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.segments import Segment, segments

_KEY = "checksums/of.log"


def test_golden(checksum_store: ChecksumStore, golden_segment: GoldenSegment) -> None:
    _check(checksum_store, golden_segment.log.read_bytes(), golden_segment.base_offset, golden_segment.options)


def test_generated_segments(checksum_store: ChecksumStore, exhaustive: bool, say: Say) -> None:
    logs = 0

    # The server has files to write for each.
    @settings(max_examples=10_000 if exhaustive else 100, suppress_health_check=list(HealthCheck))
    @given(segments())
    def check(segment: Segment) -> None:
        nonlocal logs
        _check(checksum_store, segment.log, segment.base_offset, segment.options)
        logs += 1

    check()
    say(f"{logs} logs")


@pytest.mark.parametrize(("algorithm", "checksum_bytes"), [("CRC32C", 4), ("CRC64NVME", 8)])
def test_a_log_that_is_uploaded_in_parts(checksum_store: ChecksumStore, algorithm: str, checksum_bytes: int) -> None:
    """The server combines the checksums of the parts, as we those of the batches."""
    log = b"".join(encode(0, [Batch(body=FILLER * 8) for _ in range(PART_BYTES // 30_000)]))
    assert 2 * PART_BYTES < len(log) < 3 * PART_BYTES
    checksum_store.put_in_parts(_KEY, log, algorithm, "FULL_OBJECT")
    found = _checksum(checksum_store, algorithm, checksum_bytes)
    whole = WholeLog(np.frombuffer(log, np.uint8))
    facts = with_all_facts(whole, recover(whole, 0, RecoverOptions()).facts)
    assert found == {"CRC32C": facts.log_crc32c, "CRC64NVME": facts.log_crc64nvme}[algorithm]


def _check(store: ChecksumStore, log: bytes, base_offset: int, options: RecoverOptions) -> None:
    store.put_with(_KEY, log, "CRC32C")
    crc32c = _checksum(store, "CRC32C", 4)
    store.put_with(_KEY, log, "CRC64NVME")
    crc64nvme = _checksum(store, "CRC64NVME", 8)
    whole = WholeLog(np.frombuffer(log, np.uint8))
    scanned = recover(whole, base_offset, options).facts
    assert scanned.log_crc32c in (None, crc32c)  # from the checksums of its batches, where all have one
    facts = with_all_facts(whole, scanned)
    assert (facts.log_crc32c, facts.log_crc64nvme) == (crc32c, crc64nvme)


def _checksum(store: ChecksumStore, algorithm: str, checksum_bytes: int) -> int:
    """The object's, as the catalog has it: of 64 bits a signed number."""
    head = store.head(_KEY)
    assert head["ChecksumType"] == "FULL_OBJECT"
    data = base64.b64decode(head[f"Checksum{algorithm}"], validate=True)
    assert len(data) == checksum_bytes
    return int.from_bytes(data, signed=checksum_bytes == 8)
