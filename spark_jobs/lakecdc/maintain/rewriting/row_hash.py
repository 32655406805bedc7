"""Order-independent hash of rows inside tasks: the proof that rewritten files have the rows that were read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecdc.runtime.unwanted_imports import without_pandas
from lakecdc.runtime.worker import duckdb_of_its_own

if TYPE_CHECKING:
    import duckdb

# sums of 64-bit hashes are kept as signed integers, which every column type of 64 bits holds
_SIGNED, _RANGE = 2**63, 2**64


def summed(hashes: Iterable[int]) -> int:
    """Add hashes of sets of rows: the hash of all of these rows."""
    return (sum(hashes) + _SIGNED) % _RANGE - _SIGNED


class RowHash:
    """The sum of a 64-bit hash of each row over some columns, nested ones included; one for a task.

    :param columns: the hashed columns; without any, the hash is 0.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        # a hash of several columns depends on their order, and a null has its own
        self._total = f"coalesce(sum(hash({', '.join(map(_quoted, columns))})), 0)"

    @cached_property
    def _engine(self) -> duckdb.DuckDBPyConnection:
        return duckdb_of_its_own()

    def of(self, rows: pa.Table) -> int:
        if not self._columns or not rows.num_rows:
            return 0
        with without_pandas():
            self._engine.register("hashed", rows.select(list(self._columns)))
        try:
            return _fetched(self._engine, f"SELECT {self._total} FROM hashed")
        finally:
            self._engine.unregister("hashed")

    def of_file(self, path: str) -> int:
        """Return the hash of a local Parquet file, which DuckDB reads itself: it has not written it."""
        with duckdb_of_its_own([path]) as engine:
            return _fetched(engine, f"SELECT {self._total} FROM read_parquet({_literal(path)})")


def _fetched(engine: duckdb.DuckDBPyConnection, query: str) -> int:
    row = engine.execute(query).fetchone()
    assert row is not None
    return summed([int(row[0])])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
