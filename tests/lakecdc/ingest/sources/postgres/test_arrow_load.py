"""Both ways of a full load leave the same table: Arrow parses and tasks write, or Spark casts and Iceberg writes."""

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

# values at the limits of their types, or whose text the two parsers might read differently
EDGES = {
    "real": ["'-0'", "1e-45", "3.4028235e38", "16777217", "1.17549435e-38", "0.1::float8"],
    "double precision": ["'-0'", "5e-324", "1.7976931348623157e308", "'-Infinity'", "2.2250738585072011e-308"],
    "numeric(10,2)": ["'-0.00'", "-99999999.99", "0.005"],
    "numeric(38,0)": ["99999999999999999999999999999999999999", "-1"],
    "numeric(3,5)": ["-0.00999"],
    "char(4)": ["''", "' a'"],
    "text": ["'a' || chr(13)", "chr(65279) || 'bom'", "'''\"'", "' '", "'t'", "'NaN'", "'-'", "repeat('x', 70000)"],
    "date": ["'1582-10-04'", "'1970-01-01'", "'1969-12-31'"],
    "timestamp": ["'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.9'", "'2024-01-01 00:00:00.1'"],
    "timestamptz": ["'0001-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'", "'1900-01-01 00:00:00.25-11:30'"],
}
# as many of any size
RANDOM = {
    "real": "((random() - 0.5) * 10 ^ (random() * 70 - 35))::real",
    "double precision": "(random() - 0.5) * 10 ^ (random() * 600 - 300)",
    "numeric(10,2)": "(random() - 0.5) * 10 ^ (random() * 8)",
    "bigint": "((random() - 0.5) * 1.8e19)::bigint",
    "date": "date '0001-01-01' + (random() * 3652058)::int",
    "timestamp": "timestamp '0001-01-01' + random() * interval '9998 years'",
    "timestamptz": "timestamptz '0001-01-02 00:00:00+00' + random() * interval '9998 years'",
    "bytea": "sha512(random()::text::bytea)",
    "text": "translate(encode(sha512(random()::text::bytea), 'base64'), 'abcde', E'\"\\n,\\\\\\'')",
}


def kinds_and_values() -> dict[str, list[str]]:
    """Return every type that Arrow reads, with values."""
    kinds = {case[0]: case[1] for case in CASES}
    return kinds | {kind: kinds.get(kind, []) + values for kind, values in EDGES.items()}


def create(shop: Shop) -> list[str]:
    """Create an empty table of every type that Arrow reads; return its columns."""
    shop.sql("CREATE TYPE s.mood AS ENUM ('so, so', 'ok')")
    shop.sql("CREATE DOMAIN s.price AS numeric(8,3) CHECK (VALUE > 0)")
    names = {kind: f"c{i}" for i, kind in enumerate(kinds_and_values())}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    shop.sql(f'CREATE TABLE s.t (id int, "Part, a" text, {columns}, PRIMARY KEY (id, "Part, a"))')
    return ["id", '"Part, a"', *names.values()]


def insert(shop: Shop) -> None:
    """Insert rows of all values, and random ones with ids from -400 to -1."""
    kinds = kinds_and_values()
    names = {kind: f"c{i}" for i, kind in enumerate(kinds)}
    for kind, values in kinds.items():
        rows = ", ".join(f"({n}, {kind!r}, {value})" for n, value in enumerate(values))
        shop.sql(f'INSERT INTO s.t (id, "Part, a", {names[kind]}) VALUES {rows}')
    randoms = ", ".join(f"{sql}" for sql in RANDOM.values())
    into = ", ".join(names[kind] for kind in RANDOM)
    shop.sql(
        f'INSERT INTO s.t (id, "Part, a", {into}) SELECT -i, md5(i::text), {randoms} FROM generate_series(1, 400) i'
    )


def load(shop: Shop, target: str, monkeypatch: pytest.MonkeyPatch | None = None, **settings: Any) -> TableReport:
    """Load ``s.t`` into a table through a separate slot.

    :param monkeypatch: keeps the tasks from writing.
    """
    slot = f"{shop.schema}_{target}"
    shop.targets[:] = [{"table": f"{shop.schema}.{target}", "source_table": f"{shop.schema}.t", **settings}]
    if monkeypatch:
        monkeypatch.setattr(full_load, "_refusal", lambda *_: "forced by the test")
    try:
        return ingest(shop.lake.spark, shop.spec(slot=slot, chunk_bytes=64 * 1024))[0]
    finally:
        if monkeypatch:
            monkeypatch.undo()
        shop.sql(f"SELECT pg_drop_replication_slot('{slot}'); DROP PUBLICATION {slot}")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("merged", {"mode": "merge", "partition_by": ["bucket(4, id)"]}),
        pytest.param("appended", {"mode": "append"}, marks=pytest.mark.soak),
    ],
)
def test_both_ways_leave_the_same_table(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any]
) -> None:
    columns = ", ".join(create(shop))
    insert(shop)
    reports = {
        "by_tasks": load(shop, "by_tasks"),
        name: load(shop, name, **settings),
        "by_spark": load(shop, "by_spark", monkeypatch),
    }
    assert_the_same(shop.lake, shop.schema, reports, columns, shop.sql("SELECT count(*) FROM s.t")[0][0])


CLEANED = "the rows are cleaned"
# column type, value of the second row, settings of the target, why Spark has to write, rows that arrive
ODD: list[tuple[str, str, dict[str, Any], str | None, int]] = [
    ("date", "10000-01-01", {}, None, 1),
    ("timestamp", "infinity", {}, None, 1),
    ("numeric(5,2)", "NaN", {}, None, 1),
    ("text", "x", {"columns": {"v": "binary"}}, None, 2),
    ("numeric", "1.20", {"columns": {"v": "decimal(3,1)"}}, None, 2),
    ("numeric", "1.25", {"columns": {"v": "decimal(3,1)"}}, None, 1),
    ("date", "infinity", {"clean": {"rename": {"v": "w"}}}, CLEANED, 1),
    ("date", "infinity", {"history_table": "{schema}.history"}, None, 1),
    ("text", "x", {"clean": {"rename": {"v": "w"}}}, CLEANED, 2),
]


def test_odd_types_and_values_are_loaded_alike(shop: Shop) -> None:
    names = [f"odd{number}" for number in range(len(ODD))]
    for name, (kind, value, settings, _why, _rows) in zip(names, ODD, strict=True):
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v {kind})")
        shop.sql(f"INSERT INTO s.{name} VALUES (1, null), (2, '{value}')")
        history = settings.get("history_table", "").format(schema=shop.schema)
        shop.target(name, **(settings | ({"history_table": history} if history else {})))
    reports = {report.table: report for report in ingest(shop.lake.spark, shop.spec(chunk_bytes=64 * 1024))}
    for name, (kind, value, settings, why, rows) in zip(names, ODD, strict=True):
        report, case = reports[f"{shop.schema}.{name}"], (kind, value, settings)
        assert report.outcome == "done", (case, report.reason)
        assert report.metrics["full_load_written_by"] == (f"Spark: {why}" if why else "tasks"), case
        assert len(shop.lake.duckdb_rows(f"{shop.schema}.{name}", "id")) == rows, case
        assert report.metrics.get("quarantined", 0) == 2 - rows, case
        data = Path(shop.lake.table(f"{shop.schema}.{name}").location.removeprefix("file:")) / "data"
        assert bool(list(data.glob("lakecdc-*/load-*"))) == (why is None), "files written by tasks were left"
        if "history_table" in settings:
            assert len(shop.lake.duckdb_rows(f"{shop.schema}.history", "id")) == rows
