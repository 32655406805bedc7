"""Read a source table's description, and check whether it can feed a target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.target import Target
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.text_columns import TextColumn
from lakecdc.ingest.sources import database
from lakecdc.ingest.sources.database import check_named_columns, defaults, no_such_table
from lakecdc.ingest.sources.log import feed
from lakecdc.ingest.sources.mysql.connect import Session, query, quoted, variables
from lakecdc.ingest.sources.mysql.reading import Relation
from lakecdc.ingest.sources.mysql.table_map import BINARY, Named
from lakecdc.ingest.sources.mysql.types import BASES, BYTES, DATED, NUMERIC, MysqlType, convert
from lakecdc.ingest.sources.mysql.values import reader

_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, NUMERIC_PRECISION, NUMERIC_SCALE, EXTRA, IS_NULLABLE,
  COLUMN_DEFAULT, GENERATION_EXPRESSION
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
"""
_TABLE = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_KEYS = """
SELECT INDEX_NAME, COLUMN_NAME, SEQ_IN_INDEX = 1 AND SUB_PART IS NULL FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME IS NOT NULL
ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX
"""
_UNIQUE = """
SELECT INDEX_NAME, COLUMN_NAME, NULLABLE FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
"""
_CASCADES = """
SELECT CONSTRAINT_NAME, REFERENCED_TABLE_NAME, DELETE_RULE, UPDATE_RULE
FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""
_MEMBER = re.compile(r"(?s)'((?:[^'\\]|''|\\.?)*+)(?:'|\Z)")
_ESCAPED = re.compile(r"''|\\(.)")
_CONTROLS = {"0": "\0", "n": "\n", "r": "\r"}
_LITERAL = re.compile(r"(?s)b?'(?:[^']|'')*'|[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\Z")
_BY_ENGINE = "innodb_native_foreign_keys"
_QUIET_RULES = {"RESTRICT", "NO ACTION"}


@dataclass(frozen=True)
class SourceColumn(Named):
    """A current column of the source.

    :param type_name: full type, for messages.
    :param generated: computed when read, so the log may lack it.
    :param default: SQL of the constant that older rows have for the column; None is null.
    :param computed_default: older rows have a value that is not constant.
    """

    # the log's encoding does not depend on these
    type_name: str = field(default="", compare=False)
    generated: bool = field(default=False, compare=False)
    default: str | None = field(default=None, compare=False)
    computed_default: bool = field(default=False, compare=False)

    @property
    def base(self) -> str:
        return self.type.base if self.type else ""

    @property
    def unreadable(self) -> tuple[str, str] | None:
        """See :func:`lakecdc.ingest.sources.database.target_columns`."""
        if self.generated:
            return "is generated when it is read, so the log may lack it", ", or make it STORED at the source"
        if self.charset != BINARY and reader(self.charset) is None:
            why = f"has the character set {self.charset}, which Python cannot read"
            return why, ", or convert it to utf8mb4 at the source"
        return None


@dataclass(frozen=True)
class SourceTable(feed.SourceTable[SourceColumn]):
    """A source table and the target it feeds.

    :param leading: first column of an index, the primary key if there is one; full loads are cut by it.
    """

    leading: str | None


def source_name(target: Target, source: MysqlSource) -> tuple[str, str]:
    """Return database and name of a target's source table."""
    namespace, name = target.table.split(".")[-2:]
    if target.source_table is None:
        return source.database or namespace, name
    schema, dot, table = target.source_table.partition(".")
    return (schema, table) if dot else (source.database or namespace, schema)


def list_tables(session: Session) -> list[str]:
    """List users' tables, ``database.table``."""
    return [f"{schema}.{name}" for schema, name in query(session, _TABLES)]


def read_table(session: Session, target: Target, source: MysqlSource, mariadb: bool) -> SourceTable:
    """Read and check a target's source table.

    :raises InputError: it cannot feed the target.
    """
    place = source_name(target, source)
    rows = query(session, _TABLE, place)
    if not rows:
        remedy = 'Set "source_table" of its target to "database.table".'
        label = ".".join(place)
        what = f"The source has no table {label}, or the user has no access to it."
        raise no_such_table(what, label, list_tables(session), remedy)
    schema, name, kind, engine = rows[0]
    if kind != "BASE TABLE":
        raise InputError(
            f"{schema}.{name} is not an ordinary table ({kind.lower()}), so the log lacks some of its changes.",
            hint='Leave it out, with "exclude_source_tables" where a pattern includes it.',
        )
    columns = tuple(_column(row, mariadb) for row in query(session, _COLUMNS, (schema, name)))
    indexes = query(session, _KEYS, (schema, name))
    # values whose prefixes differ are different, so a prefix of a column identifies rows as the column does
    primary = tuple(column for index, column, _leads in indexes if index == "PRIMARY")
    leading = next((str(column) for _index, column, leads in indexes if leads), None)
    key = target.key or primary
    table = SourceTable(target, schema, name, columns, key, _is_unique(session, (schema, name), key), leading)
    _check(session, table, source, engine)
    return table


def _is_unique(session: Session, place: tuple[str, str], key: Sequence[str]) -> bool:
    """Check whether some columns include all columns of a unique index, and these are NOT NULL."""
    indexes: dict[str, list[bool]] = {}
    for index, column, nullable in query(session, _UNIQUE, place):
        # index expressions have no column
        indexes.setdefault(index, []).append(column in key and nullable != "YES")
    return any(map(all, indexes.values()))


def _check(session: Session, table: SourceTable, source: MysqlSource, engine: str) -> None:
    target = table.target
    if engine and engine.upper() != "INNODB":
        raise InputError(
            f"{table.label} uses the engine {engine}, which has no transactions: its rows and its log do not match "
            "exactly.",
            hint=f"Run ALTER TABLE {table.label} ENGINE = InnoDB.",
        )
    if target.keyed and not table.key:
        raise InputError(
            f"{table.label} has no primary key and the target names no key, so mode {target.mode} cannot tell "
            "its rows apart.",
            hint='Add a primary key, give the target a "key", or use mode append or history.',
        )
    check_named_columns(target, table.label, table.key, {column.name for column in table.columns})
    if source.allow_cascades:
        return
    for constraint, parent, on_delete, on_update in query(session, _CASCADES, (table.schema, table.name)):
        # where the server executes foreign keys instead of the engine (MySQL from 9.6 on), all changes are logged
        if {on_delete, on_update} - _QUIET_RULES and variables(session, _BY_ENGINE).get(
            _BY_ENGINE, ""
        ).upper() != "OFF":
            raise InputError(
                f"The foreign key {constraint!r} of {table.label} changes its rows when rows of {parent} change "
                f"(ON DELETE {on_delete}, ON UPDATE {on_update}), and such changes are not in the log.",
                hint="Let the application change the rows, or set source.allow_cascades if the rules never apply.",
            )


def unlogged(source: MysqlSource) -> str | None:
    """Return why the log may lack row changes; None if it has all."""
    return "allow_cascades lets the log lack changes" if source.allow_cascades else None


def target_columns(
    table: SourceTable, columns: Iterable[tuple[str, str, str | None]], key: Sequence[str]
) -> tuple[Column, ...]:
    """Return the target's columns for the source's.

    :param columns: name, base and Spark type of each, in order.
    :param key: columns that identify a row.
    :raises InputError: a column has no type or an unusable name.
    """
    known = {column.name: column for column in table.columns}
    types = [(n, spark_type, known[n].type_name if n in known else base) for n, base, spark_type in columns]
    unreadable = {name: why for name, column in known.items() if (why := column.unreadable)}
    return database.target_columns(table.target, key, types, unreadable)


def described(table: SourceTable) -> list[tuple[str, str, str | None]]:
    """Return the table's current columns in the form of :func:`target_columns`."""
    return [(c.name, c.base, c.type.spark if c.type else None) for c in table.columns]


def bases(table: SourceTable, relations: Iterable[Relation]) -> dict[str, str]:
    """Return the base of each column by name, the newest description first."""
    described: dict[str, str] = {}
    for relation in reversed([*relations]):
        for name, base, _type in relation.columns:
            described.setdefault(name, base)
    return {**{c.name: c.base for c in table.columns}, **described}


def _column(row: tuple[object, ...], mariadb: bool) -> SourceColumn:
    name, kind, full, charset, precision, scale, extra, nullable, default, expression = row
    base, full_type, flags = BASES.get(str(kind).lower()), str(full), str(extra or "").upper()
    unsigned = "unsigned" in full_type.lower().split() or "zerofill" in full_type.lower()
    sizes = {"decimal": (precision, scale), "bit": (precision,)}.get(base or "", ())
    # members of an enumeration may contain the word as well
    own_type = MysqlType(base, unsigned and base in NUMERIC, *(int(str(size)) for size in sizes)) if base else None
    members = tuple(_unescaped(m) for m in _MEMBER.findall(full_type)) if base in ("enum", "set") else ()
    named = str(name), own_type, unsigned, str(charset or BINARY), members, full_type, "VIRTUAL" in flags
    if "AUTO_INCREMENT" in flags or "DEFAULT_GENERATED" in flags:
        return SourceColumn(*named, computed_default=True)
    if default is None or (mariadb and str(default).upper() == "NULL"):
        implicit = None if nullable == "YES" else _implicit(base or "", full_type, members)
        return SourceColumn(*named, implicit, bool(expression))
    text = str(default)
    now = base in DATED and text.upper().startswith("CURRENT_TIMESTAMP")
    computed = now or bool(expression) or (mariadb and not _LITERAL.fullmatch(text))
    # as text it would be cut at a zero byte, or be in the time zone of the session that set it
    return SourceColumn(*named, None if computed else f"DEFAULT({quoted(str(name))})", computed)


def _unescaped(member: str) -> str:
    return _ESCAPED.sub(lambda match: _CONTROLS.get(match[1], match[1]) if match[1] else "'", member)


def _implicit(base: str, full_type: str, members: tuple[str, ...]) -> str | None:
    """Return the value of a NOT NULL column without a default in older rows; null for the zero dates."""
    if base in DATED:
        return None
    size = int((re.findall(r"\((\d+)\)", full_type) or [0])[0])
    if base == "enum":
        return "'" + members[0].replace("\\", "\\\\").replace("'", "''") + "'" if members else None
    if base == "time":
        return f"'00:00:00{'.' if size else ''}{'0' * size}'"
    if base == "json":
        return "'null'"
    if base == "binary":
        return f"x'{'00' * size}'"
    return "0" if base in NUMERIC else "''"


def with_fills(
    session: Session, table: SourceTable, columns: Sequence[Column], added: Sequence[str]
) -> tuple[Column, ...]:
    """Return the columns with the values that older rows have for them, which the log lacks.

    :raises InputError: such a column has no constant default, or no longer exists.
    """
    known = {column.name: column for column in table.columns}
    new = {name.lower() for name in added}
    missing = [name for name in added if name not in known and name not in table.target.exclude_columns]
    if missing:
        raise table.full_load_needed(
            f"The column {missing[0]!r} was added to {table.label} and then renamed or dropped, so its default is "
            "unknown"
        )
    for column in table.columns:
        if column.name.lower() in new and column.computed_default and column.name in {c.name for c in columns}:
            raise table.full_load_needed(
                f"The column {column.name!r} was added to {table.label} with a computed default"
            )
    filled = [c for c in columns if c.name in known and not c.required and known[c.name].default is not None]
    if not filled:
        return tuple(columns)
    defaults_sql = [f"CAST({as_text(str(known[c.name].default), known[c.name].base)} AS CHAR)" for c in filled]
    # one row, whatever the table has
    rows = f"(SELECT 1) AS one LEFT JOIN {quoted(table.schema, table.name)} ON false"
    texts = query(session, f"SELECT {', '.join(defaults_sql)} FROM {rows}")[0]
    named = {c.name: None if text is None else str(text) for c, text in zip(filled, texts, strict=True)}
    of = [TextColumn(c.name, known[c.name].base, c.type) for c in filled]
    fills = defaults(of, named, convert)
    return tuple(replace(column, fill=fills.get(column.name)) for column in columns)


def as_text(value: str, base: str) -> str:
    """Return the SQL expression by which a full load reads the same text as the log."""
    if base in BYTES:
        return f"HEX({value})"
    if base == "bit":
        return f"{value} + 0"
    # a float as text has only six digits; as a double it is exact, and so is -0
    return f"{value} * 1e0" if base == "float" else value
