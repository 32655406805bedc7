"""Folders of the tables of a catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.jvm import java_class_name, java_message, jvm, listed, mapping
from lakecdc.metadata.locations import resolve

_THREADS = 8
_FOLDERS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path", "write.metadata.path")


@dataclass(frozen=True)
class Neighbour:
    """A table of the catalog, with its location and further folders of its files."""

    name: str
    uuid: str
    folders: tuple[str, ...]


def folders(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a table's folders: its location, and those that its properties name."""
    return tuple(
        dict.fromkeys([location, *(resolve(properties[name], location) for name in _FOLDERS if properties.get(name))])
    )


def tables_of_catalog(spark: SparkSession, catalog: str) -> list[Neighbour]:
    """Return every Iceberg table of a catalog.

    :raises InputError: one of them cannot be loaded, so its folders are not known.
    """
    plugin = spark._jsparkSession.sessionState().catalogManager().catalog(catalog)
    iceberg = plugin.icebergCatalog()
    namespace = jvm(spark).org.apache.iceberg.catalog.Namespace
    names = [name for parts in _namespaces(plugin) for name in listed(iceberg.listTables(namespace.of(parts)))]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [table for table in pool.map(lambda name: _neighbour(iceberg, name), names) if table]


def _namespaces(plugin: Any) -> Iterator[Any]:
    todo = list(plugin.listNamespaces())
    while todo:
        parts = todo.pop()
        yield parts
        todo += plugin.listNamespaces(parts)


def _neighbour(iceberg: Any, name: Any) -> Neighbour | None:
    try:
        table = iceberg.loadTable(name)
        return Neighbour(str(name), str(table.uuid()), folders(str(table.location()), mapping(table.properties())))
    except Exception as error:
        # dropped since it was listed
        if java_class_name(error) == "NoSuchTableException":
            return None
        raise InputError(
            f"Cannot load the table to find its folders: {java_message(error)}",
            table=str(name),
            hint="Repair or drop it before removing orphan files of any table in this catalog.",
        ) from error
