"""Where Java's producer closes batches, in plain Python: `ProducerBatch`, `MemoryRecordsBuilder`,
`CompressionRatioEstimator`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.records.reader import Record
from tests.support.logs.encoded import record_v2

_HEADER_BYTES: Final = 61
_RECORD_OVERHEAD_MAX: Final = 21


def contents_of(
    records: Sequence[Record],
    begins: Sequence[bool],
    batch_size: int,
    compress: Callable[[bytes], int] | None,
    ratio: float,
) -> Iterator[bytes]:
    """What stands after the headers of the batches that a producer makes of records, before it is compressed.

    Args:
        begins: which records begin a batch whatever there is room for.
        compress: the size of what is compressed; None where there is no codec.
        ratio: compressed bytes of a byte, as the producer estimates them at first.
    """
    inside: list[Record] = []
    content, limit, taken, observed = b"", 0, ratio, None
    for record, begins_one in zip(records, begins, strict=True):
        if inside:
            estimated = _HEADER_BYTES + _estimated(len(content), taken, compress)
            body = _encoded(record, len(inside), inside[0])
            if begins_one or limit <= estimated or limit < estimated + len(body):
                yield content
                closed, observed = observed, 1.0 if compress is None else _float(compress(content) / len(content))
                # The batch before has been compressed by now; this one is only when the next has begun.
                inside, content = [], b""
                taken = ratio = ratio if closed is None else _updated(ratio, closed)
        if not inside:
            key_to_end = _encoded(record, 0, record)
            sizes = len(key_to_end) - _bytes_of_varint(key_to_end) - 3
            limit = max(batch_size, _HEADER_BYTES + _RECORD_OVERHEAD_MAX + sizes)
        content += _encoded(record, len(inside), inside[0] if inside else record)
        inside.append(record)
    if inside:
        yield content


def _encoded(record: Record, number: int, first: Record) -> bytes:
    return record_v2(replace(record, offset=number), 0, first.timestamp)


def _bytes_of_varint(data: bytes) -> int:
    """Of the one that data begins with."""
    return next(number for number, byte in enumerate(data, 1) if byte < 128)


def _estimated(content_bytes: int, ratio: float, compress: Callable[[bytes], int] | None) -> int:
    return content_bytes if compress is None else int(_float(_float(_float(content_bytes) * ratio) * _float(1.05)))


def _updated(ratio: float, observed: float) -> float:
    if observed > ratio:
        return max(_float(ratio + _float(0.05)), observed)
    return max(_float(ratio - _float(0.005)), observed)


def _float(value: float) -> float:
    """As a Java float."""
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found
