"""Convert Debezium change events in Avro: messages with schemas in a registry, or records of container files.

Values are converted to Debezium's JSON of the same event, so both formats share the rest of the code.

A message is a zero byte, the id of its schema (big-endian) and the record; source: Confluent's "Wire format".
Apicurio's converters put the id into a header of 8 bytes instead, and the message is only the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakecdc.contract.errors import InputError
from lakecdc.ingest.formats import debezium_schema
from lakecdc.ingest.formats.avro_registry import Registry, id_headers
from lakecdc.ingest.formats.avro_schema import AvroSchema
from lakecdc.ingest.formats.envelope import InJson, Reading
from lakecdc.local_relation import local_relation

_PARTS = ("value", "key", "moved")
_NO_ID = "not-avro: the value does not begin with the id of a schema"


def in_json(messages: DataFrame, reading: Reading) -> InJson:
    """Return messages with their records as JSON beside them."""
    assert reading.registry is not None
    named, good, reasons, ids = _with_records(messages, reading.registry)
    nothing = F.lit(None).cast("string")
    texts = {part: _text(part, ids[part], good) for part in _PARTS}
    # headers may have another converter
    moved = F.coalesce(texts["moved"], F.expr("CASE WHEN moved_id IS NULL THEN CAST(moved AS string) END"))
    # an expression cannot have thousands of them
    bad = [(n, f"unknown-schema: {reason}") for n, reason in reasons.items()]
    if bad:
        bad_ids = local_relation(messages.sparkSession, bad, "value_id bigint, bad_schema string")
        named = named.join(F.broadcast(bad_ids), "value_id", "left")
    else:
        named = named.withColumn("bad_schema", nothing)
    broken = F.concat(F.lit("not-avro: the bytes do not fit schema "), F.col("value_id").cast("string"))
    unreadable = F.when(F.col("value_id").isNull(), F.lit(_NO_ID)).otherwise(
        F.coalesce("bad_schema", F.when(F.col("payload").isNull(), broken))
    )
    schemas = [F.when(F.col("value_id") == n, good[n].connect) for n in ids["value"]]
    decoded = named.select(
        *messages.columns,
        texts["value"].alias("payload"),
        texts["key"].alias("key_text"),
        moved.alias("moved_text"),
        F.coalesce(nothing, *schemas).alias("schema_text"),
        "value_id",
        "bad_schema",
    )
    decoded = decoded.withColumn("unreadable", unreadable).drop("value_id", "bad_schema")
    one = len(ids["value"]) == 1
    return InJson(decoded, debezium_schema.fields(good[ids["value"][0]].connect) if one else None)


def _text(part: str, ids: Iterable[int], schemas: Mapping[int, AvroSchema]) -> Column:
    texts = []
    for number in ids:
        record = F.col(_record(part, number))
        texts.append(F.when(schemas[number].is_there(record), F.to_json(schemas[number].plain(record))))
    return F.coalesce(F.lit(None).cast("string"), *texts)


def _with_records(
    messages: DataFrame, registry: Registry
) -> tuple[DataFrame, Mapping[int, AvroSchema], Mapping[int, str], Mapping[str, list[int]]]:
    """Return messages with the ids of their schemas, and columns for the records of each schema.

    :return: the messages, the usable schemas, why others cannot be used, and the usable ids by part.
    """
    moved = F.expr("get(filter(headers, h -> h.key = '__debezium.oldkey'), 0).value")
    # the schema ids are read before the messages are decoded, and reading messages is expensive
    messages = messages.persist()
    named = messages.withColumn("moved", moved)
    named = named.withColumns({f"{part}_id": _id(part, registry.id_bytes) for part in _PARTS})
    row = named.agg(*[F.collect_set(f"{part}_id").alias(part) for part in _PARTS]).first()
    assert row is not None
    good, reasons = _usable(registry, {number for part in _PARTS for number in row[part]})
    ids = {part: [n for n in sorted(row[part]) if n in good] for part in _PARTS}
    records = {_record(part, n): _from_avro(part, n, good[n], registry) for part in _PARTS for n in ids[part]}
    return named.withColumns(records), good, reasons, ids


def _id(part: str, size: int) -> Column:
    begins = f"substr({part}, 1, 1) = X'00' AND length({part}) > {1 + size}"
    wired = f"CASE WHEN {begins} THEN substr({part}, 2, {size}) END"
    return F.expr(f"try_cast(conv(hex(coalesce({_header(part)}, {wired})), 16, 10) AS bigint)")


def _body(part: str, size: int) -> Column:
    return F.expr(f"CASE WHEN {_header(part)} IS NOT NULL THEN {part} ELSE substr({part}, {2 + size}) END")


def _header(part: str) -> str:
    """Return the id in a header; the old key has none."""
    names = ", ".join(f"'{name}'" for name in id_headers(part))
    return f"get(filter(headers, h -> h.key IN ({names})), 0).value"


def _usable(registry: Registry, ids: Iterable[int]) -> tuple[dict[int, AvroSchema], dict[int, str]]:
    """Return usable schemas by id, and why others cannot be used, for example by Spark.

    :raises InputError: Spark lacks Avro.
    """
    good, reasons = dict[int, AvroSchema](), dict[int, str]()
    for number, schema in registry.schemas(sorted(ids)).items():
        if isinstance(schema, str):
            reasons[number] = schema
        elif reason := refusal(schema):
            reasons[number] = f"schema {number} cannot be used: {reason}"
        else:
            good[number] = schema
    return good, reasons


@lru_cache(maxsize=1024)
def refusal(schema: AvroSchema) -> str | None:
    """Return why Spark cannot decode with a schema, or None.

    :raises InputError: Spark lacks Avro.
    """
    try:
        nothing = SparkSession.active().range(0)
        record = nothing.select(from_avro(F.lit(None).cast("binary"), schema.text).alias("r"))
        record.select(F.to_variant_object(schema.plain(F.col("r")))).schema  # noqa: B018
    except Exception as error:
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "AVRO_NOT_LOADED" in text or "JavaPackage" in text:
            raise InputError(
                "Spark has no Avro.", hint="Add the package org.apache.spark:spark-avro_2.13 of Spark's own version."
            ) from error
        return text
    return None


def _record(part: str, number: int) -> str:
    return f"{part}_record_{number}"


def _from_avro(part: str, number: int, schema: AvroSchema, registry: Registry) -> Column:
    record = from_avro(_body(part, registry.id_bytes), schema.text, {"mode": "PERMISSIVE"})
    return _once(F.when(F.col(f"{part}_id") == number, record))


def _once(value: Column) -> Column:
    """Return an expression that is evaluated once per row, see :func:`lakecdc.ingest.formats.messages.once`."""
    return F.when(F.monotonically_increasing_id() >= 0, value)
