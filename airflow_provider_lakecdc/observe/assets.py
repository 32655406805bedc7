"""How a table is named as an Airflow asset."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias


def table_asset(catalog_conn_id: str, table: str) -> Asset:
    """The asset of a table, to schedule a DAG on: ``DAG(schedule=[table_asset("lake", "shop.orders")])``.

    :param catalog_conn_id: id of the catalog's connection; it stands for the catalog, as a DAG file cannot read it.
    :param table: ``namespace.name``.
    """
    return Asset(name=f"{catalog_conn_id}:{table}", uri=f"iceberg://{catalog_conn_id}/{table}")


def tables_alias(catalog_conn_id: str) -> AssetAlias:
    """The outlet through which an operator raises events of exactly the tables it has changed.

    A mapped task shares one list of outlets, so with plain assets every group of tables would raise the events of
    all groups, changed or not; an alias takes them one by one.

    :param catalog_conn_id: id of the catalog's connection.
    """
    return AssetAlias(name=f"lakecdc:{catalog_conn_id}", group="lakecdc")


def lake_asset(catalog_conn_id: str) -> Asset:
    """The asset that stands for all tables of a catalog; in its state runs leave what the next ones have to know.

    :param catalog_conn_id: id of the catalog's connection.
    """
    return Asset(name=f"lakecdc:{catalog_conn_id}:tables", uri=f"iceberg://{catalog_conn_id}/", group="lakecdc")
