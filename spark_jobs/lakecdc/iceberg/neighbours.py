"""Where the tables of a catalog keep their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.jvm import java_class_name, java_message, jvm, listed, mapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_THREADS = 8
_FOLDERS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path", "write.metadata.path")


@dataclass(frozen=True)
class Neighbour:
    """A table of the catalog.

    :param folders: its location, and further ones that its files go to.
    """

    name: str
    uuid: str
    folders: tuple[str, ...]


def folders(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Where a table's files go: its location, and folders that its properties name."""
    return tuple(dict.fromkeys([location, *(properties[name] for name in _FOLDERS if properties.get(name))]))


def tables_of_catalog(spark: SparkSession, catalog: str) -> list[Neighbour]:
    """Every Iceberg table of a catalog.

    :raises InputError: one of them cannot be loaded, so that nobody knows where its files are.
    """
    plugin = spark._jsparkSession.sessionState().catalogManager().catalog(catalog)
    iceberg = plugin.icebergCatalog()
    namespace = jvm(spark).org.apache.iceberg.catalog.Namespace
    names = [name for parts in _namespaces(plugin) for name in listed(iceberg.listTables(namespace.of(parts)))]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [found for found in pool.map(lambda name: _neighbour(iceberg, name), names) if found]


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
            f"It cannot be loaded, so nobody knows where its files are: {java_message(error)}",
            table=str(name),
            hint="Repair or drop it before orphan files of any table in this catalog are removed.",
        ) from error
