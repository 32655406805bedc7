"""Every mapped type arrives the same through the full load and through the log; what has no counterpart is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from lakecdc.contract.errors import InputError

from .conftest import Shop

pytestmark = pytest.mark.services

LONG = "9" * 27 + "." + "9" * 10
# column type, SQL of values, type in the target, values in the target
CASES: list[tuple[str, list[str], str, list[Any]]] = [
    ("tinyint", ["-128", "127"], "int", [-128, 127]),
    ("tinyint unsigned", ["255", "0"], "int", [255, 0]),
    ("boolean", ["true", "false"], "int", [1, 0]),
    ("year", ["2155", "1901", "0"], "int", [2155, 1901, 0]),
    ("smallint", ["-32768", "32767"], "int", [-32768, 32767]),
    ("smallint unsigned", ["65535"], "int", [65535]),
    ("mediumint", ["-8388608", "8388607"], "int", [-8388608, 8388607]),
    ("mediumint unsigned zerofill", ["16777215", "7"], "int", [16777215, 7]),
    ("int", ["-2147483648", "2147483647"], "int", [-2147483648, 2147483647]),
    ("int(4) unsigned", ["4294967295"], "bigint", [4294967295]),
    ("bigint", ["-9223372036854775808", "9223372036854775807"], "bigint", [-(2**63), 2**63 - 1]),
    ("bigint unsigned", ["18446744073709551615", "0"], "decimal(20,0)", [Decimal(2**64 - 1), Decimal(0)]),
    ("float", ["0.1", "0", "3.4028234e38", "1e-30"], "float",
     [0.10000000149011612, 0.0, 3.4028234663852886e38, 1.0000000031710769e-30]),
    ("double", ["0.1", "0", "1.7976931348623157e308", "1e-300"], "double",
     [0.1, 0.0, 1.7976931348623157e308, 1e-300]),
    ("double(10,2)", ["1.1"], "double", [1.1]),
    ("decimal(10,2)", ["-12345678.90", "0", "0.05", "-0.05"], "decimal(10,2)",
     [Decimal("-12345678.90"), Decimal("0.00"), Decimal("0.05"), Decimal("-0.05")]),
    ("decimal(37,10)", [LONG, f"-{LONG}"], "decimal(37,10)", [Decimal(LONG), Decimal(f"-{LONG}")]),
    ("decimal(9,9)", ["0.000000001"], "decimal(9,9)", [Decimal("0.000000001")]),
    ("decimal(5,0) unsigned", ["12345"], "decimal(5,0)", [Decimal(12345)]),
    ("decimal(65,3)", ["-1.5"], "string", ["-1.500"]),
    ("bit(1)", ["1", "0"], "boolean", [True, False]),
    ("bit(10)", ["1023", "1"], "bigint", [1023, 1]),
    ("bit(64)", ["18446744073709551615"], "decimal(20,0)", [Decimal(2**64 - 1)]),
    ("date", ["'1000-01-01'", "'2024-02-29'", "'9999-12-31'"], "date",
     [date(1000, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    ("datetime", ["'2024-02-29 23:59:59'", "'0000-00-00 00:00:00'", "'2024-00-10 00:00:00'"], "timestamp_ntz",
     [datetime(2024, 2, 29, 23, 59, 59), None, None]),
    ("datetime(6)", ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'"], "timestamp_ntz",
     [datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    ("datetime(3)", ["'2024-01-02 03:04:05.006'"], "timestamp_ntz", [datetime(2024, 1, 2, 3, 4, 5, 6000)]),
    ("timestamp(1) null", ["'2024-07-01 12:00:00.5'", "'0000-00-00 00:00:00'"], "timestamp",
     [datetime(2024, 7, 1, 12, 0, 0, 500000, UTC), None]),
    ("timestamp null", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"], "timestamp",
     [datetime(1970, 1, 1, 0, 0, 1, 0, UTC), datetime(2038, 1, 19, 3, 14, 7, 0, UTC)]),
    ("time", ["'-838:59:59'", "'00:00:00'", "'-00:00:01'"], "string", ["-838:59:59", "00:00:00", "-00:00:01"]),
    ("time(3)", ["'-01:02:03.5'", "'838:59:58.999'"], "string", ["-01:02:03.500", "838:59:58.999"]),
    ("time(6)", ["'-00:00:00.000001'", "'01:02:03'"], "string", ["-00:00:00.000001", "01:02:03.000000"]),
    ("char(4)", ["'ab'", "'ä😀'", "''"], "string", ["ab", "ä😀", ""]),
    ("char(255)", ["repeat('ä', 255)"], "string", ["ä" * 255]),
    ("varchar(10)", ["'ab  '", "'a\\n\\\\\\'\"b'", "'null'"], "string", ["ab  ", "a\n\\'\"b", "null"]),
    ("varchar(20) character set latin1", ["'é€'", "'\u0081'"], "string", ["é€", "\u0081"]),
    ("varchar(20) character set ucs2", ["'äx'"], "string", ["äx"]),
    ("char(20) character set latin2", ["'Łódź'"], "string", ["Łódź"]),
    ("varchar(300) collate utf8mb4_bin", ["repeat('x', 300)"], "string", ["x" * 300]),
    ("tinytext", ["'t'"], "string", ["t"]),
    ("text character set sjis", ["'日本'"], "string", ["日本"]),
    ("longtext", ["repeat('long', 50000)"], "string", ["long" * 50000]),
    ("json", ["'{\"a\": [1, 2.50]}'"], "string", ['{"a": [1, 2.50]}']),
    ("enum('small','it''s, ok')", ["'it''s, ok'", "'small'"], "string", ["it's, ok", "small"]),
    ("enum('é','ß') character set latin1", ["'ß'"], "string", ["ß"]),
    ("set('x','y','z')", ["'z,x'", "''", "'y'"], "string", ["x,z", "", "y"]),
    ("binary(4)", ["x'de00'", "x'00000000'", "x'01020304'"], "binary",
     [b"\xde\x00\x00\x00", b"\x00" * 4, b"\x01\x02\x03\x04"]),
    ("varbinary(300)", ["x''", "x'00ff10'"], "binary", [b"", b"\x00\xff\x10"]),
    ("tinyblob", ["x'ff'"], "binary", [b"\xff"]),
    ("mediumblob", ["repeat(x'00ff', 50000)"], "binary", [b"\x00\xff" * 50000]),
    ("point", ["point(1, 2)"], "binary",
     [bytes.fromhex("000000000101000000000000000000F03F0000000000000040")]),
    ("geometry", ["st_geomfromtext('POINT(1 2)', 4326)"], "binary",
     [bytes.fromhex("E61000000101000000000000000000F03F0000000000000040")]),
    ("int unsigned", ["7"], "bigint", [7]),
]  # fmt: skip


def comparable(value: Any) -> Any:
    """Floats to the last bit, bytes as bytes; Spark delivers moments in the machine's time zone."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def fill(shop: Shop, table: str) -> list[str]:
    """Statements that make a table with a column of every type and its values."""
    columns = ", ".join(f"c{i} {case[0]}" for i, case in enumerate(CASES))
    depth = max(len(case[1]) for case in CASES)
    rows = [[case[1][n] if n < len(case[1]) else "null" for case in CASES] for n in range(depth)]
    values = ", ".join(f"({n}, {', '.join(row)})" for n, row in enumerate(rows))
    shop.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
    return ["SET sql_mode = ''", f"INSERT INTO {table} VALUES {values}"]


def check(shop: Shop, name: str) -> None:
    assert [shop.model.types[name][f"c{i}"] for i in range(len(CASES))] == [case[2] for case in CASES]
    depth = max(len(case[1]) for case in CASES)
    for i, (kind, _sql, _type, expected) in enumerate(CASES):
        found = [comparable(shop.model.tables[name][(n,)][f"c{i}"]) for n in range(depth)]
        assert found == [comparable(v) for v in expected] + [None] * (depth - len(expected)), f"{kind} in {name}"


def test_every_type_by_both_ways(shop: Shop) -> None:
    before, later = shop.target("before_run"), shop.target("later")
    shop.sql(*fill(shop, "before_run"))
    statements = fill(shop, "later")
    shop.run(rounds=1)
    check(shop, before)
    shop.sql(*statements)
    shop.run()
    check(shop, later)
    assert [batch.full_load for batch, events in shop.model.batches if events] == [True, False]
    assert shop.model.batches[-1][0].facts["zero_dates"] == 3


def test_a_log_without_names_is_read_as_the_table_is_now(shop: Shop) -> None:
    later = shop.target("later")
    statements = fill(shop, "later")
    shop.run(rounds=1)
    try:
        shop.sql("SET GLOBAL binlog_row_metadata = NO_LOG")
        shop.sql(*statements)
    finally:
        shop.sql("SET GLOBAL binlog_row_metadata = FULL")
    shop.run()
    check(shop, later)


def test_a_log_without_names_of_another_table_is_refused(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)", "CREATE TABLE s.u (id int PRIMARY KEY, v int)")
    name, other = shop.target("t"), shop.target("u")
    shop.run(rounds=1)
    try:
        shop.sql("SET GLOBAL binlog_row_metadata = NO_LOG")
        shop.sql("INSERT INTO s.t VALUES (1, 1)", "INSERT INTO s.u VALUES (1, 1)")
    finally:
        shop.sql("SET GLOBAL binlog_row_metadata = FULL")
    shop.sql("ALTER TABLE s.t ADD COLUMN w int", "ALTER TABLE s.u MODIFY v varchar(5)")
    refused = shop.run().refused
    assert "rows of 2 columns, the table now has 3" in str(refused[name])
    assert "Column 'v' was int in the log and is varchar" in str(refused[other])
    assert "binlog_row_metadata = FULL" in str(refused[name]) and "full load" in str(refused[name])


def test_zero_dates_can_be_kept_as_text(shop: Shop) -> None:
    shop.sql("SET sql_mode = ''", "CREATE TABLE s.t (id int PRIMARY KEY, d date)", "INSERT INTO s.t VALUES (1, 0)")
    name = shop.target("t", columns={"d": "string"})
    shop.run()
    shop.sql("SET sql_mode = ''", "INSERT INTO s.t VALUES (2, '2024-00-00')")
    shop.run()
    assert shop.model.rows(name) == [(1, "0000-00-00"), (2, "2024-00-00")]


def test_a_type_without_counterpart_is_refused_by_name(shop: Shop) -> None:
    for i, kind in enumerate(["inet6", "uuid", "int generated always as (id * 2) virtual"]):
        shop.sql(f"CREATE TABLE s.t{i} (id int PRIMARY KEY, odd {kind})")
        shop.target(f"t{i}")
    shop.sql("CREATE TABLE s.t3 (id int PRIMARY KEY, odd text CHARACTER SET geostd8)")
    shop.target("t3")
    shop.sql("CREATE TABLE s.good (id int PRIMARY KEY)")
    good = shop.target("good")
    refused = shop.run(rounds=1).refused
    assert len(refused) == 4
    for error in refused.values():
        assert isinstance(error, InputError)
        assert "Column 'odd'" in str(error) and '"exclude_columns": ["odd"]' in str(error)
    assert [batch.target.table for batch, _events in shop.model.batches] == [good], "the other table goes on"


def test_excluded_columns_do_not_travel(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, odd inet6, v text, w int AS (id * 2) VIRTUAL)")
    shop.sql("INSERT INTO s.t (id, odd, v) VALUES (1, '::1', 'a')")
    name = shop.target("t", exclude_columns=["odd", "w"])
    shop.run()
    shop.sql("INSERT INTO s.t (id, odd, v) VALUES (2, '::1', 'b')")
    shop.run()
    assert shop.model.rows(name) == [(1, "a"), (2, "b")]
