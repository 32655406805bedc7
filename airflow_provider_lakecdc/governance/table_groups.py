"""Tables in groups: each group is one mapped task and one Spark application."""

from __future__ import annotations

from collections.abc import Sequence


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
