"""The workload: the same seed makes the same statements, and every promised kind of change happens."""

from __future__ import annotations

import re
from typing import Any

import pytest

from demo.shop import ADD_COLUMN, TABLES
from demo.workload import Hour, Keys, Statement, Workload

ROWS, HOURS = 4_000, 6


def history(seed: int, rows: int = ROWS, hours: int = HOURS) -> tuple[dict[str, list[Any]], list[Hour]]:
    """Return all initial rows and all hours."""
    workload = Workload(seed, rows, hours)
    first = {table.name: list(workload.first_rows(table.name)) for table in TABLES}
    return first, [workload.hour(number) for number in range(1, hours + 1)]


def statements(hours: list[Hour]) -> list[Statement]:
    """Return all statements in order."""
    return [statement for hour in hours for transaction in hour.transactions for statement in transaction]


def test_same_seed_makes_the_same_statements() -> None:
    assert history(7) == history(7)


def test_another_seed_makes_other_statements() -> None:
    assert history(7) != history(8)


def test_the_number_of_first_rows_is_the_requested_one() -> None:
    first, _ = history(42)
    assert sum(map(len, first.values())) == ROWS
    assert {table.name: len(rows) for table, rows in zip(TABLES, first.values(), strict=True)} == {
        "customers": 600,
        "orders": 1400,
        "order_lines": 2000,
    }


def test_some_notes_are_stored_out_of_line() -> None:
    first, _ = history(42)
    long = [row for row in first["customers"] if row[9] and len(row[9]) > 8192]
    assert 0.02 * 600 < len(long) < 0.1 * 600


@pytest.mark.parametrize(
    "pattern",
    [
        r"UPDATE shop\.customers SET id = %s",
        r"UPDATE shop\.orders SET id = %s",
        r"UPDATE shop\.order_lines SET line_no = %s",
        r"UPDATE shop\.order_lines SET order_id = %s",
        r"DELETE FROM shop\.customers",
        r"DELETE FROM shop\.orders",
        r"DELETE FROM shop\.order_lines",
        r"INSERT INTO shop\.orders",
        r"UPDATE shop\.orders SET gift_note = %s",
    ],
)
def test_every_kind_of_change_happens(pattern: str) -> None:
    _, hours = history(42)
    assert any(re.match(pattern, statement.sql) and statement.rows for statement in statements(hours))


def test_updates_of_customers_do_not_touch_the_notes() -> None:
    _, hours = history(42)
    of_customers = [s for s in statements(hours) if s.sql.startswith("UPDATE shop.customers")]
    touching = sum(len(s.rows) for s in of_customers if "notes =" in s.sql)
    assert touching < 0.3 * sum(len(s.rows) for s in of_customers)


def deaths_and_births(hours: list[Hour]) -> list[tuple[int, int, str, int]]:
    """Return hour, transaction, ``-`` or ``+`` and key of each deleted or inserted customer, in order."""
    changes = []
    for hour in hours:
        for number, transaction in enumerate(hour.transactions):
            for statement in transaction:
                if statement.sql.startswith("DELETE FROM shop.customers"):
                    changes += [(hour.number, number, "-", row[0]) for row in statement.rows]
                if statement.sql.startswith("INSERT INTO shop.customers"):
                    changes += [(hour.number, number, "+", row[0]) for row in statement.rows]
    return changes


def test_deleted_keys_come_back_in_the_same_transaction_and_in_later_hours() -> None:
    _, hours = history(42)
    died: dict[int, tuple[int, int]] = {}
    gaps = []
    for hour, transaction, what, key in deaths_and_births(hours):
        if what == "-":
            died[key] = (hour, transaction)
        elif key in died:
            gaps.append((hour - died[key][0], transaction - died.pop(key)[1]))
    assert (0, 0) in gaps
    assert any(hour > 0 for hour, _ in gaps)


def test_one_column_is_added_in_the_middle() -> None:
    _, hours = history(42)
    adding = [hour.number for hour in hours if any(s.sql == ADD_COLUMN for t in hour.transactions for s in t)]
    assert adding == [3]
    before = [s.sql for s in statements(hours[:2])]
    assert not any("gift_note" in sql for sql in before)


def test_one_table_is_idle_in_one_hour() -> None:
    _, hours = history(42)
    idle = [h.number for h in hours if not any("shop.customers" in s.sql for t in h.transactions for s in t)]
    assert idle == [5]


@pytest.mark.parametrize("hours", [1, 2, 3])
def test_short_runs_have_the_new_column_too(hours: int) -> None:
    _, all_hours = history(42, 200, hours)
    assert any(statement.sql == ADD_COLUMN for statement in statements(all_hours))


def test_keys_are_drawn_from_existing_rows() -> None:
    from random import Random

    keys, rng = Keys[int](), Random(1)
    for key in range(10):
        keys.add(key)
    for key in (0, 9, 4):
        keys.remove(key)
    assert {keys.draw(rng) for _ in range(200)} == {1, 2, 3, 5, 6, 7, 8}
    assert len(keys) == 7
