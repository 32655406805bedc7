"""Rows kept as JSON become the same events again, for all types and under the columns' present names."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.target import Target
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Rows
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.engine.kept_rows import decode_kept
from lakecdc.ingest.quarantine import of_events
from lakecdc.metadata.positions import Position
from lakecdc.sql import sql_type

COLUMNS = ("op", "key", "row", "open", "old_key", "order", "source_time")
LAST = "timestamp'9999-12-31 23:59:59.999999Z'"
VALUES = {
    "id": "7L",
    "at": "timestamp_micros(1700000000123457)",
    "flag": "true",
    "small": "7",
    "wide": "CAST('12345678901234567890123456789012345678' AS decimal(38,0))",
    "tiny": "CAST('0.00000000000000000000000000000000000001' AS decimal(38,38))",
    "real": "CAST('1.4E-45' AS float)",
    "nan": "double('NaN')",
    "low": "double('-Infinity')",
    "zero": "double('-0.0')",
    "text": r"'a\u0000\n\"é😀'",
    "octets": "X'00FF80'",
    "day": "DATE'0001-01-01'",
    "local": "timestamp_ntz'9999-01-02 03:04:05.000001'",
    "zoned": LAST,
    "nothing": "CAST(NULL AS int)",
    "odd `name`": "array(struct(timestamp_micros(1) AS x))",
    "named": "map('a', CAST('1.50' AS decimal(3,2)))",
    "various": """parse_json('{"a": [1.50, null, "b"]}')""",
}


def events(spark: SparkSession, key: tuple[str, ...], *changes: str, **values: str) -> DataFrame:
    """Return change events of one row.

    :param changes: SQL of op, open, the first column of the old key, and order of each.
    :param values: SQL by column.
    """
    row = ", ".join(f"{sql} AS `{name.replace('`', '``')}`" for name, sql in values.items())
    own = f"struct({', '.join(f'row.{k}' for k in key)})" if key else "struct(CAST(NULL AS string) AS none)"
    old = f"struct({', '.join(['CAST(old AS bigint) AS ' + key[0], *key[1:]])})" if key else own
    frames = [
        spark.sql(f"SELECT {one}, timestamp_micros(5) AS source_time, struct({row}) AS row")
        .withColumn("open", F.col("open").cast("array<string>"))
        .selectExpr("*", "row.*")
        .selectExpr(
            "op", f"{own} AS key", "row", "open", f"if(old IS NULL, NULL, {old}) AS old_key", "order", "source_time"
        )
        for one in changes
    ]
    return reduce(DataFrame.unionByName, frames)


def quarantined_messages(
    frame: DataFrame, key: tuple[str, ...], numbers: dict[str, int | None] | None = None
) -> DataFrame:
    batch = Batch(
        Target("test.t"), key, (), Rows(frame), Position("test", "1", {}), source=SourceFacts(columns=numbers)
    )
    return of_events(batch, frame, "clean", F.lit("bad")).messages


def texts(frame: DataFrame) -> list[str]:
    """Return rows as texts, in which NaN equals itself and -0 differs from 0."""
    row = [F.col("row")[name].cast("string") for name in VALUES]
    return sorted(repr(r) for r in frame.select(*[F.col(c).cast("string") for c in COLUMNS], *row).collect())


def test_every_value_returns_unchanged(spark: SparkSession) -> None:
    key = ("id", "at")
    frame = events(
        spark,
        key,
        "'r' AS op, NULL AS open, NULL AS old, 'a' AS order",
        "'u' AS op, array('text') AS open, 6L AS old, 'b' AS order",
        **VALUES,
    )
    decoded = decode_kept(quarantined_messages(frame, key), Target("test.t"), Known({}, key=("at", "id")))
    assert decoded.rows is not None and decoded.key == key and decoded.rejected is None
    types = {f.name: sql_type(f.dataType) for f in frame.schema["row"].dataType}  # type: ignore[attr-defined]
    assert {c.name: c.type for c in decoded.columns} == types
    deletes = frame.where("old_key IS NOT NULL").withColumns({"op": F.lit("d"), "key": F.col("old_key")})
    deletes = deletes.withColumns({c: F.lit(None).cast(frame.schema[c].dataType) for c in ("row", "open", "old_key")})
    assert texts(decoded.rows.frame) == texts(frame.unionByName(deletes))


@pytest.mark.soak
def test_rejected_rows_stay_with_the_reason(spark: SparkSession) -> None:
    frame = events(
        spark, ("id",), *[f"'c' AS op, NULL AS open, NULL AS old, '{i}' AS order" for i in range(6)], id="1L", n="''"
    )
    rows = quarantined_messages(frame, ("id",)).withColumn("number", F.col("order").cast("int"))
    text = F.col("value").cast("string")
    old = F.to_json(F.struct(F.lit("u").alias("op"), F.struct(F.lit(1).alias("id")).alias("row")))
    edited = {
        1: F.replace(text, F.lit('"n":""'), F.lit('"n":"17"')),
        2: old,
        3: F.replace(text, F.lit('"id":1'), F.lit('"id":"x"')),
        4: F.replace(text, F.lit('"key":["id"]'), F.lit('"key":["n"]')),
        5: F.lit('{"id": 1}'),
    }
    value = text
    for number, other in edited.items():
        value = F.when(F.col("number") == number, other).otherwise(value)
    rows = rows.withColumn("value", value.cast("binary"))
    decoded = decode_kept(
        rows, Target("test.t", columns={"n": "int"}), Known({"id": "bigint", "n": "string"}, key=("id",))
    )
    assert decoded.rows is not None and decoded.rejected is not None and decoded.rejections == 5
    assert [row["row"]["n"] for row in decoded.rows.frame.collect()] == [17]
    reasons = {int(row["order"]): row["reason"].partition(";")[0] for row in decoded.rejected.messages.collect()}
    assert reasons == {
        0: "values do not fit their columns: n (int)",
        2: "an earlier release stored less of it than a replay needs",
        3: "values do not fit their columns: id (bigint), n (int)",
        4: "it was stored when the table had another key",
        5: "it is not the JSON of a change",
    }


def test_nested_values_take_the_type_of_the_table(spark: SparkSession) -> None:
    frame = events(
        spark,
        ("id",),
        *[f"'c' AS op, NULL AS open, NULL AS old, '{i}' AS order" for i in range(2)],
        id="1L",
        tags="named_struct('a', if(order = '0', 3000000000, 7L), 'b', 2)",
        text="""'{"a": [1.50]}'""",
    )
    types = {"id": "bigint", "tags": "struct<`a`:int>", "text": "struct<`a`:array<decimal(3,2)>>"}
    target = Target("test.t", columns={"tags": "struct<`a`:int,`b`:bigint>"})
    decoded = decode_kept(quarantined_messages(frame, ("id",)), target, Known(types, key=("id",)))
    assert decoded.rows is not None and decoded.rejected is not None
    row = decoded.rows.frame.collect()[0]["row"].asDict(recursive=True)
    assert row == {"id": 1, "tags": {"a": 7, "b": 2}, "text": {"a": [Decimal("1.50")]}}
    reasons = {row["order"]: row["reason"] for row in decoded.rejected.messages.collect()}
    assert reasons == {"0": "values do not fit their columns: tags (struct<`a`:int,`b`:bigint>)"}
