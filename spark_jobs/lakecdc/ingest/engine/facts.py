"""What tasks tell the driver about their part of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from lakecdc.ingest.engine.layout import COUNTS, OPS, ORDER_PARTS, order_texts
from lakecdc.model.order import RANK_CHANGE, Stretch, highest, joined, lowest, order_key

if TYPE_CHECKING:
    from typing import Any

    import duckdb
    import pyarrow as pa


@dataclass(frozen=True)
class Facts:
    """Facts about a part of a batch; those of two parts make one.

    :param odd: why the batch is not for this engine.
    :param aside: messages that are set aside.
    :param why: why the first of them is.
    :param rejected: events that are rejected, which the facts of rows leave out.
    :param rejected_orders: their highest order key by ``topic/partition``.
    :param rejected_newest: their newest source time, microseconds since 1970.
    :param moves: rows that are the deletes of keys which an update has changed.
    :param tables: source tables of its events, two at most.
    :param keys: rows that are no tombstones.
    :param events: by op, ``x`` for tombstones.
    :param deletes: rows that are deletes.
    :param lone: keys with a tombstone and without a delete.
    :param open: rows with placeholders.
    :param filled: rows whose placeholders were all filled from earlier events.
    :param low_orders: lowest order key of a row by ``topic/partition``.
    :param high_orders: highest order key by ``topic/partition``; tombstones have none of their own.
    :param newest: source time, microseconds since 1970.
    :param stretches: of its changes, by ``topic/partition``.
    :param schemas: columns of the messages' schemas as JSON, empty for messages without; two at most.
    :param left_out: why tasks cannot fold the events, which leave values out.
    :param first_orders: lowest order key of an event, folded or not, by ``topic/partition``; told only where values
        may be left out.
    """

    odd: str | None = None
    tables: tuple[str, ...] = ()
    keys: int = 0
    deletes: int = 0
    events: dict[str, int] = field(default_factory=dict)
    lone: int = 0
    open: int = 0
    low_orders: dict[str, str] = field(default_factory=dict)
    high_orders: dict[str, str] = field(default_factory=dict)
    newest: int | None = None
    aside: int = 0
    why: str | None = None
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    schemas: tuple[str, ...] = ()
    filled: int = 0
    left_out: str | None = None
    first_orders: dict[str, str] = field(default_factory=dict)
    rejected: int = 0
    moves: int = 0
    rejected_orders: dict[str, str] = field(default_factory=dict)
    rejected_newest: int | None = None

    @property
    def high_order(self) -> str | None:
        """Highest order key."""
        return max(self.high_orders.values(), default=None)

    @property
    def low_order(self) -> str | None:
        """Lowest order key of a row."""
        return min(self.low_orders.values(), default=None)

    @property
    def newest_event(self) -> int | None:
        """Source time of the newest event, rejected ones included, in microseconds since 1970."""
        return max((n for n in (self.newest, self.rejected_newest) if n is not None), default=None)

    @property
    def leaves_out(self) -> bool:
        """Whether rows have placeholders, or had some that earlier events have filled."""
        return bool(self.open or self.filled)

    @property
    def whole(self) -> int:
        """Rows that are neither deletes nor have placeholders."""
        return self.keys - self.deletes - self.open

    def to_json(self) -> str:
        """As it travels."""
        return json.dumps(asdict(self))


def from_json(text: str) -> Facts:
    """Facts out of a task."""
    told = json.loads(text)
    return Facts(**{**told, "tables": tuple(told["tables"]), "schemas": tuple(told["schemas"])})


def merged(parts: Iterable[Facts]) -> Facts:
    """Return the facts of all parts together."""
    found = list(parts)
    schemas = _ends(name for part in found for name in part.schemas)
    several = "messages of several schemas" if len(schemas) > 1 else None
    return Facts(
        next((part.odd for part in found if part.odd), several),
        _ends(table for part in found for table in part.tables),
        sum(part.keys for part in found),
        sum(part.deletes for part in found),
        {op: sum(part.events.get(op, 0) for part in found) for op in (*OPS, "x")},
        sum(part.lone for part in found),
        sum(part.open for part in found),
        lowest(pair for part in found for pair in part.low_orders.items()),
        highest(pair for part in found for pair in part.high_orders.items()),
        max((part.newest for part in found if part.newest is not None), default=None),
        sum(part.aside for part in found),
        next((part.why for part in found if part.why), None),
        joined(part.stretches for part in found),
        schemas,
        sum(part.filled for part in found),
        next((part.left_out for part in found if part.left_out), None),
        lowest(pair for part in found for pair in part.first_orders.items()),
        sum(part.rejected for part in found),
        sum(part.moves for part in found),
        highest(pair for part in found for pair in part.rejected_orders.items()),
        max((part.rejected_newest for part in found if part.rejected_newest is not None), default=None),
    )


def _ends(names: Iterable[str]) -> tuple[str, ...]:
    """Return the first and the last of some names, which are one if all are."""
    found = sorted(set(names))
    return tuple(dict.fromkeys((*found[:1], *found[-1:])))


def stretches(batch: pa.RecordBatch, epoch: int) -> Facts:
    """Return the changes of each partition, cut where a newer one stands lower than one before it.

    :param batch: of the engine's layout, not folded yet.
    """
    import numpy as np

    parts = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in ORDER_PARTS}
    partitions = batch.column("partition").dictionary_encode()
    codes = partitions.indices.to_numpy(zero_copy_only=False)
    is_placed = parts["pos"] != parts["ord"].astype(parts["pos"].dtype)
    rises = (parts["rank"] == RANK_CHANGE) & is_placed
    found: dict[str, list[Stretch]] = {}
    for code, name in enumerate(partitions.dictionary.to_pylist()):
        places = np.flatnonzero(rises & (codes == code))
        places = places[np.argsort(parts["arrival"][places], kind="stable")]
        times, positions = parts["time_ms"][places], parts["pos"][places]
        newer = times[1:] > np.maximum.accumulate(times)[:-1]
        lower = positions[1:] < np.maximum.accumulate(positions)[:-1]
        for there in np.split(places, np.flatnonzero(newer & lower)[:1] + 1) if len(places) else ():
            told = (there[0], there[parts["time_ms"][there].argmax()], there[parts["pos"][there].argmax()])
            keys = [order_key(epoch, *(int(parts[part][place]) for part in ORDER_PARTS)) for place in told]
            found.setdefault(name, []).append(keys)
    return Facts(stretches=found)


def first_orders(batch: pa.RecordBatch, epoch: int) -> Facts:
    """Return the lowest order key of each partition.

    :param batch: of the engine's layout, not folded yet.
    """
    import numpy as np
    import pyarrow.compute as pc

    parts = [batch.column(name).to_numpy(zero_copy_only=False) for name in ORDER_PARTS]
    partitions = batch.column("partition").dictionary_encode()
    codes = partitions.indices.to_numpy(zero_copy_only=False)
    events = pc.not_equal(batch.column("op"), "x").to_numpy(zero_copy_only=False)
    found = {}
    for code, name in enumerate(partitions.dictionary.to_pylist()):
        places = np.flatnonzero(events & (codes == code))
        for part in parts if len(places) else ():
            places = places[part[places] == part[places].min()]
        if len(places):
            found[name] = order_texts(epoch, *(part[places[:1]] for part in parts))[0].as_py()
    return Facts(first_orders=found)


def of_rejected(batch: pa.RecordBatch) -> Facts:
    """Return what rejected events tell of the batch.

    :param batch: of the engine's layout, not folded yet.
    """
    import pyarrow.compute as pc

    orders = batch.column("rejected").field("order").to_pylist()
    high = highest(zip(batch.column("partition").to_pylist(), orders, strict=True))
    newest = pc.max(batch.column("time_us")).as_py()
    return Facts(rejected=batch.num_rows, rejected_orders=high, rejected_newest=newest)


def measured(connection: duckdb.DuckDBPyConnection, table: str, *, folded: bool) -> Facts:
    """Look through a table of the engine's layout with order keys.

    :param table: its name in DuckDB.
    :param folded: it has one row per key, so that lone tombstones can be told.
    """
    sums = ", ".join(f"coalesce(sum({count}), 0)::BIGINT" for count in COUNTS)
    rows: list[Any] = connection.execute(
        f"""SELECT "partition", max("order") FILTER (op != 'x'), min("order") FILTER (op != 'x'),
          count(*) FILTER (op != 'x'), count(open), max(time_us),
          count(*) FILTER (n_x > 0 AND n_d = 0), count(*) FILTER (op = 'd'), {sums}
        FROM {table} GROUP BY "partition" """
    ).fetchall()
    return Facts(
        keys=sum(row[3] for row in rows),
        deletes=sum(row[7] for row in rows),
        events={op: sum(row[8 + i] for row in rows) for i, op in enumerate((*OPS, "x"))},
        lone=sum(row[6] for row in rows) if folded else 0,
        open=sum(row[4] for row in rows),
        low_orders={row[0]: row[2] for row in rows if row[2]},
        high_orders={row[0]: row[1] for row in rows if row[1]},
        newest=max((row[5] for row in rows if row[5] is not None), default=None),
    )
