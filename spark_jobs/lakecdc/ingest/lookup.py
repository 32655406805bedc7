"""Look up keys in the target: their rows, and the places of these."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.key_search.places import collect_keys, find_places, refusal
from lakecdc.reader.projection import UnreadError
from lakecdc.sql import quoted_column, sql_types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.key_search.places import Places

log = logging.getLogger(__name__)

_AS_TEXT = ("date", "timestamp_ntz")
_ENDS = ((0, F.min), (1, F.max))
#: up to this many rows are broadcast to the tasks that read the table; beyond, the table's rows are shuffled
MOST_BROADCAST = 250_000


@dataclass(frozen=True)
class LookedUp:
    """The table's visible rows of some keys.

    :param read: returns the rows, with current column names; or a task's output for them, given the task and its
        schema.
    :param places: places of these rows, which a commit of resolved deletes need not search again; None if Iceberg's own
        reader has looked up the keys.
    """

    read: Callable[..., DataFrame]
    places: Places | None

    @property
    def rows(self) -> DataFrame:
        """Return the rows as a frame."""
        return self.read()

    def where(self, condition: Column | str) -> LookedUp:
        """Return the rows that fulfil a condition."""
        return _in_frame(self.rows.where(condition))


def look_up(
    table: IcebergTable,
    keys: DataFrame,
    key: Sequence[str],
    snapshot_id: int | None = None,
    columns: Sequence[str] | None = None,
    beside: DataFrame | None = None,
) -> LookedUp:
    """Look up keys in the table.

    :param keys: columns as in ``key``.
    :param snapshot_id: state to read; default: the current one.
    :param columns: columns to read besides the key; default: all. Columns that the table lacks are left out.
    :param beside: further keys, of whose rows only the places are needed.
    """
    chosen = [name for name in table.column_names if columns is None or name in {*key, *columns}]
    snapshot = table.head() if snapshot_id is None else table.snapshot(snapshot_id)
    why = refusal(table, key, chosen)
    if snapshot is not None and why is None:
        try:
            own = collect_keys(table, keys, key)
            searched = own if beside is None else pa.concat_tables([own, collect_keys(table, beside, key)])
            places = find_places(table, snapshot, key, searched, chosen)
            return LookedUp(partial(places.read, chosen, None if beside is None else own), places)
        except UnreadError as error:
            why = str(error)
    if why is not None:
        log.info("%s: Iceberg's reader looks up the keys, because %s", table.name, why)
    rows = _read_keys(table, keys, key, snapshot_id)
    rows = rows.select(*[quoted_column(name) for name in chosen if name in rows.columns])
    return _in_frame(rows)


def _in_frame(rows: DataFrame) -> LookedUp:
    return LookedUp(lambda then=None, schema="": run_tasks(rows, then, schema) if then else rows, None)


def read_keys(
    table: IcebergTable,
    keys: DataFrame,
    key: Sequence[str],
    snapshot_id: int | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the table's visible rows of some keys; see :func:`look_up`."""
    return look_up(table, keys, key, snapshot_id, columns).rows


def held_orders(table: IcebergTable, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return order keys of the table's visible rows of some keys: ``key, held``."""
    stored = read_keys(table, keys, key, columns=[ORDER_COLUMN])
    return stored.select(F.struct(*[quoted_column(k) for k in key]).alias("key"), F.col(ORDER_COLUMN).alias("held"))


def _read_keys(table: IcebergTable, keys: DataFrame, key: Sequence[str], snapshot_id: int | None) -> DataFrame:
    """Read the rows with Iceberg's own reader; the keys' bounds as literals let it skip files."""
    rows, types = _rows_at(table, snapshot_id), sql_types(keys)
    ends = [f(quoted_column(k)).alias(f"m{i}_{j}") for i, k in enumerate(key) for j, f in _ENDS]
    measured = keys.agg(F.count(F.lit(1)).alias("count"), *ends)
    plain_ends = [plain(f"m{i}_{j}", types[k]) for i, k in enumerate(key) for j, _ in _ENDS]
    ((count, *bounds),) = measured.select("count", *plain_ends).collect()
    for place, name in enumerate(key):
        low, high = bounds[2 * place : 2 * place + 2]
        if low is not None:
            column, kind = F.col(quoted_column(name)), types[name]
            rows = rows.where((column >= _literal(low, kind)) & (column <= _literal(high, kind)))
    return rows.join(F.broadcast(keys) if count <= MOST_BROADCAST else keys, list(key), "left_semi")


def _rows_at(table: IcebergTable, snapshot_id: int | None) -> DataFrame:
    if snapshot_id is None or ((head := table.head()) and head.id == snapshot_id):
        return table.read()
    # a snapshot is read with its own column names
    now = table.names_at(snapshot_id)
    rows = table.read(snapshot_id).select(*[F.col(quoted_column(old)).alias(new) for old, new in now.items()])
    if all(old == new for old, new in now.items()):
        return rows
    # but Iceberg resolves names in filters by the current schema, so filters must not be pushed down
    return run_tasks(rows, lambda batches: batches, rows.schema)


def plain(column: str, sql_type: str) -> Column:
    """Return a column as values that pass through Python unchanged.

    A ``datetime`` would get this machine's time zone, and py4j refuses a ``date`` before the year 1000.
    """
    if sql_type == "timestamp":
        return F.unix_micros(column)
    return F.col(column).cast("string") if sql_type in _AS_TEXT else F.col(column)


def _literal(value: Any, sql_type: str) -> Column:
    """Return a value of :func:`plain` as a literal of its type."""
    if sql_type == "timestamp":
        return F.timestamp_micros(F.lit(value))
    return F.lit(value).cast(sql_type) if sql_type in _AS_TEXT else F.lit(value)
