"""Rows and events that ``clean`` or a column cannot accept are quarantined once; the others arrive."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.killing import act_at

from .conftest import Shop

CLEAN = {"compute": {"day": "to_date(day, 'dd.MM.yyyy')"}, "filter": "100 / n > 1"}
PARTS = {"chunk_bytes": 8192, "full_load_commit_bytes": 4 * 8192, "full_load_parallelism": 2}
ROWS = 300


class Fed:
    """A table of days as text: three are not days, one number fails the filter, and two dates are odd."""

    def __init__(self, shop: Shop, **target: Any) -> None:
        self.shop, self.quarantine = shop, shop.lake.new_name("quarantine")
        self.name = shop.target("days", clean=CLEAN, columns={"day": "string"}, **target)
        shop.sql("CREATE TABLE s.days (id int PRIMARY KEY, n int, day text, due date, pad text)")
        shop.sql(
            f"INSERT INTO s.days SELECT i, 1, '01.02.2024', null, repeat('x', 200) FROM generate_series(1, {ROWS}) i"
        )
        shop.sql(f"UPDATE s.days SET day = 'no day' WHERE id IN (7, {ROWS // 2}, {ROWS})")
        shop.sql("UPDATE s.days SET n = 0 WHERE id = 9")
        shop.sql(f"UPDATE s.days SET due = 'infinity' WHERE id IN (20, {ROWS - 1})")

    def run(self, **options: Any) -> TableReport:
        options = {"quarantine_table": self.quarantine, **options}
        return ingest(self.shop.lake.spark, self.shop.spec(**PARTS, options=options))[0]

    def ids(self) -> list[int]:
        return sorted(row[0] for row in self.shop.lake.duckdb_rows(self.name, "id"))

    def quarantined_rows(self) -> list[tuple[Any, ...]]:
        quarantined = self.shop.quarantined(self.quarantine)
        return sorted((rule, int(event["row"]["id"]), event["row"]["day"]) for rule, _, event in quarantined)


UNFIT = [("type", i, "01.02.2024") for i in (20, ROWS - 1)]
BAD = [("clean", 7, "no day"), ("clean", 9, "01.02.2024"), *(("clean", i, "no day") for i in (ROWS // 2, ROWS)), *UNFIT]
GOOD = sorted({*range(1, ROWS + 1)} - {row[1] for row in BAD})


def test_an_interrupted_full_load_quarantines_rows_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(shop)
    for failpoint in ("after_commit=raise", "after_quarantine=raise"):
        act_at(monkeypatch, failpoint)
        assert fed.run().outcome == "failed"
    # rows quarantined before the load died are read again, changed meanwhile
    shop.sql(f"UPDATE s.days SET day = 'nor this' WHERE id IN (7, {ROWS // 2}, {ROWS})")
    shop.sql("UPDATE s.days SET pad = '' WHERE id BETWEEN 100 AND 120")
    act_at(monkeypatch, "")
    report = fed.run(max_quarantined_fraction=0.5)
    assert report.outcome == "done", report.reason
    assert fed.ids() == GOOD
    quarantined = fed.quarantined_rows()
    read, changed = [row for row in quarantined if row in BAD], [("clean", i, "nor this") for i in (7, ROWS // 2, ROWS)]
    # the update of a loaded or quarantined row is a separate event
    assert {*quarantined} == {*read, *changed} and {BAD[1], *UNFIT} <= {*read} and len(read) == len({*read})
    assert ("clean", ROWS, "no day") not in read
    shop.sql("UPDATE s.days SET day = '02.02.2024', n = 1, due = null")
    assert fed.run().outcome == "done" and fed.ids() == [*range(1, ROWS + 1)]


def test_too_many_misfits_fail_the_load_and_few_in_the_log_do_not(shop: Shop) -> None:
    fed = Fed(shop)
    report = fed.run(max_quarantined_fraction=0.001)
    assert "more than the share of 0.001" in str(report.reason)
    assert fed.run().outcome == "done" and fed.ids() == GOOD and fed.quarantined_rows() == BAD
    shop.sql("UPDATE s.days SET day = 'no more' WHERE id = 8")
    shop.sql("UPDATE s.days SET n = 2 WHERE id BETWEEN 100 AND 120")
    report = fed.run()
    assert (report.outcome, report.metrics["quarantined"]) == ("done", 1), report.reason
    assert fed.ids() == GOOD and ("clean", 8, "no more") in fed.quarantined_rows()
