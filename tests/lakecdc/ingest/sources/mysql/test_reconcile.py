"""Tables compared with the MySQL or MariaDB that feeds them."""

from __future__ import annotations

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from lakecdc.reconcile.job import reconcile
from tests.lakecdc.ingest.sources.mysql.test_types import fill
from tests.lakecdc.reconcile.support import AT_ONCE, differences

from .conftest import Shop, both

pytestmark = pytest.mark.services


def fed(shop: Shop) -> None:
    (report,) = ingest(shop.lake.spark, shop.spec())
    assert report.outcome == "done", report.reason


def compared(shop: Shop, **options: object) -> TableReport:
    source = {"chunk_rows": 50, "full_load_parallelism": 2}
    (report,) = reconcile(shop.lake.spark, shop.spec(job="reconcile", options={**AT_ONCE, **options}, **source))
    return report


@both
def test_values_of_every_type_agree(shop: Shop) -> None:
    name = shop.target("every")
    shop.sql(*fill(shop, name))
    fed(shop)
    report = compared(shop, ranges=2)
    assert report.outcome == "nothing", (report.reason, report.metrics["columns_different"])


@pytest.mark.soak
def test_in_flight_changes_are_not_mismatches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = shop.target("t")
    shop.sql("CREATE TABLE s.t (at datetime(6) PRIMARY KEY, v varchar(9))")
    shop.sql("INSERT INTO s.t SELECT '2026-01-01' + INTERVAL seq MICROSECOND, seq FROM seq_1_to_200")
    fed(shop)
    shop.lake.sql(f"UPDATE lake.{name} SET v = '' WHERE v = '7'")
    shop.sql("UPDATE s.t SET v = 'x' WHERE v IN ('20', '21')", "DELETE FROM s.t WHERE v = '150'")
    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", lambda _seconds: fed(shop))
    report = compared(shop, ranges=10, max_wait=600.0)
    assert differences(report) == [("different", '{"at":"2026-01-01T00:00:00.000007"}', ("v",))]
    assert (report.metrics["in_flight"], report.metrics["ranges_different"]) == (3, 3)
