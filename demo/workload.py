"""The workload at the source, drawn from a seed: the initial rows, then transactions by hour.

It never reads the database but tracks the existing keys, so the same seed creates the same statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, TypeVar

from demo.settings import SHOP
from demo.shop import ADD_COLUMN, NEW_COLUMN, Row, Rows

Key = TypeVar("Key")

#: share of the initial rows
SHARES = {"customers": 0.15, "orders": 0.35, "order_lines": 0.5}
#: changes per hour, relative to the initial rows
_UPDATES, _INSERTS, _DELETES, _MOVES = 0.04, 0.015, 0.008, 0.001
_TRANSACTIONS = 12


@dataclass(frozen=True)
class Statement:
    """A statement, executed once per row of parameters."""

    sql: str
    rows: tuple[Row, ...] = ((),)


Transaction = tuple[Statement, ...]


@dataclass(frozen=True)
class Hour:
    """An hour of the workload.

    :param number: 1 is the first.
    :param transactions: the transactions in order.
    :param news: special events, for the progress line.
    """

    number: int
    transactions: tuple[Transaction, ...]
    news: tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        """Return the number of executed statements."""
        return sum(len(statement.rows) for transaction in self.transactions for statement in transaction)


class Keys(Generic[Key]):
    """Existing keys, drawn in constant time and reproducible order."""

    def __init__(self) -> None:
        self._list: list[Key] = []
        self._place: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._list)

    def add(self, key: Key) -> Key:
        """Add a key."""
        self._place[key] = len(self._list)
        self._list.append(key)
        return key

    def remove(self, key: Key) -> Key:
        """Remove a key; the last one takes its place."""
        place, last = self._place.pop(key), self._list.pop()
        if last != key:
            self._list[place] = last
            self._place[last] = place
        return key

    def draw(self, rng: Random) -> Key:
        """Draw a key."""
        return self._list[rng.randrange(len(self._list))]


@dataclass
class Workload:
    """The workload.

    :param seed: seed of the random generator.
    :param size: initial rows of all tables.
    :param hours: number of hours.
    """

    seed: int
    size: int
    hours: int
    customers: Keys[int] = field(default_factory=Keys)
    orders: Keys[int] = field(default_factory=Keys)
    lines: Keys[tuple[int, int]] = field(default_factory=Keys)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.make = Rows(self.rng)
        self._next = {"customers": 1, "orders": 1}
        self._lines_of: dict[int, list[int]] = {}
        self._with_new_column = False
        self._buried: list[int] = []

    @property
    def news_hour(self) -> int:
        """Return the hour in which a column is added."""
        return (self.hours + 1) // 2

    @property
    def quiet_hour(self) -> int:
        """Return the hour without changes of customers; 0 if there is none."""
        return self.hours - 1 if self.hours > 2 else self.hours if self.hours == 2 else 0

    def count(self, table: str) -> int:
        """Return the number of a table's initial rows."""
        return int(self.size * SHARES[table])

    def first_rows(self, table: str) -> Iterator[Row]:
        """Yield a table's initial rows; call it for customers, then orders, then lines."""
        if table == "customers":
            yield from (self._new_customer() for _ in range(self.count(table)))
        elif table == "orders":
            yield from (self._new_order() for _ in range(self.count(table)))
        else:
            yield from (self._new_line() for _ in range(self.count(table)))

    def hour(self, number: int) -> Hour:
        """Return the transactions of an hour; call it once per hour, in order."""
        transactions: list[Transaction] = []
        news = []
        if number == self.news_hour:
            transactions.append((Statement(ADD_COLUMN),))
            self._with_new_column = True
            news.append(f"column {NEW_COLUMN[0]} added to orders")
        quiet = number == self.quiet_hour
        if quiet:
            news.append("nothing happens to customers")
        for _ in range(_TRANSACTIONS):
            parts = [self._orders(), self._lines()] + ([] if quiet else [self._customers()])
            transactions.append(tuple(statement for part in parts for statement in part if statement.rows))
        return Hour(number, tuple(transactions), tuple(news))

    # -- one table's part of a transaction --------------------------------------------------------------------

    def _customers(self) -> list[Statement]:
        rng, make = self.rng, self.make
        inserted = [self._new_customer() for _ in self._times("customers", _INSERTS)]
        changed = [
            (make.amount(6, 2), make.tier(), make.moment(), self.customers.draw(rng))
            for _ in self._times("customers", _UPDATES)
        ]
        noted = [(make.note(), make.moment(), self.customers.draw(rng)) for _ in self._times("customers", _MOVES)]
        moved = [self._move_customer() for _ in self._times("customers", _MOVES)]
        # one is deleted and inserted in the same transaction, the others stay deleted for now
        again = self.customers.draw(rng)
        dead = [self.customers.remove(self.customers.draw(rng)) for _ in self._times("customers", _DELETES)]
        back = [key for key in [again] if key not in dead]
        risen = self._restore(dead)
        return [
            _insert("customers", inserted),
            Statement(
                f"UPDATE {SHOP}.customers SET credit = %s, tier = %s, updated_at = %s WHERE id = %s", _t(changed)
            ),
            Statement(f"UPDATE {SHOP}.customers SET notes = %s, updated_at = %s WHERE id = %s", _t(noted)),
            Statement(f"UPDATE {SHOP}.customers SET id = %s WHERE id = %s", _t(moved)),
            Statement(f"DELETE FROM {SHOP}.customers WHERE id = %s", _t((key,) for key in [*dead, *back])),
            _insert("customers", [make.customer(key) for key in [*back, *risen]]),
        ]

    def _orders(self) -> list[Statement]:
        rng, make = self.rng, self.make
        inserted = [self._new_order() for _ in self._times("orders", _INSERTS)]
        extra = [(make.maybe(make.word()),) if self._with_new_column else () for _ in inserted]
        changed = [
            (make.status(), make.amount(5, 2), make.day(), self.orders.draw(rng))
            for _ in self._times("orders", _UPDATES)
        ]
        noted = [(make.word(), self.orders.draw(rng)) for _ in changed[::4] if self._with_new_column]
        moved = [self._move_order() for _ in self._times("orders", _MOVES)]
        dead = [self._drop_order() for _ in self._times("orders", _DELETES)]
        return [
            _insert("orders", [(*row, *more) for row, more in zip(inserted, extra, strict=True)]),
            Statement(
                f"UPDATE {SHOP}.orders SET status = %s, total = %s, delivered_on = %s WHERE id = %s", _t(changed)
            ),
            Statement(f"UPDATE {SHOP}.orders SET {NEW_COLUMN[0]} = %s WHERE id = %s", _t(noted)),
            Statement(f"UPDATE {SHOP}.orders SET id = %s WHERE id = %s", _t(moved)),
            Statement(f"UPDATE {SHOP}.order_lines SET order_id = %s WHERE order_id = %s", _t(moved)),
            Statement(f"DELETE FROM {SHOP}.orders WHERE id = %s", _t((key,) for key in dead)),
            Statement(f"DELETE FROM {SHOP}.order_lines WHERE order_id = %s", _t((key,) for key in dead)),
        ]

    def _lines(self) -> list[Statement]:
        rng, make = self.rng, self.make
        inserted = [self._new_line() for _ in self._times("order_lines", _INSERTS)]
        changed = [
            (rng.randrange(1, 20), make.amount(3, 4), make.moment().replace(tzinfo=None), *self.lines.draw(rng))
            for _ in self._times("order_lines", _UPDATES)
        ]
        moved = [self._move_line() for _ in self._times("order_lines", _MOVES)]
        dead = [self._drop_line(*self.lines.draw(rng)) for _ in self._times("order_lines", _DELETES)]
        where = "WHERE order_id = %s AND line_no = %s"
        return [
            _insert("order_lines", inserted),
            Statement(
                f"UPDATE {SHOP}.order_lines SET quantity = %s, unit_price = %s, picked_at = %s {where}", _t(changed)
            ),
            Statement(f"UPDATE {SHOP}.order_lines SET line_no = %s {where}", _t(moved)),
            Statement(f"DELETE FROM {SHOP}.order_lines {where}", _t(dead)),
        ]

    # -- keys -------------------------------------------------------------------------------------------------

    def _times(self, table: str, share: float) -> range:
        return range(max(1, round(self.count(table) * share / _TRANSACTIONS)))

    def _take(self, table: str) -> int:
        self._next[table] += 1
        return self._next[table] - 1

    def _new_customer(self) -> Row:
        return self.make.customer(self.customers.add(self._take("customers")))

    def _new_order(self) -> Row:
        key = self.orders.add(self._take("orders"))
        self._lines_of[key] = []
        return self.make.order(key, self.customers.draw(self.rng))

    def _new_line(self) -> Row:
        order = self.orders.draw(self.rng)
        numbers = self._lines_of[order]
        return self.make.line(order, self._add_line(order, max(numbers, default=0) + 1))

    def _add_line(self, order: int, number: int) -> int:
        self.lines.add((order, number))
        self._lines_of[order].append(number)
        return number

    def _drop_line(self, order: int, number: int) -> Row:
        self._lines_of[order].remove(number)
        return self.lines.remove((order, number))

    def _drop_order(self) -> int:
        key = self.orders.remove(self.orders.draw(self.rng))
        for number in self._lines_of.pop(key):
            self.lines.remove((key, number))
        return key

    def _move_customer(self) -> Row:
        old = self.customers.remove(self.customers.draw(self.rng))
        return self.customers.add(self._take("customers")), old

    def _move_order(self) -> Row:
        old, new = self.orders.remove(self.orders.draw(self.rng)), self._take("orders")
        self._lines_of[self.orders.add(new)] = []
        for number in self._lines_of.pop(old):
            self.lines.remove((old, number))
            self._add_line(new, number)
        return new, old

    def _move_line(self) -> Row:
        order, number = self.lines.draw(self.rng)
        new = max(self._lines_of[order]) + 1
        self._drop_line(order, number)
        return self._add_line(order, new), order, number

    def _restore(self, dead: list[int]) -> list[int]:
        """Restore some customers that an earlier transaction deleted, perhaps hours ago, with new rows."""
        half = (len(dead) + 1) // 2
        risen, self._buried = self._buried[:half], [*self._buried[half:], *dead]
        for key in risen:
            self.customers.add(key)
        return risen


def _insert(table: str, rows: list[Row]) -> Statement:
    places = ", ".join(["%s"] * len(rows[0])) if rows else ""
    return Statement(f"INSERT INTO {SHOP}.{table} VALUES ({places})", tuple(rows))


def _t(rows: Any) -> tuple[Row, ...]:
    return tuple(rows)
