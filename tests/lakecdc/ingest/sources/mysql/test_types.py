"""Every mapped type arrives the same through full load and log; types without a counterpart are refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.mysql import values
from local_services.mysql import MySQL

from .conftest import Shop, both, only_mysql

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
    ("json", ["'{\"a\": [1, 2.5]}'"], "string", ['{"a": [1, 2.5]}']),
    ("enum('small','it''s, ok')", ["'it''s, ok'", "'small'"], "string", ["it's, ok", "small"]),
    ("enum('é','ß') character set latin1", ["'ß'"], "string", ["ß"]),
    ("enum('a\\\\b','c\\nd')", ["'a\\\\b'", "'c\\nd'"], "string", ["a\\b", "c\nd"]),
    ("set('x','y','z')", ["'z,x'", "''", "'y'"], "string", ["x,z", "", "y"]),
    ("binary(4)", ["x'de00'", "x'00000000'", "x'01020304'"], "binary",
     [b"\xde\x00\x00\x00", b"\x00" * 4, b"\x01\x02\x03\x04"]),
    ("varbinary(300)", ["x''", "x'00ff10'"], "binary", [b"", b"\x00\xff\x10"]),
    ("tinyblob", ["x'ff'"], "binary", [b"\xff"]),
    ("mediumblob", ["repeat(x'00ff', 50000)"], "binary", [b"\x00\xff" * 50000]),
    ("point", ["point(1, 2)"], "binary",
     [bytes.fromhex("000000000101000000000000000000F03F0000000000000040")]),
    ("int unsigned", ["7"], "bigint", [7]),
]  # fmt: skip
# MariaDB keeps a document's text, MySQL the document; MySQL puts latitudes first under SRID 4326
MARIADB: list[tuple[str, list[str], str, list[Any]]] = [
    ("json", ["'{\"a\": [1, 2.50]}'"], "string", ['{"a": [1, 2.50]}']),
    ("geometry", ["st_geomfromtext('POINT(1 2)', 4326)"], "binary",
     [bytes.fromhex("E61000000101000000000000000000F03F0000000000000040")]),
]  # fmt: skip
MYSQL: list[tuple[str, list[str], str, list[Any]]] = [
    ("json", ["'{\"a\": [1, 2.50]}'", "'{\"bb\": 1, \"a\": {}, \"bb\": 2}'"], "string",
     ['{"a": [1, 2.5]}', '{"a": {}, "bb": 2}']),
    ("geometry", ["st_geomfromtext('POINT(1 2)', 4326)"], "binary",
     [bytes.fromhex("E610000001010000000000000000000040000000000000F03F")]),
    ("geometry srid 0", ["st_geomfromtext('GEOMETRYCOLLECTION(POINT(1 2))')"], "binary",
     [bytes.fromhex("000000000107000000010000000101000000000000000000F03F0000000000000040")]),
    ("vector(3)", ["to_vector('[1, -2, 0.5]')"], "binary", [struct.pack("<fff", 1, -2, 0.5)]),
    ("vector", ["to_vector('[1]')"], "binary", [struct.pack("<f", 1)]),
    ("varchar(9) collate utf8mb4_0900_as_cs", ["'Ä😀 '"], "string", ["Ä😀 "]),
    ("varchar(9) collate utf8mb4_ja_0900_as_cs_ks", ["'日本'"], "string", ["日本"]),
    ("char(9) character set gb18030", ["'日本😀'"], "string", ["日本😀"]),
    ("enum('日','本') character set utf16", ["'本'"], "string", ["本"]),
    ("int unsigned", ["7"], "bigint", [7]),
]  # fmt: skip
#: SQL of JSON values of every kind; the server returns their text
DOCUMENTS = [
    "CAST('null' AS JSON)", "CAST('\"\"' AS JSON)", "CAST('[]' AS JSON)", "CAST('{}' AS JSON)",
    "JSON_ARRAY(true, false, null, 1, -1, 32767, 32768, -32769, 65535, 65536, 2147483648, -2147483649, 4294967296)",
    "JSON_ARRAY(18446744073709551615, -9223372036854775808)",
    "JSON_ARRAY(1e0, -0e0, 0.1e0, 1e14, 1e15, 1e16, -1.5e300, 1e-15, 1e-16, 5e-324, 123456789012345678e0)",
    "JSON_ARRAY(1.50, -0.05, 0.0, CAST('1.1' AS DECIMAL(65,30)))",
    "JSON_ARRAY(CAST('2024-02-29' AS DATE), TIMESTAMP'2024-02-29 23:59:58.123456', CAST('-838:59:58.5' AS TIME(3)))",
    "JSON_OBJECT('b', x'cafe', 'bit', b'101', 'long', CAST(repeat('x', 200) AS BINARY), 'y', CAST(2024 AS YEAR))",
    "JSON_ARRAY(st_geomfromtext('POINT(1 2)'), CAST(1.5 AS FLOAT), 'ä😀\\\\\"\\n\\t\x01\x7f/')",
    "JSON_OBJECT('', 1, 'é', 2, repeat('k', 300), repeat('v', 70000))",
    "(SELECT JSON_OBJECTAGG(concat('k', n), JSON_ARRAY(n, n / 8e0, n * 100000, null)) FROM sequence.n WHERE n < 3000)",
    "(SELECT JSON_ARRAYAGG(IF(n % 2, n, CAST(n AS CHAR))) FROM sequence.n WHERE n < 20000)",
]  # fmt: skip


def cases(shop: Shop) -> list[tuple[str, list[str], str, list[Any]]]:
    """Return the cases of a test's server."""
    return [*CASES, *(MYSQL if isinstance(shop.server, MySQL) else MARIADB)]


def comparable(value: Any) -> Any:
    """Compare floats to the last bit, bytes as bytes; Spark returns times in the machine's time zone."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def fill(shop: Shop, table: str) -> list[str]:
    """Return statements that create a table with a column of every type and its values."""
    columns = ", ".join(f"c{i} {case[0]}" for i, case in enumerate(cases(shop)))
    depth = max(len(case[1]) for case in cases(shop))
    rows = [[case[1][n] if n < len(case[1]) else "null" for case in cases(shop)] for n in range(depth)]
    listed = ", ".join(f"({n}, {', '.join(row)})" for n, row in enumerate(rows))
    shop.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
    return ["SET sql_mode = ''", f"INSERT INTO {table} VALUES {listed}"]


def check(shop: Shop, name: str) -> None:
    expected_cases = cases(shop)
    assert [shop.model.types[name][f"c{i}"] for i in range(len(expected_cases))] == [case[2] for case in expected_cases]
    depth = max(len(case[1]) for case in expected_cases)
    for i, (kind, _sql, _type, expected) in enumerate(expected_cases):
        values = [comparable(shop.model.tables[name][(n,)][f"c{i}"]) for n in range(depth)]
        assert values == [comparable(v) for v in expected] + [None] * (depth - len(expected)), f"{kind} in {name}"


@both
def test_every_type_arrives_alike_by_load_and_log(shop: Shop) -> None:
    before, later = shop.target("before_run"), shop.target("later")
    shop.sql(*fill(shop, "before_run"))
    statements = fill(shop, "later")
    shop.run(rounds=1)
    check(shop, before)
    shop.sql(*statements)
    shop.run()
    check(shop, later)
    assert [batch.full_load for batch, events in shop.model.batches if events] == [True, False]
    assert shop.model.batches[-1][0].source.facts["zero_dates"] == 3


@contextmanager
def without_names(shop: Shop) -> Iterator[None]:
    """Let the server log as little about columns as possible."""
    shop.sql(f"SET GLOBAL binlog_row_metadata = {'MINIMAL' if isinstance(shop.server, MySQL) else 'NO_LOG'}")
    try:
        yield
    finally:
        shop.sql("SET GLOBAL binlog_row_metadata = FULL")


@both
def test_a_log_without_names_gets_the_tables_present_names(shop: Shop) -> None:
    later = shop.target("later")
    statements = fill(shop, "later")
    shop.run(rounds=1)
    with without_names(shop):
        shop.sql(*statements)
    shop.run()
    check(shop, later)


@only_mysql
def test_json_of_every_kind_equals_the_servers_text(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int AUTO_INCREMENT PRIMARY KEY, v json)")
    name = shop.target("t")
    shop.run()
    for document in DOCUMENTS:
        shop.sql(f"INSERT INTO s.t (v) VALUES ({document})")
    shop.run()
    source = shop.sql("SELECT id, v FROM s.t ORDER BY id")
    assert len(source) == len(DOCUMENTS) and max(len(text) for _id, text in source) > 100_000
    assert shop.model.rows(name) == source


@both
def test_every_character_of_every_set_decodes_as_on_the_server(shop: Shop) -> None:
    known = {row[0] for row in shop.sql("SELECT character_set_name FROM information_schema.character_sets")}
    sets = sorted(known & {*values._ENCODINGS})
    plane = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0xFFFD), *range(0x1F600, 0x1F650))))
    shop.sql(f"CREATE TABLE s.t (id int PRIMARY KEY, {', '.join(f'{n} longtext CHARACTER SET {n}' for n in sets)})")
    name = shop.target("t")
    shop.run()
    # a set replaces a character it lacks by a question mark; Python reads none of IBM's in the third plane of eucjpms
    known_to_python = plane.encode("euc-jp", "ignore").decode("euc-jp") + "".join(map(chr, range(0xE000, 0xE758)))
    texts = [f"{known_to_python}①№㈱－∥～￠￡￢￤" if charset == "eucjpms" else plane for charset in sets]
    with shop.server.connect(database=shop.schema) as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"INSERT INTO t VALUES (1, {', '.join(['%s'] * len(sets))})", texts)
    assert not shop.run().refused
    (source,) = shop.sql(f"SELECT {', '.join(sets)} FROM s.t")
    (decoded,) = shop.model.rows(name, *sets)
    assert [n for n, one, other in zip(sets, source, decoded, strict=True) if one != other] == []
    assert min(len(text) - text.count("?") for text in source) > 100


@both
def test_a_log_without_names_of_another_table_is_refused(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)", "CREATE TABLE s.u (id int PRIMARY KEY, v int)")
    name, other = shop.target("t"), shop.target("u")
    shop.run(rounds=1)
    with without_names(shop):
        shop.sql("INSERT INTO s.t VALUES (1, 1)", "INSERT INTO s.u VALUES (1, 1)")
    shop.sql("ALTER TABLE s.t ADD COLUMN w int", "ALTER TABLE s.u MODIFY v varchar(5)")
    refused = shop.run().refused
    assert "log have 2 columns, the table now has 3" in str(refused[name])
    assert "Column 'v' was int in the log and is varchar" in str(refused[other])
    assert "binlog_row_metadata = FULL" in str(refused[name]) and "full load" in str(refused[name])


@pytest.mark.soak
def test_zero_dates_can_be_stored_as_text(shop: Shop) -> None:
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
    assert [batch.target.table for batch, _events in shop.model.batches] == [good], "the other table continues"


@pytest.mark.soak
@both
def test_excluded_columns_are_not_read(shop: Shop) -> None:
    odd, value = ("vector(2)", "to_vector('[1, 2]')") if isinstance(shop.server, MySQL) else ("inet6", "'::1'")
    shop.sql(f"CREATE TABLE s.t (id int PRIMARY KEY, odd {odd}, v text, w int AS (id * 2) VIRTUAL)")
    shop.sql(f"INSERT INTO s.t (id, odd, v) VALUES (1, {value}, 'a')")
    name = shop.target("t", exclude_columns=["odd", "w"])
    shop.run()
    shop.sql(f"INSERT INTO s.t (id, odd, v) VALUES (2, {value}, 'b')", "UPDATE s.t SET id = 3 WHERE id = 1")
    shop.run()
    assert shop.model.rows(name) == [(2, "b"), (3, "a")]
