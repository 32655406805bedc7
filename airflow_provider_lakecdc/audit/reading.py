"""Queries of the audit and health tables."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_lakecdc.audit.lake_tables import AUDIT, HEALTH, AuditRow, HealthRow, LakeTable
from airflow_provider_lakecdc.lake.tables import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

Row = TypeVar("Row")


@dataclass(frozen=True)
class Trend:
    """A table's health over time: the newest measurement, and timestamps with scores, oldest first."""

    latest: HealthRow
    scores: tuple[tuple[datetime, float], ...]


#: how long a measurement is valid without a newer one
LATELY = timedelta(days=14)
# try recent partitions first
_DAYS = (1, 30)
_ALL: Mapping[str, str] = MappingProxyType({})


def history(
    catalog: CatalogConnection,
    table: str | None = None,
    since: datetime | None = None,
    limit: int = 100,
    *,
    until: datetime | None = None,
    where: Mapping[str, str] = _ALL,
) -> list[AuditRow]:
    """Return what jobs did, newest first; empty if nothing is recorded.

    :param table: ``namespace.name``; default: all.
    :param since: rows that ended then or later; partitions of earlier days are not read.
    :param until: rows that ended before.
    :param where: values of further columns.
    """
    with open_table(catalog, AUDIT.name) as audit:
        if audit is None:
            return []
        starts = [] if since else [datetime.now(UTC) - timedelta(days=days) for days in _DAYS]
        rows: list[AuditRow] = []
        for start in (*starts, since):
            rows = _rows(AUDIT, _stored(audit, AUDIT, {**where, **_of(table)}, start, until))
            if len(rows) >= limit:
                break
        return rows[:limit]


def history_of_task(
    catalog: CatalogConnection, dag_id: str, run_id: str, task_id: str, map_index: int | None
) -> list[AuditRow]:
    """Return the rows of all tries of a task, newest first; empty if nothing is recorded."""
    ids = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
    with open_table(catalog, AUDIT.name) as audit:
        rows = [] if audit is None else _rows(AUDIT, _stored(audit, AUDIT, ids, None))
    return [row for row in rows if row.map_index == map_index]


def health_history(
    catalog: CatalogConnection, table: str | None = None, since: datetime | None = None
) -> list[HealthRow]:
    """Return the health of tables since a time, newest first; partitions of earlier days are not read."""
    with open_table(catalog, HEALTH.name) as health:
        return [] if health is None else _rows(HEALTH, _stored(health, HEALTH, _of(table), since))


def latest_health(catalog: Catalog, table: str, since: datetime) -> HealthRow | None:
    """Return a table's newest measurement since a time, or None; partitions of earlier days are not read."""
    if not catalog.table_exists(HEALTH.name):
        return None
    rows = _rows(HEALTH, _stored(catalog.load_table(HEALTH.name), HEALTH, _of(table), since))
    return rows[0] if rows else None


def health_trends(catalog: CatalogConnection, since: datetime, most: int = 60) -> dict[str, Trend]:
    """Return the health over time by table; empty if nothing is recorded.

    :param since: earliest measurement that counts; partitions of earlier days are not read.
    :param most: maximum of scores per table, spread evenly, with the first and the last.
    """
    with open_table(catalog, HEALTH.name) as health:
        if health is None:
            return {}
        stored = _stored(health, HEALTH, {}, since).sort_by([(HEALTH.moment, "ascending"), ("row_id", "ascending")])
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, table in enumerate(stored["table"].to_pylist()):
        numbers[table].append(number)
    sampled = {table: _spread(each, most) for table, each in numbers.items()}
    scores = stored.select([HEALTH.moment, "score"]).take([number for each in sampled.values() for number in each])
    points = iter(zip(*(column.to_pylist() for column in scores.columns), strict=True))
    latest = stored.take([each[-1] for each in sampled.values()]).to_pylist()
    return {
        table: Trend(HEALTH.row_of(row), tuple(itertools.islice(points, len(each))))
        for (table, each), row in zip(sampled.items(), latest, strict=True)
    }


def _spread(numbers: list[int], most: int) -> list[int]:
    if len(numbers) <= most:
        return numbers
    return [numbers[round(step * (len(numbers) - 1) / (most - 1))] for step in range(most)]


def _of(table: str | None) -> dict[str, str]:
    return {} if table is None else {"table": table}


def _rows(kind: LakeTable[Row], stored: pa.Table) -> list[Row]:
    newest_first = stored.sort_by([(kind.moment, "descending"), ("row_id", "descending")])
    return [kind.row_of(row) for row in newest_first.to_pylist()]


def _stored(
    source: Table,
    kind: LakeTable[Row],
    equal: Mapping[str, str],
    since: datetime | None,
    until: datetime | None = None,
) -> pa.Table:
    from pyiceberg.expressions import (
        AlwaysTrue,
        And,
        BooleanExpression,
        EqualTo,
        GreaterThanOrEqual,
        LessThan,
        Reference,
    )
    from pyiceberg.expressions.literals import literal

    condition: BooleanExpression = AlwaysTrue()
    for column, value in equal.items():
        condition = And(condition, EqualTo(term=Reference(column), value=literal(value)))
    for bound, compare in ((since, GreaterThanOrEqual), (until, LessThan)):
        if bound is not None:
            moment = literal(bound.astimezone(UTC).isoformat())
            condition = And(condition, compare(term=Reference(kind.moment), value=moment))
    return source.scan(condition, selected_fields=tuple(column.name for column in kind.columns)).to_arrow()
