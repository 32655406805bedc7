"""Debezium change events in JSON, with or without schemas, decoded in the JVM as variants.

Columns get their types from the table once it exists, else from ``columns`` of the target, else from the JSON values:
integers become ``bigint``, other numbers ``double``, objects and arrays their JSON text. An unchanged large value
(``__debezium_unavailable_value``) leaves its column open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.change import Column
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

PLACEHOLDER = "__debezium_unavailable_value"
_OPS = "('r', 'c', 'u', 'd', 't')"
_PLAIN = {"BIGINT": "bigint", "BOOLEAN": "boolean", "STRING": "string", "DOUBLE": "double"}
# positions are unsigned 64-bit at most; MySQL's file number and position share one coordinate
_POSITION = """CASE
  WHEN connector IN ('mysql', 'mariadb') THEN file_number * 4294967296 + pos
  WHEN lsn IS NOT NULL THEN coalesce(sequence_commit, lsn) ELSE 0 END"""
_ORDINAL = "CASE WHEN connector IN ('mysql', 'mariadb') THEN coalesce(row_number, 0) ELSE coalesce(lsn, 0) END"


@dataclass(frozen=True)
class Survey:
    """What one pass over the events of one table tells.

    :param source_table: ``schema.table`` or ``database.table``.
    :param columns: columns of the row images, types derived from the JSON values.
    :param truncate_order: order key of the last TRUNCATE; None if there is none.
    :param ignored: messages that are no row events (tombstones, transaction and heartbeat messages).
    """

    source_table: str | None
    columns: tuple[Column, ...]
    events: int
    truncate_order: str | None


def envelopes(lines: DataFrame, records: str, epoch: int) -> DataFrame:
    """Parse lines into envelopes with their order key.

    :param lines: columns ``value`` (text) and ``arrival`` (long, rising in reading order).
    :param records: ``value`` or ``kafka``, see the source's setting of that name.
    :param epoch: epoch of the source identity.
    :return: ``op, source_table, before, after, record_key, old_key`` (the last four variants), ``order``,
        ``source_time``; one row per line, ``op`` null for messages that are no row events.
    """
    parsed = lines.select("arrival", F.parse_json("value").alias("v"))
    if records == "kafka":
        headers = "filter(variant_get(v, '$.headers', 'array<array<string>>'), h -> h[0] = '__debezium.oldkey')"
        moved = f"get({headers}, 0)[1]"
        parsed = parsed.selectExpr(
            "coalesce(variant_get(v, '$.offset', 'bigint'), arrival) AS arrival",
            "variant_get(v, '$.value', 'variant') AS e",
            "variant_get(v, '$.key', 'variant') AS record_key",
            f"try_parse_json({moved}) AS old_key",
        )
    else:
        none = "CAST(NULL AS variant)"
        parsed = parsed.selectExpr("arrival", "v AS e", f"{none} AS record_key", f"{none} AS old_key")
    payload = "coalesce(try_variant_get({0}, '$.payload', 'variant'), {0})"
    parsed = parsed.selectExpr(
        "arrival",
        *[f"{payload.format(c)} AS {c}" for c in ("e", "record_key", "old_key")],
    )
    return _positioned(parsed, epoch).withColumn("op", F.expr(f"CASE WHEN op IN {_OPS} THEN op END"))


def _positioned(parsed: DataFrame, epoch: int) -> DataFrame:
    def source(path: str, kind: str) -> str:
        return f"try_variant_get(e, '$.source.{path}', '{kind}')"

    sequence = f"from_json({source('sequence', 'string')}, 'array<string>')[0]"
    named = parsed.selectExpr(
        "*",
        "try_variant_get(e, '$.op', 'string') AS op",
        "try_variant_get(e, '$.before', 'variant') AS before",
        "try_variant_get(e, '$.after', 'variant') AS after",
        f"concat_ws('.', coalesce({source('schema', 'string')}, {source('db', 'string')}), {source('table', 'string')})"
        " AS source_table",
        f"{source('connector', 'string')} AS connector",
        f"{source('lsn', 'bigint')} AS lsn",
        f"CAST({sequence} AS bigint) AS sequence_commit",
        f"CAST(nullif(regexp_extract({source('file', 'string')}, '(\\\\d+)$', 1), '') AS bigint) AS file_number",
        f"{source('pos', 'bigint')} AS pos",
        f"{source('row', 'bigint')} AS row_number",
        f"coalesce({source('ts_us', 'bigint')}, {source('ts_ms', 'bigint')} * 1000) AS time_us",
        f"coalesce({source('snapshot', 'string')}, 'false') AS snapshot",
    )
    rank = "CASE WHEN op = 'r' OR snapshot NOT IN ('false', 'incremental') THEN 0 ELSE 8 END"
    order = order_sql(str(epoch), _POSITION, _ORDINAL, rank, "coalesce(time_us, 0) DIV 1000", "arrival")
    return named.selectExpr(
        "op",
        "source_table",
        "before",
        "after",
        "record_key",
        "old_key",
        f"{order} AS order",
        "timestamp_micros(time_us) AS source_time",
    )


def survey(events: DataFrame) -> list[Survey]:
    """Look once through the envelopes: which tables, which columns, whether they were truncated.

    :param events: result of :func:`envelopes`, row events only.
    """
    rows = events.groupBy("source_table").agg(
        F.expr("schema_of_variant_agg(after)").alias("after"),
        F.expr("schema_of_variant_agg(before)").alias("before"),
        F.count("*").alias("events"),
        F.max(F.when(F.col("op") == "t", F.col("order"))).alias("truncate_order"),
    )
    found = []
    for row in rows.collect():
        columns = _columns(row["after"]) or _columns(row["before"])
        found.append(Survey(row["source_table"], columns, row["events"], row["truncate_order"]))
    return found


def changes(events: DataFrame, columns: Sequence[Column], key: Sequence[str]) -> DataFrame:
    """The change frame of one table's events.

    :param events: its row events from :func:`envelopes`.
    :param columns: its columns with the types they are to have.
    :param key: its key columns.
    """
    types = {c.name: c.type for c in columns}
    row = F.struct(*[_value("after", c.name, c.type).alias(c.name) for c in columns])
    placeholders = [
        F.when(F.expr(f"try_variant_get(after, {_path(c.name)}, 'string')") == PLACEHOLDER, F.lit(c.name))
        for c in columns
    ]
    left_open = F.array_compact(F.array(*placeholders))
    is_delete = F.col("op") == "d"
    # a delete's `before` may be invented except for the key, and absent except for the record's key
    own = F.struct(
        *[
            F.when(is_delete, F.coalesce(_value("before", k, types[k]), _value("record_key", k, types[k])))
            .otherwise(_value("after", k, types[k]))
            .alias(k)
            for k in key
        ]
    )
    old = F.struct(*[_value("old_key", k, types[k]).alias(k) for k in key])
    return events.where("op != 't'").select(
        "op",
        own.alias("key"),
        F.when(~is_delete, row).alias("row"),
        F.when(~is_delete & (F.size(left_open) > 0), left_open).alias("open"),
        F.when(F.col("old_key").isNotNull() & ~is_delete, old).alias("old_key"),
        "order",
        "source_time",
    )


def typed(found: Sequence[Column], known: Mapping[str, str], overrides: Mapping[str, str]) -> list[Column]:
    """Columns with the types they are to have: the target's override, else the table's, else the derived one."""
    return [Column(c.name, overrides.get(c.name) or known.get(c.name) or c.type) for c in found]


def _value(image: str, name: str, sql_type: str) -> Expression:
    """A column of a row image; a value that does not fit its type stops the batch, it never becomes null."""
    path = _path(name)
    if sql_type in ("bigint", "int", "double", "float", "boolean") or sql_type.startswith("decimal"):
        return F.expr(f"variant_get({image}, {path}, '{sql_type}')")
    text = f"variant_get({image}, {path}, 'string')"
    if sql_type == "string":
        return F.expr(text)
    if sql_type == "binary":
        return F.expr(f"unbase64({text})")
    return F.expr(f"CAST({text} AS {sql_type})")


def _path(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'$[\"{escaped}\"]'"


def _columns(schema: str | None) -> tuple[Column, ...]:
    """Top-level fields of a variant schema such as ``OBJECT<id: BIGINT, tags: ARRAY<STRING>>``."""
    if not schema or not schema.startswith("OBJECT<"):
        return ()
    columns = []
    for item in _split(schema[len("OBJECT<") : -1]):
        name, _, kind = item.strip().rpartition(": ") if "<" not in item else item.strip().partition(": ")
        if kind == "VOID":
            continue  # only nulls so far: the column comes when its first value does
        plain = "double" if re.match(r"DECIMAL|FLOAT", kind) else _PLAIN.get(kind, "string")
        columns.append(Column(_unquoted(name), plain))
    return tuple(columns)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and backquotes."""
    parts, depth, quoted, current = [], 0, False, ""
    for character in text:
        quoted ^= character == "`"
        depth += 0 if quoted else {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and not depth and not quoted:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current.strip() else parts


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
