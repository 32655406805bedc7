"""Commits whose answer was lost: the table itself decides whether they arrived before they count as conflicts.

Iceberg trusts the first error, and some are wrong. The connection pool of a JDBC catalog repeats an UPDATE after a lost
connection, and REST clients and gateways repeat a POST. If the first one had arrived, the second one finds the table
changed, apparently by another writer. Iceberg then commits again, its validation meets the commit's own snapshot, and
Iceberg deletes the manifests of what is now the table's head.

So the tables of a session, for Spark's statements and for our commits, get operations (``TableOperations``) that check
the table after each commit error. A commit that arrived has succeeded. One that is not visible is a conflict only where
Iceberg can be sure of that; after any other error its state is unknown, and no file is deleted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakecdc.contract.runtime import refuse_unfit
from lakecdc.contract.secrets import mask
from lakecdc.iceberg.forwarding import OBJECT, Forwarding, Handles, forwards
from lakecdc.iceberg.jvm import COMMIT_STATE_UNKNOWN, ensure_callbacks, java_class, java_message, jvm, listed, mapping
from lakecdc.object_store.versions import HINT_BEHIND

log = logging.getLogger(__name__)

#: checks of the table after an inconclusive error, and seconds between them: the catalog may be temporarily away, or
#: still working
CHECKS, WAIT_SECONDS = 4, 0.5
_CATALOGS = "org.apache.iceberg.catalog."
_OPERATIONS, _METADATA = "org.apache.iceberg.TableOperations", "org.apache.iceberg.TableMetadata"
# fields that every commit changes, or that follow from others
_DERIVED = {"last-updated-ms", "metadata-log", "snapshot-log"}


def verify_commits(spark: SparkSession, catalog: str) -> None:
    """Make a session's tables verify their commits after an error; Spark must have opened their catalog.

    :raises SpecError: its server does not keep what commits write.
    """
    plugin = spark._jsparkSession.sessionState().catalogManager().catalog(catalog)
    opened = plugin.icebergCatalog()
    if forwards(spark, opened):
        return
    if opened.getClass().getSimpleName() == "RESTCatalog":
        refuse_unfit(catalog, mapping(opened.properties()))
    ensure_callbacks(spark)
    handles, field = Handles(spark), plugin.getClass().getDeclaredField("icebergCatalog")
    field.setAccessible(True)
    kinds = ("Catalog", "SupportsNamespaces", "ViewCatalog")
    interfaces = [_CATALOGS + kind for kind in kinds if handles.cls(_CATALOGS + kind).isInstance(opened)]
    method = (_CATALOGS + "Catalog", "loadTable", _CATALOGS + "TableIdentifier")
    load = handles.method(*method).asType(handles.type(OBJECT, method[0], method[2]))
    load = handles.spread(handles.after(load, handles.function(_CommitVerification(spark, handles).apply)), 1)
    field.set(plugin, Forwarding(spark, handles, interfaces, {handles.reflected(*method): load})(opened))


class _CommitVerification:
    """Operations with verified commits for loaded tables."""

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
        """Wrap the operations of a loaded table; called by Java. Metadata tables commit nothing."""
        if self._base_table.isInstance(table):
            self._field.set(table, self._operations(table.operations()))
        return table

    def _judged(self, spark: SparkSession, handles: Handles) -> Any:
        """Return ``(RuntimeException, TableOperations, TableMetadata, TableMetadata)void``."""
        parameters = ("java.lang.RuntimeException", _OPERATIONS, _METADATA, _METADATA)
        as_list = handles.as_list(4)
        verdict = handles.after(as_list.asType(as_list.type().generic()), handles.function(_Verdict(spark).apply))
        return handles.after(verdict.asType(handles.type("java.lang.Throwable", *parameters)), handles.raising())


class _Verdict:
    """Interpretation of a commit error."""

    def __init__(self, spark: SparkSession) -> None:
        iceberg = jvm(spark).org.apache.iceberg
        self._unknown, self._parser = iceberg.exceptions.CommitStateUnknownException, iceberg.TableMetadataParser
        self._sure = java_class(spark, "org.apache.iceberg.exceptions.CleanableFailure")

    def apply(self, arguments: Any) -> Any:
        """Return the exception to throw instead of an error, None if the commit arrived; called by Java."""
        error, operations, before, intended = listed(arguments)
        sure = self._sure.isInstance(error)
        for attempt in range(CHECKS):
            if attempt:
                time.sleep(WAIT_SECONDS * attempt)
            try:
                arrived = self._arrived(operations, before, intended)
            except Py4JJavaError as blind:
                log.warning("Cannot read the state of a commit from the catalog: %s", mask(java_message(blind)))
                continue
            if arrived and HINT_BEHIND in str(error.getMessage()):
                # no answer was lost: the caller must not delete files
                return error
            if arrived:
                log.warning("A commit arrived although the catalog reported: %s", mask(str(error.getMessage())))
                return None
            if sure:
                return error
        return error if error.getClass().getSimpleName() == COMMIT_STATE_UNKNOWN else self._unknown(error)

    def _arrived(self, operations: Any, before: Any, intended: Any) -> bool:
        current = operations.refresh()
        changes = [
            change for change in listed(intended.changes()) if change.getClass().getSimpleName() == "AddSnapshot"
        ]
        if changes:
            # they arrive atomically, and no other commit has their ids
            return all(current.snapshot(change.snapshot().snapshotId()) is not None for change in changes)
        return is_in_effect(*(json.loads(self._parser.toJson(metadata)) for metadata in (before, intended, current)))


def is_in_effect(before: Mapping[str, Any], intended: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Check whether a table has everything that a commit without new snapshots was to change.

    Another commit with the same result counts too, and unrelated changes by others do not matter.
    """
    changed = [key for key in {*before, *intended} - _DERIVED if before.get(key) != intended.get(key)]
    return all(_is_as_intended(key, before.get(key), intended.get(key), current.get(key)) for key in changed)


def _is_as_intended(key: str, before: Any, intended: Any, current: Any) -> bool:
    if key == "snapshots":
        return not (_ids(before) - _ids(intended)) & _ids(current)
    if isinstance(before or intended, dict):
        old, new, now = before or {}, intended or {}, current or {}
        return all(now.get(name) == new.get(name) for name in {*old, *new} if old.get(name) != new.get(name))
    return bool(current == intended)


def _ids(snapshots: Any) -> set[int]:
    return {snapshot["snapshot-id"] for snapshot in snapshots or ()}
