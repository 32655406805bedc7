"""Differences between databases: drivers, names, literals, queries for the primary key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lakecdc.contract.target import Target


@dataclass(frozen=True)
class Dialect:
    """One kind of database.

    :param driver: class of its JDBC driver.
    :param quote: character around names.
    :param schema: default schema of tables; None if the database needs none.
    :param key_query: names and places (from 1) of a table's primary key columns; ``{schema}`` and ``{table}`` are
        literals.
    :param settings: of every connection.
    :param type_query: columns whose values Spark would round, cut or misread, and types that hold them, ``name`` and
        ``type``; parameters as in ``key_query``. None if there are none.
    """

    driver: str
    quote: str
    schema: str | None
    key_query: str
    settings: tuple[tuple[str, str], ...] = ()
    type_query: str | None = None

    def name(self, text: str) -> str:
        return f"{self.quote}{text.replace(self.quote, self.quote * 2)}{self.quote}"

    def moment(self, moment: datetime, kind: str) -> str:
        """Return a moment as SQL.

        :param moment: in UTC for kind ``timestamp``, else without a zone.
        :param kind: Spark's type of the column: ``timestamp``, ``timestamp_ntz`` or ``date``.
        """
        if kind == "date":
            return f"DATE '{moment:%Y-%m-%d}'"
        return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}'"


class Postgres(Dialect):
    def moment(self, moment: datetime, kind: str) -> str:
        if kind == "timestamp":
            return f"TIMESTAMPTZ '{moment:%Y-%m-%d %H:%M:%S.%f}+00'"
        return super().moment(moment, kind)


class Sqlite(Dialect):
    """SQLite, which stores times as text."""

    def moment(self, moment: datetime, kind: str) -> str:
        return f"'{moment:%Y-%m-%d}'" if kind == "date" else f"'{moment:%Y-%m-%d %H:%M:%S.%f}'"[:-4] + "'"


DIALECTS: dict[str, Dialect] = {
    "postgresql": Postgres(
        "org.postgresql.Driver",
        '"',
        "public",
        "SELECT a.attname AS name, k.place AS place FROM pg_index i "
        "CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
        "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE i.indisprimary AND k.place <= i.indnkeyatts AND n.nspname = {schema} AND c.relname = {table}",
        (("tcpKeepAlive", "true"),),
        # a numeric's precision is in the upper half of its modifier; the depth of an array is unknown
        type_query="SELECT a.attname AS name, 'string' AS type "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = {schema} AND c.relname = {table} AND a.attnum > 0 AND (t.typname IN ('time', 'timetz') "
        "OR t.typcategory = 'A' OR t.typname = 'numeric' AND (a.atttypmod < 0 OR ((a.atttypmod - 4) >> 16) > 38 "
        "OR (a.atttypmod - 4) & 1024 > 0))",
    ),
    "mysql": Dialect(
        "com.mysql.cj.jdbc.Driver",
        "`",
        None,
        "SELECT column_name AS name, ordinal_position AS place FROM information_schema.key_column_usage "
        "WHERE constraint_name = 'PRIMARY' AND table_schema = {schema} AND table_name = {table}",
        # makes time literals and TIMESTAMP values UTC
        (("connectionTimeZone", "UTC"), ("forceConnectionTimeZoneToSession", "true")),
        "SELECT column_name AS name, CASE WHEN data_type IN ('time', 'decimal') THEN 'string' "
        "WHEN data_type = 'bit' THEN CASE WHEN numeric_precision < 64 THEN 'bigint' ELSE 'decimal(20,0)' END "
        "ELSE 'int' END AS type FROM information_schema.columns WHERE table_schema = {schema} AND table_name = {table} "
        "AND (data_type IN ('time', 'year') OR column_type LIKE 'tinyint(1)%' "
        "OR data_type = 'bit' AND numeric_precision > 1 OR data_type = 'decimal' AND numeric_precision > 38)",
    ),
    "sqlite": Sqlite(
        "org.sqlite.JDBC",
        '"',
        None,
        "SELECT name, pk AS place FROM pragma_table_info({table}) WHERE pk > 0",
        # every integer has 64 bits, whatever the declared type
        type_query="SELECT name, 'bigint' AS type FROM pragma_table_xinfo({table}) WHERE upper(type) LIKE '%INT%'",
    ),
}


def source_name(target: Target, dialect: str) -> tuple[str, ...]:
    """Return schema and name of a target's source table; the name alone in SQLite."""
    parts = (target.source_table or ".".join(target.table.split(".")[-2:])).split(".", 1)
    if dialect == "sqlite":
        return (parts[-1],)
    return tuple(parts) if len(parts) == 2 else (DIALECTS[dialect].schema or parts[0], parts[0])
