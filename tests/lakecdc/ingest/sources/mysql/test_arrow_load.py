"""Both ways of a full load leave the same table: Arrow converts and tasks write, or Spark casts and Iceberg writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.apply import full_load
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.sources.arrow_loads import assert_the_same

from .conftest import Shop
from .test_types import CASES

pytestmark = pytest.mark.services

# values at the limits of their types, or whose text the two might read differently
EDGES = {
    "float": ["-0e0", "1.401298464324817e-45", "-3.4028234e38", "16777217", "1.17549435e-38"],
    "double": ["-0e0", "5e-324", "-2.2250738585072011e-308", "123456789012345678"],
    "decimal(10,2)": ["99999999.99", "-0.00"],
    "int(9) zerofill": ["7", "0"],
    "decimal(9,3) zerofill": ["7.25"],
    "date": ["'0001-01-01'", "'1582-10-04'", "'1969-12-31'", "'0000-00-00'", "'2024-02-00'"],
    "datetime(6)": ["'0001-01-01'", "'1969-12-31 23:59:59.9'", "'0000-05-01'"],
    "timestamp(6) null": ["'1970-01-01 00:00:01.25'"],
    "text": ["''", "' '", "'NULL'", r"'a\r\n\t\\b'", "repeat('x', 70000)", "'\ufeffbom'"],
}
# as many of any size
RANDOM = {
    "float": "(rand() - 0.5) * pow(10, rand() * 70 - 35)",
    "double": "(rand() - 0.5) * pow(10, rand() * 600 - 300)",
    "decimal(10,2)": "(rand() - 0.5) * pow(10, rand() * 8)",
    "bigint": "(rand() - 0.5) * 1.8e19",
    "date": "'0001-01-01' + INTERVAL floor(rand() * 3652058) DAY",
    "datetime(6)": "'1000-01-01' + INTERVAL rand() * 280000000000 SECOND",
    "timestamp(6) null": "from_unixtime(rand() * 2147483000 + 1)",
}


def kinds_and_values() -> dict[str, list[str]]:
    """Return every type that Arrow reads, with values."""
    kinds = {case[0]: case[1] for case in CASES}
    kinds |= {kind: kinds.get(kind, []) + values for kind, values in EDGES.items()}
    return {**kinds, **{kind: kinds.get(kind, []) for kind in RANDOM}}


def create(shop: Shop) -> list[str]:
    """Create an empty table of every type that Arrow reads; return its columns."""
    names = {kind: f"c{i}" for i, kind in enumerate(kinds_and_values())}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    shop.sql(f"CREATE TABLE s.t (id int, `Part, a` varchar(9), {columns}, PRIMARY KEY (id, `Part, a`))")
    return ["id", '"Part, a"', *names.values()]


def insert(shop: Shop) -> None:
    """Insert rows of all values, and random ones with ids from -400 to -1."""
    kinds = {kind: values for kind, values in kinds_and_values().items() if values}
    names = {kind: f"c{i}" for i, kind in enumerate(kinds_and_values())}
    for n, (kind, values) in enumerate(kinds.items()):
        rows = ", ".join(f"({i}, 'k{n}', {value})" for i, value in enumerate(values))
        shop.sql("SET sql_mode = ''", f"INSERT INTO s.t (id, `Part, a`, {names[kind]}) VALUES {rows}")
    into, random_values = ", ".join(names[kind] for kind in RANDOM), ", ".join(RANDOM.values())
    shop.sql(
        "SET sql_mode = ''",
        f"INSERT INTO s.t (id, `Part, a`, {into}) SELECT -seq, 'r', {random_values} FROM seq_1_to_400",
    )


def load(shop: Shop, target: str, monkeypatch: pytest.MonkeyPatch | None = None, **settings: Any) -> TableReport:
    """Load ``s.t`` into a table.

    :param monkeypatch: keeps the tasks from writing.
    """
    shop.targets[:] = [{"table": f"{shop.schema}.{target}", "source_table": f"{shop.schema}.t", **settings}]
    if monkeypatch:
        monkeypatch.setattr(full_load, "_refusal", lambda *_: "forced by the test")
    try:
        return ingest(shop.lake.spark, shop.spec(chunk_rows=100, full_load_commit_rows=300))[0]
    finally:
        if monkeypatch:
            monkeypatch.undo()


def test_both_ways_leave_the_same_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ", ".join(create(shop))
    insert(shop)
    reports = {
        "by_tasks": load(shop, "by_tasks"),
        "merged": load(shop, "merged", mode="merge", partition_by=["bucket(4, id)"]),
        "by_spark": load(shop, "by_spark", monkeypatch),
    }
    assert len({report.metrics["zero_dates"] for report in reports.values()}) == 1
    assert_the_same(shop.lake, shop.schema, reports, columns, shop.sql("SELECT count(*) FROM s.t")[0][0])


# column type, values of the rows, settings of the target, why Spark has to write
ODD: list[tuple[str, str, dict[str, Any], str | None]] = [
    # a date that the calendar lacks
    ("date", "'2024-02-31'), (3, '2024-01-00'", {}, None),
    ("blob", "'x'", {"columns": {"v": "string"}}, None),
    ("int", "5", {"columns": {"v": "decimal(3,1)"}}, None),
    ("text", "'x'", {"clean": {"rename": {"v": "w"}}}, "the rows are cleaned"),
]


def test_odd_types_and_values_are_loaded_alike(shop: Shop) -> None:
    names = [f"{shop.schema}.odd_{kind}" for kind, *_ in ODD]
    for name, (kind, value, settings, _why) in zip(names, ODD, strict=True):
        shop.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind})")
        shop.sql("SET sql_mode = 'ALLOW_INVALID_DATES'", f"INSERT INTO {name} VALUES (1, null), (2, {value})")
        shop.target(f"odd_{kind}", **settings)
    reports = {report.table: report for report in ingest(shop.lake.spark, shop.spec(chunk_rows=100))}
    for name, (kind, _value, _settings, why) in zip(names, ODD, strict=True):
        report = reports[name]
        assert report.outcome == "done", (kind, report.reason)
        assert report.metrics["full_load_written_by"] == (f"Spark: {why}" if why else "tasks"), kind
        assert len(shop.lake.duckdb_rows(name, "id")) == (3 if kind == "date" else 2), kind
        assert report.metrics.get("zero_dates", 0) == (kind == "date"), "rows read twice count once"
        data = Path(shop.lake.table(name).location.removeprefix("file:")) / "data"
        assert bool(list(data.glob("lakecdc-*/load-*"))) == (why is None), "files written by tasks were left"
