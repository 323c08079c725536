"""Calls a Java method thousands of times with one call through py4j, which takes a quarter of a millisecond: the
arguments go into the JVM as one array, the method becomes a function of the JDK's, and a stream maps the array by it.
Ten thousand lookups take about 0.1 s.
"""

from __future__ import annotations

import functools
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.support.kafka.classes import Kafka
from tests.support.kafka.functions import LOG_PACKAGE
from tests.support.kafka.moved import MovedError

Targets: TypeAlias = NDArray[np.int64]

OBJECT: Final = "java.lang.Object"


class Jvm:
    """Java's classes. Each dot is a call, so they are looked up once."""

    def __init__(self, kafka: Kafka) -> None:
        self._gateway = kafka.gateway
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
        array = self._gateway.new_array(self._object, len(objects))
        for number, element in enumerate(objects):
            array[number] = element
        return array

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
            array = self._gateway.new_array(self._int if int32 else self._long, len(targets))
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
