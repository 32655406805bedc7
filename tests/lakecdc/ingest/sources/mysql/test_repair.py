"""Rows that differ from MySQL or MariaDB are loaded again while the log continues."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.mysql import snapshot
from tests.lakecdc.reconcile.support import spoil

from .conftest import Shop
from .test_reconcile import compared

pytestmark = pytest.mark.services

_COLUMNS = "v, n, doc, day"


def fed(shop: Shop, **source: Any) -> None:
    (report,) = ingest(shop.lake.spark, shop.spec(**source))
    assert report.outcome in ("done", "nothing"), report.reason


def make_table(shop: Shop, **target: Any) -> str:
    """Make a table and feed it."""
    name = shop.target("t", clean={"rename": {"Id": "id"}}, **target)
    shop.sql("CREATE TABLE s.t (Id int PRIMARY KEY, v varchar(99), n int, doc text, day date)")
    shop.sql(
        "INSERT INTO s.t SELECT seq, IF(seq % 3 > 0, concat('v', seq), NULL), seq, repeat(sha2(seq, 256), 10), "
        "'2026-01-10' FROM seq_1_to_60"
    )
    fed(shop)
    return name


def at_source(shop: Shop) -> Counter[tuple[Any, ...]]:
    return Counter(shop.sql(f"SELECT Id, {_COLUMNS} FROM s.t"))


def in_table(shop: Shop, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(shop.lake.duckdb_rows(name, f"id, {_COLUMNS}"))


@pytest.mark.parametrize(
    ("server", "target"),
    [
        pytest.param("mariadb", {"format_version": 3}),
        pytest.param("mysql", {}, marks=pytest.mark.soak),
        pytest.param("mariadb", {"mode": "merge"}, marks=pytest.mark.soak),
        pytest.param("mariadb", {"history_table": "t_history"}, marks=pytest.mark.soak),
    ],
    ids=["upsert", "mysql", "merge", "history"],
    indirect=["server"],
)
def test_differing_rows_are_loaded_with_the_newest_values(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, target: dict[str, Any]
) -> None:
    if "history_table" in target:
        target = {"history_table": f"{shop.schema}.{target['history_table']}"}
    name = make_table(shop, **target)
    planted = spoil(shop.lake, name, target.get("mode", "upsert"))

    read, places = snapshot.exact_rows, list[int]()

    def changed_meanwhile(*arguments: Any) -> Any:
        """Change the source between the last comparison and the load; the log repeats these changes later."""
        if not places:
            for text in ("first", "second"):
                shop.sql(f"UPDATE s.t SET v = '{text}' WHERE Id IN (25, 30, 50)")
                shop.sql(f"INSERT INTO s.t VALUES (5001, '{text}', 1, repeat('x', 500), '2026-01-11')")
                if text == "first":
                    shop.sql("DELETE FROM s.t WHERE Id = 5001")
            shop.sql("DELETE FROM s.t WHERE Id IN (31, 51)")
            shop.sql("UPDATE s.t SET Id = 6000 WHERE Id = 26")
            shop.sql("INSERT INTO s.t VALUES (5002, 'short', 1, NULL, '2026-01-11')")
            shop.sql("DELETE FROM s.t WHERE Id = 5002")
        exact = read(*arguments)
        places.append(exact.place.number)
        if len(places) == 1:
            # a run of ingest commits first, so the rows are read once more
            fed(shop, max_batch_events=1, options={"max_batches": 1})
        else:
            shop.sql("UPDATE s.t SET v = 'last' WHERE Id IN (28, 32)")
        return exact

    monkeypatch.setattr(snapshot, "exact_rows", changed_meanwhile)
    seen = []

    def fed_in_small_batches(_seconds: float) -> None:
        # rows have their newest values before the log delivers them, and while it delivers older ones
        seen.append(in_table(shop, name))
        fed(shop, max_batch_events=1, options={"max_batches": 1})
        seen.append(in_table(shop, name))
        fed(shop, max_batch_events=8)

    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", fed_in_small_batches)
    report = compared(shop, max_wait=600.0, repair=True)
    assert (report.outcome, len(places)) == ("done", 2), report.reason
    # for three rows the log has changes after the load, or another key
    assert (report.metrics["repaired"], report.metrics["in_flight"]) == (planted - 3, 3)
    for rows in seen[-2:]:
        loaded = {row[0]: row for row in rows}
        assert (loaded[25][1], loaded[30][1], loaded[5001][1]) == ("second", "second", "second")
        assert loaded[32][1] == "v32" and not {31, 5000, 5002} & loaded.keys()
        # did not differ, so only the earlier run of ingest has changed it
        assert loaded[50][1] == "first"
    assert in_table(shop, name) == at_source(shop)

    shop.sql("UPDATE s.t SET n = n + 1 WHERE Id % 2 = 0 OR Id = 25", "DELETE FROM s.t WHERE Id IN (20, 32)")
    (fed_on,) = ingest(shop.lake.spark, shop.spec())
    assert "loaded" not in fed_on.metrics["position"]
    assert in_table(shop, name) == at_source(shop)


@pytest.mark.soak
def test_no_row_is_loaded_before_pending_column_changes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(shop)
    shop.lake.sql(f"DELETE FROM lake.{name} WHERE id = 7")

    def fed_before_it_is_altered(_seconds: float) -> None:
        fed(shop)
        shop.sql("ALTER TABLE s.t ADD COLUMN late int DEFAULT 5")

    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", fed_before_it_is_altered)
    before = shop.lake.table(name).head()
    report = compared(shop, max_wait=600.0, repair=True)
    assert "could not be reloaded: The columns of" in str(report.reason) and report.failure_class == "bad input"
    assert shop.lake.table(name).head() == before

    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", lambda _seconds: fed(shop))
    report = compared(shop, max_wait=600.0, repair=True)
    assert (report.outcome, report.metrics["repaired"]) == ("done", 1), report.reason
    assert shop.lake.duckdb_rows(name, "id, late") and not report.metrics["differences"]
