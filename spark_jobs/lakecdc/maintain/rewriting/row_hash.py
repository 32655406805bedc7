"""Hash rows inside tasks, independent of their order, to prove that rewritten files have the rows that were read."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecdc.reader.projection import UnreadError
from lakecdc.runtime.worker import open_duckdb, without_pandas

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

# sums of 64-bit hashes are kept as signed integers, which every column type of 64 bits holds
_SIGNED, _RANGE = 2**63, 2**64


def summed(hashes: Iterable[int]) -> int:
    """Add the hashes of sets of rows, which gives the hash of all rows."""
    return (sum(hashes) + _SIGNED) % _RANGE - _SIGNED


class RowHash:
    """The sum of a 64-bit hash of each row over some columns, including nested columns; one for a task.

    :param columns: the hashed columns; without any, the hash is 0.
    :param uuids: columns with uuids in Arrow; readers may return them as text.
    """

    def __init__(self, columns: Sequence[str], uuids: Sequence[pa.Field] = ()) -> None:
        self._columns, self._uuids = list(columns), uuids

    @cached_property
    def _engine(self) -> duckdb.DuckDBPyConnection:
        return open_duckdb()

    def of(self, rows: pa.Table) -> int:
        """Return the hash of rows.

        :raises UnreadError: DuckDB cannot represent a value, such as a map with a duplicate key.
        """
        import duckdb

        if not self._columns or not rows.num_rows:
            return 0
        with without_pandas():
            self._engine.register("hashed", _exact(rows.select(self._columns)))
        try:
            return _fetched(self._engine, f"SELECT {self._total(rows.schema)} FROM hashed")
        except duckdb.Error as error:
            raise UnreadError(f"rows cannot be hashed: {error}") from error
        finally:
            self._engine.unregister("hashed")

    def of_file(self, path: str, schema: pa.Schema) -> int | None:
        """Return the hash of a local Parquet file, read by DuckDB, not by its writer Arrow; None if DuckDB cannot."""
        import duckdb

        if _exact_schema(schema) != schema:
            return None
        total = self._total(schema)
        try:
            with open_duckdb([path]) as engine:
                query = f"SELECT {total} FROM read_parquet({_literal(path)}, hive_partitioning = false)"
                return _fetched(engine, query)
        except duckdb.Error as error:
            log.info("DuckDB cannot read %s: %s", path, error)
            return None

    @cached_property
    def _casts(self) -> dict[str, str]:
        """Return DuckDB's types of columns with uuids, to cast their text."""
        if not self._uuids:
            return {}
        like = self._engine.from_arrow(pa.RecordBatchReader.from_batches(pa.schema(self._uuids), []))
        return {name: f"::{kind}" for name, kind in zip(like.columns, like.types, strict=True)}

    def _total(self, schema: pa.Schema) -> str:
        """Return the aggregate: a hash of several columns depends on their order, and null has a hash too."""
        hashed = []
        for name in self._columns:
            value = f"{_quoted(name)}{self._casts.get(name, '')}"
            hashed += [value, *_shape(value, schema.field(name).type)]
        return f"coalesce(sum(hash({', '.join(hashed)})), 0)"


def _exact(rows: pa.Table) -> pa.Table:
    schema = _exact_schema(rows.schema)
    return rows if schema == rows.schema else rows.cast(schema)


def _exact_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_exact_type(field.type)) for field in schema])


def _exact_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which DuckDB keeps all digits: its times with time zone have no nanoseconds."""

    def exact(*fields: pa.Field) -> list[pa.Field]:
        return [field.with_type(_exact_type(field.type)) for field in fields]

    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("ns")
    if pa.types.is_struct(kind):
        return pa.struct(exact(*kind))
    if pa.types.is_map(kind):
        return pa.map_(*exact(kind.key_field, kind.item_field))
    return pa.list_(*exact(kind.value_field)) if pa.types.is_list(kind) else kind


def _shape(value: str, kind: pa.DataType, depth: int = 0) -> list[str]:
    """Return what DuckDB's hash of a nested value leaves out: nulls, and the lengths of lists.

    The hash of an empty list is that of null, and the hash of a list of lists that of their elements.
    """
    if pa.types.is_struct(kind):
        members = [_shape(f"struct_extract({value}, {_literal(each.name)})", each.type, depth) for each in kind]
        return [f"{value} IS NULL", *itertools.chain(*members)]
    if pa.types.is_map(kind):
        elements, element = f"map_values({value})", kind.item_type
    elif pa.types.is_list(kind):
        elements, element = value, kind.value_type
    else:
        return [f"{value}::VARCHAR"] if pa.types.is_nested(kind) else []
    inner = _shape(f"x{depth}", element, depth + 1)
    return [f"len({elements})", *([f"[hash({', '.join(inner)}) FOR x{depth} IN {elements}]"] if inner else [])]


def _fetched(engine: duckdb.DuckDBPyConnection, query: str) -> int:
    row = engine.execute(query).fetchone()
    assert row is not None
    return summed([int(row[0])])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
