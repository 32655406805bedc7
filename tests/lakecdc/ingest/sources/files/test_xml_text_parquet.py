"""XML, logs and Parquet."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lakecdc.ingest.sources.files.conftest import Fed


def test_xml_elements_become_rows_despite_broken_neighbours(fed: Fed) -> None:
    fed.source = {"format": "xml", "xml": {"row_tag": "b"}}
    fed.target = {"key": ["_id"], "columns": {"_id": "int", "price": "double"}}
    fed.write(
        "a.xml",
        '<?xml version="1.0"?><bs><b _id="0"/>',
        '<b id="1"><title>A &amp; B</title><price>1.5</price><tag>x</tag><tag>y</tag></b>',
        '<b id="2"><title>C</titl></b>',
        '<b id="3"><price>dear</price><tag>z</tag></b><b id="4" title="D"/><!-- <b id="9"/> -->',
        '<b id="5"><title>E',
    )
    fed.run()
    assert fed.rows("_id, title, price, tag") == [(1, "A & B", 1.5, ["x", "y"]), (4, None, None, None)]
    assert [rule for rule, _ in fed.quarantined()] == ["no-key", "not-xml", "not-xml", "type"]
    # a tag that a later file does not repeat stays an array
    fed.write("b.xml", '<bs><b id="6"><tag>w</tag><new><deep>1</deep></new></b></bs>')
    fed.run()
    assert fed.rows("_id, tag, new.deep")[-1] == (6, ["w"], "1")
    fed.target["columns"] = {"_id": "int", "price": "string"}


@pytest.mark.soak
def test_unclosed_xml_does_not_hide_its_neighbours(fed: Fed) -> None:
    fed.source = {"format": "xml", "xml": {"row_tag": "b"}}
    element = "<b><id>{}</id></b>"
    fed.write(
        "a.xml", f"<bs>{element.format(1)}<!-- {element.format(8)} -->{element.format(2)}<!-- {element.format(3)}</bs>"
    )
    fed.write("b.xml", "<bs>" + element.format(4) + "<b <b " * 20_000)
    fed.write("c.xml", "<bs>" + element.format(5) + "<!--->")
    fed.run()
    assert fed.rows("id") == [("1",), ("2",), ("4",), ("5",)]
    comment, short, tags = sorted(fed.quarantined(), key=lambda record: record[1])
    assert comment == ("not-xml", f"<!-- {element.format(3)}</bs>\n") and short == ("not-xml", "<!--->\n")
    assert tags == ("not-xml", "<b <b " * 20_000 + "\n")


def test_lines_of_a_log_become_rows(fed: Fed) -> None:
    pattern = r'(?P<host>\S+) \S+ (?<user_name>\S+) \[(?P<seen>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>\d+|-)'
    fed.source = {"format": "text", "text": {"pattern": pattern, "null_value": "-"},
                  "timestamp_format": "dd/MMM/yyyy:HH:mm:ss Z"}  # fmt: skip
    fed.target = {"mode": "append", "columns": {"seen": "timestamp", "status": "int"}}
    good = '1.2.3.4 - {} [10/Oct/2025:13:55:36 -0700] "GET / HTTP/1.1" {}'
    bad = ["no line of this log", '1.2.3.4 - x [someday] "GET /" 200']
    fed.write("a.log", good.format("ann", 200), *bad, good.format("-", "-"), good.format("ann", 200))
    fed.run()
    moment = datetime(2025, 10, 10, 20, 55, 36, tzinfo=UTC)
    assert fed.rows("host, user_name, seen, status") == sorted(
        [("1.2.3.4", "ann", moment, 200), ("1.2.3.4", None, moment, None), ("1.2.3.4", "ann", moment, 200)], key=str
    )
    assert fed.quarantined() == sorted(zip(["no-match", "type"], bad, strict=True))


def test_parquet_types_are_kept_widened_and_checked(fed: Fed) -> None:
    def write(name: str, rows: list[dict[str, Any]], **types: pa.DataType) -> None:
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), fed.folder / f"{name}.parquet")

    fed.source = {"format": "parquet"}
    fed.target = {"key": ["id"], "columns": {"code": "int", "long": "string"}}
    row = {"id": 1, "code": "7", "raw": b"\x00\xff", "s": {"a": 1}, "seen": date(2026, 1, 1), "long": b"x" * 60}
    types = {"code": pa.string(), "raw": pa.binary(), "s": pa.struct({"a": pa.int32()})}
    write("a", [row], id=pa.int32(), **types, seen=pa.date32(), long=pa.binary())
    fed.run()
    rows = [
        {"id": 5_000_000_000, "code": "x", "raw": b"\1", "s": {"a": 2}},
        {"id": 6_000_000_000, "code": "8", "seen": datetime(2026, 1, 2, tzinfo=UTC)},
        {"id": 7_000_000_000, "code": "9", "seen": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)},
    ]
    write("b", rows, id=pa.int64(), **types, seen=pa.timestamp("us", "UTC"))
    report = fed.run()
    assert report.metrics["schema_changes"] == ["widened id from int to bigint"]
    assert fed.rows("id, code, raw, s.a, day(seen), length(long)") == [
        (1, 7, b"\x00\xff", 1, 1, 80),
        (6_000_000_000, 8, None, None, 2, None),
    ]
    texts, days = fed.quarantined()
    assert texts[0] == days[0] == "type" and '"code":"x"' in texts[1] and "03:04" in days[1]
    # a damaged file stops the table and is named; its neighbours are read once it is removed
    for number in (8, 9):
        write(f"c{number}", [{"id": number}], id=pa.int32())
    damaged = fed.folder / "c8.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert "c8.parquet" in str(fed.run(outcome="failed").reason)
    damaged.unlink()
    fed.run()
    assert {row[0] for row in fed.rows("id")} == {1, 6_000_000_000, 9}
