"""Methods of Java objects asked of thousands of objects at once, without a py4j call for each of them.

A py4j call takes a fifth of a millisecond on both sides. Here the JVM goes through its collections by itself:
``java.lang.invoke`` makes functions out of methods that are there, and the answers come over as one JSON text::

    calls = java_calls(spark)
    file = calls.method("org.apache.iceberg.FileScanTask", "file")(calls.it)
    records = calls.method("org.apache.iceberg.ContentFile", "recordCount")(file)
    calls.rows(tasks, records)                                         # [[20], [7], …]
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

#: names of classes that functions are made of
OBJECT, COLLECTION, PREDICATE = "java.lang.Object", "java.util.Collection", "java.util.function.Predicate"
FILE_SCAN_TASK, CONTENT_FILE = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
DELETE_FILE, GUAVA = "org.apache.iceberg.DeleteFile", "org.apache.iceberg.relocated.com.google.common"


@dataclass(frozen=True)
class JavaFunction:
    """What the JVM makes of one object.

    :param handle: ``MethodHandle`` that takes an ``Object`` and returns one.
    """

    handle: Any


class _Members:
    """Static methods of a Java class; py4j asks the JVM for one at each mention."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._owner, name)
        setattr(self, name, found)
        return found


#: a Java method, to be called with constants and with what functions make of the object at hand; if it is not static,
#: the first of them is the object it belongs to
JavaMethod = Callable[..., JavaFunction]


class JavaCalls:
    """Makes functions of Java's methods, and applies them to all objects of a Java list."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._view = spark, jvm(spark)
        invoke, self._mapper = self._view.java.lang.invoke, self._view.org.apache.iceberg.util.JsonUtil.mapper()
        self._handles, self._proxies = _Members(invoke.MethodHandles), _Members(invoke.MethodHandleProxies)
        self._lookup, self._one = invoke.MethodHandles.publicLookup(), invoke.MethodType.genericMethodType(1)
        numbers = self._view.java.lang
        self._classes: dict[str, Any] = {"int": numbers.Integer.TYPE, "long": numbers.Long.TYPE}
        self._found: dict[tuple[str, ...], JavaMethod] = {}
        self._object = self._class(OBJECT)
        #: the object itself
        self.it = JavaFunction(self._handles.identity(self._object))

    def method(self, owner: str, name: str, *types: str) -> JavaMethod:
        """A public method of a public class.

        :param owner: whole name of the class.
        :param types: whole names of its parameters' classes, ``int``, or ``long``.
        """
        key = (owner, name, *types)
        if key not in self._found:
            found = self._class(owner).getMethod(name, self._array("java.lang.Class", map(self._class, types)))
            self._found[key] = self._called(self._lookup.unreflect(found))
        return self._found[key]

    def constructor(self, owner: str) -> JavaMethod:
        """The constructor of a class that has only one."""
        return self._called(self._lookup.unreflectConstructor(self._class(owner).getConstructors()[0]))

    def row(self, *functions: JavaFunction) -> JavaFunction:
        """A Java list of what each function makes of an object."""
        array = self._array(OBJECT, ())
        types = self._array("java.lang.Class", [array.getClass()])
        as_list = self._lookup.unreflect(self._class("java.util.Arrays").getMethod("asList", types))
        return self._called(as_list.asCollector(array.getClass(), len(functions)))(*functions)

    def supplier(self, function: JavaFunction) -> Any:
        """A function that does not look at its object as a ``java.util.function.Supplier``."""
        alone = self._handles.insertArguments(function.handle, 0, self._array(OBJECT, [None]))
        return self.interface("java.util.function.Supplier", JavaFunction(alone))

    def interface(self, name: str, function: JavaFunction) -> Any:
        """The function as an object of an interface with one method, for Java's own methods to call.

        :param name: whole name of the interface, such as ``java.util.function.Predicate``.
        """
        return self._proxies.asInterfaceInstance(self._class(name), function.handle)

    def mapped(self, objects: Any, function: JavaFunction) -> Any:
        """A Java ``ArrayList`` of what a function makes of each object.

        :param objects: Java collection.
        """
        found = self._view.java.util.ArrayList(objects)
        found.replaceAll(self.interface("java.util.function.UnaryOperator", function))
        return found

    def rows(self, objects: Any, *functions: JavaFunction) -> list[list[Any]]:
        """What each of the functions makes of each object: text, numbers, truth values, null, names of enums, lists.

        An answer of more than 8 KiB takes a moment (40 ms), because py4j leaves TCP's delays on: ask for many at once.

        :param objects: Java collection.
        """
        found = self.mapped(objects, self.row(*functions))
        return list(json.loads(self._mapper.writeValueAsString(found)))

    def sent(self, values: Iterable[str] | Iterable[int]) -> Any:
        """A Java ``ArrayList`` of text or of numbers; a number that an ``Integer`` holds is one."""
        return self._mapper.readValue(json.dumps(list(values)), self._class("java.util.ArrayList"))

    def chosen(self, objects: Any, places: Iterable[int]) -> Any:
        """A Java ``ArrayList`` of the objects at some places of a Java list, in that order."""
        return self.mapped(self.sent(places), self.method("java.util.List", "get", "int")(objects, self.it))

    def parts(self, closeable: Any, size: int) -> Iterator[Any]:
        """Java lists, free to be changed, of so many elements of a ``CloseableIterable``; closes it in the end."""
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
    """The session's functions of Java's methods, which are looked up once."""
    return JavaCalls(spark)
