"""Turns Java's methods into functions of the JDK's: one call through py4j maps them over all elements of a stream."""

from __future__ import annotations

from typing import Any


class Functions:
    """Makes functions of method handles.

    Attributes:
        find: finds a class by its name; an array's is `[B`, or `[Ljava.lang.Object;`.
    """

    def __init__(self, jvm: Any) -> None:
        self.find = jvm.java.lang.Class.forName
        self._method_type = jvm.java.lang.invoke.MethodType.methodType
        self._handles = jvm.java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._as_instance = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance

    def method(self, owner: str, name: str, returns: Any, *takes: Any) -> Any:
        return self._lookup.findVirtual(self.find(owner), name, self._method_type(returns, *takes))

    def static(self, owner: str, name: str, returns: Any, *takes: Any) -> Any:
        return self._lookup.findStatic(self.find(owner), name, self._method_type(returns, *takes))

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
