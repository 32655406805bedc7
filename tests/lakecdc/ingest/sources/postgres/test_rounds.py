"""Full load and log of real tables: what arrives, in which order, from which position."""

from __future__ import annotations

from decimal import Decimal

from .conftest import Shop

_FILL = """
INSERT INTO s.orders SELECT i, i + 0.5, CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN E'a\\n"b",' END
FROM generate_series(1, 1000) i
"""
_ALL = "SELECT * FROM s.orders ORDER BY id"


def test_full_load_and_log_meet(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, amount numeric(10,2), note text)")
    shop.sql(_FILL)
    name = shop.target("orders")
    shop.run(chunk_bytes=8192)
    assert shop.model.batches[0][0].full_load
    assert shop.model.batches[0][0].facts["full_load_chunks"] not in (0, 1)
    assert shop.model.rows(name) == shop.sql(_ALL)
    shop.sql("UPDATE s.orders SET note = 'changed' WHERE id <= 10")
    shop.sql("DELETE FROM s.orders WHERE id > 990")
    shop.sql("INSERT INTO s.orders VALUES (2000, 7, null)")
    shop.run()
    assert shop.model.rows(name) == shop.sql(_ALL)
    assert shop.model.tables[name][(2000,)]["amount"] == Decimal("7.00")
    shop.run()
    assert shop.model.batches[-1][0].changes is None
