"""Tables compared with a database that Spark reads by JDBC."""

from __future__ import annotations

import sqlite3

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.reconcile.job import reconcile
from lakecdc.runtime.run import run
from tests.lakecdc.ingest.sources.jdbc.conftest import Fed, Shop
from tests.lakecdc.reconcile.support import AT_ONCE, differences

AT = '"changed ""at"""'
YEAR = ("2026-01-01", "2027-01-01")


def compared(fed: Fed, **options: object) -> TableReport:
    document = fed.lake.spec("reconcile", source=fed.source, target=fed.target, options={**AT_ONCE, **options})
    report = run(parse_spec(document), reconcile)
    assert not report.error, report.error
    return report.tables[0]


def test_postgres_rows_are_compared(orders: Shop) -> None:
    values = "i % 2, i, 's' || i, i / 8.0, '2026-01-02'::timestamptz FROM generate_series(1, 60) i"
    orders.sql(f'INSERT INTO "Or ders" SELECT {values}')
    orders.run(*YEAR)
    # the change has no new time: ingestion never sees it
    orders.sql('UPDATE "Or ders" SET price = NULL WHERE "Id" = 7')
    orders.sql('DELETE FROM "Or ders" WHERE "Id" = 33')
    orders.sql('INSERT INTO "Or ders" VALUES (0, 99, NULL, 1, NULL)')
    expected = [
        ("different", '{"Id":7,"part":1}', ("price",)),
        ("missing", '{"Id":99,"part":0}', ()),
        ("unexpected", '{"Id":33,"part":1}', ()),
    ]
    # the table was fed up to the end of an interval that lies in the future
    report = compared(orders, ranges=6)
    assert differences(report) == expected
    assert report.metrics["ranges_different"] == 3
    orders.sql('TRUNCATE "Or ders"')
    assert compared(orders).metrics["unexpected"] == 60


@pytest.mark.soak
def test_sqlite_rows_are_compared(books: tuple[Fed, sqlite3.Connection]) -> None:
    fed, connection = books
    connection.executemany("INSERT INTO books VALUES (?, ?, ?)", [(n, f"title {n}", n) for n in range(50)])
    fed.run(full_load=True)
    connection.execute("UPDATE books SET title = '' WHERE id = 3")
    assert differences(compared(fed, ranges=4)) == [("different", '{"id":3}', ("title",))]
