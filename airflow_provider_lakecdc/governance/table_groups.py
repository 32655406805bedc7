"""Groups of tables: each is one mapped task and one Spark application."""

from __future__ import annotations

from collections.abc import Sequence


def groups_of_tables(tables: Sequence[str], tables_per_application: int = 0) -> list[list[str]]:
    """Split tables into groups, for ``Operator.partial(…).expand(tables=groups_of_tables(…))``.

    Starting Spark takes about 8 s and another table nearly nothing, so by default all tables share an application.

    :param tables: ``namespace.name`` of each table, in the order of work.
    :param tables_per_application: size of a group; 0 means one group.
    :raises ValueError: the size is negative or no table is given.
    """
    if tables_per_application < 0:
        raise ValueError(f"tables_per_application must be 0 (one group) or more, got {tables_per_application}.")
    if not tables:
        raise ValueError("No table is given. A mapped task without tables would be skipped silently.")
    size = tables_per_application or len(tables)
    return [list(tables[start : start + size]) for start in range(0, len(tables), size)]
