"""Kafka's own index classes, with thousands of lookups in one call."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JJavaError

from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.index.transaction import AbortedInRange, AbortedTransaction
from tests.support.kafka.bulk_calls import Targets, jvm_of
from tests.support.kafka.classes import Kafka
from tests.support.kafka.results import KafkaError, error_of

Pair: TypeAlias = tuple[int, int]
_PAIR: Final = re.compile(r"\[(?:offset|timestamp)=(-?\d+), (?:position|offset)=(-?\d+)\]")
_PAIR_OR_NONE: Final = re.compile(rf"Optional\.empty|Optional\[\w+{_PAIR.pattern}\]")
_ABORTED: Final = re.compile(
    r"\((?:version=-?\d+, )?producerId=(-?\d+), firstOffset=(-?\d+), lastOffset=(-?\d+), lastStableOffset=(-?\d+)\)"
)
_RESULT: Final = re.compile(r"TxnIndexSearchResult\[abortedTransactions=\[(.*?)\], isComplete=(true|false)\]")


class KafkaIndex:
    """An index of Kafka's over a file, which it may write to.

    Attributes:
        java: Kafka's object, for single calls.
    """

    def __init__(self, kafka: Kafka, java: Any) -> None:
        self.java = java
        self._jvm = jvm_of(kafka)

    def call(self, name: str, *arguments: Any) -> KafkaError | None:
        """Call a method, and return its exception; None: it throws none."""
        try:
            getattr(self.java, name)(*arguments)
        except Py4JJavaError as thrown:
            return error_of(thrown)
        return None

    def close(self) -> None:
        """Close the file, which stays as it is."""
        getattr(self.java, "close" if self._class == "TransactionIndex" else self._jvm.close)()

    def lookup_many(self, targets: Targets) -> list[Pair]:
        return [_pair(match) for match in _PAIR.finditer(self._jvm.map(targets, self._method("lookup")))]

    def timed_lookups(self, targets: Targets) -> Callable[[], float]:
        """A function that looks up each target once, in one loop in the JVM, and returns the seconds of that.

        The loop is that of `stream(targets).mapToObj(index::lookup).mapToLong(found -> found.offset).sum()` in Java.
        """
        lookup, offset = self._jvm.lambdas(self.java)
        array = self._jvm.array(targets)

        def once() -> float:
            answers = self._jvm.arrays.stream(array).mapToObj(lookup).mapToLong(offset)
            start = time.perf_counter()
            answers.sum()
            return time.perf_counter() - start

        return once

    def fetch_upper_bounds(self, position: int, fetch_bytes: Targets) -> list[Pair | None]:
        """`fetchUpperBoundOffset` from one position: offset and position of each answer, or None."""
        method = self._method("fetchUpperBoundOffset", self._jvm.offset_position(0, position))
        text = self._jvm.map(fetch_bytes, method, int32=True)
        return [_pair(match) if match[1] is not None else None for match in _PAIR_OR_NONE.finditer(text)]

    def collect_aborted(self, fetch_offset: int, upper_bounds: Targets) -> list[AbortedInRange]:
        method = self._method("collectAbortedTxns", fetch_offset)
        return [
            AbortedInRange(
                tuple(AbortedTransaction(*map(int, fields)) for fields in _ABORTED.findall(match[1])),
                match[2] == "true",
            )
            for match in _RESULT.finditer(self._jvm.map(upper_bounds, method))
        ]

    def slots(self, targets: Targets, *, by_value: bool, upper: bool) -> list[int]:
        name = "smallestUpperBoundSlotFor" if upper else "largestLowerBoundSlotFor"
        kind = self._jvm.value if by_value else self._jvm.key
        method = self._method(name, self._mapped, owner="AbstractIndex")
        method = self._jvm.handles.insertArguments(method, 1, self._jvm.objects(kind))
        return [int(slot) for slot in self._jvm.map(targets, method)[1:-1].split(", ")]

    @functools.cached_property
    def _mapped(self) -> Any:
        return self._jvm.method("AbstractIndex", "mmap").invoke(self.java, self._jvm.objects())

    @functools.cached_property
    def _class(self) -> str:
        return str(self.java.getClass().getSimpleName())

    def _method(self, name: str, *first: Any, owner: str | None = None) -> Any:
        """The handle of a method of this object, with its first arguments."""
        bound = self._jvm.handle(owner or self._class, name).bindTo(self.java)
        return self._jvm.handles.insertArguments(bound, 0, self._jvm.objects(*first)) if first else bound


def offset_index(kafka: Kafka, path: Path, base_offset: int, max_bytes: int = -1) -> KafkaIndex:
    """Kafka's `OffsetIndex` over a file; with `max_bytes` the file need not exist."""
    jvm = jvm_of(kafka)
    return KafkaIndex(kafka, jvm.offset_index(jvm.file(str(path)), base_offset, max_bytes))


def time_index(kafka: Kafka, path: Path, base_offset: int, max_bytes: int = -1) -> KafkaIndex:
    jvm = jvm_of(kafka)
    return KafkaIndex(kafka, jvm.time_index(jvm.file(str(path)), base_offset, max_bytes))


def transaction_index(kafka: Kafka, path: Path, base_offset: int) -> KafkaIndex:
    jvm = jvm_of(kafka)
    return KafkaIndex(kafka, jvm.transaction_index(base_offset, jvm.file(str(path))))


def aborted_transaction(kafka: Kafka, *fields: int) -> Any:
    """An entry of a transaction index: producer id, first offset, last offset and last stable offset."""
    entry = kafka.find("org.apache.kafka.common.message.AbortedTxn")
    if kafka.release < KAFKA_4_4:
        return entry(*fields)
    producer_id, first_offset, last_offset, last_stable_offset = fields
    numbered = entry().setProducerId(producer_id).setFirstOffset(first_offset)
    return numbered.setLastOffset(last_offset).setLastStableOffset(last_stable_offset)


def _pair(match: re.Match[str]) -> Pair:
    return int(match[1]), int(match[2])
