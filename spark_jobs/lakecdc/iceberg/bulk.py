"""Bulk calls of Java methods on thousands of objects, without a py4j call for each.

A py4j call takes a fifth of a millisecond on both sides. Here the JVM iterates over its collections itself:
``java.lang.invoke`` composes functions from existing methods, and the answers come back as one JSON text::
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import int_array, java_array, java_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: names of classes whose methods are composed
OBJECT, COLLECTION, PREDICATE = "java.lang.Object", "java.util.Collection", "java.util.function.Predicate"
FILE_SCAN_TASK, CONTENT_FILE = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
DELETE_FILE, GUAVA = "org.apache.iceberg.DeleteFile", "org.apache.iceberg.relocated.com.google.common"


@dataclass(frozen=True)
class JavaFunction:
    """A function of one object in the JVM.

    :param handle: ``MethodHandle`` that takes an ``Object`` and returns one.
    """

    handle: Any


class _Members:
    """Cached static methods of a Java class, which py4j would look up at each mention."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._owner, name)
        setattr(self, name, member)
        return member


#: a Java method to call with constants and function results; for an instance method the first argument is the instance
JavaMethod = Callable[..., JavaFunction]


class JavaCalls:
    """Factory of functions from Java methods, applied to all objects of a Java list."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._view = spark, jvm(spark)
        invoke, self._mapper = self._view.java.lang.invoke, self._view.org.apache.iceberg.util.JsonUtil.mapper()
        self._handles, self._proxies = _Members(invoke.MethodHandles), _Members(invoke.MethodHandleProxies)
        self._lookup, self._one = invoke.MethodHandles.publicLookup(), invoke.MethodType.genericMethodType(1)
        numbers = self._view.java.lang
        self._classes: dict[str, Any] = {"int": numbers.Integer.TYPE, "long": numbers.Long.TYPE}
        self._methods: dict[tuple[str, ...], JavaMethod] = {}
        self._object = self._class(OBJECT)
        #: the object itself
        self.it = JavaFunction(self._handles.identity(self._object))

    def method(self, owner: str, name: str, *types: str) -> JavaMethod:
        """Return a public method of a public class.

        :param owner: full name of the class.
        :param types: full names of its parameters' classes, ``int``, or ``long``.
        """
        key = (owner, name, *types)
        if key not in self._methods:
            reflected = self._class(owner).getMethod(name, self._array("java.lang.Class", map(self._class, types)))
            self._methods[key] = self._called(self._lookup.unreflect(reflected))
        return self._methods[key]

    def constructor(self, owner: str) -> JavaMethod:
        """Return the constructor of a class that has only one."""
        return self._called(self._lookup.unreflectConstructor(self._class(owner).getConstructors()[0]))

    def row(self, *functions: JavaFunction) -> JavaFunction:
        """Return a function that puts the results of several functions into a Java list."""
        array = self._array(OBJECT, ())
        types = self._array("java.lang.Class", [array.getClass()])
        as_list = self._lookup.unreflect(self._class("java.util.Arrays").getMethod("asList", types))
        return self._called(as_list.asCollector(array.getClass(), len(functions)))(*functions)

    def supplier(self, function: JavaFunction) -> Any:
        """Convert a function that ignores its object to a ``java.util.function.Supplier``."""
        alone = self._handles.insertArguments(function.handle, 0, self._array(OBJECT, [None]))
        return self.interface("java.util.function.Supplier", JavaFunction(alone))

    def interface(self, name: str, function: JavaFunction) -> Any:
        """Convert a function to an object of a single-method interface, for Java methods to call.

        :param name: full name of the interface, such as ``java.util.function.Predicate``.
        """
        return self._proxies.asInterfaceInstance(self._class(name), function.handle)

    def mapped(self, objects: Any, function: JavaFunction) -> Any:
        """Apply a function to each object, and return a Java ``ArrayList``.

        :param objects: Java collection.
        """
        results = self._view.java.util.ArrayList(objects)
        results.replaceAll(self.interface("java.util.function.UnaryOperator", function))
        return results

    def rows(self, objects: Any, *functions: JavaFunction) -> list[list[Any]]:
        """Apply functions to each object, and return text, numbers, booleans, null, enum names or lists.

        An answer of more than 8 KiB takes a moment (40 ms), because py4j does not disable TCP's delays: ask for many at
        once.

        :param objects: Java collection.
        """
        results = self.mapped(objects, self.row(*functions))
        return list(json.loads(self._mapper.writeValueAsString(results)))

    def sent(self, values: Iterable[str] | Iterable[int]) -> Any:
        """Send text or numbers as a Java ``ArrayList``; numbers that fit become ``Integer``."""
        return self._mapper.readValue(json.dumps(list(values)), self._class("java.util.ArrayList"))

    def chosen(self, objects: Any, places: Iterable[int]) -> Any:
        """Select the objects at some places of a Java list, as a Java ``ArrayList`` in that order."""
        return self.mapped(self.sent(places), self.method("java.util.List", "get", "int")(objects, self.it))

    def parts(self, closeable: Any, size: int) -> Iterator[Any]:
        """Yield mutable Java lists of a size from a ``CloseableIterable``, and close it in the end."""
        try:
            parts = self._view.org.apache.iceberg.relocated.com.google.common.collect.Iterables
            iterator = parts.partition(closeable, size).iterator()
            while iterator.hasNext():
                yield self._view.java.util.ArrayList(iterator.next())
        finally:
            closeable.close()

    def _called(self, target: Any) -> JavaMethod:
        plain = target.asType(target.type().generic())
        return lambda *arguments: JavaFunction(self._composed(plain, arguments))

    def _composed(self, target: Any, arguments: Sequence[Any]) -> Any:
        for place in reversed(range(len(arguments))):
            if not isinstance(arguments[place], JavaFunction):
                target = self._handles.insertArguments(target, place, self._array(OBJECT, [arguments[place]]))
        given = [argument.handle for argument in arguments if isinstance(argument, JavaFunction)]
        if not given:
            return self._handles.dropArguments(target, 0, self._array("java.lang.Class", [self._object]))
        if len(given) == 1:
            return self._handles.filterReturnValue(given[0], target)
        target = self._handles.filterArguments(target, 0, self._array("java.lang.invoke.MethodHandle", given))
        return self._handles.permuteArguments(target, self._one, int_array(self._spark, [0] * len(given)))

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            self._classes[name] = java_class(self._spark, name)
        return self._classes[name]

    def _array(self, kind: str, items: Iterable[Any]) -> Any:
        return java_array(self._spark, kind, items)


@lru_cache(maxsize=2)
def java_calls(spark: SparkSession) -> JavaCalls:
    """Return the session's :class:`JavaCalls`, created once."""
    return JavaCalls(spark)
