"""A full load is built beside the existing rows and replaces them in one commit."""

from __future__ import annotations

import pytest

from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop

pytestmark = pytest.mark.services
RELOAD = {"options": {"reload": ["*"]}}


@pytest.mark.parametrize(
    ("server", "mode"),
    [("mariadb", "upsert"), pytest.param("mysql", "append", marks=pytest.mark.soak)],
    indirect=["server"],
)
def test_readers_see_the_former_rows_until_the_load_is_complete(
    shop: Shop, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)", "INSERT INTO s.t SELECT seq, 0 FROM seq_1_to_50")
    name = shop.target("t", mode=mode)
    run(shop)
    before = sorted(shop.lake.duckdb_rows(name, "id, v"))
    shop.sql("UPDATE s.t SET v = 1 WHERE id > 40", "DELETE FROM s.t WHERE id < 10")
    act_at(monkeypatch, "before_commit=raise")
    assert run(shop, **RELOAD)[name].outcome == "failed"
    assert sorted(shop.lake.duckdb_rows(name, "id, v")) == before
    monkeypatch.delenv(failpoints.VARIABLE)
    report = run(shop, chunk_rows=7, full_load_commit_rows=7, **RELOAD)[name]
    assert (report.outcome, report.metrics.get("rows_written")) == ("done", 41), report
    assert not differs(shop, name, "id, v")
    assert len(shop.lake.pyiceberg().load_table(name).history()) == 2, "no reader has seen the table without rows"
    shop.sql("INSERT INTO s.t VALUES (99, 99)")
    run(shop)
    assert not differs(shop, name, "id, v")
