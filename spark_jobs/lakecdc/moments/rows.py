"""Rows that a table had at one moment of its source, for users' own PySpark jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.names import quarantine_of
from lakecdc.moments.events import batch_of
from lakecdc.moments.restored import rows_of
from lakecdc.moments.stretch import stretch_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    table: str,
    *,
    moment: str | datetime,
    history_table: str,
    quarantine_table: str | None = None,
) -> DataFrame:
    """Read a table as its source had it at a moment.

    A temporary branch protects what is read from expiry; nothing else is written.

    :param table: catalog, namespace and name, such as ``lake.shop.orders``.
    :param moment: at the source, with a time zone; includes what the source had committed by then.
    :param history_table: of the table, in the same catalog, such as ``lake.shop.orders_history``.
    :param quarantine_table: namespace and name, if ingestion uses one.
    :return: the table's current columns, checkpointed by Spark.
    :raises InputError: the moment cannot be restored with certainty; the message says why.
    """
    catalog, _, name = table.partition(".")
    of_history, _, history = history_table.partition(".")
    if of_history != catalog:
        raise InputError(
            f"The history table {history_table} is not in the table's catalog.",
            table=name,
            hint=f"Name it with its catalog, as {catalog}.namespace.name.",
        )
    text = moment.isoformat() if isinstance(moment, datetime) else moment
    at = parse_moment(text, "moment").astimezone(UTC)
    stretch = stretch_to(IcebergTable(spark, catalog, name), history, at, quarantine_of(name, quarantine_table))
    batch, _ = batch_of(stretch)
    with rows_of(stretch, batch) as rows:
        return rows.localCheckpoint()
