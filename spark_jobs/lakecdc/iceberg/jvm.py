"""Helpers around the py4j gateway."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: classes that PySpark looks up by simple or full name
_PYSPARK_NAMES = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.sql.functions",
    "org.apache.spark.api.python.PythonErrorUtils",
    "org.apache.spark.api.python.PythonRDD",
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.api.python.SimplePythonFunction",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)
#: classes that it looks up by full name only
_PYSPARK_WHOLE_NAMES = (
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.internal.SQLConf",
    "org.apache.spark.util.Utils",
)
#: packages whose classes PySpark and py4j look up part by part
_ROOTS = ("java", "org", "py4j")

_MAX_CAUSES = 20
#: Iceberg's exception if a catalog did not confirm or deny a commit
COMMIT_STATE_UNKNOWN = "CommitStateUnknownException"
#: its exceptions if another writer was faster
CONFLICTS = frozenset({"ValidationException", "CommitFailedException"})


class Names:
    """Java's names as attributes: packages without a look-up, classes looked up once by their full name.

    py4j asks the JVM at each part of a dotted name whether it is a class, and the JVM searches every jar: half a
    millisecond per part, two or three per name.
    """

    def __init__(self, view: Any, path: str = "") -> None:
        self._view, self._path = view, path

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        member = getattr(self._view, path) if name[0].isupper() else Names(self._view, path)
        setattr(self, name, member)
        return member


@lru_cache(maxsize=2)
def _names(view: Any) -> Names:
    return Names(view)


def jvm(spark: SparkSession) -> Any:
    """Return the classes of the session's JVM: ``jvm(spark).java.util.ArrayList``."""
    return _names(spark._jvm)


def spark_actions(spark: SparkSession) -> Any:
    """Return Iceberg's Java ``SparkActions`` of a session."""
    return jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)


def know_pyspark_names(spark: SparkSession) -> None:
    """Cache the classes that PySpark looks up by name, in its own view of the JVM.

    A batch looks up each of them hundreds of times, and every Spark error one of py4j's some fifteen times. The JVM
    searches every jar each time: a tenth of the CPU time of a small job.
    """
    view = spark._jvm
    for name in (*_PYSPARK_NAMES, *_PYSPARK_WHOLE_NAMES):
        setattr(view, name, getattr(view, name))
    for name in _PYSPARK_NAMES:
        setattr(view, name.rpartition(".")[2], getattr(view, name))
    for root in _ROOTS:
        setattr(view, root, getattr(_names(view), root))


def hush(spark: SparkSession, class_name: str) -> None:
    """Silence the warnings that a Java class logs."""
    log4j = jvm(spark).org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(class_name, log4j.Level.ERROR)


def gateway(spark: SparkSession) -> Any:
    """Return the session's py4j gateway."""
    return spark.sparkContext._gateway


def ensure_callbacks(spark: SparkSession) -> None:
    """Start the server through which Java calls Python, unless it is running."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(gateway(spark))


def table_cache(spark: SparkSession) -> Any:
    """Return Iceberg's ``SparkTableCache`` singleton, by reflection.

    The class has a static ``get()`` and an instance ``get(String)``, and py4j decides static or not by whichever the
    JVM lists first, so that the plain call fails in about one start of five.
    """
    cls = java_class(spark, "org.apache.iceberg.spark.SparkTableCache")
    no_types, no_values = java_array(spark, "java.lang.Class", ()), java_array(spark, "java.lang.Object", ())
    return cls.getMethod("get", no_types).invoke(None, no_values)


def java_class(spark: SparkSession, name: str) -> Any:
    """Load a Java ``Class`` object, including from the session's jars."""
    return jvm(spark).java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


def has_class(spark: SparkSession, name: str) -> bool:
    """Check whether the session's jars have a class."""
    from py4j.protocol import Py4JJavaError

    try:
        java_class(spark, name)
    except Py4JJavaError:
        return False
    return True


def int_array(spark: SparkSession, values: Iterable[int]) -> Any:
    """Build a Java ``int[]``."""
    return _array(spark, gateway(spark).jvm.int, list(values))


def long_array(spark: SparkSession, values: Iterable[int]) -> Any:
    """Build a Java ``long[]``."""
    return _array(spark, gateway(spark).jvm.long, list(values))


def java_array(spark: SparkSession, kind: str, items: Iterable[Any]) -> Any:
    """Build a Java array; ``kind`` is the full name of the elements' class."""
    return _array(spark, reduce(getattr, kind.split("."), jvm(spark)), list(items))


def _array(spark: SparkSession, kind: Any, items: Sequence[Any]) -> Any:
    array = gateway(spark).new_array(kind, len(items))
    for index, value in enumerate(items):
        array[index] = value
    return array


def java_list(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Build a ``java.util.ArrayList`` of ``items``; return a Java collection unchanged."""
    if hasattr(items, "isEmpty"):
        return items
    out = jvm(spark).java.util.ArrayList()
    for item in items:
        out.add(item)
    return out


def listed(collection: Any) -> list[Any]:
    """Return the elements of a Java ``Collection``.

    py4j's iterator ends with a Java exception, for which pyspark asks the JVM about a dozen classes: 25 ms.
    """
    return list(collection.toArray())


def mapping(java_map: Any) -> dict[str, Any]:
    """Convert a Java ``Map`` with text keys; values other than text and numbers stay Java objects."""
    return {str(entry.getKey()): entry.getValue() for entry in listed(java_map.entrySet())}


def text_mapping(spark: SparkSession, java_map: Any) -> dict[str, str]:
    """Convert a Java ``Map`` of texts in one call, where each of its entries would take four."""
    return dict(json.loads(jvm(spark).org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(java_map)))


def walk(iterable: Any) -> Iterator[Any]:
    """Yield the objects of a Java ``Iterable``."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def iterate(closeable: Any) -> Iterator[Any]:
    """Yield the objects of a Java ``CloseableIterable``, and close it."""
    with closing(closeable):
        yield from walk(closeable)


def java_causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception behind one of py4j's or Spark's and its causes, outermost first."""
    java = getattr(error, "java_exception", None)
    java = java if java is not None else getattr(error, "_origin", None)
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        yield java
        java = java.getCause()


def java_class_name(error: BaseException) -> str | None:
    """Return the simple class name of the Java exception behind an error; None if there is none."""
    java = getattr(error, "java_exception", None)
    return java.getClass().getSimpleName() if java is not None else None


def java_message(error: BaseException) -> str:
    """Return the first line of the Java exception's message, or of the Python error's."""
    java = getattr(error, "java_exception", None)
    text = str((java.getMessage() if java is not None else None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
