"""Rows of a side table, deleted by a statement of Spark SQL beside its writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.explain import is_conflict

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def count_rows(table: IcebergTable, where: str, values: Mapping[str, Any]) -> int:
    """How many rows meet a condition.

    :param where: the condition in SQL, with named parameters.
    :param values: of the parameters.
    """
    found = table.spark.sql(f"SELECT count(*) FROM {table.sql_name} WHERE {where}", dict(values)).first()
    assert found is not None
    return int(found[0])


def delete_rows(table: IcebergTable, where: str, values: Mapping[str, Any]) -> int:
    """Delete the rows that meet a condition, in one commit.

    :param where: as for :func:`count_rows`, like the values.
    :return: how many there were.
    :raises ConflictError: another writer has removed or added such rows meanwhile; then none is deleted.
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
            "Another writer has changed the same rows meanwhile; none was deleted.",
            table=table.name,
            hint="Run the job again.",
        ) from error
    return count
