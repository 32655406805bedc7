"""Rows that ``clean`` rejected, and rows that could not be completed, return with their former order."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.killing import act_at

from .conftest import Shop

COLUMNS = (
    "id int, n int, day text, doc text, big text, seen timestamptz, octets bytea, price numeric(38,10), share float8"
)
READ = (
    "id, number, day::text, left(doc, 1), length(doc), left(big, 1), length(big), epoch_us(seen), hex(octets), "
    "price::text, share::text"
)
DAY = "CASE WHEN day LIKE '%.%' THEN to_date(day, 'DD.MM.YYYY') ELSE day::date END"
EXPECTED_COLUMNS = (
    f"id, n, ({DAY})::text, left(doc, 1), length(doc), left(big, 1), length(big), "
    "(extract(epoch FROM seen) * 1000000)::bigint, upper(encode(octets, 'hex')), price::text, lower(share::text)"
)
GERMAN = "to_date(day, 'dd.MM.yyyy')"
BOTH = f"CASE WHEN day LIKE '%.%' THEN {GERMAN} ELSE to_date(day) END"


class Fed:
    """A table with days as texts, some in a form that the first expression cannot parse."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.quarantine = shop, shop.lake.new_name("quarantine")
        self.name = shop.target("t", clean={"rename": {"n": "number"}, "compute": {"day": GERMAN}})
        shop.sql(f"CREATE TABLE s.t ({COLUMNS}, PRIMARY KEY (id))")
        shop.sql("ALTER TABLE s.t ALTER doc SET STORAGE EXTERNAL, ALTER big SET STORAGE EXTERNAL")

    def insert(self, day: str, *ids: int) -> None:
        for number in ids:
            self.shop.sql(
                f"INSERT INTO s.t VALUES ({number}, 0, '{day}', repeat('d', 3000), repeat('b', 3000), "
                f"'2024-01-01 00:00:00.12345{number % 10}+00', '\\x00ff', 12345678901234567890.0123456789, 'NaN')"
            )

    def insert_unseen(self, day: str, *ids: int) -> None:
        """Insert rows without logging them."""
        self.shop.sql(f"ALTER PUBLICATION {self.shop.schema} SET (publish = 'update, delete')")
        self.insert(day, *ids)
        self.shop.sql(f"ALTER PUBLICATION {self.shop.schema} SET (publish = 'insert, update, delete, truncate')")

    def run(self, job: str = "ingest", **options: Any) -> TableReport:
        options = {"quarantine_table": self.quarantine, "max_quarantined_fraction": 1.0, **options}
        spec = self.shop.spec(job=job, options=options)
        report = ingest(self.shop.lake.spark, spec)[0]
        assert report.outcome != "failed" or "fail point" in str(report.reason), report.reason
        return report

    def replay(self, **options: Any) -> TableReport:
        return self.run("replay_quarantine", **options)

    def correct(self) -> None:
        self.shop.targets[0]["clean"]["compute"]["day"] = BOTH

    def quarantined_rows(self) -> list[tuple[str, int]]:
        return sorted((rule, int(event["row"]["id"])) for rule, _, event in self.shop.quarantined(self.quarantine))

    def state(self) -> tuple[Any, ...]:
        """Return the quarantined rows, and the table's rows with their orders."""
        return self.quarantined_rows(), sorted(self.shop.lake.duckdb_rows(self.name, f"{READ}, _lakecdc_order"))

    def assert_as_the_source(self) -> None:
        rows = sorted(self.shop.lake.duckdb_rows(self.name, READ))
        assert rows == self.shop.sql(f"SELECT {EXPECTED_COLUMNS} FROM s.t ORDER BY id")


@both_engines
def test_corrected_cleaning_replays_rows_that_are_not_outdated(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    fed = Fed(shop)
    fed.insert("01.01.2024", 1, 6, 9)
    fed.insert("2024-01-02", 2, 3, 4, 5)
    assert fed.run().metrics["quarantined"] == 4
    fed.insert("2024-01-03", 10, 12)
    shop.sql("DELETE FROM s.t WHERE id IN (4, 12)")
    shop.sql("UPDATE s.t SET day = '03.01.2024', doc = 'new', big = 'new' WHERE id = 3")
    shop.sql("UPDATE s.t SET day = '2024-01-04', doc = repeat('e', 3000) WHERE id = 1")
    shop.sql("UPDATE s.t SET day = '2024-01-06', doc = '', big = '', id = 60 WHERE id = 6")
    assert fed.run().outcome == "done"
    # these omit values that only the quarantine has
    shop.sql("UPDATE s.t SET day = '05.01.2024', n = n + 5 WHERE id IN (1, 5)")
    fed.run()
    clean = [("clean", i) for i in (1, 2, 3, 4, 5, 10, 12, 60)]
    left = [*clean, ("unchanged", 1), ("unchanged", 5)]
    assert fed.quarantined_rows() == left
    before = fed.state()
    fed.replay()
    assert fed.state() == before
    fed.correct()
    # replayed alone, rows that wait for others still wait
    fed.replay(rules=["unchanged"])
    assert fed.state() == before
    # applied rows are removed last
    act_at(monkeypatch, "after_commit=raise")
    assert fed.replay().outcome == "failed" and fed.quarantined_rows() == left
    act_at(monkeypatch, "")
    report = fed.replay()
    assert report.outcome == "done", report.reason
    assert (report.metrics["quarantined_before"], report.metrics["quarantined_still"]) == (10, 0)
    fed.assert_as_the_source()
    assert fed.quarantined_rows() == []


@pytest.mark.soak
def test_a_quarantined_incomplete_row_is_replayed_with_all_its_events(shop: Shop) -> None:
    fed = Fed(shop)
    fed.insert("01.01.2024", 2)
    fed.run()
    fed.insert_unseen("01.01.2024", 1)
    shop.sql("UPDATE s.t SET doc = 'new' WHERE id = 1; UPDATE s.t SET n = 7 WHERE id = 1")
    shop.sql("UPDATE s.t SET n = 8, id = 3 WHERE id = 1; UPDATE s.t SET n = 9 WHERE id = 3")
    assert fed.run().metrics["quarantined"] == 4
    fed.replay()
    assert fed.quarantined_rows() == [("unchanged", 1)] * 2 + [("unchanged", 3)] * 2
    shop.lake.sql(f"INSERT INTO lake.{fed.name} SELECT 1 AS id, * EXCEPT (id) FROM lake.{fed.name} WHERE id = 2")
    assert fed.replay().outcome == "done"
    fed.assert_as_the_source()
    assert fed.quarantined_rows() == []


def test_updates_before_a_marked_truncate_stay_quarantined(shop: Shop) -> None:
    fed = Fed(shop)
    shop.targets[0]["on_truncate"] = "mark"
    fed.insert("01.01.2024", 2)
    fed.run()
    fed.insert_unseen("01.01.2024", 1)
    shop.sql("UPDATE s.t SET doc = 'new' WHERE id = 1; UPDATE s.t SET n = 7 WHERE id = 1; TRUNCATE s.t")
    fed.run()
    assert fed.quarantined_rows() == [("unchanged", 1)] * 2


def test_a_new_full_load_clears_earlier_quarantined_rows(shop: Shop) -> None:
    fed = Fed(shop)
    fed.insert("2024-01-02", 1, 2)
    fed.run()
    shop.lake.sql(f"DROP TABLE lake.{fed.name} PURGE")
    shop.lake.sql(f"DROP VIEW IF EXISTS lake.{fed.name}_view")
    shop.sql("DELETE FROM s.t WHERE id = 1")
    fed.insert("2024-01-03", 3)
    fed.run()
    assert fed.quarantined_rows() == [("clean", 2), ("clean", 3)]
    fed.correct()
    fed.replay()
    fed.assert_as_the_source()
