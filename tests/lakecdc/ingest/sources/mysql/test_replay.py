"""Rows that ``clean`` rejected return with their former order, with and without a key."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.by_spark import both_engines

from .conftest import Shop

pytestmark = pytest.mark.services

COLUMNS = (
    "id int, day varchar(10), price decimal(38,18), share double, local datetime(6), seen timestamp(6) NULL, "
    "octets varbinary(9), flag bit(1), huge bigint unsigned"
)
READ = "id, day::text, price::text, share, local::text, epoch_us(seen), hex(octets), flag, huge"
EXPECTED_COLUMNS = (
    "id, DATE_FORMAT(COALESCE(STR_TO_DATE(day, '%d.%m.%Y'), day), '%Y-%m-%d'), CAST(price AS char), share, "
    "CAST(local AS char), CAST(UNIX_TIMESTAMP(seen) * 1000000 AS signed), HEX(octets), flag = 1, huge"
)
GERMAN = "to_date(day, 'dd.MM.yyyy')"
BOTH = f"CASE WHEN day LIKE '%.%' THEN {GERMAN} ELSE to_date(day) END"


def values(number: int, day: str) -> str:
    rest = (
        "98765432109876543210.000000000000000001, 1e-300, '9999-12-31 23:59:59.000001', "
        "'2024-01-01 00:00:00.123457', x'00ff', b'1', 18446744073709551615"
    )
    return f"({number}, '{day}', {rest})"


class Fed:
    """A table with days as texts, some in a form that the first expression cannot parse."""

    def __init__(self, shop: Shop, key: str, **target: Any) -> None:
        self.shop, self.quarantine = shop, shop.lake.new_name("quarantine")
        self.name = shop.target("t", clean={"compute": {"day": GERMAN}}, **target)
        shop.sql(f"CREATE TABLE s.t ({COLUMNS}{key})")

    def insert(self, day: str, *ids: int) -> None:
        self.shop.sql(f"INSERT INTO s.t VALUES {', '.join(values(number, day) for number in ids)}")

    def run(self, job: str = "ingest") -> TableReport:
        options = {"quarantine_table": self.quarantine, "max_quarantined_fraction": 1.0}
        report = ingest(self.shop.lake.spark, self.shop.spec(job=job, options=options))[0]
        assert report.outcome == "done", report.reason
        return report

    def replay(self) -> TableReport:
        self.shop.targets[0]["clean"]["compute"]["day"] = BOTH
        return self.run("replay_quarantine")

    def rows(self, columns: str = READ) -> list[tuple[Any, ...]]:
        return sorted(self.shop.lake.duckdb_rows(self.name, columns))


@both_engines
def test_corrected_cleaning_replays_rows_that_are_not_outdated(shop: Shop, engine: str) -> None:
    log = f"{shop.schema}.t_log"
    fed = Fed(shop, ", PRIMARY KEY (id)", history_table=log)
    fed.insert("01.01.2024", 1, 6)
    fed.insert("2024-01-02", 2, 3, 4)
    fed.run()
    fed.insert("2024-01-03", 10, 12)
    shop.sql("DELETE FROM s.t WHERE id IN (4, 12)", "UPDATE s.t SET day = '03.01.2024' WHERE id = 3")
    shop.sql("UPDATE s.t SET day = '2024-01-06', id = 60 WHERE id = 6")
    fed.run()
    # renamed at the source before the replay
    shop.sql("ALTER TABLE s.t RENAME COLUMN share TO part", "UPDATE s.t SET part = 2 WHERE id = 1")
    fed.run()
    report = fed.replay()
    assert (report.metrics["quarantined_before"], report.metrics["quarantined_still"]) == (6, 0)
    assert fed.rows(READ.replace("share", "part")) == shop.sql(
        "SET time_zone = '+00:00'", f"SELECT {EXPECTED_COLUMNS.replace('share', 'part')} FROM s.t ORDER BY id"
    )
    events = shop.lake.duckdb_rows(log, "id, _lakecdc_op, _lakecdc_old_key")
    loaded = [(number, "r", None) for number in (1, 2, 3, 4, 6)]
    later = [(1, "u", None), (3, "u", None), (4, "d", None), (6, "d", None), (60, "u", '{"id":6}')]
    assert sorted(events, key=str) == sorted(
        [*loaded, *later, (10, "c", None), (12, "c", None), (12, "d", None)], key=str
    )


def test_equal_rows_without_a_key_are_replayed_once_each(shop: Shop) -> None:
    fed = Fed(shop, "", mode="history")
    fed.insert("2024-01-02", 2, 2, 2)
    fed.insert("01.01.2024", 1)
    fed.run()
    fed.insert("2024-01-03", 3, 3)
    shop.sql("DELETE FROM s.t WHERE id = 2 LIMIT 1")
    fed.run()
    assert len(fed.rows()) == 1
    fed.replay()
    ops = sorted(fed.rows("id, _lakecdc_op, day::text"))
    read = [(2, "r", "2024-01-02")] * 3
    assert ops == [(1, "r", "2024-01-01"), (2, "d", "2024-01-02"), *read, *[(3, "c", "2024-01-03")] * 2]
    assert fed.shop.lake.sql(f"SELECT * FROM lake.{fed.quarantine}").isEmpty()
