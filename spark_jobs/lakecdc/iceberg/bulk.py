"""Bulk calls of Java methods on thousands of objects, without a py4j call for each.

A py4j call takes a fifth of a millisecond on both sides. Here the JVM iterates over its collections itself:
``java.lang.invoke`` composes functions from existing methods, and the answers come back as one JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.forwarding import OBJECT, Handles
from lakecdc.iceberg.jvm import int_array, jvm, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: number of objects to ask about at once
PART = 10_000
#: names of classes whose methods are composed
COLLECTION, PREDICATE = "java.util.Collection", "java.util.function.Predicate"
FILE_SCAN_TASK, CONTENT_FILE = "org.apache.iceberg.FileScanTask", "org.apache.iceberg.ContentFile"
DELETE_FILE, GUAVA = "org.apache.iceberg.DeleteFile", "org.apache.iceberg.relocated.com.google.common"


@dataclass(frozen=True)
class JavaFunction:
    """A function of one object in the JVM: a ``MethodHandle`` that takes an ``Object`` and returns one."""

    handle: Any


#: a Java method to call with constants and function results; for an instance method the first argument is the instance
JavaMethod = Callable[..., JavaFunction]


class JavaCalls:
    """Factory of functions from Java methods, applied to all objects of a Java list."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._view, self._handles = spark, jvm(spark), Handles(spark)
        self._mapper = self._view.org.apache.iceberg.util.JsonUtil.mapper()
        self._methods: dict[tuple[str, ...], JavaMethod] = {}
        self._combine, self._one = self._handles.combine, self._handles.type(OBJECT, OBJECT)
        #: the object itself
        self.it = JavaFunction(self._combine.identity(self._handles.cls(OBJECT)))
        #: of a scan task: its data file, and the list of its delete files
        self.file, self.deletes = (self.method(FILE_SCAN_TASK, name)(self.it) for name in ("file", "deletes"))

    def method(self, owner: str, name: str, *types: str) -> JavaMethod:
        """Return a public method by full names of its class and parameters' classes, or ``int`` and ``long``."""
        key = (owner, name, *types)
        if key not in self._methods:
            self._methods[key] = self._called(self._handles.method(owner, name, *types))
        return self._methods[key]

    def constructor(self, owner: str) -> JavaMethod:
        """Return the constructor of a class that has only one."""
        return self._called(self._handles.constructor(owner))

    def row(self, *functions: JavaFunction) -> JavaFunction:
        """Return a function that puts the results of several functions into a Java list."""
        return self._called(self._handles.as_list(len(functions)))(*functions)

    def content(self, file: JavaFunction, *names: str) -> list[JavaFunction]:
        """Return functions for properties of a content file, such as ``location``."""
        return [self.method(CONTENT_FILE, name)(file) for name in names]

    def each_delete(self, *functions: JavaFunction) -> JavaFunction:
        """Return a function of a scan task that applies functions to each of its delete files."""
        function = f"{GUAVA}.base.Function"
        transform = self.method(f"{GUAVA}.collect.Lists", "transform", "java.util.List", function)
        return transform(self.deletes, self.interface(function, self.row(*functions)))

    def supplier(self, function: JavaFunction) -> Any:
        """Convert a function that ignores its object to a ``java.util.function.Supplier``."""
        alone = self._combine.insertArguments(function.handle, 0, self._handles.array(OBJECT, None))
        return self.interface("java.util.function.Supplier", JavaFunction(alone))

    def interface(self, name: str, function: JavaFunction) -> Any:
        """Convert a function to an object of a single-method interface, such as ``java.util.function.Predicate``."""
        return self._handles.interface(name, function.handle)

    def mapped(self, objects: Any, function: JavaFunction) -> Any:
        """Apply a function to each object of a Java collection, and return a Java ``ArrayList``."""
        results = self._view.java.util.ArrayList(objects)
        results.replaceAll(self.interface("java.util.function.UnaryOperator", function))
        return results

    def rows(self, objects: Any, *functions: JavaFunction) -> list[list[Any]]:
        """Apply functions to each object of a Java collection; return JSON values.

        An answer of more than 8 KiB takes 40 ms, because py4j does not disable TCP's delays: ask for many at once.
        """
        results = self.mapped(objects, self.row(*functions))
        return list(json.loads(self._mapper.writeValueAsString(results)))

    def sent(self, values: Iterable[str] | Iterable[int]) -> Any:
        """Send text or numbers as a Java ``ArrayList``; numbers that fit become ``Integer``."""
        return self._mapper.readValue(json.dumps(list(values)), self._handles.cls("java.util.ArrayList"))

    def chosen(self, objects: Any, places: Iterable[int]) -> Any:
        """Select the objects at some places of a Java list, as a Java ``ArrayList`` in that order."""
        return self.mapped(self.sent(places), self.method("java.util.List", "get", "int")(objects, self.it))

    def parts(self, closeable: Any, size: int = PART) -> Iterator[Any]:
        """Yield mutable Java lists of a size from a ``CloseableIterable``, and close it at the end."""
        iterables = self._view.org.apache.iceberg.relocated.com.google.common.collect.Iterables
        with closing(closeable):
            for part in walk(iterables.partition(closeable, size)):
                yield self._view.java.util.ArrayList(part)

    def _called(self, target: Any) -> JavaMethod:
        plain = target.asType(target.type().generic())
        return lambda *arguments: JavaFunction(self._composed(plain, arguments))

    def _composed(self, target: Any, arguments: Sequence[Any]) -> Any:
        combine, array = self._combine, self._handles.array
        for place in reversed(range(len(arguments))):
            if not isinstance(arguments[place], JavaFunction):
                target = combine.insertArguments(target, place, array(OBJECT, arguments[place]))
        given = [argument.handle for argument in arguments if isinstance(argument, JavaFunction)]
        if not given:
            return self._handles.ignoring(target, OBJECT)
        if len(given) == 1:
            return self._handles.after(given[0], target)
        target = combine.filterArguments(target, 0, array("java.lang.invoke.MethodHandle", *given))
        return combine.permuteArguments(target, self._one, int_array(self._spark, [0] * len(given)))


@lru_cache(maxsize=2)
def java_calls(spark: SparkSession) -> JavaCalls:
    """Return the session's :class:`JavaCalls`, created once."""
    return JavaCalls(spark)
