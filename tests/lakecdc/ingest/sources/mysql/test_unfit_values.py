"""Events with values that the target's types cannot store are quarantined, and the table continues."""

from __future__ import annotations

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest

from .conftest import Shop

pytestmark = pytest.mark.services


@pytest.mark.parametrize("key", [pytest.param(", PRIMARY KEY (id)", marks=pytest.mark.soak), ""], ids=["key", "no key"])
def test_an_event_with_an_unfit_value_is_quarantined_and_replayed(shop: Shop, key: str) -> None:
    quarantine = shop.lake.new_name("quarantine")
    name = shop.target("t", columns={"n": "int"}, **({} if key else {"mode": "history"}))

    def run(job: str = "ingest") -> TableReport:
        options = {"quarantine_table": quarantine, "max_quarantined_fraction": 1.0}
        return ingest(shop.lake.spark, shop.spec(job=job, options=options))[0]

    def rows() -> list[tuple[int, int]]:
        return sorted(shop.lake.duckdb_rows(name, "id, n"))

    shop.sql(f"CREATE TABLE s.t (id int, n varchar(9){key})", "INSERT INTO s.t VALUES (1, '1'), (2, 'two'), (3, '3')")
    report = run()
    assert (report.outcome, report.metrics["quarantined"]) == ("done", 1), report.reason
    shop.sql("INSERT INTO s.t VALUES (4, '4'), (5, 'five')", "DELETE FROM s.t WHERE id = 2")
    report = run()
    assert (report.outcome, rows()[:4]) == ("done", [(1, 1), (3, 3), (4, 4)]), report.reason
    # in a table without a key, a delete has all values
    assert report.metrics["quarantined"] == (1 if key else 2)
    report = run("replay_quarantine")
    assert report.metrics["quarantined_still"] == (2 if key else 3)
    assert list(report.metrics["quarantined_because"]) == ["values do not fit their columns: n (int)"]
