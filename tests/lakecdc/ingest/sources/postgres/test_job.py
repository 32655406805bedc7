"""The ingest job from Postgres into Iceberg tables, read back by another engine."""

from __future__ import annotations

from tests.lakecdc.ingest.sources.model import differs, run
from tests.versions import V3

from .conftest import Shop

BIG = "(SELECT string_agg(md5(i || '{}'), '') FROM generate_series(1, 300) i)"


@V3
def test_tables_equal_their_source_after_every_run(shop: Shop, version: int) -> None:
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, amount numeric(10,2), body text)")
    shop.sql("CREATE TABLE s.lines (order_id int, line int, v text, PRIMARY KEY (order_id, line))")
    # the table's properties contain the names
    shop.sql('CREATE TABLE s.empty (id int PRIMARY KEY, "it\'s" text, "c:\\dir" text)')
    shop.sql(f"INSERT INTO s.orders SELECT i, i / 3.0, {BIG.format('a')} FROM generate_series(1, 300) i")
    shop.sql("INSERT INTO s.lines SELECT i, j, i || '-' || j FROM generate_series(1, 100) i, generate_series(1, 3) j")
    layout = {"format_version": version}
    orders = shop.target("orders", partition_by=["bucket(4, id)"], **layout)
    lines, empty = shop.target("lines", **layout), shop.target("empty", **layout)
    assert {report.outcome for report in run(shop).values()} == {"done"}
    assert not differs(shop, orders, "id, amount, body") and not differs(shop, lines, "order_id, line, v")
    shop.sql("UPDATE s.orders SET amount = 0 WHERE id <= 20; UPDATE s.orders SET id = id + 1000 WHERE id <= 5")
    shop.sql("BEGIN; DELETE FROM s.orders WHERE id = 7; INSERT INTO s.orders VALUES (7, 7, 'again'); COMMIT")
    shop.sql("DELETE FROM s.lines WHERE line = 2; UPDATE s.lines SET line = 2 WHERE line = 3")
    reports = run(shop, max_batch_events=60)
    assert {name: report.outcome for name, report in reports.items()} == {
        orders: "done", lines: "done", empty: "nothing"
    }, reports  # fmt: skip
    assert not differs(shop, orders, "id, amount, body") and not differs(shop, lines, "order_id, line, v")
    shop.sql("ALTER TABLE s.orders ADD COLUMN note text")
    shop.sql("UPDATE s.orders SET note = 'n' WHERE id = 9; TRUNCATE s.lines; INSERT INTO s.lines VALUES (1, 1, 'new')")
    run(shop)
    assert not differs(shop, orders, "id, amount, body, note") and not differs(shop, lines, "order_id, line, v")
    last = run(shop)
    assert {report.outcome for report in last.values()} == {"nothing"}
    assert last[empty].metrics["read_through"] == last[orders].metrics["read_through"] is not None


def test_a_whole_database_is_fed_with_later_tables_despite_a_bad_one(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, v text); INSERT INTO s.orders VALUES (1, 'a')")
    shop.sql("CREATE TABLE s.keyless (v text); CREATE TABLE s.log_2026 (id int PRIMARY KEY)")
    shop.targets.append(
        {
            "table": "{schema}.{table}",
            "source_tables": [rf"{shop.schema}\..*"],
            "exclude_source_tables": ["log_.*"],
            "format_version": 3,
        }
    )
    first = run(shop)
    orders, keyless, late = (f"{shop.schema}.{name}" for name in ("orders", "keyless", "late"))
    assert {name: report.outcome for name, report in first.items()} == {orders: "done", keyless: "failed"}
    assert "no key" in str(first[keyless].reason) or "primary key" in str(first[keyless].reason)
    shop.sql("CREATE TABLE s.late (id int PRIMARY KEY, v text); INSERT INTO s.late VALUES (1, 'x'), (2, 'y')")
    shop.sql("UPDATE s.orders SET v = 'b'")
    second = run(shop)
    assert {second[orders].outcome, second[late].outcome} == {"done"}
    shop.sql("DELETE FROM s.late WHERE id = 1; INSERT INTO s.orders VALUES (2, 'c')")
    run(shop)
    assert not differs(shop, orders, "id, v") and not differs(shop, late, "id, v")
