"""Read a source table by Spark's JDBC reader: its columns, its key, and the rows of a cursor range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.contract.secrets import mask, resolve
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.target import Target
from lakecdc.iceberg.explain import explain
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.rows.cells import Cells, typed_cells
from lakecdc.ingest.sources.jdbc.dialects import DIALECTS, Dialect, source_name
from lakecdc.sql import quoted_column, sql_type

_TIMES = ("timestamp", "timestamp_ntz", "date")
# types that a time of day, a year or an array's text cannot be cast to
_NOT_OF_TEXT = ("timestamp", "date", "array")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FIRST = datetime(1970, 1, 1)
# in microseconds; no clock is ever set back by this much
_DAY = 86_400_000_000


class Database:
    """The database of a JDBC source.

    :raises InputError: it refuses the login.
    :raises SourceUnavailableError: it cannot be reached.
    """

    def __init__(self, spark: SparkSession, source: JdbcSource) -> None:
        self.spark, self.source = spark, source
        self.dialect: Dialect = DIALECTS[source.dialect]
        login = {"user": source.user, "password": resolve(source.password, "source.password")}
        self._properties = {
            **dict(self.dialect.settings),
            **{name: value for name, value in login.items() if value},
            "driver": self.dialect.driver,
            "fetchsize": str(source.fetch_size),
            # without it, times without a zone would be shifted by the cluster's zone
            "preferTimestampNTZ": "true",
        }
        try:
            self.query("SELECT 1 AS one").collect()
        except Exception as error:
            known = explain(error)
            refused = known is not None and known.refused
            raise (InputError if refused else SourceUnavailableError)(
                f"The database at {source.url} cannot be queried: {known.text if known and refused else _text(error)}",
                hint="Check url, user and password, and that the JDBC driver is on the class path.",
            ) from error

    def query(self, sql: str, types: str = "") -> DataFrame:
        """Return the rows of a query; ``types`` is the DDL of columns that the driver does not type."""
        custom = {"customSchema": types} if types else {}
        options = {"url": self.source.url, "query": sql, **self._properties, **custom}
        return self.spark.read.format("jdbc").options(**options).load()

    def rows(self, table: str, predicates: Sequence[str], types: str) -> DataFrame:
        """Return the rows of a table, one reader per predicate; ``types`` is the DDL of columns Spark must not type."""
        properties = {**self._properties, **({"customSchema": types} if types else {})}
        return self.spark.read.jdbc(self.source.url, table, predicates=list(predicates), properties=properties)


@dataclass(frozen=True)
class Stretch:
    """A half-open stretch of a cursor, in microseconds since 1970 or in its own units.

    :param low: None for the table's beginning, which includes rows without a cursor value.
    :param high: None for its end.
    """

    low: int | None
    high: int | None


class SourceTable:
    """The source table of a target.

    :param known: types of the target's columns by the source's names; empty if there is no table yet.
    :raises InputError: it does not exist, or its cursor column cannot be used.
    """

    def __init__(self, database: Database, target: Target, known: Mapping[str, str]) -> None:
        self.database, self.target, self.column = database, target, database.source.cursor_column
        dialect = database.dialect
        self.label = source_name(target, database.source.dialect)
        self.sql_name = ".".join(dialect.name(part) for part in self.label)
        self._types = ", ".join(f"{quoted_column(name)} {kind}" for name, kind in self._own_types(known).items())
        try:
            schema = database.rows(self.sql_name, ["1 = 0"], self._types).schema
        except Exception as error:
            raise InputError(
                f"The source table {'.'.join(self.label)} cannot be read: {_text(error)}",
                hint='Set "source_table" of its target to "schema.table", in the case in which the database keeps it.',
            ) from error
        self.columns = tuple(Column(f.name, sql_type(f.dataType)) for f in schema.fields)
        self.kind = self._cursor_kind()

    @property
    def is_time(self) -> bool:
        return self.kind in _TIMES

    def _cursor_kind(self) -> str:
        kinds = {c.name: c.type for c in self.columns}
        kind = kinds.get(self.column)
        if kind is None:
            raise InputError(
                f"The source table {'.'.join(self.label)} has no column {self.column!r}.",
                hint=f"cursor_column must be one of {', '.join(kinds)}; case matters.",
            )
        if kind in (*_TIMES, *_INTEGERS) or (kind.startswith("decimal") and kind.endswith(",0)")):
            return kind
        raise InputError(
            f"The cursor column {self.column!r} is of type {kind}.",
            hint="It must be a timestamp, a date or an integer that rises with every change of a row.",
        )

    def key(self) -> tuple[str, ...]:
        """Return the target's key, or else the source table's primary key."""
        if self.target.key:
            return self.target.key
        rows = self._described(self.database.dialect.key_query, "name string, place int")
        return tuple(row["name"] for row in sorted(rows, key=lambda row: row["place"]))

    def _own_types(self, known: Mapping[str, str]) -> dict[str, str]:
        """Return columns that Spark must not type: text columns of the target, and those that Spark would misread."""
        rows = self._described(self.database.dialect.type_query, "name string, type string")
        misread = {row["name"]: row["type"] for row in rows}
        target_types = {**known, **self.target.columns}
        texts = {name: "string" for name, kind in self.target.columns.items() if kind == "string"}
        as_text = {n: t for n, t in misread.items() if not target_types.get(n, "string").startswith(_NOT_OF_TEXT)}
        types = {**as_text, **texts}
        # a cursor read as text could not be compared
        return {n: t for n, t in types.items() if n != self.column or n in texts or t in _INTEGERS}

    def _described(self, query: str | None, types: str) -> list[Row]:
        """Return the rows of a dialect's query about this table; empty if the dialect has none."""
        schema, table = ("", *self.label)[-2:]
        sql = query and query.format(schema=_literal(schema), table=_literal(table))
        return self.database.query(sql, types).collect() if sql else []

    def bounds(self, stretch: Stretch) -> tuple[int, int] | None:
        """Return the lowest and highest cursor value of the rows in a stretch; None if no row has one."""
        column = self.database.dialect.name(self.column)
        sql = f"SELECT min({column}) AS low, max({column}) AS high FROM {self.sql_name} WHERE {self._within(stretch)}"
        number = "unix_micros(CAST({0} AS timestamp))" if self.is_time else "CAST({0} AS bigint)"
        # SQLite has types only for columns, not for expressions
        kind = "string" if self.is_time else "bigint"
        types = f"low {kind}, high {kind}" if self.database.source.dialect == "sqlite" else ""
        row = (
            self.database.query(sql, types).selectExpr(*[f"{number.format(n)} AS {n}" for n in ("low", "high")]).first()
        )
        return None if row is None or row["low"] is None else (row["low"], row["high"])

    def cells(self, predicates: Sequence[str], *, numbered: bool) -> Cells:
        """Return the rows that meet one of the conditions, SQL of the database, each read by one task.

        :param numbered: number equal rows, from 0.
        """
        rows = self.database.rows(self.sql_name, predicates, self._types)
        cells = rows.select(F.struct(*[F.col(quoted_column(c.name)) for c in self.columns]).alias("cells"))
        same = Window.partitionBy(F.to_json("cells")).orderBy(F.lit(0))
        arrival = F.row_number().over(same) - 1 if numbered else F.lit(0)
        source = F.lit(".".join(self.label)).alias("source")
        return typed_cells(cells.select("cells", source, arrival.cast("bigint").alias("arrival")), self.columns)

    def shares(self, stretch: Stretch, bounds: tuple[int, int] | None) -> list[str]:
        """Return the conditions of a stretch's rows, one per reader; ``bounds`` are those of their cursors."""
        count, column = self.database.source.partitions, self.database.dialect.name(self.column)
        shares = [self._within(stretch)]
        if bounds is not None and count > 1 and bounds[0] < bounds[1]:
            low, high = bounds
            steps = sorted({low + (high - low) * i // count for i in range(1, count)})
            edges = dict.fromkeys(map(self._written, steps))
            ends = [None, *edges, None]
            shares = [
                " AND ".join(
                    [
                        self._within(stretch),
                        *([f"{column} >= {begin}"] if begin else []),
                        *([f"{column} < {end}"] if end else []),
                    ]
                )
                for begin, end in zip(ends, ends[1:], strict=False)
            ]
        return [*shares, f"{column} IS NULL"] if stretch.low is None else shares

    def _within(self, stretch: Stretch) -> str:
        column = self.database.dialect.name(self.column)
        parts = [f"{column} IS NOT NULL"]
        low, high = stretch.low, stretch.high
        if self.kind == "timestamp_ntz":
            low, high = self._local(stretch)
        elif self.kind == "date":
            low, high = (None if n is None else n + self._offset(n) for n in (low, high))
        if low is not None:
            parts.append(f"{column} >= {self._written(low)}")
        if high is not None:
            parts.append(f"{column} < {self._written(high)}")
        return " AND ".join(parts)

    def _local(self, stretch: Stretch) -> tuple[int | None, int | None]:
        """Return ends of a stretch on the clock of ``cursor_zone``.

        If the clock is set back meanwhile, they include the repeated hour.
        """
        low, high = stretch.low, stretch.high
        if low is not None:
            soon = low + _DAY if high is None else min(low + _DAY, high)
            low += min(self._offset(low), self._offset(soon))
        if high is not None:
            before = high - _DAY if stretch.low is None else max(high - _DAY, stretch.low)
            high += max(self._offset(high), self._offset(before))
        return low, high

    def _offset(self, number: int) -> int:
        """Return the offset of ``cursor_zone`` from UTC at a time, in microseconds."""
        moment = (_FIRST + timedelta(microseconds=number)).replace(tzinfo=UTC)
        ahead = moment.astimezone(ZoneInfo(self.database.source.cursor_zone)).utcoffset()
        assert ahead is not None
        return ahead // timedelta(microseconds=1)

    def _written(self, number: int) -> str:
        """Return a cursor value as SQL; a time is given in microseconds since 1970 on its own clock."""
        if not self.is_time:
            return str(number)
        return self.database.dialect.moment(_FIRST + timedelta(microseconds=number), self.kind)


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _text(error: Exception) -> str:
    lines: list[Any] = [line for line in str(error).splitlines() if line.strip()]
    return mask(lines[0] if lines else type(error).__name__)
