"""Facts that need all bytes of a log: as its own bytes and its records, read one by one, say."""

from __future__ import annotations

import itertools
from dataclasses import replace

import google_crc32c
import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.checksums import extend_crc64nvme
from kidxlib.java import as_long
from kidxlib.records import reader
from kidxlib.records.batch_headers import parse_batch
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.record_facts import with_all_facts
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import ChunkedLog, LogBytes, WholeLog
from kidxlib.storage.opened_log import open_local_log
from tests.model import facts as model
from tests.model.recover import recover_reference
from tests.support.logs.batches import FILLER, Batch, encode
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.segments import Segment, segments
from tests.support.logs.v2_records import record

_ZSTD = layouts.CODECS.index("zstd")


def test_crc64nvme() -> None:
    """The value that the catalogue of parametrised CRC algorithms has of it."""
    assert extend_crc64nvme(0, b"123456789") == 0xAE8B14860A799888
    assert extend_crc64nvme(extend_crc64nvme(0, b"1234"), b"56789") == 0xAE8B14860A799888


def test_golden(golden_segment: GoldenSegment) -> None:
    log = golden_segment.log.read_bytes()
    with open_local_log(str(golden_segment.log)) as (descriptor, version):
        check(ChunkedLog(descriptor, version.size, 70_000), log, golden_segment.base_offset, golden_segment.options)


@given(segments())
@example(Segment(log=b"".join(encode(0, [Batch(magic=1, timestamp=2**63 - 1)]))))  # the largest timestamp that there is
def test_generated_segments(segment: Segment) -> None:
    """Hardly a batch of these has sound records."""
    check(WholeLog(np.frombuffer(segment.log, np.uint8)), segment.log, segment.base_offset, segment.options)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-1, 10 * 3_600_000), min_size=1, max_size=9),
            st.sampled_from([0, _ZSTD]),
            st.sampled_from([0, layouts.ATTRIBUTE_LOG_APPEND_TIME]),
            st.integers(0, 3000),
        ),
        max_size=20,
    )
)
def test_sound_records(batches: list[tuple[list[int], int, int, int]]) -> None:
    """The first record of a batch need not be the earliest."""
    log = b"".join(encode(0, list(itertools.starmap(_batch, batches))))
    facts = check(WholeLog(np.frombuffer(log, np.uint8)), log, 0, RecoverOptions())
    timestamps = [max(times) if append else min(times) for times, _, append, _ in batches]
    assert facts == min(timestamps, default=-1)


def check(log: LogBytes, data: bytes, base_offset: int, options: RecoverOptions) -> int | None:
    """Compare all facts with the model; return the smallest timestamp."""
    facts = recover(log, base_offset, options).facts
    found = with_all_facts(log, facts)
    expected = replace(facts, log_crc32c=google_crc32c.value(data), log_crc64nvme=as_long(extend_crc64nvme(0, data)))
    timestamps = _record_timestamps(data, recover_reference(data, base_offset, options).valid_bytes)
    if timestamps is not None:
        smallest = model.smallest_timestamps(timestamps, len(data))
        assert smallest is not None
        expected = replace(
            expected,
            smallest_timestamp_ms=smallest[0].timestamp_ms if smallest else -1,
            smallest_timestamps=smallest,
            records_by_hour=model.records_by_hour(timestamps),
        )
    assert found == expected
    return found.smallest_timestamp_ms


def _record_timestamps(data: bytes, end: int) -> list[model.Timestamps] | None:
    """A row for each record, and one for each batch, which may be empty; None where a batch cannot be read.

    Batches whose header says it all are not looked into.
    """
    log = WholeLog(np.frombuffer(data, np.uint8))
    found: list[model.Timestamps] = []
    position = 0
    while position < end:
        size = layouts.LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], signed=True)
        batch = parse_batch(position, size, data[position : position + layouts.BATCH_V2.itemsize].ljust(61, b"\0"))
        if batch.is_v2 and (batch.is_log_append_time or batch.records_count in (0, 1)):
            found.append(model.Timestamps(position, batch.max_timestamp, max(batch.records_count or 0, 0), True))
        elif not batch.is_v2 and batch.codec == 0:
            found.append(model.Timestamps(position, batch.max_timestamp, 1, True))
        else:
            try:
                records = list(reader.records(log, batch))
            except (MalformedError, MalformedRecordsError):
                return None
            if not records:
                return None
            found += [model.Timestamps(position, each.timestamp, 1, True) for each in records]
        position += size
    return found


def _batch(times: list[int], codec: int, append_time: int, filler: int) -> Batch:
    body = b"".join(
        record(None, FILLER[:filler], timestamp_delta=time - times[0], offset_delta=number)
        for number, time in enumerate(times)
    )
    if codec == _ZSTD:
        body = pa.Codec("zstd").compress(body, asbytes=True)
    return Batch(
        offset_step=len(times),
        last_offset_delta=len(times) - 1,
        records=len(times),
        base_timestamp=times[0],
        timestamp=max(times),
        attributes=codec | append_time,
        body=body,
    )
