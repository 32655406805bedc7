"""Events with values that their columns cannot store are quarantined, and the table continues."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.killing import act_at

from .conftest import Shop

DAY, FIRST, LAST = date(2024, 2, 1), date(1, 1, 1), date(9999, 12, 31)
OPTIONS = {"max_quarantined_fraction": 1.0}


class Fed:
    """A table of dates, and another one whose key is a date."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.quarantine = shop, shop.lake.new_name("quarantine")
        self.name, self.keyed = shop.target("days"), shop.target("keyed")
        shop.sql("CREATE TABLE s.days (id int PRIMARY KEY, day date, big text)")
        shop.sql("ALTER TABLE s.days ALTER big SET STORAGE EXTERNAL")
        shop.sql("CREATE TABLE s.keyed (day date PRIMARY KEY, n int)")
        shop.sql("INSERT INTO s.days SELECT i, '2024-02-01', i FROM generate_series(1, 9) i")
        shop.sql("INSERT INTO s.keyed SELECT date '2024-02-01' + i, i FROM generate_series(0, 8) i")

    def run(self, **source: Any) -> list[TableReport]:
        options = {"quarantine_table": self.quarantine, **OPTIONS, **source.pop("options", {})}
        return ingest(self.shop.lake.spark, self.shop.spec(options=options, **source))

    def done(self, **source: Any) -> list[int]:
        """Run and return how many events of each table were quarantined."""
        reports = self.run(**source)
        assert {report.outcome for report in reports} <= {"done", "nothing"}, reports
        return [report.metrics.get("quarantined", 0) for report in reports]

    def replay(self, infinity: str) -> list[TableReport]:
        options = {"quarantine_table": self.quarantine}
        spec = self.shop.spec(job="replay_quarantine", options=options, infinity=infinity)
        return ingest(self.shop.lake.spark, spec)

    def days(self) -> dict[int, date | None]:
        return {row[0]: row[1] for row in self.shop.lake.duckdb_rows(self.name, "id, day")}

    def quarantined_rows(self, table: str) -> list[tuple[str, str, dict[str, Any]]]:
        return self.shop.quarantined(self.quarantine, table)


@both_engines
def test_an_event_with_an_unfit_value_is_quarantined_and_replayed(shop: Shop, engine: str) -> None:
    fed = Fed(shop)
    shop.sql("UPDATE s.days SET day = 'infinity' WHERE id = 3")
    shop.sql("INSERT INTO s.keyed VALUES ('infinity', 100), ('-infinity', 101)")
    assert fed.done() == [1, 2]
    assert fed.days() == {i: DAY for i in range(1, 10) if i != 3}
    reason = "values do not fit their columns: day (date)"
    assert [(rule, why, event["row"]["day"]) for rule, why, event in fed.quarantined_rows(fed.name)] == [
        ("type", reason, "infinity")
    ]
    # an update of the row, one that omits a large value, and rows that fit
    shop.sql("UPDATE s.days SET big = repeat('x', 9000) WHERE id = 5")
    shop.sql("UPDATE s.days SET day = '-infinity' WHERE id = 5")
    shop.sql("UPDATE s.days SET day = '0044-03-15 BC' WHERE id = 6")
    shop.sql("UPDATE s.days SET day = '2024-03-01' WHERE id IN (1, 2)")
    shop.sql("UPDATE s.keyed SET n = n + 1000")
    shop.sql("UPDATE s.keyed SET day = '2030-01-01' WHERE n = 1101")
    assert fed.done() == [2, 3]
    moved = [event for _, _, event in fed.quarantined_rows(fed.keyed) if "old_key" in event]
    assert [event["old_key"] for event in moved] == [{"day": "-infinity"}] and moved[0]["row"]["day"] == "2030-01-01"
    shop.sql("DELETE FROM s.keyed WHERE day = 'infinity'")
    shop.sql("UPDATE s.keyed SET n = 7 WHERE day = '2024-02-01'")
    assert fed.done() == [0, 1]
    now = {i: date(2024, 3, 1) if i < 3 else DAY for i in range(1, 10) if i != 3}
    assert fed.days() == now
    # without the option none of it can be applied
    assert [r.metrics["quarantined_still"] for r in fed.replay("quarantine")] == [3, 6]
    assert fed.days() == now
    assert [r.metrics["quarantined_still"] for r in fed.replay("bounds")] == [1, 0]
    assert fed.days() == now | {3: LAST, 5: FIRST}
    assert (5, 9000) in shop.lake.duckdb_rows(fed.name, "id, length(big)")
    there = {row[0]: row[1] for row in shop.lake.duckdb_rows(fed.keyed, "day, n")}
    assert len(there) == 10 and there[date(2030, 1, 1)] == 1101 and there[DAY] == 7


def test_a_parked_round_with_an_unfit_value_is_applied(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(shop)
    assert fed.done() == [0, 0]
    shop.sql("UPDATE s.days SET day = 'infinity' WHERE id = 1")
    shop.sql("UPDATE s.days SET day = '2024-03-01' WHERE id IN (2, 3)")
    act_at(monkeypatch, "after_quarantine=raise")
    assert fed.run()[0].outcome == "failed"
    act_at(monkeypatch, "")
    shop.sql("UPDATE s.days SET day = '2024-04-01' WHERE id = 1")
    report = fed.run()[0]
    assert (report.outcome, report.metrics["parked_rounds"]) == ("done", 1), report.reason
    assert [fed.days()[i] for i in (1, 2, 4)] == [date(2024, 4, 1), date(2024, 3, 1), DAY]
    assert len(fed.quarantined_rows(fed.name)) == 1
    # its former value does not return
    fed.replay("null")
    assert fed.days()[1] == date(2024, 4, 1) and not fed.quarantined_rows(fed.name)


@pytest.mark.soak
def test_infinity_is_null_or_the_outermost_value_as_configured(shop: Shop) -> None:
    fed = Fed(shop)
    shop.sql("UPDATE s.days SET day = 'infinity' WHERE id = 3")
    assert fed.done(infinity="null") == [0, 0]
    shop.sql("UPDATE s.days SET day = '-infinity' WHERE id IN (4, 5)")
    assert fed.done(infinity="bounds") == [0, 0]
    assert [fed.days()[i] for i in (2, 3, 4)] == [DAY, None, FIRST]


def test_an_unfit_default_stops_only_its_table(shop: Shop) -> None:
    fed = Fed(shop)
    fed.done()
    shop.sql("ALTER TABLE s.days ADD COLUMN until date DEFAULT 'infinity'")
    shop.sql("UPDATE s.days SET until = '2024-04-01'")
    shop.sql("UPDATE s.keyed SET n = 5")
    bad, good = fed.run()
    assert (bad.outcome, bad.failure_class, good.outcome) == ("failed", "bad input", "done")
    assert "'until' of type date cannot take its default" in str(bad.reason)
