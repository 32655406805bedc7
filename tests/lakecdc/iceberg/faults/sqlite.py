"""A JDBC driver for SQLite that loses chosen requests or answers, made of Java's interfaces without Java code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError

from lakecdc.iceberg.jvm import ensure_callbacks, gateway, java_class, jvm
from tests.lakecdc.iceberg.faults.strikes import Strikes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = ("UPDATE iceberg_tables", "INSERT INTO iceberg_tables")


class _Forwarding:
    """A Java object that delegates to another one."""

    def __init__(self, java: Any, view: Any, strikes: Strikes) -> None:
        self._java, self._view, self._strikes = java, view, strikes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._java, name)

    def _lost(self) -> Py4JJavaError:
        text = "An I/O error occurred while sending to the backend."
        return Py4JJavaError("lost", self._view.java.sql.SQLException(text, "08006"))


class _Update(_Forwarding):
    def executeUpdate(self) -> Any:
        fault = self._strikes.next()
        if fault is None or fault.lost == "answer":
            changed = self._java.executeUpdate()
        if fault is not None:
            raise self._lost()
        return changed

    class Java:
        implements = ["java.sql.PreparedStatement"]


class _Connection(_Forwarding):
    def prepareStatement(self, sql: str) -> Any:
        if self._strikes.down:
            raise self._lost()
        statement = self._java.prepareStatement(sql)
        return _Update(statement, self._view, self._strikes) if sql.startswith(COMMITS) else statement

    class Java:
        implements = ["java.sql.Connection"]


class _Driver(_Forwarding):
    def acceptsURL(self, url: str) -> bool:
        return url.startswith(f"jdbc:lossy://{id(self._strikes)}/")

    def connect(self, url: str, properties: Any) -> Any:
        if not self.acceptsURL(url):
            return None
        path = urlsplit(url.removeprefix("jdbc:")).path
        return _Connection(self._java.connect(f"jdbc:sqlite:{path}", properties), self._view, self._strikes)

    class Java:
        implements = ["java.sql.Driver"]


@contextmanager
def lossy_driver(spark: SparkSession) -> Iterator[tuple[str, Strikes]]:
    """Register a driver, and yield the prefix of its URLs after ``jdbc:``, to be followed by a path."""
    ensure_callbacks(spark)
    parameters, strikes = gateway(spark).callback_server_parameters, Strikes()
    before, parameters.propagate_java_exceptions = parameters.propagate_java_exceptions, True
    view = jvm(spark)
    # py4j creates the driver's class in the thread's loader, and Java hides it from other loaders
    thread = view.java.lang.Thread.currentThread()
    own = thread.getContextClassLoader()
    thread.setContextClassLoader(java_class(spark, "org.apache.iceberg.jdbc.JdbcCatalog").getClassLoader())
    view.java.sql.DriverManager.registerDriver(_Driver(view.org.sqlite.JDBC(), view, strikes))
    thread.setContextClassLoader(own)
    try:
        # drivers of earlier calls stay registered
        yield f"lossy://{id(strikes)}", strikes
    finally:
        parameters.propagate_java_exceptions = before
