"""XML, logs and Parquet."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.lakecdc.ingest.sources.files.conftest import Fed


def test_xml_elements_become_rows_and_a_broken_one_spoils_no_other(fed: Fed) -> None:
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
    assert [rule for rule, _ in fed.kept()] == ["no-key", "not-xml", "not-xml", "type"]
    # a tag that is not repeated in a later file still is an array
    fed.write("b.xml", '<bs><b id="6"><tag>w</tag><new><deep>1</deep></new></b></bs>')
    fed.run()
    assert fed.rows("_id, tag, new.deep")[-1] == (6, ["w"], "1")
    fed.target["columns"] = {"_id": "int", "price": "string"}


def test_what_does_not_end_in_xml_hides_nothing(fed: Fed) -> None:
    fed.source = {"format": "xml", "xml": {"row_tag": "b"}}
    element = "<b><id>{}</id></b>"
    fed.write(
        "a.xml", f"<bs>{element.format(1)}<!-- {element.format(8)} -->{element.format(2)}<!-- {element.format(3)}</bs>"
    )
    fed.write("b.xml", "<bs>" + element.format(4) + "<b <b " * 20_000)
    fed.write("c.xml", "<bs>" + element.format(5) + "<!--->")
    fed.run()
    assert fed.rows("id") == [("1",), ("2",), ("4",), ("5",)]
    comment, short, tags = sorted(fed.kept(), key=lambda kept: kept[1])
    assert comment == ("not-xml", f"<!-- {element.format(3)}</bs>\n") and short == ("not-xml", "<!--->\n")
    assert tags == ("not-xml", "<b <b " * 20_000 + "\n")


def test_lines_of_a_log(fed: Fed) -> None:
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
    assert fed.kept() == sorted(zip(["no-match", "type"], bad, strict=True))


def test_parquet_types_are_kept_widened_and_checked(fed: Fed) -> None:
    def write(name: str, sql: str) -> None:
        fed.lake.spark.sql(sql).coalesce(1).write.parquet(str(fed.folder.parent / name))
        (found,) = (fed.folder.parent / name).glob("*.parquet")
        found.rename(fed.folder / f"{name}.parquet")

    fed.source = {"format": "parquet"}
    fed.target = {"key": ["id"], "columns": {"code": "int", "long": "string"}}
    write("a", "SELECT 1 AS id, '7' AS code, X'00ff' AS raw, named_struct('a', 1) AS s, DATE'2026-01-01' AS seen, "
               "binary(repeat('x', 60)) AS long")  # fmt: skip
    fed.run()
    write("b", "SELECT 5000000000 AS id, 'x' AS code, X'01' AS raw, named_struct('a', 2) AS s, NULL AS seen"
               " UNION ALL SELECT 6000000000, '8', NULL, NULL, TIMESTAMP'2026-01-02'"
               " UNION ALL SELECT 7000000000, '9', NULL, NULL, TIMESTAMP'2026-01-02 03:04'")  # fmt: skip
    report = fed.run()
    assert report.metrics["schema_changes"] == ["widened id from int to bigint"]
    assert fed.rows("id, code, raw, s.a, day(seen), length(long)") == [
        (1, 7, b"\x00\xff", 1, 1, 80),
        (6_000_000_000, 8, None, None, 2, None),
    ]
    texts, days = fed.kept()
    assert texts[0] == days[0] == "type" and '"code":"x"' in texts[1] and "03:04" in days[1]
    # one that is damaged stops the table and is named; without it, its neighbours go on
    for number in (8, 9):
        write(f"c{number}", f"SELECT {number} AS id")
    damaged = fed.folder / "c8.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert "c8.parquet" in str(fed.run(outcome="failed").reason)
    damaged.unlink()
    fed.run()
    assert {row[0] for row in fed.rows("id")} == {1, 6_000_000_000, 9}
