"""Reading the two tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_lakecdc.audit.lake_tables import AUDIT, HEALTH, LakeTable
from airflow_provider_lakecdc.audit.rows import AuditRow, HealthRow
from airflow_provider_lakecdc.tables import open_table

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

Row = TypeVar("Row")
# the last rows are wanted mostly, and a day's partition is enough for them
_DAYS = (1, 30)


def history(
    catalog: CatalogConnection, table: str | None = None, since: datetime | None = None, limit: int = 100
) -> list[AuditRow]:
    """What jobs have done, the newest first; nothing where nothing has been recorded.

    :param table: ``namespace.name``; default: all.
    :param since: rows that ended then or later; days before it are not read.
    :param limit: rows at most.
    """
    with open_table(catalog, AUDIT.name) as found:
        if found is None:
            return []
        starts = [] if since else [datetime.now(UTC) - timedelta(days=days) for days in _DAYS]
        rows: list[AuditRow] = []
        for start in (*starts, since):
            rows = _rows(found, AUDIT, table, start)
            if len(rows) >= limit:
                break
        return rows[:limit]


def health_history(
    catalog: CatalogConnection, table: str | None = None, since: datetime | None = None
) -> list[HealthRow]:
    """How tables were, the newest first; nothing where nothing has been recorded.

    :param table: ``namespace.name``; default: all.
    :param since: rows measured then or later; days before it are not read.
    """
    with open_table(catalog, HEALTH.name) as found:
        return [] if found is None else _rows(found, HEALTH, table, since)


def _rows(found: Table, kind: LakeTable[Row], table: str | None, since: datetime | None) -> list[Row]:
    from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, Reference
    from pyiceberg.expressions.literals import literal

    wanted: BooleanExpression = AlwaysTrue()
    if table is not None:
        wanted = EqualTo(term=Reference("table"), value=literal(table))
    if since is not None:
        moment = literal(since.astimezone(UTC).isoformat())
        wanted = And(wanted, GreaterThanOrEqual(term=Reference(kind.moment), value=moment))
    scan = found.scan(wanted, selected_fields=tuple(column.name for column in kind.columns))
    stored = sorted(scan.to_arrow().to_pylist(), key=lambda row: (row[kind.moment], row["row_id"]), reverse=True)
    return [kind.row_of(row) for row in stored]
