"""Folding events that leave values out: what a placeholder stands for is taken from earlier events of the same key.

Of the events up to one that leaves nothing out only that one is needed. Those behind it are kept until the events of
all tasks are together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakecdc.ingest.engine.fold import ORDER, columns, last_places, sorted_by_key, taken
from lakecdc.ingest.engine.layout import COUNTS, ORDER_PARTS

if TYPE_CHECKING:
    from typing import Any

    import duckdb
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, Any]


class LeftOutError(Exception):
    """What an event leaves out may be told by something else than earlier events of its key and the table's row."""


def has_open(table: pa.Table) -> bool:
    """Tell whether any event leaves values out."""
    return bool(table["open"].null_count < table.num_rows)


def check(batch: pa.RecordBatch) -> None:
    """Make sure that earlier events of the same key, or else the table's row, tell what events leave out.

    :raises LeftOutError: a row that has moved leaves values out, or one that is new.
    """
    import pyarrow.compute as pc

    plain = pc.and_(pc.equal(batch.column("op"), "u"), pc.invert(batch.column("moved")))
    if pc.any(pc.and_not(batch.column("open").is_valid(), plain)).as_py():
        raise LeftOutError("an event that is no update of the same key leaves values out")


def needed_places(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """Where the events stand that a fold of these and others needs.

    :return: as :func:`last_places`, with the counts at the last event of each key.
    """
    if not has_open(table):
        return last_places(connection, table)
    keys = ", ".join(columns(table, "k"))
    by = ", ".join([*columns(table, "p"), *columns(table, "k")])
    sums = ", ".join(f"sum({n}) AS sum_{n}" for n in COUNTS)
    counts = ", ".join(f"(CASE WHEN rank_of = last THEN sum_{n} ELSE 0 END)::INTEGER AS {n}" for n in COUNTS)
    _register(connection, table)
    return connection.execute(
        f"""WITH events AS (SELECT *, {ORDER} AS rank_of FROM arrived),
          found AS (SELECT {keys}, max(rank_of) AS last, max(rank_of) FILTER (open IS NULL) AS whole, {sums}
            FROM events GROUP BY {keys})
        SELECT {by}, place, {counts}, (hash({keys}) % 2147483647)::BIGINT AS hash
        FROM events JOIN found USING ({keys}) WHERE whole IS NULL OR rank_of >= whole ORDER BY place"""
    ).to_arrow_table()


def needed(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """Return the events that a fold of these and others needs, with counts as :func:`needed_places` tells."""
    return taken(table, needed_places(connection, table))


def folded(
    connection: duckdb.DuckDBPyConnection, table: pa.Table, names: Sequence[str], places: pa.Table | None = None
) -> tuple[pa.Table, int]:
    """Return the last event of each key, in order of partition values and keys.

    :param names: of the row's columns.
    :param places: result of :func:`last_places`; None to look for them.
    :return: the rows, and how many left values out all of which earlier events have.
    :raises LeftOutError: nobody can have a value.
    """
    by_key = sorted_by_key(last_places(connection, table) if places is None else places)
    rows = taken(table, by_key)
    return _filled(connection, table, names, by_key["place"].to_numpy(), rows) if has_open(rows) else (rows, 0)


def _filled(
    connection: duckdb.DuckDBPyConnection, table: pa.Table, names: Sequence[str], places: Numbers, rows: pa.Table
) -> tuple[pa.Table, int]:
    """Rows with the values of earlier events.

    :param places: of the rows in the table.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    left_out = set(pc.unique(pc.list_flatten(rows["open"])).to_pylist())
    opened = [name for name in names if name in left_out]
    has = [f"coalesce(NOT list_contains(open, {_literal(name)}), true)" for name in opened]
    sources = ", ".join(f"coalesce(arg_max(place, {ORDER}) FILTER ({sql}), -1)" for sql in has)
    last = ", ".join(f"NOT arg_max({sql}, {ORDER})" for sql in has)
    _register(connection, table)
    found = connection.execute(
        f"""SELECT arg_max(place, {ORDER}), {sources}, {last} FROM arrived
        GROUP BY {", ".join(columns(table, "k"))} HAVING arg_max(open IS NOT NULL, {ORDER})"""
    ).to_arrow_table()
    place, *told = (column.to_numpy() for column in found.columns)
    source, is_open = np.stack(told[: len(opened)]), np.stack(told[len(opened) :]).astype(np.bool_)
    known = is_open & (source >= 0)
    if pc.any(pc.equal(table["op"].take(pa.array(source[known])), "d")).as_py():
        raise LeftOutError("an update after the delete of its row leaves values out")
    sorter = np.argsort(places)
    at = sorter[np.searchsorted(places, place, sorter=sorter)]
    for name, source_of, here in zip(opened, source, known, strict=True):
        if here.any():
            column = f"c{names.index(name)}"
            values = places.copy()
            values[at[here]] = source_of[here]
            rows = rows.set_column(rows.column_names.index(column), column, table[column].take(pa.array(values)))
    still = is_open & ~known
    rows = rows.set_column(rows.column_names.index("open"), "open", _lists(opened, still, at, rows.num_rows))
    return rows, int((~still.any(axis=0)).sum())


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _lists(names: Sequence[str], chosen: Numbers, at: Numbers, count: int) -> pa.Array:
    """Return lists of the names that are chosen for some rows; null where there are none.

    :param chosen: by name and row.
    :param at: where these rows stand.
    :param count: of all rows.
    """
    import numpy as np
    import pyarrow as pa

    of_all = np.zeros((count, len(names)), np.bool_)
    of_all[at] = chosen.T
    counts = of_all.sum(axis=1)
    offsets = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    values = pa.array(names, pa.string()).take(pa.array(np.nonzero(of_all)[1]))
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0))


def _register(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
    """Give DuckDB what tells events apart, with their places, as ``arrived``."""
    import numpy as np
    import pyarrow as pa

    parts = table.select([*columns(table, "p"), *columns(table, "k"), *ORDER_PARTS, *COUNTS, "open"])
    connection.register("arrived", parts.append_column("place", pa.array(np.arange(table.num_rows, dtype=np.int64))))
