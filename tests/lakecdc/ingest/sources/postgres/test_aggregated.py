"""A table aggregated from the full load and log of a source table, whose log has no former values."""

from __future__ import annotations

from tests.lakecdc.ingest.sources.model import run

from .conftest import Shop


def test_sums_equal_those_of_the_source(shop: Shop) -> None:
    merge = {"engine": "aggregate", "group_by": ["country"], "columns": {"total": "sum(amount)", "last": "max(id)"}}
    settings = {"source_table": f"{shop.schema}.orders", "history_table": f"{shop.schema}.orders_history"}
    name = shop.target("totals", key=["id"], merge=merge, **settings)
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, country text, amount numeric(12, 2))")
    shop.sql("INSERT INTO s.orders SELECT n, 'c' || n % 3, n / 4.0 FROM generate_series(1, 50) n")

    def check() -> None:
        of_source = "SELECT country, sum(amount), max(id) FROM s.orders GROUP BY country ORDER BY country"
        assert sorted(shop.lake.duckdb_rows(name, "country, total, last")) == shop.sql(of_source)

    run(shop)
    check()
    # a quiet source: the table is as new as its log
    first, second = (run(shop) for _ in range(2))
    assert second[name].outcome == "nothing"
    assert second[name].metrics["read_through"] > first[name].metrics["read_through"]
    shop.sql("UPDATE s.orders SET country = 'c1', amount = 7 WHERE id = 3; DELETE FROM s.orders WHERE id = 50")
    shop.sql("INSERT INTO s.orders VALUES (51, 'new', 1.25); UPDATE s.orders SET id = 60 WHERE id = 6")
    report = run(shop)[name]
    assert (report.outcome, report.metrics["events"], report.metrics["groups"]) == ("done", 5, 4)
    check()
    shop.sql("TRUNCATE s.orders; INSERT INTO s.orders VALUES (1, 'c2', 2)")
    run(shop)
    check()
