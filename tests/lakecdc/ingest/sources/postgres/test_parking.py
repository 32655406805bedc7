"""The log of failing tables is parked in the lake; the slot advances, and they catch up later."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.sources.log import parking
from lakecdc.ingest.sources.log.parking import Parking
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.metadata.names import PARKED
from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop
from .test_slot import at, confirmed, ids, insert, tables

LIMIT = {"options": {"max_delete_files": 1}}


def parked(shop: Shop) -> list[tuple[str, str]]:
    """Return target and kind of every parked row."""
    return sorted((target, kind) for target, kind in shop.lake.duckdb_rows(f"{shop.schema}.{PARKED}", "target, kind"))


def with_news(shop: Shop) -> tuple[str, str, int]:
    """Create two loaded tables with a new row each; return them and the slot's position."""
    good, bad = tables(shop, "good", "bad")
    shop.run()
    slot_before = confirmed(shop)
    insert(shop, "good", 1)
    insert(shop, "bad", 1)
    return good, bad, slot_before


def test_a_failing_table_releases_the_slot_and_catches_up(shop: Shop) -> None:
    good, bad = tables(shop, "good", "bad")
    shop.run()
    bad_before = at(shop.model.positions[bad])
    insert(shop, "good", 1, 2, 3)
    insert(shop, "bad", 1, 2)
    shop.run(failing=bad, max_batch_events=4)
    assert ids(shop, good) == [0, 1, 2, 3]
    assert confirmed(shop) == at(shop.model.positions[good]) > bad_before == at(shop.model.positions[bad])
    assert [kind for _, kind in parked(shop)].count("c") == 2
    insert(shop, "bad", 3)
    shop.sql("UPDATE s.bad SET v = 9 WHERE id = 1; DELETE FROM s.bad WHERE id = 2")
    shop.run(failing=bad)
    assert confirmed(shop) == at(shop.model.positions[good])
    shop.sql("UPDATE s.bad SET v = 8 WHERE id = 3")
    shop.run(max_batch_events=4)
    assert shop.model.rows(bad, "id", "v") == [(0, 0), (1, 9), (3, 8)]
    assert at(shop.model.positions[bad]) == at(shop.model.positions[good]) and parked(shop) == []


def test_the_log_of_a_refused_table_is_parked_unchanged(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.bad (id int PRIMARY KEY, v text, doc text); INSERT INTO s.bad VALUES (0, 'old', 'old')")
    shop.sql("ALTER TABLE s.bad ALTER doc SET STORAGE EXTERNAL; UPDATE s.bad SET doc = repeat('d', 9000)")
    (good,), bad = tables(shop, "good"), shop.target("bad")
    shop.run()
    shop.sql("ALTER TABLE s.bad ADD COLUMN p point; INSERT INTO s.bad VALUES (1, 'a', 'b', '(1,2)')")
    insert(shop, "good", 1)
    assert set(shop.run().refused) == {bad} == set(shop.run().refused), "by the log, and by the catalog"
    assert confirmed(shop) == at(shop.model.positions[good])
    shop.sql("UPDATE s.bad SET v = 'new' WHERE id = 0")
    assert set(shop.run().refused) == {bad}
    shop.targets[1]["exclude_columns"] = ["p"]
    shop.sql("INSERT INTO s.bad VALUES (2, 'c', 'd', null)")
    assert not shop.run().refused
    assert shop.model.rows(bad, "id", "v", "doc") == [(0, "new", "d" * 9000), (1, "a", "b"), (2, "c", "d")]


def test_a_truncate_is_parked_too(shop: Shop) -> None:
    (name,) = tables(shop, "t")
    shop.run()
    shop.sql("TRUNCATE s.t")
    shop.run(failing=name)
    shop.sql("INSERT INTO s.t VALUES (5, 5)")
    shop.run()
    assert ids(shop, name) == [5]


def test_a_run_killed_between_parking_and_the_slot_can_be_repeated(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, slot_before = with_news(shop)
    act_at(monkeypatch, "before_round_release=raise")
    with pytest.raises(Exception, match="before_round_release"):
        shop.run(failing=bad)
    monkeypatch.delenv(failpoints.VARIABLE)
    assert confirmed(shop) == slot_before
    shop.run(failing=bad)
    assert [kind for _, kind in parked(shop)].count("c") == 1, "a round is parked once"
    shop.run()
    assert ids(shop, bad) == ids(shop, good) == [0, 1]


def test_the_slot_waits_if_parking_is_impossible(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, slot_before = with_news(shop)

    def refuse(*_: Any) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Parking, "park", refuse)
        shop.run(failing=bad)
    assert confirmed(shop) == slot_before and ids(shop, good) == [0, 1]
    shop.run()
    assert ids(shop, bad) == [0, 1] and confirmed(shop) > slot_before


def test_an_unreadable_parking_form_refuses_only_its_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, _ = with_news(shop)
    end = parking._end
    with monkeypatch.context() as patch:
        patch.setattr(parking, "_end", lambda target, parked: (*end(target, parked)[:-1], '{"through": 1, "oid": 1}'))
        shop.run(failing=bad)
    insert(shop, "good", 2)
    refused = shop.run().refused
    assert set(refused) == {bad} and "written by an earlier version" in str(refused[bad])
    assert ids(shop, good) == [0, 1, 2] and ids(shop, bad) == [0]


@pytest.mark.soak
def test_parked_rounds_of_a_dropped_target_are_deleted(shop: Shop) -> None:
    (name,) = tables(shop, "t")
    shop.run()
    insert(shop, "t", 1)
    shop.run(failing=name)
    shop.model.positions[name] = None
    shop.model.tables[name].clear()
    insert(shop, "t", 2)
    shop.run()
    assert ids(shop, name) == [0, 1, 2] and parked(shop) == []


def test_a_table_over_its_delete_debt_catches_up_after_a_rewrite(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int); INSERT INTO s.t SELECT i, i FROM generate_series(1, 9) i")
    name = shop.target("t", format_version=3)
    run(shop)
    shop.sql("UPDATE s.t SET v = 10 WHERE id = 1")
    run(shop)
    shop.sql("DELETE FROM s.t WHERE id = 2; UPDATE s.t SET id = 20 WHERE id = 3")
    for _ in range(2):
        (report,) = run(shop, **LIMIT).values()
        assert report.outcome == "conflict" and "rewrite_delete_files" in str(report.reason)
        shop.sql("UPDATE s.t SET v = v + 1 WHERE id = 4")
    spec = parse_spec(shop.lake.spec("rewrite_delete_files", name))
    rewrite_delete_files(shop.lake.table(name), spec)
    (report,) = run(shop, **LIMIT).values()
    assert report.outcome == "conflict" and report.metrics["commits"] == 1, "the limit allows one batch"
    run(shop)
    assert not differs(shop, name, "id, v")
