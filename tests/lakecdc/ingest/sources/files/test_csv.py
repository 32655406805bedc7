"""CSV files: types, order, headers, and lines that do not fit."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.lakecdc.ingest.sources.files.conftest import Fed


def test_columns_have_the_targets_types_or_are_text(fed: Fed) -> None:
    fed.target["columns"] = {"id": "bigint", "price": "decimal(10,2)", "seen": "timestamp", "ok": "boolean"}
    fed.write("a.csv", "id,zip,price,seen,ok", "1,007,1.5,2026-01-01T10:00:00Z,true", '2,"a ""b"", c",,2026-01-02,')
    fed.run()
    assert fed.rows("id, zip, price, seen, ok") == [
        (1, "007", Decimal("1.50"), datetime(2026, 1, 1, 10, tzinfo=UTC), True),
        (2, 'a "b", c', None, datetime(2026, 1, 2, tzinfo=UTC), None),
    ]
    assert fed.run(outcome="nothing").metrics["files_read"] == 0


def test_later_files_and_lines_win_and_new_columns_are_added(fed: Fed) -> None:
    fed.write("a \\b.csv", "id,name", "1,old", "2,two", "1,newer")
    fed.write("c[1].csv", "name,id", "three,3")
    fed.run()
    assert fed.rows("id, name") == [("1", "newer"), ("2", "two"), ("3", "three")]
    fed.write("d.csv", "id,extra", "1,x")
    report = fed.run()
    assert report.metrics["schema_changes"] == ["added extra string"]
    assert fed.rows("id, name, extra") == [("1", None, "x"), ("2", "two", None), ("3", "three", None)]
    # Spark could not read a table with both
    fed.write("e.csv", "id,Extra", "1,y")
    assert "'Extra' differs from the table's 'extra' only in case" in (fed.run(outcome="failed").reason or "")
    fed.write("f.csv", "id,extra", "1,z")
    assert "Extra, extra differ only in case" in (fed.run(outcome="failed").reason or "")
    assert len(fed.rows("*")[0]) == 5


def test_empty_files_are_read_once(fed: Fed) -> None:
    fed.write("a.csv", "id,name")
    fed.run(outcome="nothing")
    fed.write("b.csv", "id,name", "1,one")
    fed.run()
    fed.write("c.csv")
    assert fed.run(outcome="nothing").metrics["files_read"] == 1
    assert fed.run(outcome="nothing").metrics["files_read"] == 0
    assert fed.rows("id, name") == [("1", "one")]


def test_an_order_column_decides_against_arrival(fed: Fed) -> None:
    fed.source["order_by"] = "version"
    fed.target["columns"] = {"version": "int"}
    fed.write("a.csv", "id,version,name", "1,5,five", "2,-3,minus three", "2,-4,minus four")
    fed.run()
    fed.write("b.csv", "id,version,name", "1,4,four", "2,0,zero", "3,,unknown")
    assert fed.run().metrics["older_dropped"] == 1
    assert fed.rows("id, name") == [("1", "five"), ("2", "zero")]
    assert fed.quarantined() == [("no-order", "3,,unknown")]


def test_bad_lines_are_quarantined_and_replayed_once_the_type_fits(fed: Fed) -> None:
    fed.target["columns"] = {"n": "int", "price": "decimal(6,2)"}
    bad = ["2,many,1", "3,1.5,1", "4,1", '5,"1,1', ",1,1", "6,1,1.239"]
    fed.write("a.csv", "id,n,price", "1,1,1.2", *bad, "7,2,", "2,many,1")
    assert fed.run().metrics["quarantined"] == 7
    assert fed.rows("id, n, price") == [("1", 1, Decimal("1.20")), ("7", 2, None)]
    rules = ["type", "type", "fields", "quotes", "no-key", "type", "type"]
    assert fed.quarantined() == sorted(zip(rules, [*bad, "2,many,1"], strict=True))
    keys = fed.rows("rule, row_key", fed.quarantine)
    assert [key for rule, key in keys if rule == "type"] == [f'{{"k0":"{n}"}}' for n in (2, 2, 3, 6)]
    assert not any(key for rule, key in keys if rule != "type")
    fed.target["columns"] = {"n": "string", "price": "decimal(6,2)"}
    fed.lake.sql(f"ALTER TABLE lake.{fed.name} DROP COLUMN n")
    fed.run("replay_quarantine")
    assert fed.rows("id, n") == [("1", None), ("2", "many"), ("3", "1.5"), ("7", None)]
    assert [rule for rule, _ in fed.quarantined()] == ["fields", "no-key", "quotes", "type"]


def test_values_that_would_be_rounded_or_cut_are_quarantined(fed: Fed) -> None:
    fed.target["columns"] = {"price": "decimal(6,2)", "share": "double", "day": "date"}
    bad = ["1,1.5e-3,,", "2,,1d,", "3,,1e400,", "4,,0x1p3,", "5,,,2026-01-02 10:00", "6,,,2026-1-2", "7,?,,"]
    good = ["8,1.5e1,1e-3,2026-01-02", "9,1e2,NaN,2026-01-02 00:00:00.0"]
    text = "\n".join(["id,price,share,day", *bad, *good]).replace("?", "\u00fc")
    (fed.folder / "a.csv").write_text(text, encoding="latin-1")
    fed.run()
    day = date(2026, 1, 2)
    assert fed.rows("id, price, CAST(share AS VARCHAR), day") == [
        ("8", Decimal(15), "0.001", day),
        ("9", Decimal(100), "nan", day),
    ]
    quarantined = fed.lake.duckdb_rows(fed.quarantine, "rule, raw_value")
    assert ("encoding", b"7,\xfc,,") in quarantined and len(quarantined) == len(bad)


@pytest.mark.soak
def test_files_outside_utf_8_are_quarantined_or_named(fed: Fed) -> None:
    fed.target["columns"] = {"price": "decimal(6,2)"}
    fed.write("a.csv", "id,price", "8,1.5")
    fed.run()
    # read as a whole, its line ends look like those within fields
    fed.source["csv"] = {"header": False, "names": ["id", "price"], "comment": "#", "multiline": True}
    (fed.folder / "b.csv").write_bytes(b"# \xfc\n1,1\n")
    fed.run()
    assert ("encoding", b"# \xfc\n1,1\n") in fed.lake.duckdb_rows(fed.quarantine, "rule, raw_value")
    fed.source["csv"] = {}
    (fed.folder / "c.csv").write_bytes(b"id,\xfc\n1,1\n")
    assert "c.csv is not UTF-8" in (fed.run(outcome="failed").reason or "")
    (fed.folder / "c.csv").rename(fed.folder / "c.csv.gz")
    assert "c.csv.gz" in (fed.run(outcome="failed").reason or "")


def test_dialects_without_a_header_are_read(fed: Fed) -> None:
    fed.source["csv"] = {"header": False, "names": ["id", "text"], "delimiter": "\t", "quote": "'", "escape": "\\",
                         "comment": "#", "null_value": "NULL", "multiline": True}  # fmt: skip
    fed.write("a.tsv", "# hello", "1\t'it\\'s", "two lines'", "", "2\tNULL", "3\t'open")
    fed.run()
    assert fed.rows("id, text") == [("1", "it's\ntwo lines"), ("2", None)]
    assert fed.quarantined() == [("quotes", "3\t'open\n")]


@pytest.mark.soak
def test_append_keeps_equal_lines_and_needs_no_key(fed: Fed) -> None:
    fed.target = {"mode": "append"}
    fed.write("a.csv", "what", "x", "x", "y")
    fed.run()
    fed.write("b.csv", "what", "x")
    fed.run()
    assert fed.rows("what") == [("x",), ("x",), ("x",), ("y",)]


@pytest.mark.soak
def test_a_key_missing_in_headers_is_refused(fed: Fed) -> None:
    fed.write("a.csv", "ID,name", "1,a")
    reason = fed.run(outcome="failed").reason or ""
    assert "no columns id; it has ID, name" in reason


@pytest.mark.soak
def test_rows_rejected_by_clean_are_replayed_after_its_correction(fed: Fed) -> None:
    fed.target["clean"] = {"compute": {"day": "to_date(day, 'dd.MM.yyyy')"}}
    fed.write("1.csv", "id,day", "1,01.02.2024", "2,2024-02-03", "3,2024-02-03")
    fed.write("2.csv", "id,day", "3,04.02.2024")
    assert fed.run().metrics["quarantined"] == 2
    assert fed.rows("id") == [("1",), ("3",)]
    fed.target["clean"]["compute"]["day"] = "coalesce(try_to_date(day, 'dd.MM.yyyy'), to_date(day))"
    fed.run("replay_quarantine")
    assert fed.rows("id, day::text") == [("1", "2024-02-01"), ("2", "2024-02-03"), ("3", "2024-02-04")]
    assert fed.quarantined() == []
