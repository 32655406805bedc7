"""Checks of tables, compared with DuckDB's counts of the same rows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import EXIT_BAD_INPUT, TableReport, parse_report
from lakecdc.contract.spec import parse_spec
from lakecdc.maintain.check import check_tables
from lakecdc.maintain.compact import compact_data_files
from lakecdc.runtime.run import run as run_job
from lakecdc.runtime.run import work_of
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, delete_by_key, duckdb_rows, fill, metadata_location, run
from tests.on_demand import on_demand

COLUMNS = "id bigint NOT NULL, v string, d int, day date, at timestamp"
Check = dict[str, Any]


def check(lake: Lake, name: str, *checks: Check, **options: Any) -> TableReport:
    return run(lake, check_tables, name, checks={name: list(checks)}, **options)


def counts(report: TableReport) -> list[Any]:
    return [each.get("failed_rows", each.get("rows")) for each in report.metrics["checks"]]


@pytest.fixture(scope="module")
def orders(lake: Lake) -> str:
    """Create a table with every kind of violation, and rows deleted by key."""
    name = create(lake, 2, columns=COLUMNS)
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    lake.sql(
        f"INSERT INTO lake.{name} SELECT id, if(id % 10 = 3, null, concat('v', id % 60)), cast(id % 4 AS int), "
        "date_add(DATE '2026-01-01', cast(id AS int)), TIMESTAMP '2026-01-01 00:00:00' FROM range(100)"
    )
    lake.sql(f"INSERT INTO lake.{name} VALUES (7, 'seven', 99, DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00')")
    delete_by_key(lake, name, [3, 13])
    return name


def test_failing_rows_are_counted_as_by_another_engine(lake: Lake, orders: str) -> None:
    report = check(
        lake,
        orders,
        {"type": "not_null", "columns": ["id", "v"]},
        {"type": "unique", "columns": ["id"]},
        {"type": "unique", "columns": ["v", "d"], "where": "id < 80"},
        {"type": "accepted_values", "column": "d", "values": [0, 1, 2], "severity": "warn"},
        {"type": "accepted_values", "column": "day", "values": ["2020-01-01"], "where": "id = 7"},
        {"type": "condition", "condition": "length(v) < 4"},
        {"type": "row_count", "min": 99, "max": 99},
        {"type": "row_count", "min": 100, "where": "d >= 0"},
        {"type": "freshness", "column": "at", "max_age": 60.0},
        {"type": "freshness", "max_age": 86400.0},
    )
    rows = duckdb_rows(lake, orders)
    known = [(v, d) for id, v, d, *_ in rows if id < 80 and v is not None]
    assert counts(report) == [
        sum(v is None for _, v, *_ in rows),
        len(rows) - len({id for id, *_ in rows}),
        len(known) - len(set(known)),
        sum(d not in (0, 1, 2) for _, _, d, *_ in rows),
        1,
        sum(len(v) >= 4 for _, v, *_ in rows if v is not None),
        len(rows),
        len(rows),
        None,
        None,
    ]
    assert [each["passed"] for each in report.metrics["checks"]] == [*[False] * 6, True, False, False, True]
    assert (report.outcome, report.failure_class) == ("failed", "bad input")
    assert report.reason and report.reason.startswith("7 of 10 checks failed: not_null(id, v): 8 rows; unique(id)")
    assert "1 of 10 checks warned: accepted_values(d): 25 rows" in report.reason
    assert [report.metrics[f"checks_{what}"] for what in ("passed", "failed", "warned")] == [2, 7, 1]
    assert "sample" not in json.dumps(report.metrics)


def test_failing_rows_are_named_where_values_may_be_shown(lake: Lake, orders: str) -> None:
    report = check(
        lake,
        orders,
        {"type": "condition", "condition": "d < 50", "severity": "warn"},
        {"type": "unique", "columns": ["id"], "severity": "warn"},
        {"type": "not_null", "columns": ["v"], "severity": "warn"},
        report_values=True,
    )
    assert report.outcome == "nothing", "warnings do not fail the job"
    samples = [[json.loads(row) for row in each["sample"]] for each in report.metrics["checks"]]
    assert samples[:2] == [[{"id": 7, "d": 99}], [{"id": 7}]]
    assert sorted(row["id"] for row in samples[2]) == [23, 33, 43, 53, 63, 73, 83, 93]


BAD: list[tuple[Check, str]] = [
    ({"type": "not_null", "columns": ["nowhere"]}, r"refuses the check not_null\(nowhere\): .*nowhere"),
    ({"type": "condition", "condition": "d + 1"}, "got .* of type integer"),
    ({"type": "accepted_values", "column": "d", "values": [1, "x"]}, "Expected values of type int .* got 'x'"),
    ({"type": "unique", "columns": ["id", "nowhere"]}, "refuses the check unique"),
    ({"type": "freshness", "column": "nowhere", "max_age": 1.0}, "refuses the check freshness"),
    ({"type": "condition", "condition": "d >"}, r"refuses the check condition\(d >\)"),
    ({"type": "condition", "condition": "max(d) > 1"}, "refuses the check condition"),
    ({"type": "row_count", "min": 1, "where": "v"}, "got .* of type string"),
    ({"type": "freshness", "column": "d", "max_age": 1.0}, "got 'd' of type integer"),
]


@pytest.mark.parametrize(("bad", "message"), on_demand(BAD, in_ci=BAD[:3]))
def test_bad_checks_are_refused_before_a_row_is_read(lake: Lake, orders: str, bad: Check, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        check(lake, orders, {"type": "row_count", "min": 1}, bad, dry_run=True)
    assert error.value.table == orders


def test_values_in_errors_of_expressions_are_hidden(lake: Lake, orders: str) -> None:
    bad = {"type": "condition", "condition": "cast(v AS int) > 0"}
    assert check(lake, orders, bad, dry_run=True).outcome == "nothing"
    with pytest.raises(InputError, match="failed on a value") as error:
        check(lake, orders, bad)
    # Spark decides which of them comes first
    value = r"The value '(v\d+|seven)'"
    assert not re.search(value, str(error.value))
    with pytest.raises(InputError, match=value):
        check(lake, orders, bad, report_values=True)


def test_an_empty_table_is_checked(lake: Lake) -> None:
    name = create(lake, 3)
    checks: list[Check] = [{"type": "row_count", "min": 1}, {"type": "freshness", "max_age": 60.0}]
    report = check(lake, name, *checks, {"type": "unique", "columns": ["id"]})
    assert (report.outcome, counts(report)[:2]) == ("failed", [0, None])
    assert report.metrics["checks"][2]["passed"] and report.metrics["checks_passed"] == 1
    with pytest.raises(InputError, match="It has no checks"):
        run(lake, check_tables, name, checks={"other.table": [{"type": "row_count", "min": 1}]})
    with pytest.raises(InputError, match="branch 'nowhere' does not exist"):
        check(lake, name, {"type": "row_count", "min": 1}, branch="nowhere")


def test_a_report_has_the_result_of_each_table(lake: Lake, orders: str) -> None:
    sound = create(lake, 2)
    append(lake, sound, 0, 3)
    checks = [{"type": "unique", "columns": ["id"]}]
    spec = lake.spec("check_tables", orders, sound, options={"checks": {orders: checks, sound: checks}})
    report = run_job(parse_spec(spec), work_of("check_tables"))
    assert [table.outcome for table in report.tables] == ["failed", "nothing"]
    assert report.tables[1].reason == "1 of 1 checks passed"
    assert report.exit_code() == EXIT_BAD_INPUT
    parsed = parse_report(json.loads(report.to_json())).tables[0]
    assert parsed.metrics["checks"] == [{"check": "unique(id)", "severity": "error", "passed": False, "failed_rows": 1}]


def test_a_branch_is_checked_without_changes(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name, 1, 5)
    lake.sql(f"ALTER TABLE lake.{name} CREATE BRANCH tried")
    lake.sql(f"INSERT INTO lake.{name}.branch_tried VALUES (1, null, 1)")
    before = metadata_location(lake, name)
    not_null = {"type": "not_null", "columns": ["v"]}
    assert counts(check(lake, name, not_null)) == [0]
    assert counts(check(lake, name, not_null, branch="tried")) == [1]
    assert metadata_location(lake, name) == before


def test_a_shrinking_table_is_recognized_by_its_snapshots(lake: Lake) -> None:
    name, row_count = create(lake, 2), {"type": "row_count", "max_change": 0.2}
    append(lake, name, 0, 100)
    assert check(lake, name, row_count).outcome == "nothing", "there is no earlier run to compare with"
    # another writer's run; all commits of this session are one run of Spark
    table = lake.pyiceberg().load_table(name)
    table.append(table.scan(limit=10).to_arrow())
    lake.sql(f"REFRESH TABLE lake.{name}")
    assert check(lake, name, row_count).metrics["checks"][0]["change"] == 0.1
    lake.sql(f"DELETE FROM lake.{name} WHERE id >= 60")
    run(lake, compact_data_files, name, min_input_files=2, delete_ratio=0.1)
    report = check(lake, name, row_count)
    left = len(duckdb_rows(lake, name))
    result = report.metrics["checks"][0]
    assert (result["rows"], result["runs_compared"], result["change"]) == (left, 2, round((105 - left) / 105, 4))
    assert report.outcome == "failed"
    assert "from the average of 2 earlier runs" in str(report.reason)
