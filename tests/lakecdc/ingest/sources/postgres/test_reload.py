"""A full load is built beside the existing rows and replaces them in one commit."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.erase.keys import key_text
from lakecdc.ingest.erased import remember_erased
from lakecdc.metadata.floor import erasure_ended
from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop
from .test_slot import insert, tables

RELOAD = {"options": {"reload": ["*"]}}


def gap(shop: Shop) -> None:
    """Make changes whose log no slot keeps."""
    shop.sql(f"SELECT pg_drop_replication_slot('{shop.schema}')")
    shop.sql("INSERT INTO s.t VALUES (5, 5); UPDATE s.t SET v = 9 WHERE id = 1; DELETE FROM s.t WHERE id = 0")


def erased(shop: Shop, name: str, key: int) -> None:
    """Erase a key without a row in the table."""
    table = shop.lake.table(name)
    remember_erased(table, shop.lake.sql(f"SELECT {key} AS id").select(key_text(["id"]).alias("text")), "")
    table.update_properties(dict(erasure_ended()))


def test_readers_see_the_former_rows_until_the_load_is_complete(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = tables(shop, "t")
    insert(shop, "t", 1, 2)
    run(shop)
    before = sorted(shop.lake.duckdb_rows(name, "id, v"))
    erased(shop, name, 5)
    gap(shop)
    with pytest.raises(InputError, match=r'no longer has the slot.*"reload": \["\*"\]'):
        run(shop)
    act_at(monkeypatch, "before_commit=raise")
    assert run(shop, **RELOAD)[name].outcome == "failed"
    assert sorted(shop.lake.duckdb_rows(name, "id, v")) == before
    monkeypatch.delenv(failpoints.VARIABLE)
    report = run(shop, full_load_commit_bytes=1, chunk_bytes=8192, **RELOAD)[name]
    assert (report.outcome, report.metrics["commits"], report.metrics["rows_written"]) == ("done", 1, 3), report
    assert report.metrics["erased_rows_returned"] == 1
    assert not differs(shop, name, "id, v")
    loads = shop.lake.pyiceberg().load_table(name).history()
    assert len(loads) == 2, "no reader has seen the table without rows"
    insert(shop, "t", 6)
    shop.sql("UPDATE s.t SET v = 10 WHERE id = 5")
    assert run(shop)[name].metrics["erased_rows_returned"] == 0, "it is reported where it returns"
    assert not differs(shop, name, "id, v")


def test_a_history_has_no_gap_and_no_load_twice(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = tables(shop, "t")
    shop.targets[0]["history_table"] = f"{name}_log"
    run(shop)

    def ops() -> list[object]:
        return sorted(row[0] for row in shop.lake.duckdb_rows(f"{name}_log", "_lakecdc_op"))

    act_at(monkeypatch, "after_side_tables=raise")
    assert run(shop, **RELOAD)[name].outcome == "failed"
    assert ops() == ["r", "r"]
    monkeypatch.delenv(failpoints.VARIABLE)
    insert(shop, "t", 1)
    run(shop)
    assert ops() == ["c", "r"], "rows that the target never had are retracted"
    run(shop, **RELOAD)
    assert ops() == ["c", "r", "r", "r"]
    assert not differs(shop, name, "id, v")


@pytest.mark.soak
def test_a_table_keeps_its_key(shop: Shop) -> None:
    (name,) = tables(shop, "t")
    run(shop)
    shop.sql("ALTER TABLE s.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)")
    report = run(shop, **RELOAD)[name]
    assert report.outcome == "failed" and "The source's key is now v, but the table's key is id" in str(report.reason)


def test_only_tables_changed_without_events_need_a_load(shop: Shop) -> None:
    (other,) = tables(shop, "other")
    shop.sql("CREATE TABLE s.plain (id int PRIMARY KEY, a int, b text); INSERT INTO s.plain VALUES (1, 1, 'x')")
    shop.sql("CREATE TABLE s.child (more int) INHERITS (s.plain)")
    shop.sql("CREATE TABLE s.part (id int, d int, PRIMARY KEY (id, d)) PARTITION BY LIST (d)")
    shop.sql("CREATE TABLE s.p1 PARTITION OF s.part FOR VALUES IN (1); INSERT INTO s.part VALUES (1, 1)")
    plain, part = shop.target("plain"), shop.target("part")
    assert run(shop)[plain].metrics["child_tables_left_out"] == [f"{shop.schema}.child"]
    shop.sql("DROP TABLE s.child; ALTER TABLE s.plain ALTER COLUMN a TYPE bigint USING a * 100")
    shop.sql("INSERT INTO s.plain VALUES (3, 300, 'z')")
    shop.sql("CREATE TABLE s.p2 (id int NOT NULL, d int NOT NULL); INSERT INTO s.p2 VALUES (2, 2)")
    shop.sql("ALTER TABLE s.part ATTACH PARTITION s.p2 FOR VALUES IN (2); INSERT INTO s.part VALUES (3, 2)")
    insert(shop, "other", 1)
    for _ in range(2):
        reports = run(shop)
        assert "were rewritten" in str(reports[plain].reason) and "p2 may have been attached" in str(
            reports[part].reason
        )
        assert {reports[name].outcome for name in (plain, part)} == {"failed"}
        assert not differs(shop, other, "id, v")
    run(shop, options={"reload": [plain, part]})
    assert not differs(shop, plain, "id, a, b") and not differs(shop, part, "id, d")
    shop.sql("TRUNCATE s.part; INSERT INTO s.part VALUES (7, 1)")
    shop.sql("VACUUM FULL s.plain")
    reports = run(shop)
    assert {reports[name].outcome for name in (plain, part)} <= {"done", "nothing"}, reports
    assert not differs(shop, plain, "id, a, b") and not differs(shop, part, "id, d")
