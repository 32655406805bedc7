"""The check before the next run starts Spark judges a real run's results."""

from __future__ import annotations

from collections.abc import Mapping

from lakecdc.metadata.positions import Position
from lakecdc.probes import preflight

from .conftest import Shop


def idle(shop: Shop, **source: object) -> Mapping[str, Position] | None:
    """Check the source as a worker does before the next run."""
    positions = {table: position for table, position in shop.positions.items() if position is not None}
    return preflight.check(shop.spec(**source), positions).idle


def test_a_source_is_idle_once_a_run_has_read_its_log(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, note text)")
    shop.sql("CREATE TABLE s.parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    shop.sql("CREATE TABLE s.parts_1 PARTITION OF s.parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')")
    orders, parts = shop.target("orders"), shop.target("parts")
    assert idle(shop) is None
    shop.run()
    positions = idle(shop)
    assert positions and set(positions) == {orders, parts}
    # a run continues from the recorded position
    shop.model.positions |= positions
    shop.sql("INSERT INTO s.orders VALUES (1, 'a')")
    assert idle(shop) is None
    shop.run()
    assert idle(shop) is not None
    assert shop.model.rows(orders) == [(1, "a")]


def test_changes_without_events_are_left_to_the_run(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    shop.sql("CREATE TABLE s.parts_2 PARTITION OF s.parts FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')")
    shop.sql("CREATE TABLE s.part (id int NOT NULL, day date NOT NULL, PRIMARY KEY (id, day))")
    shop.sql("INSERT INTO s.part VALUES (1, '2026-01-01')")
    shop.target("parts")
    shop.run()
    assert idle(shop) is not None
    shop.sql("ALTER TABLE s.parts ATTACH PARTITION s.part FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')")
    assert idle(shop) is None
