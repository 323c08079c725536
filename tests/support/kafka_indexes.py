"""Kafka's own index classes, asked thousands of things in one call.

A call through py4j takes a quarter of a millisecond. So targets go into the JVM as one array, the method becomes a
function of the JDK's, and a stream maps the array by it: ten thousand lookups take about 0.1 s.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from py4j.protocol import Py4JJavaError

from kidxlib.transaction_index import AbortedInRange, AbortedTransaction
from tests.support.kafka import Kafka, KafkaError, error_of

Targets: TypeAlias = NDArray[np.int64]
Pair: TypeAlias = tuple[int, int]

_OBJECT: Final = "java.lang.Object"
_LOG_PACKAGE: Final = "org.apache.kafka.storage.internals.log"
_PAIR: Final = re.compile(r"\[(?:offset|timestamp)=(-?\d+), (?:position|offset)=(-?\d+)\]")
_PAIR_OR_NONE: Final = re.compile(rf"Optional\.empty|Optional\[\w+{_PAIR.pattern}\]")
_ABORTED: Final = re.compile(
    r"\(version=-?\d+, producerId=(-?\d+), firstOffset=(-?\d+), lastOffset=(-?\d+), lastStableOffset=(-?\d+)\)"
)
_RESULT: Final = re.compile(r"TxnIndexSearchResult\[abortedTransactions=\[(.*?)\], isComplete=(true|false)\]")


class KafkaIndex:
    """An index of Kafka's over a file, which it may write to.

    Attributes:
        java: the object itself, for single calls.
    """

    def __init__(self, kafka: Kafka, java: Any) -> None:
        self.java = java
        self._jvm = jvm_of(kafka)

    def call(self, name: str, *arguments: Any) -> KafkaError | None:
        """Call a method; what it throws, None where it returns."""
        try:
            getattr(self.java, name)(*arguments)
        except Py4JJavaError as thrown:
            return error_of(thrown)
        return None

    def lookup_many(self, targets: Targets) -> list[Pair]:
        """`lookup`: the two fields of each answer."""
        return [_pair(found) for found in _PAIR.finditer(self._jvm.map(targets, self._method("lookup")))]

    def timed_lookups(self, targets: Targets) -> Callable[[], float]:
        """A function that looks up each target once, in one loop in the JVM, and says how many seconds that took.

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
        """`fetchUpperBoundOffset` from one position: offset and position of each answer, None for none."""
        method = self._method("fetchUpperBoundOffset", self._jvm.offset_position(0, position))
        text = self._jvm.map(fetch_bytes, method, int32=True)
        return [_pair(found) if found[1] is not None else None for found in _PAIR_OR_NONE.finditer(text)]

    def collect_aborted(self, fetch_offset: int, upper_bounds: Targets) -> list[AbortedInRange]:
        """`collectAbortedTxns` from one offset."""
        method = self._method("collectAbortedTxns", fetch_offset)
        return [
            AbortedInRange(
                tuple(AbortedTransaction(*map(int, fields)) for fields in _ABORTED.findall(found[1])),
                found[2] == "true",
            )
            for found in _RESULT.finditer(self._jvm.map(upper_bounds, method))
        ]

    def slots(self, targets: Targets, *, by_value: bool, upper: bool) -> list[int]:
        """`largestLowerBoundSlotFor` or `smallestUpperBoundSlotFor`."""
        name = "smallestUpperBoundSlotFor" if upper else "largestLowerBoundSlotFor"
        kind = self._jvm.value if by_value else self._jvm.key
        method = self._method(name, self._mapped, owner="AbstractIndex")
        method = self._jvm.handles.insertArguments(method, 1, self._jvm.objects(kind))
        return [int(slot) for slot in self._jvm.map(targets, method)[1:-1].split(", ")]

    @functools.cached_property
    def _mapped(self) -> Any:
        """The buffer over the file."""
        return self._jvm.method("AbstractIndex", "mmap").invoke(self.java, self._jvm.objects())

    @functools.cached_property
    def _class(self) -> str:
        return str(self.java.getClass().getSimpleName())

    def _method(self, name: str, *first: Any, owner: str | None = None) -> Any:
        """A method of this object as a method handle, its first arguments given."""
        bound = self._jvm.handle(owner or self._class, name).bindTo(self.java)
        return self._jvm.handles.insertArguments(bound, 0, self._jvm.objects(*first)) if first else bound


class _Jvm:
    """Java's classes, each looked up once: a dot is a call."""

    def __init__(self, kafka: Kafka) -> None:
        self._gateway = kafka.gateway
        jvm = kafka.gateway.jvm
        log = jvm.org.apache.kafka.storage.internals.log
        self.key, self.value = log.IndexSearchType.KEY, log.IndexSearchType.VALUE
        self.offset_position, self.offset_index, self.time_index = log.OffsetPosition, log.OffsetIndex, log.TimeIndex
        self.transaction_index = log.TransactionIndex
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
        """A method, also one that is not public, of one of Kafka's log classes: the only one of the name that returns
        something. Java lists the methods of a class in no order.
        """
        if (owner, name) not in self._methods:
            methods = self._class.forName(f"{_LOG_PACKAGE}.{owner}").getDeclaredMethods()
            (found,) = (
                method
                for method in methods
                if method.getName() == name and method.getReturnType().getName() != "void" and not method.isBridge()
            )
            found.setAccessible(True)
            self._methods[owner, name] = found
        return self._methods[owner, name]

    def handle(self, owner: str, name: str) -> Any:
        """The same as a method handle."""
        if (owner, name) not in self._handles:
            self._handles[owner, name] = self._lookup.unreflect(self.method(owner, name))
        return self._handles[owner, name]

    def objects(self, *objects: Any) -> Any:
        array = self._gateway.new_array(self._object, len(objects))
        for number, element in enumerate(objects):
            array[number] = element
        return array

    def map(self, targets: Targets, method: Any, int32: bool = False) -> str:
        """What the method makes of each target, as the text of one list."""
        return str(self.list(targets, method, int32).toString())

    def list(self, targets: Targets, method: Any, int32: bool = False) -> Any:
        """The same as Java's own list."""
        function = self._proxies.asInterfaceInstance(self._functions[int32], method)
        return self.arrays.stream(self.array(targets, int32)).mapToObj(function).toList()

    def array(self, targets: Targets, int32: bool = False) -> Any:
        """The targets as an array in the JVM. They are sent once, if they are asked again and again."""
        content = targets.astype(">i4" if int32 else ">i8").tobytes()
        if self._sent[0] != content:
            array = self._gateway.new_array(self._int if int32 else self._long, len(targets))
            buffer = self._buffer.wrap(content)
            (buffer.asIntBuffer() if int32 else buffer.asLongBuffer()).get(array)
            self._sent = content, array
        return self._sent[1]

    def lambdas(self, index: Any) -> tuple[Any, Any]:
        """`index::lookup`, and `offset` of what it answers, as Java's compiler would have made them."""
        kind = index.getClass()
        kind_lookup = self.method(str(kind.getSimpleName()), "lookup")
        answer, inside = kind_lookup.getReturnType(), self.handles.privateLookupIn(kind, self.handles.lookup())
        answer_offset = next(method for method in answer.getMethods() if method.getName() == "offset")
        takes_long, any_object = self._class.forName("java.util.function.LongFunction"), self._class.forName(_OBJECT)
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
def jvm_of(kafka: Kafka) -> _Jvm:
    """For many calls of one method at a time."""
    return _Jvm(kafka)


def offset_index(kafka: Kafka, path: Path, base_offset: int, max_bytes: int = -1) -> KafkaIndex:
    """Kafka's `OffsetIndex` over a file; with `max_bytes` the file need not exist.

    Raises:
        Py4JJavaError: what Kafka throws.
    """
    jvm = jvm_of(kafka)
    return KafkaIndex(kafka, jvm.offset_index(jvm.file(str(path)), base_offset, max_bytes))


def time_index(kafka: Kafka, path: Path, base_offset: int, max_bytes: int = -1) -> KafkaIndex:
    """Kafka's `TimeIndex`, likewise."""
    jvm = jvm_of(kafka)
    return KafkaIndex(kafka, jvm.time_index(jvm.file(str(path)), base_offset, max_bytes))


def transaction_index(kafka: Kafka, path: Path, base_offset: int) -> KafkaIndex:
    """Kafka's `TransactionIndex`, likewise."""
    jvm = jvm_of(kafka)
    return KafkaIndex(kafka, jvm.transaction_index(base_offset, jvm.file(str(path))))


def _pair(found: re.Match[str]) -> Pair:
    return int(found[1]), int(found[2])
