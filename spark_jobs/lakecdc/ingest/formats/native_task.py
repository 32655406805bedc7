"""What runs in a Python task of the native engine: Arrow batches of messages in, Arrow batches of changes out.

All values are read as text and must be exact in their column's type; what is not exact is ``odd`` and stops the task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.values import Field, placeholder_shapes

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
_PLAIN = {*_INTEGERS, "float", "double", "boolean", "string", "date", "timestamp", "timestamp_ntz"}
_EPOCHS = {
    "epoch_days": ("date",),
    "epoch_millis": ("timestamp_ntz", "timestamp"),
    "epoch_micros": ("timestamp_ntz", "timestamp"),
}
# years 0001 to 9999
_DATE = r"(\d{3}[1-9]|\d\d[1-9]\d|\d[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
# rows that one statement decodes; fewer cost more calls, more cost memory
_ROWS = 65_536
# doubles keep this many digits exactly; a longer decimal may have been a JSON number that lost some
_EXACT_DIGITS = 15
_SOURCE = {
    **dict.fromkeys(("connector", "db", "schema", "table", "snapshot", "sequence", "file"), "VARCHAR"),
    **dict.fromkeys(("lsn", "commit_scn", "scn", "pos", "row", "ts_ms", "ts_us"), "VARCHAR"),
}


def supports(field: Field) -> bool:
    """Tell whether the engine can decode a column."""
    if field.encoding != "plain":
        return field.type in _EPOCHS.get(field.encoding, ())
    return field.type in _PLAIN or bool(_DECIMAL.match(field.type))


@dataclass(frozen=True)
class DecodeTask:
    """Decodes Debezium JSON messages of one table.

    :param fields: all columns of the table.
    :param key: names of its key columns.
    :param table: the source table that is wanted, or its end; None takes all there are.
    :param epoch: epoch of the source's identity.
    :param unavailable_value: Debezium's placeholder.
    :param ignored: columns of the source that the table leaves out.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    table: str | None
    epoch: int
    unavailable_value: str
    ignored: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """What the task delivers: the change frame's columns, its source partition, and why it gave up.

        ``op`` is ``x`` for a tombstone; ``odd`` says why the batch is not for this engine.
        """
        types = {f.name: f.type for f in self.fields}
        key = ", ".join(f"`{k}`: {types[k]}" for k in self.key)
        row = ", ".join(f"`{f.name}`: {f.type}" for f in self.fields)
        return (
            f"op string, key struct<{key}>, row struct<{row}>, open array<string>, old_key struct<{key}>, "
            "`order` string, time_us bigint, partition string, source_table string, odd string"
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode until the input ends or something odd is met."""
        import duckdb

        connection = duckdb.connect(config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        for table in _gathered(batches):
            connection.register("messages", table)
            try:
                connection.execute(f"CREATE OR REPLACE TEMP TABLE m AS {self._parsed()}")
            except (duckdb.ConversionException, duckdb.InvalidInputException):
                yield from self._told(connection, "text that is no JSON")
                return
            odd = self._new_columns(connection)
            if odd:
                yield from self._told(connection, odd)
                return
            yield from _batches(connection.execute(self._changes()))

    def _told(self, connection: duckdb.DuckDBPyConnection, odd: str) -> Iterator[pa.RecordBatch]:
        nulls = ", ".join(f"NULL::{kind} AS {name}" for name, kind in self._types().items())
        yield from _batches(connection.execute(f"SELECT {nulls}, ? AS odd", [odd]))

    def _types(self) -> dict[str, str]:
        types = {f.name: _duck_type(f.type) for f in self.fields}
        key = "STRUCT(" + ", ".join(f"{_name(k)} {types[k]}" for k in self.key) + ")"
        row = "STRUCT(" + ", ".join(f"{_name(f.name)} {types[f.name]}" for f in self.fields) + ")"
        first = {"op": "VARCHAR", "key": key, '"row"': row, "open": "VARCHAR[]", "old_key": key}
        return {**first, '"order"': "VARCHAR", "time_us": "BIGINT", '"partition"': "VARCHAR", "source_table": "VARCHAR"}

    def _new_columns(self, connection: duckdb.DuckDBPyConnection) -> str | None:
        """A column with a value that the table does not have yet."""
        known = {f.name for f in self.fields} | set(self.ignored)
        lists = connection.execute("SELECT DISTINCT json_keys(t, '$.after') FROM m").fetchall()
        for name in {n for (names,) in lists for n in names or ()} - known:
            path = "$.after." + json.dumps(name)
            found = connection.execute(
                "SELECT 1 FROM m WHERE coalesce(json_type(t, ?), 'NULL') != 'NULL' LIMIT 1", [path]
            ).fetchone()
            if found:
                return f"a new column {name}"
        return None

    def _parsed(self) -> str:
        image = dict.fromkeys((f.name for f in self.fields), "VARCHAR")
        keys = _json(dict.fromkeys(self.key, "VARCHAR"))
        others = dict.fromkeys(("op", "payload", "ddl", "status", "ts_ms"), "VARCHAR")
        before = dict.fromkeys(self.key, "VARCHAR")
        shape = _json({**others, "before": before, "after": image, "source": _SOURCE})
        moved = 'list_filter(headers, h -> h."key" = \'__debezium.oldkey\')[1]."value"'
        return f"""
          SELECT *, e.after AS a, e.op AS op, {self._source_table()} AS source_table FROM (
            SELECT t, arrival, from_json(t, '{shape}') AS e, gone, "partition",
              from_json(decode("key")::JSON, '{keys}') AS record_key, from_json(decode(moved)::JSON, '{keys}') AS moved
            FROM (
              SELECT decode("value")::JSON AS t, arrival, "value" IS NULL AS gone, "key", {moved} AS moved,
                concat_ws('/', topic, "partition") AS "partition"
              FROM messages))"""

    def _changes(self) -> str:
        return f"""
          SELECT kind AS op, "key",
            CASE WHEN kind NOT IN ('d', 'x') THEN {self._row()} END AS "row",
            CASE WHEN kind NOT IN ('d', 'x') THEN {self._open()} END AS open,
            CASE WHEN kind NOT IN ('d', 'x') AND moved IS NOT NULL THEN {self._struct("moved", self.key)} END
              AS old_key,
            CASE WHEN kind != 'x' THEN {self._order()} END AS "order",
            CASE WHEN kind != 'x' THEN {_TIME} END AS time_us, "partition",
            CASE WHEN kind != 'x' THEN source_table END AS source_table, odd
          FROM (
            SELECT *, {self._key_struct()} AS "key", {self._odd()} AS odd
            FROM (SELECT *, {self._kind()} AS kind FROM m) WHERE kind IS NOT NULL)"""

    def _source_table(self) -> str:
        schema = 'coalesce(e.source."schema", e.source.db)'
        return f"concat_ws('.', {schema}, e.source.\"table\")"

    def _kind(self) -> str:
        """The op of a message that is this table's; ``odd`` for what the JVM has to judge; null to pass over."""
        mine = f"ends_with('.' || source_table, {_text(f'.{self.table}')})" if self.table else "true"
        heartbeat = "op IS NULL AND e.source IS NULL AND e.ts_ms IS NOT NULL"
        return f"""CASE WHEN gone THEN 'x' WHEN e.payload IS NOT NULL THEN 'odd'
          WHEN op IN ('r', 'c', 'u', 'd') THEN CASE WHEN {mine} THEN op END
          WHEN op = 't' THEN CASE WHEN {mine} THEN 'odd' END
          WHEN op = 'm' OR e.ddl IS NOT NULL OR e.status IN ('BEGIN', 'END') OR ({heartbeat}) THEN NULL
          ELSE 'odd' END"""

    def _key_struct(self) -> str:
        parts = []
        for name in self.key:
            column = _name(name)
            of_delete = f"coalesce(e.before.{column}, record_key.{column})"
            own = f"CASE kind WHEN 'x' THEN record_key.{column} WHEN 'd' THEN {of_delete} ELSE a.{column} END"
            parts.append(f"{_literal(name)}: {_value(self._field(name), f'({own})')}")
        return "{" + ", ".join(parts) + "}"

    def _odd(self) -> str:
        """Why a message is not for this engine: what is no plain row event, no key, a value that is not exact."""
        cases = ["WHEN kind = 'odd' THEN 'a message that is no plain row event'"]
        for name in self.key:
            column, field = _name(name), self._field(name)
            of_delete = f"coalesce(e.before.{column}, record_key.{column})"
            own = f"(CASE kind WHEN 'x' THEN record_key.{column} WHEN 'd' THEN {of_delete} ELSE a.{column} END)"
            cases.append(f"WHEN {own} IS NULL OR NOT ({_exact(field, own)}) THEN {_text(f'the key column {name}')}")
            moved = f"moved.{column}"
            cases.append(
                f"WHEN moved IS NOT NULL AND ({moved} IS NULL OR NOT ({_exact(field, moved)})) THEN 'an old key'"
            )
        for field in self.fields:
            text = f"a.{_name(field.name)}"
            exact = _exact(field, text, f"$.after.{json.dumps(field.name)}")
            placeholder = self._is_placeholder(text)
            cases.append(
                f"WHEN kind NOT IN ('d', 'x') AND {text} IS NOT NULL AND NOT ({placeholder}) AND NOT ({exact}) "
                f"THEN {_text(f'a value of the column {field.name}')}"
            )
        return "CASE " + " ".join(cases) + " END"

    def _field(self, name: str) -> Field:
        return next(f for f in self.fields if f.name == name)

    def _struct(self, of: str, names: tuple[str, ...]) -> str:
        return "{" + ", ".join(f"{_literal(n)}: {_value(self._field(n), f'{of}.{_name(n)}')}" for n in names) + "}"

    def _row(self) -> str:
        return self._struct("a", tuple(f.name for f in self.fields))

    def _open(self) -> str:
        large = [f.name for f in self.fields if f.type == "string" or _DECIMAL.match(f.type)]
        found = [f"CASE WHEN {self._is_placeholder(f'a.{_name(n)}')} THEN {_text(n)} END" for n in large]
        if not found:
            return "NULL::VARCHAR[]"
        names = f"list_filter([{', '.join(found)}], n -> n IS NOT NULL)"
        any_open = " OR ".join(f"coalesce({self._is_placeholder(f'a.{_name(n)}')}, false)" for n in large)
        return f"CASE WHEN {any_open} THEN {names} END"

    def _is_placeholder(self, text: str) -> str:
        # its structured shapes are arrays and objects, which are odd
        shapes = [s for s in placeholder_shapes(self.unavailable_value) if not s.startswith(("[", "{"))]
        return f"{text} IN ({', '.join(_text(s) for s in shapes)})"

    def _order(self) -> str:
        """The order key; see ``ingest.order`` and ``debezium_json``, whose rules these are."""
        binlog = "coalesce(e.source.connector IN ('mysql', 'mariadb'), false)"
        lsn, scn = _number("lsn"), _number("scn")
        file = "TRY_CAST(nullif(regexp_extract(e.source.file, '(\\d+)$', 1), '') AS BIGINT)"
        commit = "TRY_CAST(nullif(regexp_extract(e.source.sequence, '^\\[\"(\\d+)\"', 1), '') AS BIGINT)"
        position = f"""coalesce(CASE WHEN {binlog} THEN {file} * 4294967296 + {_number("pos")} END,
          {commit}, {lsn}, {_number("commit_scn")}, 0)"""
        ordinal = f"coalesce(CASE WHEN {binlog} THEN {_number('row')} END, {lsn}, {scn}, 0)"
        snapshot = "coalesce(e.source.snapshot, 'false') NOT IN ('false', 'incremental')"
        rank = f"CASE WHEN op = 'r' OR {snapshot} THEN '0' ELSE '8' END"
        return (
            f"'{self.epoch:04x}' || {_hex(position, 16)} || {_hex(ordinal, 16)} || {rank} || "
            f"{_hex(f'coalesce({_TIME}, 0) // 1000', 12)} || {_hex('arrival', 16)}"
        )


def _number(name: str) -> str:
    return f'TRY_CAST(e.source."{name}" AS BIGINT)'


_TIME = f"coalesce({_number('ts_us')}, {_number('ts_ms')} * 1000)"


def _hex(sql: str, width: int) -> str:
    return f"printf('%0{width}x', ({sql})::BIGINT)"


def _exact(field: Field, text: str, path: str | None = None) -> str:
    """SQL that is true if a text is exactly a value of the column's type."""
    decimal = _DECIMAL.match(field.type)
    if field.encoding == "epoch_days":
        return f"TRY_CAST({text} AS BIGINT) BETWEEN -719162 AND 2932896 AND {_is_integer(text)}"
    if field.encoding.startswith("epoch_"):
        unit = 1000 if field.encoding == "epoch_millis" else 1
        low, high = -62135596800000000 // unit, 253402300799999999 // unit
        return f"TRY_CAST({text} AS BIGINT) BETWEEN {low} AND {high} AND {_is_integer(text)}"
    if field.type in _INTEGERS:
        return f"TRY_CAST({text} AS {_INTEGERS[field.type]}) IS NOT NULL AND {_is_integer(text)}"
    if decimal:
        places = f"(\\.\\d{{1,{decimal[2]}}})?" if int(decimal[2]) else ""
        short = f"length({text}) <= {_EXACT_DIGITS}"
        fits = f"TRY_CAST({text} AS {_duck_type(field.type)}) IS NOT NULL"
        return f"{short} AND regexp_full_match({text}, '-?\\d+{places}') AND {fits}"
    if field.type in ("float", "double"):
        return f"TRY_CAST({text} AS DOUBLE) IS NOT NULL AND regexp_full_match({text}, '-?\\d[\\d.eE+-]*')"
    if field.type == "boolean":
        return f"{text} IN ('true', 'false')"
    if field.type == "date":
        return f"TRY_CAST({text} AS DATE) IS NOT NULL AND regexp_full_match({text}, '{_DATE}')"
    if field.type in ("timestamp", "timestamp_ntz"):
        zone = "(Z|[+-]\\d\\d:\\d\\d)?" if field.type == "timestamp" else ""
        fits = f"TRY_CAST({text} AS {_duck_type(field.type)}) IS NOT NULL"
        return f"regexp_full_match({text}, '{_DATE}{_CLOCK}{zone}') AND {fits}"
    # an array or an object has a text of its own in each engine; a JSON document in a string is just a string
    structured = f"left({text}, 1) IN ('{{', '[')"
    kind = f"json_type(t, {_text(path)}) = 'VARCHAR'" if path else "false"
    return f"CASE WHEN {structured} THEN {kind} ELSE true END"


def _is_integer(text: str) -> str:
    return f"regexp_full_match({text}, '-?\\d+')"


def _value(field: Field, text: str) -> str:
    """SQL of a column's value from a text that is exact; TRY, since what is not exact is told apart beside it."""
    kind = _duck_type(field.type)
    if field.encoding == "epoch_days":
        return f"(DATE '1970-01-01' + TRY_CAST({text} AS INTEGER))"
    if field.encoding.startswith("epoch_"):
        factor = 1000 if field.encoding == "epoch_millis" else 1
        bounded = f"CASE WHEN {_exact(field, text)} THEN TRY_CAST({text} AS BIGINT) END"
        return f"make_timestamp({bounded} * {factor})::{kind}"
    return text if field.type == "string" else f"TRY_CAST({text} AS {kind})"


def _duck_type(sql_type: str) -> str:
    decimal = _DECIMAL.match(sql_type)
    if decimal:
        return f"DECIMAL({decimal[1]},{decimal[2]})"
    others = {"float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR", "date": "DATE"}
    times = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}
    return {**_INTEGERS, **others, **times}[sql_type]


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(name: str) -> str:
    return _text(name)


def _text(text: str | None) -> str:
    return "'" + (text or "").replace("'", "''") + "'"


def _json(shape: object) -> str:
    return json.dumps(shape, ensure_ascii=False).replace("'", "''")


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= _ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _batches(result: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
    yield from result.fetch_record_batch(_ROWS)
