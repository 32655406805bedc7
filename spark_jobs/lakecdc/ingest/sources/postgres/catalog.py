"""Read a source table from the catalog, and check whether it can feed a target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.change import Column
from lakecdc.ingest.sources import database
from lakecdc.ingest.sources.database import check_named_columns, no_such_table
from lakecdc.ingest.sources.log import feed
from lakecdc.ingest.sources.postgres.connect import Session, one
from lakecdc.ingest.sources.postgres.types import TypeCatalog

_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname !~ '^pg_' AND n.nspname != 'information_schema'
"""
_TABLE = """
SELECT c.oid, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_NAME = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s"
_COLUMNS = """
SELECT attname, atttypid, atttypmod, attgenerated <> '', attnum FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# the value of a column in older rows (ADD COLUMN … DEFAULT); the log lacks it
_MISSING_VALUES = """
SELECT DISTINCT ON (attname) attname, (attmissingval::text::text[])[1], atttypid FROM pg_attribute
WHERE (attrelid = %(oid)s OR attrelid IN (SELECT relid FROM pg_partition_tree(%(oid)s)))
  AND atthasmissing AND NOT attisdropped ORDER BY attname, attrelid
"""
# only an immediate index identifies rows in the log; columns after INCLUDE are not part of the key
_PRIMARY_KEY = """
SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, place), pg_attribute a
WHERE i.indrelid = %s AND i.indisprimary AND i.indimmediate AND k.place <= i.indnkeyatts
  AND a.attrelid = i.indrelid AND a.attnum = k.attnum
ORDER BY k.place
"""
# any unique index on NOT NULL columns of the key
_UNIQUE = """
SELECT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
  AND NOT EXISTS (SELECT FROM unnest(i.indkey) WITH ORDINALITY k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE k.place <= i.indnkeyatts AND NOT (a.attnotnull AND a.attname = ANY(%s::text[]))))
"""
# the tables with rows: the table itself, or the leaves of a partitioned one
_LEAVES = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
  ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, place), pg_attribute a
    WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND a.attnum = k.attnum AND k.place <= i.indnkeyatts
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate
      WHEN 'i' THEN i.indisreplident ELSE false END
    ORDER BY k.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s AND c.relkind <> 'p'
   OR c.relkind <> 'p' AND c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s) WHERE %(partitioned)s AND isleaf)
ORDER BY c.oid
"""
# a query of the table returns their rows too, but its log lacks them
_CHILDREN = """
SELECT n.nspname || '.' || c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE i.inhparent = %s ORDER BY 1
"""


@dataclass(frozen=True)
class SourceColumn:
    """A column at the source.

    :param generated: computed by the source; the log lacks it.
    :param number: its number, which a rename does not change.
    """

    name: str
    type_oid: int
    type_modifier: int
    generated: bool = False
    number: int = 0


@dataclass(frozen=True)
class Leaf:
    """A table with rows.

    :param kind: ``r`` table, ``f`` foreign table.
    :param identity: ``d`` default, ``n`` nothing, ``f`` full, ``i`` index.
    :param identity_columns: columns that the log has of an updated or deleted row; empty for full.
    """

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    identity_columns: tuple[str, ...]


@dataclass(frozen=True)
class SourceTable(feed.SourceTable[SourceColumn]):
    """A source table and the target it feeds.

    :param children: tables that inherit from it; their rows are left out.
    """

    oid: int
    leaves: tuple[Leaf, ...]
    children: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, list[str]]:
        return {"child_tables_left_out": [*self.children]} if self.children else {}

    @property
    def numbers(self) -> dict[str, int | None]:
        return {column.name: column.number for column in self.columns}


def source_name(target: Target) -> tuple[str, str]:
    """Return schema and name of a target's source table."""
    text = target.source_table or ".".join(target.table.split(".")[-2:])
    schema, dot, name = text.partition(".")
    return (schema, name) if dot else ("public", schema)


def list_tables(session: Session) -> list[str]:
    """List users' tables, ``schema.table``."""
    return [f"{schema}.{name}" for schema, name in session.execute(_TABLES)]


def find_table(session: Session, target: Target) -> tuple[int, str] | None:
    """Return oid and kind of a target's source table, or None."""
    row = session.execute(_TABLE, source_name(target)).fetchone()
    return (row[0], row[1]) if row else None


def table_of(session: Session, oid: int) -> str | None:
    """Return ``schema.table`` of an oid, or None."""
    row = session.execute(_NAME, (oid,)).fetchone()
    return f"{row[0]}.{row[1]}" if row else None


def read_table(session: Session, target: Target) -> SourceTable:
    """Read and check a target's source table.

    :raises InputError: it cannot feed the target: it is missing, has no usable key or its log lacks something.
    """
    schema, name = source_name(target)
    relation = find_table(session, target)
    if relation is None:
        remedy = 'Set "source_table" of its target to "schema.table", with the case as in Postgres.'
        label = f"{schema}.{name}"
        raise no_such_table(f"The source has no table {label}.", label, list_tables(session), remedy)
    oid, kind = relation
    if kind not in "rp":
        raise InputError(f"{schema}.{name} is not a table (relkind {kind}).")
    columns = tuple(SourceColumn(*row) for row in session.execute(_COLUMNS, (oid,)))
    parameters = {"oid": oid, "partitioned": kind == "p"}
    rows = session.execute(_LEAVES, parameters).fetchall()
    leaves = tuple(Leaf(r[0], r[1], r[2], r[3], r[4], tuple(r[5])) for r in rows)
    primary = tuple(row[0] for row in session.execute(_PRIMARY_KEY, (oid,)))
    indexed = {leaf.identity_columns if leaf.identity == "i" else () for leaf in leaves}
    key = target.key or primary or (indexed.pop() if len(indexed) == 1 else ())
    children = tuple(row[0] for row in session.execute(_CHILDREN, (oid,))) if kind == "r" else ()
    (unique,) = one(session, _UNIQUE, oid, list(key))
    table = SourceTable(target, schema, name, columns, key, unique, oid, leaves, children)
    _check_key(table)
    for leaf in leaves:
        _check_leaf(table, leaf)
    return table


def missing_values(session: Session, oid: int) -> dict[str, tuple[str, int]]:
    """Return the text and type of constant column defaults in older rows, by column."""
    return {row[0]: (row[1], row[2]) for row in session.execute(_MISSING_VALUES, {"oid": oid}) if row[1] is not None}


def _check_key(table: SourceTable) -> None:
    if not table.key:
        raise InputError(
            f"{table.label} has no primary key (a deferrable one does not count) and the target names no key, so mode "
            f"{table.target.mode} cannot tell its rows apart.",
            hint='Add a primary key, or run ALTER TABLE … REPLICA IDENTITY FULL and give the target a "key".',
        )
    check_named_columns(table.target, table.label, table.key, {column.name for column in table.columns})


def _check_leaf(table: SourceTable, leaf: Leaf) -> None:
    """Check that a leaf's log has the key of each changed row, and that publishing the leaf breaks no writer."""
    label = f"{leaf.schema}.{leaf.name}"
    if leaf.kind != "r":
        raise InputError(f"{label} is not an ordinary table (relkind {leaf.kind}), so it has no log.")
    if leaf.identity == "n" or (leaf.identity != "f" and not leaf.identity_columns):
        raise InputError(
            f"{label} has no replica identity; if it were published, the source would refuse its updates and deletes.",
            hint="Add a primary key, or run ALTER TABLE … REPLICA IDENTITY FULL.",
        )
    missing = sorted(set(table.key) - set(leaf.identity_columns))
    if leaf.identity != "f" and missing:
        raise InputError(
            f"The log of {label} has only {', '.join(leaf.identity_columns)} of a deleted row, not the key column "
            f"{missing[0]!r}.",
            hint="Run ALTER TABLE … REPLICA IDENTITY FULL at the source, or remove the target's key to use the primary "
            "key.",
        )


def column_numbers(session: Session, oid: int) -> dict[str, int]:
    """Return the numbers of columns, which renames do not change."""
    return {str(row[0]): int(row[-1]) for row in session.execute(_COLUMNS, (oid,))}


def target_columns(
    target: Target, key: tuple[str, ...], columns: Iterable[Any], types: TypeCatalog
) -> tuple[Column, ...]:
    """Return the target's columns for the source's.

    :param columns: source columns in order, with ``name``, ``type_oid`` and ``type_modifier``.
    :raises InputError: a column has no type or an unusable name.
    """
    described, unreadable = [], {}
    for column in columns:
        if column.name in target.exclude_columns:
            continue
        kind = types.spark_type(column.type_oid, column.type_modifier)
        described.append((column.name, kind, types.name(column.type_oid)))
        if getattr(column, "generated", False):
            unreadable[column.name] = "is generated, and Postgres leaves generated columns out of its log", ""
    return database.target_columns(target, key, described, unreadable)
