"""Java objects that forward to another one except for single methods: Iceberg's interfaces, extended without Java.

A py4j callback can implement an interface as well, but then every method call goes through Python. Here the JVM
forwards by itself, and a method is replaced by a ``java.lang.invoke.MethodHandle``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import int_array, java_array, java_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECT, OBJECTS = "java.lang.Object", "java.lang.Object[]"
_CLASS, _METHOD = "java.lang.Class", "java.lang.reflect.Method"
_PRIMITIVES = {"boolean": "Boolean", "int": "Integer", "long": "Long", "void": "Void"}


def forwards(spark: SparkSession, java: Any) -> bool:
    """Check whether an object forwards to another one."""
    return bool(jvm(spark).java.lang.reflect.Proxy.isProxyClass(java.getClass()))


class Members:
    """Cached static methods of a Java class, which py4j would look up at each mention."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._owner, name)
        setattr(self, name, member)
        return member


class _Callback:
    """A ``java.util.function.Function`` that calls Python."""

    def __init__(self, called: Callable[[Any], Any]) -> None:
        self.apply = called

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["java.util.function.Function"]


class Handles:
    """Method handles of a session's JVM, and their composition.

    :ivar combine: ``java.lang.invoke.MethodHandles``, whose static methods compose them.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._invoke = spark, jvm(spark).java.lang.invoke
        self.combine, self._proxies = Members(self._invoke.MethodHandles), Members(self._invoke.MethodHandleProxies)
        # the public lookup refuses caller-sensitive methods, such as ``Method.invoke``
        self._lookup = self.combine.lookup()
        self._classes: dict[str, Any] = {}

    def cls(self, name: str) -> Any:
        if name not in self._classes:
            self._classes[name] = self._load(name)
        return self._classes[name]

    def _load(self, name: str) -> Any:
        if name == OBJECTS:
            return self.array(OBJECT).getClass()
        if name in _PRIMITIVES:
            return getattr(jvm(self._spark).java.lang, _PRIMITIVES[name]).TYPE
        return java_class(self._spark, name)

    def array(self, kind: str, *items: Any) -> Any:
        """Build a Java array; classes are given by name."""
        return java_array(self._spark, kind, map(self.cls, items) if kind == _CLASS else items)

    def type(self, result: str, *parameters: str) -> Any:
        return self._invoke.MethodType.methodType(self.cls(result), self.array(_CLASS, *parameters))

    def reflected(self, owner: str, name: str, *parameters: str) -> Any:
        return self.cls(owner).getMethod(name, self.array(_CLASS, *parameters))

    def method(self, owner: str, name: str, *parameters: str) -> Any:
        """Return a public method as a handle; an instance method takes its object as the first parameter."""
        return self._lookup.unreflect(self.reflected(owner, name, *parameters)).asFixedArity()

    def constructor(self, owner: str) -> Any:
        """Return the constructor of a class that has only one."""
        return self._lookup.unreflectConstructor(self.cls(owner).getConstructors()[0])

    def as_list(self, count: int) -> Any:
        """Return a handle that puts a number of arguments into a Java list."""
        return self.method("java.util.Arrays", "asList", OBJECTS).asCollector(self.cls(OBJECTS), count)

    def interface(self, name: str, handle: Any) -> Any:
        """Convert a handle to an object of a single-method interface."""
        return self._proxies.asInterfaceInstance(self.cls(name), handle)

    def after(self, first: Any, then: Any) -> Any:
        """Return a handle that calls the second with the result of the first."""
        return self.combine.filterReturnValue(first, then)

    def before(self, handle: Any, first: Any) -> Any:
        """Return the handle with another one applied to its first parameter."""
        return self.combine.filterArguments(handle, 0, self.array("java.lang.invoke.MethodHandle", first))

    def ignoring(self, handle: Any, kind: str, place: int = 0) -> Any:
        """Return the handle with a further parameter that it ignores."""
        return self.combine.dropArguments(handle, place, self.array(_CLASS, kind))

    def swapped(self, handle: Any, result: str, *parameters: str) -> Any:
        """Return the handle with its first two parameters swapped; ``parameters`` are all of them afterwards."""
        order = [1, 0, *range(2, len(parameters))]
        return self.combine.permuteArguments(handle, self.type(result, *parameters), int_array(self._spark, order))

    def spread(self, handle: Any, count: int) -> Any:
        """Return the handle with one ``Object`` and an ``Object[]`` of further arguments as parameters."""
        return handle.asType(handle.type().generic()).asSpreader(self.cls(OBJECTS), count)

    def function(self, called: Callable[[Any], Any]) -> Any:
        """Return a Python function of one object as a handle."""
        return self.method("java.util.function.Function", "apply", OBJECT).bindTo(_Callback(called))

    def raising(self) -> Any:
        """Return ``(Throwable)void``, which throws its argument unless it is null."""
        throwable = "java.lang.Throwable"
        nothing = self.combine.empty(self.type("void", throwable))
        is_null = self.method("java.util.Objects", "isNull", OBJECT).asType(self.type("boolean", throwable))
        throw = self.combine.throwException(self.cls("void"), self.cls(throwable))
        return self.combine.guardWithTest(is_null, nothing, throw)


class Forwarding:
    """Factory of objects that forward to another one.

    :param interfaces: names of their interfaces, which the other object also has.
    :param replaced: replacement by ``java.lang.reflect.Method``, called with the other object and an ``Object[]`` of
        arguments.
    """

    def __init__(
        self, spark: SparkSession, handles: Handles, interfaces: Sequence[str], replaced: Mapping[Any, Any]
    ) -> None:
        self._handles, view = handles, jvm(spark)
        self._interfaces = handles.array(_CLASS, *interfaces)
        self._loader = handles.cls(interfaces[0]).getClassLoader()
        self._proxy = Members(view.java.lang.reflect.Proxy)
        methods = view.java.util.HashMap()
        for method, handle in replaced.items():
            methods.put(method, handle)
        self._call = self._calling(methods)

    def __call__(self, target: Any) -> Any:
        """Return an object that forwards to this one, or this one if it already forwards."""
        if self._proxy.isProxyClass(target.getClass()):
            return target
        call = self._handles.combine.insertArguments(self._call, 0, self._handles.array(OBJECT, target))
        handler = self._handles.interface("java.lang.reflect.InvocationHandler", call)
        return self._proxy.newProxyInstance(self._loader, self._interfaces, handler)

    def _calling(self, replaced: Any) -> Any:
        """Return ``(Object target, Object itself, Method method, Object[] arguments)Object``."""
        handles, parameters = self._handles, (OBJECT, _METHOD, OBJECTS)
        forwarded = handles.swapped(handles.method(_METHOD, "invoke", OBJECT, OBJECTS), OBJECT, *parameters)
        replacement = handles.method("java.util.Map", "get", OBJECT).bindTo(replaced)
        replacement = replacement.asType(handles.type("java.lang.invoke.MethodHandle", _METHOD))
        invoker = handles.combine.exactInvoker(handles.type(OBJECT, OBJECT, OBJECTS))
        instead = handles.swapped(handles.before(invoker, replacement), OBJECT, *parameters)
        known = handles.method("java.util.Map", "containsKey", OBJECT).bindTo(replaced)
        known = handles.ignoring(known.asType(handles.type("boolean", _METHOD)), OBJECT)
        call = handles.combine.guardWithTest(known, instead, self._with_own_exceptions(forwarded))
        return handles.ignoring(call, OBJECT, 1)

    def _with_own_exceptions(self, reflected: Any) -> Any:
        """Return a call by reflection that throws the method's own exceptions."""
        handles, wrapper = self._handles, "java.lang.reflect.InvocationTargetException"
        throw = handles.combine.throwException(handles.cls(OBJECT), handles.cls("java.lang.Throwable"))
        rethrow = handles.before(throw, handles.method(wrapper, "getTargetException"))
        return handles.combine.catchException(reflected, handles.cls(wrapper), rethrow)
