"""Tables in groups: each group is one mapped task and one Spark application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider_lakecdc.templates.config import Retention
from lakecdc.metadata.names import side_tables


def groups_of_tables(tables: Sequence[str], tables_per_application: int = 0) -> list[list[str]]:
    """Cut a list of tables into groups, for ``Operator.partial(…).expand(tables=groups_of_tables(…))``.

    Starting Spark costs about 8 s and one more table nearly nothing, so by default all tables share an application.

    :param tables: ``namespace.name`` of each table, in the order of work.
    :param tables_per_application: size of a group; 0 puts all tables into one.
    :raises ValueError: if the size is negative or no table is given.
    """
    if tables_per_application < 0:
        raise ValueError(f"tables_per_application is {tables_per_application}; 0 means all tables in one application.")
    if not tables:
        raise ValueError("No table is given; a mapped task over nothing would be skipped without a word.")
    size = tables_per_application or len(tables)
    return [list(tables[start : start + size]) for start in range(0, len(tables), size)]


def groups_by_retention(retention: Mapping[str, Retention], tables_per_application: int = 0) -> list[dict[str, Any]]:
    """Arguments of the tasks that remove old rows: tables that keep theirs alike are in one group.

    :param retention: by table.
    """
    alike: dict[Retention, list[str]] = {}
    for table, kept in retention.items():
        alike.setdefault(kept, []).append(table)
    return [
        {"tables": group, **asdict(kept)}
        for kept, tables in alike.items()
        for group in groups_of_tables(tables, tables_per_application)
    ]


def tables_beside(
    groups: Sequence[Sequence[str]], history: Mapping[str, str], shared: Sequence[str] = ()
) -> list[list[str]]:
    """Side tables of the tables of each group, every one in one group only: two jobs on one table would conflict.

    :param groups: tables in groups.
    :param history: history table by target.
    :param shared: tables beside all of them; they go with the first group.
    """
    taken = {table for group in groups for table in group}
    found: list[list[str]] = []
    for number, group in enumerate(groups):
        beside = [name for table in group for name in (*side_tables(table), *_history(table, history))]
        named = dict.fromkeys([*beside, *(shared if number == 0 else ())])
        found.append([name for name in named if name not in taken])
        taken |= set(named)
    return found


def _history(table: str, history: Mapping[str, str]) -> list[str]:
    return [history[table]] if table in history else []
