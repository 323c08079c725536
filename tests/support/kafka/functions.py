"""Turns Java's methods into functions of the JDK's: one call through py4j maps them over all elements of a stream."""

from __future__ import annotations

from typing import Any, Final

from kidxlib.format.kafka_release import KafkaRelease
from tests.support.kafka.moved import MovedError, class_name

LOG_PACKAGE: Final = "org.apache.kafka.storage.internals.log"
#: More bytes than any record has.
_NO_LIMIT: Final = 2**31 - 1


class Functions:
    """Makes functions of method handles."""

    def __init__(self, jvm: Any, release: KafkaRelease) -> None:
        self._for_name, self._release = jvm.java.lang.Class.forName, release
        self._method_type = jvm.java.lang.invoke.MethodType.methodType
        self._handles = jvm.java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._as_instance = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance

    def find(self, name: str) -> Any:
        """A class by the name that it has in the promised Kafka; an array's is `[B`, or `[Ljava.lang.Object;`."""
        return self._for_name(class_name(name, self._release))

    def parameters(self, owner: str, name: str) -> int | None:
        """How many parameters a public method has, of several of the name the most; None: there is none. Patch releases
        get methods of later ones, so Kafka itself is asked, and not its version.
        """
        methods = self.find(owner).getMethods()
        return max((method.getParameterCount() for method in methods if method.getName() == name), default=None)

    def record_bytes_max(self, owner: str, name: str, parameters: int) -> tuple[int, ...]:
        """What a method takes behind so many parameters since topics have `max.decompressed.message.bytes`."""
        takes = self.parameters(owner, name)
        if takes is None:
            raise MovedError(f"{owner} has no {name}")
        return () if takes == parameters else (_NO_LIMIT,)

    def method(self, owner: str, name: str, returns: Any, *takes: Any) -> Any:
        return self._lookup.findVirtual(self.find(owner), name, self._method_type(returns, *takes))

    def static(self, owner: str, name: str, returns: Any, *takes: Any) -> Any:
        return self._lookup.findStatic(self.find(owner), name, self._method_type(returns, *takes))

    def bound(self, handle: Any, at: int, kind: Any, value: int) -> Any:
        """The handle with an argument of a primitive type set."""
        return self._handles.collectArguments(handle, at, self._handles.constant(kind, value))

    def array_length(self, array: Any) -> Any:
        """The handle that gives the length of an array of a class."""
        return self._handles.arrayLength(array)

    def array_stream(self, array: Any) -> Any:
        """The handle that makes a stream of an array of a class."""
        stream = self.find("java.util.stream.Stream")
        of_objects = self.static("java.util.Arrays", "stream", stream, self.find("[Ljava.lang.Object;"))
        return of_objects.asType(self._method_type(stream, array))

    def function(self, *handles: Any) -> Any:
        """A `Function` that calls one handle after the other, each with what the one before it returned."""
        first, *others = handles
        for handle in others:
            first = self._handles.filterReturnValue(first, handle)
        return self._as_instance(self.find("java.util.function.Function"), first)

    def consumer(self, handle: Any) -> Any:
        return self._as_instance(self.find("java.util.function.Consumer"), handle)

    def predicate(self, handle: Any) -> Any:
        return self._as_instance(self.find("java.util.function.Predicate"), handle)
