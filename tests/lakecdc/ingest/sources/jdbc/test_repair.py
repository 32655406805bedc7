"""Rows that differ from a database without a log are loaded again, with the order of its cursor."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.ingest.current_rows.jdbc import Table
from lakecdc.ingest.sources.jdbc.source import Jdbc
from tests.lakecdc.ingest.sources.jdbc.conftest import Shop

from .test_reconcile import AT, YEAR, compared

_COLUMNS = '"Id", part, state, price'
_NEXT = ("2027-01-01", "2028-01-01")


def make_table(orders: Shop) -> int:
    """Make a fed table that differs; return the number of differing rows."""
    values = "i % 2, i, 's' || i, i / 8.0, '2026-01-02'::timestamptz + i * interval '1 second'"
    orders.sql(f'INSERT INTO "Or ders" SELECT {values} FROM generate_series(1, 60) i')
    orders.run(*YEAR)
    # ingestion never sees these changes
    orders.sql('UPDATE "Or ders" SET price = NULL WHERE "Id" = 7')
    orders.sql('DELETE FROM "Or ders" WHERE "Id" IN (33, 34)')
    orders.sql('INSERT INTO "Or ders" VALUES (0, 99, NULL, 1, NULL)')
    orders.lake.sql(f"UPDATE lake.{orders.name} SET state = 'spoilt' WHERE id IN (8, 9)")
    orders.lake.sql(f"DELETE FROM lake.{orders.name} WHERE id IN (10, 11)")
    # rows of other writers have no order
    orders.lake.sql(f"INSERT INTO lake.{orders.name} BY NAME SELECT 1 AS part, 5000L AS id, 'foreign' AS state")
    return 9


def change(orders: Shop, moment: str, ids: str) -> None:
    orders.sql(f"""UPDATE "Or ders" SET state = 'newest', {AT} = '{moment}' WHERE "Id" IN ({ids})""")


def check_equal(orders: Shop) -> None:
    assert orders.rows(_COLUMNS) == sorted(orders.sql(f'SELECT {_COLUMNS} FROM "Or ders"'), key=str)


def test_rows_are_loaded_once_more_if_ingestion_comes_first(orders: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    planted, load, loads = make_table(orders), Table.load, list[int]()

    def overtaken(*arguments: Any) -> Any:
        batch = load(*arguments)
        loads.append(1)
        if len(loads) == 1:
            change(orders, "2027-02-02", "8, 10")
            orders.run(*_NEXT)
        return batch

    monkeypatch.setattr(Table, "load", overtaken)
    report = compared(orders, repair=True)
    assert (report.outcome, report.metrics["repaired"], len(loads)) == ("done", planted, 2), report.reason
    check_equal(orders)


@pytest.mark.soak
def test_keys_may_return_after_a_repair(orders: Shop) -> None:
    make_table(orders)
    assert compared(orders, repair=True).outcome == "done"
    # one of them unchanged
    again = "(1, 33, 'again', 1, '2027-03-03'), (0, 34, 's34', 4.25, '2026-01-02 00:00:34+00')"
    orders.sql(f'INSERT INTO "Or ders" VALUES {again}')
    orders.run(*_NEXT)
    report = compared(orders, repair=True)
    assert (report.outcome, report.metrics["repaired"]) == ("done", 1), report.reason
    check_equal(orders)


def test_a_run_that_read_before_a_repair_does_not_commit_after_it(
    orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted, batch_of, reports = make_table(orders), Jdbc._batch, list[Any]()

    def repaired_meanwhile(*arguments: Any) -> Any:
        batch = batch_of(*arguments)
        # above the cursors of these rows but below the table's highest, so no later run reads it
        change(orders, "2026-01-02 00:00:30", "8, 20")
        reports.append(compared(orders, repair=True))
        return batch

    monkeypatch.setattr(Jdbc, "_batch", repaired_meanwhile)
    orders.run(*YEAR, outcome="conflict")
    monkeypatch.undo()
    # the late change differs as well: its interval was already read
    assert (reports[0].outcome, reports[0].metrics["repaired"]) == ("done", planted + 1), reports[0].reason
    check_equal(orders)
