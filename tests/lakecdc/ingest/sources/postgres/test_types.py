"""Every mapped type arrives the same through full load and log; misfits stop the table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakecdc.contract.errors import InputError
from lakecdc.ingest.formats.text_columns import TextColumn, TypeRows
from lakecdc.ingest.sources.postgres.types import Texts, numeric

from .conftest import Shop

# column type, SQL of values, type in the target, values in the target
CASES: list[tuple[str, list[str], str, list[Any]]] = [
    ("boolean", ["true", "false"], "boolean", [True, False]),
    ("smallint", ["-32768", "32767"], "int", [-32768, 32767]),
    ("integer", ["-2147483648", "2147483647"], "int", [-2147483648, 2147483647]),
    ("bigint", ["-9223372036854775808", "9223372036854775807"], "bigint", [-(2**63), 2**63 - 1]),
    ("real", ["'NaN'", "'-Infinity'", "0.1"], "float", ["nan", "-inf", 0.10000000149011612]),
    ("double precision", ["'NaN'", "'Infinity'", "0.1", "1e-300"], "double", ["nan", "inf", 0.1, 1e-300]),
    ("numeric(10,2)", ["-12345678.90", "0"], "decimal(10,2)", [Decimal("-12345678.90"), Decimal("0.00")]),
    ("numeric(38,10)", ["1234567890123456789012345678.0123456789"], "decimal(38,10)",
     [Decimal("1234567890123456789012345678.0123456789")]),
    ("numeric(3,-2)", ["12345"], "decimal(5,0)", [Decimal("12300")]),
    ("numeric(3,5)", ["0.00123"], "decimal(5,5)", [Decimal("0.00123")]),
    ("numeric(40,2)", ["1.5"], "string", ["1.50"]),
    ("numeric", ["1.500", "'NaN'"], "string", ["1.500", "NaN"]),
    ("text", ["''", "E'a\\n\"b\", \\\\N \\r\\n\\t'", "'\u00e4\U0001f600'", "'null'", "'\\.'"], "string",
     ["", 'a\n"b", \\N \r\n\t', "ä😀", "null", "\\."]),
    ("varchar(5)", ["'abc  '"], "string", ["abc  "]),
    ("char(4)", ["'ab'"], "string", ["ab  "]),
    ("name", ["'n'"], "string", ["n"]),
    ("uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"], "string", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("json", ["'{\"a\": 1}'"], "string", ['{"a": 1}']),
    ("jsonb", ["'{\"b\":1,\"a\":[1,2]}'"], "string", ['{"a": [1, 2], "b": 1}']),
    ("s.mood", ["'so, so'"], "string", ["so, so"]),
    ("s.price", ["12.5"], "decimal(8,3)", [Decimal("12.500")]),
    ("inet", ["'10.0.0.1/8'"], "string", ["10.0.0.1/8"]),
    ("macaddr", ["'08:00:2b:01:02:03'"], "string", ["08:00:2b:01:02:03"]),
    ("bit(3)", ["B'101'"], "string", ["101"]),
    ("time", ["'24:00:00'", "'01:02:03.000004'"], "string", ["24:00:00", "01:02:03.000004"]),
    ("timetz", ["'01:02:03+05:30'"], "string", ["01:02:03+05:30"]),
    ("bytea", ["''", "'\\x00ff10'"], "binary", [b"", b"\x00\xff\x10"]),
    ("date", ["'0001-01-01'", "'2024-02-29'", "'9999-12-31'"], "date",
     [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    ("timestamp", ["'2024-02-29 23:59:59.999999'", "'1582-10-10 00:00:00'"], "timestamp_ntz",
     [datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(1582, 10, 10)]),
    ("timestamptz", ["'2024-07-01 12:00:00.5+05:30'"], "timestamp", [datetime(2024, 7, 1, 6, 30, 0, 500000, UTC)]),
    ("int[]", ["'{1,null,3}'"], "string", ["{1,NULL,3}"]),
    ("text[]", ["ARRAY['a,b', '\"']"], "string", ['{"a,b","\\""}']),
]  # fmt: skip


def comparable(value: Any) -> Any:
    """Compare NaN as text, bytes as bytes; Spark returns times in the machine's time zone."""
    if isinstance(value, float) and str(value) in ("nan", "inf", "-inf"):
        return str(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def test_every_type_arrives_alike_by_load_and_log(shop: Shop) -> None:
    shop.sql("CREATE TYPE s.mood AS ENUM ('so, so', 'ok')")
    shop.sql("CREATE DOMAIN s.price AS numeric(8,3) CHECK (VALUE > 0)")
    columns = ", ".join(f"c{i} {case[0]}" for i, case in enumerate(CASES))
    depth = max(len(case[1]) for case in CASES)
    rows = [[case[1][n] if n < len(case[1]) else "null" for case in CASES] for n in range(depth)]
    values = ", ".join(f"({n}, {', '.join(row)})" for n, row in enumerate(rows))
    names = [shop.target(table) for table in ("before", "later")]
    for table in ("before", "later"):
        shop.sql(f"CREATE TABLE s.{table} (id int PRIMARY KEY, {columns})")
    shop.sql(f"INSERT INTO s.before VALUES {values}")
    shop.run(rounds=1)
    shop.sql(f"INSERT INTO s.later VALUES {values}")
    shop.run()
    for name in names:
        assert [shop.model.types[name][f"c{i}"] for i in range(len(CASES))] == [case[2] for case in CASES]
        for i, (kind, _sql, _type, expected) in enumerate(CASES):
            decoded = [comparable(shop.model.tables[name][(n,)][f"c{i}"]) for n in range(depth)]
            assert decoded == [comparable(v) for v in expected] + [None] * (depth - len(expected)), f"{kind} in {name}"
    assert [batch.full_load for batch, events in shop.model.batches if events] == [True, False]


@pytest.mark.parametrize(
    ("source_type", "target_type", "value"),
    [
        ("date", "date", "infinity"),
        ("date", "date", "0044-03-15 BC"),
        ("timestamp", "timestamp_ntz", "-infinity"),
        ("timestamp", "timestamp_ntz", "0044-03-15 01:00:00 BC"),
        ("timestamptz", "timestamp", "0044-03-15 01:00:00+00 BC"),
        ("numeric", "decimal(5,2)", "NaN"),
        ("text", "int", "x"),
    ],
)
def test_a_value_without_counterpart_does_not_fit(source_type: str, target_type: str, value: str) -> None:
    rows = TypeRows((TextColumn("odd", source_type, target_type),), (), Texts())
    typed = rows.typed([pa.array([value, None])])
    assert typed.to_pylist() == [{"c0": None, "misfits": [("odd", value)]}, {"c0": None, "misfits": None}]


def test_a_value_without_counterpart_can_be_text_or_excluded(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, d date, p point, n numeric)")
    shop.sql("CREATE TABLE s.u (id int PRIMARY KEY, odd point, v text)")
    shop.sql("INSERT INTO s.u VALUES (1, '(1,2)', 'a')")
    other = shop.target("u", exclude_columns=["odd"])
    shop.sql("INSERT INTO s.t VALUES (1, 'infinity', '(1,2)', 12.3)")
    name = shop.target("t", columns={"d": "string", "p": "string", "n": "decimal(20,4)"})
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (2, '-infinity', '(3,4)', 4.5); INSERT INTO s.u VALUES (2, '(1,2)', 'b')")
    shop.run()
    expected = [(1, "infinity", "(1,2)", Decimal("12.3000")), (2, "-infinity", "(3,4)", Decimal("4.5000"))]
    assert shop.model.rows(name) == expected
    assert shop.model.rows(other) == [(1, "a"), (2, "b")]


def test_a_type_without_counterpart_is_refused_by_name(shop: Shop) -> None:
    shop.sql("CREATE TYPE s.pair AS (a int, b int)")
    shop.sql("CREATE DOMAIN s.spot AS point")
    kinds = ["point", "int4range", "s.pair", "tsvector", "money", "interval", "oid", "point[]", "s.spot"]
    for i, kind in enumerate(kinds):
        shop.sql(f"CREATE TABLE s.t{i} (id int PRIMARY KEY, odd {kind})")
        shop.target(f"t{i}")
    shop.sql("CREATE TABLE s.good (id int PRIMARY KEY)")
    good = shop.target("good")
    refused = shop.run(rounds=1).refused
    assert len(refused) == len(kinds)
    for error in refused.values():
        assert isinstance(error, InputError)
        assert "Column 'odd' has type" in str(error) and '"exclude_columns": ["odd"]' in str(error)
    assert [batch.target.table for batch, _events in shop.model.batches] == [good], "the other table continues"


def test_numeric_without_a_modifier_has_no_bound() -> None:
    assert numeric(-1) == "string"
    assert numeric((10 << 16 | 2) + 4) == "decimal(10,2)"
    assert numeric((38 << 16 | 0) + 4) == "decimal(38,0)"
    assert numeric((39 << 16 | 0) + 4) == "string"
