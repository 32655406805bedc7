"""Commits whose answer was lost: the table itself tells whether they arrived, before anybody calls it a conflict.

Iceberg believes the first error it gets, and some are wrong. The connection pool of a JDBC catalog repeats an UPDATE
that its connection was lost over, and REST clients and the gateways before a catalog repeat a POST. If the first one
had arrived, the second one finds the table changed: by another writer, as it seems. Iceberg commits once more then, its
validation stumbles over the commit's own snapshot, and Iceberg deletes the manifests of what is the table's head by
now.

So the tables of a session, for Spark's statements as for commits of ours, get operations (``TableOperations``) that
look at the table after each error of a commit. One that arrived has succeeded. One that is not to be seen is a conflict
only where Iceberg can be sure of that; after anything else its state is unknown, and no file is deleted.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from lakecdc.contract.secrets import mask
from lakecdc.iceberg.forwarding import OBJECT, OBJECTS, Forwarding, Handles, forwards
from lakecdc.iceberg.jvm import COMMIT_STATE_UNKNOWN, ensure_callbacks, java_class, java_message, jvm, listed
from lakecdc.metadata.effect import is_in_effect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: looks at the table after an error that says nothing about the commit, and seconds between them: the catalog may be
#: away for a moment, or still be at it
LOOKS, WAIT_SECONDS = 4, 0.5
_CATALOGS = "org.apache.iceberg.catalog."
_OPERATIONS, _METADATA = "org.apache.iceberg.TableOperations", "org.apache.iceberg.TableMetadata"


def look_after_errors(spark: SparkSession, catalog: str) -> None:
    """Let the tables that a session loads from a catalog tell whether commits with an error arrived.

    :param catalog: its name; Spark has opened it.
    """
    plugin = spark._jsparkSession.sessionState().catalogManager().catalog(catalog)
    opened = plugin.icebergCatalog()
    if forwards(spark, opened):
        return
    ensure_callbacks(spark)
    handles, field = Handles(spark), plugin.getClass().getDeclaredField("icebergCatalog")
    field.setAccessible(True)
    kinds = ("Catalog", "SupportsNamespaces", "ViewCatalog")
    interfaces = [_CATALOGS + kind for kind in kinds if handles.cls(_CATALOGS + kind).isInstance(opened)]
    method = (_CATALOGS + "Catalog", "loadTable", _CATALOGS + "TableIdentifier")
    load = handles.method(*method).asType(handles.type(OBJECT, method[0], method[2]))
    load = handles.spread(handles.after(load, handles.function(_Equipped(spark, handles))), 1)
    field.set(plugin, Forwarding(spark, handles, interfaces, {handles.reflected(*method): load})(opened))


class _Equipped:
    """A Java function that gives a loaded table operations that look after errors."""

    def __init__(self, spark: SparkSession, handles: Handles) -> None:
        self._base_table = handles.cls("org.apache.iceberg.BaseTable")
        self._field = self._base_table.getDeclaredField("ops")
        self._field.setAccessible(True)
        method = (_OPERATIONS, "commit", _METADATA, _METADATA)
        errors = handles.cls("java.lang.RuntimeException")
        commit = handles.combine.catchException(handles.method(*method), errors, self._judged(spark, handles))
        self._operations = Forwarding(
            spark, handles, [_OPERATIONS], {handles.reflected(*method): handles.spread(commit, 2)}
        )

    def apply(self, table: Any) -> Any:
        """Called by Java with each table that it has loaded; metadata tables commit nothing."""
        if self._base_table.isInstance(table):
            self._field.set(table, self._operations(table.operations()))
        return table

    def _judged(self, spark: SparkSession, handles: Handles) -> Any:
        """``(RuntimeException, TableOperations, TableMetadata, TableMetadata)void``"""
        parameters = ("java.lang.RuntimeException", _OPERATIONS, _METADATA, _METADATA)
        as_list = handles.method("java.util.Arrays", "asList", OBJECTS)
        as_list = as_list.asCollector(handles.cls(OBJECTS), 4)
        verdict = handles.after(as_list.asType(as_list.type().generic()), handles.function(_Verdict(spark)))
        return handles.after(verdict.asType(handles.type("java.lang.Throwable", *parameters)), handles.raising())

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["java.util.function.Function"]


class _Verdict:
    """A Java function that tells what an error of a commit comes to."""

    def __init__(self, spark: SparkSession) -> None:
        iceberg = jvm(spark).org.apache.iceberg
        self._unknown, self._parser = iceberg.exceptions.CommitStateUnknownException, iceberg.TableMetadataParser
        self._sure = java_class(spark, "org.apache.iceberg.exceptions.CleanableFailure")

    def apply(self, arguments: Any) -> Any:
        """Called by Java with the error, the table's operations, and its metadata before the commit and after it.

        :return: what is to be thrown; None if the commit has arrived.
        """
        error, operations, before, wanted = listed(arguments)
        sure = self._sure.isInstance(error)
        for look in range(LOOKS):
            if look:
                time.sleep(WAIT_SECONDS * look)
            try:
                arrived = self._arrived(operations, before, wanted)
            except Py4JJavaError as blind:
                log.warning("The catalog does not say what became of a commit: %s", mask(java_message(blind)))
                continue
            if arrived:
                log.warning("A commit has arrived, although the catalog said: %s", mask(str(error.getMessage())))
                return None
            if sure:
                return error
        return error if error.getClass().getSimpleName() == COMMIT_STATE_UNKNOWN else self._unknown(error)

    def _arrived(self, operations: Any, before: Any, wanted: Any) -> bool:
        found = operations.refresh()
        changes = [change for change in listed(wanted.changes()) if change.getClass().getSimpleName() == "AddSnapshot"]
        if changes:
            # they arrive all or none, and no other commit has their ids
            return all(found.snapshot(change.snapshot().snapshotId()) is not None for change in changes)
        return is_in_effect(*(json.loads(self._parser.toJson(metadata)) for metadata in (before, wanted, found)))

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["java.util.function.Function"]
