"""Checks of the catalog and the warehouse: reachable and writable."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.exceptions import JobClusterError
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.fields import nearest
from lakecdc.contract.findings import Finding, merge_passed, run_check
from lakecdc.contract.runtime import OBJECT_STORE, catalog_type
from lakecdc.contract.secrets import resolve

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

#: property that is set on a namespace and removed again
PROBE = "lakecdc.check"
_IS_PLACE = re.compile(r"^(\w[\w+.-]*:|/)")
_REMEDY = "Give the login the right to create and alter tables there."


def findings(conn_id: str, namespaces: Sequence[str], tables: Sequence[str] = ()) -> Iterator[Finding]:
    """Check a catalog, with writes that are undone at once: namespaces to write to, and tables that no job creates."""
    connections: list[CatalogConnection] = []
    yield run_check("catalog connection", _connection, conn_id, connections)
    opened: list[Catalog] = []
    for catalog in connections:
        if catalog_type(catalog.properties) == OBJECT_STORE:
            yield run_check("object store", _conditional_writes, catalog)
        yield run_check("catalog", _opened, catalog, opened)
    for each in opened:
        with closing(each):
            written = [run_check(f"namespace {name}", _namespace, each, name) for name in namespaces]
            yield from merge_passed("namespaces", written, "take writes")
            # a missing namespace has its own finding
            known = [name for name in tables if each.namespace_exists(name.rpartition(".")[0])]
            existing = [run_check(f"table {name}", _table, each, name) for name in known]
            yield from merge_passed("tables", existing, "exist")
            yield run_check("warehouse", _warehouse, each)


def _connection(conn_id: str, connections: list[CatalogConnection]) -> str:
    catalog = get_catalog(conn_id)
    connections.append(catalog)
    return f"{conn_id}, a catalog of type {catalog_type(catalog.properties)} named {catalog.name}"


def _opened(connection: CatalogConnection, opened: list[Catalog]) -> str:
    try:
        catalog = connection.load()
        known = len(catalog.list_namespaces())
    except LakecdcError:
        raise
    except Exception as error:
        raise JobClusterError(
            f"The catalog does not answer: {type(error).__name__}: {error}",
            hint="Check the connection's host, login and extra. Drivers of databases are extras sql-… of pyiceberg.",
        ) from error
    opened.append(catalog)
    return f"it answers, and has {known} namespaces"


def _conditional_writes(connection: CatalogConnection) -> str:
    from lakecdc.object_store.open_catalog import open_storage
    from lakecdc.object_store.proof import try_conditions

    properties = resolve(connection.properties, f"catalog {connection.name}")
    proven = try_conditions(open_storage(properties["warehouse"], properties), properties["warehouse"])
    return f"it keeps the conditions of writes, as just tested: {'; '.join(proven)}"


def _namespace(catalog: Catalog, name: str) -> Finding | str:
    if not catalog.namespace_exists(name):
        remedy = "The first run that feeds one of its tables creates it, if the login may. Otherwise correct the name."
        return Finding(f"namespace {name}", "warn", "it does not exist", remedy)
    try:
        catalog.update_namespace_properties(name, updates={PROBE: "1"})
        catalog.update_namespace_properties(name, removals={PROBE})
    except NotImplementedError:
        return Finding(f"namespace {name}", "warn", "this catalog cannot show whether it takes writes", _REMEDY)
    except Exception as error:
        return Finding(f"namespace {name}", "fail", f"it cannot be written: {type(error).__name__}: {error}", _REMEDY)
    return "it takes writes"


def _table(catalog: Catalog, name: str) -> Finding | str:
    if catalog.table_exists(name):
        return name
    near = nearest(name, [".".join(each) for each in catalog.list_tables(name.rpartition(".")[0])])
    remedy = "Correct the name in tables of the configuration. Governance skips the table until it exists."
    return Finding(f"table {name}", "warn", "it does not exist", f"{near} {remedy}" if near else remedy)


def _warehouse(catalog: Catalog) -> Finding | str:
    from pyiceberg.io import load_file_io

    place = str(resolve(catalog.properties, "catalog").get("warehouse", ""))
    if not _IS_PLACE.match(place):
        return "the catalog decides where tables are stored"
    path = f"{place.rstrip('/')}/lakecdc_check_{uuid.uuid4()}"
    try:
        files = load_file_io(catalog.properties, path)
        with files.new_output(path).create() as stream:
            stream.write(b"lakecdc")
        files.delete(path)
    except Exception as error:
        remedy = "Workers read table metadata there and jobs write to it: check the connection's properties."
        return Finding("warehouse", "fail", f"cannot write files to {place}: {type(error).__name__}: {error}", remedy)
    return f"{place} takes files"
