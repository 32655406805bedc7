"""The shop: its source tables, the expected types of their columns, and random rows."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from demo.settings import SHOP

Row = tuple[Any, ...]

#: start of the shop's clock
OPENING = datetime(2026, 1, 1, tzinfo=UTC)
#: bytes of a long note; over 8 KB in base64, and incompressible
_NOTE_BYTES = 6_300
_NOTE_SHARE = 0.05
_TIERS = ("basic", "silver", "gold")
_STATUSES = ("placed", "paid", "shipped", "returned")
_WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heath", "iris", "jade", "kelp", "loam")

DDL = f"""
CREATE SCHEMA {SHOP};
CREATE TYPE {SHOP}.tier AS ENUM ('basic', 'silver', 'gold');
CREATE TYPE {SHOP}.status AS ENUM ('placed', 'paid', 'shipped', 'returned');
CREATE TABLE {SHOP}.customers (
    id integer PRIMARY KEY,
    name text NOT NULL,
    country char(2) NOT NULL,
    tier {SHOP}.tier NOT NULL,
    credit numeric(12, 2) NOT NULL,
    birthday date,
    is_active boolean NOT NULL,
    tags text[],
    preferences jsonb,
    notes text,
    updated_at timestamptz NOT NULL
);
-- out of line and as it is: an update that does not touch the notes leaves them out of the log
ALTER TABLE {SHOP}.customers ALTER COLUMN notes SET STORAGE EXTERNAL;
CREATE TABLE {SHOP}.orders (
    id bigint PRIMARY KEY,
    customer_id integer NOT NULL,
    status {SHOP}.status NOT NULL,
    total numeric(14, 2) NOT NULL,
    weight double precision,
    reference uuid NOT NULL,
    label bytea,
    placed_at timestamptz NOT NULL,
    delivered_on date
);
CREATE TABLE {SHOP}.order_lines (
    order_id bigint,
    line_no smallint,
    product text NOT NULL,
    quantity integer NOT NULL,
    unit_price numeric(10, 4) NOT NULL,
    discount real,
    picked_at timestamp,
    PRIMARY KEY (order_id, line_no)
);
"""
#: the column added during the run: name, type at the source, expected type
NEW_COLUMN = ("gift_note", "text", "VARCHAR")
ADD_COLUMN = f"ALTER TABLE {SHOP}.orders ADD COLUMN {NEW_COLUMN[0]} {NEW_COLUMN[1]}"


@dataclass(frozen=True)
class Table:
    """A table of the shop.

    :param name: name without schema.
    :param key: primary key.
    :param columns: expected DuckDB type by column.
    :param format_version: format version of the Iceberg table.
    :param partition_by: partitioning of the Iceberg table.
    """

    name: str
    key: tuple[str, ...]
    columns: dict[str, str]
    format_version: int
    partition_by: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Return ``schema.table`` at the source, which is ``namespace.table`` in the lake."""
        return f"{SHOP}.{self.name}"

    @property
    def target(self) -> dict[str, Any]:
        """Return the ``target`` of the ingest spec; the key comes from the source."""
        return {
            "table": self.full_name,
            "format_version": self.format_version,
            "partition_by": list(self.partition_by),
        }


TABLES = (
    Table(
        "customers",
        ("id",),
        {
            "id": "INTEGER",
            "name": "VARCHAR",
            "country": "VARCHAR",
            "tier": "VARCHAR",
            "credit": "DECIMAL(12,2)",
            "birthday": "DATE",
            "is_active": "BOOLEAN",
            "tags": "VARCHAR",
            "preferences": "VARCHAR",
            "notes": "VARCHAR",
            "updated_at": "TIMESTAMP WITH TIME ZONE",
        },
        format_version=3,
    ),
    Table(
        "orders",
        ("id",),
        {
            "id": "BIGINT",
            "customer_id": "INTEGER",
            "status": "VARCHAR",
            "total": "DECIMAL(14,2)",
            "weight": "DOUBLE",
            "reference": "VARCHAR",
            "label": "BLOB",
            "placed_at": "TIMESTAMP WITH TIME ZONE",
            "delivered_on": "DATE",
            NEW_COLUMN[0]: NEW_COLUMN[2],
        },
        format_version=3,
        partition_by=("bucket(4, id)",),
    ),
    Table(
        "order_lines",
        ("order_id", "line_no"),
        {
            "order_id": "BIGINT",
            "line_no": "INTEGER",
            "product": "VARCHAR",
            "quantity": "INTEGER",
            "unit_price": "DECIMAL(10,4)",
            "discount": "FLOAT",
            "picked_at": "TIMESTAMP",
        },
        format_version=2,
        partition_by=("bucket(4, order_id)",),
    ),
)


class Rows:
    """Random rows and values, reproducible from the generator's state.

    :param rng: the random generator.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._seconds = 0.0

    def moment(self) -> datetime:
        """Advance the shop's clock and return its time, to the microsecond."""
        self._seconds += self.rng.random()
        return OPENING + timedelta(seconds=round(self._seconds, 6))

    def word(self) -> str:
        """Draw some text."""
        return f"{self.rng.choice(_WORDS)} {self.rng.choice(_WORDS)}"

    def amount(self, digits: int, scale: int) -> Decimal:
        """Draw a number below ``10 ** digits`` with ``scale`` decimals."""
        return Decimal(self.rng.randrange(10 ** (digits + scale))).scaleb(-scale)

    def tier(self) -> str:
        """Draw a customer's tier."""
        return self.rng.choice(_TIERS)

    def status(self) -> str:
        """Draw an order's status."""
        return self.rng.choice(_STATUSES)

    def long_note(self) -> str:
        """Draw a note that Postgres stores out of line."""
        return base64.b64encode(self.rng.randbytes(_NOTE_BYTES)).decode()

    def note(self) -> str | None:
        """Draw no note, a short one, or one stored out of line."""
        drawn = self.rng.random()
        return self.long_note() if drawn < _NOTE_SHARE else self.word() if drawn < 0.5 else None

    def day(self) -> date | None:
        """Draw a day of the last decades, or None."""
        return self.maybe(date(1950, 1, 1) + timedelta(days=self.rng.randrange(20_000)))

    def maybe(self, value: Any, share: float = 0.8) -> Any:
        """Return the value, or None at random."""
        return value if self.rng.random() < share else None

    def customer(self, key: int) -> Row:
        """Draw a row of ``customers``."""
        tags = [self.rng.choice(_WORDS) for _ in range(self.rng.randrange(3))]
        preferences = json.dumps({"newsletter": self.rng.random() < 0.5, "size": self.rng.randrange(36, 48)})
        return (
            key,
            self.word(),
            self.rng.choice(("AT", "BR", "CH", "DK", "ES")),
            self.tier(),
            self.amount(6, 2),
            self.day(),
            self.rng.random() < 0.9,
            self.maybe(tags),
            self.maybe(preferences),
            self.note(),
            self.moment(),
        )

    def order(self, key: int, customer: int) -> Row:
        """Draw a row of ``orders``, without the new column."""
        return (
            key,
            customer,
            self.status(),
            self.amount(5, 2),
            self.maybe(self.rng.random() * 30),
            f"{self.rng.getrandbits(128):032x}",
            self.maybe(self.rng.randbytes(12), 0.3),
            self.moment(),
            self.day(),
        )

    def line(self, order: int, number: int) -> Row:
        """Draw a row of ``order_lines``."""
        # a timestamp without time zone
        picked = self.maybe(self.moment().replace(tzinfo=None), 0.5)
        discount = self.maybe(self.rng.randrange(64) / 64, 0.3)
        return (order, number, self.word(), self.rng.randrange(1, 20), self.amount(3, 4), discount, picked)
