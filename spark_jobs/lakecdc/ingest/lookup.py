"""Look up keys in the target with pruned reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.sql import quoted_column, sql_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable

_AS_TEXT = ("date", "timestamp_ntz")
_ENDS = ((0, F.min), (1, F.max))


def read_keys(table: IcebergTable, keys: DataFrame, key: Sequence[str], snapshot_id: int | None = None) -> DataFrame:
    """Return the table's visible rows of some keys.

    :param keys: distinct keys, columns as in ``key``.
    :param snapshot_id: state to read; default: the current one.
    :return: under the names that the columns have now.
    """
    return read_between(table, keys, key, snapshot_id).join(F.broadcast(keys), list(key), "left_semi")


def read_between(table: IcebergTable, keys: DataFrame, key: Sequence[str], snapshot_id: int | None = None) -> DataFrame:
    """Return the visible rows between the bounds of the keys, and more in their files; see :func:`read_keys`."""
    return KeyBounds.of(keys, key).read(table, snapshot_id)


@dataclass(frozen=True)
class KeyBounds:
    """The number of keys; of each column the lowest and highest :func:`plain` value, which are None without keys."""

    count: int
    ends: Mapping[str, tuple[Any, Any]]
    types: Mapping[str, str]

    @classmethod
    def of(cls, keys: DataFrame, key: Sequence[str]) -> KeyBounds:
        """Measure keys, columns as in ``key``."""
        types = sql_types(keys)
        ends = [f(quoted_column(k)).alias(f"m{i}_{j}") for i, k in enumerate(key) for j, f in _ENDS]
        measured = keys.agg(F.count(F.lit(1)).alias("count"), *ends)
        plain_ends = [plain(f"m{i}_{j}", types[k]) for i, k in enumerate(key) for j, _ in _ENDS]
        (row,) = measured.select("count", *plain_ends).collect()
        return cls(row[0], {k: (row[2 * i + 1], row[2 * i + 2]) for i, k in enumerate(key)}, types)

    def read(self, table: IcebergTable, snapshot_id: int | None = None) -> DataFrame:
        """Return the visible rows between the bounds; as literals, they let Iceberg skip files without the keys."""
        rows = _rows_at(table, snapshot_id)
        for name, (low, high) in self.ends.items():
            if low is not None:
                column, kind = F.col(quoted_column(name)), self.types[name]
                rows = rows.where((column >= _literal(low, kind)) & (column <= _literal(high, kind)))
        return rows


def _rows_at(table: IcebergTable, snapshot_id: int | None) -> DataFrame:
    if snapshot_id is None or ((head := table.head()) and head.id == snapshot_id):
        return table.read()
    # a snapshot is read with the column names of its time
    now = table.names_at(snapshot_id)
    rows = table.read(snapshot_id).select(*[F.col(quoted_column(old)).alias(new) for old, new in now.items()])
    if all(old == new for old, new in now.items()):
        return rows
    # but Iceberg resolves names in filters by the current schema: no filter must be pushed down
    return rows.mapInArrow(lambda batches: batches, rows.schema)


def held_orders(table: IcebergTable, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return order keys of the table's visible rows of some distinct keys: ``key, held``."""
    stored = read_keys(table, keys, key)
    return stored.select(F.struct(*[quoted_column(k) for k in key]).alias("key"), F.col(ORDER_COLUMN).alias("held"))


def plain(column: str, sql_type: str) -> Column:
    """Return a column as values that come back from Python unchanged.

    A ``datetime`` would take this machine's time zone, and py4j takes no ``date`` before the year 1000.
    """
    if sql_type == "timestamp":
        return F.unix_micros(column)
    return F.col(column).cast("string") if sql_type in _AS_TEXT else F.col(column)


def _literal(value: Any, sql_type: str) -> Column:
    """Return a value of :func:`plain` as a literal of its type."""
    if sql_type == "timestamp":
        return F.timestamp_micros(F.lit(value))
    return F.lit(value).cast(sql_type) if sql_type in _AS_TEXT else F.lit(value)
