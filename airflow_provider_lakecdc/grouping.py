"""Tables in groups: each group is one mapped task and one Spark application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def tables_beside(
    groups: Sequence[Sequence[str]], history: Mapping[str, str], shared: Sequence[str] = ()
) -> list[list[str]]:
    """Side tables of the tables of each group, every one in one group only: two jobs on one table would conflict.

    :param groups: tables in groups.
    :param history: history table by target.
    :param shared: tables beside all of them; they go with the first group.
    """
    taken = {table for group in groups for table in group}
    first = next((number for number, group in enumerate(groups) if group), 0)
    found: list[list[str]] = []
    for number, group in enumerate(groups):
        beside = [name for table in group for name in (*side_tables(table), *_history(table, history))]
        named = dict.fromkeys([*beside, *(shared if number == first else ())])
        found.append([name for name in named if name not in taken])
        taken |= set(named)
    return found


def _history(table: str, history: Mapping[str, str]) -> list[str]:
    return [history[table]] if table in history else []
