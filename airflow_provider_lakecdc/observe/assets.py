"""Airflow assets of tables."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias


def table_asset(catalog_conn_id: str, table: str) -> Asset:
    """Return a table's asset, such as to schedule a DAG on it: ``DAG(schedule=[table_asset("lake", "shop.orders")])``.

    :param catalog_conn_id: id of the catalog's connection, which identifies the catalog.
    :param table: ``namespace.name``.
    """
    return Asset(name=f"{catalog_conn_id}:{table}", uri=f"iceberg://{catalog_conn_id}/{table}")


def tables_alias(catalog_conn_id: str) -> AssetAlias:
    """Return the outlet for asset events of exactly the tables that an operator changed.

    Mapped tasks share one list of outlets, so plain assets would raise events for all groups of tables, changed or not.
    """
    return AssetAlias(name=f"lakecdc:{catalog_conn_id}", group="lakecdc")


def lake_asset(catalog_conn_id: str) -> Asset:
    """Return the asset of all tables of a catalog, whose state store holds state between runs."""
    return Asset(name=f"lakecdc:{catalog_conn_id}:tables", uri=f"iceberg://{catalog_conn_id}/", group="lakecdc")
