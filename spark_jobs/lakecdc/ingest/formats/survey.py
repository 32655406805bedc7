"""One look through a batch's envelopes: which tables, which columns, how far the source got."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.iceberg.widening import common
from lakecdc.ingest.formats.envelope import NO_VARIANT
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import Stretch, highest, is_change_sql, joined, rises_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from lakecdc.ingest.formats.envelope import Format

_IMAGES = ("after", "before")
# 16384 offsets are looked at together: with more than 128 groups Spark would sort what it aggregates
_STRETCH_BITS = 14
_STRETCH = ("first_change", "newest_change", "high_change")
# the schema of no value at all
_NOTHING = "VOID"
_PLAIN = {"BIGINT": "bigint", "BOOLEAN": "boolean", "STRING": "string", "DOUBLE": "double"}


@dataclass(frozen=True)
class Survey:
    """What is known of the messages of one source table.

    :param source_table: ``schema.table`` or ``database.table``; None if the format does not tell.
    :param fields: columns of the row images, from the format's schema where it has one, else from the JSON values.
    :param events: row events.
    :param problems: messages that cannot be read.
    :param tombstones: messages without a value.
    :param truncate_order: order key of the last TRUNCATE; None if there is none.
    :param newest: source time of the newest event.
    :param high_orders: highest order key by ``topic/partition``.
    :param stretches: of its changes, by ``topic/partition``.
    :param topics: topics of the messages, tombstones included.
    :param key: members of the messages' keys.
    :param key_names: names of the key's columns as messages themselves tell them, each list once.
    :param told: all columns of the source, as the last schema has them; empty without schemas.
    :param schemas: columns by the text of each schema of the batch, where the format has schemas.
    """

    source_table: str | None
    fields: tuple[Field, ...]
    events: int
    problems: int
    tombstones: int
    truncate_order: str | None
    newest: datetime | None
    high_orders: dict[str, str]
    topics: frozenset[str] = frozenset()
    key: tuple[Field, ...] = ()
    schemas: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    key_names: frozenset[tuple[str, ...]] = frozenset()
    stretches: Mapping[str, Sequence[Stretch]] = field(default_factory=dict)


def survey(envelopes: DataFrame, read: Format, *, keys: bool = True) -> list[Survey]:
    """Measure an envelope frame in one pass, by source table.

    :param envelopes: see ``envelope``.
    :param read: their format.
    :param keys: whether the members of the messages' keys are wanted.
    """
    own_key = "record_key" if keys and read.row_keys else NO_VARIANT
    wanted = (own_key, "key_names" if keys else "CAST(NULL AS array<string>)")
    # to look at values is most of the work, and a schema has told of them already
    rows = _measured(envelopes, wanted, "schema IS NULL")
    if any(not read.columns_of(schema) for schema in {row["schema"] for row in rows if row["schema"]}):
        rows = _measured(envelopes, wanted, "true")
    if any(row[image] != _NOTHING and not row[image].startswith("OBJECT<") for row in rows for image in _IMAGES):
        # what is no object has no columns, and would hide those of the others
        objects = {image: f"CASE WHEN schema_of_variant({image}) LIKE 'OBJECT%' THEN {image} END" for image in _IMAGES}
        rows = _measured(envelopes.withColumns({i: F.expr(sql) for i, sql in objects.items()}), wanted, "true")
    tables = sorted({row["source_table"] for row in rows}, key=str)
    return [_merged(name, [r for r in rows if r["source_table"] == name], read) for name in tables]


def _measured(envelopes: DataFrame, keys: tuple[str, str], untold: str) -> list[Row]:
    """Facts by source table, partition and stretch of offsets.

    :param keys: SQL of the messages' keys, and of the names of the key's columns that they tell themselves.
    :param untold: SQL that is true for row images of which no schema tells.
    """
    untold = f"problem IS NULL AND {untold}"
    is_row = F.col("op").isin("r", "c", "u", "d")
    rising = F.when(is_row & F.expr(f"{is_change_sql('`order`')} AND {rises_sql('`order`')}"), F.col("offset"))
    newest_first = F.when(rising.isNotNull(), F.struct(F.unix_millis("source_time"), -F.col("offset")))
    return (
        envelopes.groupBy(
            "source_table",
            F.concat_ws("/", "topic", "partition").alias("partition"),
            F.shiftright("offset", _STRETCH_BITS).alias("stretch"),
        )
        .agg(
            F.expr(f"schema_of_variant_agg(CASE WHEN {untold} THEN after END)").alias("after"),
            # it is looked at only if there is no row after a change
            F.expr(f"schema_of_variant_agg(CASE WHEN {untold} AND after IS NULL THEN before END)").alias("before"),
            F.expr(f"schema_of_variant_agg({keys[0]})").alias("record_key"),
            F.collect_set(F.when(is_row, F.expr(keys[1]))).alias("key_names"),
            F.expr("max_by(schema, order) FILTER (WHERE schema IS NOT NULL AND problem IS NULL)").alias("schema"),
            F.expr("collect_set(schema) FILTER (WHERE problem IS NULL)").alias("schemas"),
            F.count_if(is_row | (F.col("op") == "t")).alias("events"),
            F.count_if(F.col("problem").isNotNull()).alias("problems"),
            F.count_if(F.col("op") == "x").alias("tombstones"),
            F.max(F.when(F.col("op") == "t", F.col("order"))).alias("truncate_order"),
            F.max(F.when(is_row, F.col("order"))).alias("high_order"),
            F.max(F.unix_micros("source_time")).alias("newest"),
            F.min_by("order", rising).alias("first_change"),
            F.max_by("order", newest_first).alias("newest_change"),
            F.max(F.when(rising.isNotNull(), F.col("order"))).alias("high_change"),
        )
        .collect()
    )


def _merged(name: str | None, rows: list[Row], read: Format) -> Survey:
    schemas = {text: read.columns_of(text) for text in dict.fromkeys(text for row in rows for text in row["schemas"])}
    told = [schemas[row["schema"]] for row in sorted(rows, key=_order) if row["schema"] and schemas[row["schema"]]]
    seen = [_fields(row["after"]) or _fields(row["before"]) for row in rows]
    return Survey(
        name,
        _newest(told[-1], schemas.values()) if told else merge_fields(seen),
        sum(row["events"] for row in rows),
        sum(row["problems"] for row in rows),
        sum(row["tombstones"] for row in rows),
        max((row["truncate_order"] for row in rows if row["truncate_order"]), default=None),
        max((moment(row["newest"]) for row in rows if row["newest"] is not None), default=None),
        highest((row["partition"], row["high_order"]) for row in rows if row["high_order"]),
        frozenset(row["partition"].rpartition("/")[0] for row in rows if "/" in row["partition"]),
        merge_fields(_fields(row["record_key"]) for row in rows),
        schemas,
        tuple(f.name for f in told[-1]) if told else (),
        frozenset(tuple(names) for row in rows for names in row["key_names"] if names),
        joined({row["partition"]: [[row[c] for c in _STRETCH]]} for row in rows if row["newest_change"]),
    )


def _newest(last: tuple[Field, ...], all_schemas: Iterable[tuple[Field, ...]]) -> tuple[Field, ...]:
    """Columns of the last schema, behind them those that only earlier ones have; their types hold the values of all."""
    return merge_fields((last, *all_schemas))


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a moment in UTC, whatever the zone of this process."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _order(row: Row) -> str:
    return row["high_order"] or ""


def merge_fields(seen: Iterable[tuple[Field, ...]]) -> tuple[Field, ...]:
    """Columns that hold the values of several lists of columns, written as the first of these has them."""
    merged: dict[str, Field] = {}
    for one in (f for fields in seen for f in fields):
        known = merged.setdefault(one.name, one)
        if known.type != one.type:
            merged[one.name] = known.with_type(common(known.type, one.type))
    return tuple(merged.values())


def _fields(schema: str | None) -> tuple[Field, ...]:
    """Top-level members of a variant schema such as ``OBJECT<id: BIGINT, tags: ARRAY<STRING>>``."""
    if not schema or not schema.startswith("OBJECT<"):
        return ()
    fields = []
    for item in _split(schema[len("OBJECT<") : -1]):
        name, _, kind = item.strip().rpartition(": ") if "<" not in item else item.strip().partition(": ")
        if kind == _NOTHING:
            continue  # only nulls so far: the column comes when its first value does
        plain = "double" if re.match(r"DECIMAL|FLOAT", kind) else _PLAIN.get(kind, "string")
        fields.append(Field(_unquoted(name), plain))
    return tuple(fields)


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
