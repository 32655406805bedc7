"""Debezium in Avro: tasks make the same rows as Spark after a first pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.run import Scan
from tests.lakecdc.ingest.formats.avro import Record, Schemas, decode_avro, envelope_schema, frame, key_schema, optional
from tests.lakecdc.ingest.formats.decoding import PRODUCTS, rejections
from tests.lakecdc.ingest.formats.test_avro import ID, PLACEHOLDER, TYPES, event
from tests.lakecdc.ingest.formats.test_decode_schemas import assert_same, rows

PLAIN = {name: kind for name, kind in TYPES.items() if name not in ("tags", "blobs", "pairs")}


def schemas_of(types: dict[str, Any], *more: dict[str, Any]) -> Schemas:
    fields = [{"name": n, **(optional(kind) if n != "id" else {"type": kind})} for n, (kind, _, _) in types.items()]
    return Schemas({1: key_schema(ID), 2: envelope_schema(fields), 3: envelope_schema([*fields, *more])})


def row(id: int, types: dict[str, Any] = PLAIN, **values: Any) -> dict[str, Any]:
    return {name: value for name, (_, _, value) in types.items()} | {"id": id, **values}


def both(
    spark: SparkSession, schemas: Schemas, records: Sequence[Record], types: dict[str, str]
) -> tuple[Decoded, Decoded]:
    return tuple(  # type: ignore[return-value]
        decode_avro(spark, schemas, records, PRODUCTS, Known(types), engine=engine) for engine in ("tasks", "spark")
    )


def test_all_kinds_of_avro_messages_are_decoded(spark: SparkSession) -> None:
    schemas = schemas_of(PLAIN)
    key = [schemas.message(1, {"id": i}) for i in range(7)]
    records: list[Record] = [
        (key[1], schemas.message(2, event("r", row(1), 10))),
        (key[2], schemas.message(2, event("c", dict.fromkeys(PLAIN) | {"id": 2}, 11))),
        (key[1], schemas.message(2, event("u", row(1, mood="ok", f64=1e-7, f32=1.1, big=-(2**63)), 12))),
        (key[3], schemas.message(2, event("d", None, 13, before=row(3)))),
        (key[3], None),
        (key[4], schemas.message(2, event("d", None, 14))),
        (key[5], schemas.message(2, event("c", row(5), 15)), {"__debezium.oldkey": key[4]}),
        (key[6], schemas.message(2, event("u", row(6, raw=PLACEHOLDER), 16))),
        # as Apicurio's converters write it
        (
            key[0][5:],
            schemas.message(2, event("d", None, 17))[5:],
            {"apicurio.key.globalId": (1).to_bytes(8, "big"), "apicurio.value.globalId": (2).to_bytes(8, "big")},
        ),
    ]
    by_tasks, by_spark = both(spark, schemas, records, {})
    assert by_tasks.passes == "one pass"
    assert_same(by_tasks, by_spark)
    assert len(rows(by_tasks)) == 7
    types = {c.name: c.type for c in by_tasks.columns}
    again = decode_avro(spark, schemas, records, PRODUCTS, Known(types))
    assert again.passes == "one pass"
    assert_same(again, by_spark)


def test_tasks_that_read_messages_themselves_know_their_schemas(spark: SparkSession) -> None:
    schemas = schemas_of(PLAIN)
    key = [schemas.message(1, {"id": i}) for i in range(3)]
    records: list[Record] = [
        (key[1], schemas.message(2, event("c", row(1), 10))),
        (b'{"id":2}', schemas.message(2, event("d", None, 11))),
        (None, b"\0" + (99).to_bytes(4, "big") + b"noise"),
    ]
    batches = frame(spark, records).toArrow().to_batches()
    scan = Scan(spark, lambda _: iter(batches), 1, 1, True)
    types = {c.name: c.type for c in decode_avro(spark, schemas, records[:1], PRODUCTS).columns}
    decoded = decode_avro(spark, schemas, records, PRODUCTS, Known(types, scan=scan))
    assert decoded.passes.startswith("one pass, then another over 1 of the messages")
    assert rejections(decoded) == [("unknown-schema", "the registry has no schema 99")]
    assert {number: one["op"] for number, one in rows(decoded)} == {1: "c", 2: "d"}


@pytest.mark.soak
def test_unreadable_messages_are_set_aside_with_their_bytes(spark: SparkSession) -> None:
    schemas = schemas_of(TYPES)
    good = schemas.message(2, event("c", row(1, TYPES), 10))
    types = {c.name: c.type for c in decode_avro(spark, schemas, [(None, good)], PRODUCTS).columns}
    garbage = [b"", b"{}", b"\0" + (99).to_bytes(4, "big") + good[5:], good[:20]]
    nothing = schemas.message(2, event("c", dict.fromkeys(TYPES) | {"id": 2, "f64": float("nan")}, 11))
    plain = schemas.message(2, event("c", dict.fromkeys(TYPES) | {"id": 3}, 12))
    records: list[Record] = [(None, value) for value in (good, nothing, plain, *garbage)]
    by_tasks, by_spark = both(spark, schemas, records, types)
    assert by_tasks.passes.startswith("one pass, then another over 4 of the messages")
    assert by_tasks.rejections == by_spark.rejections == len(garbage) and by_tasks.rejected is not None
    assert sorted(bytes(r["value"]) for r in by_tasks.rejected.messages.collect()) == sorted(garbage)
    # NaN does not equal itself
    assert str(rows(by_tasks)) == str(rows(by_spark))


@pytest.mark.soak
def test_messages_of_several_schemas_take_two_passes(spark: SparkSession) -> None:
    schemas = schemas_of(PLAIN, {"name": "new", **optional("string")})
    records: list[Record] = [
        (None, schemas.message(2, event("c", row(1), 10))),
        (None, schemas.message(3, event("c", row(2, new="x"), 11))),
    ]
    by_tasks, by_spark = both(spark, schemas, records, {})
    assert by_tasks.passes == "two passes: messages of several schemas"
    assert_same(by_tasks, by_spark)
