"""A column added at the source with a default: older rows have it there, and in the table as well."""

from __future__ import annotations

from tests.lakecdc.ingest.sources.model import differs, run
from tests.versions import V3

from .conftest import Shop


@V3
def test_older_rows_get_the_default(shop: Shop, version: int) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql("CREATE TABLE s.quiet (id int PRIMARY KEY)")
    shop.sql("INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 50) i; INSERT INTO s.quiet VALUES (1), (2)")
    name, quiet = shop.target("t", format_version=version), shop.target("quiet", format_version=version)
    shop.sql("CREATE TABLE s.log (id int PRIMARY KEY); CREATE TABLE s.past (id int PRIMARY KEY)")
    shop.sql("INSERT INTO s.log VALUES (1), (2); INSERT INTO s.past VALUES (1), (2)")
    added, past = shop.target("log", mode="append"), shop.target("past", mode="history")
    run(shop)
    shop.sql("UPDATE s.t SET v = 'before' WHERE id = 1")
    shop.sql(
        "ALTER TABLE s.t ADD n numeric(10,2) DEFAULT 1.5, ADD made timestamptz NOT NULL DEFAULT '2024-01-01 12:00+02'"
    )
    shop.sql("ALTER TABLE s.quiet ADD COLUMN label text NOT NULL DEFAULT 'a,b'")
    shop.sql("UPDATE s.t SET v = 'after' WHERE id = 2; INSERT INTO s.t (id, v, n) VALUES (99, 'new', NULL)")
    for table in ("log", "past"):
        shop.sql(f"ALTER TABLE s.{table} ADD COLUMN kind text DEFAULT 'none'; INSERT INTO s.{table} VALUES (3, 'new')")
    reports = run(shop)
    assert reports[name].metrics["schema_changes"] == ["added n decimal(10,2)", "added made timestamp"]
    assert not differs(shop, name, "id, v, n, extract(epoch FROM made)::bigint")
    assert not differs(shop, quiet, "id, label")
    assert not differs(shop, added, "id, kind")
    # past events are unchanged
    assert sorted(shop.lake.duckdb_rows(past, "id, kind")) == [(1, None), (2, None), (3, "new")]
    assert "lakecdc.columns-to-fill" not in shop.lake.table(name).properties


def test_a_run_killed_before_filling_defaults_fills_them_later(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY)")
    shop.sql("INSERT INTO s.t SELECT generate_series(1, 9)")
    name = shop.target("t")
    run(shop)
    shop.sql("ALTER TABLE s.t ADD COLUMN b boolean DEFAULT true")
    table = shop.lake.table(name)
    table.update_properties({"lakecdc.columns-to-fill": '["b"]'})
    shop.lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN b boolean")
    shop.sql("INSERT INTO s.t VALUES (10, false)")
    run(shop)
    assert not differs(shop, name, "id, b")
