"""Reduce a table of the engine's layout to the last event of each key, and group keys by task.

DuckDB compares order keys and returns places; the rows are fetched once, by place. Values that an event leaves out come
from earlier events of the key: of the events up to a whole one only that one is needed, and later ones are kept until
the events of all tasks are together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.engine.layout import COUNTS, ORDER_PARTS, Numbers
from lakecdc.writer.partitions import Partitioning, columns_of, count_of, find_partitioning, with_partitions

if TYPE_CHECKING:
    import duckdb

    from lakecdc.contract.target import Target

# SQL of an order key that DuckDB compares
_ORDER = "create_sort_key(" + ", ".join(f"{part}, 'ASC NULLS LAST'" for part in ORDER_PARTS) + ")"
_MOST_TASKS = 256
# shares of a partition if the number of partitions is unknown: each share makes a file, and one partition may have all
# rows
_SHARES = 4


class LeftOutError(Exception):
    """Neither earlier events of a key nor the table's row may have a value that an event leaves out."""


def can_fold(target: Target) -> bool:
    """Check whether tasks may fold a table's events; merging, and cleaning for a history, need every event."""
    return target.keyed and target.merge is None and not (target.history_table and target.clean)


def has_open(table: pa.Table) -> bool:
    """Check whether any event leaves values out."""
    return bool(table["open"].null_count < table.num_rows)


def check_left_out(batch: pa.RecordBatch) -> None:
    """Check that earlier events of the key, or the table's row, have the values that events leave out.

    :raises LeftOutError: an insert or key update leaves values out.
    """
    plain = pc.and_(pc.equal(batch.column("op"), "u"), pc.invert(batch.column("moved")))
    if pc.any(pc.and_not(batch.column("open").is_valid(), plain)).as_py():
        raise LeftOutError("an event other than an update of the same key omits values")


def last_places(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """Find the last event of each key.

    :return: partition values and key, ``place`` in the table, counts, and a ``hash`` of the key below 2 to the 31st;
        ordered by place, which halves the time to fetch rows.
    """
    keys = columns(table, "k")
    by = ", ".join([*columns(table, "p"), *keys])
    sums = ", ".join(f"sum({count})::INTEGER AS {count}" for count in COUNTS)
    _register(connection, table)
    return connection.execute(
        f"""SELECT {by}, arg_max(place, {_ORDER}) AS place, {sums},
          (hash({", ".join(keys)}) % 2147483647)::BIGINT AS hash FROM arrived GROUP BY {by} ORDER BY place"""
    ).to_arrow_table()


def needed_places(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """Find the events that a fold together with other tasks' events needs.

    :return: as :func:`last_places`, with the counts at the last event of each key.
    """
    if not has_open(table):
        return last_places(connection, table)
    keys = ", ".join(columns(table, "k"))
    by = ", ".join([*columns(table, "p"), *columns(table, "k")])
    sums = ", ".join(f"sum({n}) AS sum_{n}" for n in COUNTS)
    counts = ", ".join(f"(CASE WHEN rank_of = last THEN sum_{n} ELSE 0 END)::INTEGER AS {n}" for n in COUNTS)
    _register(connection, table, "open")
    return connection.execute(
        f"""WITH events AS (SELECT *, {_ORDER} AS rank_of FROM arrived),
          found AS (SELECT {keys}, max(rank_of) AS last, max(rank_of) FILTER (open IS NULL) AS whole, {sums}
            FROM events GROUP BY {keys})
        SELECT {by}, place, {counts}, (hash({keys}) % 2147483647)::BIGINT AS hash
        FROM events JOIN found USING ({keys}) WHERE whole IS NULL OR rank_of >= whole ORDER BY place"""
    ).to_arrow_table()


def take_rows(table: pa.Table, places: pa.Table) -> pa.Table:
    """Return rows by place, with their counts and partition values."""
    rows = table.drop_columns([*COUNTS, *columns(table, "p")]).take(places["place"])
    for name in (*COUNTS, *columns(places, "p")):
        rows = rows.append_column(name, places[name])
    return rows


def folded(
    connection: duckdb.DuckDBPyConnection, table: pa.Table, names: Sequence[str], places: pa.Table | None = None
) -> tuple[pa.Table, int]:
    """Return the last event of each key, in order of partition values and keys.

    :param places: result of :func:`last_places`; None to compute it.
    :return: the rows, and how many were filled from earlier events.
    :raises LeftOutError: no event has a value.
    """
    if places is None:
        places = last_places(connection, table)
    by_key = places.sort_by([(name, "ascending") for name in (*columns(places, "p"), *columns(places, "k"))])
    rows = take_rows(table, by_key)
    return _filled(connection, table, names, by_key["place"].to_numpy(), rows) if has_open(rows) else (rows, 0)


def may_have_been(rows: pa.Table) -> pa.ChunkedArray:
    """Check for folded rows of a log whether the source may have had a row of the key before their events.

    Inserts and deletes of a unique key alternate: there was no row before if inserts minus deletes is the number of
    rows now, one or none. A key update to this key has no insert, so the key counts as one that existed. As sums, the
    counts do not depend on how events were folded.
    """
    there = pc.not_equal(rows["op"], "d").cast(pa.int32())
    return pc.not_equal(pc.subtract(rows["n_c"], rows["n_d"]), there)


def lists_of(names: Sequence[str], chosen: Numbers) -> pa.Array:
    """Return a list of names for each row; null for a row without any.

    :param chosen: whether a row has a name, indexed by row and name.
    """
    counts = chosen.sum(axis=1)
    offsets = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    values = pa.array(names, pa.string()).take(pa.array(np.nonzero(chosen)[1]))
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0))


def left_out_in(lists: pa.Array) -> dict[str, pa.Array]:
    """Return by column which events leave it out, from the events' lists of such columns."""
    names = lists.flatten().dictionary_encode()
    codes, events = names.indices.to_numpy(), lists.value_parent_indices().to_numpy()
    left_out = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        of_name = np.zeros(len(lists), np.bool_)
        of_name[events[codes == code]] = True
        left_out[name] = pa.array(of_name)
    return left_out


def columns(table: pa.Table, prefix: str) -> list[str]:
    """Return the names of numbered columns, such as ``k0`` and ``k1``."""
    return [name for name in table.column_names if name.startswith(prefix) and name[len(prefix) :].isdigit()]


def _filled(
    connection: duckdb.DuckDBPyConnection, table: pa.Table, names: Sequence[str], places: Numbers, rows: pa.Table
) -> tuple[pa.Table, int]:
    """Fill rows, given by their places in the table, with the values of earlier events."""
    left_out = set(pc.unique(pc.list_flatten(rows["open"])).to_pylist())
    opened = [name for name in names if name in left_out]
    has = [f"coalesce(NOT list_contains(open, {_literal(name)}), true)" for name in opened]
    sources = ", ".join(f"coalesce(arg_max(place, {_ORDER}) FILTER ({sql}), -1)" for sql in has)
    last = ", ".join(f"NOT arg_max({sql}, {_ORDER})" for sql in has)
    _register(connection, table, "open")
    last_events = connection.execute(
        f"""SELECT arg_max(place, {_ORDER}), {sources}, {last} FROM arrived
        GROUP BY {", ".join(columns(table, "k"))} HAVING arg_max(open IS NOT NULL, {_ORDER})"""
    ).to_arrow_table()
    place, *states = (column.to_numpy() for column in last_events.columns)
    source, is_open = np.stack(states[: len(opened)]), np.stack(states[len(opened) :]).astype(np.bool_)
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
    of_rows = np.zeros((rows.num_rows, len(opened)), np.bool_)
    of_rows[at] = still.T
    rows = rows.set_column(rows.column_names.index("open"), "open", lists_of(opened, of_rows))
    return rows, int((~still.any(axis=0)).sum())


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _register(connection: duckdb.DuckDBPyConnection, table: pa.Table, *more: str) -> None:
    """Register keys and order of events in DuckDB as ``arrived``, with places and further columns."""
    parts = table.select([*columns(table, "p"), *columns(table, "k"), *ORDER_PARTS, *COUNTS, *more])
    connection.register("arrived", parts.append_column("place", pa.array(np.arange(table.num_rows, dtype=np.int64))))


@dataclass(frozen=True)
class Grouping:
    """How keys are divided into groups.

    :param partitioning: the target's; None if unknown, or tasks cannot evaluate it.
    :param spread: number of shares of a partition.
    """

    tasks: int
    partitioning: Partitioning | None = None
    spread: int = 1

    def with_partitions(self, table: pa.Table) -> pa.Table:
        """Return a table of the engine's layout with the partition values ``p0`` … of its keys."""
        return with_partitions(table, self.partitioning or ())

    def groups(self, table: pa.Table) -> Numbers:
        """Return the group of each row of a table with ``p0`` … and ``hash``."""
        hashes = table["hash"].to_numpy()
        if not self.partitioning:
            return hashes % self.tasks
        mixed = np.zeros(table.num_rows, np.int64)
        for name, one in zip(columns_of(self.partitioning), self.partitioning, strict=True):
            numbers = _numbers(table[name].combine_chunks())
            # buckets have numbers below their count, which makes groups even; other values any number below 2 to the
            # 31st
            mixed = (mixed * (one.transform.width if one.transform.kind == "bucket" else 31) + numbers) % (1 << 31)
        return (mixed * self.spread + hashes % self.spread) % self.tasks


def grouping(expressions: Sequence[str], key: Sequence[str], types: Sequence[str], tasks: int) -> Grouping:
    """Return how the keys of a target are grouped.

    :param expressions: the target's partition transforms in SQL.
    :param tasks: desired number of groups.
    """
    sources = {name: f"k{place}" for place, name in enumerate(key)}
    partitioning = find_partitioning(expressions, dict(zip(key, types, strict=True)), sources)
    if not partitioning:
        return Grouping(tasks, partitioning)
    partitions = count_of(partitioning)
    if partitions is None:
        return Grouping(tasks, partitioning, min(tasks, _SHARES))
    spread = max(1, -(-tasks // partitions))
    return Grouping(min(_MOST_TASKS, partitions * spread), partitioning, spread)


def _numbers(values: pa.Array) -> Numbers:
    """Return a number from 0, below 2 to the 31st, for each partition value, equal in all processes."""
    if pa.types.is_int32(values.type):
        numbers: Numbers = values.to_numpy().astype(np.int64)
        return numbers % (1 << 31)
    encoded = values.dictionary_encode()
    of_each = [crc32(str(value).encode()) >> 1 for value in encoded.dictionary.to_pylist()]
    return np.array(of_each, np.int64)[encoded.indices.to_numpy()]
