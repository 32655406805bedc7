"""The log of failing tables is parked in the lake; the server may purge its own, and they catch up later."""

from __future__ import annotations

import time

import pytest

from lakecdc.metadata.names import PARKED
from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop, both

pytestmark = pytest.mark.services


def table(shop: Shop, name: str) -> str:
    """Create a table with a row, and its target."""
    shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int)", f"INSERT INTO s.{name} VALUES (0, 0)")
    return shop.target(name)


def parked(shop: Shop) -> list[str]:
    """Return the kind of every parked row."""
    return [kind for (kind,) in shop.lake.duckdb_rows(f"{shop.schema}.{PARKED}", "kind")]


def purge(shop: Shop) -> None:
    """Let the server purge all of its log but the last file."""
    end = shop.sql("SHOW BINARY LOGS")[-1][0]
    deadline = time.monotonic() + 30
    # the server keeps a file until the engine releases it
    while shop.sql("SHOW BINARY LOGS")[0][0] < end:
        assert time.monotonic() < deadline
        shop.sql(f"PURGE BINARY LOGS TO '{end}'")
        time.sleep(0.1)


@both
def test_a_failing_table_catches_up_after_its_log_was_purged(shop: Shop) -> None:
    # rounds number tables by their place among the targets, which differs in another run
    good, bad = table(shop, "good"), table(shop, "bad")
    shop.run()
    shop.sql("INSERT INTO s.bad VALUES (1, 1), (2, 2)", "INSERT INTO s.good VALUES (1, 1)")
    shop.run(failing=bad)
    shop.sql("UPDATE s.bad SET v = 9 WHERE id = 1", "DELETE FROM s.bad WHERE id = 2")
    shop.sql("UPDATE s.bad SET id = 7 WHERE id = 0", "FLUSH BINARY LOGS")
    shop.run(failing=bad)
    assert sorted(parked(shop)) == ["c", "c", "d", "d", "end", "end", "u", "u"]
    purge(shop)
    shop.sql("INSERT INTO s.bad VALUES (3, 3)")
    shop.targets.reverse()
    assert not shop.run().refused
    for name, source in ((good, "s.good"), (bad, "s.bad")):
        assert shop.model.rows(name, "id", "v") == shop.sql(f"SELECT * FROM {source} ORDER BY id")
    assert parked(shop) == []


@pytest.mark.soak
def test_a_truncate_is_parked_too(shop: Shop) -> None:
    name = table(shop, "t")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (1, 1)", "TRUNCATE s.t", "FLUSH BINARY LOGS")
    shop.run(failing=name)
    purge(shop)
    shop.sql("INSERT INTO s.t VALUES (5, 5)")
    shop.run()
    assert shop.model.rows(name, "id", "v") == [(5, 5)]


def test_a_round_that_alters_its_table_stays_at_the_server(shop: Shop) -> None:
    name = table(shop, "t")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (1, 1)")
    shop.run(failing=name)
    shop.sql("ALTER TABLE s.t ADD w int", "INSERT INTO s.t VALUES (2, 2, 2)")
    shop.run(failing=name)
    shop.sql("INSERT INTO s.t VALUES (3, 3, 3)")
    shop.run(failing=name)
    assert parked(shop).count("c") == 1
    assert not shop.run().refused and parked(shop) == []
    assert shop.model.rows(name, "id", "v") == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.soak
def test_a_table_over_its_delete_debt_catches_up_under_new_names(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)", "INSERT INTO s.t SELECT seq, seq FROM seq_1_to_9")
    name = shop.target("t", format_version=3)
    run(shop)
    for statements in (
        ["UPDATE s.t SET v = 10 WHERE id = 1", "DELETE FROM s.t WHERE id = 2"],
        ["UPDATE s.t SET id = 20 WHERE id = 3", "UPDATE s.t SET v = 11 WHERE id = 1"],
        ["UPDATE s.t SET v = v + 1 WHERE id = 4"],
        ["ALTER TABLE s.t RENAME COLUMN v TO w", "UPDATE s.t SET w = 7 WHERE id = 5"],
    ):
        shop.sql(*statements)
        report = run(shop, options={"max_delete_files": 1})[name]
    assert report.outcome == "conflict" and parked(shop).count("end") == 2, report
    shop.sql("UPDATE s.t SET w = 8 WHERE id = 6")
    report = run(shop)[name]
    assert report.outcome == "done" and report.metrics["schema_changes"] == ["renamed v to w"], report
    assert not differs(shop, name, "id, w") and parked(shop) == []


@pytest.mark.soak
def test_parked_rounds_are_not_parked_again_after_a_kill(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = table(shop, "t")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (1, 1)")
    act_at(monkeypatch, "before_round_release=raise")
    with pytest.raises(Exception, match="before_round_release"):
        shop.run(failing=name)
    monkeypatch.delenv(failpoints.VARIABLE)
    shop.run(failing=name)
    assert parked(shop).count("c") == 1
    shop.run()
    assert shop.model.rows(name, "id", "v") == [(0, 0), (1, 1)]
