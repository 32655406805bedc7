"""Rows that differ from Postgres are loaded again while its log continues."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.postgres import snapshot
from lakecdc.metadata.floor import Floor
from lakecdc.metadata.names import EXPIRED_BELOW
from tests.lakecdc.reconcile.support import spoil

from .conftest import Shop
from .test_reconcile import compared, fed

FLOOR = datetime(2026, 1, 10, tzinfo=UTC)


def make_table(shop: Shop, **target: Any) -> str:
    """Make and feed a table whose oldest rows have expired."""
    name = shop.target("t", clean={"rename": {"Id": "id"}}, **target)
    shop.sql('CREATE TABLE s.t ("Id" int PRIMARY KEY, v text, n int, doc text, day date)')
    shop.sql("ALTER TABLE s.t ALTER doc SET STORAGE EXTERNAL")
    shop.sql(
        "INSERT INTO s.t SELECT i, CASE WHEN i % 3 > 0 THEN 'v' || i END, i, repeat(md5(i::text), 100), "
        "'2026-01-10'::date - (i < 5)::int FROM generate_series(1, 60) i"
    )
    fed(shop)
    day = next(f.id for f in shop.lake.table(name).fields if f.name == "day")
    shop.lake.table(name).update_properties({EXPIRED_BELOW: Floor(day, "day", FLOOR).encode()})
    shop.lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN 2 AND 4")
    return name


def at_source(shop: Shop, where: str = "true") -> Counter[tuple[Any, ...]]:
    return Counter(shop.sql(f"SELECT \"Id\", v, n, doc, day FROM s.t WHERE day >= '{FLOOR.date()}' AND {where}"))


def in_table(shop: Shop, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(shop.lake.duckdb_rows(name, "id, v, n, doc, day"))


_AUDITED = {"publish": "audited", "checks": [{"type": "not_null", "columns": ["id"]}]}


@pytest.mark.parametrize(
    "target",
    [
        {"format_version": 3},
        pytest.param({"mode": "merge"}, marks=pytest.mark.soak),
        pytest.param({"history_table": "t_history"}, marks=pytest.mark.soak),
        pytest.param(_AUDITED, marks=pytest.mark.soak),
    ],
    ids=["upsert", "merge", "history", "audited"],
)
def test_differing_rows_are_loaded_with_the_newest_values(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, target: dict[str, Any]
) -> None:
    if "history_table" in target:
        target = {"history_table": f"{shop.schema}.{target['history_table']}"}
    name = make_table(shop, **target)
    planted = spoil(shop.lake, name, target.get("mode", "upsert"))

    take, loads = snapshot.take, list[int]()

    def changed_before(*arguments: Any, **named: Any) -> snapshot.Snapshot:
        """Change the source between the last comparison and the load; the log repeats these changes later."""
        loads.append(1)
        with pytest.raises(ConflictError, match="Another run is reading the slot"):
            ingest(shop.lake.spark, shop.spec())
        for text in ("first", "second"):
            shop.sql(f"UPDATE s.t SET v = '{text}' WHERE \"Id\" IN (25, 30, 50)")
            shop.sql(f"INSERT INTO s.t VALUES (5001, '{text}', 1, repeat('x', 5000), '2026-01-11')")
            if text == "first":
                shop.sql('DELETE FROM s.t WHERE "Id" = 5001')
        shop.sql('DELETE FROM s.t WHERE "Id" IN (31, 51)')
        # its key changes with a value that the log omits
        shop.sql('UPDATE s.t SET "Id" = 6000 WHERE "Id" = 26')
        shop.sql("INSERT INTO s.t VALUES (5002, 'short', 1, NULL, '2026-01-11')")
        shop.sql('DELETE FROM s.t WHERE "Id" = 5002')
        return take(*arguments, **named)

    monkeypatch.setattr(snapshot, "take", changed_before)
    seen = []

    def fed_in_several_batches(_seconds: float) -> None:
        seen.append(in_table(shop, name))
        (report,) = ingest(shop.lake.spark, shop.spec(max_batch_events=8))
        assert report.metrics.get("quarantined", 0) == 0, report.reason

    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", fed_in_several_batches)
    report = compared(shop, max_wait=600.0, repair=True)
    assert (report.outcome, loads) == ("done", [1]), report.reason
    # an expired row differs as well; the log corrected the row whose key changed
    assert (report.metrics["repaired"], report.metrics["in_flight"]) == (planted + 1 - 1, 1)
    loaded = {row[0]: row for row in seen[-1]}
    assert (loaded[25][1], loaded[30][1], loaded[5001][1]) == ("second", "second", "second"), (
        "before the log delivered it"
    )
    assert not {31, 5000, 5002, 1, 2} & loaded.keys() and loaded[50][1] == "v50"
    assert in_table(shop, name) == at_source(shop)

    shop.sql('UPDATE s.t SET n = n + 1 WHERE "Id" % 2 = 0 OR "Id" = 25')
    shop.sql('DELETE FROM s.t WHERE "Id" IN (20, 32)')
    (fed_on,) = ingest(shop.lake.spark, shop.spec())
    assert fed_on.metrics.get("quarantined", 0) == 0
    assert "loaded" not in fed_on.metrics["position"]
    assert in_table(shop, name) == at_source(shop)
