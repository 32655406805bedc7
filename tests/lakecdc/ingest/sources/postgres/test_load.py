"""An interrupted full load is continued by the next run, whatever has changed at the source meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.killing import act_at

from .conftest import Shop

COLUMNS = "id, n, body, doc"
PARTS = {"chunk_bytes": 4 * 8192, "full_load_commit_bytes": 32 * 8192, "full_load_parallelism": 2}


def make(shop: Shop, **target: Any) -> str:
    """Create a table of about sixty pages, with values that updates omit from the log."""
    name = shop.target("big", format_version=3, **target)
    shop.sql("CREATE TABLE s.big (id int PRIMARY KEY, n int, body text, doc text) WITH (fillfactor = 60)")
    shop.sql("ALTER TABLE s.big ALTER doc SET STORAGE EXTERNAL")
    shop.sql(
        "INSERT INTO s.big SELECT i, 0, repeat(md5(i::text), 8), "
        "CASE WHEN i % 5 = 0 THEN repeat(md5(i::text), 100) END FROM generate_series(1, 1000) i"
    )
    return name


def run(shop: Shop, monkeypatch: pytest.MonkeyPatch, failpoint: str = "") -> TableReport:
    """Run the job once; it ends at a fail point if one is given."""
    act_at(monkeypatch, failpoint)
    return ingest(shop.lake.spark, shop.spec(**PARTS))[0]


def disturb(shop: Shop, seed: int) -> None:
    """Change rows of every kind all over the table; most rows move to other pages."""
    rng = random.Random(seed)
    for number in range(25):
        low = rng.randrange(750)
        choice, keys = number % 6, f"id BETWEEN {low} AND {low + 25}"
        if choice == 0:
            shop.sql(f"DELETE FROM s.big WHERE {keys}")
        elif choice == 1:
            shop.sql(f"UPDATE s.big SET id = id + {100_000 * (seed + 1) + 1000 * number} WHERE {keys} AND id < 1100")
        elif choice == 2:
            shop.sql(f"UPDATE s.big SET doc = repeat(md5((id + {number})::text), 100) WHERE {keys}")
        elif choice == 3:
            shop.sql(f"INSERT INTO s.big VALUES ({50_000 + seed * 100 + number}, {number}, 'new', repeat('x', 5000))")
        else:
            shop.sql(f"UPDATE s.big SET n = n + 1, body = repeat(md5(n::text), 9) WHERE {keys}")


def assert_equal(shop: Shop, name: str) -> None:
    source, target = Counter(shop.sql(f"SELECT {COLUMNS} FROM {name}")), Counter(shop.lake.duckdb_rows(name, COLUMNS))
    assert not (target - source) and not (source - target), (len(target - source), len(source - target))


@pytest.mark.parametrize("again", ["", pytest.param("before_commit@2=raise", marks=pytest.mark.soak)])
def test_an_interrupted_load_continues(shop: Shop, monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    name = make(shop, partition_by=["bucket(2, id)"])
    assert run(shop, monkeypatch, "after_commit=raise").outcome == "failed"
    loaded, [(xid,)] = len(shop.lake.duckdb_rows(name, "id")), shop.sql("SELECT txid_current()")
    assert 200 < loaded < 800
    # rows not yet loaded move to loaded pages
    for statement in ("DELETE FROM s.big WHERE id < 150", "VACUUM s.big"):
        shop.sql(statement)
    shop.sql("UPDATE s.big SET body = repeat(md5(n::text), 40) WHERE id > 800")
    assert shop.sql("SELECT count(*) FROM s.big WHERE id > 800 AND doc IS NOT NULL AND ctid < '(10,0)'::tid") > [(3,)]
    assert shop.lake.table(name).head().summary.get("lakecdc.read-through") is None  # type: ignore[union-attr]
    disturb(shop, 1)
    if again:
        assert run(shop, monkeypatch, again).outcome == "failed"
        disturb(shop, 2)
    report = run(shop, monkeypatch)
    assert report.outcome == "done", report.reason
    assert report.metrics.get("quarantined", 0) == 0
    assert_equal(shop, name)
    changed = shop.sql(f"SELECT count(*) FROM s.big WHERE age(xmin) <= age('{xid}'::xid)")[0][0]
    assert report.metrics["events_r"] <= 1000 - loaded + changed, "unchanged rows were read again"
    assert "loaded" not in report.metrics["position"] and "load" not in report.metrics["position"]
    # the log of a database is in order: no deletes need to be remembered
    assert not shop.lake.sql(f"SHOW TABLES IN lake.{shop.schema} LIKE '*deletes'").collect()


def test_a_rewritten_table_is_loaded_from_the_start(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakecdc.runtime.progress")
    name = make(shop)
    shop.sql("DELETE FROM s.big WHERE id % 3 = 0")
    run(shop, monkeypatch, "after_commit=raise")
    before = len(shop.lake.duckdb_rows(name, "id"))
    shop.sql("DELETE FROM s.big WHERE id % 7 = 0")
    shop.sql("VACUUM FULL s.big")
    report = run(shop, monkeypatch)
    assert report.outcome == "done", report.reason
    chunks = report.metrics["full_load_chunks"]
    assert before and chunks > 5
    assert f"progress of {name}: {chunks} of {chunks} chunks, in " in caplog.text
    assert_equal(shop, name)


def test_only_a_table_rewritten_between_two_parts_stops(shop: Shop) -> None:
    name, other = make(shop), shop.target("other")
    shop.sql("CREATE TABLE s.other (id int PRIMARY KEY); INSERT INTO s.other VALUES (1)")
    source = shop.open(**PARTS)
    source.start({name: None, other: None}, {})
    try:
        for number, batches in enumerate(source.rounds()):
            for batch in batches:
                shop.model.apply(batch)
                source.applied(batch.target.table, batch.position)
            source.finish_round()
            if number == 0:
                shop.sql("VACUUM FULL s.big")
                shop.sql("INSERT INTO s.other VALUES (2)")
    finally:
        source.close()
    assert "was rewritten" in str(source.refused[name]) and set(source.refused) == {name}
    assert shop.model.rows(other) == [(1,), (2,)]
    assert source.refused[name].table == name  # type: ignore[attr-defined]
