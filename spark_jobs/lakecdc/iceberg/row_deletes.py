"""Deletion of rows of a side table with Spark SQL, concurrently with its writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.explain import is_conflict

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def count_rows(table: IcebergTable, where: str, values: Mapping[str, Any]) -> int:
    """Count the rows that meet a condition.

    :param where: the condition in SQL, with named parameters.
    :param values: of the parameters.
    """
    row = table.spark.sql(f"SELECT count(*) FROM {table.sql_name} WHERE {where}", dict(values)).first()
    assert row is not None
    return int(row[0])


def delete_rows(table: IcebergTable, where: str, values: Mapping[str, Any]) -> int:
    """Delete the rows that meet a condition, in one commit.

    :param where: as for :func:`count_rows`, like the values.
    :return: number of deleted rows.
    :raises ConflictError: another writer removed or added such rows meanwhile; none was deleted.
    """
    count = count_rows(table, where, values)
    if not count:
        return 0
    try:
        table.spark.sql(f"DELETE FROM {table.sql_name} WHERE {where}", dict(values))
    except Exception as error:
        if not is_conflict(error):
            raise
        raise ConflictError(
            "Another writer changed the same rows meanwhile; none was deleted.",
            table=table.name,
            hint="Run the job again.",
        ) from error
    return count
