"""Calls a Java method thousands of times with one call through py4j, which takes a quarter of a millisecond: the
arguments go into the JVM as one array, the method becomes a function of the JDK's, and a stream maps the array by it.
Ten thousand lookups take about 0.1 s.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.index.transaction import AbortedInRange, AbortedTransaction
from kidxlib.log.segment import TimestampAndOffset
from tests.support.broker_answers import Fetched, LogOffset
from tests.support.kafka.classes import Kafka, KafkaError, error_of
from tests.support.kafka.functions import LOG_PACKAGE
from tests.support.kafka.moved import MovedError

Targets: TypeAlias = NDArray[np.int64]

OBJECT: Final = "java.lang.Object"


class Jvm:
    """Java's classes. Each dot is a call, so they are looked up once."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        jvm = kafka.gateway.jvm
        log = jvm.org.apache.kafka.storage.internals.log
        self.key, self.value = log.IndexSearchType.KEY, log.IndexSearchType.VALUE
        self.offset_position, self.offset_index, self.time_index = log.OffsetPosition, log.OffsetIndex, log.TimeIndex
        self.transaction_index = log.TransactionIndex
        # An index that is closed is not trimmed since 4.4.
        is_trimmed = kafka.functions.parameters(f"{LOG_PACKAGE}.AbstractIndex", "closeHandler") is not None
        self.close = "closeHandler" if is_trimmed else "close"
        self.file, self.handles = jvm.java.io.File, jvm.java.lang.invoke.MethodHandles
        self._long, self._int, self._object, self._class = jvm.long, jvm.int, jvm.java.lang.Object, jvm.java.lang.Class
        self._buffer, self.arrays = jvm.java.nio.ByteBuffer, jvm.java.util.Arrays
        self._method_type = jvm.java.lang.invoke.MethodType
        self._factory = jvm.java.lang.invoke.LambdaMetafactory
        self._proxies = jvm.java.lang.invoke.MethodHandleProxies
        self._functions = [self._class.forName(f"java.util.function.{kind}Function") for kind in ("Long", "Int")]
        self._lookup = self.handles.publicLookup()
        self._methods: dict[tuple[str, str], Any] = {}
        self._handles: dict[tuple[str, str], Any] = {}
        self._sent: tuple[bytes, Any] = (b"", None)  # the array that was asked for last

    def method(self, owner: str, name: str) -> Any:
        """A method, public or not, of one of Kafka's log classes: the only one of the name that returns a value. Java
        lists the methods of a class in no order.
        """
        if (owner, name) not in self._methods:
            methods = self._class.forName(f"{LOG_PACKAGE}.{owner}").getDeclaredMethods()
            named = [
                method
                for method in methods
                if method.getName() == name and method.getReturnType().getName() != "void" and not method.isBridge()
            ]
            if len(named) != 1:
                raise MovedError(f"{owner}.{name}: {len(named)} methods, expected one")
            [only] = named
            only.setAccessible(True)
            self._methods[owner, name] = only
        return self._methods[owner, name]

    def handle(self, owner: str, name: str) -> Any:
        if (owner, name) not in self._handles:
            self._handles[owner, name] = self._lookup.unreflect(self.method(owner, name))
        return self._handles[owner, name]

    def objects(self, *objects: Any) -> Any:
        return self._kafka.array(self._object, *objects)

    def map(self, targets: Targets, method: Any, int32: bool = False) -> str:
        """The method's results for all targets, as the text of one list."""
        return str(self.list(targets, method, int32).toString())

    def list(self, targets: Targets, method: Any, int32: bool = False) -> Any:
        """The method's results for all targets, as Java's list."""
        function = self._proxies.asInterfaceInstance(self._functions[int32], method)
        return self.arrays.stream(self.array(targets, int32)).mapToObj(function).toList()

    def array(self, targets: Targets, int32: bool = False) -> Any:
        """The targets as an array in the JVM. The same targets are sent once."""
        content = targets.astype(">i4" if int32 else ">i8").tobytes()
        if self._sent[0] != content:
            array = self._kafka.gateway.new_array(self._int if int32 else self._long, len(targets))
            buffer = self._buffer.wrap(content)
            (buffer.asIntBuffer() if int32 else buffer.asLongBuffer()).get(array)
            self._sent = content, array
        return self._sent[1]

    def lambdas(self, index: Any) -> tuple[Any, Any]:
        """`index::lookup` and its answer's `offset`, as Java's compiler would make them."""
        kind = index.getClass()
        kind_lookup = self.method(str(kind.getSimpleName()), "lookup")
        answer, inside = kind_lookup.getReturnType(), self.handles.privateLookupIn(kind, self.handles.lookup())
        answer_offset = next(method for method in answer.getMethods() if method.getName() == "offset")
        takes_long, any_object = self._class.forName("java.util.function.LongFunction"), self._class.forName(OBJECT)
        gives_long = self._class.forName("java.util.function.ToLongFunction")
        shape, long = self._method_type.methodType, kind_lookup.getParameterTypes()[0]
        lookup = self._factory.metafactory(
            inside,
            "apply",
            shape(takes_long, kind),
            shape(any_object, long),
            inside.unreflect(kind_lookup),
            shape(answer, long),
        )
        offset = self._factory.metafactory(
            inside,
            "applyAsLong",
            shape(gives_long),
            shape(long, any_object),
            inside.unreflect(answer_offset),
            shape(long, answer),
        )
        return (
            lookup.getTarget().bindTo(index).invokeWithArguments(self.objects()),
            offset.getTarget().invokeWithArguments(self.objects()),
        )


@functools.cache
def jvm_of(kafka: Kafka) -> Jvm:
    return Jvm(kafka)


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
