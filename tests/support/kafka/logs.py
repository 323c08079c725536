"""Kafka's own `UnifiedLog`, with thousands of lookups in one call."""

from __future__ import annotations

import re
import time
from functools import cached_property
from typing import Any, Final

from py4j.java_gateway import get_field

from kidxlib.index.transaction import AbortedTransaction
from kidxlib.log.log import Fetched
from kidxlib.log.segment import LogOffset, TimestampAndOffset
from tests.support.kafka.bulk_calls import Targets, jvm_of
from tests.support.kafka.classes import Kafka

_LOG_OFFSET: Final = re.compile(r"\(offset=(-?\d+), segment=\[(-?\d+):(-?\d+)\]\)")
_BY_TIME: Final = re.compile(
    r"Optional\.empty|"
    r"Optional\[TimestampAndOffset\(timestamp=(-?\d+), offset=(-?\d+), leaderEpoch=Optional(?:\.empty|\[(-?\d+)\])\)\]"
)


class KafkaLog:
    """A log of Kafka's.

    Attributes:
        java: Kafka's object, for single calls.
    """

    def __init__(self, kafka: Kafka, java: Any) -> None:
        self.java = java
        self._jvm = jvm_of(kafka)
        self._none = kafka.gateway.jvm.java.util.Optional.empty()
        self._isolation = kafka.gateway.jvm.org.apache.kafka.server.storage.log.FetchIsolation

    def places(self, offsets: Targets) -> list[LogOffset]:
        """`maybeConvertToOffsetMetadata`: where a fetch from each offset starts. An offset that the log does not have
        is at segment −1.
        """
        text = self._jvm.map(offsets, self._place_of)
        return [LogOffset(*map(int, match.groups())) for match in _LOG_OFFSET.finditer(text)]

    def offsets_by_timestamp(self, timestamps: Targets) -> list[TimestampAndOffset | None]:
        """`fetchOffsetByTimestamp`, without a tier."""
        return [_by_time(match) for match in _BY_TIME.finditer(self._jvm.map(timestamps, self._offset_of))]

    def seconds(self, targets: Targets, *, by_time: bool) -> float:
        """The seconds of `places` or `offsets_by_timestamp`, without the text of their results."""
        method = self._offset_of if by_time else self._place_of
        self._jvm.list(targets, method)  # sends the targets, and lets Java compile
        start = time.perf_counter()
        self._jvm.list(targets, method)
        return time.perf_counter() - start

    @cached_property
    def _place_of(self) -> Any:
        return self._jvm.handle("UnifiedLog", "maybeConvertToOffsetMetadata").bindTo(self.java)

    @cached_property
    def _offset_of(self) -> Any:
        handles = self._jvm.handles
        method = self._jvm.handle("UnifiedLog", "fetchOffsetByTimestamp").bindTo(self.java)
        method = handles.insertArguments(method, 1, self._jvm.objects(self._none))
        return handles.filterReturnValue(method, self._jvm.handle("OffsetResultHolder", "timestampAndOffsetOpt"))

    def read(
        self, start_offset: int, max_bytes: int, *, min_one_message: bool, committed: bool
    ) -> tuple[Fetched, list[tuple[int, int]] | None]:
        """`read` up to the log end offset, or with `committed` up to the last stable offset. Return the fetched range,
        and the producer ids and first offsets of the aborted transactions to skip: Kafka's answer has no more of them.
        """
        isolation = self._isolation.TXN_COMMITTED if committed else self._isolation.LOG_END
        answer = self.java.read(start_offset, max_bytes, isolation, min_one_message)
        place = _LOG_OFFSET.fullmatch(get_field(answer, "fetchOffsetMetadata").toString())
        assert place is not None
        fetched = Fetched(
            LogOffset(*map(int, place.groups())),
            get_field(answer, "records").sizeInBytes(),
            get_field(answer, "firstEntryIncomplete"),
            None,
        )
        aborted = get_field(answer, "abortedTransactions")
        if aborted.isEmpty():
            return fetched, None
        return fetched, [(entry.producerId(), entry.firstOffset()) for entry in aborted.get()]

    def collect_aborted(self, start_offset: int, upper_bound: int) -> tuple[AbortedTransaction, ...]:
        return tuple(
            AbortedTransaction(entry.producerId(), entry.firstOffset(), entry.lastOffset(), entry.lastStableOffset())
            for entry in self.java.collectAbortedTransactions(start_offset, upper_bound)
        )


def _by_time(match: re.Match[str]) -> TimestampAndOffset | None:
    if match[1] is None:
        return None
    return TimestampAndOffset(int(match[1]), int(match[2]), None if match[3] is None else int(match[3]))
