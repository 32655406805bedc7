"""The shop: its tables at the source, what their columns must become, and rows to fill them with."""

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

#: the moment the shop's own clock starts at
OPENING = datetime(2026, 1, 1, tzinfo=UTC)
#: bytes of a long note; in base64 they pass 8 KB, and nothing can compress them
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
#: the column that appears at the source during the run, as it is added and as it is then expected
NEW_COLUMN = ("gift_note", "text", "VARCHAR")
ADD_COLUMN = f"ALTER TABLE {SHOP}.orders ADD COLUMN {NEW_COLUMN[0]} {NEW_COLUMN[1]}"


@dataclass(frozen=True)
class Table:
    """One table of the shop.

    :param name: name without the schema.
    :param key: primary key.
    :param columns: type by column, in DuckDB's names, that the Iceberg table has to show.
    :param format_version: of the Iceberg table.
    :param partition_by: of the Iceberg table.
    """

    name: str
    key: tuple[str, ...]
    columns: dict[str, str]
    format_version: int
    partition_by: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """``schema.table`` at the source and ``namespace.table`` in the lake."""
        return f"{SHOP}.{self.name}"

    @property
    def target(self) -> dict[str, Any]:
        """The ``target`` of the ingest spec. The key comes from the source."""
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
    """Draws rows and values. The same generator in the same state draws the same ones.

    :param rng: where chance comes from.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._seconds = 0.0

    def moment(self) -> datetime:
        """The shop's clock, which only goes forward, to the microsecond."""
        self._seconds += self.rng.random()
        return OPENING + timedelta(seconds=round(self._seconds, 6))

    def word(self) -> str:
        """Some text."""
        return f"{self.rng.choice(_WORDS)} {self.rng.choice(_WORDS)}"

    def amount(self, digits: int, scale: int) -> Decimal:
        """A number below ``10 ** digits`` with ``scale`` decimals."""
        return Decimal(self.rng.randrange(10 ** (digits + scale))).scaleb(-scale)

    def tier(self) -> str:
        """A customer's tier."""
        return self.rng.choice(_TIERS)

    def status(self) -> str:
        """An order's status."""
        return self.rng.choice(_STATUSES)

    def long_note(self) -> str:
        """A note that Postgres keeps out of line."""
        return base64.b64encode(self.rng.randbytes(_NOTE_BYTES)).decode()

    def note(self) -> str | None:
        """No note, a short one, or one that is kept out of line."""
        drawn = self.rng.random()
        return self.long_note() if drawn < _NOTE_SHARE else self.word() if drawn < 0.5 else None

    def day(self) -> date | None:
        """A day of the last decades, or none."""
        return self.maybe(date(1950, 1, 1) + timedelta(days=self.rng.randrange(20_000)))

    def maybe(self, value: Any, share: float = 0.8) -> Any:
        """The value, or None."""
        return value if self.rng.random() < share else None

    def customer(self, key: int) -> Row:
        """A row of ``customers``."""
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
        """A row of ``orders`` as it was before the new column."""
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
        """A row of ``order_lines``."""
        # a timestamp without a zone, whose year and month are enough to be told from one with
        picked = self.maybe(self.moment().replace(tzinfo=None), 0.5)
        discount = self.maybe(self.rng.randrange(64) / 64, 0.3)
        return (order, number, self.word(), self.rng.randrange(1, 20), self.amount(3, 4), discount, picked)
