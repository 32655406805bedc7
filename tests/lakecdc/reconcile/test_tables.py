"""Comparison of two Iceberg tables names exactly the differences."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, head

from .support import differences, reconciled

#: type and value of each column, by the id
COLUMNS = {
    "n": ("int", "CAST(id AS int)"),
    "price": ("decimal(12,2)", "CAST(id AS decimal(12,2)) / 4"),
    "name": ("string", "concat('name ', id)"),
    "at": ("timestamp", "timestamp_seconds(id)"),
    "day": ("date", "date_from_unix_date(CAST(id AS int))"),
    "raw": ("binary", "CAST(concat('b', id) AS binary)"),
    "x": ("double", "id / 3D"),
    "tags": ("array<string>", "array('a', NULL, concat('t', id))"),
    "attributes": ("map<string,int>", "map('k', 1, 'l', CAST(id AS int))"),
    "address": ("struct<city:string,zip:string>", "named_struct('city', CAST(NULL AS string), 'zip', 'z')"),
}
#: by id: the other table's values by column
CHANGES: dict[int, dict[str, str]] = {
    3: {"n": "NULL"},
    5: {"price": "1.26"},
    7: {"name": "''"},
    11: {"name": "NULL"},
    13: {"name": "'name 13 '"},
    15: {"name": "'NAME 15'"},
    17: {"at": "timestamp_micros(17000001)"},
    19: {"day": "date_from_unix_date(20)"},
    23: {"raw": "CAST('' AS binary)"},
    29: {"raw": "CAST('B29' AS binary)"},
    31: {"x": "31 / 3D + 1e-9"},
    37: {"x": "CAST('NaN' AS double)"},
    41: {"tags": "array(NULL, 'a', concat('t', id))"},
    43: {"tags": "array()"},
    47: {"tags": "NULL"},
    53: {"attributes": "map('k', 2, 'l', CAST(id AS int))"},
    59: {"address": "named_struct('city', 'z', 'zip', CAST(NULL AS string))"},
    61: {"address": "NULL"},
    67: {"n": "NULL", "name": "CAST(id AS string)"},
}
#: equal values in another form
SAME = {71: {"attributes": "map('l', CAST(id AS int), 'k', 1)"}}
KEY = "id bigint NOT NULL"


def make(lake: Lake, name: str, ids: str, changes: dict[int, dict[str, str]]) -> str:
    """Create a table with a row for each id."""
    listed = ", ".join(f"{column} {kind}" for column, (kind, _) in COLUMNS.items())
    lake.sql(f"CREATE TABLE lake.{name} ({KEY}, {listed}) USING iceberg TBLPROPERTIES ('format-version'='2')")
    values = []
    for column, (_, value) in COLUMNS.items():
        cases = "".join(f" WHEN {n} THEN {change[column]}" for n, change in changes.items() if column in change)
        values.append(f"CASE id{cases} ELSE {value} END" if cases else value)
    lake.sql(f"INSERT INTO lake.{name} SELECT id, {', '.join(values)} FROM ({ids})")
    return name


@pytest.fixture(scope="module")
def names(lake: Lake) -> tuple[str, str]:
    """Create a table and one with many kinds of differences."""
    there = make(lake, lake.new_name("there"), "SELECT id FROM range(1, 1001)", {})
    ids = "SELECT id FROM range(0, 999) WHERE id != 100 UNION ALL SELECT explode(array(200, 2000))"
    return there, make(lake, lake.new_name("here"), ids, {**CHANGES, **SAME})


EXPECTED = sorted(
    [
        *(("different", f'{{"id":{n}}}', tuple(c for c in COLUMNS if c in change)) for n, change in CHANGES.items()),
        *(("missing", f'{{"id":{n}}}', ()) for n in (100, 999, 1000)),
        *(("unexpected", f'{{"id":{n}}}', ()) for n in (0, 2000)),
        ("duplicate", '{"id":200}', ()),
    ]
)


def compare(lake: Lake, names: tuple[str, str], **rest: Any) -> Any:
    target = {"table": names[1], "source_table": names[0], "key": ["id"], **rest.pop("target", {})}
    return reconciled(lake, {"type": "iceberg", **rest.pop("source", {})}, target, **rest)


def test_exactly_the_differences_are_named(lake: Lake, names: tuple[str, str]) -> None:
    report = compare(lake, names, ranges=16)
    assert differences(report) == EXPECTED
    metrics = report.metrics
    assert (report.outcome, metrics["rows_source"], metrics["rows_table"]) == ("skipped", 1000, 1000)
    assert "3 missing, 2 unexpected, 19 different, 1 duplicate" in str(report.reason)
    assert (metrics["ranges"], metrics["in_flight"], metrics["undecided"]) == (16, 0, 0)
    assert 1 < metrics["ranges_different"] < 16, "equal ranges are not read further"
    assert metrics["columns_different"]["name"] == 5
    first = metrics["different_ranges"][0]
    assert (first["range"], first["from"]) == (0, None) and first["unexpected"] == 1
    assert report.snapshot_after == str(head(lake, names[1])), "the comparison does not write"


def test_ranges_of_keys_without_order_are_cut_by_hash(lake: Lake, names: tuple[str, str]) -> None:
    report = compare(lake, names, target={"columns": {"id": "string"}}, ranges=8)
    as_texts = [(kind, key.replace(":", ':"').replace("}", '"}'), columns) for kind, key, columns in EXPECTED]
    assert differences(report) == sorted(as_texts)


def test_a_sample_reads_some_ranges_and_shows_values_on_demand(lake: Lake, names: tuple[str, str]) -> None:
    # rows differ in three ranges, so at least one remains when two are skipped
    report = compare(lake, names, ranges=10, sample=0.8, report_values=False)
    assert (report.metrics["ranges_compared"], report.metrics["ranges"]) == (8, 10)
    assert 700 < report.metrics["rows_source"] < 900
    assert 0 < len(report.metrics["differences"]) <= len(EXPECTED)
    assert all("key" not in row for row in report.metrics["differences"])
    assert all("from" not in one for one in report.metrics["different_ranges"])


def test_too_many_differences_are_counted_but_not_named(lake: Lake, names: tuple[str, str]) -> None:
    report = compare(lake, names, max_keys=24)
    assert (report.outcome, report.metrics["differences"]) == ("skipped", [])
    assert (report.metrics["missing"], report.metrics["different"]) == (3, 19)
    assert "25 rows differ" in str(report.reason) and "max_keys" in str(report.reason)


def test_excluded_columns_and_filtered_rows_are_not_differences(lake: Lake, names: tuple[str, str]) -> None:
    left = {"exclude_columns": [c for c in COLUMNS if c != "n"], "clean": {"filter": "id < 990"}}
    report = compare(lake, names, target=left)
    rows = [row for row in differences(report) if row[0] != "unexpected"]
    assert rows == [
        ("different", '{"id":3}', ("n",)),
        ("different", '{"id":67}', ("n",)),
        ("duplicate", '{"id":200}', ()),
        ("missing", '{"id":100}', ()),
    ]
    assert set(report.metrics["columns_not_compared"]) == {*COLUMNS} - {"n"}


def test_a_table_can_be_compared_with_its_own_past(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    then = {"source": {"snapshot": str(head(lake, name))}, "target": {"source_table": None}}
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 7")
    assert differences(compare(lake, (name, name), **then)) == [("missing", '{"id":7}', ())]


def test_incomparable_tables_are_refused(lake: Lake, names: tuple[str, str]) -> None:
    other = lake.new_name("other")
    lake.sql(f"CREATE TABLE lake.{other} (id bigint, at boolean) USING iceberg")
    report = compare(lake, (names[0], other))
    assert "'at': it is timestamp at the source and boolean in the table" in str(report.reason)
    assert report.failure_class == "bad input"
    assert "no column 'no', which key names" in str(compare(lake, (names[0], other), target={"key": ["no"]}).reason)
