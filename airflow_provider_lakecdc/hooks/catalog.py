"""Catalogs from Airflow connections of type ``iceberg``, for jobs and for pyiceberg."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.connections import SecretEnvironment, find_connection
from lakecdc.contract.errors import SpecError
from lakecdc.contract.runtime import OBJECT_STORE, catalog_type, refuse_unfit
from lakecdc.contract.secrets import is_reference, resolve
from lakecdc.contract.spec import parse_catalog

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from pyiceberg.catalog import Catalog

CONN_TYPE = "iceberg"
#: extra that sets the catalog's name, which catalogs in databases store with each table
CATALOG_NAME = "catalog_name"
_EXAMPLE = '{"conn_type": "iceberg", "host": "https://catalog.example.com", "extra": {"warehouse": "s3://bucket/lake"}}'


@dataclass(frozen=True)
class CatalogConnection:
    """A catalog from an Airflow connection.

    :param name: the catalog's name in Spark and pyiceberg.
    :param references: the properties with secrets replaced by references, for specs.
    :param secrets: the values of these references.
    """

    name: str
    properties: dict[str, Any] = field(repr=False)
    references: dict[str, Any]
    secrets: SecretEnvironment

    def load(self) -> Catalog:
        """Open the catalog with pyiceberg. The caller must close it.

        :raises SpecError: jobs refuse it.
        """
        properties = resolve(self.properties, f"catalog {self.name}")
        if catalog_type(properties) == OBJECT_STORE:
            from lakecdc.object_store.pyiceberg_catalog import ObjectStoreCatalog

            return ObjectStoreCatalog(self.name, **properties)
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(self.name, **properties)
        refuse_unfit(self.name, catalog.properties)
        return catalog


def get_catalog(conn_id: str) -> CatalogConnection:
    """Read a connection of type ``iceberg`` and mask its secrets in logs; a trigger calls it in a thread.

    :raises JobBadInputError: the connection is of another type or the catalog's name is invalid.
    """
    catalog = catalog_from_connection(find_connection(conn_id, "for the Iceberg catalog", _EXAMPLE))
    catalog.secrets.hide_from_logs()
    return catalog


def catalog_from_connection(connection: Connection) -> CatalogConnection:
    """Read the properties from a connection as Airflow's ``IcebergHook`` does, and the catalog's name.

    The host is the URI, login and password are the credential of a REST catalog, extras are the other properties.
    Unlike in the hook, extra ``catalog_name`` overrides the connection id as the catalog's name.
    """
    conn_id = connection.conn_id
    if connection.conn_type != CONN_TYPE:
        raise JobBadInputError(
            f"The connection {conn_id!r} is of type {connection.conn_type!r}, not {CONN_TYPE!r}.",
            hint="Use a connection that describes the Iceberg catalog.",
        )
    properties = {key: _text(value) for key, value in connection.extra_dejson.items()}
    name = str(properties.pop(CATALOG_NAME, conn_id))
    if connection.host:
        properties["uri"] = connection.host.rstrip("/")
    properties.setdefault("type", "rest")
    if properties["type"] == "rest" and connection.login and connection.password:
        properties["credential"] = f"{connection.login}:{connection.password}"
    secrets = SecretEnvironment(conn_id)
    references = {key: secrets.refer_if_secret(key, value) for key, value in properties.items()}
    try:
        parse_catalog({"name": name})
    except SpecError as error:
        raise JobBadInputError(
            f"The connection {conn_id!r} names its catalog {name!r}: {error}",
            hint=f'Set "{CATALOG_NAME}" in the extra of the connection.',
        ) from error
    return CatalogConnection(name, properties, references, secrets)


def _text(value: Any) -> Any:
    if is_reference(value):
        return value
    # pyiceberg and Spark expect "true", not "True"
    return str(value).lower() if isinstance(value, bool) else str(value)
