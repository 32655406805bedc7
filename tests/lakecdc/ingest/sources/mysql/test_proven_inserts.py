"""Rows inserted by the binary log get no equality delete if the table cannot have them."""

from __future__ import annotations

import pytest

from lakecdc.contract.report import TableReport
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop, both

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("proven_by_log_alone")]


def fed(shop: Shop, name: str, **source: object) -> TableReport:
    """Run once and check that the table equals its source."""
    report = run(shop, **source)[name]
    assert report.outcome == "done", report.reason
    assert not differs(shop, name, "id, v")
    return report


@both
def test_keys_that_begin_with_an_insert_are_proven(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v varchar(20))")
    shop.sql("INSERT INTO s.t SELECT seq, 'loaded' FROM seq_1_to_100")
    name = shop.target("t", partition_by=["bucket(2, id)"])
    # the load may have read what the log has up to its end
    shop.sql("INSERT INTO s.t VALUES (201, 'new')")
    fed(shop, name)
    shop.sql("INSERT INTO s.t VALUES (202, 'new'), (203, 'new')", "UPDATE s.t SET v = 'u' WHERE id IN (1, 203)")
    shop.sql("INSERT INTO s.t VALUES (204, 'gone')", "DELETE FROM s.t WHERE id = 204")
    shop.sql("REPLACE INTO s.t VALUES (2, 'replaced'), (205, 'new')", "UPDATE s.t SET id = 301 WHERE id = 3")
    report = fed(shop, name)
    # 1 and 2 existed before, 3 was deleted and 301 was created by an update
    assert report.metrics["deletes_left_out"] == 4
    summary = shop.lake.table(name).head().summary  # type: ignore[union-attr]
    assert summary["added-equality-deletes"] == "4"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("PRIMARY KEY (v), UNIQUE (id)", None),
        ("PRIMARY KEY (v), UNIQUE (id, v)", "the key (id) is not a primary key"),
        ("PRIMARY KEY (v), KEY (id)", "the key (id) is not a primary key"),
        ("UNIQUE (id, v), UNIQUE (w)", "the key (id) is not a primary key"),
    ],
)
def test_inserts_are_proven_only_with_a_unique_key(shop: Shop, keys: str, reason: str | None) -> None:
    shop.sql(f"CREATE TABLE s.t (id int NOT NULL, v varchar(20) NOT NULL, w int, {keys})")
    shop.sql("INSERT INTO s.t VALUES (1, 'a', 1)")
    name = shop.target("t", key=["id"])
    fed(shop, name)
    shop.sql("INSERT INTO s.t VALUES (2, 'b', 2)")
    metrics = fed(shop, name).metrics
    assert reason in metrics["deletes_kept_because"] if reason else metrics["deletes_left_out"] == 1


def test_cascades_prevent_the_proof(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.parent (id int PRIMARY KEY)", "INSERT INTO s.parent VALUES (1)")
    rule = "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE"
    shop.sql(
        f"CREATE TABLE s.t (id int PRIMARY KEY, v varchar(20), p int, {rule})", "INSERT INTO s.t VALUES (1, 'a', 1)"
    )
    name = shop.target("t")
    fed(shop, name, allow_cascades=True)
    # the log lacks the delete of the child
    shop.sql("DELETE FROM s.parent", "INSERT INTO s.t VALUES (1, 'b', NULL)")
    assert "allow_cascades" in fed(shop, name, allow_cascades=True).metrics["deletes_kept_because"]
