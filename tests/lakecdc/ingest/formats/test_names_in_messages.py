"""Names in messages: values of enums, key columns, and columns that differ in case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.errors import InputError, SpecError
from lakecdc.contract.sources import parse_source
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.formats.canal_types import doubts, fields
from lakecdc.ingest.formats.values import Field
from tests.lakecdc.ingest.by_spark import ENGINES, both_engines
from tests.lakecdc.ingest.formats.decoding import decode_lines, record, rejections, state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYLESS = Target("shop.t")
KEYED = {"a": 1, "b": 2, "v": 3}


def canal(number: int, row: dict[str, Any], types: dict[str, str], **more: Any) -> str:
    place = {"database": "shop", "table": "t", "es": 5000, "ts": 6000, "id": number, "isDdl": False, "old": None}
    data = {name: None if value is None else str(value) for name, value in row.items()}
    return json.dumps({**place, "type": "INSERT", "mysqlType": types, "data": [data], **more})


def maxwell(number: int, row: dict[str, Any], **more: Any) -> str:
    place = {"database": "shop", "table": "t", "type": "insert", "ts": 5, "xid": number, "commit": True}
    return json.dumps({**place, "data": row, **more})


def ogg(number: int, row: dict[str, Any], **more: Any) -> str:
    place = {"table": "SHOP.T", "pos": f"{number:08}", "op_type": "I", "op_ts": "2024-01-02 03:04:05.6"}
    return json.dumps({**place, "after": row, **more})


@pytest.mark.parametrize(
    ("mysql", "field"),
    [
        ("SERIAL", Field("c", "decimal(20,0)")),
        ("FIXED(8,3)", Field("c", "decimal(8,3)")),
        ("dec(5) unsigned", Field("c", "decimal(5,0)")),
        ("enum('a','It''s')", Field("c", "string", "enum", names=("a", "It's"))),
        ("SET('a,b','c')", Field("c", "string", "set", names=("a,b", "c"))),
        ("enum", Field("c", "string")),
    ],
)
def test_mysql_types_become_column_types(mysql: str, field: Field) -> None:
    assert fields(json.dumps({"c": mysql})) == (field,)
    assert doubts(json.dumps({"c": mysql})) == ()


@pytest.mark.parametrize(
    ("mysql", "known"),
    [
        *((kind, True) for kind in ("", "numeric(65,30)", "decimal (10, 2) unsigned zerofill", "double precision")),
        *((kind, True) for kind in ("varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "geomcollection", "INT8")),
        *((kind, False) for kind in ("xnt", "bigin(20)", "bigint{20)", "decimal(1x,2)", "decimal(66,2)", "dec(2,3)")),
    ],
)
def test_an_unknown_mysql_type_is_doubted(mysql: str, known: bool) -> None:
    assert doubts(json.dumps({"id": "int", "c": mysql})) == (() if known else ("c",))
    # and the column type is one that Spark accepts
    assert fields(json.dumps({"c": mysql}))[0].type in ("string", "double", "decimal(10,2)", "decimal(10,0)")


@both_engines
@pytest.mark.parametrize(
    "types",
    [{}, pytest.param({"id": "bigint", "c": "string", "s": "string"}, marks=pytest.mark.soak)],
    ids=["new", "known"],
)
def test_values_of_enum_and_set_are_names(spark: SparkSession, engine: str, types: dict[str, str]) -> None:
    source_types = {"id": "bigint", "c": "enum('red','It''s')", "s": "set('a','b','c')"}
    values = [(1, 0), (2, 5), (0, 7), ("red", "b,c"), (None, None)]
    lines = [canal(i, {"id": i, "c": c, "s": s}, source_types) for i, (c, s) in enumerate(values)]
    target = Target("shop.t", key=("id",))
    decoded = decode_lines(spark, "canal-json", lines, target, Known(types), engine=engine)
    assert decoded.passes == ("one pass" if engine == "tasks" else "two passes: required by the test")
    named = [(0, "red", ""), (1, "It's", "a,c"), (2, "", "a,b,c"), (3, "red", "b,c"), (4, None, None)]
    assert state(decoded, ("id", "c", "s")) == named
    # names added meanwhile, and a number without a name
    lines += [
        canal(5, {"id": 5, "c": 2, "s": 8}, {**source_types, "c": "enum('red','new')", "s": "set('a','b','c','d')"})
    ]
    lines += [canal(6, {"id": 6, "c": 3, "s": 1}, source_types)]
    decoded = decode_lines(spark, "canal-json", lines, target, Known(types), engine=engine)
    assert state(decoded, ("id", "c", "s")) == [*named, (5, "new", "d")]
    assert rejections(decoded) == [("type", "values do not fit their columns: c (string)")]


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_an_int_column_gets_the_numbers_of_an_enum(spark: SparkSession, engine: str) -> None:
    lines = [canal(1, {"id": 1, "c": 2}, {"id": "bigint", "c": "enum('red','blue')"})]
    target = Target("shop.t", key=("id",), columns={"c": "int"})
    assert state(decode_lines(spark, "canal-json", lines, target, Known({}), engine=engine), ("c",)) == [(2,)]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("canal-json", canal(1, KEYED, {"a": "int", "b": "int", "v": "int"}, pkNames=["a", "b"])),
        pytest.param(
            "maxwell-json",
            maxwell(1, KEYED, primary_key_columns=["a", "b"], primary_key=[1, 2]),
            marks=pytest.mark.soak,
        ),
        pytest.param("ogg-json", ogg(1, KEYED, primary_keys=["a", "b"]), marks=pytest.mark.soak),
    ],
)
def test_messages_name_the_columns_of_the_key(spark: SparkSession, name: str, line: str) -> None:
    decoded = decode_lines(spark, name, [line], KEYLESS)
    assert decoded.key == ("a", "b") and state(decoded, ("v",)) == [(3,)]


@pytest.mark.soak
def test_messages_without_key_columns_are_refused(spark: SparkSession) -> None:
    # Maxwell's record keys have other members besides
    lines = [record(json.loads(maxwell(1, {"a": 1})), {"database": "shop", "table": "t", "pk.a": 1}, topic="t")]
    with pytest.raises(InputError, match="messages have none"):
        decode_lines(spark, "maxwell-json", lines, KEYLESS, records=True)
    # the table knows its key
    known = Known({"a": "bigint"}, key=("a",))
    assert decode_lines(spark, "maxwell-json", lines, KEYLESS, known, records=True).key == ("a",)


@pytest.mark.parametrize(
    ("source", "has_key"),
    [
        ({"format": "canal-json"}, True),
        ({"format": "debezium-json", "records": "kafka"}, True),
        ({"format": "debezium-json"}, False),
        ({"format": "json", "records": "kafka"}, False),
        ({"format": "csv"}, False),
    ],
)
def test_only_files_of_some_formats_name_a_key(source: dict[str, str], has_key: bool) -> None:
    document = {"type": "files", "path": "/in/*", **source}
    if has_key:
        parse_source(document, (KEYLESS,))
    else:
        with pytest.raises(SpecError, match="do not contain one"):
            parse_source(document, (KEYLESS,))


@pytest.mark.parametrize("source", [{"format": "csv"}, {"format": "parquet"}])
def test_fold_case_is_refused_for_files_of_rows(source: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="fold_case is for messages"):
        parse_source({"type": "files", "path": "/in/*", **source}, (Target("shop.t", key=("id",), fold_case=True),))


@pytest.mark.soak
def test_a_key_in_another_case_is_reported(spark: SparkSession) -> None:
    lines = [maxwell(1, {"K1": 1, "v": 2})]
    target = Target("shop.t", key=("k1",))
    with pytest.raises(InputError, match="They have K1, and names are case-sensitive"):
        decode_lines(spark, "maxwell-json", lines, target)
    # a delete names no other column
    lines = [maxwell(1, {"k1": 1, "v": 2}), maxwell(2, {"K1": 1}, type="delete")]
    decoded = decode_lines(spark, "maxwell-json", lines, target, Known({"k1": "bigint", "v": "bigint"}))
    assert rejections(decoded) == [
        ("no-key", "no value for the key columns k1; it has K1, and names are case-sensitive")
    ]


def test_fold_case_folds_columns_and_keys(spark: SparkSession) -> None:
    target = Target("shop.t", key=("k1",), fold_case=True)
    lines = [maxwell(1, {"K1": 1, "V": 2}), maxwell(2, {"k1": 2, "v": 3}), maxwell(3, {"K1": 2}, type="delete")]
    decoded = decode_lines(spark, "maxwell-json", lines, target)
    assert [c.name for c in decoded.columns] == ["k1", "v"] and state(decoded, ("k1", "v")) == [(1, 2)]
    lines = [canal(1, {"ID": 1, "V": "x"}, {"ID": "bigint", "V": "text"}, pkNames=["ID"])]
    decoded = decode_lines(spark, "canal-json", lines, Target("shop.t", fold_case=True))
    assert decoded.key == ("id",) and state(decoded, ("id", "v")) == [(1, "x")]
